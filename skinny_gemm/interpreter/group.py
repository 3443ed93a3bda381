"""A group of warps that execute together: its registers, its copies in flight, and what generated code calls."""

from functools import partialmethod
from typing import TYPE_CHECKING, Any

from . import arithmetic as ops
from . import asynchronous, memory, place, shared_memory, synchronisation, warpgroup
from .barriers import Barrier, ClusterBarrier
from .parser import Instruction
from .place import DTYPES, Array, Mask, Place

if TYPE_CHECKING:
    from .machine import Machine


class Group(Place):
    """A full product of some CTAs and some of their warps; `block` is the number of the block that comes next."""

    def __init__(self, machine: "Machine", rows: Array, warps: Array, registers: list[Any]):
        super().__init__(machine, rows, warps)
        self.registers, self.block = registers, 0
        self.specials: dict[tuple[str, str], Array] = {}
        self.parameters: dict[tuple[int, int], Array] = {}
        self.copies: list[asynchronous.Copy] = []  # that neither a wait nor an mbarrier has claimed
        self.commits: Array | int = 0  # groups of copies, per lane where the lanes differ
        self.batches: list[asynchronous.Batch] = []
        self.issued = warpgroup.Issued([])
        self.opened: Array | None = None  # of the named barrier that it has arrived at: openings seen, per row
        #: What it waits for, and the parity, for messages.
        self.waiting: tuple[Instruction, Barrier | ClusterBarrier, int | None] | None = None
        self.parked = -1  # the machine's version when it last could not go on
        self.source: tuple[Array | None, Array | None] = None, None  # of the traced copy that comes next
        self.count = len(rows) // machine.fills * len(warps)  # warps executing, twins counted once

    def part(self, rows: Array | None, warps: Array | None) -> "Group":
        """The group of some rows and warps (index arrays into this group's, None for all), with their state."""
        at = self.rows if rows is None else self.rows[rows], self.warps if warps is None else self.warps[warps]
        parts: dict[ops.Accumulator, ops.Accumulator] = {}
        new = Group(self.machine, *at, ops.select_registers(self.registers, rows, warps, parts))
        new.issued = self.issued.select(rows, warps, parts)
        new.waiting, new.depends = self.waiting, ops.select(self.depends, rows, warps)
        new.copies = [copy.select(rows, warps) for copy in self.copies]
        new.commits = self.commits if isinstance(self.commits, int) else ops.select(self.commits, rows, warps)
        new.batches = [b for b in self.batches if not b.landed]
        new.opened = self.opened if self.opened is None or rows is None else self.opened[rows]
        return new

    def finish(self) -> None:
        """Exits. Copies left behind untied land now; batches and transfers do when the schedule says so."""
        machine = self.machine
        asynchronous.land(self, self.copies)
        opened = machine.cluster_barrier.exit(self.rows, self.warps)
        machine.clusters.alive[self.slice] -= len(self.warps)
        warpgroup.exited(machine, self.rows[machine.clusters.alive[self.slice] == 0])
        self.events.cluster_completed(opened)
        self.events.exited(self)
        machine.changed()

    # What generated code calls, by the module that does it

    load_shared, load_cluster = shared_memory.load, partialmethod(shared_memory.load, cluster=True)
    store_shared, store_cluster = shared_memory.store, partialmethod(shared_memory.store, cluster=True)
    ldmatrix, gather = shared_memory.ldmatrix, shared_memory.gather
    load_global, store_global = memory.load, memory.store
    store_multicast = partialmethod(memory.store, multicast=True)
    converged, elect, mapa = place.converged, place.elect, place.mapa
    copy_async, arrive_copies = asynchronous.copy, asynchronous.arrive
    commit, wait_groups, transfer = asynchronous.commit, asynchronous.wait_groups, asynchronous.transfer
    wgmma, wgmma_fence, touch = warpgroup.multiply, warpgroup.fence, warpgroup.touch
    wgmma_commit, wgmma_wait = warpgroup.commit, warpgroup.wait
    init_barrier, invalidate_barrier = synchronisation.init, synchronisation.invalidate
    arrive, expect_bytes = synchronisation.arrive, synchronisation.expect_bytes
    bar_arrive, cluster_arrive = synchronisation.bar_arrive, synchronisation.cluster_arrive

    def warp_sync(self, mask: Mask) -> None:
        """`bar.warp.sync`: lanes run in step anyway, but only this orders what they did for one another."""
        self.events.warp_sync(self, mask)

    def fence(self, kind: str, mask: Mask) -> None:
        """A fence, of `kind` init or cluster: see `Observer.fence`."""
        self.events.fence(self, kind, mask)

    def clock(self, name: str) -> Array:
        """A special register that tells the time."""
        return self.machine.context.clock.read(name, self.machine.version)

    def sleep(self, nanoseconds: Array) -> None:
        """`nanosleep`."""
        self.machine.context.clock.now += int(nanoseconds.max())

    def special(self, name: str, axis: str) -> Array:
        """The special register `name`, or its part `axis` (x, y, z)."""
        if (name, axis) not in self.specials:
            self.specials[name, axis] = self.machine.special(self, name, axis)
        return self.specials[name, axis]

    def parameter(self, offset: int, size: int) -> Array:
        """The kernel parameter at an offset."""
        if (offset, size) not in self.parameters:
            for (start, length), values in self.machine.parameters.items():
                if start <= offset and offset + size <= start + length:
                    part: Array = values.view(DTYPES[size])[..., (offset - start) // size :][..., :1]
                    self.parameters[offset, size] = ops.select(part, self.rows, None)
                    break
            else:
                raise ValueError(
                    f"the kernel reads {size} bytes at byte {offset} of its parameters, which hold no value"
                )
        return self.parameters[offset, size]

    def dependency_wait(self, mask: Mask) -> None:
        """`griddepcontrol.wait`."""
        self.depends = self.depends | (ops.TRUE if mask is None else mask)

    def trace_source(self, addresses: Array, size: Array) -> None:
        """Says what the traced copy that comes next reads."""
        self.source = addresses, size

    def trace(self, index: int, mask: Mask, addresses: Array | None) -> None:
        """A traced instruction is executed."""
        (source, size), self.source = self.source, (None, None)
        self.events.executed(self, index, mask, addresses, source, size)
