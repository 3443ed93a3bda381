"""Index arithmetic, the only source of every offset: plain functions of Python ints, NumPy arrays or DSL integers."""

from collections.abc import Iterable
from typing import Any

WARP = 32  #: lanes of a warp

Index = Any  #: a Python int, a NumPy array of integers or an integer of the DSL
Regions = list[tuple[str, int, int]]  #: of a CTA's shared memory, in order: (name, byte offset, bytes)


def placed(sizes: Iterable[tuple[str, int, int]]) -> Regions:
    """Regions one behind the other, from (name, bytes, alignment) of each."""
    regions: Regions = []
    for name, size, alignment in sizes:
        regions.append((name, -(-end(regions) // alignment) * alignment, size))
    return regions


def end(regions: Regions) -> int:
    """Bytes up to the end of the last region."""
    return sum(regions[-1][1:]) if regions else 0
