"""Skinny GEMMs, y = x W^T with few rows of x, as NVIDIA GPUs run them in decode: kernels to read, step, run and judge.

Importing the package costs milliseconds: PyTorch and the kernel compiler load with the first name that needs them.
"""

from importlib import import_module

__version__ = "0.1.0"

#: public name -> the module that defines it
_EXPORTS = {
    "FrontProblem": "skinny_gemm.problem",
    "GemmProblem": "skinny_gemm.problem",
    "Mailbox": "skinny_gemm.runtime",
    "MissingPublisher": "skinny_gemm.runtime",
    "PreparedWarpSplitK": "skinny_gemm.runtime",
    "PreparedWsGemm": "skinny_gemm.runtime",
    "WarpSplitKTactic": "skinny_gemm.tactics",
    "WsGemmTactic": "skinny_gemm.tactics",
    "matmul": "skinny_gemm.runtime",
}
_SUBMODULES = {"interpreter"}

__all__ = sorted([*_EXPORTS, *_SUBMODULES])


def __getattr__(name: str):
    if name in _SUBMODULES:
        return import_module(f"skinny_gemm.{name}")
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'skinny_gemm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
