"""What the CTAs of one cluster of the weight-stationary GEMM do with each other, read off a trace.

Who did what when, which bytes went from where to where, and which pushed parts had landed at which time; and the
drawing of lanes of time and of traffic that the notebooks of both paths share. Time is the trace's logical time.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from . import style
from .panel import Panel

#: Opcodes to trace: all after the weights' loads that moves data or waits.
OPCODES = (
    "griddepcontrol.wait", "ld.global.v4", "cp.async.bulk", "ld.shared", "st.shared", "st.async", "st.relaxed", "mma",
    "mbarrier", "barrier.cluster", "bar.sync",
)  # fmt: skip
WAITS = ("wait grid", "wait CTA", "wait cluster", "wait x", "wait slot")
WORK = ("stage x", "multiply", "store", "push", "gather", "settle")


def spans(table: pd.DataFrame, tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What each warp of a cluster did: one row per span of logical time, by CTA, warp and start.

    `table` from `Trace.table` of the cluster's CTAs 0..ks-1, recorded with `OPCODES`. Columns: cta, warp, what (of
    `WAITS` and `WORK`), group (token group; 0 in a single pass, -1 without), block (that is settled or whose slot is
    waited for; else -1), number (of a cluster barrier, from 1; slot or group of an mbarrier; -1), start, end
    (exclusive), line (of the PTX).
    """
    found = []
    for (cta, warp), rows in table[table.event != "land"].groupby(["cta", "warp"], sort=True):
        reader, mine, waiting = _Reader(tactic, problem, cta), [], None
        for row in rows.sort_values("time").itertuples():
            if row.event == "wait":
                waiting = row.time if waiting is None else waiting
            elif told := reader.tell(row):
                if mine and mine[-1][:4] == told:  # goes on; or a try_wait that had failed without need
                    mine[-1] = (*mine[-1][:5], row.time + 1, mine[-1][6])
                else:
                    mine.append((*told, row.time if waiting is None else waiting, row.time + 1, row.line))
                waiting = None
        found += [(cta, warp, *span) for span in mine]
    names = ["cta", "warp", "what", "group", "block", "number", "start", "end", "line"]
    return pd.DataFrame(found, columns=names)


class _Reader:
    """Tells what the instructions of one warp are for, in their order."""

    REGIONS = {"stages": "multiply", "x": "multiply", "parts": "store", "receive": "settle", "red": "settle"}

    def __init__(self, tactic: WsGemmTactic, problem: GemmProblem, cta: int):
        self.regions, self.tactic, self.cta = tactic.smem_regions(problem), tactic, cta
        self.tiles = layout.tiles_per_group(problem.m, tactic.tg)
        self.group, self.block = (-1 if tactic.tg else 0), -1

    def tell(self, row) -> tuple[str, int, int, int] | None:
        """(what, group, block, number), as `spans` has them, or None for what only prepares."""
        op = row.opcode
        if op.startswith("griddepcontrol.wait"):
            return "wait grid", -1, -1, -1
        if op.startswith("barrier.cluster.wait"):
            return "wait cluster", -1, -1, row.phase
        if op.startswith("bar.sync"):
            return "wait CTA", -1, -1, -1
        if op.startswith("mbarrier.try_wait"):
            name, start = self.region(row.barrier)
            number = (row.barrier - start) // 8
            if name == "group barriers":
                self.group = number
                return "wait x", number, -1, number
            self.block = layout.owned_block(self.cta, number, self.tactic.ks)
            return "wait slot", *self.of_block(), number
        if op.startswith("cp.async.bulk"):
            return "stage x", -1, -1, -1
        if op.startswith(("mma", "ld.global")):
            return "multiply", self.group, -1, -1
        if op.startswith("st.async"):
            return "push", self.group, -1, -1
        if op.startswith("st.relaxed"):
            return "settle", *self.of_block(), -1
        if op.startswith(("ld.shared", "st.shared")):
            name, start = self.region(row.addresses[0])
            if name == "parts" and op.startswith("ld"):
                self.block = int(row.addresses[0] - start) // (self.tactic.kq * layout.FRAGMENT_BYTES)
                return "gather", *self.of_block(), -1
            what = self.REGIONS[name]
            return (what, *self.of_block(), -1) if what == "settle" else (what, self.group, -1, -1)
        return None

    def of_block(self) -> tuple[int, int]:
        """(group, block) of the block at hand."""
        return layout.block_tile(self.block, self.tactic.rt)[0] // self.tiles, self.block

    def region(self, offset: int) -> tuple[str, int]:
        """(name, start) of the region of shared memory that holds byte `offset`."""
        return next((name, start) for name, start, size in self.regions if start <= offset < start + size)


def traffic(table: pd.DataFrame, ks: int) -> pd.DataFrame:
    """Bytes of sums from each CTA of the cluster to each, a row per pair: source, target, bytes.

    A gather's loads bring bytes from the peer, pushes take them there; a CTA's own bytes go the same way.
    """
    rows = table[(table.space == "dsmem") & (table.event == "execute")]
    matrix = np.zeros((ks, ks), np.int64)
    for row in rows.itertuples():
        active = (row.active >> np.arange(layout.WARP)) & 1 == 1
        for peer, lanes in zip(*np.unique(np.asarray(row.peer)[active] % ks, return_counts=True), strict=True):
            pair = (peer, row.cta) if row.opcode.startswith("ld") else (row.cta, peer)
            matrix[pair] += row.bytes * lanes
    source, target = np.divmod(np.arange(ks * ks), ks)
    return pd.DataFrame({"source": source, "target": target, "bytes": matrix.reshape(-1)})


def owners(m: int, rt: int, kq: int, ks: int, tg: int = 0) -> pd.DataFrame:
    """Every part of every block of a cluster, and who sums it: a row per (block, CTA that holds the part, part).

    Columns: block, token_tile, row_tile, group, owner, slot, cta, part (0..kq-1 of the CTA), order (in which it is
    added, 0..ks*kq-1), bytes.
    """
    tiles = layout.token_tiles(m)
    block, cta, part = (a.reshape(-1) for a in np.mgrid[0 : tiles * rt, 0:ks, 0:kq])
    token_tile, row_tile = layout.block_tile(block, rt)
    owner, slot = layout.owner(block, ks)
    return pd.DataFrame(
        {
            "block": block,
            "token_tile": token_tile,
            "row_tile": row_tile,
            "group": token_tile // layout.tiles_per_group(m, tg),
            "owner": owner,
            "slot": slot,
            "cta": cta,
            "part": part,
            "order": cta * kq + part,
            "bytes": layout.FRAGMENT_BYTES,
        }
    )


def planned_traffic(parts: pd.DataFrame, ks: int, leader: bool = False) -> pd.DataFrame:
    """`traffic` as `owners` has it; with `leader`, as if CTA 0 summed every block."""
    target = 0 * parts.owner if leader else parts.owner
    sums = parts.bytes.groupby([parts.cta, target]).sum()
    every = pd.MultiIndex.from_product([range(ks), range(ks)])
    return sums.reindex(every, fill_value=0).rename_axis(["source", "target"]).rename("bytes").reset_index()


def state(frame: pd.DataFrame, time: int, sentence: Callable) -> pd.DataFrame:
    """What every warp does at logical `time`, in the words of `sentence(span)`: CTA, warp, doing, line (of the PTX)."""
    rows = []
    for (cta, warp), mine in frame.groupby(["cta", "warp"]):
        now = mine[(mine.start <= time) & (time < mine.end)]
        doing, line = "between two traced instructions", ""
        if len(now):
            doing, line = sentence(now.iloc[-1]), int(now.iloc[-1].line)
        elif time < mine.start.min():
            doing = "loads weights"
        elif time >= mine.end.max():
            doing = "done"
        rows.append((cta, warp, doing, line))
    return pd.DataFrame(rows, columns=["CTA", "warp", "doing", "line"])


def draw_lanes(
    panel: Panel, frame: pd.DataFrame, names: Sequence[tuple[int, int]], fills: Sequence[str],
    looks: Mapping[str, dict], texts: Sequence[str], size: float = 8,
) -> None:  # fmt: skip
    """One lane per (CTA, warp) of `names` in `panel`, whose x limits are the time shown.

    `fills`, `texts`: colour and text of each span of `frame`. `looks`: per what, hatch and the like; a look with a
    "facecolor" overrides the fill.
    """
    low, high = panel.x
    lane = {name: i for i, name in enumerate(names)}
    rows = np.array([lane.get(pair, -1) for pair in zip(frame.cta, frame.warp, strict=True)], dtype=float)
    shown = (frame.end > low).to_numpy() & (frame.start < high).to_numpy() & (rows >= 0)
    start, end = frame.start.clip(lower=low).to_numpy(), frame.end.clip(upper=high).to_numpy()
    fills, texts, what = np.array(fills, dtype=object), np.array(texts, dtype=object), frame.what.to_numpy()
    boxes = np.column_stack([start, rows + 0.08, end - start, np.full(len(rows), 0.84)])
    for kind, look in looks.items():
        mine = shown & (what == kind)
        if mine.any():
            panel.boxes(boxes[mine], look.get("facecolor") or fills[mine], **look)
    inches = (end - start) / (high - low) * panel.width
    lengths = np.array([len(text) for text in texts])
    wide = shown & (lengths > 0) & (inches > 0.0085 * size * lengths + 0.03)
    for mask, color in ((~np.isin(what, WAITS), style.ON_FILL), (np.isin(what, WAITS), panel.theme.ink)):
        mine = wide & mask
        panel.labels(np.column_stack([(start + end) / 2, rows + 0.5])[mine], texts[mine], color, size=size)


def time_ticks(panel: Panel) -> None:
    """Ticks and name of a logical time axis."""
    low, high = panel.x
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10**9) if (high - low) / s <= 12)
    marks = range(-(-low // step) * step, high + 1, step)
    panel.ticks("x", marks, marks, "logical time (order of traced events, not cycles)", grid=False)


def cursor(panels: Sequence[Panel], time: int | None) -> None:
    """A line at `time` through `panels`."""
    for panel in panels:
        if time is not None and panel.x[0] <= time <= panel.x[1]:
            panel.lines([[(time + 0.5, panel.y[0]), (time + 0.5, panel.y[1])]], panel.theme.ink, clip=False,
                        linewidths=1.6, zorder=5)  # fmt: skip


def traffic_view(matrices: Mapping[str, pd.DataFrame], theme: style.Theme = style.LIGHT) -> Figure:
    """Up to two matrices of bytes, CTA to CTA, of `traffic`, by title; darker is more, what is hatched stays home."""
    ks = max(int(data.source.max()) for data in matrices.values()) + 1
    most = max(int(data.bytes.max()) for data in matrices.values())
    cell = min(0.62, 3.6 / ks)
    fig = style.figure(12, cell * ks + 1.65, theme)
    for i, (title, data) in enumerate(matrices.items()):
        panel = Panel(fig, 1.0 + 5.9 * i, 0.55, 4.1, cell * ks, theme, x=(0, ks), y=(ks, 0))
        panel.title(title, raised=34)
        at = np.column_stack([data.target, data.source])
        boxes = np.column_stack([at, np.ones((len(at), 2))])
        for value in sorted(data.bytes.unique()):
            some = (data.bytes == value).to_numpy()
            panel.boxes(boxes[some], theme.grey, alpha=0.05 + 0.55 * value / max(most, 1))
        home = (data.source == data.target).to_numpy()
        panel.boxes(boxes[home], "none", hatch="//", edgecolor=theme.faint, linewidth=0)
        panel.boxes(boxes, "none", edgecolor=theme.paper, linewidth=1.5)
        panel.labels(at + 0.5, [f"{value:,}" for value in data.bytes], size=9, weight="bold")
        middle = np.arange(ks) + 0.5
        panel.labels(np.column_stack([middle, 0 * middle]), range(ks), theme.muted, va="bottom", offset=(0, 4))
        panel.labels(np.column_stack([0 * middle, middle]), [f"CTA {c}" for c in range(ks)], theme.muted, ha="right",
                     offset=(-6, 0))  # fmt: skip
        panel.note(0, 1, "to CTA", theme.muted, ha="left", offset=(0, 22))
        total = int(data.bytes[~home].sum())
        panel.note(0, 0, f"{total:,} B cross between CTAs, {int(data.bytes[home].sum()):,} B stay; most into one: "
                   f"{int(data.bytes.groupby(data.target).sum().max()):,} B", ha="left", offset=(0, -13))  # fmt: skip
    return fig
