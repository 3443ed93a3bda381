"""Tactics of the warp split-K kernel: what is legal, what it costs, and a good one by reasoning."""

import itertools
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from ..device import Device
from ..layouts import warp_splitk as layout
from ..problem import GemmProblem
from .base import Footprint, Tactic, occupancy, waves

OUTPUT_TILES = (16, 32)
TOKEN_TILES = (8, 16, 32)
K_TILES = (128, 256)
B_LOADER_WARPS = (1, 2)
MAX_M = 32
MAX_N = (1 << 31) - 16  #: the kernel counts weight rows in 32 bits
MAX_K_TILES = 64  #: the K loop is fully unrolled; more tiles would outgrow the instruction cache
MAX_RESIDENT = (
    3  #: CTAs per SM the heuristic leaves room for: 6288x7168 ran 4 % faster on H200 with three than with two
)
SHORT_K = 2048  #: up to here the heuristic takes the wider output tile whatever the number of CTAs
MAX_STAGES = 16  #: more than about 12 stages stopped helping on H200


@dataclass(frozen=True)
class WarpSplitKTactic(Tactic):
    """Weight rows and tokens of a CTA's output tile, K elements of a stage, stages of the ring, activation loaders."""

    kernel: ClassVar[str] = "warp-splitk"

    output_tile: int  #: weight rows per CTA: 16 or 32, divides N
    token_tile: int  #: tokens per CTA: 8, 16 or 32
    k_tile: int  #: K elements per stage: 128 or 256, divides K, K / k_tile <= 64
    stages: int  #: 2 (1 if K is a single tile) to min(16, K / k_tile)
    b_loader_warps: int  #: warps that load activations: 1 or 2

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return layout.WARP * (layout.COMPUTE_WARPS + layout.WEIGHT_LOADER_WARPS + self.b_loader_warps)

    @property
    def smem_bytes(self) -> int:
        """Dynamic shared memory of a CTA."""
        return layout.smem_bytes(self.output_tile, self.token_tile, self.k_tile, self.stages)

    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """CTAs along N and M."""
        return problem.n // self.output_tile, ceil(problem.m / self.token_tile), 1

    def why_not(self, problem: GemmProblem, device: Device) -> str | None:
        """None if legal for `problem` on `device`, else one sentence. M must be 1 to 32."""
        if reason := self._unsupported(problem):
            return reason
        for name, allowed in (
            ("output_tile", OUTPUT_TILES),
            ("token_tile", TOKEN_TILES),
            ("k_tile", K_TILES),
            ("b_loader_warps", B_LOADER_WARPS),
        ):
            if getattr(self, name) not in allowed:
                return f"{name} is {getattr(self, name)}, but must be one of {', '.join(map(str, allowed))}"
        if problem.n % self.output_tile:
            return f"output_tile {self.output_tile} does not divide N = {problem.n}"
        if problem.k % self.k_tile:
            return f"k_tile {self.k_tile} does not divide K = {problem.k}"
        tiles = problem.k // self.k_tile
        if tiles > MAX_K_TILES:
            return (
                f"K = {problem.k} has {tiles} tiles of k_tile {self.k_tile}, "
                f"but the unrolled K loop takes at most {MAX_K_TILES}"
            )
        low, high = min(2, tiles), min(MAX_STAGES, tiles)
        if not low <= self.stages <= high:
            allowed = f"must be {low}" if low == high else f"must be {low} to {high}"
            return f"stages is {self.stages}, but {allowed} for {tiles} K tile{'s' * (tiles > 1)} of {self.k_tile}"
        if self.smem_bytes > device.smem_per_cta:
            return (
                f"{self.smem_bytes:,} B of shared memory needed, {device.smem_per_cta:,} available: "
                "lower stages, k_tile or token_tile"
            )
        return None

    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        """Shared memory, CTAs, occupancy and bytes in flight of this tactic for `problem` on `device`."""
        columns, rows, _ = self.grid(problem)
        ctas, ctas_per_sm = columns * rows, occupancy(self.smem_bytes, self.threads, device)
        resident = min(ctas_per_sm, ceil(ctas / device.sms))
        regions = layout.smem_regions(self.output_tile, self.token_tile, self.k_tile, self.stages)
        ring = sum(size for name, _, size in regions if name in ("A", "B"))
        return Footprint(
            regions=tuple(regions),
            smem_bytes=self.smem_bytes,
            threads=self.threads,
            ctas=ctas,
            ctas_per_sm=ctas_per_sm,
            waves=waves(ctas, ctas_per_sm, device),
            bytes_in_flight_per_sm=resident * ring,
        )

    @classmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list["WarpSplitKTactic"]:
        """Every legal tactic for `problem` on `device`, in ascending field order."""
        space = itertools.product(OUTPUT_TILES, TOKEN_TILES, K_TILES, range(1, MAX_STAGES + 1), B_LOADER_WARPS)
        return [tactic for fields in space if (tactic := cls(*fields)).why_not(problem, device) is None]

    @classmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> "WarpSplitKTactic":
        """By reasoning: least scheduled work, tokens covered, ring as deep as the needed CTAs allow.

        Over the TP8 shapes recorded on H200 it is 2 % slower than the best of a coarse grid on average.
        ValueError, with the reason, if the kernel cannot take `problem`.
        """
        if reason := cls._unsupported(problem):
            raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: {reason}")
        k_tile = 256 if problem.k > 512 and problem.k % 256 == 0 else 128
        # Least scheduled work, the wider tile on ties: half the CTAs read x half as often. A short K is over before
        # more CTAs help, and in a chain fewer leave room for the next kernel's: 1536x1536 ran 1.3x faster with 48.
        tiles = [tile for tile in OUTPUT_TILES if problem.n % tile == 0]
        if problem.k <= SHORT_K:
            output_tile = tiles[-1]
        else:
            output_tile = min(tiles, key=lambda tile: (ceil(problem.n / tile / device.sms) * tile, -tile))
        columns = problem.n // output_tile
        token_tile = next(tile for tile in TOKEN_TILES if tile >= problem.m or tile == TOKEN_TILES[-1])
        if token_tile > 8 and columns * ceil(problem.m / (token_tile // 2)) <= device.sms:
            token_tile //= 2
        loaders = B_LOADER_WARPS[-1]
        ctas = columns * ceil(problem.m / token_tile)
        resident = min(MAX_RESIDENT, ceil(ctas / device.sms))
        fitting = [
            tactic
            for stages in range(1, MAX_STAGES + 1)
            if (tactic := cls(output_tile, token_tile, k_tile, stages, loaders)).why_not(problem, device) is None
        ]
        co_resident = [t for t in fitting if occupancy(t.smem_bytes, t.threads, device) >= resident]
        return (co_resident or fitting)[-1]

    @staticmethod
    def _unsupported(problem: GemmProblem) -> str | None:
        """Why no tactic at all can take `problem`, or None."""
        if problem.m > MAX_M:
            return f"M is {problem.m}, but this kernel takes 1 to {MAX_M} tokens"
        if problem.n % OUTPUT_TILES[0]:
            return f"N = {problem.n} is not a multiple of {OUTPUT_TILES[0]}"
        if problem.n > MAX_N:
            return f"N = {problem.n} is more than {MAX_N}, the most rows the kernel can count"
        if problem.k % K_TILES[0]:
            return f"K = {problem.k} is not a multiple of {K_TILES[0]}"
        widest = next(tile for tile in reversed(K_TILES) if problem.k % tile == 0)
        if problem.k // widest > MAX_K_TILES:
            return f"K = {problem.k} has more than {MAX_K_TILES} tiles of {widest}, the most the unrolled K loop takes"
        return None
