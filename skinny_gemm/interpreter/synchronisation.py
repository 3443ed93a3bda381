"""What warps do at barriers: initialise them, arrive, expect bytes, wait; and what a deadlock is about.

The instructions that can block are `bar.sync`, `barrier.cluster.wait`, `mbarrier.try_wait` and `test_wait`. One group
tries each again and again (`attempt`).
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .barriers import ClusterBarrier, Count, MBarrier, NamedBarrier, Rows
from .errors import BarrierError
from .parser import SHARED_BASE, Address, Imm, Instruction
from .place import Array, Mask, Place, active, converged
from .shared_memory import cluster_addresses, elements

if TYPE_CHECKING:
    from .group import Group
    from .machine import Machine


ONE = np.ones((1, 1, 1), np.uint32)  #: arrival per lane


def barrier_at(place: Place, index: int, address: int, rows: Rows, create: bool = False) -> MBarrier:
    """The mbarrier at a shared address; raises unless all of `rows` have initialised it, or `create`."""
    known = place.machine.mbarriers
    if address not in known:
        elements(place, index, np.full((1, 1, 1), address, np.uint32), 8)
        if create:
            known[address] = MBarrier(address, place.machine.rows, len(known))
    if not (create or (address in known and (known[address].expected[rows] > 0).all())):
        what = f"No mbarrier has been initialised at shared address {address - SHARED_BASE}"
        raise place.error(BarrierError, what, index)
    return known[address]


def barriers(
    place: Place, index: int, addresses: Array, mask: Mask, count: Array = ONE, create: bool = False,
    cluster: bool = False,
) -> list[tuple[MBarrier, Rows, Array]]:  # fmt: skip
    """[(barrier, rows, sum of the active lanes' `count`, one per row or for all)] of the mbarriers that lanes name."""
    if addresses.size == 1 and not cluster and count.size == 1:
        rows, lanes = place.slice, WARP * len(place.warps)
        if mask is None:
            total = np.array([lanes])
        else:
            total = mask.sum(axis=(1, 2)) * (lanes // (mask.shape[1] * mask.shape[2]))
            if len(total) > 1 and not total.all():
                rows, total = place.rows[total > 0], total[total > 0]
        return [(barrier_at(place, index, int(addresses[0, 0, 0]), rows, create), rows, total * int(count[0, 0, 0]))]
    own, offsets = place.rows[:, None, None], active(mask, addresses)
    if offsets is None:
        return []
    if cluster:
        own, offsets = cluster_addresses(place, index, offsets, 8, mask)
    place.events.decides(place, index, offsets, "the address", mask)
    full = place.full(mask)
    own, offsets, counts = (np.broadcast_to(x, full.shape)[full] for x in (own, offsets, count))
    found: list[tuple[MBarrier, Rows, Array]] = []
    for address in np.unique(offsets):
        same = offsets == address
        rows = np.unique(own[same])
        total = np.bincount(own[same], counts[same])[rows].astype(np.int64)
        found.append((barrier_at(place, index, int(address), rows, create), rows, total))
    return found


def change(place: Place, index: int, barrier: MBarrier, event: str, rows: Rows, count: Count) -> None:
    """Lets `event` (arrive, expect or transfer) happen at an mbarrier."""
    try:
        opened = getattr(barrier, event)(rows, count)
    except BarrierError as error:
        address = barrier.address - SHARED_BASE
        raise BarrierError(f"Shared address {address}: {error} ({place.place_of(index)}).") from None
    place.events.completed(barrier, rows, opened)


def init(place: Place, index: int, addresses: Array, count: Array, mask: Mask) -> None:
    """`mbarrier.init`."""
    place.machine.changed()
    lanes = active(mask, addresses)
    if lanes is None:
        return
    elements(place, index, lanes, 8)
    place.events.decides(place, index, count, "the arrival count")
    if count.size > 1:
        raise BarrierError(f"Lanes initialise an mbarrier with different counts: {place.place_of(index, mask)}.")
    expected = int(count[0, 0, 0])
    if not 1 <= expected < 1 << 20:
        raise BarrierError(f"An mbarrier cannot expect {expected} arrivals (1 to 1048575): {place.place_of(index)}.")
    for barrier, rows, _ in barriers(place, index, addresses, mask, create=True):
        if (barrier.expected[rows] > 0).any():
            what = f"The mbarrier at shared address {barrier.address - SHARED_BASE} is initialised again without "
            raise place.error(BarrierError, what + "mbarrier.inval", index, mask)
        barrier.init(rows, expected)
    place.events.initialised(place, index, addresses, mask)


def invalidate(place: Place, index: int, addresses: Array, mask: Mask) -> None:
    """`mbarrier.inval`."""
    if active(mask, addresses) is None:
        return
    for barrier, rows, _ in barriers(place, index, addresses, mask):
        barrier.expected[rows] = 0
    place.events.access(place, index, addresses, 8, mask, True)


def arrive(place: Place, index: int, addresses: Array, count: Array, mask: Mask, scope: str, cluster: bool) -> Array:
    """`mbarrier.arrive`, `count` times per active lane, by a release of some scope, at shared::cluster addresses if
    `cluster`; the state is the phase before, (CTAs, 1, 1) as uint64."""
    place.machine.changed()
    none = count == 0 if mask is None else (count == 0) & mask
    if none.any():
        raise BarrierError(f"An arrival counts at least 1, not 0: {place.place_of(index, none)}.")
    state, found = None, barriers(place, index, addresses, mask, count, cluster=cluster)
    _use(place, index, addresses, mask, cluster)
    for barrier, rows, total in found:
        state = barrier.phase[rows].astype(np.uint64)[:, None, None]
        place.events.arrives(place, barrier, mask, addresses, scope)
        change(place, index, barrier, "arrive", rows, total)
    return state if state is not None and len(state) == len(place.rows) else np.zeros((1, 1, 1), np.uint64)


def expect_bytes(place: Place, index: int, addresses: Array, count: Array, mask: Mask, cluster: bool) -> None:
    """`mbarrier.expect_tx`."""
    place.machine.changed()
    place.events.decides(place, index, count, "the byte count", mask)
    for barrier, rows, total in barriers(place, index, addresses, mask, count, cluster=cluster):
        change(place, index, barrier, "expect", rows, total)
    _use(place, index, addresses, mask, cluster)


def _use(place: Place, index: int, addresses: Array, mask: Mask, cluster: bool) -> None:
    """Reports that the words of an mbarrier are read."""
    lanes = active(mask, addresses)
    if lanes is not None:
        rows, offsets = cluster_addresses(place, index, lanes, 8, mask) if cluster else (None, addresses)
        place.events.access(place, index, offsets, 8, mask, False, rows)


def join(place: Place, index: int, number: int, count: int, warps: Mask = None) -> NamedBarrier:
    """Some `warps` of the place (CTAs, warps), None for all, arrive at the named barrier `number`, which expects
    `count` threads; returns it."""
    machine, ins, most = place.machine, place.machine.code[index], place.machine.context.warps * WARP
    if count % WARP or not 0 < count <= most:
        raise BarrierError(f"{ins.text!r} (PTX line {ins.line}) expects {count} threads, which is not a multiple of "
                           f"{WARP} up to the CTA's {most}.")  # fmt: skip
    barrier = machine.named_barrier(number)
    machine.changed()
    place.events.arrives(place, barrier, None if warps is None else warps[:, :, None])
    rows: Rows = place.slice
    threads: Count = WARP * len(place.warps)
    if warps is not None:
        here = warps.any(axis=1)
        rows, threads = place.rows[here], WARP * warps.sum(axis=1)[here]
    try:
        opened = barrier.arrive(rows, threads, count)
    except BarrierError as error:
        raise BarrierError(f"{ins.text!r} (PTX line {ins.line}): {error}.") from None
    place.events.completed(barrier, rows, opened)
    return barrier


def bar_arrive(place: Place, index: int, number: Array, count: Array, mask: Mask) -> None:
    """`bar.arrive`, by the warps that have an active lane: at the barrier and for the count that each names."""
    converged(place, index, None, mask)
    here = place.full(mask)[:, :, 0]
    named = [np.broadcast_to(per_warp(place, index, values, mask), here.shape) for values in (number, count)]
    for pair in np.unique(np.stack([values[here] for values in named]), axis=1).T.tolist():
        warps = here & (named[0] == pair[0]) & (named[1] == pair[1])
        join(place, index, pair[0], pair[1], None if warps.all() else warps)


def per_warp(place: Place, index: int, values: Array, mask: Mask = None) -> Array:
    """An operand of a named barrier as (CTAs | 1, warps | 1): its lanes must agree, and twins too."""
    if values.size > 1:
        place.events.decides(place, index, values, "the barrier", mask)
        apart = (values != values[:, :, :1]).any(axis=2, keepdims=True)
        if (apart if mask is None else apart & mask).any():
            ins = place.machine.code[index]
            what = "has operands that differ between the lanes of a warp"
            raise BarrierError(f"{ins.text!r} (PTX line {ins.line}) {what}.")
    return values[:, :, 0]


def cluster_arrive(place: Place, index: int, release: bool, aligned: bool, mask: Mask) -> None:
    """`barrier.cluster.arrive`."""
    if aligned:
        converged(place, index, None, mask)
    try:
        opened = place.machine.cluster_barrier.arrive(place.rows, place.warps, place.full(mask))
    except BarrierError as error:
        raise BarrierError(f"{error}: {place.place_of(index, mask)}.") from None
    place.events.cluster_arrives(place, mask, release)
    place.events.cluster_completed(opened)
    place.machine.changed()


# Waits


def attempt(group: "Group", ins: Instruction) -> bool | Array:
    """Tries to pass a blocking instruction: True once all may, False while none may, else which may, as an array
    (CTAs | 1, warps | 1)."""
    wait = _try_wait if ins.op[0] == "mbarrier" else _cluster_wait if ins.op[1] == "cluster" else _bar
    ready: Any = wait(group, ins)
    first = ready.reshape(-1)[0]
    return bool(first) if (ready == first).all() else ready


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


def choice(group: "Group", ins: Instruction) -> Array | None:
    """Which warps (CTAs | 1, warps | 1) name the same barrier and count in a `bar.sync` as the first; None for all."""
    if ins.op[0] not in ("bar", "barrier") or ins.op[1] != "sync":
        return None
    same = np.ones((1, 1), bool)
    for values in (_operand(group, o) for o in ins.operands):
        warps = per_warp(group, ins.index, values)
        same = same & (warps == warps[:1, :1])
    return None if same.all() else same


def _bar(group: "Group", ins: Instruction) -> Array:
    """`bar.sync`: arrives once, then waits for the opening."""
    number, *counts = (int(_operand(group, o)[0, 0, 0]) for o in ins.operands)
    barrier = group.machine.named_barrier(number)
    if group.opened is None:
        group.opened = barrier.opened[group.slice].copy()
        group.waiting = ins, barrier, None
        join(group, ins.index, number, counts[0] if counts else group.machine.context.warps * WARP)
    ready = barrier.opened[group.slice] > group.opened
    if ready.all():
        group.events.acquired(group, barrier)
    return ready[:, None]


def _cluster_wait(group: "Group", ins: Instruction) -> Array:
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
    return ready[:, None]


def _try_wait(group: "Group", ins: Instruction) -> Array:
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
        ready = (barrier.phase[group.slice, None] & 1) != int(phase[0, 0, 0])
    else:
        addresses, phases = np.broadcast_to(address, group.shape), np.broadcast_to(phase, group.shape)
        done = np.zeros(group.shape, bool)
        passed = [barrier for barrier, _, _ in barriers(group, ins.index, address, None)]
        for barrier in passed:
            now = barrier.phase[group.rows][:, None, None]
            done |= (addresses == barrier.address) & ((now & 1) != phases if parity else now > phases)
            group.waiting = ins, barrier, int(phases[0, 0, 0])
        ready = done.all(axis=2)
    if ready.all():
        given_up = "try_wait" in ins.op and group.machine.schedule.dares("fail")
        group.registers[group.machine.program.flow.number[d.name]] = ops.FALSE if given_up else ops.TRUE
        if not given_up:
            group.events.access(group, ins.index, address, 8, None, False)
            for barrier in passed:
                group.events.acquired(group, barrier, "cluster" if "cluster" in ins.op else "cta")
    return ready


def deadlock(machine: "Machine") -> str:
    """The sentence for a deadlock: who waits for what, and what is missing."""
    parts = []
    for group in machine.groups[:4]:
        assert group.waiting is not None
        ins, barrier, parity = group.waiting
        row = int(group.rows[0])
        what = barrier.waiting(row, parity)
        if isinstance(barrier, MBarrier):
            named = Address(None, barrier.address)  # where the program arrives at an address that is written out
            lines = [str(other.line) for other in machine.code if "arrive" in other.op and named in other.operands]
            where = f"arrivals are at PTX line{'s' if len(lines) > 1 else ''} {', '.join(lines[:8])}"
            what += f" ({where if lines else 'no instruction with this literal address arrives there'})"
        elif isinstance(barrier, ClusterBarrier):
            peers = machine.clusters.peers[row]
            late = (barrier.arrivals[peers] <= barrier.opened[barrier.cluster[row]]).any(axis=(1, 2))
            what += f" (of CTA ranks {np.flatnonzero(late & (machine.clusters.alive[peers] > 0)).tolist()})"
        parts.append(f"CTA {machine.cta_of(row)} warps {group.warps.tolist()} wait at PTX line {ins.line} on {what}")
    rest = len(machine.groups) - 4
    return "Deadlock: " + "; ".join(parts) + (f"; and {rest} more groups wait." if rest > 0 else ".")
