"""`cp.async.bulk` and `st.async`: transfers that count bytes at an mbarrier (`complete_tx`), from issue to landing.

A landing is one event: the bytes appear and are counted at the mbarrier, which lies in the same CTA. Between issue and
landing anything may happen. A schedule may land the lanes of one instruction apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from . import memory
from .arrivals import barrier_at, change
from .clusters import OFFSET
from .errors import BarrierError, ClusterError, MemoryAccessError
from .parser import SHARED_BASE
from .place import Array, Mask, Place, active, scatter
from .shared_memory import SHIFT, cluster_addresses, elements

UNIT = 16  #: bytes: bulk copies move whole multiples, aligned on both sides


@dataclass(eq=False)
class Transfer:
    """What active lanes of a place have issued; the arrays have one entry per such lane."""

    index: int
    place: Place
    lanes: Array  #: flat indices into the place's (rows, warps, lanes)
    rows: Array  #: of the CTAs that receive
    dst: Array  #: shared addresses there
    barrier: Array  #: shared addresses of the mbarriers there
    size: Array  #: bytes
    data: Array | None  #: what `st.async` carries
    source: Array | None  #: global addresses of a bulk copy
    landed: bool = False

    def part(self, keep: Array) -> "Transfer":
        """The transfer of some of the lanes."""
        names = ("lanes", "rows", "dst", "barrier", "size", "data", "source")
        return replace(self, **{n: getattr(self, n)[keep] for n in names if getattr(self, n) is not None})

    @property
    def mask(self) -> Array:
        """The lanes in the shape of the place."""
        mask = np.zeros(self.place.shape, bool)
        mask.reshape(-1)[self.lanes] = True
        return mask

    @property
    def receivers(self) -> Array:
        """Per row of the place, the row that gets the first of its bytes."""
        _, warps, lanes = self.place.shape
        rows = self.place.rows.copy()
        rows[self.lanes[::-1] // (warps * lanes)] = self.rows[::-1]
        return rows

    def land(self) -> None:
        """The bytes appear, then their numbers reach the mbarriers."""
        place, machine = self.place, self.place.machine
        self.landed = True
        gone = machine.clusters.alive[self.rows] == 0
        if gone.any():
            i = int(np.flatnonzero(gone)[0])
            raise MemoryAccessError(
                f"An asynchronous transfer arrives at shared address {self.dst[i] - SHARED_BASE} of CTA "
                f"{machine.cta_of(self.rows[i])} after its exit: "
                f"{place.spot(self.index, place.shape, int(self.lanes[i]))}."
            )
        for size in np.unique(self.size):
            self._write(slice(None) if (self.size == size).all() else self.size == size, int(size))
        machine.events.transfer_landed(self)
        for address in np.unique(self.barrier):
            counted = self.barrier == address
            totals = np.bincount(self.rows[counted], self.size[counted], machine.rows).astype(np.int64)
            rows = np.flatnonzero(totals)
            barrier = barrier_at(place, self.index, int(address), rows)
            change(place, self.index, barrier, "transfer", rows, totals[rows])
            machine.events.landed(self, barrier)
        machine.changed()

    def _write(self, lanes: Array | slice, size: int) -> None:
        machine = self.place.machine
        rows, dst = self.rows[lanes], self.dst[lanes]
        if self.source is None:
            assert self.data is not None
            width, data = size, self.data[lanes]
        else:
            width, steps = UNIT, np.arange(0, size, UNIT)
            data = machine.memory.load(self.source[lanes][:, None] + steps.astype(np.uint64), UNIT)
            machine.copied += data.size * UNIT
            rows, dst = rows[:, None], dst[:, None] + steps
        machine.store_shared(rows, dst >> SHIFT[width], width, data)


def issue(
    place: Place, index: int, dst: Array, barrier: Array, mask: Mask, size: Array | int,
    words: Sequence[Array] | None = None, source: Array | None = None, cluster: bool = True,
) -> None:  # fmt: skip
    """Starts an `st.async` of `words`, or a bulk copy of `size` bytes from global `source`, by the lanes in `mask`.

    `cluster` says whether `dst` is a shared::cluster address, as `barrier` then is too.
    """
    machine = place.machine
    if words is not None and machine.clusters.size == 1:
        raise ClusterError(f"st.async in a launch without a cluster is an illegal instruction: "
                           f"{place.place_of(index, mask)}.")  # fmt: skip
    full = place.full(mask)
    dst_active, barrier_active = active(mask, dst), active(mask, barrier)
    if dst_active is None or barrier_active is None:
        return
    if words is None:
        bad = full & ((size % UNIT != 0) | (size == 0))
        if bad.any():
            moved = int(np.broadcast_to(size, place.shape)[bad][0])
            raise MemoryAccessError(f"A bulk copy moves a positive multiple of {UNIT} bytes, not {moved}: "
                                    f"{place.place_of(index, bad)}.")  # fmt: skip
    for addresses in (dst_active, barrier_active):
        place.events.decides(place, index, addresses, "the address")
    if not cluster:
        elements(place, index, dst_active, UNIT)
        elements(place, index, barrier_active, 8)
    rows, to = cluster_addresses(place, index, dst_active, 1, full)
    barrier_rows, at = cluster_addresses(place, index, barrier_active, 8, full)
    apart = full & (rows != barrier_rows)
    if apart.any():
        raise BarrierError(f"Data and mbarrier lie in different CTAs: {place.place_of(index, apart)}.")
    elements(place, index, to, UNIT if words is None else words[0].dtype.itemsize * len(words))
    sizes, to, at, rows = (np.broadcast_to(x, place.shape)[full].astype(np.int64) for x in (size, to, at, rows))
    data = sources = None
    if words is None:
        assert source is not None
        sources = _check_source(place, index, source, sizes, to, mask, full)
    else:
        data = scatter(place, dst, words, mask)[2]
    for address in np.unique(at):
        barrier_at(place, index, int(address), np.unique(rows[at == address]))
    origin, lanes = Place(machine, place.rows, place.warps), np.flatnonzero(full)
    transfer = Transfer(index, origin, lanes, rows, to, at, sizes, data, sources)
    numbers = machine.schedule.parts(len(place.rows) // machine.fills, len(place.warps))
    if numbers is None:
        parts = [transfer]
    else:
        of_lane = np.repeat(numbers, machine.fills, axis=0).reshape(-1)[lanes]
        parts = [transfer.part(of_lane == number) for number in np.unique(of_lane)]
    machine.events.transfer_issued(place, parts, barrier_active & np.uint32(OFFSET), mask, barrier_rows)
    for part in parts:
        if machine.schedule.lands_early():
            part.land()
        else:
            machine.flying.append(part)


def _check_source(place: Place, index: int, source: Array, size: Array, dst: Array, mask: Mask, full: Array) -> Array:
    """The source addresses of a bulk copy's active lanes, after checking alignment and both ranges."""
    source = np.broadcast_to(source, full.shape)[full]
    last = np.zeros(full.shape, np.uint64)
    for addresses in (source, source + size.astype(np.uint64) - np.uint64(UNIT)):
        last[full] = addresses
        place.events.global_read(place, index, last, mask)
        lanes = active(mask, last)
        if lanes is not None and place.machine.memory.fault(lanes, UNIT) is not None:
            memory.fault(place, index, lanes, UNIT, "bulk copy")
    end = np.zeros(full.shape, np.uint32)
    end[full] = dst + size - UNIT
    ends = active(mask, end)
    if ends is not None:
        elements(place, index, ends, UNIT)
    return source
