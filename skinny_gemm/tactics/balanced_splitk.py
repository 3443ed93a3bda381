"""Tactics of the balanced split-K kernel: what is legal, what it costs, and a good one by reasoning."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from typing import Any

from ..device import Device
from ..layouts import Regions, end
from ..layouts import balanced_splitk as layout
from ..layouts.banks import Access
from ..layouts.fragments import K_BLOCK, MMA_N
from ..problem import GemmProblem
from .balanced_time import FORMULA
from .base import FIRST, LAST, TRIGGER_WORDS, TRIGGERS, Footprint, Tactic, occupancy, register_limit

CLUSTERS = (1, 2, 4, 8, 16)
K_CHUNKS = (64, 128)
TOKEN_TILES = (8, 16, 24, 32, 48, 64)
MAX_WARPS = 16
MAX_TURNS = 64  #: of a warp: the K loop is fully unrolled; more would outgrow the instruction cache
MAX_MMAS = 2048  #: of a warp, for the same reason
X_WINDOW = 8  #: 16-byte loads of x to registers that a lane keeps in flight; 16 were no faster on H200
X_PATHS = (REGISTERS, RING) = (0, 1)
OTHER_REGISTERS = 44  #: of a thread besides sums, x, its addresses and weights
MAX_STAGES = 6  #: deeper rings hold more than an SM needs in flight
LEAST_ROWS = 28  #: of a tile that the heuristic is content with
MOST_ROWS = 96  #: of a tile that `enumerate` tries
FEW_WARPS = 4  #: fewer in a CTA are tried only where no other number divides K
WARPS = {True: (8, 14), False: (8, 4)}  #: of a CTA that a coarse grid aims at, for up to 8 tokens and for more
SHORT_K = 2048  #: of a CTA: up to here a coarse grid tries both ways for x, and one more number of tiles
VALUES = {"cluster": CLUSTERS, "k_chunk": K_CHUNKS, "token_tile": TOKEN_TILES, "trigger": TRIGGERS, "x_ring": X_PATHS}


@dataclass(frozen=True)
class BalancedSplitKTactic(Tactic):
    """How N and K are cut over clusters, CTAs and warps, the ring of a warp, tokens, and when dependents start."""

    kernel = "balanced-splitk"
    n_multiple = 8
    k_multiple = K_CHUNKS[0]
    outputs = ("bf16", "f32")
    formula = FORMULA

    row_tiles: int  #: of N, as equal as can be, one to a cluster: 1 to N, N * row_tiles < 2^31
    cluster: int  #: CTAs that split K: 1, 2, 4, 8 or 16, a non-portable size
    warps: int  #: of a CTA that split K further: 1 to 16; K is a multiple of k_chunk * warps * cluster
    k_chunk: int  #: K elements that a warp multiplies in a turn: 64 or 128
    stages: int  #: of a warp's ring: 1 to 6 and to its turns, K / (k_chunk * warps * cluster), at most 64
    token_tile: int  #: tokens that a CTA has room for: 8, 16, 24, 32, 48 or 64, at least M
    #: place of `griddepcontrol.launch_dependents`: 0 before all else, 1 after the copies of the last turn
    trigger: int = field(default=FIRST, metadata=TRIGGER_WORDS)
    #: how x comes: 0 straight to registers, some loads ahead; 1 through the ring, behind the weights of its turn
    x_ring: int = field(default=REGISTERS, metadata={"words": ("registers", "ring")})

    @property
    def threads(self) -> int:
        return layout.WARP * self.warps

    def rows(self, problem: GemmProblem) -> int:
        """Rows of the highest tile."""
        return layout.highest(problem.n, self.row_tiles)

    @property
    def units(self) -> int:
        """Parts of a CTA that each have sums of the whole tile: warps."""
        return self.warps

    def fragments(self, problem: GemmProblem) -> int:
        """Fragments of 16 x 8 sums of the highest tile."""
        return layout.fragments(self.rows(problem), self.token_tile)

    def turns(self, problem: GemmProblem) -> int:
        """K chunks that each warp multiplies."""
        return problem.k // (self.k_chunk * self.warps * self.cluster)

    def held_blocks(self, problem: GemmProblem) -> int:
        """K blocks of the first turn whose weights are in registers before x comes.

        All of them where the rings hold all of K and tokens are few: on H200 512x7168 went from 2.61 to 2.48 us at
        M = 1, 2304x1536 from 2.81 to 2.54. With longer rings or more tokens it was no faster.
        """
        return self.k_chunk // K_BLOCK if self.token_tile == MMA_N and self.turns(problem) <= self.stages else 0

    def smem_regions(self, problem: GemmProblem) -> Regions:
        ring = self.k_chunk, self.stages, self.cluster, self.x_ring
        return layout.smem_regions(self.rows(problem), self.token_tile, self.warps, *ring)

    def smem_bytes(self, problem: GemmProblem) -> int:
        return end(self.smem_regions(problem))

    def registers(self, problem: GemmProblem) -> int:
        """Registers that a thread needs, about: sums, x and where it comes from, the weights at hand, others."""
        rows, parts = self.rows(problem), self.token_tile // MMA_N
        sums = 4 * self.fragments(problem)
        weights = 4 * layout.half_tiles(rows) * max(1, self.held_blocks(problem))
        return sums + weights + (4 if self.x_ring else 4 * X_WINDOW + 4 * parts) + OTHER_REGISTERS

    def register_limit(self) -> int:
        """Registers that a thread can get."""
        return register_limit(self.threads)

    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """A cluster for each row tile."""
        return self.row_tiles * self.cluster, 1, 1

    def why_not(self, problem: GemmProblem, device: Device) -> str | None:
        if reason := self.refusal(problem):
            return reason
        if reason := refused_cut(self, problem, device, VALUES, ("warps", MAX_WARPS), "warps"):
            return reason
        turns = self.turns(problem)
        if turns > MAX_TURNS:
            return f"a warp would take {turns} turns, but the unrolled K loop has at most {MAX_TURNS}: raise warps"
        if not 1 <= self.stages <= min(turns, MAX_STAGES):
            allowed = f"1 to {min(turns, MAX_STAGES)} for {turns} turns" if turns > 1 else "1 for 1 turn"
            return f"stages is {self.stages}, but must be {allowed} of a warp"
        mmas = turns * self.k_chunk // 16 * self.fragments(problem)
        if mmas > MAX_MMAS:
            return f"a warp would run {mmas:,} unrolled mma, but at most {MAX_MMAS:,} are allowed: raise row_tiles"
        if self.registers(problem) > self.register_limit():
            needed = f"about {self.registers(problem)} registers per thread needed"
            return f"{needed}, {self.register_limit()} available to {self.threads} threads: raise row_tiles"
        if self.smem_bytes(problem) > device.smem_per_cta:
            needed = f"{self.smem_bytes(problem):,} B of shared memory needed"
            return f"{needed}, {device.smem_per_cta:,} available: lower stages or warps, or raise row_tiles"
        return None

    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        regions, smem, threads = self.smem_regions(problem), self.smem_bytes(problem), self.threads
        ctas, _, _ = self.grid(problem)
        per_sm = occupancy(smem, threads, device, self.registers(problem))
        waves = ceil(self.row_tiles / (device.resident_clusters(self.cluster) * max(per_sm, 1)))
        ring = 2 * self.rows(problem) * self.k_chunk * self.stages * self.warps  # the weights' part of all rings
        in_flight = min(per_sm, ceil(ctas / device.sms)) * ring
        return Footprint(tuple(regions), smem, threads, ctas, per_sm, waves, in_flight)

    def shared_accesses(self, problem: GemmProblem) -> list[Access]:
        """The copies and loads of a ring, and the sums of warps and of CTAs."""
        return layout.shared_accesses(self.rows(problem), self.token_tile, self.k_chunk, self.cluster)

    @classmethod
    def tilings(cls, problem: GemmProblem, device: Device, cluster: int) -> list[int]:
        """Row tiles for 1, 2, 4, 8 ... clusters of that size in every place where the device runs one at a time.

        The first three of them whose tiles have 8 to 96 rows; of a small N tiles of 8 rows.
        """
        places, least, most = device.resident_clusters(cluster), ceil(problem.n / MOST_ROWS), problem.n // MMA_N
        rounds = [places << doubling for doubling in range(16)]
        return [tiles for tiles in rounds if least <= tiles <= most][:3] or [most]

    @classmethod
    def cuts(cls, problem: GemmProblem, device: Device) -> list[tuple[int, int, int]]:
        """(cluster, warps, k_chunk) that divide K, without those of few warps where others do."""
        every = itertools.product(CLUSTERS, range(1, MAX_WARPS + 1), K_CHUNKS)
        whole = [cut for cut in every if cut[0] <= device.max_cluster and problem.k % (cut[0] * cut[1] * cut[2]) == 0]
        return [cut for cut in whole if cut[1] >= FEW_WARPS] or whole

    @classmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list["BalancedSplitKTactic"]:
        """Every legal tactic of `tilings` and `cuts` with the least token tile that holds M, ascending."""
        if cls.refusal(problem):
            return []
        return list(_legal(next(tile for tile in TOKEN_TILES if tile >= problem.m), problem.n, problem.k, device))

    @classmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> "BalancedSplitKTactic":
        """The best by `preference` of those that start dependents first of all, x in registers up to M = 8.

        With more tokens the loads of x take longer than a turn: 3584x7168 at M = 32 went from 15.1 to 13.9 us on H200
        when x took the ring.
        """
        if reason := cls.refusal(problem):
            raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: {reason}")
        wanted = FIRST, RING if problem.m > MMA_N else REGISTERS
        legal = [tactic for tactic in cls.enumerate(problem, device) if (tactic.trigger, tactic.x_ring) == wanted]
        if not legal:
            raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: no tactic fits {device.title}")
        return min(legal, key=lambda tactic: tactic.preference(problem, device))

    def preference(self, problem: GemmProblem, device: Device) -> tuple:
        """Smaller is better: 28 rows to read x seldom, else clusters; two CTAs an SM; 8 warps; deep rings.

        For each element of x a CTA multiplies as many weights as it has rows: with a cluster rows are more, K is less.
        A ring leaves room for a second CTA where registers do.
        """
        shortage, stall = max(0, LEAST_ROWS - self.rows(problem)), self.stages == 1 < self.turns(problem)
        footprint = self.footprint(problem, device)
        size = self.cluster, abs(self.warps - WARPS[True][0]), self.k_chunk, self.row_tiles
        return footprint.waves, shortage // 8, stall, *size, -min(2, footprint.ctas_per_sm), -self.stages

    def variations(self, problem: GemmProblem, device: Device) -> list["BalancedSplitKTactic"]:
        """One to five dozen tactics around the heuristic one.

        - Clusters half and twice as large, and two or four of the heuristic's in a place: rows against reading x again.
        - Warps: about 8 and 14 for up to 8 tokens, since more hide more latency; 4 and 8 for more, whose sums fill
          the registers.
        - The deepest ring, and the deepest that leaves room for a second CTA: in a chain that of the next launch.
        - Long chunks halve the turns: only for few tokens, with the heuristic's cluster.
        - Dependents first for few tokens, last for many, whose x would queue behind their weights. Worth up to 27 %
          either way, but nearly the same for a tactic and its neighbours: with the heuristic's cluster and warps both.
        - x in registers for few tokens, in the ring for many, both ways where a CTA's part of K is short.
        """
        few, legal = problem.m <= MMA_N, self.enumerate(problem, device)
        found = [replace(self, trigger=trigger) for trigger in TRIGGERS]
        for cluster in sorted({self.cluster // 2, self.cluster, 2 * self.cluster} & {t.cluster for t in legal}):
            own = cluster == self.cluster
            short = problem.k // cluster <= SHORT_K
            tilings = self.tilings(problem, device, cluster)[: 1 + own + short * own]
            paths = X_PATHS if short else (REGISTERS if few else RING,)
            chunks, usual = K_CHUNKS if few and own else K_CHUNKS[:1], FIRST if few else LAST
            of_cluster = [
                t for t in legal
                if t.cluster == cluster and t.x_ring in paths and (t.trigger == usual or own and t.warps == self.warps)
            ]  # fmt: skip
            for tiling, chunk in itertools.product(tilings, chunks):
                same = [t for t in of_cluster if (t.row_tiles, t.k_chunk) == (tiling, chunk)]
                nearest = {min(same, key=lambda t: abs(t.warps - warps)).warps for warps in WARPS[few] if same}  # noqa: B023
                for warps in sorted(nearest):
                    rings = [t for t in same if t.warps == warps]
                    deepest = {
                        (t.x_ring, occupancy(t.smem_bytes(problem), t.threads, device) >= 2): t.stages for t in rings
                    }
                    found += [t for t in rings if t.stages in (deepest.get((t.x_ring, room)) for room in (False, True))]
        return found


def refused_cut(
    tactic: Any, problem: GemmProblem, device: Device, values: Mapping[str, tuple], units: tuple[str, int], kind: str
) -> str | None:
    """Why a balanced kernel cannot cut N, K and M so, in words; None if it can.

    `values` are those that fields may have; `units` the field that counts a CTA's units, of a `kind`, and its limit.
    """
    for name, allowed in values.items():
        if getattr(tactic, name) not in allowed:
            return f"{name} is {getattr(tactic, name)}, but must be one of {', '.join(map(str, allowed))}"
    for name, most in (("row_tiles", min(problem.n, (2**31 - 1) // problem.n)), units):
        if not 1 <= getattr(tactic, name) <= most:
            return f"{name} is {getattr(tactic, name)}, but must be 1 to {most}"
    if tactic.cluster > device.max_cluster:
        return f"cluster is {tactic.cluster}, but this device allows clusters up to {device.max_cluster}"
    if problem.m > tactic.token_tile:
        return f"token_tile is {tactic.token_tile}, but must be at least M = {problem.m}"
    if problem.k % (tactic.k_chunk * tactic.units * tactic.cluster):
        parts = f"{tactic.units * tactic.cluster} {kind} that take chunks of {tactic.k_chunk} in turn"
        fields = f"{units[0]} {tactic.units} and cluster {tactic.cluster}"
        return f"{fields} make {parts}, which do not divide K = {problem.k}"
    return None


@lru_cache(maxsize=64)
def _legal(tokens: int, n: int, k: int, device: Device) -> tuple[BalancedSplitKTactic, ...]:
    """`enumerate` of all M with the token tile `tokens`: a slider asks again and again."""
    kind, problem = BalancedSplitKTactic, GemmProblem(tokens, n, k)
    every = (
        (tiles, cluster, warps, chunk, stages, tokens, trigger, x_ring)
        for cluster, warps, chunk in kind.cuts(problem, device)
        for tiles in kind.tilings(problem, device, cluster)
        for stages in range(1, min(MAX_STAGES, k // (cluster * warps * chunk)) + 1)
        for trigger in TRIGGERS
        for x_ring in X_PATHS
    )
    return tuple(t for t in itertools.starmap(kind, sorted(every)) if t.why_not(problem, device) is None)
