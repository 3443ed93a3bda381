"""Barriers as objects that events pass through: every array holds one entry per CTA of the chunk."""

import numpy as np

from .errors import BarrierError


class MBarrier:
    """One mbarrier address in every CTA: expected and pending arrivals, pending bytes, phases completed."""

    def __init__(self, address: int, rows: int):
        self.address = address
        self.expected = np.zeros(rows, np.int64)  #: 0 where the CTA has not initialised it
        self.pending = np.zeros(rows, np.int64)
        self.bytes = np.zeros(rows, np.int64)
        self.phase = np.zeros(rows, np.int64)

    def init(self, rows, count):
        self.expected[rows] = self.pending[rows] = count
        self.bytes[rows] = self.phase[rows] = 0

    def arrive(self, rows, count):
        """`count` arrivals (an int, or an array per row); completes as many phases as they fill."""
        left = np.broadcast_to(count, self.pending[rows].shape).copy()
        while True:
            pending = self.pending[rows]
            step = np.minimum(left, pending)
            self.pending[rows] = pending - step
            left -= step
            self.complete(rows)
            if not left.any():
                return
            if not (self.pending[rows][left > 0] > 0).all():
                raise BarrierError("more arrivals than the barrier expects in this phase")

    def expect(self, rows, count):
        self.bytes[rows] += count

    def transfer(self, rows, count):
        self.bytes[rows] -= count
        self.complete(rows)

    def complete(self, rows):
        done = (self.pending[rows] == 0) & (self.bytes[rows] == 0) & (self.expected[rows] > 0)
        if done.any():
            self.phase[rows] += done
            self.pending[rows] = np.where(done, self.expected[rows], self.pending[rows])


class NamedBarrier:
    """One `bar` number in every CTA: threads that have arrived, and how often it has opened."""

    def __init__(self, number: int, rows: int):
        self.number = number
        self.arrived = np.zeros(rows, np.int64)
        self.count = np.zeros(rows, np.int64)
        self.opened = np.zeros(rows, np.int64)

    def arrive(self, rows, threads: int, count: int):
        """`threads` of the `count` expected arrive in every one of `rows`."""
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
