"""The kernels: a further one is a line in `KERNELS` and its own files: tactic type (here), layouts, device code."""

from .balanced_splitk import BalancedSplitKTactic
from .base import MAX_M, Footprint, Result, Tactic
from .warp_splitk import WarpSplitKTactic
from .ws_gemm import WsGemmTactic

KERNELS: dict[str, type[Tactic]] = {
    kind.kernel: kind for kind in (WarpSplitKTactic, WsGemmTactic, BalancedSplitKTactic)
}


def tactic_type(kernel: str) -> type[Tactic]:
    """The tactic type of `kernel`; ValueError lists the known names."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: known are {', '.join(KERNELS)}")
    return KERNELS[kernel]


__all__ = [
    "KERNELS",
    "BalancedSplitKTactic",
    "MAX_M",
    "Footprint",
    "Result",
    "Tactic",
    "WarpSplitKTactic",
    "WsGemmTactic",
    "tactic_type",
]
