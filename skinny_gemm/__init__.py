"""Skinny GEMMs, y = x W^T with few rows of x, as NVIDIA GPUs run them in decode: kernels to read, step, run and judge.

Importing the package costs milliseconds: PyTorch and the kernel compiler load with the first name that needs them.
"""

from importlib import import_module

__version__ = "0.1.0"

_NAMES = {  #: module -> its public names
    "problem": "FrontProblem GemmProblem",
    "runtime": "Mailbox MissingPublisher PreparedGemm PreparedWsGemm matmul prepare",
    "tactics": "BalancedSplitKTactic WarpSplitKTactic WsGemmTactic",
}
_MODULES = {name: f".{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_MODULES, "interpreter"])


def __getattr__(name: str):
    if name == "interpreter":
        return import_module(".interpreter", __name__)
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module 'skinny_gemm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
