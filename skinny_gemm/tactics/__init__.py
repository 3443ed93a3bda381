"""The tactic types, by kernel name: the registry that the command line, sweeps, records and sliders read."""

from .base import Footprint, Result, Tactic
from .warp_splitk import WarpSplitKTactic
from .ws_gemm import WsGemmTactic

KERNELS: dict[str, type[Tactic]] = {tactic.kernel: tactic for tactic in (WarpSplitKTactic, WsGemmTactic)}


def tactic_type(kernel: str) -> type[Tactic]:
    """The tactic type of `kernel`; ValueError lists the known names."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: known are {', '.join(KERNELS)}")
    return KERNELS[kernel]


__all__ = ["KERNELS", "Footprint", "Result", "Tactic", "WarpSplitKTactic", "WsGemmTactic", "tactic_type"]
