"""Runs the PTX of a compiled kernel on any CPU: `run(compiled, arguments, schedule, trace) -> Result`.

    text -> parser -> flow (blocks, post-dominators, liveness) -> codegen (+ fuse) -> machine (groups of warps)

What generated code calls on a `group` lies in `shared_memory`, `memory` (global), `asynchronous` (copies) and
`synchronisation` (barriers). Poison, races, dependent launches and traces are `observers` of events.

It is not a performance model: it executes what the kernels of this package use and rejects the rest by name, with the
PTX line. That is integer, bit and FP32 arithmetic, BF16 conversion, `mma.sync.m16n8k16` and
`ldmatrix`, shuffles, votes and reductions, `cp.async`, `cp.async.bulk`, `st.async`, mbarriers with arrivals and bytes,
named and cluster barriers, `griddepcontrol`, `multimem.st`. Refused are local memory, generic addresses, calls,
atomics, tensor maps, wgmma, FTZ, relaxed mbarrier operations, and whatever else it does not know.

- Clusters are (x, 1, 1), x up to 16; the CTAs of one run at the same time. Shared memory of other CTAs is reached
  through `mapa.shared::cluster.u32`, and only while they run.
- A pointer parameter whose value is `Multicast([array, ...])` is a multicast address, for `multimem.st` only.
- `%globaltimer` and `%clock64` count time as `machine.Clock` says.
- Memory is coherent and ordered: fences change nothing but what the race detector (`run(races=...)`) concludes. It
  watches shared memory only, and knows scopes, but no proxies: `fence.proxy.async` has no effect.
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
from .observers.trace import Trace, shared_accesses
from .schedules import Adversarial, InOrder, adversarial, in_order

__all__ = [
    "Adversarial", "BarrierError", "ClusterError", "DeadlockError", "DependencyError", "DivergenceError", "InOrder",
    "InterpreterError", "MemoryAccessError", "Multicast", "PoisonError", "PtxSyntaxError", "RaceError", "ReadOnlyError",
    "Result", "Trace", "UnsupportedInstruction", "adversarial", "in_order", "run", "shared_accesses",
]  # fmt: skip
