"""Runs the PTX of a compiled kernel on any CPU: `run(compiled, arguments, schedule, trace) -> Result`.

    text -> parser -> flow (blocks, post-dominators, liveness) -> codegen (+ fuse) -> machine (groups of warps)

What generated code calls on a `group` lies in `shared_memory`, `memory` (global), `asynchronous` (copies) and
`synchronisation` (barriers). Poison, races, dependent launches and traces are `observers` of events.

It is not a performance model: it executes what the kernels of this package use and rejects the rest by name, with the
PTX line. That is integer, bit and FP32 arithmetic, BF16 conversion, `mma.sync.m16n8k16` and
`ldmatrix`, `wgmma` of BF16 or FP16 operands that lie K-major in shared memory, shuffles, votes and reductions,
`cp.async`, `cp.async.bulk`, `st.async`, mbarriers with arrivals and bytes, named and cluster barriers,
`griddepcontrol`, `multimem.st`. Refused are local memory, generic addresses, calls, atomics, tensor maps, FTZ, relaxed
mbarrier operations, wgmma with an A in registers, M- or N-major operands or base offsets, and whatever else it does
not know.

- Clusters are (x, 1, 1), x up to 16; the CTAs of one run at the same time. Shared memory of other CTAs is reached
  through `mapa.shared::cluster.u32`, and only while they run.
- A pointer parameter whose value is `Multicast([array, ...])` is a multicast address, for `multimem.st` only.
- `%globaltimer` and `%clock64` count time as `machine.Clock` says.
- Memory is coherent and ordered: fences change nothing but what the race detector (`run(races=...)`) concludes. It
  watches shared memory only, and knows scopes, and of proxies that `wgmma` reads through another than threads write:
  that takes `fence.proxy.async` (see `observers.races`).
- A wgmma reads when `wgmma.wait_group` covers it, or when it is committed. Any other access of its accumulator before
  the wait is an error, checks or not, and so is a wgmma without a `wgmma.fence` that it needs, and a warpgroup whose
  warps do not execute the same. A wgmma that nobody waits for is not computed.
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
    WarpgroupError,
)
from .launch import Multicast, Result, run
from .observers.trace import Trace, shared_accesses
from .schedules import Adversarial, InOrder, adversarial, in_order

__all__ = [
    "Adversarial", "BarrierError", "ClusterError", "DeadlockError", "DependencyError", "DivergenceError", "InOrder",
    "InterpreterError", "MemoryAccessError", "Multicast", "PoisonError", "PtxSyntaxError", "RaceError", "ReadOnlyError",
    "Result", "Trace", "UnsupportedInstruction", "WarpgroupError", "adversarial", "in_order", "run", "shared_accesses",
]  # fmt: skip
