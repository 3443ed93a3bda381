"""From a tactic to a result: compile (cached), launch on a GPU or interpret on a CPU, and the prepared objects."""

from .compile import ARCHITECTURES, compile_collect, compile_jit, compile_kernel
from .driver import launch, load
from .front import PreparedWsGemm
from .gemm import PreparedWarpSplitK, matmul
from .mailbox import Mailbox, MissingPublisher
from .runner import bind, run

__all__ = [
    "ARCHITECTURES", "Mailbox", "MissingPublisher", "PreparedWarpSplitK", "PreparedWsGemm", "bind", "compile_collect",
    "compile_jit", "compile_kernel", "launch", "load", "matmul", "run",
]  # fmt: skip
