"""What a place does at barriers without waiting: initialises them, arrives, expects bytes, fences; see also `waits`."""

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .barriers import Count, MBarrier, NamedBarrier, Rows
from .errors import BarrierError
from .parser import SHARED_BASE
from .place import Array, Mask, Place, active, converged
from .shared_memory import cluster_addresses, elements

# mbarriers


def barrier_at(place: Place, index: int, address: int, rows: Rows, create: bool = False) -> MBarrier:
    """The mbarrier at a shared address; raises unless all of `rows` have initialised it, or `create`."""
    barrier = place.machine.barrier(address, create)
    if barrier is None:
        elements(place, index, np.full((1, 1, 1), address, np.uint32), 8)
    if barrier is None or not (create or (barrier.expected[rows] > 0).all()):
        raise BarrierError(
            f"No mbarrier has been initialised at shared address {address - SHARED_BASE}: {place.place_of(index)}."
        )
    return barrier


def barriers(
    place: Place, index: int, addresses: Array, mask: Mask, count: Count = 1, create: bool = False,
    cluster: bool = False,
) -> list[tuple[MBarrier, Rows, Array]]:  # fmt: skip
    """[(barrier, rows, sum of the active lanes' `count`)] of the mbarriers that the lanes address.

    A sum is an array of one number per row, or of one for all rows.
    """
    if addresses.size == 1 and not cluster and isinstance(count, int):
        rows, lanes = place.slice, WARP * len(place.warps)
        if mask is None:
            total = np.array([lanes])
        else:
            total = mask.sum(axis=(1, 2)) * (lanes // (mask.shape[1] * mask.shape[2]))
            if len(total) > 1 and not total.all():
                rows, total = place.rows[total > 0], total[total > 0]
        return [(barrier_at(place, index, int(addresses[0, 0, 0]), rows, create), rows, total * count)]
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
        raise BarrierError(
            f"Shared address {barrier.address - SHARED_BASE}: {error} ({place.place_of(index)})."
        ) from None
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
            raise BarrierError(f"The mbarrier at shared address {barrier.address - SHARED_BASE} is initialised "
                               f"again without mbarrier.inval: {place.place_of(index, mask)}.")  # fmt: skip
        barrier.init(rows, expected)
    place.events.initialised(place, index, addresses, mask)


def invalidate(place: Place, index: int, addresses: Array, mask: Mask) -> None:
    """`mbarrier.inval`."""
    if active(mask, addresses) is None:
        return
    for barrier, rows, _ in barriers(place, index, addresses, mask):
        barrier.expected[rows] = 0
    place.events.access(place, index, addresses, 8, mask, True)


def arrive(
    place: Place, index: int, addresses: Array, count: Array, mask: Mask, scope: str = "cta", cluster: bool = False
) -> Array:
    """`mbarrier.arrive`, once or `count` times per active lane; the state is the phase before (CTAs, 1, 1) as uint64.

    `cluster`: the addresses are shared::cluster ones. `scope` is that of the release.
    """
    place.machine.changed()
    none = count == 0 if mask is None else (count == 0) & mask
    if none.any():
        raise BarrierError(f"An arrival counts at least 1, not 0: {place.place_of(index, none)}.")
    state, found = None, barriers(place, index, addresses, mask, _number(count), cluster=cluster)
    _use(place, index, addresses, mask, cluster)
    for barrier, rows, total in found:
        state = barrier.phase[rows].astype(np.uint64)[:, None, None]
        place.events.arrives(place, barrier, mask, addresses, scope)
        change(place, index, barrier, "arrive", rows, total)
    return state if state is not None and len(state) == len(place.rows) else np.zeros((1, 1, 1), np.uint64)


def expect_bytes(place: Place, index: int, addresses: Array, count: Array, mask: Mask, cluster: bool = False) -> None:
    """`mbarrier.expect_tx`."""
    place.machine.changed()
    place.events.decides(place, index, count, "the byte count", mask)
    for barrier, rows, total in barriers(place, index, addresses, mask, _number(count), cluster=cluster):
        change(place, index, barrier, "expect", rows, total)
    _use(place, index, addresses, mask, cluster)


def _use(place: Place, index: int, addresses: Array, mask: Mask, cluster: bool) -> None:
    """Reports that the words of an mbarrier are read."""
    lanes = active(mask, addresses)
    if lanes is not None:
        rows, offsets = cluster_addresses(place, index, lanes, 8, mask) if cluster else (None, addresses)
        place.events.access(place, index, offsets, 8, mask, False, rows)


def _number(count: Array) -> Count:
    """An operand array as an int where it holds one value, else as it is."""
    return int(count[0, 0, 0]) if count.size == 1 else count


# Other barriers


def join(place: Place, barrier: NamedBarrier, count: int, mask: Mask = None) -> None:
    """All warps of the place arrive at a named barrier."""
    place.events.arrives(place, barrier, mask)
    opened = barrier.arrive(place.slice, WARP * len(place.warps), count)
    place.events.completed(barrier, place.slice, opened)


def bar_arrive(place: Place, index: int, number: Array, count: Array, mask: Mask) -> None:
    """`bar.arrive`."""
    place.machine.changed()
    join(place, place.machine.named_barrier(int(number[0, 0, 0])), int(count[0, 0, 0]), mask)


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


def warp_sync(place: Place, mask: Mask) -> None:
    """`bar.warp.sync`: lanes run in step anyway, but only this orders what they did for one another."""
    place.events.warp_sync(place, mask)


def fence(place: Place, kind: str, mask: Mask) -> None:
    """A fence, of `kind` init or cluster: see `Observer.fence`."""
    place.events.fence(place, kind, mask)


def elect(place: Place, index: int, members: Array, mask: Mask) -> tuple[Array, Array]:
    """`elect.sync`: (lane number of the leader, predicate that is true in its lane)."""
    if members.size == 1 and int(members[0, 0, 0]) == 0xFFFFFFFF:
        converged(place, index, members, mask)
        return ops.ZERO, ops.ELECTED
    lanes = ops.lane_mask(members)
    leader = lanes.argmax(axis=2)[..., None].astype(np.uint32)
    return leader, ops.LANES == leader
