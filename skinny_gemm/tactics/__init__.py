"""The kernels: a further one is a line in `KERNELS` and its own files: tactic type (here), layouts, device code."""

from .balanced_splitk import BalancedSplitKTactic
from .base import MAX_M, Footprint, Result, Tactic
from .warp_splitk import WarpSplitKTactic
from .wgmma_splitk import WgmmaSplitKTactic
from .ws_gemm import WsGemmTactic

KERNELS: dict[str, type[Tactic]] = {
    kind.kernel: kind for kind in (WarpSplitKTactic, BalancedSplitKTactic, WgmmaSplitKTactic, WsGemmTactic)
}


def tactic_type(kernel: str) -> type[Tactic]:
    """The tactic type of `kernel`; ValueError lists the known names."""
    if kernel not in KERNELS:
        raise ValueError(f"unknown kernel {kernel!r}: known are {', '.join(KERNELS)}")
    return KERNELS[kernel]


def plain_kernels(output: str = "bf16") -> dict[str, type[Tactic]]:
    """Those of `KERNELS` that compute a plain GEMM, nothing else, and can store it as `output`: see `Tactic`."""
    return {name: kind for name, kind in KERNELS.items() if kind.is_plain() and output in kind.outputs}


__all__ = [
    "KERNELS", "MAX_M", "BalancedSplitKTactic", "Footprint", "Result", "Tactic", "WarpSplitKTactic",
    "WgmmaSplitKTactic", "WsGemmTactic",
    "plain_kernels", "tactic_type",
]  # fmt: skip
