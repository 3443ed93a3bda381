"""Asynchronous copies from global to shared memory, from their issue to the moment their bytes appear."""

from dataclasses import dataclass

import numpy as np

from . import arithmetic as ops
from .errors import MemoryAccessError
from .memory import DTYPES
from .parser import SHARED_BASE
from .place import SHIFT, Place


@dataclass
class Copy:
    """One `cp.async` of a group that has not landed: addresses, bytes, bytes read (None: all) and active lanes."""

    index: int
    dst: np.ndarray
    src: np.ndarray
    size: int
    valid: np.ndarray | None
    mask: np.ndarray | None
    issued: tuple | None = None  #: clocks of the issue, for the race detector

    def select(self, rows, warps):
        parts = (None if x is None else ops.select(x, rows, warps) for x in (self.dst, self.src, self.valid, self.mask))
        dst, src, valid, mask = parts
        return Copy(self.index, dst, src, self.size, valid, mask, self.issued)


@dataclass(eq=False)
class Batch:
    """Copies whose completion arrives at an mbarrier: `arrivals` are (barrier, count per row)."""

    index: int
    place: Place
    copies: list
    arrivals: list
    before: list  #: batches of the same threads that complete earlier
    ticks: np.ndarray | None = None  #: for the race detector
    landed: bool = False
    mask = None  #: all lanes

    @property
    def receivers(self):
        """Per row of the place, the row whose barrier this reaches."""
        return self.place.rows

    def land(self):
        """The bytes of this and of earlier batches appear, then its arrivals happen."""
        machine = self.place.machine
        for earlier in self.before:
            machine.land(earlier)
        self.before = []
        self.landed = True
        land(self.place, self.copies)
        for barrier, rows, count in self.arrivals:
            opened = self.place.change(self.index, barrier, "arrive", rows, count)
            if machine.races:
                machine.races.release_copies(self.place, barrier, self.ticks, opened)
            machine.record_landing(self, barrier)
        machine.changed()


def land(place: Place, copies: list[Copy]):
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
    if place.machine.races:
        place.machine.races.landed(place, copies)


def _land_run(place, copies):
    machine, size, n = place.machine, copies[0].size, len(copies)
    rows, w = place.rows, len(place.warps)
    masks = [c.mask for c in copies]
    per_row = [max(getattr(c, name).shape[0] for c in copies) for name in ("dst", "src")]
    mask_rows = max((m.shape[0] for m in masks if m is not None), default=0)
    dst = np.empty((per_row[0], n, w, ops.WARP), np.uint32)
    src = np.empty((per_row[1], n, w, ops.WARP), np.uint64)
    for i, copy in enumerate(copies):
        dst[:, i], src[:, i] = copy.dst, copy.src
    dst, src = dst.reshape(per_row[0], -1), src.reshape(per_row[1], -1)
    lane_rows = rows[:, None]
    if mask_rows:
        mask = np.ones((mask_rows, n, w, ops.WARP), bool)
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
            addresses = place.active(copy.mask, copy.src)
            if addresses is not None and machine.memory.fault(addresses, size) is not None:
                place.global_fault(copy.index, addresses, size, "copy")
        raise
    low, high = int(dst.min()), int(dst.max())
    if low < SHARED_BASE or high + size > machine.shared_end or int(np.bitwise_or.reduce(dst, axis=None)) & (size - 1):
        for copy in copies:
            addresses = place.active(copy.mask, copy.dst)
            if addresses is not None:
                place.shared_index(copy.index, addresses, size)
    if copies[0].valid is not None:
        data = _zero_filled(data, copies[0], w, size, masks[0])
    view = machine.shared_view(size)
    view.reshape(-1)[lane_rows * view.shape[1] + (dst >> SHIFT[size])] = data


def _zero_filled(data, copy, warps, size, mask):
    """A copy with an explicit source size: the bytes past it become zero."""
    valid = np.broadcast_to(copy.valid, (copy.valid.shape[0], warps, ops.WARP)).reshape(copy.valid.shape[0], -1)
    if mask is not None:
        mask = np.broadcast_to(mask, (mask.shape[0], warps, ops.WARP)).reshape(mask.shape[0], -1)
        valid = valid[:, mask[0]] if mask.shape[0] == 1 else np.broadcast_to(valid, mask.shape)[mask]
    data = np.ascontiguousarray(np.broadcast_to(data, np.broadcast_shapes(data.shape, valid.shape)))
    parts = data.view(np.uint8).reshape(*data.shape, size)
    keep = np.arange(size) < valid[..., None]
    return np.where(keep, parts, 0).astype(np.uint8).view(DTYPES[size])[..., 0]
