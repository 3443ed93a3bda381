"""The tactic types, by kernel name: the registry that the command line, sweeps, records and sliders read."""

from .base import Footprint, Tactic
from .warp_splitk import WarpSplitKTactic

KERNELS: dict[str, type[Tactic]] = {tactic.kernel: tactic for tactic in (WarpSplitKTactic,)}


def tactic_type(kernel: str) -> type[Tactic]:
    """The tactic type of `kernel`; ValueError lists the known names."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: known are {', '.join(KERNELS)}")
    return KERNELS[kernel]


__all__ = ["KERNELS", "Footprint", "Tactic", "WarpSplitKTactic", "tactic_type"]
