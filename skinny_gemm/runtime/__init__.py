"""From a tactic to a result: compile (cached), run on a GPU or interpret on a CPU, and the prepared objects."""

from .compile import compile_collect, compile_jit, compile_kernel, compile_probe
from .driver import launch, load
from .mailbox import Mailbox, MissingPublisher
from .prepared import PreparedGemm, PreparedWsGemm, matmul, prepare
from .runner import bind, run

__all__ = [
    "Mailbox", "MissingPublisher", "PreparedGemm", "PreparedWsGemm", "bind", "compile_collect",
    "compile_jit", "compile_kernel", "compile_probe", "launch", "load", "matmul", "prepare", "run",
]  # fmt: skip
