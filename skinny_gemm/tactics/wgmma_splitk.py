"""Tactics of the wgmma split-K kernel: what is legal, what it costs, and a good one by reasoning."""

import itertools
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

from ..device import Device
from ..layouts import Regions, end
from ..layouts import wgmma_splitk as layout
from ..layouts.balanced_splitk import highest
from ..layouts.banks import Access
from ..layouts.fragments import MMA_N, WGMMA_M
from ..problem import GemmProblem
from .balanced_splitk import CLUSTERS, TOKEN_TILES, refused_cut
from .balanced_time import FORMULA
from .base import FIRST, LAST, TRIGGER_WORDS, TRIGGERS, Footprint, Tactic, occupancy, register_limit

ARCHS = ("sm_90a",)  #: that have wgmma
SHAPES = {False: ((2, 64), (1, 128)), True: ((2, 64), (1, 64))}  #: (groups, k_chunk) tried, True: with room for two
K_CHUNKS = (64, 128)
MAX_GROUPS = 4
MAX_ROWS = 256  #: of a tile: N of one wgmma
MAX_STAGES = 12
MAX_TURNS = 128  #: of a group; those of its first and last rings are unrolled, up to three rings all
OTHER_REGISTERS = 40  #: of a thread besides its sums
IDLE_SMS = 16  #: that make a difference: clusters of 4 and 8 leave 12
LEAST_ROWS = 32  #: of a tile that the heuristic is content with
VALUES = {"cluster": CLUSTERS, "k_chunk": K_CHUNKS, "token_tile": TOKEN_TILES, "trigger": TRIGGERS}


@dataclass(frozen=True)
class WgmmaSplitKTactic(Tactic):
    """How N and K are cut over clusters, CTAs and warpgroups, a group's ring, tokens, and when dependents start."""

    kernel = "wgmma-splitk"
    n_multiple = 8
    k_multiple = K_CHUNKS[0]
    outputs = ("bf16", "f32")
    formula = FORMULA

    row_tiles: int  #: of N, as equal as can be, one to a cluster: 1 to N, N * row_tiles < 2^31, of at most 256 rows
    cluster: int  #: CTAs that split K: 1, 2, 4, 8 or 16, a non-portable size
    groups: int  #: warpgroups of a CTA that split K further: 1 to 4; K is a multiple of k_chunk * groups * cluster
    k_chunk: int  #: K elements that a group multiplies in a turn: 64 or 128
    stages: int  #: of a group's ring: 2 to 12 and to its turns, K / (k_chunk * groups * cluster), at most 128
    token_tile: int  #: tokens that a CTA has room for: 8, 16, 24, 32, 48 or 64, at least M
    #: place of `griddepcontrol.launch_dependents`: 0 before all else, 1 after the copies of the last turn
    trigger: int = field(default=FIRST, metadata=TRIGGER_WORDS)

    @property
    def threads(self) -> int:
        return layout.GROUP * self.groups

    def rows(self, problem: GemmProblem) -> int:
        """Rows of the highest tile."""
        return highest(problem.n, self.row_tiles)

    @property
    def units(self) -> int:
        """Parts of a CTA that each have sums of the whole tile: warpgroups."""
        return self.groups

    def fragments(self, problem: GemmProblem) -> int:
        """Fragments of 16 x 8 sums of the highest tile."""
        return layout.fragments(self.rows(problem), self.token_tile)

    def turns(self, problem: GemmProblem) -> int:
        """K chunks that each group multiplies."""
        return problem.k // (self.k_chunk * self.groups * self.cluster)

    def smem_regions(self, problem: GemmProblem) -> Regions:
        return layout.smem_regions(
            self.rows(problem), self.token_tile, self.groups, self.k_chunk, self.stages, self.cluster
        )

    def smem_bytes(self, problem: GemmProblem) -> int:
        return end(self.smem_regions(problem))

    def registers(self, problem: GemmProblem) -> int:
        """Registers that a thread needs, about: the sums of half a row of the tile, and others."""
        return layout.whole_rows(self.rows(problem)) // 2 + OTHER_REGISTERS

    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """A cluster for each row tile."""
        return self.row_tiles * self.cluster, 1, 1

    @classmethod
    def lacking(cls, device: Device) -> str | None:
        """Why `device` runs no tactic at all; None if it does."""
        if device.arch not in ARCHS:
            return f"{device.title} is {device.arch}, but only {', '.join(ARCHS)} has wgmma"
        return None

    def why_not(self, problem: GemmProblem, device: Device) -> str | None:
        if reason := self.refusal(problem):
            return reason
        if reason := self.lacking(device):
            return reason
        if reason := refused_cut(self, problem, device, VALUES, ("groups", MAX_GROUPS), "warpgroups"):
            return reason
        turns, rows = self.turns(problem), self.rows(problem)
        if turns > MAX_TURNS:
            return f"a group would take {turns} turns, but at most {MAX_TURNS} are allowed: raise groups"
        least, most = min(2, turns), min(turns, MAX_STAGES)
        if not least <= self.stages <= most:
            allowed = f"{least} to {most} for {turns} turns" if turns > 1 else "1 for 1 turn"
            return f"stages is {self.stages}, but must be {allowed} of a group"
        if rows > MAX_ROWS:
            return f"a tile would have {rows} rows, but at most {MAX_ROWS} are allowed: raise row_tiles"
        if layout.stage_rows(rows, self.token_tile) < WGMMA_M:
            least = WGMMA_M - self.token_tile - layout.ROW_STEP + 1
            needed = f"needs tiles of at least {least} rows, but row_tiles makes them {rows} high"
            return f"token_tile {self.token_tile} {needed}: lower row_tiles"
        if self.registers(problem) > register_limit(self.threads):
            needed = f"about {self.registers(problem)} registers per thread needed"
            return f"{needed}, {register_limit(self.threads)} available to {self.threads} threads: raise row_tiles"
        if self.smem_bytes(problem) > device.smem_per_cta:
            needed = f"{self.smem_bytes(problem):,} B of shared memory needed"
            return f"{needed}, {device.smem_per_cta:,} available: lower stages or groups, or raise row_tiles"
        return None

    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        regions, smem, threads = self.smem_regions(problem), self.smem_bytes(problem), self.threads
        ctas, _, _ = self.grid(problem)
        per_sm = occupancy(smem, threads, device, self.registers(problem))
        waves = ceil(self.row_tiles / (device.resident_clusters(self.cluster) * max(per_sm, 1)))
        ring = 2 * self.rows(problem) * self.k_chunk * self.stages * self.groups  # the weights' part of all rings
        return Footprint(
            tuple(regions), smem, threads, ctas, per_sm, waves, min(per_sm, ceil(ctas / device.sms)) * ring
        )

    def shared_accesses(self, problem: GemmProblem) -> list[Access]:
        """The copies of a ring, and the sums of groups and of CTAs."""
        return layout.shared_accesses(self.rows(problem), self.token_tile, self.cluster)

    @classmethod
    def tilings(cls, problem: GemmProblem, device: Device, cluster: int) -> list[int]:
        """Row tiles for 1, 2, 4 ... clusters of that size in every place where the device runs one at a time.

        The first two of them whose tiles are low enough.
        """
        places, least = device.resident_clusters(cluster), ceil(problem.n / MAX_ROWS)
        rounds = [places << doubling for doubling in range(16)]
        return [tiles for tiles in rounds if least <= tiles <= problem.n // layout.ROW_STEP][:2] or [least]

    @classmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list["WgmmaSplitKTactic"]:
        """Every legal tactic of `tilings` with the least token tile that holds M, ascending."""
        if cls.refusal(problem) or cls.lacking(device):
            return []
        return list(_legal(next(tile for tile in TOKEN_TILES if tile >= problem.m), problem.n, problem.k, device))

    @classmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> "WgmmaSplitKTactic":
        """The best by `preference` of those that start dependents first of all."""
        if reason := cls.refusal(problem) or cls.lacking(device):
            raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: {reason}")
        legal = [tactic for tactic in cls.enumerate(problem, device) if tactic.trigger == FIRST]
        if not legal:
            raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: no tactic fits {device.title}")
        return min(legal, key=lambda tactic: tactic.preference(problem, device))

    def preference(self, problem: GemmProblem, device: Device) -> tuple:
        """Smaller is better: one wave, nearly all SMs, 32 rows to read x seldom, small clusters, deep rings."""
        footprint, shape = self.footprint(problem, device), (self.groups, self.k_chunk)
        idle, shortage = max(0, device.sms - footprint.ctas) // IDLE_SMS, max(0, LEAST_ROWS - self.rows(problem))
        size = self.cluster, shape != SHAPES[False][0], self.row_tiles
        return footprint.waves, idle, shortage, *size, -self.stages, *shape

    def variations(self, problem: GemmProblem, device: Device) -> list["WgmmaSplitKTactic"]:
        """Up to three dozen tactics around the heuristic one; none for so few tokens that `mma` serves them better.

        - Clusters half and twice as large, and for the heuristic's two clusters in a place.
        - The deepest ring: of two groups with short chunks, or of one with long ones, as many bytes a barrier; and of
          the heuristic's shape, where that is another one: 2112 is no multiple of 128.
        - The deepest that leaves room for a second CTA, in a chain that of the next launch: of one or two groups with
          short chunks, since memory for few stages is left.
        - Dependents last, since x of many tokens queues behind their weights; in the heuristic's cluster also first.
        """
        if problem.m <= MMA_N:
            return []
        legal, found = self.enumerate(problem, device), []
        for cluster in (self.cluster, self.cluster // 2, 2 * self.cluster):
            tilings = self.tilings(problem, device, cluster)[: 1 + (cluster == self.cluster)] if cluster else []
            for tiling, room in itertools.product(tilings, SHAPES):
                for shape in dict.fromkeys((*SHAPES[room], (self.groups, self.k_chunk))):
                    same = [
                        t for t in legal if (t.row_tiles, t.cluster, t.groups, t.k_chunk) == (tiling, cluster, *shape)
                    ]
                    same = [t for t in same if occupancy(t.smem_bytes(problem), t.threads, device) > room]
                    deepest = max((t.stages for t in same), default=0)
                    triggers = TRIGGERS if cluster == self.cluster else (LAST,)
                    found += [t for t in same if t.stages == deepest and t.trigger in triggers]
        return found


@lru_cache(maxsize=64)
def _legal(tokens: int, n: int, k: int, device: Device) -> tuple[WgmmaSplitKTactic, ...]:
    """`enumerate` of all M with the token tile `tokens`: a slider asks again and again."""
    kind, problem = WgmmaSplitKTactic, GemmProblem(tokens, n, k)
    every = (
        (tiles, cluster, groups, chunk, stages, tokens, trigger)
        for cluster in CLUSTERS
        for tiles in kind.tilings(problem, device, cluster)
        for groups, chunk in itertools.product(range(1, MAX_GROUPS + 1), K_CHUNKS)
        for stages in range(1, MAX_STAGES + 1)
        for trigger in TRIGGERS
    )
    return tuple(t for t in itertools.starmap(kind, sorted(every)) if t.why_not(problem, device) is None)
