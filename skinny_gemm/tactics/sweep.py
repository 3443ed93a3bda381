"""Which tactics of a problem a sweep measures: the default, the coarse grid (some dozens, `Tactic.coarse`), or all."""

from collections.abc import Sequence

from ..device import Device
from ..problem import GemmProblem
from . import Tactic, tactic_type

CHOICES = ("default", "coarse", "full")
FULL_MOST = 1000  #: tactics of one problem in a full sweep: warp split-K has up to 600, the front kernel thousands


def select(kernel: str, problem: GemmProblem, device: Device, choice: str | Sequence[Tactic]) -> list[Tactic]:
    """The legal ones of a list, or the default and the grid of "coarse" or "full"; ValueError for none or too many."""
    kind = tactic_type(kernel)
    if not isinstance(choice, str):
        if legal := [tactic for tactic in choice if tactic.why_not(problem, device) is None]:
            return legal
        raise ValueError(f"None of the tactics listed can run {problem.n}x{problem.k} at M = {problem.m}.")
    grids = {"coarse": kind.coarse, "full": kind.enumerate}
    more = grids[choice](problem, device) if choice in grids else []
    if choice == "full" and len(more) > FULL_MOST:
        many = f"{kernel} has {len(more):,} tactics for {problem.n}x{problem.k} at M = {problem.m}"
        raise ValueError(f"{many}, and a full sweep takes at most {FULL_MOST:,}: choose 'coarse', or list tactics.")
    return list(dict.fromkeys([kind.default(problem, device), *more]))
