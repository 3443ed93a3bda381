"""Every offset of the wgmma split-K kernel, stated once: the kernel calls these functions, notebooks draw them.

N and K are cut as in `balanced_splitk`, with warpgroups in the place of warps. A stage of a group's ring holds a K
chunk of x, then of the highest tile's rows, atom by atom: `[rows, 64]` elements, 128 bytes a row, whose 16-byte chunks
are XOR-ed by the row as `wgmma` expects of its 128-byte swizzle. x is the A operand and always 64 rows high: past the
tokens come the first weight rows of the same stage, and what they give is never stored. Weights are B, so a tile may
have any multiple of 8 rows. Offsets are in bytes unless a name says otherwise.
"""

import numpy as np

from . import WARP, Index, Regions, placed
from .balanced_splitk import CHUNK_BYTES, FRAGMENT_BYTES, lane_offset, slots
from .banks import Access
from .descriptors import encoded
from .fragments import MMA_M, MMA_N, WARPGROUP, wgmma_element
from .swizzle import CHUNK, ELEMENT_BYTES

GROUP = WARPGROUP * WARP  #: threads of a warpgroup
ROW_STEP = MMA_N  #: rows of B come in eights, as those of a swizzle pattern
ATOM_K = 64  #: K elements of an atom's row
ATOM_ROW_BYTES = ATOM_K * ELEMENT_BYTES
PATTERN_BYTES = ROW_STEP * ATOM_ROW_BYTES  #: of a swizzle pattern, which must be aligned to them
COPIED_ROWS = GROUP // (ATOM_K // CHUNK)  #: of an atom that one copy of a group's threads covers


def whole_rows(rows: int) -> int:
    """Rows of a stage for a tile of `rows`: the next multiple of 8."""
    return -(-rows // ROW_STEP) * ROW_STEP


def stage_rows(rows: int, token_tile: int) -> int:
    """Rows of an atom: tokens, then the highest tile's."""
    return token_tile + whole_rows(rows)


def stage_bytes(rows: int, token_tile: int, k_chunk: int) -> int:
    """Bytes of a stage."""
    return stage_rows(rows, token_tile) * ELEMENT_BYTES * k_chunk


def copied(thread: Index) -> tuple[Index, Index]:
    """(row, 16-byte chunk) of an atom that a group's `thread` copies first; its further rows are 16 apart."""
    return thread // (ATOM_K // CHUNK), thread % (ATOM_K // CHUNK)


def atom_offset(row: Index, chunk: Index) -> Index:
    """Where 16-byte `chunk` of `row` lies in an atom."""
    return row * ATOM_ROW_BYTES + (chunk ^ (row & (ROW_STEP - 1))) * CHUNK_BYTES


def descriptor(address: Index) -> Index:
    """The shared-memory descriptor of an operand at `address`: patterns of 8 rows one behind another."""
    return encoded(address, CHUNK_BYTES, PATTERN_BYTES, ATOM_ROW_BYTES)


def token_parts(token_tile: int) -> int:
    """Warps of a group that have sums of tokens, 16 each."""
    return -(-token_tile // MMA_M)


def fragments(rows: int, token_tile: int) -> int:
    """Fragments of the sums of `rows` x `token_tile`: 16 tokens x 8 rows each."""
    return whole_rows(rows) // ROW_STEP * token_parts(token_tile)


def fragment(row_part: Index, token_part: Index, token_tile: int) -> Index:
    """Number of the fragment of 8-row part `row_part` and 16-token part `token_part`."""
    return row_part * token_parts(token_tile) + token_part


def sum_element(fragment: Index, lane: Index, word: Index, token_tile: int) -> tuple[Index, Index]:
    """(row, token) of the sum in `word` 0..3 of `lane`'s 16 bytes of a fragment: words 0 and 1 are of one row.

    The accumulator's words 1 and 2 change places, since there a row is a token.
    """
    parts = token_parts(token_tile)
    token, row = wgmma_element(fragment % parts, lane, 4 * (fragment // parts) + accumulator_word(word))
    return row, token


def accumulator_word(word: Index) -> Index:
    """Which of the four accumulator words of an 8-row part is `word` of a fragment."""
    return (word & 1) << 1 | word >> 1


def out_chunks(rows: int) -> int:
    """16-byte chunks of a token's BF16 results in shared memory, where they start as far into a chunk as in `out`.

    An odd number: then neither stores of a fragment nor loads of chunks one behind another have bank conflicts.
    """
    return -(-(rows + CHUNK - 1) // CHUNK) | 1


def out_offset(token: Index, element: Index, rows: int) -> Index:
    """Where a token's result `element` lies, counted from the chunk of `out` that the tile's first row is in."""
    return token * (out_chunks(rows) * CHUNK_BYTES) + element * ELEMENT_BYTES


def group_bytes(rows: int, token_tile: int, k_chunk: int, stages: int) -> int:
    """Bytes from one group's ring to the next: room for its stages and, when they are free, for its sums."""
    ring = stages * stage_bytes(rows, token_tile, k_chunk)
    sums = fragments(rows, token_tile) * FRAGMENT_BYTES
    return -(-max(ring, sums) // PATTERN_BYTES) * PATTERN_BYTES


def smem_regions(rows: int, token_tile: int, groups: int, k_chunk: int, stages: int, cluster: int) -> Regions:
    """The CTA's shared memory in allocation order: [(name, byte offset, bytes)]."""
    sizes = [("rings", groups * group_bytes(rows, token_tile, k_chunk, stages), PATTERN_BYTES)]
    if cluster > 1:
        sizes += [("receive", slots(fragments(rows, token_tile), cluster) * cluster * FRAGMENT_BYTES, 16)]
        sizes += [("received", 8, 8)]
    return placed(sizes)


def shared_accesses(rows: int, token_tile: int, cluster: int) -> list[Access]:
    """Every kind of warp-wide access to shared memory without those of wgmma and, where they are many, of results.

    These are of other widths than the model of banks knows; results have no conflicts either, see `out_chunks`.
    """
    lane = np.arange(WARP)
    threads = [warp * WARP + lane for warp in range(WARPGROUP)]
    filled = [
        (row + step, chunk)
        for row, chunk in map(copied, threads)
        for step in range(0, stage_rows(rows, token_tile), COPIED_ROWS)
    ]
    sums = [(number, lane) for number in range(fragments(rows, token_tile))]

    def plain(row: Index, chunk: Index) -> Index:
        return row * ATOM_ROW_BYTES + chunk * CHUNK_BYTES

    return [
        Access.of("rings, cp.async", 16, filled, atom_offset, plain),
        Access.of("rings, st", 16, sums, lane_offset),  # the sums, which are loaded as they were stored
        *(Access.of(f"receive, {kind}", 16, sums, lane_offset) for kind in ("st", "ld") if cluster > 1),
    ]
