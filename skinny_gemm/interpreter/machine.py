"""One chunk of CTAs: shared memory, barriers, and the loop that runs groups of warps until all have exited.

Values and memory are batched over the chunk's CTAs; with checks on, every CTA has a twin whose uninitialised bytes
hold another pattern. Groups start whole and split where their warps part.
"""

from functools import cache

import numpy as np

from . import arithmetic as ops
from .barriers import ClusterBarrier, MBarrier, NamedBarrier
from .clusters import Clusters
from .errors import BarrierError, DeadlockError, DivergenceError
from .flow import EXIT
from .group import Group
from .memory import DTYPES
from .parser import Address, Imm
from .races import Races

#: Bytes that uninitialised memory and registers hold: BF16 and FP32 NaN, and an ordinary number (0.75).
FILLS = (0xFF, 0x3F)
SPIN = 1 << 10  #: such blocks after which another group has its turn
ENDLESS = 1 << 17  #: blocks run one after the other with no effect on shared memory: a loop that spins


@cache
def constant(value: int) -> np.ndarray:
    """An integer as a value that all share."""
    return np.full((1, 1, 1), value, np.int64)


class Machine:
    """`launch` is the `Launch` (see launch.py); `ctas` (n, 3) are the CTA coordinates of this chunk."""

    def __init__(self, launch, ctas, schedule):
        self.launch, self.program, self.schedule = launch, launch.program, schedule
        self.code, self.blocks = launch.program.flow.kernel.instructions, launch.program.flow.blocks
        self.memory, self.fills = launch.memory, launch.fills
        self.ctas = ctas[schedule.order(len(ctas))]
        self.rows = len(ctas) * self.fills
        self.clusters = Clusters(self.ctas, launch.cluster, launch.grid, self.fills, launch.warps)
        self.shared_end = launch.shared_end
        self.pool = launch.scratch
        self.shared = np.empty((self.rows, -(-self.shared_end // 16)), np.complex128)
        for fill in range(self.fills):
            self.shared.view(np.uint8)[fill :: self.fills] = FILLS[fill]
        self.views = {}
        self.mbarriers: dict[int, MBarrier] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.cluster_barrier = ClusterBarrier(self.clusters.number, launch.warps)
        self.flying = []
        self.version = 0
        self.idle, self.seen = 0, 0  # blocks run since `version` was last seen to change
        self.executed = 0  # warp instructions, twins not counted
        self.copied = 0  # bytes of global memory that asynchronous copies have read
        self.trace = launch.trace
        self.parameters = {}
        for key, values in launch.parameters.items():
            self.parameters[key] = values if len(values) == 1 else np.tile(values, (len(ctas), 1, 1))
        watched = np.array([self.fills * i for i, cta in enumerate(self.ctas) if launch.watches(cta)], np.int64)
        self.races = Races(self, watched) if watched.size else None
        self.groups = [self.first_group(*part) for part in schedule.partition(len(ctas), launch.warps)]

    def first_group(self, ctas, warps):
        flow = self.program.flow
        rows = np.arange(self.rows)[ctas.start * self.fills : ctas.stop * self.fills]
        registers = [None] * len(flow.number)
        for name in flow.entry_live:
            width = flow.kernel.widths[name]
            registers[flow.number[name]] = self.undefined(width, len(rows))
        return Group(self, rows, warps, registers)

    def undefined(self, width, rows):
        """What a register holds that was never written: the fill patterns."""
        if width == 1:
            values = np.array([bool(f & 0x80) for f in FILLS[: self.fills]])
        else:
            values = np.array([[f] * (width // 8) for f in FILLS[: self.fills]], np.uint8).view(DTYPES[width // 8])
        return np.tile(values.reshape(-1, 1, 1), (rows // self.fills, 1, 1))

    # State

    def shared_view(self, width):
        if width not in self.views:
            self.views[width] = self.shared.view(DTYPES[width])
        return self.views[width]

    def scratch(self, slot, shape):
        """A uint32 array whose memory the next call for the same slot and shape reuses."""
        key = slot, shape
        if key not in self.pool:
            if len(self.pool) > 64:
                self.pool.clear()
            self.pool[key] = np.empty(shape, np.uint32)
        return self.pool[key]

    def changed(self):
        self.version += 1

    def turn(self, group, block):
        """Counts a block; DeadlockError once the machine only spins."""
        self.idle = self.idle + 1 if self.version == self.seen else 0
        self.seen = self.version
        if self.idle > ENDLESS:
            ins = self.code[block.start]
            cta = self.cta_of(group.rows[0])
            raise DeadlockError(
                f"Endless loop: {ENDLESS} blocks ran without a change of shared memory or a barrier; "
                f"CTA {cta} warps {group.warps.tolist()} are at {ins.text!r} (PTX line {ins.line})."
            )

    def spins(self) -> bool:
        """Whether another group should have its turn: this one may wait in a loop for what that one writes."""
        return self.idle > 0 and self.idle % SPIN == 0

    def barrier(self, address, create=False):
        if create and address not in self.mbarriers:
            self.mbarriers[address] = MBarrier(address, self.rows, len(self.mbarriers))
        return self.mbarriers.get(address)

    def named_barrier(self, number):
        if not 0 <= number < 16:
            raise BarrierError(f"Barrier {number} does not exist (0 to 15).")
        return self.named.setdefault(number, NamedBarrier(number, self.rows))

    def cta_of(self, row) -> tuple[int, int, int]:
        """Coordinates of the CTA of a row."""
        return tuple(int(x) for x in self.ctas[int(row) // self.fills])

    def special(self, group, name, axis):
        """The value of a special register for a group."""
        position = max("xyz".find(axis), 0)
        launch, size = self.launch, self.clusters.size
        block, grid = launch.block, launch.grid
        if name in ("laneid", "warpid"):
            return ops.LANES if name == "laneid" else group.warps.astype(np.uint32)[None, :, None]
        if name == "tid":
            thread = group.warps[:, None] * ops.WARP + np.arange(ops.WARP)
            parts = thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1])
            return parts[position].astype(np.uint32)[None]
        if name in ("ctaid", "cluster_ctarank", "cluster_ctaid", "clusterid"):
            if name.startswith("cluster_") and position == 0:
                values = self.clusters.rank[group.rows]
            else:
                values = self.ctas[group.rows // self.fills, position]
                values = {"ctaid": values, "clusterid": values // (1 if position else size)}.get(name, 0 * values)
            values = values.astype(np.uint32)
            return values[:1, None, None] if (values == values[0]).all() else values[:, None, None]
        cluster = (size, 1, 1)
        clusters = grid[0] // size, *grid[1:]
        uniform = {"ntid": block, "nctaid": grid, "cluster_nctaid": cluster, "nclusterid": clusters,
                   "cluster_nctarank": (size,), "nwarpid": (launch.warps,)}  # fmt: skip
        return np.full((1, 1, 1), uniform[name][position], np.uint32)

    # The loop

    def run(self):
        """Runs to the end. Raises the kernel's first `InterpreterError`."""
        while self.groups:
            self.launch.tick(self)
            ready = [g for g in self.groups if g.parked != self.version]
            if not ready and not self.flying:
                raise DeadlockError(self.deadlock())
            choice = self.schedule.choose(ready, self.flying)
            if isinstance(choice, Group):
                self.advance(choice)
            else:
                self.land(choice)
        while self.flying:  # nobody waits for these any more, but they happen
            self.land(self.flying[0])

    def fraction(self) -> float:
        """Roughly how much of the chunk is done: how far its warps have come in the program text."""
        left = sum(g.count * (1 - g.block / len(self.blocks)) for g in self.groups if g.block != EXIT)
        return 1 - left / (len(self.ctas) * self.launch.warps)

    def land(self, flight):
        """Completes a batch of copies or a transfer: its bytes become visible, then its arrivals happen."""
        if not flight.landed:
            self.flying.remove(flight)
            flight.land()

    def record_landing(self, flight, barrier):
        """Tells the trace that a copy or transfer has landed and has reached a barrier."""
        ins = self.code[flight.index]
        if self.trace is not None and self.trace.wants(ins):
            self.trace.record(flight.place, ins, "land", flight.mask, None, barrier, flight.receivers)

    def advance(self, group):
        """Runs a group until it stops at a barrier, exits, splits or is preempted."""
        registers, functions, blocks = group.registers, self.program.functions, self.blocks
        schedule = self.schedule
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
                group.block = block.next if block.branch is None else block.taken
            elif not self.branch(group, block, taken):
                return
            if (
                self.idle
                and self.idle % SPIN == 0
                and any(g.parked != self.version for g in self.groups if g is not group)
            ):
                self.groups.remove(group)
                self.groups.append(group)
                return
            if schedule.preempts():
                return

    def branch(self, group, block, taken) -> bool:
        """Follows a conditional branch; False if the group has split."""
        if taken.size == 1:
            group.block = block.taken if taken[0, 0, 0] else block.next
            return True
        if self.fills > 1 and taken.shape[0] > 1:
            group.check_poison(block.branch.index, taken, "the branch condition")
        if taken.all():
            group.block = block.taken
            return True
        if not taken.any():
            group.block = block.next
            return True
        warpwise = taken.shape[2] == 1 or bool((taken.any(axis=2) == taken.all(axis=2)).all())
        if warpwise and (block.region_waits or block.region_polls or block.join == EXIT):
            self.split(group, taken[:, :, 0], block.taken, block.next)
            return False
        if block.region_waits:
            raise DivergenceError(
                f"Lanes of one warp part in front of code that blocks: {group.place_of(block.branch.index, taken)}."
            )
        self.run_masked(group, block, taken)
        group.block = block.join
        return True

    def split(self, group, chosen, here, there):
        """Replaces a group by parts: the (CTA, warp) pairs in `chosen` go to block `here`, the others `there`."""
        chosen = np.broadcast_to(chosen, (len(group.rows), len(group.warps)))
        patterns, which = np.unique(chosen, axis=1, return_inverse=True)
        at = self.groups.index(group)
        parts = []
        for i in range(patterns.shape[1]):
            warps = np.flatnonzero(which.reshape(-1) == i)
            for value, target in ((True, here), (False, there)):
                rows = np.flatnonzero(patterns[:, i] == value)
                if rows.size:
                    part = group.part(None if rows.size == len(group.rows) else rows,
                                      None if warps.size == len(group.warps) else warps)  # fmt: skip
                    part.block = target
                    parts.append(part)
        self.groups[at : at + 1] = parts
        self.changed()

    def run_masked(self, group, block, taken):
        """Runs both sides of a branch up to its post-dominator, each for its own lanes."""
        stack = [[block.next, block.join, ~taken], [block.taken, block.join, taken]]
        registers = group.registers
        while stack:
            number, stop, mask = stack[-1]
            if number == stop or number == EXIT:
                stack.pop()
                continue
            block = self.blocks[number]
            self.turn(group, block)
            taken = self.program.masked(number)(group, registers, mask)
            self.executed += (block.stop - block.start) * self.warps_in(group, mask)
            if taken is None:
                stack[-1][0] = block.next if block.branch is None else block.taken
                continue
            group.check_poison(block.branch.index, taken, "the branch condition", mask)
            here, there = taken & mask, ~taken & mask
            if not there.any():
                stack[-1][0] = block.taken
            elif not here.any():
                stack[-1][0] = block.next
            else:
                stack[-1][0] = block.join
                stack += [[block.next, block.join, there], [block.taken, block.join, here]]

    def warps_in(self, group, mask) -> int:
        """Warps of a group with an active lane in `mask`, twins counted once."""
        active = mask.any(axis=2)
        scale = (len(group.rows) // active.shape[0]) * (len(group.warps) // active.shape[1])
        return int(active.sum()) * scale // self.fills

    # Waiting

    def wait(self, group, block) -> bool:
        """Tries to pass the blocking instruction; False if the group is parked or has split."""
        ins = self.code[block.start]
        first = group.waiting is None
        if ins.op[0] == "mbarrier":
            ready = self.try_wait(group, ins)
        else:
            ready = self.cluster_wait(group, ins) if ins.op[1] == "cluster" else self.bar(group, ins)
        if self.trace is not None and self.trace.wants(ins) and (ready is True or first):
            self.trace.record(group, ins, "pass" if ready is True else "wait", None, None, group.waiting[1])
        if ready is True:
            self.executed += group.count
            group.waiting = group.opened = None
            group.block = block.next
            return True
        if ready is not False and ready.any():
            self.split(group, ready, block.number, block.number)
            return False
        group.parked = self.version
        return False

    def operand(self, group, operand):
        """The value of an operand of a blocking instruction, as an array of unsigned bits."""
        flow = self.program.flow
        if isinstance(operand, Address):
            if operand.base is None:
                return constant(operand.offset)
            base = group.registers[flow.number[operand.base.name]]
            return base + np.uint32(operand.offset & 0xFFFFFFFF) if operand.offset else base
        if isinstance(operand, Imm):
            return constant(operand.value)
        return group.registers[flow.number[operand.name]]

    def bar(self, group, ins):
        """`bar.sync`: arrives once, then waits for the opening. True, False, or ready per (CTA, 1)."""
        operands = [self.operand(group, o) for o in ins.operands]
        if any(o.size > 1 for o in operands):
            raise BarrierError(f"{ins.text!r} (PTX line {ins.line}) has operands that differ between threads.")
        barrier = self.named_barrier(int(operands[0][0, 0, 0]))
        if group.opened is None:
            threads = int(operands[1][0, 0, 0]) if len(operands) > 1 else self.launch.warps * ops.WARP
            if threads % ops.WARP or not 0 < threads <= self.launch.warps * ops.WARP:
                raise BarrierError(f"{ins.text!r} (PTX line {ins.line}) expects {threads} threads, which is not a "
                                   f"multiple of 32 up to the CTA's {self.launch.warps * ops.WARP}.")  # fmt: skip
            group.opened = barrier.opened[group.slice].copy()
            group.waiting = ins, barrier, None
            try:
                group.join(barrier, threads)
            except BarrierError as error:
                raise BarrierError(f"{ins.text!r} (PTX line {ins.line}): {error}.") from None
            self.changed()
        ready = barrier.opened[group.slice] > group.opened
        if self.races and ready.all():
            self.races.acquire(group, barrier)
        return bool(ready[0]) if (ready == ready[0]).all() else ready[:, None]

    def cluster_wait(self, group, ins):
        """`barrier.cluster.wait`: True, False, or ready per (CTA, 1)."""
        barrier = self.cluster_barrier
        group.waiting = ins, barrier, None
        try:
            ready = barrier.wait(group.rows, group.warps)
        except BarrierError as error:
            raise BarrierError(f"{error}: {group.place_of(ins.index)}.") from None
        if not ready.all():
            return ready[:, None] if ready.any() else False
        barrier.passed(group.rows, group.warps)
        if self.races:
            self.races.acquire_cluster(group)
        return True

    def try_wait(self, group, ins):
        """`mbarrier.try_wait` and `test_wait`: the predicate becomes true when the phase is over."""
        d, a, phase, *_ = ins.operands
        address, phase = self.operand(group, a), self.operand(group, phase)
        if "parity" in ins.op and (phase > 1).any():
            group.check_poison(ins.index, phase, "the parity")
            raise BarrierError(f"A parity is 0 or 1, not {int(phase.max())}: {group.place_of(ins.index, phase > 1)}.")
        if address.size == 1 and phase.size == 1 and "parity" in ins.op:
            barrier = group.barrier_at(ins.index, int(address[0, 0, 0]), group.slice, False)
            done = (barrier.phase[group.slice] & 1) != int(phase[0, 0, 0])
            group.waiting, passed = (ins, barrier, int(phase[0, 0, 0])), [barrier]
            ready = bool(done[0]) if (done == done[0]).all() else done[:, None]
        else:
            shape = (len(group.rows), len(group.warps), ops.WARP)
            addresses, phases = np.broadcast_to(address, shape), np.broadcast_to(phase, shape)
            done = np.zeros(shape, bool)
            passed = [barrier for barrier, _, _ in group.barriers(ins.index, address, None)]
            for barrier in passed:
                now = barrier.phase[group.rows][:, None, None]
                over = (now & 1) != phases if "parity" in ins.op else now > phases
                done |= (addresses == barrier.address) & over
                group.waiting = ins, barrier, int(phases[0, 0, 0])
            ready = done.all(axis=2)
            ready = bool(ready[0, 0]) if (ready == ready[0, 0]).all() else ready
        number = self.program.flow.number[d.name]
        if ready is True:
            given_up = "try_wait" in ins.op and self.schedule.gives_up()
            group.registers[number] = ops.FALSE if given_up else ops.TRUE
            if self.races and not given_up:
                self.races.access(group, ins.index, address, 8, None, False)
                scope = "cluster" if "cluster" in ins.op else "cta"
                for barrier in passed:
                    self.races.acquire(group, barrier, scope)
        return ready

    def deadlock(self) -> str:
        """The sentence for a deadlock: who waits for what, and what is missing."""
        parts = []
        for group in self.groups[:4]:
            ins, barrier, parity = group.waiting
            row = int(group.rows[0])
            what = barrier.waiting(row, parity)
            if isinstance(barrier, MBarrier):
                what += f" ({self.arrivers(barrier.address)})"
            elif isinstance(barrier, ClusterBarrier):
                what += f" ({self.absent(row)})"
            parts.append(f"CTA {self.cta_of(row)} warps {group.warps.tolist()} wait at PTX line {ins.line} on {what}")
        rest = len(self.groups) - 4
        return "Deadlock: " + "; ".join(parts) + (f"; and {rest} more groups wait." if rest > 0 else ".")

    def arrivers(self, address) -> str:
        """Where the program arrives at a barrier whose address is written out."""
        lines = [
            ins.line
            for ins in self.code
            if "arrive" in ins.op
            and any(isinstance(o, Address) and o.base is None and o.offset == address for o in ins.operands)
        ]
        if not lines:
            return "no instruction with this literal address arrives there"
        return f"arrivals are at PTX line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:8]))}"

    def absent(self, row) -> str:
        """Which CTAs of a row's cluster have threads that are yet to arrive at the cluster barrier."""
        barrier, clusters = self.cluster_barrier, self.clusters
        peers = clusters.peers[row]
        phase = barrier.opened[barrier.cluster[row]]
        late = (barrier.arrivals[peers] <= phase).any(axis=(1, 2)) & (clusters.alive[peers] > 0)
        return f"of CTA ranks {np.flatnonzero(late).tolist()}"
