"""What a run did, as a table: one row per execution of an instruction by a warp, and what follows from it.

A trace is opt-in and bounded: choose opcodes and CTAs, and a limit. Time is logical: it counts recorded events, in the
order in which the machine executed them, and says nothing about cycles.
"""

import numpy as np

from ..layouts import banks
from .clusters import OFFSET, RANK_SHIFT
from .isa import access
from .parser import SHARED_BASE

SECTOR = 32  #: bytes of global memory that move as one
MATRIX_LANES = 8  #: lanes that give the row addresses of one 8x8 matrix of `ldmatrix`
COLUMNS = ("time", "event", "cta", "cta_x", "cta_y", "cta_z", "warp", "line", "opcode", "active", "lanes", "space",
           "bytes", "addresses", "peer", "source", "barrier", "phase", "pending", "pending_bytes")  # fmt: skip


class Trace:
    """Records executed instructions whose opcode starts with one of `opcodes`, in the CTAs `ctas`.

    `opcodes`: such as `("ldmatrix", "cp.async", "mbarrier")`; None for all. `ctas`: linear numbers (x fastest) or
    (x, y, z), None for all. `warps`: numbers in the CTA, None for all. `limit`: rows; later ones are dropped and
    `truncated` is set. Pass it to `run(trace=...)` once.
    """

    def __init__(self, opcodes=None, ctas=None, warps=None, limit: int = 200_000):
        if isinstance(opcodes, str):
            opcodes = (opcodes,)
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit {limit!r} must be a positive integer.")
        self.opcodes = None if opcodes is None else tuple(opcodes)
        self.ctas = None if ctas is None else {c if isinstance(c, tuple) else int(c) for c in ctas}
        self.warps = None if warps is None else {int(w) for w in warps}
        self.limit, self.truncated = limit, False
        self.rows, self.events = 0, []
        self.source = self.size = None

    def wants(self, ins) -> bool:
        """Whether executions of an instruction are recorded."""
        return self.opcodes is None or ins.opcode.startswith(self.opcodes)

    def record(self, group, ins, event, mask, addresses, barrier, at=None):
        """Appends one event of a group of warps; called by the machine. `at`: rows where the barrier is."""
        source, size, self.source, self.size = self.source, self.size, None, None
        rows, warps = self.chosen(group)
        if not len(rows) or not len(warps) or self.truncated:
            return
        if self.rows + len(rows) * len(warps) > self.limit:
            self.truncated = True
            return
        machine = group.machine
        self.rows += len(rows) * len(warps)
        state = None
        if barrier is not None:
            state = barrier.state((group.rows if at is None else at)[rows])
        part = [None if a is None else _pick(a, rows, warps) for a in (mask, addresses, source, size)]
        ctas = machine.ctas[group.rows[rows] // machine.fills]
        launch = machine.launch
        self.events.append((event, ins, ctas, launch.grid, launch.cluster, group.warps[warps], *part, state))

    def chosen(self, group):
        """Indices of the group's rows and warps that are recorded; of fill-pattern twins only the first."""
        fills = group.machine.fills
        rows = np.flatnonzero(group.rows % fills == 0)
        if self.ctas is not None:
            ctas, grid = group.machine.ctas[group.rows[rows] // fills], group.machine.launch.grid
            linear = ctas[:, 0] + grid[0] * (ctas[:, 1] + grid[1] * ctas[:, 2])
            keep = [int(n) in self.ctas or tuple(map(int, c)) in self.ctas for n, c in zip(linear, ctas, strict=True)]
            rows = rows[keep]
        warps = np.arange(len(group.warps))
        if self.warps is not None:
            warps = np.flatnonzero([int(w) in self.warps for w in group.warps])
        return rows, warps

    def table(self):
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

        columns, events = {name: [] for name in COLUMNS}, self.events
        for time, (event, ins, ctas, grid, cluster, warps, mask, addresses, source, size, state) in enumerate(events):
            space, fixed = access(ins)
            for r, cta in enumerate(ctas):
                x, y, z = (int(c) for c in cta)
                for w, warp in enumerate(warps):
                    active = np.ones(32, bool) if mask is None else _lanes(mask, r, w)
                    if not active.any():
                        continue
                    at = None if addresses is None else _lanes(addresses, r, w).astype(np.int64)
                    linear, peer = x + grid[0] * (y + grid[1] * z), None
                    if at is not None and "shared::cluster" in ins.op:
                        rank = at >> RANK_SHIFT
                        peer, at = np.where(rank > 0, linear - x % cluster + rank - 1, linear), at & OFFSET
                    if at is not None and space in ("shared", "dsmem"):
                        at = at - SHARED_BASE
                    width = fixed if size is None else int(_lanes(size, r, w)[active].max())
                    origin = None if source is None else _lanes(source, r, w).astype(np.int64)
                    barrier = (-1, 0, 0, 0)
                    if state is not None:
                        barrier = state[0], int(state[1][r]), int(state[2][r]), int(state[3][r])
                    bits = int((active.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum())
                    row = (time, event, linear, x, y, z, int(warp), ins.line, ins.opcode, bits, int(active.sum()),
                           space, width, at, peer, origin, *barrier)  # fmt: skip
                    for name, value in zip(COLUMNS, row, strict=True):
                        columns[name].append(value)
        return pandas.DataFrame(columns)


def _pick(array, rows, warps):
    if array.shape[0] > 1:
        array = array[rows]
    if array.shape[1] > 1:
        array = array[:, warps]
    return array.copy()


def _lanes(array, row, warp):
    lanes = array[row if array.shape[0] > 1 else 0, warp if array.shape[1] > 1 else 0]
    return np.broadcast_to(lanes, (32,))


def shared_accesses(table):
    """The rows of a trace that access shared memory by address, with their wavefronts and what they would be at best.

    Adds `wavefronts`, `ideal` and `conflicts` (the difference). A wavefront serves 128 bytes: 8-byte accesses go by
    half-warp, 16-byte ones by quarter-warp, `ldmatrix` by 8x8 matrix. Copies count where they land.
    """
    rows = table[(table.space == "shared") & (table.bytes > 0) & table.addresses.notna() & (table.lanes > 0)].copy()
    counts = [_wavefronts(*row) for row in zip(rows.opcode, rows.addresses, rows.bytes, rows.active, strict=True)]
    rows["wavefronts"] = [c[0] for c in counts]
    rows["ideal"] = [c[1] for c in counts]
    rows["conflicts"] = rows.wavefronts - rows.ideal
    return rows


def _wavefronts(opcode, addresses, width, active):
    lanes = (active >> np.arange(32)) & 1 == 1
    if opcode.startswith("ldmatrix"):
        lanes = lanes & (np.arange(32) < MATRIX_LANES * int(opcode.split(".x")[1][0]))
    width = max(width, 4)
    addresses = addresses // width * width if width == 4 else addresses
    return int(banks.wavefronts(addresses, width, lanes)), int(banks.ideal_wavefronts(width, lanes))


def global_accesses(table):
    """The rows of a trace that access global memory, with `sectors` (32 bytes) per request and the `ideal` number."""
    rows = table[(table.bytes > 0) & ((table.space == "global") | table.source.notna())].copy()
    where = rows.source.where(rows.source.notna(), rows.addresses)
    sectors, ideal = [], []
    for addresses, width, active in zip(where, rows.bytes, rows.active, strict=True):
        used = addresses[(active >> np.arange(32)) & 1 == 1]
        sectors.append(len(np.unique(np.concatenate([used // SECTOR, (used + width - 1) // SECTOR]))))
        ideal.append(-(-len(np.unique(used)) * width // SECTOR))
    rows["sectors"], rows["ideal"] = sectors, ideal
    return rows


def bytes_by_space(table):
    """Bytes that the traced instructions moved, a Series by `global read`, `global write`, `shared read`, `shared
    write` and, where there are any, `dsmem read` and `dsmem write`."""
    import pandas

    totals = dict.fromkeys(("global read", "global write", "shared read", "shared write"), 0)
    rows = table[(table.bytes > 0) & (table.event == "execute")]
    for opcode, space, width, lanes in zip(rows.opcode, rows.space, rows.bytes, rows.lanes, strict=True):
        if opcode.startswith("cp."):
            totals["global read"] += width * lanes
            totals["shared write"] += width * lanes
        elif opcode.startswith("ldmatrix"):
            totals["shared read"] += width * min(lanes, MATRIX_LANES * int(opcode.split(".x")[1][0]))
        else:
            kind = f"{space} {'read' if opcode.startswith('ld') else 'write'}"
            totals[kind] = totals.get(kind, 0) + width * lanes
    return pandas.Series(totals, name="bytes")


def dsmem_traffic(table):
    """Bytes between CTAs: a DataFrame `source`, `destination` (linear CTA numbers), `kind` and `bytes`.

    `kind` is `pull` (`ld.shared::cluster`), `push` (`st.shared::cluster` and `st.async`) or `bulk` (`cp.async.bulk`,
    whose source is global memory: -1). A CTA that addresses itself is its own source and destination. Bytes count at
    the issue.
    """
    import pandas

    rows = table[(table.event == "execute") & (table.bytes > 0) & (table.lanes > 0)]
    totals = {}
    for opcode, cta, active, width, peer in zip(rows.opcode, rows.cta, rows.active, rows.bytes, rows.peer, strict=True):
        bulk = opcode.startswith("cp.async.bulk")
        if not bulk and peer is None:
            continue
        peers = np.full(32, cta) if peer is None else peer
        lanes = (active >> np.arange(32)) & 1 == 1
        for other, count in zip(*np.unique(peers[lanes], return_counts=True), strict=True):
            pull = opcode.startswith("ld")
            key = (-1 if bulk else int(other) if pull else int(cta), int(cta) if pull else int(other),
                   "bulk" if bulk else "pull" if pull else "push")  # fmt: skip
            totals[key] = totals.get(key, 0) + int(count) * int(width)
    found = [(*key, moved) for key, moved in sorted(totals.items())]
    return pandas.DataFrame(found, columns=["source", "destination", "kind", "bytes"])


def timeline(table):
    """What each warp did when: a DataFrame of spans `cta`, `warp`, `what`, `start`, `end`, `line`, `barrier`, `phase`.

    `what` is `wait` (from reaching a blocking instruction to passing it), `copy` (from a warp's first `cp.async` after
    its previous arrival to the landing of the batch, or a bulk copy to its landing), `push` (an `st.async` to its
    landing), `mma` or `other` (unbroken runs of executed instructions).
    Record with opcodes such as `("cp.async", "mbarrier", "bar.sync", "mma")`.
    """
    import pandas

    spans = []
    for (cta, warp), rows in table.groupby(["cta", "warp"], sort=True):
        waiting, copy_start, flying, current = None, None, {}, None
        for row in rows.itertuples():
            if row.event in ("wait", "pass"):
                if waiting is None:
                    waiting = row.time
                if row.event == "pass":
                    spans.append((cta, warp, "wait", waiting, row.time, row.line, row.barrier, row.phase))
                    waiting = None
                current = None
            elif row.event == "land":
                start = flying.get(row.line) or [row.time]
                what = "push" if row.opcode.startswith("st") else "copy"
                spans.append((cta, warp, what, start[0], row.time, row.line, row.barrier, row.phase))
                del start[0]
            elif row.opcode.startswith("cp.async.mbarrier"):
                flying.setdefault(row.line, []).append(row.time if copy_start is None else copy_start)
                copy_start = None
            elif row.opcode.startswith(("cp.async.bulk", "st.async")):
                flying.setdefault(row.line, []).append(row.time)
            elif row.opcode.startswith("cp.async"):
                copy_start = row.time if copy_start is None else copy_start
            else:
                what = "mma" if row.opcode.startswith("mma") else "other"
                if current is not None and spans[current][2] == what:
                    spans[current] = (*spans[current][:4], row.time, *spans[current][5:])
                else:
                    current = len(spans)
                    spans.append((cta, warp, what, row.time, row.time, row.line, row.barrier, row.phase))
    names = ["cta", "warp", "what", "start", "end", "line", "barrier", "phase"]
    return pandas.DataFrame(spans, columns=names)
