"""Trials: a kernel run once on random operands, beside what it should have computed."""

from typing import Any

from ..tactics import Result


def stray_writes(out: Any, empty: Any, results: tuple[Result, ...]) -> int:
    """How many BF16 words of `out` that belong to none of `results` differ from the fresh output `empty`.

    Both are 16-bit integers (the bits), of NumPy or of torch; `out` may have leading dimensions that `empty` lacks.
    """
    changed = out != empty
    for result in results:
        changed[..., result.columns] = False
    return int(changed.sum())
