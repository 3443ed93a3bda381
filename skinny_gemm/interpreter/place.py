"""Where something happens: some warps of some CTAs of a chunk. Checks of addresses, and the words for errors."""

import numpy as np

from . import arithmetic as ops
from .clusters import FAR, NEGATIVE, OFFSET, RANK_SHIFT
from .errors import BarrierError, MemoryAccessError, PoisonError
from .memory import SPACING
from .parser import SHARED_BASE

SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}  #: log2 of an access's bytes


class Place:
    """`rows` are CTAs by their row in the chunk's arrays (fill-pattern twins are neighbours), `warps` their warps."""

    def __init__(self, machine, rows, warps):
        self.machine, self.rows, self.warps = machine, rows, warps
        n = len(rows)
        self.slice = slice(int(rows[0]), int(rows[0]) + n) if rows[-1] - rows[0] == n - 1 else rows

    def spot(self, index: int, shape, flat: int) -> str:
        """Instruction, PTX line, CTA, warp and lane of the flat index into an array of `shape`."""
        row, warp, lane = (int(i) for i in np.unravel_index(flat, shape))
        machine, ins = self.machine, self.machine.code[index]
        cta = tuple(int(x) for x in machine.ctas[self.rows[row] // machine.fills])
        lane = f", lane {lane}" if shape[2] > 1 else ""
        warp = self.warps[warp] if shape[1] > 1 or len(self.warps) == 1 else "+".join(map(str, self.warps))
        return f"{ins.text!r} (PTX line {ins.line}), CTA {cta}, warp {warp}{lane}"

    def place_of(self, index: int, mask=None) -> str:
        mask = ops.TRUE if mask is None else mask
        return self.spot(index, mask.shape, int(np.flatnonzero(mask)[0]) if mask.any() else 0)

    def twins_differ(self, array, mask=None):
        """Flat index where the two fill patterns give different values, or None."""
        if self.machine.fills == 1 or array.shape[0] == 1:
            return None
        differ = array[0::2] != array[1::2]
        if mask is not None:
            m = mask if mask.shape[0] == 1 else mask[0::2]
            differ = differ & m.reshape(m.shape + (1,) * (differ.ndim - m.ndim))
        if not differ.any():
            return None
        where = tuple(np.argwhere(differ)[0][:3])
        return int(np.ravel_multi_index((2 * where[0], *where[1:]), array.shape[:3]))

    def check_poison(self, index, array, what, mask=None):
        flat = self.twins_differ(array, mask)
        if flat is not None:
            raise PoisonError(f"Uninitialised memory or an undefined register reaches {what} of "
                              f"{self.spot(index, array.shape[:3], flat)}.")  # fmt: skip

    def active(self, mask, addresses):
        """`addresses` with those of inactive lanes replaced by an active lane's; None if no lane is active."""
        if mask is None:
            return addresses
        addresses, mask = np.broadcast_arrays(addresses, mask)
        if mask.all():
            return np.ascontiguousarray(addresses)
        if not mask.any():
            return None
        return np.where(mask, addresses, addresses[mask][0])

    def shared_index(self, index, addresses, width):
        """Element indices of `addresses` in a CTA's shared memory, after checking bounds and alignment."""
        low, high = int(addresses.min()), int(addresses.max())
        end = self.machine.shared_end
        if (
            low < SHARED_BASE
            or high + width > end
            or (width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1))
        ):
            self.shared_fault(index, addresses, width)
        return (addresses >> SHIFT[width]).astype(np.int64)

    def shared_fault(self, index, addresses, width):
        end = self.machine.shared_end
        bad = (addresses < SHARED_BASE) | (addresses.astype(np.int64) + width > end) | (addresses % width != 0)
        flat = int(np.flatnonzero(bad)[0])
        address = int(addresses.reshape(-1)[flat])
        self.check_poison(index, addresses, "the address")
        if address % width:
            what = f"is not aligned to {width} bytes"
        elif address < SHARED_BASE:
            what = f"lies {SHARED_BASE - address} bytes before the CTA's shared memory"
        else:
            what = f"lies {address + width - end} bytes past the CTA's {end - SHARED_BASE} bytes of shared memory"
        raise MemoryAccessError(
            f"Shared address {address - SHARED_BASE} (+{SHARED_BASE}) of {width} bytes {what}: "
            f"{self.spot(index, addresses.shape[:3], flat)}."
        )

    def cluster_index(self, index, addresses, width, mask=None):
        """(rows, offsets) that shared::cluster `addresses` name, in full shape; checks rank, bounds, alignment, life.

        Inactive lanes must hold an active lane's address.
        """
        clusters = self.machine.clusters
        rank = (addresses >> np.uint32(RANK_SHIFT)).astype(np.int64)
        offsets = addresses & np.uint32(OFFSET)
        own = self.rows[:, None, None]
        if not rank.any():
            rows = np.broadcast_to(own, np.broadcast_shapes(own.shape, offsets.shape))
        else:
            if rank.max() > clusters.size:
                self.check_poison(index, addresses, "the address")
                self.cluster_fault(index, addresses, rank > clusters.size, "outside the cluster")
            rows = np.where(rank > 0, clusters.peers[own, rank - 1], own)
            for absent, what in ((~clusters.started, "has not started"), (clusters.alive == 0, "has exited")):
                bad = absent[rows] if mask is None else absent[rows] & mask
                if bad.any():
                    self.cluster_fault(index, addresses, bad, "which " + what)
        self.shared_index(index, offsets, width)
        return rows, offsets

    def cluster_fault(self, index, addresses, bad, what):
        addresses, bad = np.broadcast_arrays(addresses, bad)
        flat = int(np.flatnonzero(bad)[0])
        address = int(addresses.reshape(-1)[flat])
        rank = (address >> RANK_SHIFT) - 1
        rank = {NEGATIVE: "below 0", FAR: f"{FAR} or above"}.get(rank, rank)
        raise MemoryAccessError(
            f"Shared address {(address & OFFSET) - SHARED_BASE} of CTA rank {rank}, {what}: "
            f"{self.spot(index, addresses.shape[:3], flat)}."
        )

    def check_output(self, index, addresses, mask=None):
        """Raises if global addresses are poisoned; those of an output's two copies may lie whole buffers apart."""
        if addresses.shape[0] > 1 and self.machine.fills > 1:
            away = (addresses[1::2] - addresses[0::2]) >> np.uint64(SPACING) << np.uint64(SPACING)
            same = addresses.copy()
            same[1::2] -= away
            self.check_poison(index, same, "the address", mask)

    def global_fault(self, index, addresses, width, what):
        flat, address, phrase = self.machine.memory.fault(addresses, width)
        self.check_output(index, addresses)
        raise MemoryAccessError(
            f"Global {what} of {width} bytes at {address:#x}, {phrase}: {self.spot(index, addresses.shape[:3], flat)}."
        )

    def barrier_at(self, index, address, rows, create=False):
        """The mbarrier at a shared address; raises unless all of `rows` have initialised it."""
        barrier = self.machine.barrier(address, create)
        if barrier is None:
            self.shared_index(index, np.full((1, 1, 1), address, np.uint32), 8)
        if barrier is None or not (create or (barrier.expected[rows] > 0).all()):
            raise BarrierError(
                f"No mbarrier has been initialised at shared address {address - SHARED_BASE}: {self.place_of(index)}."
            )
        return barrier

    def change(self, index, barrier, event, rows, count):
        """Lets `event` (arrive, expect or transfer) happen at an mbarrier; returns which rows' phases it completes."""
        before = barrier.phase.copy() if self.machine.races else None
        try:
            getattr(barrier, event)(rows, count)
        except BarrierError as error:
            raise BarrierError(
                f"Shared address {barrier.address - SHARED_BASE}: {error} ({self.place_of(index)})."
            ) from None
        return None if before is None else barrier.phase != before
