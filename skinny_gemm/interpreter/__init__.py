"""Runs the PTX of a compiled kernel on any CPU: `run(compiled, arguments, schedule, trace) -> Result`.

    text -> parser -> flow (blocks, post-dominators, liveness) -> codegen (+ fuse) -> machine (groups of warps)

It is not a performance model: it executes what the kernels of this package use and rejects the rest by name.
"""

from .errors import (
    BarrierError,
    ClusterError,
    DeadlockError,
    DependencyError,
    DivergenceError,
    InterpreterError,
    MemoryAccessError,
    PoisonError,
    PtxSyntaxError,
    RaceError,
    ReadOnlyError,
    UnsupportedInstruction,
)
from .launch import Multicast, Result, run
from .schedules import Adversarial, InOrder, adversarial, in_order
from .trace import Trace, bytes_by_space, dsmem_traffic, global_accesses, shared_accesses, timeline

__all__ = [
    "Adversarial", "BarrierError", "ClusterError", "DeadlockError", "DependencyError", "DivergenceError", "InOrder",
    "InterpreterError", "MemoryAccessError", "Multicast", "PoisonError", "PtxSyntaxError", "RaceError", "ReadOnlyError",
    "Result", "Trace", "UnsupportedInstruction", "adversarial", "bytes_by_space", "dsmem_traffic", "global_accesses",
    "in_order", "run", "shared_accesses", "timeline",
]  # fmt: skip
