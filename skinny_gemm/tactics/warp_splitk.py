"""Tactics of the warp split-K kernel: what is legal, what it costs, and a good one by reasoning."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import ceil

from ..device import Device
from ..layouts import Regions, end
from ..layouts import warp_splitk as layout
from ..layouts.banks import Access
from ..problem import GemmProblem
from .base import FIRST, LAST, TRIGGER_WORDS, TRIGGERS, Footprint, Tactic, occupancy
from .warp_splitk_time import FORMULA

OUTPUT_TILES = (16, 32)
TOKEN_TILES = (8, 16, 32)
K_TILES = (128, 256)
B_LOADER_WARPS = (1, 2)
MAX_K_TILES = 64  #: the K loop is fully unrolled; more tiles would outgrow the instruction cache
#: CTAs per SM the heuristic leaves room for: 6288x7168 ran 4 % faster on H200 with three than with two
MAX_RESIDENT = 3
SHORT_K = 2048  #: up to here the heuristic takes the wider output tile whatever the number of CTAs
MAX_STAGES = 16  #: more than about 12 stages stopped helping on H200
VALUES = {
    "output_tile": OUTPUT_TILES,
    "token_tile": TOKEN_TILES,
    "k_tile": K_TILES,
    "b_loader_warps": B_LOADER_WARPS,
    "trigger": TRIGGERS,
}
COARSE_STAGES = (2, 4, 6, 8, 12, MAX_STAGES)  #: depths of the ring that a coarse grid tries


@dataclass(frozen=True)
class WarpSplitKTactic(Tactic):
    """Weight rows and tokens of a CTA's output tile, K elements of a stage, stages of the ring, activation loaders.

    And the trigger, where the activation loaders let the next launch start. First of all: CTAs of the launches behind
    take what room the SMs have and fill their rings, while this launch still streams. After the last tile: this launch
    has the SMs to itself until then, but the next one's first copies hide less. Chained on an H200 that took 17.8 us
    instead of 23.0 for 4608x7168 at M = 8 (32,8,256,4,2), but 2.76 instead of 2.15 for 2304x1536.
    """

    kernel = "warp-splitk"
    max_m = 32
    n_multiple = OUTPUT_TILES[0]
    k_multiple = K_TILES[0]
    formula = FORMULA

    output_tile: int  #: weight rows per CTA: 16 or 32, divides N
    token_tile: int  #: tokens per CTA: 8, 16 or 32
    k_tile: int  #: K elements per stage: 128 or 256, divides K, K / k_tile <= 64
    stages: int  #: 2 (1 if K is a single tile) to min(16, K / k_tile)
    b_loader_warps: int  #: warps that load activations: 1 or 2
    #: place of `griddepcontrol.launch_dependents`: 0 before all else, 1 after the copies of the last tile
    trigger: int = field(default=FIRST, metadata=TRIGGER_WORDS)

    @property
    def threads(self) -> int:
        return layout.WARP * (layout.COMPUTE_WARPS + layout.WEIGHT_LOADER_WARPS + self.b_loader_warps)

    @property
    def smem_regions(self) -> Regions:
        return layout.smem_regions(self.output_tile, self.token_tile, self.k_tile, self.stages)

    @property
    def smem_bytes(self) -> int:
        return end(self.smem_regions)

    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """CTAs along N and M."""
        return problem.n // self.output_tile, ceil(problem.m / self.token_tile), 1

    def why_not(self, problem: GemmProblem, device: Device) -> str | None:
        if reason := self.refusal(problem):
            return reason
        for name, values in VALUES.items():
            if getattr(self, name) not in values:
                return f"{name} is {getattr(self, name)}, but must be one of {', '.join(map(str, values))}"
        if problem.n % self.output_tile:
            return f"output_tile {self.output_tile} does not divide N = {problem.n}"
        if problem.k % self.k_tile:
            return f"k_tile {self.k_tile} does not divide K = {problem.k}"
        tiles = problem.k // self.k_tile
        if tiles > MAX_K_TILES:
            held = f"K = {problem.k} has {tiles} tiles of k_tile {self.k_tile}"
            return f"{held}, but the unrolled K loop takes at most {MAX_K_TILES}"
        low, high = min(2, tiles), min(MAX_STAGES, tiles)
        if not low <= self.stages <= high:
            allowed = f"must be {low}" if low == high else f"must be {low} to {high}"
            return f"stages is {self.stages}, but {allowed} for {tiles} K tile{'s' * (tiles > 1)} of {self.k_tile}"
        if self.smem_bytes > device.smem_per_cta:
            cure = "lower stages, k_tile or token_tile"
            return f"{self.smem_bytes:,} B of shared memory needed, {device.smem_per_cta:,} available: {cure}"
        return None

    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        regions, smem, threads = self.smem_regions, self.smem_bytes, self.threads
        columns, rows, _ = self.grid(problem)
        ctas, per_sm = columns * rows, occupancy(smem, threads, device)
        waves = ceil(ctas / (device.sms * max(per_sm, 1)))
        ring = sum(size for name, _, size in regions if name in ("A", "B"))
        in_flight = min(per_sm, ceil(ctas / device.sms)) * ring
        return Footprint(tuple(regions), smem, threads, ctas, per_sm, waves, in_flight)

    def shared_accesses(self, problem: GemmProblem) -> list[Access]:
        """Loaders, `ldmatrix` and the reduction's partial sums; the same for every problem."""
        return layout.shared_accesses(self.output_tile, self.token_tile, self.k_tile, self.b_loader_warps)

    @classmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list["WarpSplitKTactic"]:
        space = itertools.product(OUTPUT_TILES, TOKEN_TILES, K_TILES, range(1, MAX_STAGES + 1), B_LOADER_WARPS)
        legal = [fields for fields in space if cls(*fields).why_not(problem, device) is None]  # whatever the trigger
        return [cls(*fields, trigger) for fields in legal for trigger in TRIGGERS]

    @classmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> "WarpSplitKTactic":
        """Least scheduled work, the deepest ring, the trigger first.

        Over TP8 shapes on H200 2 % slower than the best of a coarse grid in which every trigger came first.
        """
        if reason := cls.refusal(problem):
            raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: {reason}")
        k_tile = 256 if problem.k > 512 and problem.k % 256 == 0 else 128
        # Least scheduled work, the wider tile on ties: half the CTAs read x half as often. A short K is over before
        # more CTAs help, and in a chain fewer leave room for the next kernel's: 1536x1536 ran 1.3x faster with 48.
        tiles = [tile for tile in OUTPUT_TILES if problem.n % tile == 0]
        work = {tile: ceil(problem.n / tile / device.sms) * tile for tile in tiles}
        output_tile = tiles[-1] if problem.k <= SHORT_K else min(tiles, key=lambda tile: (work[tile], -tile))
        columns = problem.n // output_tile
        token_tile = next(tile for tile in TOKEN_TILES if tile >= problem.m or tile == TOKEN_TILES[-1])
        if token_tile > 8 and columns * ceil(problem.m / (token_tile // 2)) <= device.sms:
            token_tile //= 2
        resident = min(MAX_RESIDENT, ceil(columns * ceil(problem.m / token_tile) / device.sms))
        fitting = cls(output_tile, token_tile, k_tile, 1, B_LOADER_WARPS[-1]).depths(problem, device)
        co_resident = [t for t in fitting if occupancy(t.smem_bytes, t.threads, device) >= resident]
        return (co_resident or fitting)[-1]

    def depths(self, problem: GemmProblem, device: Device) -> list["WarpSplitKTactic"]:
        """This tactic with every legal number of stages, ascending."""
        every = (replace(self, stages=stages) for stages in range(1, MAX_STAGES + 1))
        return [tactic for tactic in every if tactic.why_not(problem, device) is None]

    @classmethod
    def refusal(cls, problem: GemmProblem) -> str | None:
        """As of every kernel; and K must not have more tiles than the unrolled K loop takes."""
        if reason := super().refusal(problem):
            return reason
        widest = next(tile for tile in reversed(K_TILES) if problem.k % tile == 0)
        if problem.k // widest > MAX_K_TILES:
            return f"K = {problem.k} has more than {MAX_K_TILES} tiles of {widest}, the most the unrolled K loop takes"
        return None

    def variations(self, problem: GemmProblem, device: Device) -> list["WarpSplitKTactic"]:
        """The heuristic tactic and those around it: of the catalogue's shapes up to 23, for the widest token tile 35.

        - Stages decide the bytes in flight, the strongest lever: six depths from 2 to 16.
        - The other output tile trades CTAs against reads of x: a shallow, a middle and the deepest ring.
        - The other K tile changes barriers per byte only: with the same bytes in the ring, and with the deepest ring.
        - Half the token tile doubles the CTAs, which pays only where the grid is small: two depths.
        - The other number of activation loaders matters little: once.
        - With 32 tokens to a tile time does not follow depth smoothly (2112x7168, M = 32: 9.31, 8.91 and 9.43 us with
          6, 7 and 8 stages of 256; the few depths above cost 5 %): every depth of both K tiles.
        - The trigger after the last tile pays where launches crowd each other and costs where they are short: with all
          these depths of an output tile that makes more CTAs than there are SMs, and with the heuristic tactic.
        - Left out are two changes at once: what one gains hardly depends on the others. `records.pruning` has the cost.
        """

        def flipped(field: str) -> "WarpSplitKTactic":
            (other,) = set(VALUES[field]) - {getattr(self, field)}
            return replace(self, **{field: other})

        def at(tactic: "WarpSplitKTactic", stages: Iterable[int]) -> list["WarpSplitKTactic"]:
            """The legal ones of these depths; one that does not fit becomes the deepest that does."""
            depths = tactic.depths(problem, device)
            wanted = {min(s, depths[-1].stages) for s in stages} if depths else ()
            return [deep for deep in depths if deep.stages in wanted]

        covering = next((tile for tile in TOKEN_TILES if tile >= problem.m), TOKEN_TILES[-1])
        tokens = {covering, max(covering // 2, TOKEN_TILES[0])} - {self.token_tile}
        other_k = flipped("k_tile")
        same_bytes = self.stages * self.k_tile // other_k.k_tile
        every = range(1, MAX_STAGES + 1) if self.token_tile == TOKEN_TILES[-1] else ()
        depths, others = at(self, COARSE_STAGES), at(flipped("output_tile"), (4, 8, MAX_STAGES))
        crowded = [t for t in (*depths, *others) if t.footprint(problem, device).ctas > device.sms]
        return [
            *at(self, (*COARSE_STAGES, *every)),
            *others,
            *at(other_k, (same_bytes, MAX_STAGES, *every)),
            *(tactic for tile in sorted(tokens) for tactic in at(replace(self, token_tile=tile), (4, MAX_STAGES))),
            *at(flipped("b_loader_warps"), (self.stages,)),
            *(replace(tactic, trigger=LAST) for tactic in (self, *crowded)),
        ]
