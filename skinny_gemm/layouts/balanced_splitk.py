"""Every offset of the balanced split-K kernel, stated once: the kernel calls these functions, notebooks draw them.

N is cut into `row_tiles` tiles whose heights differ by at most one row, a cluster of CTAs each. K is split over the
CTAs of a cluster and, chunk by chunk in turn, over the warps of a CTA, each of which keeps its chunks in a ring of its
own: a stage is `[rows, k_chunk]`, with the rows of the highest tile and, if x goes through the ring too, of x. Sums are
*fragments*, the 16 rows x 8 tokens of an `mma` accumulator, 16 bytes a lane. Offsets are in bytes unless a name says
otherwise.
"""

from itertools import product

import numpy as np

from . import WARP, Index, Regions, placed
from .banks import Access
from .fragments import K_BLOCK, MMA_M, MMA_N, c_element, load_row
from .swizzle import CHUNK, ELEMENT_BYTES

CHUNK_BYTES = CHUNK * ELEMENT_BYTES
FRAGMENT_BYTES = 16 * WARP
HALF_TILE = MMA_M // 2  #: weight rows that one load of a warp covers


def row_range(tile: Index, n: int, row_tiles: int) -> tuple[Index, Index]:
    """(first weight row, height) of row tile 0..row_tiles-1; needs N * row_tiles < 2^31."""
    first = tile * n // row_tiles
    return first, (tile + 1) * n // row_tiles - first


def highest(n: int, row_tiles: int) -> int:
    """Rows of the highest row tile."""
    return -(-n // row_tiles)


def chunk_column(cta: Index, warp: Index, turn: Index, k_slice: int, warps: int, k_chunk: int) -> Index:
    """First K element of the chunk that `warp` of cluster CTA `cta` multiplies in its turn 0, 1, ..."""
    return cta * k_slice + (turn * warps + warp) * k_chunk


def first_x_row(rows: int) -> int:
    """The row of a stage where x starts, if it does: an even one, so that chunks swap as from row 0 on."""
    return rows + rows % 2


def stage_rows(rows: int, token_tile: int, x_ring: int) -> int:
    """Rows of a stage: the highest tile's, and the tokens' if x goes through the ring."""
    return first_x_row(rows) + token_tile if x_ring else rows


def copied(lane: Index, index: Index, k_chunk: int) -> tuple[Index, Index]:
    """(row, 16-byte chunk) of the `index`-th copy of `lane` into a stage: a warp copies whole rows."""
    per_row = k_chunk // CHUNK
    return index * (WARP // per_row) + lane // per_row, lane % per_row


def copies(rows: int, k_chunk: int) -> int:
    """How many copies a lane makes of `rows`."""
    return -(-rows * (k_chunk // CHUNK) // WARP)


def stage_offset(row: Index, chunk: Index, k_chunk: int) -> Index:
    """Where 16-byte `chunk` of `row` lies in a stage: in odd rows the halves of every 128-byte line are swapped.

    A load of a K block reads 64 bytes of two rows in a phase; without the swap both would lie in the same banks.
    """
    return row * (ELEMENT_BYTES * k_chunk) + (chunk ^ (4 * (row & 1))) * CHUNK_BYTES


def loaded_chunk(lane: Index, block: Index) -> Index:
    """The 16-byte chunk of its row, or token, that `lane` loads of K `block` 0..k_chunk/32-1: words of two mma."""
    return 4 * block + (lane & 3)


def loaded_row(lane: Index, half: Index) -> Index:
    """The weight row that `lane` loads for half tile 0, 1, ...: two of them make the 16 rows of an mma."""
    return HALF_TILE * half + load_row(lane)


def half_tiles(rows: int) -> int:
    """Half tiles that cover `rows`; the last one may reach past them."""
    return -(-rows // HALF_TILE)


def fragments(rows: int, token_tile: int) -> int:
    """Fragments of the sums of `rows` x `token_tile`."""
    return -(-rows // MMA_M) * (token_tile // MMA_N)


def fragment(row_part: int, token_part: int, token_tile: int) -> int:
    """Number of the fragment of 16-row part `row_part` and 8-token part `token_part`."""
    return row_part * (token_tile // MMA_N) + token_part


def sum_element(fragment: Index, lane: Index, word: Index, token_tile: int) -> tuple[Index, Index]:
    """(row, token) of the sum in `word` 0..3 of `lane`'s 16 bytes of a fragment."""
    parts = token_tile // MMA_N
    row, token = c_element(lane, word)
    return MMA_M * (fragment // parts) + row, MMA_N * (fragment % parts) + token


def lane_offset(fragment: Index, lane: Index) -> Index:
    """Where `lane`'s words of a fragment lie in a run of fragments: 16 bytes a lane, no bank conflicts."""
    return fragment * FRAGMENT_BYTES + 16 * lane


def owner(fragment: Index, cluster: int) -> tuple[Index, Index]:
    """(CTA of the cluster, slot) that adds up and stores a fragment."""
    return fragment % cluster, fragment // cluster


def owned(cta: Index, slot: Index, cluster: int) -> Index:
    """The fragment that the cluster's CTA `cta` owns in `slot`; past the last one where it owns fewer."""
    return slot * cluster + cta


def slots(count: int, cluster: int, cta: Index = 0) -> Index:
    """How many of `count` fragments CTA `cta` owns; CTA 0 owns the most."""
    return (count - cta + cluster - 1) // cluster


def warp_bytes(rows: int, token_tile: int, k_chunk: int, stages: int, x_ring: int) -> int:
    """Bytes from one warp's ring to the next: room for its stages and, when they are free, for its sums."""
    ring = stages * stage_rows(rows, token_tile, x_ring) * ELEMENT_BYTES * k_chunk
    return max(ring, fragments(rows, token_tile) * FRAGMENT_BYTES)


def smem_regions(
    rows: int, token_tile: int, warps: int, k_chunk: int, stages: int, cluster: int, x_ring: int
) -> Regions:
    """The CTA's shared memory in allocation order: [(name, byte offset, bytes)]."""
    sizes = [("rings", warps * warp_bytes(rows, token_tile, k_chunk, stages, x_ring), 128)]
    if cluster > 1:
        sizes += [("receive", slots(fragments(rows, token_tile), cluster) * cluster * FRAGMENT_BYTES, 16)]
        sizes += [("received", 8, 8)]
    return placed(sizes)


def shared_accesses(rows: int, token_tile: int, k_chunk: int, cluster: int) -> list[Access]:
    """Every kind of warp-wide access to shared memory; x in the ring is copied and loaded like weights."""
    lane = np.arange(WARP)
    layouts = (
        lambda row, chunk: stage_offset(row, chunk, k_chunk),
        lambda row, chunk: row * (ELEMENT_BYTES * k_chunk) + chunk * CHUNK_BYTES,
    )
    filled = [copied(lane, index, k_chunk) for index in range(copies(rows, k_chunk))]
    loaded = [
        (np.minimum(loaded_row(lane, half), rows - 1), loaded_chunk(lane, block))
        for half, block in product(range(half_tiles(rows)), range(k_chunk // K_BLOCK))
    ]
    sums = [(number, lane) for number in range(fragments(rows, token_tile))]
    return [
        Access.of("rings, cp.async", 16, filled, *layouts),
        Access.of("rings, ld", 16, loaded, *layouts),
        Access.of("rings, st", 16, sums, lane_offset),  # the sums, which are loaded as they were stored
        *(Access.of(f"receive, {kind}", 16, sums, lane_offset) for kind in ("st", "ld") if cluster > 1),
    ]
