"""Tactics of the weight-stationary GEMM: what is legal, what it costs, and a good one by reasoning."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from math import ceil

import numpy as np

from ..device import Device
from ..layouts import Regions, end, mailbox
from ..layouts import ws_gemm as layout
from ..layouts.banks import Access
from ..layouts.fragments import K_BLOCK, MMA_M, MMA_N
from ..problem import FrontProblem, GemmProblem
from .base import (
    BF16_TOLERANCE,
    F32_TOLERANCE,
    FIRST,
    LAST,
    TRIGGER_WORDS,
    TRIGGERS,
    Footprint,
    Result,
    Tactic,
    occupancy,
    register_limit,
)
from .ws_gemm_time import FORMULA

MAX_THREADS = 1024
MAX_CLUSTER = 16  #: what any device offers, beyond 8 as a non-portable size
MAX_CHAINS = 4  #: more independent accumulators than that no longer hide the latency of mma.sync
MAX_ROW_TILES = 8  #: of a CTA in `enumerate`
GROUPS = (0, 8, 16, 32, 64)  #: tokens per group in `enumerate`; 0 is a single pass
MAX_MMAS = 2048  #: of a warp: the loops are fully unrolled; more would outgrow the instruction cache
HELD = 8  #: registers of a K block that a thread holds
OTHER_REGISTERS = 36  #: of a thread besides weights and accumulators: addresses, x and the epilogue's
PART_BLOCKS = 15  #: K blocks of a warp that the heuristic aims at
COARSE_BLOCKS = (7, 14)  #: of a warp in a coarse grid, as near as K allows


@dataclass(frozen=True)
class WsGemmTactic(Tactic):
    """How N and K are cut over warps, CTAs and clusters, what of the weights is staged, and the token groups."""

    kernel = "ws-gemm"
    max_n = (1 << 27) - 16  #: up to 16 CTAs share 16 rows, and a grid has fewer than 2^31 CTAs
    n_multiple = MMA_M
    k_multiple = K_BLOCK
    baselines = ("warp-splitk",)
    formula = FORMULA

    rt: int  #: 16-row tiles of N per CTA; N is a multiple of 16 rt
    kq: int  #: warps that split K inside a CTA; K is a multiple of 32 kq ks, and 32 rt kq threads at most 1024
    ks: int  #: CTAs of a cluster that split K: 1 to 16, above 8 a non-portable size
    staged: int  #: K blocks of a warp that go through shared memory: 0 to K / (32 kq ks); the others sit in registers
    tg: int  #: tokens per group, a multiple of 8 (and ks > 1); 0: a single pass
    ch: int  #: accumulator chains per 8-token tile, 1 to 4; 0: 4 / tiles per group, at least 1
    #: place of `griddepcontrol.launch_dependents`: 0 before all else, 1 where x has been asked for
    trigger: int = field(default=FIRST, metadata=TRIGGER_WORDS)

    @classmethod
    def problem(cls, problem: GemmProblem) -> FrontProblem:
        return FrontProblem.of(problem)

    def specialisation(self, problem: GemmProblem) -> dict[str, int]:
        """Every field: M decides the loops, the rest the epilogue. The rank is a parameter."""
        return asdict(self.problem(problem))

    @classmethod
    def output(cls, problem: GemmProblem) -> np.ndarray:
        """An empty mailbox for M tokens: the sentinel everywhere."""
        return mailbox.empty(problem.m, cls.problem(problem).latent, cls.problem(problem).experts)

    @classmethod
    def results(cls, problem: GemmProblem) -> tuple[Result, ...]:
        """What rank 0 publishes: its latent shard and, if it has router rows, its logits."""
        front = cls.problem(problem)
        latent = Result("latent", slice(0, front.shard), "bf16", slice(front.split, front.n), BF16_TOLERANCE)
        columns = slice(front.latent, front.latent + 2 * front.valid)
        logits = Result("logits", columns, "f32", slice(0, front.valid), F32_TOLERANCE)
        return (latent, logits) if front.valid else (latent,)

    @property
    def threads(self) -> int:
        return layout.WARP * self.rt * self.kq

    def blocks(self, problem: GemmProblem) -> int:
        """K blocks of 32 that each warp multiplies."""
        return problem.k // (K_BLOCK * self.kq * self.ks)

    def chains(self, problem: GemmProblem) -> int:
        """Accumulator chains per 8-token tile; more than a warp has mma for one would stay empty."""
        wanted = self.ch or max(1, MAX_CHAINS // layout.tiles_per_group(problem.m, self.tg))
        return min(wanted, 2 * self.blocks(problem))

    def smem_regions(self, problem: GemmProblem) -> Regions:
        return layout.smem_regions(problem.m, problem.k, self.rt, self.kq, self.ks, self.staged, self.tg)

    def smem_bytes(self, problem: GemmProblem) -> int:
        return end(self.smem_regions(problem))

    def registers(self, problem: GemmProblem) -> int:
        """Registers that a thread needs at the least: weights, accumulators and the rest."""
        held = HELD * (self.blocks(problem) - self.staged)
        accumulators = 4 * layout.tiles_per_group(problem.m, self.tg) * self.chains(problem)
        return held + accumulators + OTHER_REGISTERS

    def register_limit(self) -> int:
        """Registers that a thread can get."""
        return register_limit(self.threads)

    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """Clusters of ks CTAs, one per rt tiles of N."""
        return problem.n // (MMA_M * self.rt) * self.ks, 1, 1

    def why_not(self, problem: GemmProblem, device: Device) -> str | None:
        if reason := self.refusal(problem):
            return reason
        warps = MAX_THREADS // layout.WARP
        limits = (
            ("rt", 1, warps),
            ("kq", 1, warps),
            ("ks", 1, MAX_CLUSTER),
            ("ch", 0, MAX_CHAINS),
            ("trigger", *TRIGGERS),
        )
        for name, low, high in limits:
            if not low <= getattr(self, name) <= high:
                return f"{name} is {getattr(self, name)}, but must be {low} to {high}"
        if self.tg < 0 or self.tg % MMA_N:
            return f"tg is {self.tg}, but must be 0 or a multiple of {MMA_N}"
        if self.tg and self.ks == 1:
            return f"tg is {self.tg}, but token groups need a cluster: raise ks above 1, or set tg to 0"
        if self.ks > device.max_cluster:
            return f"ks is {self.ks}, but this device allows clusters up to {device.max_cluster}"
        if problem.n % (MMA_M * self.rt):
            return f"rt {self.rt} makes tiles of {MMA_M * self.rt} rows, which do not divide N = {problem.n}"
        if problem.k % (K_BLOCK * self.kq * self.ks):
            parts = f"{self.kq * self.ks} parts of whole {K_BLOCK}-element blocks"
            return f"kq {self.kq} and ks {self.ks} cut K into {parts}, which K = {problem.k} does not have"
        if self.threads > MAX_THREADS:
            return f"rt {self.rt} x kq {self.kq} warps are {self.threads:,} threads, more than a CTA's {MAX_THREADS:,}"
        blocks = self.blocks(problem)
        if not 0 <= self.staged <= blocks:
            return f"staged is {self.staged}, but must be 0 to {blocks}, the K blocks of a warp"
        mmas = 2 * blocks * layout.token_tiles(problem.m)
        if mmas > MAX_MMAS:
            return f"a warp would run {mmas:,} unrolled mma, but at most {MAX_MMAS:,} are allowed: raise kq or ks"
        if self.registers(problem) > self.register_limit():
            needed = f"about {self.registers(problem)} registers per thread needed"
            available = f"{self.register_limit()} available to {self.threads} threads"
            return f"{needed}, {available}: raise staged, kq or ks"
        if self.smem_bytes(problem) > device.smem_per_cta:
            needed = f"{self.smem_bytes(problem):,} B of shared memory needed"
            return f"{needed}, {device.smem_per_cta:,} available: lower staged or rt, or raise ks"
        return None

    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        regions, smem, threads = self.smem_regions(problem), self.smem_bytes(problem), self.threads
        ctas, _, _ = self.grid(problem)
        per_sm = occupancy(smem, threads, device, self.registers(problem))
        waves = ceil(ctas // self.ks / (device.resident_clusters(self.ks) * per_sm))
        weights = 2 * MMA_M * self.rt * problem.k // self.ks  # all of a CTA's weights are on their way at once
        in_flight = min(per_sm, ceil(ctas / device.sms)) * weights
        return Footprint(tuple(regions), smem, threads, ctas, per_sm, waves, in_flight)

    def shared_accesses(self, problem: GemmProblem) -> list[Access]:
        """Staged weights, x of the settle pipeline, the parts of a sum and the turn of a finished block."""
        t, blocks = self, self.blocks(problem)
        return layout.shared_accesses(blocks, problem.k // t.ks, t.rt, t.kq, t.ks, t.staged, t.tg)

    @classmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list["WsGemmTactic"]:
        """Every legal tactic with rt up to 8, ch of 1, 2 or 4 and groups of 8, 16, 32 ... tokens, ascending."""
        runs = _all_runs(_whole_tiles(problem), device)
        every = sorted((t.rt, t.kq, t.ks, staged, t.tg, t.ch) for t, legal in runs for staged in legal)
        return [cls(*values, trigger) for values in every for trigger in TRIGGERS]

    @classmethod
    def choices(cls, problem: GemmProblem, device: Device) -> dict[str, tuple[int, ...]]:
        runs = _all_runs(_whole_tiles(problem), device)
        values = {field.name: {getattr(least, field.name) for least, _ in runs} for field in fields(cls)}
        values |= {"staged": {staged for _, legal in runs for staged in legal}, "trigger": set(TRIGGERS)}
        return {name: tuple(sorted(legal)) for name, legal in values.items()}

    @classmethod
    def unsupported(cls, problem: GemmProblem, device: Device) -> str | None:
        reason = cls.refusal(problem)
        if reason is None and not any(_runs(problem, device)):
            reason = f"no tactic fits {device.title}"
        return reason and f"{problem.n}x{problem.k} at M = {problem.m}: {reason}"

    @classmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> "WsGemmTactic":
        """Groups of half of the tokens, so that one half settles while the other is multiplied, else one pass."""
        if reason := cls.unsupported(problem, device):
            raise ValueError(reason)
        half = MMA_N << max(0, (layout.token_tiles(problem.m) - 1).bit_length() - 1)
        for groups in ((half,), (0,), GROUPS):
            if runs := _all_runs(_whole_tiles(problem), device, groups):
                break
        return min((least for least, _ in runs), key=lambda tactic: tactic.preference(problem))

    def preference(self, problem: GemmProblem) -> tuple:
        """Smaller is better: parts of about 15 blocks, all in registers; wide CTAs; clusters of 8; 4 chains a group."""
        blocks, chains = self.blocks(problem), self.ch * layout.tiles_per_group(problem.m, self.tg)
        return abs(blocks - PART_BLOCKS), self.staged, -self.rt, abs(self.ks - 8), abs(chains - MAX_CHAINS)

    def variations(self, problem: GemmProblem, device: Device) -> list["WsGemmTactic"]:
        """Thirty to a hundred and fifty tactics of a front; on H200 the best of a wider search were all of this kind.

        - All weights must be resident at once for their loads to run ahead of x: one wave, on 1/4 of the SMs or more.
        - Each CTA reads its part of x for all its row tiles, and launching costs time: the two widest rt, a CTA per SM.
        - A warp multiplies about 7 or 14 K blocks: more make a long chain behind the wait, fewer more parts to add up.
        - Weights in registers are at hand: `staged` only as far as they do not fit, which is the least shared memory.
        - Clusters take token groups, up to four of them: even where one group is all there is, pushing the parts was
          0.7 us faster than a single pass at M = 1, 1.3 us at M = 32. A single pass is tried with the longer K cut.
        - Chains: one, which takes the fewest registers, or as many as hide the latency of mma.
        - The trigger after x has been asked for, with more than 8 tokens in groups: x then comes before the next
          launch's weights. M = 32 went from 4.22 to 3.87 us, M = 8 from 2.57 to 2.90.
        """
        tiles = layout.token_tiles(problem.m)
        groups = [tg for tg in (8, 16, 32) if tg // 8 <= tiles <= 4 * (tg // 8)]
        warps: dict[tuple[int, int], set[int]] = {}
        for tactic, _ in _all_runs(_whole_tiles(problem), device):
            warps.setdefault((tactic.rt, tactic.ks), set()).add(tactic.kq)
        found = []
        widest = sorted({rt for rt, _ in warps})[-2:]
        for (rt, ks), allowed in warps.items():
            if rt not in widest:
                continue
            blocks = {WsGemmTactic(rt, kq, ks, 0, 0, 1).blocks(problem): kq for kq in allowed}
            near = sorted({sorted(blocks, key=lambda kb: abs(kb - wanted))[0] for wanted in COARSE_BLOCKS})
            cuts = [(kb, tg) for kb in near for tg in groups if ks > 1] + [(near[-1], 0)]
            for kb, tg in cuts:
                some = WsGemmTactic(rt, blocks[kb], ks, 0, tg, 0)
                for ch in sorted({1, some.chains(problem)} if tg else {some.chains(problem)}):
                    staged = (replace(some, ch=ch, staged=s) for s in range(kb + 1))
                    least = next((t for t in staged if t.why_not(problem, device) is None), None)
                    if least:
                        footprint = least.footprint(problem, device)
                        if footprint.waves == 1 and device.sms / 4 <= footprint.ctas <= device.sms:
                            late = [replace(least, trigger=LAST)] if tg and problem.m > MMA_N else []
                            found += [least, *late]
        return found


def _runs(problem: GemmProblem, device: Device, groups: Sequence[int] = GROUPS) -> Iterator[tuple[WsGemmTactic, range]]:
    """The least staged of legal tactics that differ in `staged` only, which are consecutive, and its legal values."""
    sizes = [tg for tg in groups if tg < 2 * MMA_N * layout.token_tiles(problem.m)]
    warps = range(1, MAX_THREADS // layout.WARP + 1)
    cuts = [(q, s) for q in warps for s in range(1, MAX_CLUSTER + 1) if problem.k % (K_BLOCK * q * s) == 0]
    for rt, (kq, ks) in itertools.product(range(1, MAX_ROW_TILES + 1), cuts):
        if problem.n % (MMA_M * rt) or rt * kq not in warps:
            continue
        for tg, ch in itertools.product((tg for tg in sizes if ks > 1 or tg == 0), (1, 2, 4)):
            none = WsGemmTactic(rt, kq, ks, 0, tg, ch)
            least = replace(none, staged=max(0, ceil((none.registers(problem) - none.register_limit()) / HELD)))
            if least.why_not(problem, device) is None:
                room = device.smem_per_cta - least.smem_bytes(problem)
                more = room // (rt * kq * 2 * layout.FRAGMENT_BYTES)
                yield least, range(least.staged, min(least.staged + more, least.blocks(problem)) + 1)


@lru_cache(maxsize=64)
def _all_runs(
    problem: GemmProblem, device: Device, groups: Sequence[int] = GROUPS
) -> tuple[tuple[WsGemmTactic, range], ...]:
    return tuple(_runs(problem, device, groups))


def _whole_tiles(problem: GemmProblem) -> GemmProblem:
    """With M up to a whole 8-token tile, which changes no legality: so that `_all_runs` serves a slider over M."""
    return GemmProblem(MMA_N * layout.token_tiles(problem.m), problem.n, problem.k)
