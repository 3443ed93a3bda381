"""Every offset of the warp split-K kernel, stated once: the kernel calls these functions, notebooks draw them.

A CTA holds `output_tile` weight rows (A) and `token_tile` tokens (B); a stage of the ring is a swizzled tile of each,
`k_tile` wide. Four compute warps each own a quarter of its K. Offsets are in elements unless a name says bytes.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from . import WARP, Index, Regions, placed
from .banks import Access, Address
from .fragments import MMA_M, MMA_N, c_element, plane_word
from .swizzle import CHUNK, ELEMENT_BYTES, plain_offset, tile_offset

COMPUTE_WARPS = 4  #: each owns one K quarter of every stage
WEIGHT_LOADER_WARPS = 2


def loader_chunk(thread: Index, index: Index, threads: int, k_tile: int) -> tuple[Index, Index]:
    """(row, column) of the `index`-th 16-byte chunk that loader `thread` of `threads` copies of a tile.

    A warp reads whole 128-byte lines; a thread keeps its column, so that its addresses differ by constants.
    """
    per_row = k_tile // CHUNK
    shift = per_row.bit_length() - 1
    return (thread >> shift) + index * (threads >> shift), (thread & (per_row - 1)) * CHUNK


def loader_chunks(rows: int, threads: int, k_tile: int) -> int:
    """Number of 16-byte chunks each of `threads` loader threads copies of a `[rows, k_tile]` tile."""
    return rows * k_tile // CHUNK // threads


def a_ldmatrix(warp: Index, step: Index, phase: Index, lane: Index, k_tile: int) -> tuple[Index, Index]:
    """(row, column) whose 16 bytes `lane` addresses for A's `ldmatrix.x4`.

    `warp` 0..3, 16-row `step`, k16 `phase` 0..k_tile/64-1. Matrices: rows 0-7 and 8-15 at k 0-7, then at k 8-15.
    """
    return MMA_M * step + (lane & 15), warp * (k_tile // COMPUTE_WARPS) + 16 * phase + 8 * (lane >> 4)


def b_ldmatrix(warp: Index, step: Index, pair: Index, lane: Index, k_tile: int) -> tuple[Index, Index]:
    """(row, column) whose 16 bytes `lane` addresses for B's `ldmatrix.x4`, which covers two k16 phases.

    `warp` 0..3, 8-token `step`, `pair` 0..k_tile/128-1. Two matrices each for the phases 2*pair and 2*pair + 1.
    """
    return MMA_N * step + (lane & 7), warp * (k_tile // COMPUTE_WARPS) + 32 * pair + 8 * (lane >> 3)


def a_offset(warp: Index, step: Index, phase: Index, lane: Index, k_tile: int) -> Index:
    """Offset of `a_ldmatrix` in a swizzled stage of A."""
    return tile_offset(*a_ldmatrix(warp, step, phase, lane, k_tile), k_tile)


def b_offset(warp: Index, step: Index, pair: Index, lane: Index, k_tile: int) -> Index:
    """Offset of `b_ldmatrix` in a swizzled stage of B."""
    return tile_offset(*b_ldmatrix(warp, step, pair, lane, k_tile), k_tile)


def accumulator_element(step_a: Index, step_b: Index, lane: Index, word: Index) -> tuple[Index, Index]:
    """(feature, token) of accumulator `word` 0..3 of fragment (16-feature `step_a`, 8-token `step_b`) in `lane`."""
    feature, token = c_element(lane, word)
    return MMA_M * step_a + feature, MMA_N * step_b + token


def partial_word(feature: Index, token: Index, output_tile: int) -> Index:
    """FP32 word of (feature, token) in one warp's partials: a `fragments.plane_word` per 8 tokens."""
    return (token >> 3) * (output_tile * 8) + plane_word(feature, token & 7)


FEATURES_PER_UNIT = 4  #: consecutive features (8 bytes of BF16 output) one thread reduces and stores for one token


def reduce_unit(unit: Index, output_tile: int) -> tuple[Index, Index]:
    """(first feature, token) of reduction `unit`; a warp of 32 units covers 16 features x 8 tokens.

    Tokens run fastest, so that a warp's stores fill 32-byte sectors of 8 output rows, then features, then planes.
    """
    token = unit & 7
    feature = FEATURES_PER_UNIT * ((unit >> 3) & (output_tile // FEATURES_PER_UNIT - 1))
    plane = unit >> (3 + (output_tile // FEATURES_PER_UNIT).bit_length() - 1)
    return feature, 8 * plane + token


def reduce_units(output_tile: int, token_tile: int) -> int:
    """Number of reduction units of one output tile."""
    return output_tile * token_tile // FEATURES_PER_UNIT


def smem_regions(output_tile: int, token_tile: int, k_tile: int, stages: int) -> Regions:
    """The CTA's shared memory in allocation order: [(name, byte offset, bytes)], each region aligned as it needs."""
    return placed(
        (
            ("A", 2 * output_tile * k_tile * stages, 1024),
            ("B", 2 * token_tile * k_tile * stages, 1024),
            ("partials", 4 * COMPUTE_WARPS * output_tile * token_tile, 16),
            ("full", 8 * stages, 8),
            ("empty", 8 * stages, 8),
        )
    )


def shared_accesses(output_tile: int, token_tile: int, k_tile: int, b_loader_warps: int) -> list[Access]:
    """Every kind of warp-wide access to shared memory: loaders and compute warps on one stage, then the reduction."""
    lane, warps = np.arange(WARP), range(COMPUTE_WARPS)
    steps_a, steps_b = range(output_tile // MMA_M), range(token_tile // MMA_N)

    def loads(rows: int, loader_warps: int) -> list[tuple[Index, Index]]:
        chunks = product(range(loader_warps), range(loader_chunks(rows, loader_warps * WARP, k_tile)))
        return [loader_chunk(w * WARP + lane, i, loader_warps * WARP, k_tile) for w, i in chunks]

    def in_tile(offset: Callable[[Index, Index, int], Index]) -> Address:
        return lambda row, col: ELEMENT_BYTES * offset(row, col, k_tile)

    tile = in_tile(tile_offset), in_tile(plain_offset)
    partials = lambda f, t: 4 * partial_word(f, t, output_tile), lambda f, t: 4 * (f * token_tile + t)
    units = [reduce_unit(first + lane, output_tile) for first in range(0, reduce_units(output_tile, token_tile), WARP)]
    rows_a = [a_ldmatrix(*at, lane, k_tile) for at in product(warps, steps_a, range(k_tile // 64))]
    rows_b = [b_ldmatrix(*at, lane, k_tile) for at in product(warps, steps_b, range(k_tile // 128))]
    stored = [accumulator_element(i, j, lane, word) for i, j, word in product(steps_a, steps_b, (0, 2))]
    loaded = [(feature + i, token) for feature, token in units for i in range(FEATURES_PER_UNIT)]
    return [
        Access.of("A, ldmatrix", 16, rows_a, *tile),
        Access.of("B, ldmatrix", 16, rows_b, *tile),
        Access.of("A, cp.async", 16, loads(output_tile, WEIGHT_LOADER_WARPS), *tile),
        Access.of("B, cp.async", 16, loads(token_tile, b_loader_warps), *tile),
        Access.of("partials, st", 8, stored, *partials),
        Access.of("partials, ld", 4, loaded, *partials),
    ]
