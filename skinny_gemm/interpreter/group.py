"""A group of warps that execute together: their registers, their copies in flight, and every instruction with effects.

`rows` are the group's CTAs by their row in the chunk's arrays (fill-pattern twins are neighbours), `warps` its warps
in each of these CTAs. A group is a full product of the two.
"""

from dataclasses import dataclass

import numpy as np

from . import ops
from .errors import BarrierError, DivergenceError, MemoryAccessError, PoisonError, ReadOnlyError
from .memory import DTYPES
from .parser import SHARED_BASE

SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}


@dataclass
class Copy:
    """One `cp.async` of a group that has not landed: addresses, bytes, bytes read (None: all) and active lanes."""

    index: int
    dst: np.ndarray
    src: np.ndarray
    size: int
    valid: np.ndarray | None
    mask: np.ndarray | None

    def select(self, rows, warps):
        parts = (None if x is None else ops.select(x, rows, warps) for x in (self.dst, self.src, self.valid, self.mask))
        dst, src, valid, mask = parts
        return Copy(self.index, dst, src, self.size, valid, mask)


@dataclass(eq=False)
class Batch:
    """Copies whose completion arrives at an mbarrier: `arrivals` are (barrier, count per row)."""

    index: int
    rows: np.ndarray
    warps: np.ndarray
    copies: list
    arrivals: list
    before: list  #: batches of the same threads that complete earlier
    landed: bool = False


class Group:
    def __init__(self, machine, rows, warps, registers, block=0):
        self.machine, self.registers, self.block = machine, registers, block
        self.place(rows, warps)
        self.open: list[Copy] = []  # not yet committed, nor tied to an mbarrier
        self.committed: list[list[Copy]] = []
        self.batches: list[Batch] = []
        self.opened = None  # of the named barrier that it has arrived at: openings seen, per row
        self.waiting = None  # what it waits for, for messages
        self.parked = -1  # the machine's version when it last could not go on
        self.depends = False  # whether it has passed griddepcontrol.wait
        self.clock = 0

    def place(self, rows, warps):
        self.rows, self.warps = rows, warps
        self.count = len(rows) // self.machine.fills * len(warps)  # warps executing, twins counted once
        n = len(rows)
        self.slice = slice(int(rows[0]), int(rows[0]) + n) if n and rows[-1] - rows[0] == n - 1 else rows
        self.specials, self.parameters = {}, {}

    def part(self, rows, warps) -> "Group":
        """The group of some rows and warps (index arrays into this group's, None for all), with their state."""
        new = Group.__new__(Group)
        new.machine, new.block, new.clock = self.machine, self.block, self.clock
        new.waiting, new.parked, new.depends = self.waiting, -1, self.depends
        new.registers = ops.select_registers(self.registers, rows, warps)
        new.place(self.rows if rows is None else self.rows[rows], self.warps if warps is None else self.warps[warps])
        new.open = [c.select(rows, warps) for c in self.open]
        new.committed = [[c.select(rows, warps) for c in group] for group in self.committed]
        new.batches = [b for b in self.batches if not b.landed]
        new.opened = self.opened if self.opened is None or rows is None else self.opened[rows]
        return new

    # Values

    def special(self, name, axis):
        key = name, axis
        if key not in self.specials:
            self.specials[key] = self.machine.special(self, name, axis)
        return self.specials[key]

    def parameter(self, offset, size):
        key = offset, size
        if key not in self.parameters:
            self.parameters[key] = ops.select(self.machine.parameters[key], self.rows, None)
        return self.parameters[key]

    # Messages

    def spot(self, index: int, shape, flat: int) -> str:
        """Instruction, PTX line, CTA, warp and lane of the flat index into an array of `shape`."""
        row, warp, lane = (int(i) for i in np.unravel_index(flat, shape))
        machine, ins = self.machine, self.machine.code[index]
        cta = tuple(int(x) for x in machine.ctas[self.rows[row] // machine.fills])
        lane = f", lane {lane}" if shape[2] > 1 else ""
        warp = self.warps[warp] if shape[1] > 1 or len(self.warps) == 1 else "+".join(map(str, self.warps))
        return f"{ins.text!r} (PTX line {ins.line}), CTA {cta}, warp {warp}{lane}"

    def place_of(self, index: int, mask=None) -> str:
        mask = ops.TRUE if mask is None else mask
        return self.spot(index, mask.shape, int(np.flatnonzero(mask)[0]) if mask.any() else 0)

    def twins_differ(self, array, mask=None):
        """Flat index where the two fill patterns give different values, or None."""
        if self.machine.fills == 1 or array.shape[0] == 1:
            return None
        differ = array[0::2] != array[1::2]
        if mask is not None:
            m = mask if mask.shape[0] == 1 else mask[0::2]
            differ = differ & m.reshape(m.shape + (1,) * (differ.ndim - m.ndim))
        if not differ.any():
            return None
        where = tuple(np.argwhere(differ)[0][:3])
        return int(np.ravel_multi_index((2 * where[0], *where[1:]), array.shape[:3]))

    def check_poison(self, index, array, what, mask=None):
        flat = self.twins_differ(array, mask)
        if flat is not None:
            raise PoisonError(f"Uninitialised memory or an undefined register reaches {what} of "
                              f"{self.spot(index, array.shape[:3], flat)}.")  # fmt: skip

    # Memory

    def active(self, mask, addresses):
        """`addresses` with those of inactive lanes replaced by an active lane's; None if no lane is active."""
        if mask is None:
            return addresses
        addresses, mask = np.broadcast_arrays(addresses, mask)
        if mask.all():
            return np.ascontiguousarray(addresses)
        if not mask.any():
            return None
        return np.where(mask, addresses, addresses[mask][0])

    def shared_index(self, index, addresses, width):
        """Element indices of `addresses` in a CTA's shared memory, after checking bounds and alignment."""
        low, high = int(addresses.min()), int(addresses.max())
        end = self.machine.shared_end
        if (
            low < SHARED_BASE
            or high + width > end
            or (width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1))
        ):
            self.shared_fault(index, addresses, width)
        return (addresses >> SHIFT[width]).astype(np.int64)

    def shared_fault(self, index, addresses, width):
        end = self.machine.shared_end
        bad = (addresses < SHARED_BASE) | (addresses.astype(np.int64) + width > end) | (addresses % width != 0)
        flat = int(np.flatnonzero(bad)[0])
        address = int(addresses.reshape(-1)[flat])
        self.check_poison(index, addresses, "the address")
        if address % width:
            what = f"is not aligned to {width} bytes"
        elif address < SHARED_BASE:
            what = f"lies {SHARED_BASE - address} bytes before the CTA's shared memory"
        else:
            what = f"lies {address + width - end} bytes past the CTA's {end - SHARED_BASE} bytes of shared memory"
        raise MemoryAccessError(
            f"Shared address {address - SHARED_BASE} (+{SHARED_BASE}) of {width} bytes {what}: "
            f"{self.spot(index, addresses.shape[:3], flat)}."
        )

    def global_fault(self, index, addresses, width, what):
        flat, address, phrase = self.machine.memory.fault(addresses, width)
        self.check_poison(index, addresses, "the address")
        raise MemoryAccessError(
            f"Global {what} of {width} bytes at {address:#x}, {phrase}: {self.spot(index, addresses.shape[:3], flat)}."
        )

    def load_shared(self, index, addresses, width, mask):
        addresses = self.active(mask, addresses)
        if addresses is None:
            return np.zeros((1, 1, 1), DTYPES[width])
        at = self.shared_index(index, addresses, width)
        view = self.machine.shared_view(width)
        return view.reshape(-1).take(self.rows[:, None, None] * view.shape[1] + at, mode="clip")

    def store_shared(self, index, addresses, words, mask):
        self.machine.changed()
        width, flat, data, rows = self.scatter(addresses, words, mask)
        if not flat.size:
            return
        active = self.active(mask, addresses)
        self.shared_index(index, active, width)
        view = self.machine.shared_view(width)
        view.reshape(-1)[rows * view.shape[1] + (flat >> SHIFT[width])] = data

    def scatter(self, addresses, words, mask):
        """(bytes, flat addresses, flat data, flat rows) of a store's active lanes, CTAs first."""
        size = words[0].dtype.itemsize
        width = size * len(words)
        shape = (len(self.rows), len(self.warps), ops.WARP)
        data = np.empty((*shape, len(words)), words[0].dtype)
        for i, word in enumerate(words):
            data[..., i] = word
        data = data.view(DTYPES[width])[..., 0]
        addresses = np.broadcast_to(addresses, shape)
        rows = np.broadcast_to(self.rows[:, None, None], shape)
        if mask is None:
            return width, addresses.reshape(-1).astype(np.int64), data.reshape(-1), rows.reshape(-1)
        mask = np.broadcast_to(mask, shape)
        return width, addresses[mask].astype(np.int64), data[mask], rows[mask]

    def load_global(self, index, addresses, width, mask):
        addresses = self.active(mask, addresses)
        if addresses is None:
            return np.zeros((1, 1, 1), DTYPES[width])
        try:
            return self.machine.memory.load(addresses, width)
        except MemoryAccessError:
            self.global_fault(index, addresses, width, "load")

    def store_global(self, index, addresses, words, mask):
        for word in words:
            self.check_poison(index, word, "the stored value", mask)
        width, flat, data, _ = self.scatter(addresses, words, mask)
        if not flat.size:
            return
        try:
            self.machine.memory.store(flat.astype(np.uint64), data, width)
        except MemoryAccessError:
            self.global_fault(index, self.active(mask, addresses), width, "store")
        except ReadOnlyError as error:
            raise ReadOnlyError(
                f"The kernel stores to {error}, which is not declared as written: {self.place_of(index, mask)}."
            ) from None

    # Matrices

    def converged(self, index, members, mask):
        """Raises unless each warp is there with all its lanes or with none."""
        if mask is not None and mask.shape[2] > 1:
            apart = mask.any(axis=2) != mask.all(axis=2)
            if apart.any():
                raise DivergenceError(f"Lanes of one warp are apart at {self.place_of(index, mask)}.")

    def elect(self, index, members, mask):
        if members.size == 1 and int(members[0, 0, 0]) == 0xFFFFFFFF:
            self.converged(index, members, mask)
            return ops.ZERO, ops.ELECTED
        lanes = ops.lane_mask(members)
        leader = lanes.argmax(axis=2)[..., None].astype(np.uint32)
        return leader, ops.LANES == leader

    def ldmatrix(self, index, addresses, count, transposed, mask):
        """`count` registers, each lane l holding row l div 4, columns 2 (l mod 4) and the next of its matrix."""
        self.converged(index, None, mask)
        if addresses.shape[2] == 1:
            addresses = np.broadcast_to(addresses, (*addresses.shape[:2], ops.WARP))
        used = np.broadcast_to(ops.LANES < 8 * count, addresses.shape)
        chosen = self.active(used if mask is None else used & mask, addresses)
        if chosen is None:
            return (ops.ZERO,) * count
        raw = self.load_shared(index, chosen, 16, None)
        out = []
        for matrix in range(count):
            tile = raw[:, :, 8 * matrix : 8 * matrix + 8]
            if transposed:
                tile = np.ascontiguousarray(
                    np.ascontiguousarray(tile).view(np.uint16).reshape(*tile.shape[:2], 8, 8).swapaxes(-1, -2)
                )
            words = np.ascontiguousarray(tile).view(np.uint32)
            out.append(words.reshape(*words.shape[:2], ops.WARP))
        return out

    def gather(self, indices, addresses, order, slot):
        """The float32 matrices (CTAs, warps, rows, K) at the concatenated lane `addresses` of several `ldmatrix`."""
        if len(addresses) == 1:
            lanes = addresses[0]
        else:
            c, w = (max(a.shape[axis] for a in addresses) for axis in (0, 1))
            lanes = np.concatenate([np.broadcast_to(a, (c, w, ops.WARP)) for a in addresses], axis=2)
        try:
            at = self.shared_index(indices[0], lanes, 16)
        except MemoryAccessError:
            for index, a in zip(indices, addresses, strict=True):
                self.shared_index(index, a, 16)
            raise
        view = self.machine.shared_view(16)
        at = at[:, :, order]
        raw = view.reshape(-1).take(self.rows[:, None, None, None] * view.shape[1] + at, mode="clip")
        out = self.machine.scratch(slot, (*raw.shape[:3], raw.shape[3] * 8))
        np.copyto(out, raw.view(np.uint16))  # widening and shifting in place beats a strided copy of the halves
        out <<= 16
        return out.view(np.float32)

    # Asynchronous copies

    def copy_async(self, index, dst, src, size, valid, mask):
        copy = Copy(index, dst, src, size, valid, mask)
        if self.machine.schedule.lands_early(self.machine):
            self.land([copy])
        else:
            self.open.append(copy)

    def commit(self):
        self.committed.append(self.open)
        self.open = []

    def wait_groups(self, keep):
        done = len(self.committed) - keep
        if done > 0:
            for group in self.committed[:done]:
                self.land(group)
            self.committed = self.committed[done:]
        if keep == 0:
            for batch in self.batches:
                self.machine.land(batch)
            self.batches = []

    def arrive_copies(self, index, addresses, noinc, mask):
        """Ties all earlier copies of the threads to an mbarrier: it gets an arrival per thread when they are done."""
        arrivals = self.barriers(index, addresses, mask)
        if not noinc:
            for barrier, rows, count in arrivals:
                barrier.pending[rows] += count
        copies = [c for group in self.committed for c in group] + self.open
        self.batches = [b for b in self.batches if not b.landed]
        batch = Batch(index, self.rows, self.warps, copies, arrivals, list(self.batches))
        self.committed, self.open = [], []
        self.batches.append(batch)
        self.machine.flying.append(batch)

    def land(self, copies):
        land(self, self.rows, self.warps, copies)

    # Barriers

    def barriers(self, index, addresses, mask, create=False):
        """[(barrier, rows, lanes per row)] of the mbarriers that the active lanes address."""
        lanes = ops.WARP * len(self.warps)
        if addresses.size == 1:
            if mask is None:
                count = lanes
            elif mask.shape[0] == 1:
                count = int(mask.sum()) * (lanes // (mask.shape[1] * mask.shape[2]))
            else:
                count = mask.sum(axis=(1, 2)) * (lanes // (mask.shape[1] * mask.shape[2]))
            return [(self.barrier_at(index, int(addresses[0, 0, 0]), self.slice, create), self.slice, count)]
        shape = (len(self.rows), len(self.warps), ops.WARP)
        addresses = np.broadcast_to(addresses, shape)
        mask = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        out = []
        for address in np.unique(addresses[mask]):
            count = (mask & (addresses == address)).sum(axis=(1, 2))
            some = np.flatnonzero(count)
            rows = self.rows[some]
            out.append((self.barrier_at(index, int(address), rows, create), rows, count[some]))
        return out

    def barrier_at(self, index, address, rows, create):
        barrier = self.machine.barrier(address, create)
        if barrier is None:
            self.shared_index(index, np.full((1, 1, 1), address, np.uint32), 8)
        if barrier is None or not (create or (barrier.expected[rows] > 0).all()):
            raise BarrierError(
                f"No mbarrier has been initialised at shared address {address - SHARED_BASE}: {self.place_of(index)}."
            )
        return barrier

    def init_barrier(self, index, addresses, count, mask):
        self.machine.changed()
        self.shared_index(index, self.active(mask, addresses), 8)
        self.check_poison(index, count, "the arrival count")
        if count.size > 1:
            raise BarrierError(f"Lanes initialise an mbarrier with different counts: {self.place_of(index, mask)}.")
        count = int(count[0, 0, 0])
        if not 1 <= count < 1 << 20:
            raise BarrierError(f"An mbarrier cannot expect {count} arrivals (1 to 1048575): {self.place_of(index)}.")
        for barrier, rows, _ in self.barriers(index, addresses, mask, create=True):
            barrier.init(rows, count)

    def invalidate_barrier(self, index, addresses, mask):
        for barrier, rows, _ in self.barriers(index, addresses, mask):
            barrier.expected[rows] = 0

    def arrive(self, index, addresses, count, mask):
        """Arrives once or `count` times per active lane; the state is the phase before (CTAs, 1, 1) as uint64."""
        self.machine.changed()
        times = int(count.reshape(-1)[0])
        state = None
        for barrier, rows, lanes in self.barriers(index, addresses, mask):
            state = barrier.phase[rows].astype(np.uint64)[:, None, None]
            self.arrive_at(index, barrier, rows, lanes * times)
        return state if state is not None and len(state) == len(self.rows) else np.zeros((1, 1, 1), np.uint64)

    def arrive_at(self, index, barrier, rows, count):
        try:
            barrier.arrive(rows, count)
        except BarrierError as error:
            raise BarrierError(
                f"Shared address {barrier.address - SHARED_BASE}: {error} ({self.place_of(index)})."
            ) from None

    def expect_bytes(self, index, addresses, count, mask):
        for barrier, rows, lanes in self.barriers(index, addresses, mask):
            barrier.expect(rows, lanes * int(count.reshape(-1)[0]))

    def bar_arrive(self, index, number, count, mask):
        self.machine.changed()
        barrier = self.machine.named_barrier(int(number[0, 0, 0]))
        barrier.arrive(self.slice, ops.WARP * len(self.warps), int(count[0, 0, 0]))

    def dependency_wait(self):
        self.depends = True

    def trace_source(self, index, mask, addresses):
        self.machine.trace.source = addresses

    def trace(self, index, mask, addresses):
        trace, machine = self.machine.trace, self.machine
        barrier = None
        if addresses is not None and addresses.size == 1:
            barrier = machine.barrier(int(addresses[0, 0, 0]))
        trace.record(self, machine.code[index], "execute", mask, addresses, barrier)


def land(group, rows, warps, copies):
    """Writes the bytes of `copies`, issued by `warps` of `rows`, into shared memory, in the order of issue."""
    group.machine.changed()
    start = 0
    while start < len(copies):
        stop = start + 1
        size, plain = copies[start].size, copies[start].valid is None
        while plain and stop < len(copies) and copies[stop].size == size and copies[stop].valid is None:
            stop += 1
        _land_run(group, rows, warps, copies[start:stop])
        start = stop


def _land_run(group, rows, warps, copies):
    machine, size, n = group.machine, copies[0].size, len(copies)
    w = len(warps)
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
            addresses = group.active(copy.mask, copy.src)
            if addresses is not None and machine.memory.fault(addresses, size) is not None:
                Group.global_fault(_at(group, rows, warps), copy.index, addresses, size, "copy")
        raise
    low, high = int(dst.min()), int(dst.max())
    if low < SHARED_BASE or high + size > machine.shared_end or int(np.bitwise_or.reduce(dst, axis=None)) & (size - 1):
        for copy in copies:
            addresses = group.active(copy.mask, copy.dst)
            if addresses is not None:
                Group.shared_index(_at(group, rows, warps), copy.index, addresses, size)
    if copies[0].valid is not None:
        data = _zero_filled(data, copies[0], rows, w, size, masks[0])
    view = machine.shared_view(size)
    view.reshape(-1)[lane_rows * view.shape[1] + (dst >> SHIFT[size])] = data


def _zero_filled(data, copy, rows, warps, size, mask):
    """A copy with an explicit source size: the bytes past it become zero."""
    valid = np.broadcast_to(copy.valid, (copy.valid.shape[0], warps, ops.WARP)).reshape(copy.valid.shape[0], -1)
    if mask is not None:
        mask = np.broadcast_to(mask, (mask.shape[0], warps, ops.WARP)).reshape(mask.shape[0], -1)
        valid = valid[:, mask[0]] if mask.shape[0] == 1 else np.broadcast_to(valid, mask.shape)[mask]
    data = np.ascontiguousarray(np.broadcast_to(data, np.broadcast_shapes(data.shape, valid.shape)))
    parts = data.view(np.uint8).reshape(*data.shape, size)
    keep = np.arange(size) < valid[..., None]
    return np.where(keep, parts, 0).astype(np.uint8).view(DTYPES[size])[..., 0]


def _at(group, rows, warps):
    """A stand-in for the group that issued a batch, for messages."""
    stand_in = Group.__new__(Group)
    stand_in.machine = group.machine
    stand_in.rows, stand_in.warps = rows, warps
    return stand_in
