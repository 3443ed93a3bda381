"""Races: two accesses of one word of shared memory, at least one of them a write, that nothing orders.

Every access is stamped with the column of what makes it and that column's count at the time (see `clocks`). For each
word the last write and each warp's last read are remembered. A new access is ordered after these if the clock of who
makes it holds at least their counts; if not, the two are a race, whatever order this run happened to execute them in.
Further rules are of the same kind:

- the words of an mbarrier are memory too: it must be initialised before anyone uses it, and invalidated after;
- a copy or transfer writes when it lands, with the clock of its issue;
- lanes of one warp run in step here but not on a GPU: what they exchange through a word needs `bar.warp.sync` between,
  and no lane may free a stage, or issue a copy into it, that the others may still be reading;
- lanes of one store must not write different values to one address;
- each warp of a warpgroup reads all of a wgmma's operands, from its issue to the `wgmma.wait_group` that covers it; and
  wgmma reads through the asynchronous proxy: a thread that has written there, by a store or `cp.async`, must execute
  `fence.proxy.async` afterwards (after it has waited for its copies) and before what orders the two;
- a CTA that accesses the shared memory of another must know that this has started, and what it does there must be
  ordered before the exit of one of the other's warps.

One run so judges all orders of the accesses that it makes, in the CTAs watched. It cannot judge accesses that it does
not make because a branch went another way, global memory, or other uses of proxies: `fence.proxy.async` is asked for
between writes and wgmma only, from the thread that writes, and where only some of a warp's lanes execute it, it counts
if no other lane of the warp has ever written.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Optional

import numpy as np

from ...layouts import WARP
from ..asynchronous import UNIT, Copy, Transfer
from ..errors import RaceError
from ..parser import SHARED_BASE, width_of
from ..place import OFFSET, RANK_SHIFT, Array, Mask, Place
from .clocks import ALL_LANES, LANE_BITS, Clocks, active_lanes, pick

if TYPE_CHECKING:
    from ..machine import Machine

KEPT_READS = 256  #: reads of another CTA's memory that are remembered before those known to all are forgotten
WORD = 4  #: bytes of a cell at most; coarser ones than what is accessed report neighbours that merely share one


class Races(Clocks):
    """Remembers and checks accesses; a *cell* is a word, numbered through all watched CTAs.

    A word is 4 bytes or, if the kernel loads or stores less than that at once, as little.
    """

    def start(self, machine: "Machine") -> Optional["Races"]:
        if super().start(machine) is None:
            return None
        plain = [
            ins for ins in machine.code if ins.op[0] in ("ld", "st") and any(p.startswith("shared") for p in ins.op)
        ]
        self.word = min([WORD, *(width_of(ins.op[-1]) // 8 for ins in plain)])  # bytes of a cell
        self.cells = -(-machine.shared_end // self.word)  # of one CTA
        cells = len(self.rows) * self.cells
        #: Of each cell the last write, and the last read by each warp of its CTA; the index is that of the instruction.
        self.write_column, self.write_time, self.write_index = np.zeros((3, cells), np.int32)
        self.write_lanes = np.zeros(cells, np.uint32)  # bits
        self.read_time, self.read_index = np.zeros((2, cells, self.warps), np.int32)
        self.read_lanes = np.zeros((cells, self.warps), np.uint32)  # since the lanes last met
        if self.has_products:
            self.product_time, self.product_index = np.zeros((2, cells, self.warps), np.int32)  # of reads by wgmma
        #: Of each CTA, by others: (cells, column, time, index, lanes).
        self.remote_reads: list[list[tuple[Array, int, int, int, Array]]] = [[] for _ in self.rows]
        #: (CTA, column of another CTA's warp or of a transfer) -> (latest time, index).
        self.touched: dict[tuple[int, int], tuple[int, int]] = {}
        return self

    def access(
        self, place: Place, index: int, addresses: Array, width: int, mask: Mask, write: bool, rows: Array | None = None
    ) -> None:
        for i, positions, warps in self.by_warp(place):
            warp, own = int(place.warps[i]), warps
            lanes = active_lanes(positions, i, mask)
            self.lanes[own] |= lanes
            if write:
                self.writers[own] |= lanes
            at = i, positions, own
            cells, warps, lanes, column, far = self._check_access(at, index, addresses, width, mask, write, rows)
            time = self.clock[warps, column]
            if far is not None:
                self._remember_remote(index, cells[far], warps[far], lanes[far], write)
            if write:
                self._wrote(cells, column, time, index, lanes)
                continue
            if far is not None:
                cells, lanes, time, warps, column = (a[~far] for a in (cells, lanes, time, warps, column))
            met = self.read_time[cells, warp] <= self.common[warps, column]
            self.read_lanes[cells[met], warp] = 0
            np.bitwise_or.at(self.read_lanes.reshape(-1), cells * self.warps + warp, lanes)
            self.read_time[cells, warp] = time
            self.read_index[cells, warp] = index

    def _check_access(self, at, index, addresses, width, mask, write, rows):
        """Checks without remembering; returns per cell (cell, warp, lanes, column, whether of another CTA)."""
        cells, warps, lanes = self._cells_of(at, addresses, width, mask, rows)
        column = self.column[warps]
        far = None if rows is None else cells // self.cells != warps // self.warps
        if far is not None:
            self._check_started(index, cells[far] // self.cells, warps[far], write)
        self._check(index, cells, warps, self.clock, write, column)
        self._check_lanes(index, cells, warps, column, lanes, write)
        return cells, warps, lanes, column, far

    def store(
        self, place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask, rows: Array | None = None
    ) -> None:
        """Raises if lanes write different `words` to one address."""
        positions, _ = self.watched_ctas(place)
        if not positions.size or addresses.size == 1 and all(word.size == 1 for word in words):
            return
        keep = place.full(mask)[positions]

        def part(array: Array) -> Array:
            return np.broadcast_to(array, place.shape)[positions][keep]

        targets = part(place.rows[:, None, None] if rows is None else rows).astype(np.int64)
        keys = targets << RANK_SHIFT | part(addresses)
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        same = keys[1:] == keys[:-1]
        if same.any():
            same &= np.any([np.diff(part(word)[order]) != 0 for word in words], axis=0)
        if same.any():
            key = int(keys[np.flatnonzero(same)[0]])
            ins = self.machine.code[index]
            raise RaceError(
                f"Race on shared address {(key & OFFSET) - SHARED_BASE} of CTA {self.machine.cta_of(key >> RANK_SHIFT)}"
                f": two lanes write different values in {ins.text!r} (PTX line {ins.line}), and nothing orders the two."
            )

    def initialised(self, place: Place, index: int, addresses: Array, mask: Mask) -> None:
        """An initialisation is a write, in a column of its own."""
        for at in self.by_warp(place):
            cells, warps, lanes = self._cells_of(at, addresses, 8, mask)
            self._check(index, cells, warps, self.clock, True, self.column[warps])
            column = 2 * self.own + self.column[warps]
            self._wrote(cells, column, self.clock[warps, column], index, lanes)

    def copy_issued(self, place: Place, copy: Copy) -> None:
        """What other lanes of the warp have read may be gone from now on."""
        for at in self.by_warp(place):
            lanes = active_lanes(at[1], at[0], copy.mask)
            self.writers[at[2]] |= lanes
            self.copiers[at[2]] |= lanes
            touched = self._cells_of(at, copy.dst, copy.size, copy.mask)
            inside = touched[0] - touched[1] // self.warps * self.cells < self.cells  # others are an error on landing
            cells, warps, lanes = (part[inside] for part in touched)
            self._check_lanes(copy.index, cells, warps, self.column[warps], lanes, True)
        super().copy_issued(place, copy)

    def copies_landed(self, place: Place, copies: Sequence[Copy]) -> None:
        every_warp = list(self.by_warp(place))
        for copy in copies if every_warp else ():
            at, clocks, ticks = self.issued[copy.origin or copy]
            clocks = self.widened(clocks)
            for which in every_warp:
                cells, warps, lanes = self._cells_of(which, copy.dst, copy.size, copy.mask)
                column = self._copy_column(self.column[warps], lanes)
                self._check(copy.index, cells, at[warps], clocks, True, column)
                self._wrote(cells, column, ticks[at[warps], lane_number(lanes)], copy.index, lanes)

    def _copy_column(self, column, lanes):
        """The column of copies that the lanes `lanes` of warps with some columns have issued."""
        if self.by_lane is None:
            return self.own + column
        return self.by_lane + WARP * column + lane_number(lanes)

    def part_lanes(self) -> None:
        copied = np.flatnonzero(self.actors(self.write_column)[0] == 1)
        super().part_lanes()
        self.write_column[copied] = self._copy_column(self.write_column[copied] - self.own, self.write_lanes[copied])

    def product_reads(self, place: Place, index: int, addresses: Array) -> None:
        """Every warp reads all chunks; what it reads must be known, and shown to wgmma."""
        for i, positions, own in self.by_warp(place):
            first = pick(addresses, positions, i) // self.word + own[:, None] // self.warps * self.cells
            cells = (first[..., None] + np.arange(UNIT // self.word)).reshape(-1)
            warps = own.repeat(len(cells) // len(own))
            column = self.products + self.column[warps]
            self._check(index, cells, warps, self.clock, False, column)
            last = self.write_column[cells]
            kind, writer = self.actors(last)
            by_thread = np.flatnonzero((kind == 0) | (kind == 1))
            shown = np.where(last < 2 * self.own, self.shown + last, last + WARP * self.own)[by_thread]
            known = self.clock[warps[by_thread], shown]
            for at in by_thread[self.write_time[cells[by_thread]] > known].tolist():
                who = self._side(self.write_index[cells[at]], writer[at], True)
                raise RaceError(
                    f"Race on {self._word(cells[at])}: {who}, {self._side(index, column[at], False)}, and the thread "
                    "that writes executes no fence.proxy.async between the two."
                )
            self.product_time[cells, int(place.warps[i])] = self.committed[warps] + 1
            self.product_index[cells, int(place.warps[i])] = index

    def transfer_issued(
        self, place: Place, parts: Sequence[Transfer], addresses: Array, mask: Mask, rows: Array
    ) -> None:
        """The mbarriers must be there already; they are read when the transfer lands."""
        for at in self.by_warp(place):
            self._check_access(at, parts[0].index, addresses, 8, mask, False, rows)
        self.issued.update(dict.fromkeys(parts, self.snapshot(place)))

    def transfer_landed(self, transfer: Transfer) -> None:
        """A transfer writes with the clock of its issue, in the column of its mbarrier."""
        place = transfer.place
        to = self.cta_number[transfer.rows]
        some = np.flatnonzero(to >= 0)
        if not some.size:
            return
        row, warp, _ = np.unravel_index(transfer.lanes[some], place.shape)
        warps = self.cta_number[place.rows[row]] * self.warps + place.warps[warp]
        to, dst = to[some], transfer.dst[some]
        at, clocks, _ = self.issued[transfer]
        words = transfer.size[some] // self.word
        item = np.repeat(np.arange(len(to)), words)
        step = np.arange(len(item)) - np.repeat(np.cumsum(words) - words, words)
        cells = to[item] * self.cells + dst[item] // self.word + step
        column, time = np.empty(len(to), np.int64), np.empty(len(to), np.int32)
        far = warps // self.warps != to
        for address in np.unique(transfer.barrier[some]):
            lanes = transfer.barrier[some] == address
            barrier = self.machine.mbarriers[int(address)]
            column[lanes] = self.transfer_column(barrier, self.rank[to[lanes]], far[lanes])
            time[lanes] = barrier.phase[transfer.rows[some][lanes]] + 1
        self._check(transfer.index, cells, at[warps][item], self.widened(clocks), True, column[item])
        order = np.argsort(cells, kind="stable")
        twice = order[1:][cells[order[1:]] == cells[order[:-1]]]
        if twice.size:
            i = int(twice[0])
            self._report(transfer.index, cells[i], column[item[i]], True, transfer.index, column[item[i]], True)
        self._wrote(cells, column[item], time[item], transfer.index)
        for cta, own, latest in np.unique(np.stack([to, column, time]), axis=1).T.tolist():
            self.touched[cta, own] = latest, transfer.index

    def exited(self, place: Place) -> None:
        """What others did to a CTA's shared memory must be ordered before its last warp's exit."""
        super().exited(place)
        _, ctas = self.watched_ctas(place)
        gone = set(ctas[self.machine.clusters.alive[self.rows[ctas]] == 0].tolist()) if self.size > 1 else ()
        for (to, column), (time, index) in self.touched.items() if gone else ():
            if to in gone and time > self.left[to, column]:
                ins = self.machine.code[index]
                what = {"ld": "DSMEM read", "cp": "Copy"}.get(ins.op[0], "DSMEM access")
                raise RaceError(f"{what} not ordered before exit of CTA {self._cta(to)}: "
                                f"{self._side(index, column, ins.op[0] != 'ld')}.")  # fmt: skip

    def _cells_of(self, at, addresses, width, mask, rows=None):
        """What warps touch that `by_warp` has named: (cells, warp of each, bits of its lanes)."""
        i, positions, warps = at
        to = warps[:, None] // self.warps if rows is None else self.cta_number[pick(rows, positions, i)]
        cells = pick(addresses, positions, i).astype(np.int64) // self.word + to * self.cells
        words = max(width // self.word, 1)
        if mask is None:
            count = cells.shape[1]
            lanes, warps = lane_bits(len(warps), count, words), warps.repeat(count * words)
        else:
            keep = pick(mask, positions, i)
            lanes = lane_bits(1, max(cells.shape[1], keep.shape[1]), 1)
            parts = np.broadcast_arrays(cells, warps[:, None], lanes, keep)
            cells, warps, lanes = (part[parts[-1]] for part in parts[:3])
            lanes, warps = lanes.repeat(words), warps.repeat(words)
        cells = cells[..., None] + np.arange(words) if words > 1 else cells
        return cells.reshape(-1), warps, lanes

    def _wrote(self, cells, column, time, index, lanes=ALL_LANES):
        self.write_column[cells] = column
        self.write_time[cells] = time
        self.write_index[cells] = index
        self.write_lanes[cells] = lanes

    def _remember_remote(self, index, cells, warps, lanes, write):
        """Remembers accesses of other CTAs' shared memory: of each CTA the latest by each warp, and all reads."""
        ctas = cells // self.cells
        for cta, warp in np.unique(np.stack([ctas, warps]), axis=1).T.tolist():
            column = int(self.column[warp])
            time = int(self.clock[warp, column])
            self.touched[cta, column] = time, index
            if write:
                continue
            read = (ctas == cta) & (warps == warp)
            distinct, which = np.unique(cells[read], return_inverse=True)
            bits = np.zeros(len(distinct), np.uint32)
            np.bitwise_or.at(bits, which.reshape(-1), lanes[read])
            reads = self.remote_reads[cta]
            reads.append((distinct, column, time, index, bits))
            if len(reads) % KEPT_READS == 0:  # what all warps of the cluster know can race with nothing to come
                first = cta // self.size * self.own
                known = self.clock[first : first + self.own].min(axis=0)
                reads[:] = [read for read in reads if read[2] > known[read[1]]]

    def _check(self, index, cells, warps, clocks, write, columns):
        """Raises if who knows `clocks[warps]` is not ordered after what is remembered of `cells`."""
        last = self.write_column[cells]
        for i in np.flatnonzero(self.write_time[cells] > clocks[warps, last]).tolist():
            self._report(index, cells[i], columns[i], write, self.write_index[cells[i]], last[i], True)
        if not write:
            return
        rank = self.rank[cells // self.cells]
        known = clocks[:, : self.own].reshape(len(clocks), self.size, self.warps)[warps, rank]
        for i, reader in np.argwhere(self.read_time[cells] > known).tolist():
            last_read = self.read_index[cells[i], reader]
            self._report(index, cells[i], columns[i], write, last_read, rank[i] * self.warps + reader, False)
        if self.has_products:
            done = clocks[:, self.products : self.shown].reshape(len(clocks), self.size, self.warps)[warps, rank]
            for i, reader in np.argwhere(self.product_time[cells] > done).tolist():
                last_read, column = self.product_index[cells[i], reader], rank[i] * self.warps + reader
                self._report(index, cells[i], columns[i], write, last_read, self.products + column, False)
        for read, column, time, reading, _ in self._remote_reads_of(cells):
            for i in np.flatnonzero(clocks[warps, column] < time).tolist():
                if cells[i] in read:
                    self._report(index, cells[i], columns[i], write, reading, column, False)

    def _remote_reads_of(self, cells):
        ctas = np.unique(cells // self.cells) if self.size > 1 else ()
        return [read for cta in ctas for read in self.remote_reads[cta]]

    def _check_lanes(self, index, cells, warps, column, lanes, write):
        """Raises if other lanes of the same warp have accessed `cells` since its lanes last met."""
        last = self.write_column[cells]
        bad = self.write_time[cells] > self.common[warps, last]
        if bad.any():
            kind, writer = self.actors(last)
            bad &= (self.write_lanes[cells] & lanes == 0) & (kind >= 0) & (writer == column)
            for i in np.flatnonzero(bad).tolist():
                self._report(index, cells[i], column[i], write, self.write_index[cells[i]], last[i], True, True)
        if not write:
            return
        warp = warps % self.warps
        bad = self.read_time[cells, warp] > self.common[warps, column]
        if bad.any():
            near = cells // self.cells == warps // self.warps
            for i in np.flatnonzero(bad & near & ((self.read_lanes[cells, warp] & ~lanes) != 0)).tolist():
                last_read = self.read_index[cells[i], warp[i]]
                self._report(index, cells[i], column[i], write, last_read, column[i], False, True)
        for read, reader, time, reading, bits in self._remote_reads_of(cells):
            for i in np.flatnonzero((column == reader) & (self.common[warps, column] < time)).tolist():
                if (bits[read == cells[i]] & ~lanes[i]).any():
                    self._report(index, cells[i], reader, write, reading, reader, False, True)

    def _check_started(self, index, ctas, warps, write):
        """Raises if warps do not know that the `ctas` which they access have started."""
        for i in np.flatnonzero(self.clock[warps, self.starts + self.rank[ctas]] == 0).tolist():
            who = self._side(index, int(self.column[warps[i]]), write)
            raise RaceError(f"{who[0].upper()}{who[1:]} shared memory of CTA {self._cta(ctas[i])}, and nothing says "
                            "that this CTA has started.")  # fmt: skip

    def _report(self, index, cell, column, write, other, other_column, other_writes, lanes=False):
        """Raises for an access by `column` and an earlier one; `lanes`: both by one warp."""
        raise RaceError(
            f"Race on {self._word(cell)}: {self._side(other, other_column, other_writes)} and "
            f"{'another lane of the same warp' if lanes else ''}{self._side(index, column, write, lanes)}, and "
            f"{'no bar.warp.sync' if lanes else 'nothing'} orders the two."
        )

    def _word(self, cell):
        return (
            f"shared address {int(cell) % self.cells * self.word - SHARED_BASE} of CTA {self._cta(cell // self.cells)}"
        )

    def _cta(self, number):
        return self.machine.cta_of(self.rows[number])

    def _side(self, index, column, writes, anonymous=False) -> str:
        """Who does what, in words; just what if `anonymous`."""
        ins, (kind, column) = self.machine.code[index], (int(x) for x in self.actors(np.asarray(column)))
        rank, w = divmod(column, self.warps)
        warp = f"warp {w}" + (f" of CTA rank {rank}" if self.size > 1 else "")
        actors = warp, f"an unfinished copy of {warp}", warp, f"an unfinished wgmma of {warp}", "an unfinished transfer"
        who = "" if anonymous else actors[kind]
        return f"{who} {'writes' if writes else 'reads'} in {ins.text!r} (PTX line {ins.line})"


def lane_number(bits: Array) -> Array:
    """The lane whose bit it is; the last one's if it is that of all."""
    return np.bitwise_count(bits - np.uint32(1))


@cache
def lane_bits(ctas: int, lanes: int, words: int) -> np.ndarray:
    """The bit of the lane that touches each of `words` cells, CTAs first; one address is an access by all lanes."""
    bits = LANE_BITS[:lanes] if lanes > 1 else np.full(lanes, ALL_LANES)
    return np.tile(bits.repeat(words), ctas)
