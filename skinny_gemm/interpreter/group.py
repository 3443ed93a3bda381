"""A group of warps that execute together: their registers, their copies in flight, and every instruction with effects.

A group is a full product of some CTAs and some of their warps.
"""

import numpy as np

from . import arithmetic as ops
from . import transfers
from .clusters import OFFSET
from .copies import Batch, Copy, land
from .errors import BarrierError, ClusterError, DependencyError, DivergenceError, MemoryAccessError, ReadOnlyError
from .memory import DTYPES
from .parser import SHARED_BASE
from .place import SHIFT, Place


class Group(Place):
    def __init__(self, machine, rows, warps, registers, block=0):
        super().__init__(machine, rows, warps)
        self.registers, self.block = registers, block
        self.specials, self.parameters = {}, {}
        self.open: list[Copy] = []  # not yet committed, nor tied to an mbarrier
        self.committed: list[list[Copy]] = []
        self.batches: list[Batch] = []
        self.opened = None  # of the named barrier that it has arrived at: openings seen, per row
        self.waiting = None  # what it waits for, for messages
        self.parked = -1  # the machine's version when it last could not go on
        self.depends = ops.FALSE  # lanes that have passed griddepcontrol.wait

    @property
    def count(self) -> int:
        """Warps executing, twins counted once."""
        return len(self.rows) // self.machine.fills * len(self.warps)

    def part(self, rows, warps) -> "Group":
        """The group of some rows and warps (index arrays into this group's, None for all), with their state."""
        new = Group(
            self.machine,
            self.rows if rows is None else self.rows[rows],
            self.warps if warps is None else self.warps[warps],
            ops.select_registers(self.registers, rows, warps),
            self.block,
        )
        new.waiting, new.depends = self.waiting, ops.select(self.depends, rows, warps)
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

    # Memory

    def load_shared(self, index, addresses, width, mask):
        lanes = self.active(mask, addresses)
        if lanes is None:
            return np.zeros((1, 1, 1), DTYPES[width])
        words = self.read_shared(index, lanes, width)
        if self.machine.races:
            self.machine.races.access(self, index, addresses, width, mask, False)
        return words

    def read_shared(self, index, addresses, width):
        at = self.shared_index(index, addresses, width)
        view = self.machine.shared_view(width)
        return view.reshape(-1).take(self.rows[:, None, None] * view.shape[1] + at, mode="clip")

    def check_store(self, index, rows, addresses, width, mask):
        """Raises if a plain store overwrites a live mbarrier; inactive lanes must hold an active lane's address."""
        for address, barrier in self.machine.mbarriers.items():
            if address + 8 > addresses.min() and address < addresses.max() + width:
                hit = (addresses < address + 8) & (addresses + width > address) & (barrier.expected[rows] > 0)
                if hit.any():
                    raise BarrierError(
                        f"A store overwrites the mbarrier at shared address {address - SHARED_BASE}, which has not "
                        f"been invalidated: {self.place_of(index, hit if mask is None else hit & mask)}."
                    )

    def store_shared(self, index, addresses, words, mask):
        self.machine.changed()
        width, flat, data, rows = self.scatter(addresses, words, mask)
        if not flat.size:
            return
        active = self.active(mask, addresses)
        self.shared_index(index, active, width)
        self.check_store(index, self.rows[:, None, None], active, width, mask)
        if self.machine.races:
            self.machine.races.access(self, index, addresses, width, mask, True)
            self.machine.races.collide(self, index, addresses, words, mask)
        view = self.machine.shared_view(width)
        view.reshape(-1)[rows * view.shape[1] + (flat >> SHIFT[width])] = data

    # Shared memory of the cluster

    def mapa(self, addresses, rank):
        return self.machine.clusters.mapa(self.rows, addresses, rank)

    def load_cluster(self, index, addresses, width, mask):
        lanes = self.active(mask, addresses)
        if lanes is None:
            return np.zeros((1, 1, 1), DTYPES[width])
        rows, offsets = self.cluster_index(index, lanes, width, mask)
        if self.machine.races:
            self.machine.races.access(self, index, offsets, width, mask, False, rows)
        view = self.machine.shared_view(width)
        return view.reshape(-1).take(rows * view.shape[1] + (offsets >> SHIFT[width]), mode="clip")

    def store_cluster(self, index, addresses, words, mask):
        self.machine.changed()
        lanes = self.active(mask, addresses)
        if lanes is None:
            return
        width, flat, data, _ = self.scatter(addresses, words, mask)
        rows, offsets = self.cluster_index(index, lanes, width, mask)
        self.check_store(index, rows, offsets, width, mask)
        if self.machine.races:
            self.machine.races.access(self, index, offsets, width, mask, True, rows)
            self.machine.races.collide(self, index, offsets, words, mask, rows)
        shape = (len(self.rows), len(self.warps), ops.WARP)
        rows = np.broadcast_to(rows, shape)
        rows = rows.reshape(-1) if mask is None else rows[np.broadcast_to(mask, shape)]
        view = self.machine.shared_view(width)
        view.reshape(-1)[rows * view.shape[1] + ((flat & OFFSET) >> SHIFT[width])] = data

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
        self.check_dependency(index, addresses, mask)
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
        self.check_output(index, addresses, mask)
        width, flat, data, _ = self.scatter(addresses, words, mask)
        if not flat.size:
            return
        try:
            self.machine.memory.store(flat.astype(np.uint64), data, width)
        except MemoryAccessError:
            self.global_fault(index, self.active(mask, addresses), width, "store")
        except ReadOnlyError as error:
            self.read_only(index, error, mask)

    def store_multicast(self, index, addresses, words, mask):
        for word in words:
            self.check_poison(index, word, "the stored value", mask)
        self.check_output(index, addresses, mask)
        width, flat, data, _ = self.scatter(addresses, words, mask)
        try:
            self.machine.memory.store_multicast(flat.astype(np.uint64), data, width)
        except MemoryAccessError as error:
            what = str(error) or f"{int(flat[0]):#x} (+{width} bytes) is out of bounds or misaligned"
            raise MemoryAccessError(f"multimem store: {what}: {self.place_of(index, mask)}.") from None
        except ReadOnlyError as error:
            self.read_only(index, error, mask)

    def read_only(self, index, name, mask):
        raise ReadOnlyError(
            f"The kernel stores to {name}, which is not declared as written: {self.place_of(index, mask)}."
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
        used = used if mask is None else used & mask
        chosen = self.active(used, addresses)
        if chosen is None:
            return (ops.ZERO,) * count
        raw = self.read_shared(index, chosen, 16)
        if self.machine.races:
            self.machine.races.access(self, index, addresses, 16, used, False)
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
        if self.machine.races:
            for index, a in zip(indices, addresses, strict=True):
                used = 8 * int(self.machine.code[index].op[4][1:])
                self.machine.races.access(self, index, a[:, :, :used], 16, None, False)
        view = self.machine.shared_view(16)
        at = at[:, :, order]
        raw = view.reshape(-1).take(self.rows[:, None, None, None] * view.shape[1] + at, mode="clip")
        out = self.machine.scratch(slot, (*raw.shape[:3], raw.shape[3] * 8))
        np.copyto(out, raw.view(np.uint16))  # widening and shifting in place beats a strided copy of the halves
        out <<= 16
        return out.view(np.float32)

    # Asynchronous copies

    def copy_async(self, index, dst, src, size, valid, mask):
        self.check_dependency(index, src, mask)
        copy = Copy(index, dst, src, size, valid, mask)
        if self.machine.races:
            copy.issued = self.machine.races.issued(self)
        if self.machine.schedule.lands_early(self.machine):
            land(self, [copy])
        else:
            self.open.append(copy)

    def commit(self):
        self.committed.append(self.open)
        self.open = []
        if self.machine.races:
            self.machine.races.tick(self)

    def wait_groups(self, keep):
        done = len(self.committed) - keep
        if done > 0:
            for group in self.committed[:done]:
                land(self, group)
            self.committed = self.committed[done:]
        if keep == 0:
            for batch in self.batches:
                self.machine.land(batch)
            self.batches = []
        if self.machine.races:
            self.machine.races.waited(self, keep)

    def finish(self):
        """Exits. Copies left behind untied land now; batches and transfers do when the schedule says so."""
        machine = self.machine
        land(self, [c for group in self.committed for c in group] + self.open)
        opened = machine.cluster_barrier.exit(self.rows, self.warps)
        machine.clusters.alive[self.slice] -= len(self.warps)
        if machine.races:
            machine.races.complete_cluster(opened)
            machine.races.exited(self)
        machine.changed()

    def arrive_copies(self, index, addresses, noinc, mask):
        """Ties all earlier copies of the threads to an mbarrier: it gets an arrival per thread when they are done."""
        arrivals = self.barriers(index, addresses, mask)
        if not noinc:
            for barrier, rows, count in arrivals:
                barrier.pending[rows] += count
        copies = [c for group in self.committed for c in group] + self.open
        self.batches = [b for b in self.batches if not b.landed]
        batch = Batch(index, Place(self.machine, self.rows, self.warps), copies, arrivals, list(self.batches))
        self.committed, self.open = [], []
        if self.machine.races:
            self.machine.races.access(self, index, addresses, 8, mask, False)
            batch.ticks = self.machine.races.tick(self)
        self.batches.append(batch)
        self.machine.flying.append(batch)

    # Barriers

    def barriers(self, index, addresses, mask, count=1, create=False, cluster=False):
        """[(barrier, rows, sum per row of the active lanes' `count`)] of the mbarriers that the lanes address."""
        lanes = ops.WARP * len(self.warps)
        if addresses.size == 1 and not cluster and isinstance(count, int):
            rows = self.slice
            if mask is None:
                total = lanes
            elif mask.shape[0] == 1:
                total = int(mask.sum()) * (lanes // (mask.shape[1] * mask.shape[2]))
            else:
                total = mask.sum(axis=(1, 2)) * (lanes // (mask.shape[1] * mask.shape[2]))
                if not total.all():
                    rows, total = self.rows[total > 0], total[total > 0]
            return [(self.barrier_at(index, int(addresses[0, 0, 0]), rows, create), rows, total * count)]
        rows, offsets = self.rows[:, None, None], self.active(mask, addresses)
        if offsets is None:
            return []
        if cluster:
            rows, offsets = self.cluster_index(index, offsets, 8, mask)
        self.check_poison(index, offsets, "the address", mask)
        shape = (len(self.rows), len(self.warps), ops.WARP)
        full = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        rows, offsets, count = (np.broadcast_to(x, shape)[full] for x in (rows, offsets, count))
        out = []
        for address in np.unique(offsets):
            here = offsets == address
            there = np.unique(rows[here])
            total = np.bincount(rows[here], count[here])[there].astype(np.int64)
            out.append((self.barrier_at(index, int(address), there, create), there, total))
        return out

    def init_barrier(self, index, addresses, count, mask):
        self.machine.changed()
        active = self.active(mask, addresses)
        if active is None:
            return
        self.shared_index(index, active, 8)
        self.check_poison(index, count, "the arrival count")
        if count.size > 1:
            raise BarrierError(f"Lanes initialise an mbarrier with different counts: {self.place_of(index, mask)}.")
        count = int(count[0, 0, 0])
        if not 1 <= count < 1 << 20:
            raise BarrierError(f"An mbarrier cannot expect {count} arrivals (1 to 1048575): {self.place_of(index)}.")
        for barrier, rows, _ in self.barriers(index, addresses, mask, create=True):
            if (barrier.expected[rows] > 0).any():
                raise BarrierError(f"The mbarrier at shared address {barrier.address - SHARED_BASE} is initialised "
                                   f"again without mbarrier.inval: {self.place_of(index, mask)}.")  # fmt: skip
            barrier.init(rows, count)
        if self.machine.races:
            self.machine.races.initialised(self, index, addresses, mask)

    def invalidate_barrier(self, index, addresses, mask):
        if self.active(mask, addresses) is None:
            return
        for barrier, rows, _ in self.barriers(index, addresses, mask):
            barrier.expected[rows] = 0
        if self.machine.races:
            self.machine.races.access(self, index, addresses, 8, mask, True)

    def arrive(self, index, addresses, count, mask, scope="cta", cluster=False):
        """Arrives once or `count` times per active lane; the state is the phase before (CTAs, 1, 1) as uint64.

        `cluster`: the addresses are shared::cluster ones. `scope` is that of the release.
        """
        self.machine.changed()
        none = count == 0 if mask is None else (count == 0) & mask
        if none.any():
            raise BarrierError(f"An arrival counts at least 1, not 0: {self.place_of(index, none)}.")
        state, barriers = None, self.barriers(index, addresses, mask, number(count), cluster=cluster)
        self.use_barriers(index, addresses, mask, cluster)
        for barrier, rows, total in barriers:
            state = barrier.phase[rows].astype(np.uint64)[:, None, None]
            opened = self.change(index, barrier, "arrive", rows, total)
            if self.machine.races:
                self.machine.races.release(self, barrier, mask, addresses, scope)
                self.machine.races.complete(barrier, opened)
        return state if state is not None and len(state) == len(self.rows) else np.zeros((1, 1, 1), np.uint64)

    def expect_bytes(self, index, addresses, count, mask, cluster=False):
        self.machine.changed()
        self.check_poison(index, count, "the byte count", mask)
        for barrier, rows, total in self.barriers(index, addresses, mask, number(count), cluster=cluster):
            opened = self.change(index, barrier, "expect", rows, total)
            if self.machine.races:
                self.machine.races.complete(barrier, opened)
        self.use_barriers(index, addresses, mask, cluster)

    def use_barriers(self, index, addresses, mask, cluster):
        """For the race detector: the words of an mbarrier are read."""
        lanes = self.active(mask, addresses)
        if self.machine.races and lanes is not None:
            rows, offsets = self.cluster_index(index, lanes, 8, mask) if cluster else (None, addresses)
            self.machine.races.access(self, index, offsets, 8, mask, False, rows)

    def transfer(self, index, dst, barrier, mask, size, words=None, source=None, cluster=True):
        """Starts an `st.async` of `words` or a bulk copy of `size` bytes from `source`."""
        if words is not None and self.machine.clusters.size == 1:
            raise ClusterError(f"st.async in a launch without a cluster is an illegal instruction: "
                               f"{self.place_of(index, mask)}.")  # fmt: skip
        transfers.issue(self, index, dst, barrier, mask, size, words, source, cluster)

    def cluster_arrive(self, index, release, aligned, mask):
        machine = self.machine
        if aligned:
            self.converged(index, None, mask)
        lanes = np.broadcast_to(ops.TRUE if mask is None else mask, (len(self.rows), len(self.warps), ops.WARP))
        try:
            opened = machine.cluster_barrier.arrive(self.rows, self.warps, lanes)
        except BarrierError as error:
            raise BarrierError(f"{error}: {self.place_of(index, mask)}.") from None
        if machine.races:
            machine.races.release_cluster(self, mask, release)
            machine.races.complete_cluster(opened)
        machine.changed()

    def fence(self, kind, mask):
        """`kind`: init (fence.mbarrier_init) or cluster (fence.acq_rel of at least cluster scope)."""
        if self.machine.races:
            self.machine.races.fence(self, kind, mask)

    # Time

    def clock(self, name):
        return self.machine.launch.clock.read(name, self.machine.version)

    def sleep(self, nanoseconds):
        self.machine.launch.clock.sleep(int(nanoseconds.max()))

    def warp_sync(self, mask):
        """`bar.warp.sync`: lanes run in step anyway, but only this orders what they did for one another."""
        if self.machine.races:
            self.machine.races.synchronized(self, mask)

    def bar_arrive(self, index, number, count, mask):
        self.machine.changed()
        barrier = self.machine.named_barrier(int(number[0, 0, 0]))
        self.join(barrier, int(count[0, 0, 0]), mask)

    def join(self, barrier, count, mask=None):
        """All warps of the group arrive at a named barrier."""
        before = barrier.opened.copy()
        barrier.arrive(self.slice, ops.WARP * len(self.warps), count)
        if self.machine.races:
            self.machine.races.release(self, barrier, mask)
            self.machine.races.complete(barrier, barrier.opened != before)

    def dependency_wait(self, mask):
        self.depends = self.depends | (ops.TRUE if mask is None else mask)

    def check_dependency(self, index, addresses, mask):
        """Raises if lanes that have not waited for the preceding kernel read what it writes."""
        buffers = self.machine.launch.preceding
        if not buffers:
            return
        early = ~self.depends if mask is None else ~self.depends & mask
        for buffer in buffers:
            lanes = early & (addresses >= np.uint64(buffer.base)) & (addresses < np.uint64(buffer.end))
            if lanes.any():
                raise DependencyError(
                    f"Reads {buffer.name}, which the preceding kernel writes, without having executed "
                    f"griddepcontrol.wait: {self.place_of(index, lanes)}."
                )

    def trace_source(self, addresses, size):
        self.machine.trace.source, self.machine.trace.size = addresses, size

    def trace(self, index, mask, addresses):
        trace, machine = self.machine.trace, self.machine
        barrier = None
        if addresses is not None and addresses.size == 1:
            barrier = machine.barrier(int(addresses[0, 0, 0]))
        trace.record(self, machine.code[index], "execute", mask, addresses, barrier)


def number(count):
    """An operand array as an int where it holds one value, else as it is."""
    return int(count[0, 0, 0]) if count.size == 1 else count
