"""Transfers that complete bytes at an mbarrier, `cp.async.bulk` and `st.async`: from their issue to their landing.

A landing is one event: the bytes appear and are counted at the mbarrier, which lies in the same CTA. Between issue and
landing anything may happen. A schedule may land the lanes of one instruction apart.
"""

from dataclasses import dataclass, replace

import numpy as np

from . import arithmetic as ops
from .errors import BarrierError, MemoryAccessError
from .parser import SHARED_BASE
from .place import SHIFT, Place

UNIT = 16  #: bytes: bulk copies move whole multiples, aligned on both sides


@dataclass(eq=False)
class Transfer:
    """What active lanes of a place have issued; the arrays have one entry per such lane."""

    index: int
    place: Place
    lanes: np.ndarray  #: flat indices into the place's (rows, warps, lanes)
    rows: np.ndarray  #: of the CTAs that receive
    dst: np.ndarray  #: shared addresses there
    barrier: np.ndarray  #: shared addresses of the mbarriers there
    size: np.ndarray  #: bytes
    data: np.ndarray | None  #: what `st.async` carries
    source: np.ndarray | None  #: global addresses of a bulk copy
    issued: tuple | None = None  #: for the race detector
    landed: bool = False

    def part(self, keep) -> "Transfer":
        names = ("lanes", "rows", "dst", "barrier", "size", "data", "source")
        parts = {n: getattr(self, n)[keep] for n in names if getattr(self, n) is not None}
        return replace(self, **parts)

    @property
    def mask(self):
        mask = np.zeros((len(self.place.rows), len(self.place.warps), ops.WARP), bool)
        mask.reshape(-1)[self.lanes] = True
        return mask

    @property
    def receivers(self):
        """Per row of the place, the row that gets the first of its bytes."""
        rows = self.place.rows.copy()
        rows[self.lanes[::-1] // (len(self.place.warps) * ops.WARP)] = self.rows[::-1]
        return rows

    def land(self):
        """The bytes appear, then their numbers reach the mbarriers."""
        place, machine = self.place, self.place.machine
        self.landed = True
        gone = machine.clusters.alive[self.rows] == 0
        if gone.any():
            i = int(np.flatnonzero(gone)[0])
            raise MemoryAccessError(
                f"An asynchronous transfer arrives at shared address {self.dst[i] - SHARED_BASE} of CTA "
                f"{machine.cta_of(self.rows[i])} after its exit: {self.spot(i)}."
            )
        for size in np.unique(self.size):
            some = slice(None) if (self.size == size).all() else self.size == size
            self.write(some, int(size))
        if machine.races:
            machine.races.transferred(self)
        for address in np.unique(self.barrier):
            here = self.barrier == address
            totals = np.bincount(self.rows[here], self.size[here], machine.rows).astype(np.int64)
            rows = np.flatnonzero(totals)
            barrier = place.barrier_at(self.index, int(address), rows)
            opened = place.change(self.index, barrier, "transfer", rows, totals[rows])
            if machine.races:
                machine.races.complete(barrier, opened)
            machine.record_landing(self, barrier)
        machine.changed()

    def write(self, some, size):
        machine = self.place.machine
        rows, dst = self.rows[some], self.dst[some]
        if self.data is not None:
            width, data = size, self.data[some]
        else:
            width, steps = UNIT, np.arange(0, size, UNIT)
            data = machine.memory.load(self.source[some][:, None] + steps.astype(np.uint64), UNIT)
            machine.copied += data.size * UNIT
            rows, dst = rows[:, None], dst[:, None] + steps
        view = machine.shared_view(width)
        view.reshape(-1)[rows * view.shape[1] + (dst >> SHIFT[width])] = data

    def spot(self, i) -> str:
        place = self.place
        return place.spot(self.index, (len(place.rows), len(place.warps), ops.WARP), int(self.lanes[i]))


def issue(place, index, dst, barrier, mask, size, words=None, source=None, cluster=True):
    """Checks and starts a transfer by the lanes in `mask`: of the `words` of an `st.async`, or from global `source`.

    `cluster` says whether `dst` is a shared::cluster address, as `barrier` then is too.
    """
    machine = place.machine
    shape = (len(place.rows), len(place.warps), ops.WARP)
    full = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
    if not full.any():
        return
    if words is None:
        bad = full & ((size % UNIT != 0) | (size == 0))
        if bad.any():
            moved = int(np.broadcast_to(size, shape)[bad][0])
            where = place.place_of(index, bad)
            raise MemoryAccessError(f"A bulk copy moves a positive multiple of {UNIT} bytes, not {moved}: {where}.")
    where = [place.active(mask, a) for a in (dst, barrier)]
    for addresses in where:
        place.check_poison(index, addresses, "the address")
    if not cluster:
        for addresses, width in zip(where, (UNIT, 8), strict=True):
            place.shared_index(index, addresses, width)
    (rows, to), (barrier_rows, at) = (
        place.cluster_index(index, a, w, full) for a, w in zip(where, (1, 8), strict=True)
    )
    apart = full & (rows != barrier_rows)
    if apart.any():
        raise BarrierError(f"Data and mbarrier lie in different CTAs: {place.place_of(index, apart)}.")
    width = UNIT if words is None else words[0].dtype.itemsize * len(words)
    place.shared_index(index, to, width)
    lanes = np.flatnonzero(full)
    size, to, at, rows = (np.broadcast_to(x, shape)[full].astype(np.int64) for x in (size, to, at, rows))
    data = sources = None
    if words is None:
        sources = check_bulk(place, index, source, size, to, mask, full)
    else:
        data = place.scatter(dst, words, mask)[2]
    for address in np.unique(at):
        place.barrier_at(index, int(address), np.unique(rows[at == address]))
    transfer = Transfer(index, Place(machine, place.rows, place.warps), lanes, rows, to, at, size, data, sources)
    if machine.races:
        machine.races.access(place, index, where[1] & np.uint32(0xFFFFFF), 8, mask, False, barrier_rows, False)
        transfer.issued = machine.races.issued(place)
    numbers = machine.schedule.parts(len(place.rows) // machine.fills, shape[1])
    if numbers is None:
        parts = [transfer]
    else:
        of_lane = np.repeat(numbers, machine.fills, axis=0).reshape(-1)[lanes]
        parts = [transfer.part(of_lane == number) for number in np.unique(of_lane)]
    for part in parts:
        if machine.schedule.lands_early(machine):
            part.land()
        else:
            machine.flying.append(part)


def check_bulk(place, index, source, size, dst, mask, full):
    """The source addresses of a bulk copy's active lanes, after checking alignment and both ranges."""
    shape = full.shape
    source = np.broadcast_to(source, shape)[full]
    last = np.zeros(shape, np.uint64)
    for addresses in (source, source + size.astype(np.uint64) - np.uint64(UNIT)):
        last[full] = addresses
        active = place.active(mask, last)
        place.check_dependency(index, last, mask)
        if place.machine.memory.fault(active, UNIT) is not None:
            place.global_fault(index, active, UNIT, "bulk copy")
    end = np.zeros(shape, np.uint32)
    end[full] = dst + size - UNIT
    place.shared_index(index, place.active(mask, end), UNIT)
    return source
