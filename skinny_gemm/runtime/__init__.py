"""From a tactic to a result: compile (cached), run on a GPU or interpret on a CPU, and the prepared objects."""

from ..device import architectures
from .compile import compile_collect, compile_jit, compile_kernel, compile_probe
from .driver import launch, load
from .mailbox import Mailbox, MissingPublisher
from .prepared import PreparedWarpSplitK, PreparedWsGemm, matmul
from .runner import bind, run

__all__ = [
    "ARCHITECTURES", "Mailbox", "MissingPublisher", "PreparedWarpSplitK", "PreparedWsGemm", "bind", "compile_collect",
    "compile_jit", "compile_kernel", "compile_probe", "launch", "load", "matmul", "run",
]  # fmt: skip


def __getattr__(name: str) -> tuple[str, ...]:
    if name == "ARCHITECTURES":  # read from data/ when it is asked for, so that an import needs no data
        return architectures()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
