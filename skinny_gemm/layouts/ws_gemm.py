"""Every offset of the weight-stationary GEMM, stated once: the kernel calls these functions, notebooks draw them.

A CTA holds `rt` tiles of 16 weight rows and 1/ks of K. Its warps are `rt` row tiles by `kq` K parts: warp w works on
row tile w div kq and part w mod kq. With the ks CTAs of a cluster that makes `parts = ks * kq` parts of K, each of kb
blocks of 32 elements. A *block* (of the output) is 16 rows x 8 tokens: one `mma` accumulator of a warp. Offsets are in
bytes unless a name says otherwise.
"""

from itertools import product

import numpy as np

from . import WARP, Index, Regions, placed
from .banks import Access
from .fragments import K_BLOCK, MMA_M, MMA_N, c_element, load_row, plane_word
from .swizzle import ELEMENT_BYTES

FRAGMENT_BYTES = 16 * WARP  #: 16 bytes a lane: one load, or the accumulator of one mma

accumulator_element = c_element  #: (row 0..15, token 0..7) of accumulator word 0..3 in a lane


def k_column(part: Index, block: Index, lane: Index, kb: int) -> Index:
    """First of the 8 consecutive K elements that `lane` loads of K `block` 0..kb-1 of `part` 0..parts-1."""
    return (part * kb + block) * K_BLOCK + 8 * (lane & 3)


def stage_offset(warp: Index, block: Index, row_half: Index, lane: Index, staged: int) -> Index:
    """Where `lane` keeps its 16 bytes of staged K `block` 0..staged-1, weight row g (`row_half` 0) or g + 8 (1)."""
    return ((warp * staged + block) * 2 + row_half) * FRAGMENT_BYTES + 16 * lane


def x_pitch(k_slice: int) -> int:
    """Bytes between the rows of an x tile: 64 more than a multiple of 128, so that two rows a phase do not collide."""
    return 2 * k_slice + (64 if k_slice % 64 == 0 else 0)


def x_offset(token: Index, column: Index, k_slice: int) -> Index:
    """Where element `column` of this CTA's K slice of `token` lies in the x tile."""
    return token * x_pitch(k_slice) + 2 * column


def part_offset(slot: Index, part: Index, lane: Index, parts: int) -> Index:
    """Where `lane`'s four accumulator words of `part` of the block in `slot` lie: 16 bytes a lane, no conflicts.

    A slot is a block, with this CTA's kq `parts` (gather), or one that it owns, with the cluster's (settle pipeline).
    """
    return (slot * parts + part) * FRAGMENT_BYTES + 16 * lane


def red_offset(row: Index, token: Index) -> Index:
    """Where (row, token) of a finished block lies while its warp turns lanes of tokens into runs of rows."""
    return 4 * plane_word(row, token)


def publish_unit(lane: Index) -> tuple[Index, Index]:
    """(first of four rows, token) of a finished block that `lane` publishes; lanes 8 apart hold rows 8q and 8q + 4."""
    return 4 * (lane >> 3), lane & 7


def block_index(token_tile: Index, row_tile: Index, rt: int) -> Index:
    """Number of the block (`token_tile`, `row_tile`) of a cluster."""
    return token_tile * rt + row_tile


def block_tile(block: Index, rt: int) -> tuple[Index, Index]:
    """(token tile, row tile) of a block."""
    return block // rt, block % rt


def owner(block: Index, ks: int) -> tuple[Index, Index]:
    """(CTA of the cluster, slot) that sums and publishes `block`."""
    return block % ks, block // ks


def owned_block(cta: Index, slot: Index, ks: int) -> Index:
    """The block that cluster CTA `cta` owns in `slot`; beyond the last block where it owns fewer."""
    return slot * ks + cta


def slots(blocks: int, ks: int) -> int:
    """Slots of each CTA: the most blocks that one owns."""
    return -(-blocks // ks)


def token_tiles(m: int) -> int:
    """8-token tiles of M tokens."""
    return -(-m // MMA_N)


def tiles_per_group(m: int, tg: int) -> int:
    """8-token tiles of one token group of `tg` tokens; all of them if `tg` is 0 or more than M."""
    return min(token_tiles(m), tg // MMA_N) if tg else token_tiles(m)


def groups(m: int, tg: int) -> int:
    """Token groups of M tokens."""
    return -(-token_tiles(m) // tiles_per_group(m, tg))


def group_tokens(group: Index, m: int, tg: int) -> Index:
    """Tokens of `group` that exist: all of its tiles' but those past M."""
    tokens = MMA_N * tiles_per_group(m, tg)
    return min(m - group * tokens, tokens)


def output_row(cta_tile: Index, row_tile: Index, row: Index, rt: int) -> Index:
    """Weight row (column of the output) of `row` 0..15 of a CTA's row tile; `cta_tile` is its cluster's number."""
    return (cta_tile * rt + row_tile) * MMA_M + row


def smem_regions(m: int, k: int, rt: int, kq: int, ks: int, staged: int, tg: int) -> Regions:
    """The CTA's shared memory, in order; x, receive and barriers are of the settle pipeline, parts of a single pass."""
    warps, blocks = rt * kq, token_tiles(m) * rt
    owned = slots(blocks, ks)
    sizes = {"stages": warps * staged * 2 * FRAGMENT_BYTES}
    if tg:
        sizes |= {"x": MMA_N * token_tiles(m) * x_pitch(k // ks), "receive": owned * ks * kq * FRAGMENT_BYTES}
    else:
        sizes |= {"parts": blocks * kq * FRAGMENT_BYTES}
    sizes |= {"red": min(warps, owned) * FRAGMENT_BYTES}
    if tg:
        sizes |= {"group barriers": 8 * groups(m, tg), "owner barriers": 8 * owned}
    return placed((name, size, 8) for name, size in sizes.items())


def shared_accesses(kb: int, k_slice: int, rt: int, kq: int, ks: int, staged: int, tg: int) -> list[Access]:
    """Every kind of warp-wide access to shared memory: kb K blocks a warp, `k_slice` K elements a CTA."""
    lane = np.arange(WARP)
    row, column = load_row(lane), k_column(0, 0, lane, kb)

    staging = (
        lambda warp, block, half: stage_offset(warp, block, half, lane, staged),
        lambda _, block, half: ELEMENT_BYTES * ((row + 8 * half) * staged * K_BLOCK + column + K_BLOCK * block),
    )
    x_tile = (
        lambda part, block: x_offset(row, k_column(part, block, lane, kb), k_slice),
        lambda part, block: ELEMENT_BYTES * (row * k_slice + k_column(part, block, lane, kb)),
    )
    red = red_offset, lambda row, token: 4 * (row * MMA_N + token)
    stages = list(product(range(rt * kq), range(staged), (0, 1)))
    region, parts = ("receive", ks * kq) if tg else ("parts", kq)
    slots = [(0, part, lane, parts) for part in range(parts)]
    first, token = publish_unit(lane)
    return [
        *(Access.of(f"stages, {kind}", 16, stages, *staging) for kind in ("cp.async", "ld") if staged),
        *([Access.of("x, ld", 16, product(range(kq), range(kb)), *x_tile)] if tg else []),
        *(Access.of(f"{region}, {kind}", 16, slots, part_offset) for kind in ("st", "ld")),
        Access.of("red, st", 8, [accumulator_element(lane, word) for word in (0, 2)], *red),
        Access.of("red, ld", 4, [(first + i, token) for i in range(4)], *red),
    ]
