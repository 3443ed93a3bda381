"""Shared memory, of the own CTA and of the cluster: checks of addresses, loads and stores, and `ldmatrix`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .errors import BarrierError, MemoryAccessError
from .parser import SHARED_BASE
from .place import DTYPES, FAR, NEGATIVE, OFFSET, RANK_SHIFT, Array, Mask, Place, active, converged, scatter

if TYPE_CHECKING:
    from .machine import Machine

SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}  #: log2 of an access's bytes
MBARRIER = 8  #: bytes of an mbarrier
MATRIX_LANES = {"x1": 8, "x2": 16, "x4": 32}  #: lanes that give the row addresses of an `ldmatrix`


def elements(place: Place, index: int, addresses: Array, width: int) -> Array:
    """Element indices of `addresses` in a CTA's shared memory, after checking bounds and alignment."""
    outside = addresses.min() < SHARED_BASE or int(addresses.max()) + width > place.machine.shared_end
    if outside or (width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1)):
        _fault(place, index, addresses, width)
    return (addresses >> SHIFT[width]).astype(np.int64)


def cluster_addresses(place: Place, index: int, addresses: Array, width: int, mask: Mask = None) -> tuple[Array, Array]:
    """(rows, offsets) that shared::cluster `addresses` name; checks rank, bounds, alignment, life.

    Inactive lanes must hold an active lane's address.
    """
    clusters = place.machine.clusters
    rank = (addresses >> np.uint32(RANK_SHIFT)).astype(np.int64)
    offsets = addresses & np.uint32(OFFSET)
    own = place.rows[:, None, None]
    rows = np.broadcast_to(own, np.broadcast_shapes(own.shape, offsets.shape))
    if rank.any():
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


def load(place: Place, index: int, addresses: Array, width: int, mask: Mask, cluster: bool = False) -> Array:
    """`ld.shared` of `width` bytes per lane; with `cluster`, `ld.shared::cluster`."""
    lanes, targets = active(mask, addresses), None
    if lanes is None:
        return np.zeros((1, 1, 1), DTYPES[width])
    if cluster:
        targets, addresses = cluster_addresses(place, index, lanes, width, mask)
        at = addresses >> SHIFT[width]
    else:
        at = elements(place, index, lanes, width)
    place.events.access(place, index, addresses, width, mask, False, targets)
    return place.machine.load_shared(place.rows[:, None, None] if targets is None else targets, at, width)


def store(
    place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask, cluster: bool = False
) -> None:
    """`st.shared` of one or several words per lane; with `cluster`, `st.shared::cluster`."""
    place.machine.changed()
    lanes, targets = active(mask, addresses), None
    if lanes is None:
        return
    width, flat, data, rows = scatter(place, addresses, words, mask)
    if cluster:
        targets, lanes = cluster_addresses(place, index, lanes, width, mask)
        addresses, flat, rows = lanes, flat & OFFSET, np.broadcast_to(targets, place.shape)[place.full(mask)]
    else:
        elements(place, index, lanes, width)
    own = place.rows[:, None, None]
    for barrier, hit in overwritten(place.machine, own if targets is None else targets, lanes, width):
        raise overwrites(place, index, "A store", barrier, hit if mask is None else hit & mask)
    place.events.access(place, index, addresses, width, mask, True, targets)
    place.events.store(place, index, addresses, words, mask, targets)
    place.machine.store_shared(rows, flat >> SHIFT[width], width, data)


def overwritten(machine: "Machine", rows: Array, addresses: Array, width: Array | int) -> Iterator[tuple[int, Array]]:
    """(address, who) of each live mbarrier in which some of the writes of `width` bytes at `addresses` would end."""
    if not machine.mbarriers:
        return
    low, high = int(addresses.min()), int(addresses.max()) + int(np.max(width))
    for address, barrier in machine.mbarriers.items():
        if address + MBARRIER > low and address < high:
            inside = (addresses < address + MBARRIER) & (addresses + width > address)
            hit = inside & (barrier.expected[rows] > 0)
            if hit.any():
                yield address, hit


def overwrites(place: Place, index: int, what: str, barrier: int, mask: Array) -> Exception:
    """The error for a write (`what` it is) over the live mbarrier at an address."""
    what += f" overwrites the mbarrier at shared address {barrier - SHARED_BASE}, which has not been invalidated"
    return place.error(BarrierError, what, index, mask)


def ldmatrix(place: Place, index: int, addresses: Array, count: int, transposed: bool, mask: Mask) -> Sequence[Array]:
    """`count` registers, each lane l holding row l div 4, columns 2 (l mod 4) and the next of its matrix."""
    converged(place, index, None, mask)
    if addresses.shape[2] == 1:
        addresses = np.broadcast_to(addresses, (*addresses.shape[:2], WARP))
    used = np.broadcast_to(ops.LANES < 8 * count, addresses.shape)
    used = used if mask is None else used & mask
    lanes = active(used, addresses)
    if lanes is None:
        return (ops.ZERO,) * count
    raw = place.machine.load_shared(place.rows[:, None, None], elements(place, index, lanes, 16), 16)
    place.events.access(place, index, addresses, 16, used, False)
    out = []
    for matrix in range(count):
        tile = np.ascontiguousarray(raw[:, :, 8 * matrix : 8 * matrix + 8])
        if transposed:
            tile = np.ascontiguousarray(tile.view(np.uint16).reshape(*tile.shape[:2], 8, 8).swapaxes(-1, -2))
        words = tile.view(np.uint32)
        out.append(words.reshape(*words.shape[:2], WARP))
    return out


def gather(place: Place, indices: Sequence[int], addresses: Sequence[Array], order: Array, slot: int) -> Array:
    """The float32 matrices (CTAs, warps, rows, K) at the concatenated lane `addresses` of several `ldmatrix`.

    `order` (rows, 16-byte halves of K) says which lane addresses what, `slot` names memory that may be used again.
    """
    if len(addresses) == 1:
        lanes = addresses[0]
    else:
        c, w = (max(a.shape[axis] for a in addresses) for axis in (0, 1))
        lanes = np.concatenate([np.broadcast_to(a, (c, w, WARP)) for a in addresses], axis=2)
    try:
        at = elements(place, indices[0], lanes, 16)
    except MemoryAccessError:
        for index, a in zip(indices, addresses, strict=True):
            elements(place, index, a, 16)
        raise
    for index, a in zip(indices, addresses, strict=True):
        used = MATRIX_LANES[place.machine.code[index].op[4]]
        place.events.access(place, index, a[:, :, :used], 16, None, False)
    raw = place.machine.load_shared(place.rows[:, None, None, None], at[:, :, order], 16)
    out = place.machine.scratch(slot, (*raw.shape[:3], raw.shape[3] * 8))
    np.copyto(out, raw.view(np.uint16))  # widening and shifting in place beats a strided copy of the halves
    out <<= 16
    return out.view(np.float32)
