"""The instructions that can block: `bar.sync`, `barrier.cluster.wait`, `mbarrier.try_wait` and `test_wait`; and what a
deadlock is about.

Each is tried again and again by one group. It answers True once all may pass, False while none may, else which may, as
an array (CTAs | 1, warps | 1).
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .arrivals import barrier_at, barriers, join
from .barriers import ClusterBarrier, MBarrier
from .errors import BarrierError
from .parser import Address, Imm, Instruction
from .place import Array

if TYPE_CHECKING:
    from .group import Group
    from .machine import Machine


def attempt(group: "Group", ins: Instruction) -> bool | Array:
    """Tries to pass a blocking instruction."""
    if ins.op[0] == "mbarrier":
        return _try_wait(group, ins)
    return _cluster_wait(group, ins) if ins.op[1] == "cluster" else _bar(group, ins)


@cache
def _constant(value: int) -> Array:
    return np.full((1, 1, 1), value, np.int64)


def _operand(group: "Group", operand: Any) -> Array:
    """The value of an operand, as an array of unsigned bits."""
    if isinstance(operand, Imm):
        return _constant(operand.value)
    register: Any = operand.base if isinstance(operand, Address) else operand
    offset = operand.offset if isinstance(operand, Address) else 0
    if register is None:
        return _constant(offset)
    value = group.registers[group.machine.program.flow.number[register.name]]
    return value + np.uint32(offset & 0xFFFFFFFF) if offset else value


def _uniform(ready: Any) -> bool | Array:
    """One answer where all are the same."""
    first = ready.reshape(-1)[0]
    return bool(first) if (ready == first).all() else ready


def _bar(group: "Group", ins: Instruction) -> bool | Array:
    """`bar.sync`: arrives once, then waits for the opening."""
    operands, most = [_operand(group, o) for o in ins.operands], group.machine.context.warps * WARP
    if any(o.size > 1 for o in operands):
        raise BarrierError(f"{ins.text!r} (PTX line {ins.line}) has operands that differ between threads.")
    barrier = group.machine.named_barrier(int(operands[0][0, 0, 0]))
    if group.opened is None:
        threads = int(operands[1][0, 0, 0]) if len(operands) > 1 else most
        if threads % WARP or not 0 < threads <= most:
            raise BarrierError(f"{ins.text!r} (PTX line {ins.line}) expects {threads} threads, which is not a "
                               f"multiple of {WARP} up to the CTA's {most}.")  # fmt: skip
        group.opened = barrier.opened[group.slice].copy()
        group.waiting = ins, barrier, None
        try:
            join(group, barrier, threads)
        except BarrierError as error:
            raise BarrierError(f"{ins.text!r} (PTX line {ins.line}): {error}.") from None
        group.machine.changed()
    ready = barrier.opened[group.slice] > group.opened
    if ready.all():
        group.events.acquired(group, barrier)
    return _uniform(ready[:, None])


def _cluster_wait(group: "Group", ins: Instruction) -> bool | Array:
    """`barrier.cluster.wait`."""
    barrier = group.machine.cluster_barrier
    group.waiting = ins, barrier, None
    try:
        ready = barrier.wait(group.rows, group.warps)
    except BarrierError as error:
        raise BarrierError(f"{error}: {group.place_of(ins.index)}.") from None
    if ready.all():
        barrier.passed(group.rows, group.warps)
        group.events.cluster_acquired(group)
    return _uniform(ready[:, None])


def _try_wait(group: "Group", ins: Instruction) -> bool | Array:
    """`mbarrier.try_wait` and `test_wait`: the predicate becomes true when the phase is over."""
    d, a, operand, *_ = ins.operands
    address, phase = _operand(group, a), _operand(group, operand)
    parity = "parity" in ins.op
    if parity and (phase > 1).any():
        group.events.decides(group, ins.index, phase, "the parity")
        raise BarrierError(f"A parity is 0 or 1, not {int(phase.max())}: {group.place_of(ins.index, phase > 1)}.")
    if address.size == 1 and phase.size == 1 and parity:
        barrier = barrier_at(group, ins.index, int(address[0, 0, 0]), group.slice)
        group.waiting, passed = (ins, barrier, int(phase[0, 0, 0])), [barrier]
        ready = _uniform((barrier.phase[group.slice, None] & 1) != int(phase[0, 0, 0]))
    else:
        addresses, phases = np.broadcast_to(address, group.shape), np.broadcast_to(phase, group.shape)
        done = np.zeros(group.shape, bool)
        passed = [barrier for barrier, _, _ in barriers(group, ins.index, address, None)]
        for barrier in passed:
            now = barrier.phase[group.rows][:, None, None]
            done |= (addresses == barrier.address) & ((now & 1) != phases if parity else now > phases)
            group.waiting = ins, barrier, int(phases[0, 0, 0])
        ready = _uniform(done.all(axis=2))
    if ready is True:
        given_up = "try_wait" in ins.op and group.machine.schedule.gives_up()
        group.registers[group.machine.program.flow.number[d.name]] = ops.FALSE if given_up else ops.TRUE
        if not given_up:
            group.events.access(group, ins.index, address, 8, None, False)
            for barrier in passed:
                group.events.acquired(group, barrier, "cluster" if "cluster" in ins.op else "cta")
    return ready


# Deadlocks


def deadlock(machine: "Machine") -> str:
    """The sentence for a deadlock: who waits for what, and what is missing."""
    parts = []
    for group in machine.groups[:4]:
        ins, barrier, parity = group.waiting
        row = int(group.rows[0])
        what = barrier.waiting(row, parity)
        if isinstance(barrier, MBarrier):
            what += f" ({_arrivers(machine, barrier.address)})"
        elif isinstance(barrier, ClusterBarrier):
            what += f" ({_absent(machine, row)})"
        parts.append(f"CTA {machine.cta_of(row)} warps {group.warps.tolist()} wait at PTX line {ins.line} on {what}")
    rest = len(machine.groups) - 4
    return "Deadlock: " + "; ".join(parts) + (f"; and {rest} more groups wait." if rest > 0 else ".")


def _arrivers(machine: "Machine", address: int) -> str:
    """Where the program arrives at a barrier whose address is written out."""
    lines = [
        str(ins.line)
        for ins in machine.code
        if "arrive" in ins.op
        and any(isinstance(o, Address) and o.base is None and o.offset == address for o in ins.operands)
    ]
    if not lines:
        return "no instruction with this literal address arrives there"
    return f"arrivals are at PTX line{'s' if len(lines) > 1 else ''} {', '.join(lines[:8])}"


def _absent(machine: "Machine", row: int) -> str:
    """Which CTAs of a row's cluster have threads that are yet to arrive at the cluster barrier."""
    barrier, clusters = machine.cluster_barrier, machine.clusters
    peers = clusters.peers[row]
    phase = barrier.opened[barrier.cluster[row]]
    late = (barrier.arrivals[peers] <= phase).any(axis=(1, 2)) & (clusters.alive[peers] > 0)
    return f"of CTA ranks {np.flatnonzero(late).tolist()}"
