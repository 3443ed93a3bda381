"""From a tactic to a result: compile (cached), launch on a GPU or interpret on a CPU, and the prepared objects."""

from .compile import ARCHITECTURES, compile_jit, compile_kernel
from .driver import launch, load
from .gemm import PreparedWarpSplitK, bind, matmul

__all__ = ["ARCHITECTURES", "PreparedWarpSplitK", "bind", "compile_jit", "compile_kernel", "launch", "load", "matmul"]
