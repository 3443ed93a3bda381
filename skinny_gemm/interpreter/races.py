"""Vector clocks over shared memory: two accesses of one word that nothing orders, at least one a write, are a race.

Agents are the CTA's warps and, for each warp, its asynchronous copies: a copy begins after its issue and is ordered
before nothing until its mbarrier or `wait_group` completes. Clocks travel through mbarriers and named barriers. The
words of an mbarrier are memory too: its initialisation must be ordered before every use.

Lanes of one warp run in step and are not checked against each other. But what one lane releases at a barrier covers the
accesses of the others only up to the warp's last `bar.warp.sync`: an elected lane must not free a stage that the others
may still be reading.

All CTAs run the same program, so a few of them (`rows`, of a chunk) stand for all.
"""

import numpy as np

from .barriers import NamedBarrier
from .errors import RaceError
from .parser import SHARED_BASE

LANE_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)
ALL_LANES = np.uint32(0xFFFFFFFF)
WORD = 4  #: bytes of a cell; coarser cells report neighbours that merely share one


class Races:
    def __init__(self, machine, rows):
        self.machine, self.rows = machine, rows
        self.count = machine.launch.warps
        n, agents = len(rows), 2 * self.count
        self.row = np.full(machine.rows, -1)
        self.row[rows] = np.arange(n)
        self.clock = np.zeros((n, self.count, agents), np.int32)  # [r, w]: what warp w knows of every agent
        self.clock[:, np.arange(self.count), np.arange(self.count)] = 1
        self.common = np.zeros_like(self.clock)  # what any one lane of a warp may release, for all of them
        self.lanes = np.zeros((n, self.count), np.uint32)  # bits of those that accessed shared memory since
        self.ticks = np.zeros((n, self.count), np.int32)  # completed groups of copies that each warp has issued
        self.cells = -(-machine.shared_end // WORD)  # of one CTA
        self.write_agent = np.zeros(n * self.cells, np.int16)
        self.write_time = np.zeros(n * self.cells, np.int32)
        self.write_index = np.zeros(n * self.cells, np.int32)
        self.read_time = np.zeros((n * self.cells, self.count), np.int32)
        self.read_index = np.zeros((n * self.cells, self.count), np.int32)
        self.barriers = {}  # barrier object -> clocks [joined by arrivals, handed out by completed phases]

    def at(self, place):
        """(indices into the place's rows, into this object's) of the watched CTAs."""
        r = self.row[place.rows]
        here = np.flatnonzero(r >= 0)
        return here, r[here]

    # Accesses: cells are numbered through all watched CTAs

    def access(self, place, index, addresses, width, mask, write):
        """Checks and records an access within bounds by every warp of a place; `addresses` (CTAs, warps, lanes)."""
        here, r = self.at(place)
        for i, w in enumerate(place.warps.tolist() if here.size else ()):
            cells = self.cells_of(here, r, i, addresses, width, mask)
            rows = cells // self.cells
            self.lanes[r, w] |= active_lanes(here, i, mask)
            self.check(index, rows, cells, w, self.clock[:, w], write)
            time = self.clock[rows, w, w]
            if write:
                self.wrote(cells, w, time, index)
            else:
                self.read_time[cells, w] = time
                self.read_index[cells, w] = index

    def cells_of(self, here, r, i, addresses, width, mask):
        """The cells that warp number `i` of a place touches."""
        part = addresses[here if addresses.shape[0] > 1 else slice(0, 1), i if addresses.shape[1] > 1 else 0]
        part = part.astype(np.int64) // WORD + (r * self.cells)[:, None]
        if mask is not None:
            keep = mask[here if mask.shape[0] > 1 else slice(0, 1), i if mask.shape[1] > 1 else 0]
            shape = len(r), max(part.shape[1], keep.shape[1])
            part = np.broadcast_to(part, shape)[np.broadcast_to(keep, shape)]
        return (part[..., None] + np.arange(max(width // WORD, 1))).reshape(-1)

    def check(self, index, rows, cells, agent, known, write):
        """Raises if an agent that knows `known` (CTAs, agents) is not ordered after what is recorded at `cells`."""
        last = self.write_agent[cells]
        bad = self.write_time[cells] > known[rows, last]
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            other = self.write_index[cells[i]], int(last[i])
            self.report(index, int(cells[i]), agent, write, other, True)
        if write:
            bad = self.read_time[cells] > known[rows, : self.count]
            if bad.any():
                i, reader = (int(x[0]) for x in np.nonzero(bad))
                self.report(index, int(cells[i]), agent, write, (self.read_index[cells[i], reader], reader), False)

    def wrote(self, cells, agent, time, index):
        self.write_agent[cells] = agent
        self.write_time[cells] = time
        self.write_index[cells] = index

    def report(self, index, cell, agent, write, other, other_writes):
        code, machine = self.machine.code, self.machine
        cta = tuple(int(x) for x in machine.ctas[self.rows[cell // self.cells] // machine.fills])
        here, there = code[index], code[other[0]]

        def side(ins, a, writes):
            who = f"warp {a}" if a < self.count else f"an unfinished copy of warp {a - self.count}"
            return f"{who} {'writes' if writes else 'reads'} in {ins.text!r} (PTX line {ins.line})"

        raise RaceError(
            f"Race on shared address {cell % self.cells * WORD - SHARED_BASE} of CTA {cta}: "
            f"{side(there, other[1], other_writes)} and {side(here, agent, write)}, and nothing orders the two."
        )

    # Copies

    def issued(self, place):
        """What a copy issued now carries along: the clocks of all warps, and the ticks their next groups will have."""
        _, r = self.at(place)
        clock = self.clock.copy()
        for w in place.warps if r.size else ():
            self.clock[r, w, w] += 1  # what the warp does from now on is not before the copy
        return clock, self.ticks + 1

    def landed(self, place, copies):
        """Checks and records the writes of copies, each with the clock of its issue."""
        here, r = self.at(place)
        for copy in copies if here.size else ():
            clock, ticks = copy.issued
            for i, w in enumerate(place.warps.tolist()):
                cells = self.cells_of(here, r, i, copy.dst, copy.size, copy.mask)
                rows, agent = cells // self.cells, self.count + w
                self.check(copy.index, rows, cells, agent, clock[:, w], True)
                self.wrote(cells, agent, ticks[rows, w], copy.index)

    def tick(self, place):
        """The copies that a place has issued so far form a group; returns the ticks."""
        _, r = self.at(place)
        self.ticks[np.ix_(r, place.warps)] += 1
        return self.ticks.copy()

    def waited(self, place, keep):
        """A place has waited for all but its latest `keep` groups."""
        _, r = self.at(place)
        for w in place.warps if r.size else ():
            agent = self.count + w
            self.clock[r, w, agent] = np.maximum(self.clock[r, w, agent], self.ticks[r, w] - keep)

    # Barriers

    def clocks_of(self, barrier):
        if id(barrier) not in self.barriers:
            shape = (len(self.rows), 2 * self.count)
            self.barriers[id(barrier)] = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        return self.barriers[id(barrier)]

    def release(self, place, barrier, mask, opened):
        """Warps with an active lane arrive: what they know goes to the barrier; `opened`: rows whose phase is over."""
        here, r = self.at(place)
        joined, _ = self.clocks_of(barrier)
        for i, w in enumerate(place.warps if here.size else ()):
            lanes = np.broadcast_to(active_lanes(here, i, mask), r.shape)
            rows, lanes = r[lanes > 0], lanes[lanes > 0]
            alone = (self.lanes[rows, w] & ~lanes) == 0  # no other lane did anything that this must order
            known = np.where(alone[:, None], self.clock[rows, w], self.common[rows, w])
            joined[rows] = np.maximum(joined[rows], known)
            self.clock[rows, w, w] += 1
        self.complete(barrier, opened)

    def synchronized(self, place):
        """The lanes of each warp of a place have met: each of them may now release what all have done."""
        _, r = self.at(place)
        for w in place.warps if r.size else ():
            self.common[r, w] = self.clock[r, w]
            self.clock[r, w, w] += 1
            self.lanes[r, w] = 0

    def release_copies(self, place, barrier, ticks, opened):
        """The copies of a place up to `ticks` are done and arrive at a barrier."""
        here, r = self.at(place)
        joined, _ = self.clocks_of(barrier)
        for w in place.warps if here.size else ():
            agent = self.count + w
            joined[r, agent] = np.maximum(joined[r, agent], ticks[r, w])
        self.complete(barrier, opened)

    def complete(self, barrier, opened):
        joined, handed = self.clocks_of(barrier)
        done = opened[self.rows]
        handed[done] = joined[done]

    def acquire(self, place, barrier):
        """A place has passed a barrier: it learns what the completed phases know."""
        _, r = self.at(place)
        _, handed = self.clocks_of(barrier)
        for w in place.warps if r.size else ():
            self.clock[r, w] = np.maximum(self.clock[r, w], handed[r])
            self.common[r, w] = np.maximum(self.common[r, w], handed[r])
        if isinstance(barrier, NamedBarrier):
            self.synchronized(place)


def active_lanes(here, i, mask):
    """Bits of the active lanes of warp number `i` of a place, per watched CTA (or one number for all)."""
    if mask is None:
        return ALL_LANES
    part = mask[here if mask.shape[0] > 1 else slice(0, 1), i if mask.shape[1] > 1 else 0]
    return (np.broadcast_to(part, (len(part), 32)) * LANE_BITS).sum(axis=-1, dtype=np.uint32)
