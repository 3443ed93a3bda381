"""Shared memory, of the own CTA and of the cluster: checks of addresses, loads and stores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .buffers import DTYPES
from .clusters import FAR, NEGATIVE, OFFSET, RANK_SHIFT
from .errors import BarrierError, MemoryAccessError
from .parser import SHARED_BASE
from .place import Array, Mask, Place, active, scatter

if TYPE_CHECKING:
    from .group import Group

SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}  #: log2 of an access's bytes


# Addresses


def elements(place: Place, index: int, addresses: Array, width: int) -> Array:
    """Element indices of `addresses` in a CTA's shared memory, after checking bounds and alignment."""
    low, high = int(addresses.min()), int(addresses.max())
    if (
        low < SHARED_BASE
        or high + width > place.machine.shared_end
        or (width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1))
    ):
        _fault(place, index, addresses, width)
    return (addresses >> SHIFT[width]).astype(np.int64)


def cluster_addresses(place: Place, index: int, addresses: Array, width: int, mask: Mask = None) -> tuple[Array, Array]:
    """(rows, offsets) that shared::cluster `addresses` name, in full shape; checks rank, bounds, alignment, life.

    Inactive lanes must hold an active lane's address.
    """
    clusters = place.machine.clusters
    rank = (addresses >> np.uint32(RANK_SHIFT)).astype(np.int64)
    offsets = addresses & np.uint32(OFFSET)
    own = place.rows[:, None, None]
    if not rank.any():
        rows = np.broadcast_to(own, np.broadcast_shapes(own.shape, offsets.shape))
    else:
        if rank.max() > clusters.size:
            place.events.faulted(place, index, addresses, "shared")
            _cluster_fault(place, index, addresses, rank > clusters.size, "outside the cluster")
        rows = np.where(rank > 0, clusters.peers[own, rank - 1], own)
        for absent, what in ((~clusters.started, "has not started"), (clusters.alive == 0, "has exited")):
            bad = absent[rows] if mask is None else absent[rows] & mask
            if bad.any():
                _cluster_fault(place, index, addresses, bad, "which " + what)
    elements(place, index, offsets, width)
    return rows, offsets


def _fault(place: Place, index: int, addresses: Array, width: int) -> NoReturn:
    end = place.machine.shared_end
    bad = (addresses < SHARED_BASE) | (addresses.astype(np.int64) + width > end) | (addresses % width != 0)
    flat = int(np.flatnonzero(bad)[0])
    address = int(addresses.reshape(-1)[flat])
    place.events.faulted(place, index, addresses, "shared")
    if address % width:
        what = f"is not aligned to {width} bytes"
    elif address < SHARED_BASE:
        what = f"lies {SHARED_BASE - address} bytes before the CTA's shared memory"
    else:
        what = f"lies {address + width - end} bytes past the CTA's {end - SHARED_BASE} bytes of shared memory"
    raise MemoryAccessError(
        f"Shared address {address - SHARED_BASE} (+{SHARED_BASE}) of {width} bytes {what}: "
        f"{place.spot(index, addresses.shape[:3], flat)}."
    )


def _cluster_fault(place: Place, index: int, addresses: Array, bad: Array, what: str) -> NoReturn:
    addresses, bad = np.broadcast_arrays(addresses, bad)
    flat = int(np.flatnonzero(bad)[0])
    address = int(addresses.reshape(-1)[flat])
    rank = (address >> RANK_SHIFT) - 1
    name = {NEGATIVE: "below 0", FAR: f"{FAR} or above"}.get(rank, str(rank))
    raise MemoryAccessError(
        f"Shared address {(address & OFFSET) - SHARED_BASE} of CTA rank {name}, {what}: "
        f"{place.spot(index, addresses.shape[:3], flat)}."
    )


# Loads and stores


def read(place: Place, index: int, addresses: Array, width: int) -> Array:
    """What lies at `addresses` of each thread's own CTA; inactive lanes must hold an active lane's address."""
    at = elements(place, index, addresses, width)
    view = place.machine.shared_view(width)
    return view.reshape(-1).take(place.rows[:, None, None] * view.shape[1] + at, mode="clip")


def load(group: "Group", index: int, addresses: Array, width: int, mask: Mask) -> Array:
    """`ld.shared`: elements of `width` bytes."""
    lanes = active(mask, addresses)
    if lanes is None:
        return np.zeros((1, 1, 1), DTYPES[width])
    words = read(group, index, lanes, width)
    group.events.access(group, index, addresses, width, mask, False)
    return words


def store(group: "Group", index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
    """`st.shared` of one or several words per lane."""
    group.machine.changed()
    lanes = active(mask, addresses)
    if lanes is None:
        return
    width, flat, data, rows = scatter(group, addresses, words, mask)
    elements(group, index, lanes, width)
    _check_barriers(group, index, group.rows[:, None, None], lanes, width, mask)
    group.events.access(group, index, addresses, width, mask, True)
    group.events.store(group, index, addresses, words, mask)
    view = group.machine.shared_view(width)
    view.reshape(-1)[rows * view.shape[1] + (flat >> SHIFT[width])] = data


def load_cluster(group: "Group", index: int, addresses: Array, width: int, mask: Mask) -> Array:
    """`ld.shared::cluster`."""
    lanes = active(mask, addresses)
    if lanes is None:
        return np.zeros((1, 1, 1), DTYPES[width])
    rows, offsets = cluster_addresses(group, index, lanes, width, mask)
    group.events.access(group, index, offsets, width, mask, False, rows)
    view = group.machine.shared_view(width)
    return view.reshape(-1).take(rows * view.shape[1] + (offsets >> SHIFT[width]), mode="clip")


def store_cluster(group: "Group", index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
    """`st.shared::cluster`."""
    group.machine.changed()
    lanes = active(mask, addresses)
    if lanes is None:
        return
    width, flat, data, _ = scatter(group, addresses, words, mask)
    rows, offsets = cluster_addresses(group, index, lanes, width, mask)
    _check_barriers(group, index, rows, offsets, width, mask)
    group.events.access(group, index, offsets, width, mask, True, rows)
    group.events.store(group, index, offsets, words, mask, rows)
    rows = np.broadcast_to(rows, group.shape)[group.full(mask)]
    view = group.machine.shared_view(width)
    view.reshape(-1)[rows * view.shape[1] + ((flat & OFFSET) >> SHIFT[width])] = data


def mapa(group: "Group", addresses: Array, rank: Array) -> Array:
    """`mapa.shared::cluster`: see `Clusters.mapa`."""
    return group.machine.clusters.mapa(group.rows, addresses, rank)


def _check_barriers(place: Place, index: int, rows: Array, addresses: Array, width: int, mask: Mask) -> None:
    """Raises if a plain store overwrites a live mbarrier; inactive lanes must hold an active lane's address."""
    for address, barrier in place.machine.mbarriers.items():
        if address + 8 > addresses.min() and address < addresses.max() + width:
            hit = (addresses < address + 8) & (addresses + width > address) & (barrier.expected[rows] > 0)
            if hit.any():
                raise BarrierError(
                    f"A store overwrites the mbarrier at shared address {address - SHARED_BASE}, which has not "
                    f"been invalidated: {place.place_of(index, hit if mask is None else hit & mask)}."
                )
