"""Vector clocks over the shared memory of a cluster: two accesses of one word that nothing orders, at least one a
write, are a race.

Every watched CTA has an index `q`, every warp of it an index `q * warps + w`. Clocks have a column for each agent of
the cluster:

- its warps;
- per warp its `cp.async` copies: a copy begins after its issue and is ordered before nothing until its mbarrier or
  `wait_group` completes;
- per warp its mbarrier initialisations, which `fence.mbarrier_init` alone can publish through a relaxed arrival;
- per CTA its start, which any cluster barrier makes known: before, its shared memory is out of bounds to the others;
- per mbarrier the transfers that complete there, from this CTA and from others: their time is the phase.

Clocks travel through mbarriers, named barriers and cluster barriers. A wait with CTA scope learns nothing that comes
from another CTA, nor does an arrival at another CTA's mbarrier say anything without cluster scope. The words of an
mbarrier are memory too: its initialisation must be ordered before every use. A CTA must not exit before what others do
to its shared memory is ordered before the exit of one of its warps.

Lanes of one warp run in step here, but on a GPU only `bar.warp.sync` orders them: what lanes exchange through a word
of shared memory needs one in between, and what one lane releases at a barrier covers the accesses of the others only
up to the last one. An elected lane must not free a stage that the others may still be reading.

All clusters run the same program, so a few of them stand for all.
"""

from functools import cache

import numpy as np

from .barriers import NamedBarrier
from .clusters import OFFSET, RANK_SHIFT
from .errors import RaceError
from .parser import SHARED_BASE

LANE_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)
ALL_LANES = np.uint32(0xFFFFFFFF)
KEPT_READS = 256  #: reads of another CTA's memory that are remembered before those known to all are forgotten
WORD = 4  #: bytes of a cell; coarser cells report neighbours that merely share one


class Races:
    """`rows` are those of all CTAs of the watched clusters, one of each pair of twins."""

    def __init__(self, machine, rows):
        clusters = machine.clusters
        self.machine, self.warps, self.size = machine, machine.launch.warps, clusters.size
        self.rows = rows[np.lexsort((clusters.rank[rows], clusters.number[rows]))]
        n, own = len(rows), clusters.size * self.warps
        self.row = np.full(machine.rows, -1)
        self.row[self.rows] = np.arange(n)
        self.rank = np.arange(n) % self.size
        self.own = own  #: columns of warps; as many of copies and of initialisations follow
        self.starts = 3 * own  #: first column of the starts
        self.transfers = self.starts + self.size  #: first column of the mbarriers' transfers
        self.clock = np.zeros((n * self.warps, self.transfers), np.int32)  # [agent]: what a warp knows of every agent
        agents = np.arange(n * self.warps)
        self.column = agents % own  # of each warp itself
        self.clock[agents, self.starts + self.rank[agents // self.warps]] = 1
        self.common = self.clock.copy()  # what any one lane of a warp may release, for all of them
        self.published = self.clock.copy()  # what a relaxed arrival at the cluster barrier releases
        self.clock[agents, self.column] = self.clock[agents, 2 * own + self.column] = 1
        self.lanes = np.zeros(n * self.warps, np.uint32)  # bits of those that accessed shared memory since
        self.ticks = np.zeros(n * self.warps, np.int32)  # completed groups of copies that each warp has issued
        self.cells = -(-machine.shared_end // WORD)  # of one CTA
        self.write_agent = np.zeros(n * self.cells, np.int32)
        self.write_time = np.zeros(n * self.cells, np.int32)
        self.write_index = np.zeros(n * self.cells, np.int32)
        self.read_time = np.zeros((n * self.cells, self.warps), np.int32)  # by warps of the CTA itself
        self.read_index = np.zeros((n * self.cells, self.warps), np.int32)
        self.write_lanes = np.zeros(n * self.cells, np.uint32)  # bits of the lanes of the last access of a kind
        self.read_lanes = np.zeros((n * self.cells, self.warps), np.uint32)
        self.remote_reads = [[] for _ in range(n)]  # of each CTA: (cells, column, time, index, lanes)
        self.touched = {}  # (q, column of another CTA's warp or of a transfer) -> (latest time, index)
        self.left = np.zeros((n, self.transfers), np.int32)  # what the exited warps of each CTA knew
        self.barriers = {}  # barrier object -> clocks [joined by arrivals, handed out by completed phases]
        shape = n // self.size, self.transfers
        self.joined, self.handed = np.zeros(shape, np.int32), np.zeros(shape, np.int32)  # of the cluster barriers

    def at(self, place):
        """(indices into the place's rows, CTA indices) of the watched CTAs."""
        q = self.row[place.rows]
        here = np.flatnonzero(q >= 0)
        return here, q[here]

    def agents(self, place):
        """The indices of a place's watched warps, CTAs first."""
        _, q = self.at(place)
        return (q[:, None] * self.warps + place.warps).reshape(-1)

    def advance(self, agents):
        """What the warps do from now on is not before what they have released."""
        self.clock[agents, self.column[agents]] += 1
        self.clock[agents, 2 * self.own + self.column[agents]] += 1

    # Accesses: cells are numbered through all watched CTAs

    def access(self, place, index, addresses, width, mask, write, rows=None, record=True):
        """Checks and records an access within bounds by every warp of a place; `addresses` (CTAs, warps, lanes) are
        offsets in each thread's own CTA, or in those of `rows`. Without `record` it is yet to happen."""
        here, q = self.at(place)
        for i, w in enumerate(place.warps.tolist() if here.size else ()):
            cells, near, lanes = self.cells_of(here, q, i, addresses, width, mask, rows)
            agents = near * self.warps + w
            if record:
                self.lanes[q * self.warps + w] |= active_lanes(here, i, mask)
            far = rows is not None and cells // self.cells != near
            if far is not False and far.any():
                self.reach(index, cells[far], agents[far], lanes[far], write, record)
            column = self.column[agents]
            self.check(index, cells, agents, self.clock, write, column)
            self.check_lanes(index, cells, w, agents, column, lanes, write)
            if not record:
                continue
            time = self.clock[agents, column]
            if write:
                self.wrote(cells, column, time, index, lanes)
                continue
            if rows is not None:
                cells, lanes, time, agents, column = (a[~far] for a in (cells, lanes, time, agents, column))
            known = self.read_time[cells, w] <= self.common[agents, column]
            self.read_lanes[cells[known], w] = 0
            np.bitwise_or.at(self.read_lanes.reshape(-1), cells * self.warps + w, lanes)
            self.read_time[cells, w] = time
            self.read_index[cells, w] = index

    def cells_of(self, here, q, i, addresses, width, mask, rows=None):
        """What warp number `i` of a place touches: (cells, index of the CTA whose warp it is, bits of the lanes)."""
        to = q[:, None] if rows is None else self.row[pick(rows, here, i)]
        cells = pick(addresses, here, i).astype(np.int64) // WORD + to * self.cells
        words = max(width // WORD, 1)
        if mask is None:
            count = cells.shape[1]
            if words > 1:
                cells = cells[..., None] + np.arange(words)
            return cells.reshape(-1), q.repeat(count * words), lane_bits(len(q), count, words, width)
        keep = pick(mask, here, i)
        lanes = lane_bits(1, max(cells.shape[1], keep.shape[1]), 1, width)
        cells, near, lanes, keep = np.broadcast_arrays(cells, q[:, None], lanes, keep)
        cells, near, lanes = cells[keep], near[keep], lanes[keep]
        if words == 1:
            return cells, near, lanes
        return (cells[:, None] + np.arange(words)).reshape(-1), near.repeat(words), lanes.repeat(words)

    def collide(self, place, index, addresses, words, mask, rows=None):
        """Raises if lanes of one store write different `words` to one address (arguments as in `access`)."""
        here, _ = self.at(place)
        if not here.size or addresses.size == 1 and all(word.size == 1 for word in words):
            return
        shape = len(here), len(place.warps), len(LANE_BITS)

        def part(array):
            return np.broadcast_to(array[here] if array.shape[0] > 1 else array, shape)

        rows = part(place.rows[:, None, None] if rows is None else rows).astype(np.int64)
        keep = np.ones(shape, bool) if mask is None else part(mask)
        keys = (rows << RANK_SHIFT | part(addresses))[keep]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        same = keys[1:] == keys[:-1]
        if not same.any():
            return
        values = [part(word)[keep][order] for word in words]
        same &= np.any([value[1:] != value[:-1] for value in values], axis=0)
        if same.any():
            key = int(keys[np.flatnonzero(same)[0]])
            ins = self.machine.code[index]
            raise RaceError(
                f"Race on shared address {(key & OFFSET) - SHARED_BASE} of CTA {self.machine.cta_of(key >> RANK_SHIFT)}"
                f": two lanes write different values in {ins.text!r} (PTX line {ins.line}), and nothing orders the two."
            )

    def reach(self, index, cells, agents, lanes, write, record):
        """Warps access other CTAs' shared memory: these must have started, and must not exit before."""
        to = cells // self.cells
        unknown = self.clock[agents, self.starts + self.rank[to]] == 0
        if unknown.any():
            i = int(np.flatnonzero(unknown)[0])
            who = self.side(index, int(self.column[agents[i]]), write)
            raise RaceError(f"{who[0].upper()}{who[1:]} shared memory of CTA {self.cta(to[i])}, and nothing says that "
                            "this CTA has started.")  # fmt: skip
        for pair in np.unique(np.stack([to, agents]), axis=1).T.tolist() if record else ():
            column = int(self.column[pair[1]])
            time = int(self.clock[pair[1], column])
            self.touched[pair[0], column] = time, index
            if not write:
                here = (to == pair[0]) & (agents == pair[1])
                some, which = np.unique(cells[here], return_inverse=True)
                bits = np.zeros(len(some), np.uint32)
                np.bitwise_or.at(bits, which.reshape(-1), lanes[here])
                reads = self.remote_reads[pair[0]]
                reads.append((some, column, time, index, bits))
                if len(reads) % KEPT_READS == 0:  # what all warps of the cluster know can race with nothing to come
                    first = pair[0] // self.size * self.own
                    known = self.clock[first : first + self.own].min(axis=0)
                    reads[:] = [read for read in reads if read[2] > known[read[1]]]

    def check(self, index, cells, agents, clocks, write, columns):
        """Raises if an agent that knows `clocks[agents]` is not ordered after what is recorded at `cells`."""
        last = self.write_agent[cells]
        bad = self.write_time[cells] > clocks[agents, last]
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            self.report(index, cells[i], columns[i], write, self.write_index[cells[i]], last[i], True)
        if not write:
            return
        first = self.rank[cells // self.cells] * self.warps
        known = clocks[:, : self.own].reshape(len(clocks), self.size, self.warps)[agents, first // self.warps]
        bad = self.read_time[cells] > known
        if bad.any():
            i, reader = (int(x[0]) for x in np.nonzero(bad))
            self.report(index, cells[i], columns[i], write, self.read_index[cells[i], reader], first[i] + reader, False)
        for to in np.unique(cells // self.cells) if self.size > 1 else ():
            for read, column, time, reading, _ in self.remote_reads[to]:
                for i in np.flatnonzero(clocks[agents, column] < time):
                    if cells[i] in read:
                        self.report(index, cells[i], columns[i], write, reading, column, False)

    def check_lanes(self, index, cells, w, agents, column, lanes, write):
        """Raises if other lanes of the same warp have accessed `cells` since its last synchronisation."""
        last = self.write_agent[cells]
        bad = self.write_time[cells] > self.common[agents, last]
        if bad.any():
            bad &= (self.write_lanes[cells] & lanes == 0) & (last < self.starts) & (last % self.own == column)
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            self.report(index, cells[i], column[i], write, self.write_index[cells[i]], last[i], True, True)
        if write:
            bad = self.read_time[cells, w] > self.common[agents, column]
            if bad.any():
                near = cells // self.cells == agents // self.warps
                bad &= near & ((self.read_lanes[cells, w] & ~lanes) != 0)
            if bad.any():
                i = int(np.flatnonzero(bad)[0])
                self.report(index, cells[i], column[i], write, self.read_index[cells[i], w], column[i], False, True)
            for to in np.unique(cells // self.cells) if self.size > 1 else ():
                for read, reader, time, reading, bits in self.remote_reads[to]:
                    for i in np.flatnonzero((column == reader) & (self.common[agents, column] < time)):
                        if (bits[read == cells[i]] & ~lanes[i]).any():
                            self.report(index, cells[i], reader, write, reading, reader, False, True)

    def wrote(self, cells, column, time, index, lanes=ALL_LANES):
        self.write_agent[cells] = column
        self.write_time[cells] = time
        self.write_index[cells] = index
        self.write_lanes[cells] = lanes

    def report(self, index, cell, column, write, other, other_column, other_writes, lanes=False):
        raise RaceError(
            f"Race on shared address {int(cell) % self.cells * WORD - SHARED_BASE} of CTA "
            f"{self.cta(cell // self.cells)}: {self.side(other, other_column, other_writes)} and "
            f"{'another lane of the same warp' if lanes else ''}{self.side(index, column, write, lanes)}, and "
            f"{'no bar.warp.sync' if lanes else 'nothing'} orders the two."
        )

    def cta(self, q):
        return self.machine.cta_of(self.rows[q])

    def side(self, index, column, writes, anonymous=False) -> str:
        """Who does what, in words; just what if `anonymous`."""
        ins, column = self.machine.code[index], int(column)
        kind, column = divmod(column, self.own) if column < self.starts else (3, 0)
        rank, w = divmod(column, self.warps)
        warp = f"warp {w}" + (f" of CTA rank {rank}" if self.size > 1 else "")
        who = "" if anonymous else (warp, f"an unfinished copy of {warp}", warp, "an unfinished transfer")[kind]
        return f"{who} {'writes' if writes else 'reads'} in {ins.text!r} (PTX line {ins.line})"

    # Copies and transfers

    def issued(self, place):
        """What a copy issued now carries along: where each warp's clock is, the clocks, and its next group's tick."""
        agents = self.agents(place)
        at = np.full(len(self.clock), -1)
        at[agents] = np.arange(len(agents))
        clock = self.clock[agents]
        self.advance(agents)
        return at, clock, self.ticks[agents] + 1

    def landed(self, place, copies):
        """Checks and records the writes of copies, each with the clock of its issue."""
        here, q = self.at(place)
        for copy in copies if here.size else ():
            at, clock, ticks = copy.issued
            clock = self.widened(clock)
            for i, w in enumerate(place.warps.tolist()):
                cells, near, lanes = self.cells_of(here, q, i, copy.dst, copy.size, copy.mask)
                agents = near * self.warps + w
                column = self.own + self.column[agents]
                self.check(copy.index, cells, at[agents], clock, True, column)
                self.wrote(cells, column, ticks[at[agents]], copy.index, lanes)

    def tick(self, place):
        """The copies that a place has issued so far form a group; returns the ticks."""
        self.ticks[self.agents(place)] += 1
        return self.ticks.copy()

    def waited(self, place, keep):
        """A place has waited for all but its latest `keep` groups."""
        agents = self.agents(place)
        columns = self.own + self.column[agents]
        self.clock[agents, columns] = np.maximum(self.clock[agents, columns], self.ticks[agents] - keep)

    def transferred(self, transfer):
        """Checks and records the writes of a transfer that lands."""
        place = transfer.place
        to = self.row[transfer.rows]
        some = np.flatnonzero(to >= 0)
        if not some.size:
            return
        row, warp, _ = np.unravel_index(transfer.lanes[some], transfer.mask.shape)
        agents = self.row[place.rows[row]] * self.warps + place.warps[warp]
        to, dst = to[some], transfer.dst[some]
        at, clock, _ = transfer.issued
        words = transfer.size[some] // WORD
        item = np.repeat(np.arange(len(to)), words)
        step = np.arange(len(item)) - np.repeat(np.cumsum(words) - words, words)
        cells = to[item] * self.cells + dst[item] // WORD + step
        column, time = np.empty(len(to), np.int64), np.empty(len(to), np.int32)
        far = agents // self.warps != to
        for address in np.unique(transfer.barrier[some]):
            here = transfer.barrier[some] == address
            barrier = self.machine.barrier(int(address))
            column[here] = self.transfer_column(barrier, self.rank[to[here]], far[here])
            time[here] = barrier.phase[transfer.rows[some][here]] + 1
        clock = self.widened(clock)
        self.check(transfer.index, cells, at[agents][item], clock, True, column[item])
        order = np.argsort(cells, kind="stable")
        twice = order[1:][cells[order[1:]] == cells[order[:-1]]]
        if twice.size:
            i = int(twice[0])
            self.report(transfer.index, cells[i], column[item[i]], True, transfer.index, column[item[i]], True)
        self.wrote(cells, column[item], time[item], transfer.index)
        for key in np.unique(np.stack([to, column, time]), axis=1).T.tolist():
            self.touched[key[0], key[1]] = key[2], transfer.index

    def transfer_column(self, barrier, rank, far):
        """The columns of what completes at an mbarrier of CTAs `rank`, from other CTAs if `far`."""
        need = self.transfers + 2 * self.size * (barrier.number + 1)
        if need > self.clock.shape[1]:
            self.clock, self.common, self.published, self.left, self.joined, self.handed = (
                self.widened(c, need + 32 * self.size)
                for c in (self.clock, self.common, self.published, self.left, self.joined, self.handed)
            )
            self.barriers = {b: tuple(self.widened(c) for c in clocks) for b, clocks in self.barriers.items()}
        return self.transfers + 2 * (barrier.number * self.size + rank) + far

    def widened(self, clocks, width=None):
        """`clocks` with columns for all agents that have turned up."""
        width = width or self.clock.shape[1]
        missing = width - clocks.shape[-1]
        return np.pad(clocks, [(0, 0)] * (clocks.ndim - 1) + [(0, missing)]) if missing else clocks

    # Barriers of a CTA: clocks for waits of CTA scope and of cluster scope

    def clocks_of(self, barrier):
        if barrier not in self.barriers:
            shape = 2, len(self.rows), self.clock.shape[1]
            self.barriers[barrier] = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        return self.barriers[barrier]

    def initialised(self, place, index, addresses, mask):
        """Warps have initialised mbarriers."""
        here, q = self.at(place)
        for i, w in enumerate(place.warps.tolist() if here.size else ()):
            cells, near, lanes = self.cells_of(here, q, i, addresses, 8, mask)
            agents = near * self.warps + w
            self.check(index, cells, agents, self.clock, True, self.column[agents])
            column = 2 * self.own + self.column[agents]
            self.wrote(cells, column, self.clock[agents, column], index, lanes)

    def known(self, place, here, q, i, mask):
        """(indices into `here`, agents with an active lane, what each may release) of warp number `i` of a place."""
        lanes = np.broadcast_to(active_lanes(here, i, mask), q.shape)
        some = np.flatnonzero(lanes)
        agents = q[some] * self.warps + int(place.warps[i])
        alone = (self.lanes[agents] & ~lanes[some]) == 0  # no other lane did anything that this must order
        return some, agents, np.where(alone[:, None], self.clock[agents], self.common[agents])

    def release(self, place, barrier, mask, addresses=None, scope="cta"):
        """Warps with an active lane arrive: what they know goes to the barrier, in their own CTA or where the
        shared::cluster `addresses` say."""
        here, q = self.at(place)
        joined, _ = self.clocks_of(barrier)
        clusters = self.machine.clusters
        for i in range(len(place.warps) if here.size else 0):
            some, agents, known = self.known(place, here, q, i, mask)
            to, levels = q[some], (0, 1)
            if addresses is not None and addresses.max() > OFFSET:
                rank = pick(addresses, here, i).astype(np.int64) >> RANK_SHIFT
                active = np.ones((1, 1), bool) if mask is None else pick(mask, here, i)
                active = active & (pick(addresses, here, i) & np.uint32(OFFSET) == barrier.address)
                rank, active = (np.broadcast_to(x, (len(q), 32)) for x in (rank, active))
                for s, agent_known in zip(some.tolist(), known, strict=True):
                    for r in np.unique(rank[s][active[s]]).tolist():
                        there = q[s] if r == 0 else self.row[clusters.peers[self.rows[q[s]], r - 1]]
                        for level in (0, 1) if r == 0 else (1,) if scope == "cluster" else ():
                            joined[level, there] = np.maximum(joined[level, there], agent_known)
            else:
                for level in levels:
                    joined[level, to] = np.maximum(joined[level, to], known)
            self.advance(agents)

    def synchronized(self, place, mask=None):
        """The lanes of each warp of a place, of those whose lanes are all in `mask`, have met: each of them may now
        release what all have done."""
        agents = self.agents(place)
        if mask is not None:
            here, q = self.at(place)
            whole = np.broadcast_to(mask.all(axis=2), (len(place.rows), len(place.warps)))[here]
            agents = agents[whole.reshape(-1)]
        self.common[agents] = self.clock[agents]
        self.advance(agents)
        self.lanes[agents] = 0

    def release_copies(self, place, barrier, ticks, opened):
        """The copies of a place up to `ticks` are done and arrive at a barrier."""
        joined, _ = self.clocks_of(barrier)
        agents = self.agents(place)
        q, column = agents // self.warps, self.own + self.column[agents]
        for level in (0, 1):
            joined[level, q, column] = np.maximum(joined[level, q, column], ticks[agents])
        self.complete(barrier, opened)

    def complete(self, barrier, opened):
        """Phases are over in the rows `opened`."""
        q = np.flatnonzero(opened[self.rows])
        if not q.size:
            return
        if not isinstance(barrier, NamedBarrier):
            near, far = (self.transfer_column(barrier, self.rank[q], x) for x in (0, 1))
            joined, handed = self.clocks_of(barrier)
            phase = barrier.phase[self.rows[q]]
            joined[0, q, near] = joined[1, q, near] = joined[1, q, far] = phase
        joined, handed = self.clocks_of(barrier)
        handed[:, q] = joined[:, q]

    def acquire(self, place, barrier, scope="cta"):
        """A place has passed a barrier: it learns what the completed phases know."""
        _, q = self.at(place)
        if not q.size:
            return
        handed = self.clocks_of(barrier)[1][int(scope == "cluster")]
        self.learn(place, handed[np.repeat(q, len(place.warps))])
        if isinstance(barrier, NamedBarrier):
            self.synchronized(place)

    def learn(self, place, news):
        agents = self.agents(place)
        self.clock[agents] = np.maximum(self.clock[agents], news)
        self.common[agents] = np.maximum(self.common[agents], news)

    # Cluster barriers

    def fence(self, place, kind, mask):
        """Warps with an active lane publish their initialisations, or all they know, through relaxed arrivals."""
        here, q = self.at(place)
        for i in range(len(place.warps) if here.size else 0):
            _, agents, known = self.known(place, here, q, i, mask)
            if kind == "init":
                column = 2 * self.own + self.column[agents]
                self.published[agents, column] = self.clock[agents, column]
            else:
                self.published[agents] = np.maximum(self.published[agents], known)
            self.advance(agents)

    def release_cluster(self, place, mask, release):
        """Warps with an active lane arrive at the cluster barrier."""
        here, q = self.at(place)
        for i in range(len(place.warps) if here.size else 0):
            some, agents, known = self.known(place, here, q, i, mask)
            np.maximum.at(self.joined, q[some] // self.size, known if release else self.published[agents])
            self.advance(agents)

    def complete_cluster(self, opened):
        """Phases of cluster barriers are over in the clusters `opened`."""
        done = opened[self.machine.clusters.number[self.rows[:: self.size]]]
        self.handed[done] = self.joined[done]

    def acquire_cluster(self, place):
        _, q = self.at(place)
        if q.size:
            self.learn(place, self.handed[np.repeat(q, len(place.warps)) // self.size])

    def exited(self, place):
        """A place has exited. What others did to a CTA's shared memory must be ordered before its last warp's exit."""
        here, q = self.at(place)
        for i in range(len(place.warps) if here.size else 0):
            known = self.clock[q * self.warps + int(place.warps[i])]
            self.left[q] = np.maximum(self.left[q], known)
        gone = set(q[self.machine.clusters.alive[self.rows[q]] == 0].tolist()) if self.size > 1 else ()
        for (to, column), (time, index) in self.touched.items() if gone else ():
            if to in gone and time > self.left[to, column]:
                ins = self.machine.code[index]
                what = {"ld": "DSMEM read", "cp": "Copy"}.get(ins.op[0], "DSMEM access")
                raise RaceError(f"{what} not ordered before exit of CTA {self.cta(to)}: "
                                f"{self.side(index, column, ins.op[0] != 'ld')}.")  # fmt: skip


def pick(array, here, i):
    """The part (CTAs | 1, lanes | 1) of an array (CTAs | 1, warps | 1, lanes | 1) that belongs to warp number `i`."""
    return array[here if array.shape[0] > 1 else slice(0, 1), i if array.shape[1] > 1 else 0]


def active_lanes(here, i, mask):
    """Bits of the active lanes of warp number `i` of a place, per watched CTA (or one number for all)."""
    if mask is None:
        return ALL_LANES
    return (np.broadcast_to(part := pick(mask, here, i), (len(part), 32)) * LANE_BITS).sum(axis=-1, dtype=np.uint32)


@cache
def lane_bits(ctas: int, lanes: int, words: int, width: int) -> np.ndarray:
    """The bit of the lane that touches each of `words` cells, CTAs first.

    One address for all lanes is an access by each of them, and so, in effect, is one of less than a word.
    """
    bits = LANE_BITS[:lanes] if lanes > 1 and width >= WORD else np.full(lanes, ALL_LANES)
    return np.tile(bits.repeat(words), ctas)
