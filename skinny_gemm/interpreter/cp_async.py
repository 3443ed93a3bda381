"""`cp.async`: copies of 4, 8 or 16 bytes per lane from global to shared memory, from their issue to their landing.

A group of warps waits for its copies by `wait_group`, or ties them to an mbarrier, at which they arrive once they are
done. Bulk copies, which count bytes at an mbarrier, are in `complete_tx`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from . import memory, shared_memory
from .arrivals import barriers, change
from .barriers import MBarrier, Rows
from .errors import MemoryAccessError
from .parser import SHARED_BASE
from .place import DTYPES, Array, Mask, Place, active

if TYPE_CHECKING:
    from .group import Group


@dataclass(eq=False)
class Copy:
    """One `cp.async` that has not landed: addresses, bytes, bytes read of these (None: all) and active lanes."""

    index: int
    dst: Array
    src: Array
    size: int
    valid: Array | None
    mask: Mask
    origin: "Copy | None" = None  #: the copy as it was issued, of which this is a part

    def select(self, rows: Array | None, warps: Array | None) -> "Copy":
        """The part that belongs to some rows and warps of its place."""
        arrays = {name: getattr(self, name) for name in ("dst", "src", "valid", "mask")}
        parts: dict[str, Any] = {name: ops.select(a, rows, warps) for name, a in arrays.items() if a is not None}
        return replace(self, **parts, origin=self.origin or self)


@dataclass(eq=False)
class Batch:
    """Copies whose completion arrives at an mbarrier: `arrivals` are (barrier, rows, count per row)."""

    index: int
    place: Place
    copies: list[Copy]
    arrivals: list[tuple[MBarrier, Rows, Array]]
    before: list["Batch"]  #: batches of the same threads that complete earlier
    landed: bool = False
    mask = None  #: all lanes

    @property
    def receivers(self) -> Array:
        """Per row of the place, the row whose barrier this reaches."""
        return self.place.rows

    def land(self) -> None:
        """The bytes of this and of earlier batches appear, then its arrivals happen."""
        machine = self.place.machine
        for earlier in self.before:
            machine.land(earlier)
        self.before = []
        self.landed = True
        land(self.place, self.copies)
        for barrier, rows, count in self.arrivals:
            machine.events.copies_arrive(self, barrier)
            change(self.place, self.index, barrier, "arrive", rows, count)
            machine.events.landed(self, barrier)
        machine.changed()


# Instructions


def issue(group: "Group", index: int, dst: Array, src: Array, size: int, valid: Array | None, mask: Mask) -> None:
    """`cp.async` of `size` bytes, of which the source has `valid` (None: all) and the rest become zero."""
    group.events.global_read(group, index, src, mask)
    copy = Copy(index, dst, src, size, valid, mask)
    group.events.copy_issued(group, copy)
    if group.machine.schedule.lands_early():
        land(group, [copy])
    else:
        group.open.append(copy)


def commit(group: "Group") -> None:
    """`cp.async.commit_group`."""
    group.committed.append(group.open)
    group.open = []
    group.events.copies_committed(group)


def wait_groups(group: "Group", keep: int) -> None:
    """`cp.async.wait_group`: all but the latest `keep` groups land; with 0 also what is tied to mbarriers."""
    done = max(len(group.committed) - keep, 0)
    for copies in group.committed[:done]:
        land(group, copies)
    group.committed = group.committed[done:]
    if keep == 0:
        for batch in group.batches:
            group.machine.land(batch)
        group.batches = []
    group.events.copies_waited(group, keep)


def arrive(group: "Group", index: int, addresses: Array, noinc: bool, mask: Mask) -> None:
    """`cp.async.mbarrier.arrive`: ties all earlier copies of the threads to an mbarrier, which gets an arrival per
    thread when they are done."""
    arrivals = barriers(group, index, addresses, mask)
    if not noinc:
        for barrier, rows, count in arrivals:
            barrier.pending[rows] += count
    copies = take_untied(group)
    group.batches = [b for b in group.batches if not b.landed]
    batch = Batch(index, Place(group.machine, group.rows, group.warps), copies, arrivals, list(group.batches))
    group.events.access(group, index, addresses, 8, mask, False)
    group.events.copies_tied(group, batch)
    group.batches.append(batch)
    group.machine.flying.append(batch)


def take_untied(group: "Group") -> list[Copy]:
    """The copies that neither an mbarrier nor a wait has claimed, in the order of their issue; the group gives them
    up."""
    copies = [copy for committed in group.committed for copy in committed] + group.open
    group.committed, group.open = [], []
    return copies


# Landing


def land(place: Place, copies: Sequence[Copy]) -> None:
    """Writes the bytes of `copies`, issued at `place`, into shared memory, in the order of issue."""
    place.machine.changed()
    start = 0
    while start < len(copies):
        stop = start + 1
        size, plain = copies[start].size, copies[start].valid is None
        while plain and stop < len(copies) and copies[stop].size == size and copies[stop].valid is None:
            stop += 1
        _land_run(place, copies[start:stop])
        start = stop
    place.events.copies_landed(place, copies)


def _land_run(place: Place, copies: Sequence[Copy]) -> None:
    """Lands copies of one size at once; one with an explicit source size comes alone."""
    machine, size, n = place.machine, copies[0].size, len(copies)
    rows, w = place.rows, len(place.warps)
    masks = [c.mask for c in copies]
    per_row = [max(getattr(c, name).shape[0] for c in copies) for name in ("dst", "src")]
    mask_rows = max((m.shape[0] for m in masks if m is not None), default=0)
    dst = np.empty((per_row[0], n, w, WARP), np.uint32)
    src = np.empty((per_row[1], n, w, WARP), np.uint64)
    for i, copy in enumerate(copies):
        dst[:, i], src[:, i] = copy.dst, copy.src
    dst, src = dst.reshape(per_row[0], -1), src.reshape(per_row[1], -1)
    lane_rows = rows[:, None]
    if mask_rows:
        mask = np.ones((mask_rows, n, w, WARP), bool)
        for i, m in enumerate(masks):
            if m is not None:
                mask[:, i] = m
        mask = mask.reshape(mask_rows, -1)
        if mask_rows == 1:
            dst, src = dst[:, mask[0]], src[:, mask[0]]
        else:
            full = (len(rows), mask.shape[1])
            mask = np.broadcast_to(mask, full)
            dst, src = (np.broadcast_to(x, full)[mask] for x in (dst, src))
            lane_rows = np.broadcast_to(lane_rows, full)[mask]
    if not dst.size or not src.size:
        return
    machine.copied += size * (src.size if src.ndim == 1 or len(src) > 1 else src.size * len(rows))
    try:
        data = machine.memory.load(src, size)
    except MemoryAccessError:
        for copy in copies:
            addresses = active(copy.mask, copy.src)
            if addresses is not None and machine.memory.fault(addresses, size) is not None:
                memory.fault(place, copy.index, addresses, size, "copy")
        raise
    low, high = int(dst.min()), int(dst.max())
    if low < SHARED_BASE or high + size > machine.shared_end or int(np.bitwise_or.reduce(dst, axis=None)) & (size - 1):
        for copy in copies:
            addresses = active(copy.mask, copy.dst)
            if addresses is not None:
                shared_memory.elements(place, copy.index, addresses, size)
    if copies[0].valid is not None:
        data = _zero_filled(data, copies[0].valid, w, size, masks[0])
    machine.store_shared(lane_rows, dst >> shared_memory.SHIFT[size], size, data)


def _zero_filled(data: Array, valid: Array, warps: int, size: int, mask: Mask) -> Array:
    """A copy with an explicit source size: the bytes past it become zero."""
    valid = np.broadcast_to(valid, (valid.shape[0], warps, WARP)).reshape(valid.shape[0], -1)
    if mask is not None:
        mask = np.broadcast_to(mask, (mask.shape[0], warps, WARP)).reshape(mask.shape[0], -1)
        valid = valid[:, mask[0]] if mask.shape[0] == 1 else np.broadcast_to(valid, mask.shape)[mask]
    data = np.ascontiguousarray(np.broadcast_to(data, np.broadcast_shapes(data.shape, valid.shape)))
    parts = data.view(np.uint8).reshape(*data.shape, size)
    keep = np.arange(size) < valid[..., None]
    return np.where(keep, parts, 0).astype(np.uint8).view(DTYPES[size])[..., 0]
