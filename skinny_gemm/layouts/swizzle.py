"""The XOR swizzle that lets `ldmatrix` read a K-major tile without bank conflicts.

A row of `k_tile` BF16 elements is 256 or 512 bytes, a multiple of the 128 bytes that the 32 banks hold, so
unswizzled rows alias the same banks and the eight 16-byte rows of an `ldmatrix` matrix would all collide. XOR-ing
the 16-byte chunk index with the row's low three bits sends those eight rows to eight different chunks.

Everything here is plain arithmetic: Python integers, NumPy arrays and DSL integers all work.
"""

from . import Index

CHUNK = 8  #: BF16 elements in one 16-byte chunk: what one `cp.async` moves and one `ldmatrix` row reads
ELEMENT_BYTES = 2  #: one BF16


def swizzled_column(row: Index, col: Index) -> Index:
    """Column (in elements) at which element `(row, col)` of a swizzled tile is stored; `row` keeps its place."""
    return col ^ (CHUNK * (row & 7))


def tile_offset(row: Index, col: Index, k_tile: int) -> Index:
    """Offset in elements of element `(row, col)` in a swizzled `[rows, k_tile]` tile (`k_tile` >= 64, power of 2)."""
    return row * k_tile + swizzled_column(row, col)


def plain_offset(row: Index, col: Index, k_tile: int) -> Index:
    """`tile_offset` without the swizzle: not used by any kernel, kept so that notebooks can show what it costs."""
    return row * k_tile + col
