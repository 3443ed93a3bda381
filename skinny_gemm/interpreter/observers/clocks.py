"""Vector clocks: what every warp of some clusters knows to have happened, and how barriers pass that knowledge on.

Everything that acts at its own pace counts what it does, and has a *column*, one set per cluster:

- each warp;
- of each warp, its `cp.async` copies, counted in groups. They begin after their issue, but their end is known only
  once `wait_group`, or the mbarrier that they arrive at, has been passed. From the first time that the lanes of a warp
  do not commit, wait or arrive together, these are 32 columns, one for the copies of each lane;
- of each warp, its mbarrier initialisations, because `fence.mbarrier_init` publishes these and nothing else;
- if the kernel has wgmma: of each warp, these, counted in groups and known to be done after `wgmma.wait_group`; and up
  to which of its own and of its copies' counts `fence.proxy.async` has shown its writes to wgmma;
- each CTA, with one count: that it has started. Any barrier of the cluster makes it known;
- of each mbarrier in each CTA, the transfers that complete there from the own CTA, and those from other CTAs. They
  count the barrier's phases.

A *clock* is one count per column. What a warp's clock holds has happened before all that the warp does from now on.

- A release (an arrival, a fence) joins the warp's clock into what the barrier will hand out, column by column the
  larger count. Then the warp's own count goes up: what it does later is not covered.
- A phase that completes hands out what has been joined so far.
- An acquire (a wait that has succeeded) joins what was handed out into the warp's clock.

Scopes: a wait of CTA scope learns nothing that other CTAs have released, and an arrival at another CTA's mbarrier
releases nothing without cluster scope. A relaxed arrival at the cluster barrier releases what a fence has published.

A warp's clock is that of its lanes together. A GPU does not run them in step, so what one lane may release for the
others is a clock of its own, `common`: what the warp knew when its lanes last met at a `bar.warp.sync` or `bar.sync`,
and what it has learnt from waits since.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional
from weakref import WeakKeyDictionary

import numpy as np

from ...layouts import WARP
from ..asynchronous import Batch, Copy
from ..barriers import Barrier, MBarrier, NamedBarrier, Rows
from ..place import OFFSET, RANK_SHIFT, Array, Mask, Place, linear
from . import Observer

if TYPE_CHECKING:
    from ..machine import Machine

CLOCKS = ("clock", "common", "published", "left", "joined", "handed")  #: attributes whose last axis are columns
LANE_BITS = np.uint32(1) << np.arange(WARP, dtype=np.uint32)
ALL_LANES = np.uint32(0xFFFFFFFF)
MOST_GROUPS = 64  #: that a `wait_group` may leave behind; one that leaves more says nothing here


class Clocks(Observer):
    """Follows the clusters whose numbers are in `watched`; all clusters run the same program, so a few stand for all.

    Their CTAs have numbers here, by cluster and rank. A warp's number is `warps` times that of its CTA plus its own.
    """

    def __init__(self, watched: set[int]):
        self.watched = watched

    def start(self, machine: "Machine") -> Optional["Clocks"]:
        """Forgets everything; None if the chunk has no watched cluster."""
        clusters, context = machine.clusters, machine.context
        number = linear(machine.ctas, context.grid) // clusters.size
        rows = machine.fills * np.flatnonzero(np.isin(number, list(self.watched)))
        if not rows.size:
            return None
        self.machine, self.warps, self.size = machine, context.warps, clusters.size
        self.rows = rows[np.lexsort((clusters.rank[rows], clusters.number[rows]))]  # of the CTAs, without their twins
        n, self.own = len(rows), clusters.size * context.warps
        self.cta_number = np.full(machine.rows, -1)  # of each row; -1 where nobody watches
        self.cta_number[self.rows] = np.arange(n)
        self.rank = np.arange(n) % self.size
        # `own` columns of warps come first; as many of each other kind follow.
        self.has_products = any(ins.op[0] == "wgmma" for ins in machine.code)
        self.products, self.shown = 3 * self.own, 4 * self.own  # first columns of wgmma and of what wgmma may read
        self.starts = (6 if self.has_products else 3) * self.own  # first column of the starts
        self.used = self.starts + self.size  # columns
        self.transfers: dict[int, int] = {}  # first column of the transfers of mbarriers, by number
        self.by_lane: int | None = None  # first column of the lanes' copies; of what wgmma may read of them follow
        every = np.arange(n * self.warps)
        self.column = every % self.own  # of each warp itself
        self.clock = np.zeros((len(every), self.used), np.int32)  # of each warp
        self.clock[every, self.starts + self.rank[every // self.warps]] = 1
        self.common = self.clock.copy()  # what any one lane of a warp may release, for all of them
        self.published = self.clock.copy()  # what a relaxed arrival at the cluster barrier releases
        self.advance(every)
        self.lanes = np.zeros(len(every), np.uint32)  # bits of those that accessed shared memory since they last met
        self.writers = np.zeros(len(every), np.uint32)  # bits of those that have written it, or copied to it
        self.copiers = np.zeros(len(every), np.uint32)  # bits of those that have issued copies
        self.ticks = np.zeros((len(every), WARP), np.int32)  # completed groups of copies that each lane has issued
        waits = [ins.operands[0].value for ins in machine.code if ins.op[:3] == ("cp", "async", "wait_group")]
        #: Of each lane, the ticks after its latest commits, latest first.
        self.recent = np.zeros((min(max(waits, default=0), MOST_GROUPS) + 1, len(every), WARP), np.int32)
        self.committed = np.zeros(len(every), np.int32)  # groups of wgmma likewise
        self.left = np.zeros((n, self.used), np.int32)  # what the exited warps of each CTA knew
        #: Of each barrier two arrays (2 scopes, CTAs, columns): joined by arrivals, handed out by completed phases.
        self.barriers: dict[Barrier, tuple[Array, Array]] = {}
        self.joined, self.handed = np.zeros((2, n // self.size, self.used), np.int32)  # of the cluster barriers
        #: Of a copy or transfer in flight, at its issue: (index of each warp in what follows, clocks, ticks).
        self.issued: WeakKeyDictionary[Any, tuple[Array, Array, Array]] = WeakKeyDictionary()
        self.tied: WeakKeyDictionary[Batch, Array] = WeakKeyDictionary()  # the ticks at which batches are complete
        return self

    def watched_ctas(self, place: Place) -> tuple[Array, Array]:
        """(indices into the place's rows, CTA numbers) of the watched CTAs."""
        numbers = self.cta_number[place.rows]
        positions = np.flatnonzero(numbers >= 0)
        return positions, numbers[positions]

    def all_warps(self, place: Place) -> Array:
        """The numbers of a place's watched warps, CTAs first."""
        return (self.watched_ctas(place)[1][:, None] * self.warps + place.warps).reshape(-1)

    def by_warp(self, place: Place) -> Iterator[tuple[int, Array, Array]]:
        """(index i, indices into the place's rows, numbers of the watched warps) for the i-th warp of all CTAs."""
        positions, ctas = self.watched_ctas(place)
        for i, warp in enumerate(place.warps.tolist() if positions.size else ()):
            yield i, positions, ctas * self.warps + warp

    def advance(self, warps: Array) -> None:
        """What the warps do from now on is not before what they have released."""
        self.clock[warps, self.column[warps]] += 1
        self.clock[warps, 2 * self.own + self.column[warps]] += 1

    def learn(self, place: Place, clocks: Array) -> None:
        """The warps of a place know more from now on."""
        warps = self.all_warps(place)
        for known in (self.clock, self.common):
            known[warps] = np.maximum(known[warps], clocks)

    def releasable(self, i: int, positions: Array, warps: Array, mask: Mask) -> tuple[Array, Array]:
        """(those of `warps` with an active lane, what each of them may release): arguments as from `by_warp`."""
        lanes = np.broadcast_to(active_lanes(positions, i, mask), warps.shape)
        acting = np.flatnonzero(lanes)
        warps = warps[acting]
        alone = (self.lanes[warps] & ~lanes[acting]) == 0  # no other lane did anything that this must order
        return warps, np.where(alone[:, None], self.clock[warps], self.common[warps])

    def warp_sync(self, place: Place, mask: Mask) -> None:
        """The lanes of the warps whose lanes are all in `mask` have met: each may now release what all have done."""
        positions, _ = self.watched_ctas(place)
        warps = self.all_warps(place)[place.full(mask)[positions].all(axis=2).reshape(-1)]
        self.common[warps] = self.clock[warps]
        self.advance(warps)
        self.lanes[warps] = 0

    def fence(self, place: Place, kind: str, mask: Mask) -> None:
        """Publishes the initialisations, or all that is known, for relaxed arrivals to come; or shows wgmma what warps
        have written, unless other lanes than those in `mask` may have."""
        for i, positions, warps in self.by_warp(place):
            if kind == "proxy":
                if self.has_products:
                    lanes = active_lanes(positions, i, mask)
                    self._show(warps[(lanes != 0) & ((self.writers[warps] & ~lanes) == 0)])
                continue
            warps, known = self.releasable(i, positions, warps, mask)
            if kind == "init":
                column = 2 * self.own + self.column[warps]
                self.published[warps, column] = self.clock[warps, column]
            else:
                self.published[warps] = np.maximum(self.published[warps], known)
            self.advance(warps)

    def _show(self, warps: Array) -> None:
        for first in (0, self.own):
            self.clock[warps, self.shown + first + self.column[warps]] = self.clock[warps, first + self.column[warps]]
        if self.by_lane is not None:
            at, columns = warps[:, None], self.copy_columns(warps)
            self.clock[at, columns + WARP * self.own] = self.clock[at, columns]
        self.advance(warps)

    def exited(self, place: Place) -> None:
        for _, _, warps in self.by_warp(place):
            ctas = warps // self.warps
            self.left[ctas] = np.maximum(self.left[ctas], self.clock[warps])

    # Copies and transfers

    def snapshot(self, place: Place) -> tuple[Array, Array, Array]:
        """See `issued`."""
        warps = self.all_warps(place)
        at = np.full(len(self.clock), -1)
        at[warps] = np.arange(len(warps))
        clocks = self.clock[warps]
        self.advance(warps)
        return at, clocks, self.ticks[warps] + 1

    def copy_issued(self, place: Place, copy: Copy) -> None:
        self.issued[copy] = self.snapshot(place)

    def copies_committed(self, place: Place, mask: Mask) -> None:
        warps, lanes = self.acting(place, mask)
        self.ticks[warps] += lanes
        later = self.recent[:, warps]
        self.recent[:, warps] = np.where(lanes, np.concatenate([self.ticks[None, warps], later[:-1]]), later)

    def copies_tied(self, place: Place, batch: Batch) -> None:
        warps, lanes = self.acting(place, batch.mask)
        self.ticks[warps] += lanes
        self.tied[batch] = self.ticks.copy()

    def copies_waited(self, place: Place, keep: int, mask: Mask) -> None:
        """Nobody else may release what a lane has waited for before the lanes have met."""
        if keep >= len(self.recent):
            return
        warps, lanes = self.acting(place, mask)
        columns = self.copy_columns(warps)
        at = warps[:, None], columns
        done = np.where(lanes, self.recent[keep, warps], 0)[:, : columns.shape[1]]
        learnt = done > self.clock[at]
        self.lanes[warps] |= (lanes & learnt).dot(LANE_BITS) & self.copiers[warps]
        self.clock[at] = np.where(learnt, done, self.clock[at])

    def copies_arrive(self, batch: Batch, barrier: MBarrier) -> None:
        warps, lanes = self.acting(batch.place, batch.mask)
        columns = self.copy_columns(warps)
        done = np.where(lanes, self.tied[batch][warps], 0)[:, : columns.shape[1]]
        joined, at = self.clocks_of(barrier)[0], (warps[:, None] // self.warps, columns)
        joined[:, *at] = np.maximum(joined[:, *at], done)

    def acting(self, place: Place, mask: Mask) -> tuple[Array, Array]:
        """(numbers of the watched warps with an active lane, their active lanes); from now on lanes have columns if
        those of a warp part here."""
        positions, _ = self.watched_ctas(place)
        warps, lanes = self.all_warps(place), place.full(mask)[positions].reshape(-1, WARP)
        if mask is not None:
            some = lanes.any(axis=1)
            warps, lanes = warps[some], lanes[some]
            if self.by_lane is None and not lanes.all():
                self.part_lanes()
        return warps, lanes

    def copy_columns(self, warps: Array) -> Array:
        """The columns (warps, 32 | 1) of the warps' copies."""
        column = self.column[warps][:, None]
        return self.own + column if self.by_lane is None else self.by_lane + WARP * column + np.arange(WARP)

    def part_lanes(self) -> None:
        """Gives every lane's copies a column, which starts with what is known of its warp's."""
        kinds = {0: self.own} | ({1: self.shown + self.own} if self.has_products else {})
        self.by_lane = self.allocate(len(kinds) * WARP * self.own)
        self.issued.update(
            {flight: (at, self.widened(known), ticks) for flight, (at, known, ticks) in self.issued.items()}
        )
        clocks = [getattr(self, name) for name in CLOCKS]
        clocks += [known for pair in self.barriers.values() for known in pair]
        for known in [*clocks, *(known for _, known, _ in self.issued.values())]:
            for kind, first in kinds.items():
                to = self.by_lane + kind * WARP * self.own
                known[..., to : to + WARP * self.own] = known[..., first : first + self.own].repeat(WARP, axis=-1)

    def actors(self, columns: Array) -> tuple[Array, Array]:
        """(kind, column of the warp) of what has some columns: 0 a warp, 1 its copies, 2 its initialisations, 3 its
        wgmma, and -1 for what no warp does."""
        kind, warp = np.divmod(columns, self.own)
        kind = np.where(columns < self.starts, kind, -1)
        if self.by_lane is not None:
            lane = columns - self.by_lane
            inside = (lane >= 0) & (lane < WARP * self.own)
            kind, warp = np.where(inside, 1, kind), np.where(inside, lane // WARP, warp)
        return kind, warp

    def products_committed(self, place: Place) -> None:
        self.committed[self.all_warps(place)] += 1

    def products_waited(self, place: Place, keep: int) -> None:
        """All lanes wait together, so any of them may release this for the others."""
        warps = self.all_warps(place)
        columns = self.products + self.column[warps]
        done = np.maximum(self.clock[warps, columns], self.committed[warps] - keep)
        self.clock[warps, columns] = self.common[warps, columns] = done

    def transfer_column(self, barrier: MBarrier, rank: Array, far: Array | int) -> Array:
        """The columns of what completes at an mbarrier of CTAs `rank`, from other CTAs where `far`."""
        if barrier.number not in self.transfers:
            self.transfers[barrier.number] = self.allocate(2 * self.size)
        return self.transfers[barrier.number] + 2 * rank + far

    def allocate(self, columns: int) -> int:
        """The first of some more columns, which hold zeros."""
        first, self.used = self.used, self.used + columns
        if self.used > self.clock.shape[1]:
            need = self.used + 32 * self.size
            for name in CLOCKS:
                setattr(self, name, self.widened(getattr(self, name), need))
            self.barriers = {b: (self.widened(j, need), self.widened(h, need)) for b, (j, h) in self.barriers.items()}
        return first

    def widened(self, clocks: Array, width: int | None = None) -> Array:
        """`clocks` with zeros in the columns that have turned up since."""
        missing = (width or self.clock.shape[1]) - clocks.shape[-1]
        return np.pad(clocks, [(0, 0)] * (clocks.ndim - 1) + [(0, missing)]) if missing else clocks

    # mbarriers and named barriers: clocks for waits of CTA scope (0) and of cluster scope (1)

    def clocks_of(self, barrier: Barrier) -> tuple[Array, Array]:
        """(joined, handed) of a barrier."""
        if barrier not in self.barriers:
            joined, handed = np.zeros((2, 2, len(self.rows), self.clock.shape[1]), np.int32)
            self.barriers[barrier] = joined, handed
        return self.barriers[barrier]

    def arrives(
        self, place: Place, barrier: Barrier, mask: Mask, addresses: Array | None = None, scope: str = "cta"
    ) -> None:
        joined, _ = self.clocks_of(barrier)
        peers = self.machine.clusters.peers
        for i, positions, every in self.by_warp(place):
            warps, known = self.releasable(i, positions, every, mask)
            ctas = warps // self.warps
            if addresses is None or not isinstance(barrier, MBarrier) or addresses.max() <= OFFSET:
                joined[:, ctas] = np.maximum(joined[:, ctas], known)
            else:
                address = pick(addresses, positions, i)
                lanes = address & np.uint32(OFFSET) == barrier.address
                lanes = lanes if mask is None else lanes & pick(mask, positions, i)
                ranks, acting = address.astype(np.int64) >> RANK_SHIFT, np.isin(every, warps)
                ranks, lanes = (np.broadcast_to(x, (len(every), WARP))[acting] for x in (ranks, lanes))
                for cta, rank, lane, clock in zip(ctas.tolist(), ranks, lanes, known, strict=True):
                    for r in np.unique(rank[lane]).tolist():
                        to = cta if r == 0 else self.cta_number[peers[self.rows[cta], r - 1]]
                        for level in (0, 1) if r == 0 else (1,) if scope == "cluster" else ():
                            joined[level, to] = np.maximum(joined[level, to], clock)
            self.advance(warps)

    def completed(self, barrier: Barrier, rows: Rows, opened: Array) -> None:
        """Phases are over: what has been joined is handed out, and transfers to there are done."""
        ctas = self.cta_number[rows][opened]
        ctas = ctas[ctas >= 0]
        if not ctas.size:
            return
        if isinstance(barrier, MBarrier):
            near, far = (self.transfer_column(barrier, self.rank[ctas], x) for x in (0, 1))
            joined, _ = self.clocks_of(barrier)
            joined[0, ctas, near] = joined[1, ctas, near] = joined[1, ctas, far] = barrier.phase[self.rows[ctas]]
        joined, handed = self.clocks_of(barrier)
        handed[:, ctas] = joined[:, ctas]

    def acquired(self, place: Place, barrier: Barrier, scope: str = "cta") -> None:
        _, ctas = self.watched_ctas(place)
        if ctas.size:
            handed = self.clocks_of(barrier)[1][int(scope == "cluster")]
            self.learn(place, handed[np.repeat(ctas, len(place.warps))])
            if isinstance(barrier, NamedBarrier):
                self.warp_sync(place, None)

    def cluster_arrives(self, place: Place, mask: Mask, release: bool) -> None:
        for i, positions, warps in self.by_warp(place):
            warps, known = self.releasable(i, positions, warps, mask)
            clusters = warps // self.own
            np.maximum.at(self.joined, clusters, known if release else self.published[warps])
            self.advance(warps)

    def cluster_completed(self, clusters: Array) -> None:
        done = clusters[self.machine.clusters.number[self.rows[:: self.size]]]
        self.handed[done] = self.joined[done]

    def cluster_acquired(self, place: Place) -> None:
        _, ctas = self.watched_ctas(place)
        if ctas.size:
            self.learn(place, self.handed[np.repeat(ctas, len(place.warps)) // self.size])


def pick(array: Array, positions: Array, i: int) -> Array:
    """The part (CTAs | 1, lanes | 1) of an array (CTAs | 1, warps | 1, lanes | 1) that belongs to warp number `i`."""
    return array[positions if array.shape[0] > 1 else slice(0, 1), i if array.shape[1] > 1 else 0]


def active_lanes(positions: Array, i: int, mask: Mask) -> Array | np.uint32:
    """Bits of the active lanes of warp number `i` of a place, per watched CTA (or one number for all)."""
    if mask is None:
        return ALL_LANES
    lanes = pick(mask, positions, i)
    return (np.broadcast_to(lanes, (len(lanes), WARP)) * LANE_BITS).sum(axis=-1, dtype=np.uint32)
