"""A group of warps that execute together: its registers, its copies in flight, and what generated code calls.

A group is a full product of some CTAs and some of their warps. An instruction with effects is a function of a group in
the module that the list in `Group` names.
"""

from typing import TYPE_CHECKING, Any

from . import arithmetic as ops
from . import arrivals, complete_tx, cp_async, memory, place, shared_memory
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .parser import Instruction
from .place import Array, Mask, Place

if TYPE_CHECKING:
    from .machine import Machine


class Group(Place):
    """Some warps of some CTAs, and where they are: `block` is the number of the block that comes next."""

    def __init__(self, machine: "Machine", rows: Array, warps: Array, registers: list[Any], block: int = 0):
        super().__init__(machine, rows, warps)
        self.registers, self.block = registers, block
        self.specials: dict[tuple[str, str], Array] = {}
        self.parameters: dict[tuple[int, int], Array] = {}
        self.open: list[cp_async.Copy] = []  # not yet committed, nor tied to an mbarrier
        self.committed: list[list[cp_async.Copy]] = []
        self.batches: list[cp_async.Batch] = []
        self.opened: Array | None = None  # of the named barrier that it has arrived at: openings seen, per row
        #: What it waits for, and the parity, for messages.
        self.waiting: tuple[Instruction, MBarrier | NamedBarrier | ClusterBarrier, int | None] | None = None
        self.parked = -1  # the machine's version when it last could not go on
        self.source: tuple[Array | None, Array | None] = None, None  # of the traced copy that comes next

    @property
    def count(self) -> int:
        """Warps executing, twins counted once."""
        return len(self.rows) // self.machine.fills * len(self.warps)

    def part(self, rows: Array | None, warps: Array | None) -> "Group":
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

    def finish(self) -> None:
        """Exits. Copies left behind untied land now; batches and transfers do when the schedule says so."""
        machine = self.machine
        cp_async.land(self, cp_async.take_untied(self))
        opened = machine.cluster_barrier.exit(self.rows, self.warps)
        machine.clusters.alive[self.slice] -= len(self.warps)
        self.events.cluster_completed(opened)
        self.events.exited(self)
        machine.changed()

    # What generated code calls, by the module that does it

    load_shared, store_shared = shared_memory.load, shared_memory.store
    load_cluster, store_cluster, mapa = shared_memory.load_cluster, shared_memory.store_cluster, shared_memory.mapa
    load_global, store_global = memory.load, memory.store
    store_multicast = memory.store_multicast
    ldmatrix, gather = shared_memory.ldmatrix, shared_memory.gather
    converged, elect = place.converged, arrivals.elect
    copy_async, arrive_copies = cp_async.issue, cp_async.arrive
    commit, wait_groups = cp_async.commit, cp_async.wait_groups
    transfer = complete_tx.issue
    init_barrier, invalidate_barrier = arrivals.init, arrivals.invalidate
    arrive, expect_bytes = arrivals.arrive, arrivals.expect_bytes
    bar_arrive, cluster_arrive = arrivals.bar_arrive, arrivals.cluster_arrive
    warp_sync, fence = arrivals.warp_sync, arrivals.fence

    def clock(self, name: str) -> Array:
        """A special register that tells the time."""
        return self.machine.context.clock.read(name, self.machine.version)

    def sleep(self, nanoseconds: Array) -> None:
        """`nanosleep`."""
        self.machine.context.clock.now += int(nanoseconds.max())

    def special(self, name: str, axis: str) -> Array:
        """The special register `name`, or its part `axis` (x, y, z)."""
        key = name, axis
        if key not in self.specials:
            self.specials[key] = self.machine.special(self, name, axis)
        return self.specials[key]

    def parameter(self, offset: int, size: int) -> Array:
        """The kernel parameter at an offset."""
        key = offset, size
        if key not in self.parameters:
            self.parameters[key] = ops.select(self.machine.parameters[key], self.rows, None)
        return self.parameters[key]

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
