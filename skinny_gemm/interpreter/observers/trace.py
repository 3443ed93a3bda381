"""What a run did, as a table: one row per execution of an instruction by a warp, and what follows from it.

A trace is opt-in and bounded: choose opcodes and CTAs, and a limit. Time is logical: it counts recorded events, in the
order in which the machine executed them, and says nothing about cycles.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checks import check_integer
from ...layouts import WARP, banks
from .. import arithmetic as ops
from ..asynchronous import Batch, Transfer
from ..barriers import MBarrier
from ..isa import access
from ..parser import SHARED_BASE, Instruction
from ..place import OFFSET, RANK_SHIFT, Array, Mask, Place, linear
from . import Observer

if TYPE_CHECKING:
    import pandas as pd

MATRIX_LANES = 8  #: lanes that give the row addresses of one 8x8 matrix of `ldmatrix`
COLUMNS = ("time", "event", "cta", "cta_x", "cta_y", "cta_z", "warp", "line", "opcode", "active", "lanes", "space",
           "bytes", "addresses", "peer", "source", "barrier", "phase", "pending", "pending_bytes")  # fmt: skip


class Trace(Observer):
    """Records executed instructions whose opcode starts with one of `opcodes`, in the CTAs `ctas`.

    `opcodes`: such as `("ldmatrix", "cp.async", "mbarrier")`; None for all. `ctas`: linear numbers (x fastest) or
    (x, y, z), None for all. `warps`: numbers in the CTA, None for all. `limit`: rows; later ones are dropped and
    `truncated` is set. Pass it to `run(trace=...)` once.
    """

    def __init__(
        self, opcodes: str | Sequence[str] | None = None, ctas: Iterable[int | tuple[int, int, int]] | None = None,
        warps: Iterable[int] | None = None, limit: int = 200_000,
    ):  # fmt: skip
        self.opcodes = (opcodes,) if isinstance(opcodes, str) else None if opcodes is None else tuple(opcodes)
        self.ctas = None if ctas is None else {c if isinstance(c, tuple) else int(c) for c in ctas}
        self.warps = None if warps is None else {int(w) for w in warps}
        self.limit, self.truncated = check_integer("limit", limit, 1), False
        self.rows = 0
        self.events: list[tuple[Any, ...]] = []

    def wants(self, ins: Instruction) -> bool:
        """Whether executions of an instruction are recorded."""
        return self.opcodes is None or ins.opcode.startswith(self.opcodes)

    def executed(
        self, place: Place, index: int, mask: Mask, addresses: Array | None, source: Array | None, size: Array | None
    ) -> None:
        """Records an instruction; of an mbarrier that all threads name, with the barrier's state."""
        address = -1 if addresses is None or addresses.size > 1 else int(addresses[0, 0, 0])
        self._record(place, index, "execute", place.machine.mbarriers.get(address), (mask, addresses, source, size))

    def blocked(self, place: Place, index: int, barrier: Any) -> None:
        self._record(place, index, "wait", barrier)

    def resumed(self, place: Place, index: int, barrier: Any) -> None:
        self._record(place, index, "pass", barrier)

    def landed(self, flight: Batch | Transfer, barrier: MBarrier) -> None:
        self._record(flight.place, flight.index, "land", barrier, (flight.mask, None, None, None), flight.receivers)

    def _record(self, place, index, event, barrier, arrays=(None,) * 4, receivers=None):
        """Appends one event of a place; `receivers` are the rows where the barrier is, if not the place's."""
        machine, ins = place.machine, place.machine.code[index]
        if not self.wants(ins) or self.truncated:
            return
        rows = np.flatnonzero(place.rows % machine.fills == 0)  # of fill-pattern twins only the first
        ctas = machine.ctas[place.rows[rows] // machine.fills]
        if self.ctas is not None:
            numbers = linear(ctas, machine.context.grid).tolist()
            chosen = [n in self.ctas or tuple(c) in self.ctas for n, c in zip(numbers, ctas.tolist(), strict=True)]
            rows, ctas = rows[chosen], ctas[chosen]
        warps = np.flatnonzero([self.warps is None or w in self.warps for w in place.warps.tolist()])
        self.truncated = self.rows + len(rows) * len(warps) > self.limit
        if self.truncated or not len(rows) or not len(warps):
            return
        self.rows += len(rows) * len(warps)
        state = None if barrier is None else barrier.state((place.rows if receivers is None else receivers)[rows])
        part = [None if a is None else ops.select(a, rows, warps).copy() for a in arrays]
        geometry = machine.context.grid, machine.context.cluster
        self.events.append((event, ins, ctas, *geometry, place.warps[warps], *part, state))

    def table(self) -> "pd.DataFrame":
        """The trace as a pandas DataFrame; executions without an active lane are left out.

        Columns: `time` (logical), `event` (`execute`; for blocking instructions `wait` and `pass`; for copies that
        arrive at a barrier and for transfers also `land`), `cta` (linear), `cta_x/y/z`, `warp`, `line` (of the PTX),
        `opcode`, `active` (lanes as bits), `lanes` (how many), `space` (`shared`, `global`, `dsmem` for shared memory
        of the cluster, or ""), `bytes` (per lane; the most, where a bulk copy's lanes differ), `addresses` (an array of
        32, shared ones relative to the CTA's shared memory; None without), `peer` (of a shared::cluster address: 32
        linear CTA numbers), `source` (of a copy: 32 global addresses), `barrier` (shared address of an mbarrier, number
        of a named one; -1 for the cluster's and without), `phase` (phases completed), `pending` (arrivals) and
        `pending_bytes` after the event, in the CTA whose barrier it is.
        """
        import pandas

        table: list[tuple[Any, ...]] = []
        for time, recorded in enumerate(self.events):
            event, ins, ctas, grid, cluster, warps, mask, addresses, source, size, state = recorded
            space, fixed = access(ins)
            for r, (cta, (x, y, z)) in enumerate(zip(linear(ctas, grid).tolist(), ctas.tolist(), strict=True)):
                for w, warp in enumerate(warps):
                    active = np.ones(WARP, bool) if mask is None else _lanes(mask, r, w)
                    if not active.any():
                        continue
                    at, peer = None if addresses is None else _lanes(addresses, r, w).astype(np.int64), None
                    if at is not None and "shared::cluster" in ins.op:
                        rank = at >> RANK_SHIFT
                        peer, at = np.where(rank > 0, cta - x % cluster + rank - 1, cta), at & OFFSET
                    if at is not None and space in ("shared", "dsmem"):
                        at = at - SHARED_BASE
                    width = fixed if size is None else int(_lanes(size, r, w)[active].max())
                    origin = None if source is None else _lanes(source, r, w).astype(np.int64)
                    barrier = (-1, 0, 0, 0) if state is None else (state[0], *(int(x[r]) for x in state[1:]))
                    bits = int((active.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum())
                    table.append((time, event, cta, x, y, z, int(warp), ins.line, ins.opcode, bits, int(active.sum()),
                                  space, width, at, peer, origin, *barrier))  # fmt: skip
        return pandas.DataFrame(table, columns=list(COLUMNS))


def _lanes(array, row, warp):
    return np.broadcast_to(array[row if array.shape[0] > 1 else 0, warp if array.shape[1] > 1 else 0], WARP)


def shared_accesses(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows of a trace that access shared memory by address, with their wavefronts and what they would be at best.

    Adds `wavefronts`, `ideal` and `conflicts` (the difference). A wavefront serves 128 bytes: 8-byte accesses go by
    half-warp, 16-byte ones by quarter-warp, `ldmatrix` by 8x8 matrix. Copies count where they land.
    """
    rows = table[(table.space == "shared") & (table.bytes > 0) & table.addresses.notna() & (table.lanes > 0)].copy()
    counts = [_wavefronts(*row) for row in zip(rows.opcode, rows.addresses, rows.bytes, rows.active, strict=True)]
    rows["wavefronts"], rows["ideal"] = ([count[i] for count in counts] for i in (0, 1))
    rows["conflicts"] = rows.wavefronts - rows.ideal
    return rows


def _wavefronts(opcode, addresses, width, active):
    lanes = (active >> np.arange(WARP)) & 1 == 1
    if opcode.startswith("ldmatrix"):
        lanes = lanes & (np.arange(WARP) < MATRIX_LANES * int(opcode.split(".x")[1][0]))
    width = max(width, 4)
    addresses = addresses // width * width if width == 4 else addresses
    return int(banks.wavefronts(addresses, width, lanes)), int(banks.ideal_wavefronts(width, lanes))
