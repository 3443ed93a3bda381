"""Asynchronous copies to shared memory, from their issue to their landing; anything may happen in between.

- `cp.async` copies 4, 8 or 16 bytes per lane. Every lane commits its own copies in groups and waits for these by
  `wait_group`, or ties them to an mbarrier, at which they arrive once they are done; those of other lanes are left.
- `cp.async.bulk` and `st.async` are transfers, which count bytes at an mbarrier of the receiving CTA (`complete_tx`).
  A landing is one event: the bytes appear and are counted. A schedule may land the lanes of one instruction apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from . import memory
from .barriers import MBarrier, Rows
from .errors import BarrierError, ClusterError, MemoryAccessError
from .parser import SHARED_BASE
from .place import DTYPES, OFFSET, Array, Mask, Place, active, scatter
from .shared_memory import MBARRIER, SHIFT, cluster_addresses, elements, overwrites, overwritten
from .synchronisation import barrier_at, barriers, change

if TYPE_CHECKING:
    from .group import Group

UNIT = 16  #: bytes: bulk copies move whole multiples, aligned on both sides


@dataclass(eq=False)
class Copy:
    """One `cp.async` that has not landed: addresses, bytes, bytes read of these (None: all) and active lanes.

    `group` is the number of the group that it belongs to or will, counted by each lane where these differ.
    """

    index: int
    dst: Array
    src: Array
    size: int
    valid: Array | None
    mask: Mask
    group: Array | int
    origin: "Copy | None" = None  #: the copy as it was issued, of which this is a part

    def select(self, rows: Array | None, warps: Array | None) -> "Copy":
        """The part that belongs to some rows and warps of its place."""
        arrays = {name: getattr(self, name) for name in ("dst", "src", "valid", "mask", "group")}
        parts: dict[str, Any] = {n: ops.select(a, rows, warps) for n, a in arrays.items() if isinstance(a, np.ndarray)}
        return replace(self, **parts, origin=self.origin or self)

    def of(self, lanes: Mask) -> "Copy | None":
        """The part that belongs to some lanes, None without any."""
        if lanes is None:
            return self
        mask = lanes if self.mask is None else lanes & self.mask
        return replace(self, mask=mask, origin=self.origin or self) if mask.any() else None


@dataclass(eq=False)
class Batch:
    """Copies whose completion arrives at an mbarrier: `arrivals` are (barrier, rows, count per row)."""

    index: int
    place: Place
    mask: Mask  #: the lanes that arrive
    copies: list[Copy]
    arrivals: list[tuple[MBarrier, Rows, Array]]
    before: list["Batch"]  #: batches of the same threads that complete earlier
    landed: bool = False

    @property
    def receivers(self) -> Array:
        """Per row of the place, the row whose barrier this reaches."""
        return self.place.rows

    def land(self) -> None:
        """The bytes of this and of earlier batches appear, then its arrivals happen."""
        machine = self.place.machine
        while self.before:
            machine.land(self.before.pop(0))
        self.landed = True
        land(self.place, self.copies)
        for barrier, rows, count in self.arrivals:
            machine.events.copies_arrive(self, barrier)
            change(self.place, self.index, barrier, "arrive", rows, count)
            machine.events.landed(self, barrier)
        machine.changed()


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
    source: Any  #: global addresses of a bulk copy, an array or None

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
        gone = machine.clusters.alive[self.rows] == 0
        if gone.any():
            i = int(np.flatnonzero(gone)[0])
            raise MemoryAccessError(f"An asynchronous transfer arrives at shared address {self.dst[i] - SHARED_BASE} "
                                    f"of CTA {machine.cta_of(self.rows[i])} after its exit: "
                                    f"{place.spot(self.index, place.shape, int(self.lanes[i]))}.")  # fmt: skip
        for written, hit in overwritten(machine, self.rows, self.dst, self.size):
            mask = np.zeros(place.shape, bool)
            mask.reshape(-1)[self.lanes[hit]] = True
            raise overwrites(place, self.index, "An asynchronous transfer", written, mask)
        for size in np.unique(self.size).tolist():
            lanes = self.size == size
            rows, dst = self.rows[lanes], self.dst[lanes]
            if self.data is not None:
                width, data = size, self.data[lanes]
            else:
                width, steps = UNIT, np.arange(0, size, UNIT)
                data = machine.memory.load(self.source[lanes][:, None] + steps.astype(np.uint64), UNIT)
                machine.copied += data.size * UNIT
                rows, dst = rows[:, None], dst[:, None] + steps
            machine.store_shared(rows, dst >> SHIFT[width], width, data)
        machine.events.transfer_landed(self)
        for address in np.unique(self.barrier):
            counted = self.barrier == address
            totals = np.bincount(self.rows[counted], self.size[counted], machine.rows).astype(np.int64)
            rows = np.flatnonzero(totals)
            barrier = barrier_at(place, self.index, int(address), rows)
            change(place, self.index, barrier, "transfer", rows, totals[rows])
            machine.events.landed(self, barrier)
        machine.changed()


# cp.async


def copy(group: "Group", index: int, dst: Array, src: Array, size: int, valid: Array | None, mask: Mask) -> None:
    """`cp.async` of `size` bytes, of which the source has `valid` (None: all) and the rest become zero."""
    reading = mask
    if valid is not None:
        group.events.decides(group, index, valid, "the source size", mask)
        lanes = ops.TRUE if mask is None else mask
        if (over := (valid > size) & lanes).any():
            most = int(np.broadcast_to(valid, over.shape)[over][0])
            what = f"cp.async copies {size} bytes and cannot read {most}"
            raise group.error(MemoryAccessError, what, index, over)
        reading = (valid > 0) & lanes
        crooked = reading & (src % np.uint64(size) != 0)
        if (addresses := active(crooked, src)) is not None:
            memory.fault(group, index, addresses, size, "copy")
    group.events.global_read(group, index, src, reading)
    issued = Copy(index, dst, src, size, valid, mask, group.commits)
    group.events.copy_issued(group, issued)
    if group.machine.schedule.dares("land"):
        land(group, [issued])
    else:
        group.copies.append(issued)


def commit(group: "Group", mask: Mask) -> None:
    """`cp.async.commit_group`: by each active lane, of its own copies."""
    group.commits = group.commits + (1 if whole(mask) else group.full(mask))
    group.events.copies_committed(group, mask)


def wait_groups(group: "Group", keep: int, mask: Mask) -> None:
    """`cp.async.wait_group`: all but the latest `keep` groups of each active lane land."""
    done = group.commits - keep
    claimed = []
    for copy in group.copies:
        covered = copy.group < done
        if isinstance(covered, bool):
            claimed.append(mask if covered else ops.FALSE)
        else:
            claimed.append(covered if mask is None else covered & mask)
    land(group, claim(group, claimed))
    if mask is None or mask.any():
        # What is tied to an mbarrier lands whole: early, where its group is among the latest or has not been committed.
        for batch in group.batches:
            group.machine.land(batch)
        group.batches = []
    group.events.copies_waited(group, keep, mask)


def whole(mask: Mask) -> bool:
    """Whether all lanes are active."""
    return mask is None or bool(mask.all())


def claim(group: "Group", lanes: Sequence[Mask]) -> list[Copy]:
    """Takes from the copies of a group, in the order of their issue, those of some lanes of each."""
    taken: list[Copy] = []
    left: list[Copy] = []
    for copy, mask in zip(group.copies, lanes, strict=True):
        if mask is None or mask is ops.FALSE:
            (left if mask is ops.FALSE else taken).append(copy)
            continue
        part, rest = copy.of(mask), copy.of(~mask)
        if part:
            taken.append(part if rest else copy)
        if rest:
            left.append(rest if part else copy)
    group.copies = left
    if not left:
        group.commits = 0  # where no copy is left it does not matter how many there were
    return taken


def arrive(group: "Group", index: int, addresses: Array, noinc: bool, mask: Mask) -> None:
    """`cp.async.mbarrier.arrive`: earlier copies will arrive at an mbarrier, once per thread, when they are done."""
    if mask is not None and not mask.any():
        return
    arrivals = barriers(group, index, addresses, mask)
    if not noinc:
        for barrier, rows, count in arrivals:
            barrier.pending[rows] += count
    copies = claim(group, [mask] * len(group.copies))
    group.batches = [b for b in group.batches if not b.landed]
    batch = Batch(index, Place(group.machine, group.rows, group.warps), mask, copies, arrivals, list(group.batches))
    group.events.access(group, index, addresses, 8, mask, False)
    group.events.copies_tied(group, batch)
    group.batches.append(batch)
    group.machine.flying.append(batch)


def land(place: Place, copies: Sequence[Copy]) -> None:
    """Writes the bytes of `copies`, issued at `place`, into shared memory, in the order of issue."""
    place.machine.changed()
    # Copies of one size land at once; one with an explicit source size lands alone.
    for _, run in groupby(copies, lambda copy: (copy.size, None if copy.valid is None else id(copy))):
        _land_run(place, list(run))
    place.events.copies_landed(place, copies)


def _land_run(place: Place, copies: Sequence[Copy]) -> None:
    machine, size, valid = place.machine, copies[0].size, copies[0].valid
    rows, masks = place.rows[:, None], [copy.mask for copy in copies]

    def stacked(arrays: list[Array], dtype: type) -> Array:
        """What several copies have, as (CTAs | 1, lanes of all copies)."""
        stack: Array = np.empty((max(map(len, arrays)), len(arrays), len(place.warps), WARP), dtype)
        for i, array in enumerate(arrays):  # a third of the time of broadcasting and joining them
            stack[:, i] = array
        return stack.reshape(len(stack), -1)

    parts = [stacked([copy.dst for copy in copies], np.uint32), stacked([copy.src for copy in copies], np.uint64)]
    parts += [] if valid is None else [stacked([valid], np.uint32)]
    if any(mask is not None for mask in masks):
        mask = stacked([ops.TRUE if mask is None else mask for mask in masks], bool)
        if len(mask) == 1:
            parts = [part[:, mask[0]] for part in parts]
        else:
            full = len(rows), mask.shape[1]
            rows, *parts = (np.broadcast_to(part, full)[np.broadcast_to(mask, full)] for part in (rows, *parts))
    dst, src = parts[:2]
    if not dst.size:
        return
    each = 1 if src.ndim == 1 or len(src) > 1 else len(place.rows)
    if valid is None:
        machine.copied += src.size * size * each
        try:
            data = machine.memory.load(src, size)
        except MemoryAccessError:
            for copy in copies:
                addresses = active(copy.mask, copy.src)
                if addresses is not None and machine.memory.fault(addresses, size) is not None:
                    memory.fault(place, copy.index, addresses, size, "copy")
            raise
    else:
        src, sizes = np.broadcast_arrays(src, parts[2])
        machine.copied += int(sizes.sum()) * each
        data = _load_some(place, copies[0], src, sizes)
    low, high = int(dst.min()), int(dst.max())
    if low < SHARED_BASE or high + size > machine.shared_end or int(np.bitwise_or.reduce(dst, axis=None)) & (size - 1):
        for copy in copies:
            if (addresses := active(copy.mask, copy.dst)) is not None:
                elements(place, copy.index, addresses, size)
    if any(low < address + MBARRIER and high + size > address for address in machine.mbarriers):
        for copy in copies:
            if (addresses := active(copy.mask, copy.dst)) is not None:
                for barrier, hit in overwritten(machine, place.rows[:, None, None], addresses, size):
                    mask = hit if copy.mask is None else hit & copy.mask
                    raise overwrites(place, copy.index, "A copy", barrier, mask)
    machine.store_shared(rows, dst >> SHIFT[size], size, data)


def _load_some(place: Place, copy: Copy, src: Array, sizes: Array) -> Array:
    """What a copy writes of which the source has `sizes` bytes: no others are read, and these become zero."""
    buffers, size, steps = place.machine.memory, copy.size, np.arange(copy.size, dtype=np.uint64)
    data: Array = np.zeros(src.shape, DTYPES[size])
    octets = data.view(np.uint8).reshape(*src.shape, size)
    whole = sizes == size
    single = ~whole[..., None] & (steps < sizes[..., None])
    try:
        for part, addresses, width, to in ((whole, src, size, data), (single, src[..., None] + steps, 1, octets)):
            if part.any():
                to[part] = buffers.load(addresses[part], width)
    except MemoryAccessError:
        every, valid = ops.TRUE if copy.mask is None else copy.mask, ops.ZERO if copy.valid is None else copy.valid
        bytewise = [((valid > step) & (valid < size), step, 1) for step in range(size)]
        for lanes, step, width in ((valid == size, 0, size), *bytewise):
            at = active(lanes & every, copy.src + np.uint64(step))
            if at is not None and buffers.fault(at, width) is not None:
                memory.fault(place, copy.index, at, width, "copy")
        raise
    return data


# Transfers


def transfer(
    place: Place, index: int, dst: Array, barrier: Array, mask: Mask, size: Array | int,
    words: Sequence[Array] | None = None, source: Array | None = None, cluster: bool = True,
) -> None:  # fmt: skip
    """Starts an `st.async` of `words`, or a bulk copy of `size` bytes from global `source`; with `cluster`, `dst` and
    `barrier` are shared::cluster addresses."""
    machine = place.machine
    if words is not None and machine.clusters.size == 1:
        what = "st.async in a launch without a cluster is an illegal instruction"
        raise place.error(ClusterError, what, index, mask)
    full = place.full(mask)
    dst_active, barrier_active = active(mask, dst), active(mask, barrier)
    if dst_active is None or barrier_active is None:
        return
    if words is None:
        bad = full & ((size % UNIT != 0) | (size == 0))
        if bad.any():
            moved = int(np.broadcast_to(size, place.shape)[bad][0])
            what = f"A bulk copy moves a positive multiple of {UNIT} bytes, not {moved}"
            raise place.error(MemoryAccessError, what, index, bad)
    for addresses in (dst_active, barrier_active):
        place.events.decides(place, index, addresses, "the address")
    if not cluster:
        elements(place, index, dst_active, UNIT)
        elements(place, index, barrier_active, 8)
    rows, to = cluster_addresses(place, index, dst_active, 1, full)
    barrier_rows, at = cluster_addresses(place, index, barrier_active, 8, full)
    apart = full & (rows != barrier_rows)
    if apart.any():
        raise place.error(BarrierError, "Data and mbarrier lie in different CTAs", index, apart)
    elements(place, index, to, UNIT if words is None else words[0].dtype.itemsize * len(words))
    sizes, to, at, rows = (np.broadcast_to(x, place.shape)[full].astype(np.int64) for x in (size, to, at, rows))
    data = None if words is None else scatter(place, dst, words, mask)[2]
    sources = None if source is None else _check_source(place, index, source, sizes, to, mask, full)
    for address in np.unique(at):
        barrier_at(place, index, int(address), np.unique(rows[at == address]))
    origin, lanes = Place(machine, place.rows, place.warps), np.flatnonzero(full)
    parts = [Transfer(index, origin, lanes, rows, to, at, sizes, data, sources)]
    numbers = machine.schedule.parts(len(place.rows) // machine.fills, len(place.warps))
    if numbers is not None:
        of_lane = np.repeat(numbers, machine.fills, axis=0).reshape(-1)[lanes]
        parts = [parts[0].part(of_lane == number) for number in np.unique(of_lane)]
    machine.events.transfer_issued(place, parts, barrier_active & np.uint32(OFFSET), mask, barrier_rows)
    for part in parts:
        if machine.schedule.dares("land"):
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
        if (lanes := active(mask, last)) is not None and place.machine.memory.fault(lanes, UNIT) is not None:
            memory.fault(place, index, lanes, UNIT, "bulk copy")
    last = np.zeros(full.shape, np.uint32)
    last[full] = dst + size - UNIT
    if (lanes := active(mask, last)) is not None:
        elements(place, index, lanes, UNIT)
    return source
