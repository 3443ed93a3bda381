"""The XOR swizzle that lets `ldmatrix` read a K-major tile without bank conflicts.

A row of `k_tile` BF16 elements is a multiple of the banks' 128 bytes, so the eight 16-byte rows of an `ldmatrix` matrix
would all collide; XOR-ing the 16-byte chunk index with the row's low three bits sends them to eight different chunks.
"""

from . import Index

CHUNK = 8  #: BF16 elements in one 16-byte chunk: what one `cp.async` moves and one `ldmatrix` row reads
ELEMENT_BYTES = 2  #: one BF16


def tile_offset(row: Index, col: Index, k_tile: int) -> Index:
    """Offset in elements of element `(row, col)` in a swizzled `[rows, k_tile]` tile (`k_tile` >= 64, power of 2)."""
    return row * k_tile + (col ^ (CHUNK * (row & 7)))


def plain_offset(row: Index, col: Index, k_tile: int) -> Index:
    """`tile_offset` without the swizzle: not used by any kernel, kept so that notebooks can show what it costs."""
    return row * k_tile + col
