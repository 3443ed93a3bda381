"""One chunk of CTAs: shared memory, barriers, and the loop that runs groups of warps until all have exited.

Values and memory are batched over the chunk's CTAs; with checks on, every CTA has a twin whose uninitialised bytes hold
another pattern. Groups start whole and split where their warps part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .asynchronous import Batch, Transfer
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .codegen import Program
from .errors import BarrierError, DeadlockError, DivergenceError
from .flow import EXIT, Block
from .group import Group
from .memory import GlobalMemory
from .observers import Events, Observer
from .place import DTYPES, Clusters
from .synchronisation import attempt, choice, deadlock

#: Bytes that uninitialised memory and registers hold: BF16 and FP32 NaN, and an ordinary number (0.75).
FILLS = (0xFF, 0x3F)
SPIN = 1 << 10  #: such blocks after which another group has its turn
ENDLESS = 1 << 17  #: blocks run one after the other with no effect on shared memory: a loop that spins
DOUBLINGS = 17  #: of the clock's step, up to 0.13 s a read
Triple = tuple[int, int, int]  #: along x, y and z


class Clock:
    """`%globaltimer` (ns), and `%clock` at 1 GHz: it moves by 1 us per read and by what `nanosleep` asks for.

    Where only the clock is read and nothing else happens, as in a loop that polls until a time limit, the step doubles
    from read to read, so that the limit comes soon.
    """

    now, idle, seen = 0, 0, -1

    def read(self, name: str, version: int) -> np.ndarray:
        """The special register `name`; `version` tells whether anything has happened since the last read."""
        self.idle = self.idle + 1 if version == self.seen else 0
        self.seen = version
        self.now += 1000 << min(self.idle, DOUBLINGS)
        return np.full((1, 1, 1), self.now & 0xFFFFFFFF if name in ("clock", "globaltimer_lo") else self.now, np.uint64)


@dataclass
class Context:
    """What the chunks of one launch share: the program, its geometry and its arguments, and who watches."""

    program: Program
    grid: Triple
    block: Triple
    warps: int  #: of a CTA
    cluster: int  #: CTAs of a cluster, along x
    fills: int  #: fill patterns of what is uninitialised, each run by a twin of every CTA
    memory: GlobalMemory
    parameters: dict[tuple[int, int], np.ndarray]  #: values by (offset, size)
    shared_end: int  #: the address past a CTA's shared memory
    observers: Sequence[Observer]
    tick: "Callable[[Machine], None]"  #: called before every choice of the schedule
    clock: Clock = field(default_factory=Clock)
    scratch: dict[Any, np.ndarray] = field(default_factory=dict)  #: see `Machine.scratch`


def following(block: Block) -> int:
    """The block after one that ends without a condition."""
    number = block.next if block.branch is None else block.taken
    assert number is not None
    return number


class Machine:
    """What runs `ctas` (n, 3), a chunk of the launch's CTAs by their coordinates, in the order of `schedule`."""

    def __init__(self, context: Context, ctas: np.ndarray, schedule: Any):
        self.context, self.program, self.schedule = context, context.program, schedule
        self.code, self.blocks = context.program.flow.kernel.instructions, context.program.flow.blocks
        self.memory, self.fills, self.shared_end = context.memory, context.fills, context.shared_end
        self.ctas = ctas[schedule.order(len(ctas))]
        self.rows = len(ctas) * self.fills
        self.clusters = Clusters(self.ctas, context.cluster, context.grid, self.fills, context.warps)
        self.shared = np.empty((self.rows, -(-self.shared_end // 16)), np.complex128)
        for fill in range(self.fills):
            self.shared.view(np.uint8)[fill :: self.fills] = FILLS[fill]
        self.views: dict[int, np.ndarray] = {width: self.shared.view(dtype) for width, dtype in DTYPES.items()}
        self.mbarriers: dict[int, MBarrier] = {}  # by their shared address
        self.named: dict[int, NamedBarrier] = {}
        self.cluster_barrier = ClusterBarrier(self.clusters.number, context.warps)
        self.flying: list[Batch | Transfer] = []
        self.version = self.seen = self.idle = 0  # `idle`: blocks run since `version` was last seen to change
        #: Of each warp: how many wgmma it has executed, a hash of these and the index of the latest.
        self.products = np.zeros((3, self.rows, context.warps), np.uint64)
        self.executed = 0  # warp instructions, twins not counted
        self.copied = 0  # bytes of global memory that asynchronous copies have read
        self.parameters = {
            key: values if len(values) == 1 else np.tile(values, (len(ctas), 1, 1))
            for key, values in context.parameters.items()
        }
        observers = [observer.start(self) for observer in context.observers]
        self.events = Events([observer for observer in observers if observer is not None])
        self.groups = [self._first_group(*part) for part in schedule.partition(len(ctas), context.warps)]

    def _first_group(self, ctas, warps):
        """A group whose registers hold the fill patterns where they are read before they are written."""
        flow, fills = self.program.flow, np.array(FILLS[: self.fills], np.uint8)
        registers: list[Any] = [None] * len(flow.number)
        for name in flow.entry_live:
            size = flow.kernel.widths[name] // 8
            values = np.tile(fills[:, None], size).view(DTYPES[size]) if size else fills >= 0x80
            registers[flow.number[name]] = np.tile(values.reshape(-1, 1, 1), (ctas.stop - ctas.start, 1, 1))
        return Group(self, np.arange(ctas.start * self.fills, ctas.stop * self.fills), warps, registers)

    def load_shared(self, rows: np.ndarray, elements: np.ndarray, width: int) -> np.ndarray:
        """The `elements` of `width` bytes of the shared memory of `rows`."""
        view = self.views[width]
        return view.reshape(-1).take(rows * view.shape[1] + elements, mode="clip")

    def store_shared(self, rows: np.ndarray, elements: np.ndarray, width: int, data: np.ndarray) -> None:
        """The reverse of `load_shared`."""
        view = self.views[width]
        view.reshape(-1)[rows * view.shape[1] + elements] = data

    def scratch(self, slot: int, shape: tuple[int, ...]) -> np.ndarray:
        """A uint32 array whose memory the next call for the same slot and shape reuses."""
        key, pool = (slot, shape), self.context.scratch
        if key not in pool:
            if len(pool) > 64:
                pool.clear()
            pool[key] = np.empty(shape, np.uint32)
        return pool[key]

    def changed(self) -> None:
        """Something has happened that a waiting group may wait for."""
        self.version += 1

    def turn(self, group: Group, block: Block) -> None:
        """Counts a block; DeadlockError once the machine only spins."""
        self.idle = self.idle + 1 if self.version == self.seen else 0
        self.seen = self.version
        if self.idle > ENDLESS:
            ins = self.code[block.start]
            raise DeadlockError(f"Endless loop: {ENDLESS} blocks ran without a change of shared memory or a barrier; "
                                f"CTA {self.cta_of(group.rows[0])} warps {group.warps.tolist()} are at {ins.text!r} "
                                f"(PTX line {ins.line}).")  # fmt: skip

    def named_barrier(self, number: int) -> NamedBarrier:
        """The barrier of `bar` instructions with this number."""
        if not 0 <= number < 16:
            raise BarrierError(f"Barrier {number} does not exist (0 to 15).")
        return self.named.setdefault(number, NamedBarrier(number, self.rows))

    def cta_of(self, row: int) -> tuple[int, ...]:
        """Coordinates of the CTA of a row."""
        return tuple(int(x) for x in self.ctas[int(row) // self.fills])

    def special(self, group: Group, name: str, axis: str) -> np.ndarray:
        """The value of a special register for a group."""
        position = max("xyz".find(axis), 0)
        size, block, grid = self.clusters.size, self.context.block, self.context.grid
        if name in ("laneid", "warpid"):
            return ops.LANES if name == "laneid" else group.warps.astype(np.uint32)[None, :, None]
        if name == "tid":
            thread = group.warps[:, None] * WARP + np.arange(WARP)
            parts = thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1])
            return parts[position].astype(np.uint32)[None]
        if name in ("ctaid", "cluster_ctarank", "cluster_ctaid", "clusterid"):
            values = self.ctas[group.rows // self.fills, position].astype(np.uint32)
            if name != "ctaid":
                whole, inside = np.divmod(values, np.uint32(1 if position else size))
                values = whole if name == "clusterid" else inside
            return values[:1, None, None] if (values == values[0]).all() else values[:, None, None]
        uniform = {"ntid": block, "nctaid": grid, "nclusterid": (grid[0] // size, *grid[1:]),
                   "cluster_nctaid": (size, 1, 1), "cluster_nctarank": (size,),
                   "nwarpid": (self.context.warps,)}  # fmt: skip
        return np.full((1, 1, 1), uniform[name][position], np.uint32)

    def run(self) -> None:
        """Runs to the end. Raises the kernel's first `InterpreterError`."""
        while self.groups:
            self.context.tick(self)
            ready = [g for g in self.groups if g.parked != self.version]
            if not ready and not self.flying:
                raise DeadlockError(deadlock(self))
            choice = self.schedule.choose(ready, self.flying)
            if isinstance(choice, Group):
                self.advance(choice)
            else:
                self.land(choice)
        while self.flying:  # nobody waits for these any more, but they happen
            self.land(self.flying[0])

    def land(self, flight: Batch | Transfer) -> None:
        """Completes a batch of copies or a transfer, unless that has happened."""
        if flight in self.flying:
            self.flying.remove(flight)
            flight.land()

    def advance(self, group: Group) -> None:
        """Runs a group until it stops at a barrier, exits, splits or is preempted."""
        registers, functions, blocks = group.registers, self.program.functions, self.blocks
        self.clusters.started[group.slice] = True
        while True:
            if group.block == EXIT:
                self.groups.remove(group)
                group.finish()
                return
            block = blocks[group.block]
            self.turn(group, block)
            if block.waits:
                if not self.wait(group, block):
                    return
                continue
            taken = functions[block.number](group, registers)
            self.executed += (block.stop - block.start) * group.count
            if taken is None:
                group.block = following(block)
            elif not self.branch(group, block, taken):
                return
            spins = self.idle and self.idle % SPIN == 0
            if spins and any(g.parked != self.version for g in self.groups if g is not group):
                self.groups.remove(group)  # it may wait in a loop for what another group writes
                self.groups.append(group)
                return
            if self.schedule.dares("cut"):
                return

    def branch(self, group: Group, block: Block, taken: np.ndarray) -> bool:
        """Follows a conditional branch; False if the group has split."""
        assert block.branch is not None and block.taken is not None and block.next is not None
        if taken.size > 1:
            self.events.decides(group, block.branch.index, taken, "the branch condition")
        first = taken[0, 0, 0]
        if taken.size == 1 or (taken == first).all():
            group.block = block.taken if first else block.next
            return True
        warpwise = taken.shape[2] == 1 or bool((taken.any(axis=2) == taken.all(axis=2)).all())
        if not warpwise:
            self.check_uniform(group, block, taken, ~taken)
        if warpwise and (block.region_waits or block.region_polls or block.join == EXIT):
            self.split(group, taken[:, :, 0], block.taken, block.next)
            return False
        if block.region_waits:
            what = "Lanes of one warp part in front of code that blocks"
            raise group.error(DivergenceError, what, block.branch.index, taken)
        self.run_masked(group, block, taken)
        group.block = block.join
        return True

    def check_uniform(self, group: Group, block: Block, jump: np.ndarray, stay: np.ndarray) -> None:
        """Raises where lanes of one warp take a `bra.uni` and others do not."""
        assert block.branch is not None
        if "uni" not in block.branch.op:
            return
        apart = jump.any(axis=2, keepdims=True) & stay.any(axis=2, keepdims=True)
        if apart.any():
            raise group.error(DivergenceError, "Lanes of one warp part", block.branch.index, jump & apart)

    def split(self, group: Group, chosen: np.ndarray, target: int, other: int) -> None:
        """Replaces a group by parts: the (CTA, warp) pairs in `chosen` go to block `target`, the rest to `other`."""
        chosen = np.broadcast_to(chosen, (len(group.rows), len(group.warps)))
        patterns, which = np.unique(chosen, axis=1, return_inverse=True)
        parts = []
        for i in range(patterns.shape[1]):
            warps = np.flatnonzero(which.reshape(-1) == i)
            for value, number in ((True, target), (False, other)):
                rows = np.flatnonzero(patterns[:, i] == value)
                if rows.size:
                    part = group.part(None if rows.size == len(group.rows) else rows,
                                      None if warps.size == len(group.warps) else warps)  # fmt: skip
                    part.block = number
                    parts.append(part)
        at = self.groups.index(group)
        self.groups[at : at + 1] = parts
        self.changed()

    def run_masked(self, group: Group, block: Block, taken: np.ndarray) -> None:
        """Runs both sides of a branch up to its post-dominator, each for its own lanes."""
        stack: list[list[Any]] = [[block.next, block.join, ~taken], [block.taken, block.join, taken]]
        while stack:
            number, stop, mask = stack[-1]
            if number == stop or number == EXIT:
                stack.pop()
                continue
            block = self.blocks[number]
            self.turn(group, block)
            taken = self.program.masked(number)(group, group.registers, mask)
            active = mask.any(axis=2)
            repeats = (len(group.rows) // active.shape[0]) * (len(group.warps) // active.shape[1])
            self.executed += (block.stop - block.start) * (int(active.sum()) * repeats // self.fills)
            if taken is None:
                stack[-1][0] = following(block)
                continue
            self.events.decides(group, block.stop - 1, taken, "the branch condition", mask)
            jump, stay = taken & mask, ~taken & mask
            if not stay.any():
                stack[-1][0] = block.taken
            elif not jump.any():
                stack[-1][0] = block.next
            else:
                self.check_uniform(group, block, jump, stay)
                stack[-1][0] = block.join
                stack += [[block.next, block.join, stay], [block.taken, block.join, jump]]

    def wait(self, group: Group, block: Block) -> bool:
        """Tries to pass the blocking instruction; False if the group is parked or has split."""
        ins = self.code[block.start]
        first = group.waiting is None
        if first and (same := choice(group, ins)) is not None:
            self.split(group, same, block.number, block.number)
            return False
        ready = attempt(group, ins)
        assert group.waiting is not None
        if ready is True:
            self.events.resumed(group, ins.index, group.waiting[1])
            self.executed += group.count
            group.waiting = group.opened = None
            group.block = following(block)
            return True
        if first:
            self.events.blocked(group, ins.index, group.waiting[1])
        if ready is not False and ready.any():
            self.split(group, ready, block.number, block.number)
            return False
        group.parked = self.version
        return False
