"""Barriers as objects that events pass through: every array holds one entry per CTA of the chunk."""

import numpy as np

from ..layouts import WARP
from .errors import BarrierError
from .parser import SHARED_BASE

TX_LIMIT = (1 << 20) - 1  #: largest magnitude of an mbarrier's transaction count
Rows = np.ndarray | slice  #: of the chunk's CTAs
Count = np.ndarray | int  #: one number for all rows, or one for each
State = tuple[int, np.ndarray, np.ndarray, np.ndarray]


class MBarrier:
    """One mbarrier address in every CTA: expected and pending arrivals, pending bytes, phases completed."""

    def __init__(self, address: int, rows: int, number: int):
        self.address, self.number = address, number
        self.expected, self.pending, self.bytes, self.phase = np.zeros((4, rows), np.int64)  # 0 expected: none there

    def init(self, rows: Rows, count: int) -> None:
        """Expects `count` arrivals in every phase, the first of which begins."""
        self.expected[rows] = self.pending[rows] = count
        self.bytes[rows] = self.phase[rows] = 0

    def arrive(self, rows: Rows, count: Count) -> np.ndarray:
        """`count` arrivals, which complete as many phases as they fill; returns in which of `rows` one is complete."""
        left = np.broadcast_to(count, self.pending[rows].shape).copy()
        opened = np.zeros(left.shape, bool)
        while True:
            pending = self.pending[rows]
            step = np.minimum(left, pending)
            self.pending[rows] = pending - step
            left -= step
            opened |= self.complete(rows)
            if not left.any():
                return opened
            if not (self.pending[rows][left > 0] > 0).all():
                raise BarrierError("more arrivals than the barrier expects in this phase")

    def expect(self, rows: Rows, count: Count) -> np.ndarray:
        """`count` more bytes must come before the phase completes; returns as `arrive`."""
        self.bytes[rows] += count
        return self.complete(rows)

    def transfer(self, rows: Rows, count: Count) -> np.ndarray:
        """`count` bytes have come, before the last arrival perhaps more than expected; returns as `arrive`."""
        self.bytes[rows] -= count
        return self.complete(rows)

    def complete(self, rows: Rows) -> np.ndarray:
        """Begins the next phase where nothing is pending; returns in which of `rows` that is."""
        pending, left = self.pending[rows], self.bytes[rows]
        if left.any():
            if (np.abs(left) > TX_LIMIT).any():
                raise BarrierError(f"the transaction count leaves its range of {TX_LIMIT} bytes")
            if ((pending == 0) & (left < 0)).any():
                raise BarrierError("more bytes have come than the phase expects, although all arrivals have happened")
        done = (pending == 0) & (left == 0) & (self.expected[rows] > 0)
        if done.any():
            self.phase[rows] += done
            self.pending[rows] = np.where(done, self.expected[rows], pending)
        return done

    def state(self, rows: Rows) -> State:
        """(address in shared memory, phases, pending arrivals, pending bytes) for the trace."""
        return self.address - SHARED_BASE, self.phase[rows], self.pending[rows], self.bytes[rows]

    def waiting(self, row: int, parity: int | None) -> str:
        """What a wait in CTA `row` is for, and what is missing."""
        return (
            f"the mbarrier at shared address {self.address - SHARED_BASE} for the phase of parity {parity}: "
            f"{self.phase[row]} phases are complete, {self.pending[row]} of {self.expected[row]} arrivals are pending"
        ) + (f" and {self.bytes[row]} bytes" if self.bytes[row] else "")


class NamedBarrier:
    """One `bar` number in every CTA: threads that have arrived, and how often it has opened."""

    def __init__(self, number: int, rows: int):
        self.number = number
        self.arrived, self.count, self.opened = np.zeros((3, rows), np.int64)

    def arrive(self, rows: Rows, threads: Count, count: int) -> np.ndarray:
        """`threads` of the `count` expected arrive in every one of `rows`; returns in which that opens it."""
        arrived = self.arrived[rows] + threads
        waiting = self.arrived[rows] > 0
        if (waiting & (self.count[rows] != count)).any():
            raise BarrierError(f"barrier {self.number} is used with different thread counts at the same time")
        if (arrived > count).any():
            raise BarrierError(f"more than the {count} expected threads arrive at barrier {self.number}")
        done = arrived == count
        self.count[rows] = count
        self.arrived[rows] = np.where(done, 0, arrived)
        self.opened[rows] += done
        return done

    def state(self, rows: Rows) -> State:
        """As for an mbarrier, with its number for the address and threads for arrivals."""
        missing = np.where(self.arrived[rows] > 0, self.count[rows] - self.arrived[rows], 0)
        return self.number, self.opened[rows], missing, np.zeros_like(missing)

    def waiting(self, row: int, parity: int | None) -> str:
        count, missing = self.count[row], self.count[row] - self.arrived[row]
        return f"named barrier {self.number}, where {missing} of {count} threads are missing"


Barrier = MBarrier | NamedBarrier  #: those that have a phase in every CTA


class ClusterBarrier:
    """The barrier of every cluster. Each thread counts its arrivals and its waits; a thread that exits has arrived.

    `cluster` gives the cluster of every row; the arrays of a cluster's state have an entry per cluster.
    """

    def __init__(self, cluster: np.ndarray, warps: int):
        self.cluster = cluster
        clusters = int(cluster.max()) + 1
        self.threads = WARP * warps * np.bincount(cluster, minlength=clusters)
        #: Arrivals in this phase, those that have exited included; threads that have exited; phases completed.
        self.arrived, self.exited, self.opened = np.zeros((3, clusters), np.int64)
        self.arrivals, self.waits = np.zeros((2, len(cluster), warps, WARP), np.int32)

    def arrive(self, rows: np.ndarray, warps: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """The threads `lanes` (rows, warps, 32) arrive; returns the clusters whose phase that completes."""
        at = np.ix_(rows, warps)
        if (lanes & (self.arrivals[at] > self.waits[at])).any():
            raise BarrierError("A thread arrives twice at the cluster barrier without a wait in between")
        self.arrivals[at] += lanes
        return self._count(rows, lanes)

    def wait(self, rows: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """Per row, whether all its threads in `warps`, each of which has arrived, may go on."""
        at = np.ix_(rows, warps)
        arrivals = self.arrivals[at]
        if (arrivals == self.waits[at]).any():
            raise BarrierError("A thread waits at the cluster barrier without having arrived")
        return arrivals.max(axis=(1, 2)) <= self.opened[self.cluster[rows]]

    def passed(self, rows: np.ndarray, warps: np.ndarray) -> None:
        """All threads of some warps go on."""
        self.waits[np.ix_(rows, warps)] += 1

    def exit(self, rows: np.ndarray, warps: np.ndarray) -> np.ndarray:
        """All threads of some warps count as arrived in every phase from now on; returns as `arrive`."""
        arrivals = self.arrivals[np.ix_(rows, warps)]
        np.add.at(self.exited, self.cluster[rows], WARP * len(warps))
        return self._count(rows, arrivals <= self.opened[self.cluster[rows]][:, None, None])

    def _count(self, rows, lanes):
        np.add.at(self.arrived, self.cluster[rows], lanes.sum(axis=(1, 2)))
        done = (self.arrived == self.threads) & (self.exited < self.threads)
        self.opened += done
        self.arrived = np.where(done, self.exited, self.arrived)
        return done

    def state(self, rows: np.ndarray) -> State:
        """As for an mbarrier, with -1 for the address and threads for arrivals."""
        c = self.cluster[rows]
        return -1, self.opened[c], self.threads[c] - self.arrived[c], np.zeros(len(c), np.int64)

    def waiting(self, row: int, parity: int | None) -> str:
        c = self.cluster[row]
        return (
            f"the cluster barrier: {self.opened[c]} phases are complete, {self.threads[c] - self.arrived[c]} of "
            f"{self.threads[c]} threads are missing"
        )
