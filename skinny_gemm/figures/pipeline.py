"""The pipeline of one CTA, read off a trace: who issues, who waits for what, and the phase of every barrier.

Colour is the warp's role. Time is the trace's logical time: the order of events, not cycles.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from . import style
from .panel import Panel

#: Opcodes to trace: all that moves data or synchronises.
OPCODES = ("cp.async", "ldmatrix", "mma", "mbarrier", "bar.sync", "griddepcontrol", "ld.shared", "st.shared")
BUSY = ("issue", "compute", "reduce")  #: what a warp does while it does not wait
WAITS = {"wait full": "//", "wait empty": "..", "wait CTA": "\\\\", "wait grid": "xx"}  #: and their hatches


def spans(table: pd.DataFrame, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """What each warp of a traced CTA did: one row per span of logical time, by warp and start.

    `table` from `Trace.table` recorded with `OPCODES`; `regions` as in a footprint, of which "full" and "empty" hold
    the ring's barriers. Columns: warp, what (of `BUSY` and `WAITS`, or "in flight": from a batch's issue to its
    landing), stage and tile (-1 without), parity (that a wait waited for, else -1), start, end (exclusive), line.
    """
    barriers = {name: (offset, size) for name, offset, size in regions if name in ("full", "empty")}

    def place(row) -> tuple[str, int]:
        for name, (offset, size) in barriers.items():
            if row.opcode.startswith(("mbarrier", "cp.async.mbarrier")) and offset <= row.barrier < offset + size:
                return name, (row.barrier - offset) // 8
        return "", -1

    found = []
    for warp, rows in table.groupby("warp", sort=True):
        open_span, waiting, batches, batch_start, issued, drained = None, None, [], None, 0, 0

        def close():
            nonlocal open_span
            if open_span:
                found.append(tuple(open_span))
            open_span = None

        for row in rows.itertuples():
            name, stage = place(row)
            if row.event == "land":
                start, tile, where = batches.pop(0)
                found.append((warp, "in flight", where, tile, -1, start, row.time, row.line))
            elif row.event in ("wait", "pass"):
                close()
                waiting = row.time if waiting is None else waiting
                if row.event == "pass":
                    what = f"wait {name}" if name else "wait CTA"
                    retried = found and found[-1][:3] == (warp, what, stage) and found[-1][-1] == row.line
                    if retried:  # the first try_wait may fail without need
                        waiting = found.pop()[5]
                        drained -= name == "full"
                    tile = drained if name == "full" else issued if name == "empty" else -1
                    parity = (row.phase - 1) & 1 if name else -1
                    found.append((warp, what, stage, tile, parity, waiting, row.time + 1, row.line))
                    drained += name == "full"
                    waiting = None
            elif row.opcode.startswith("griddepcontrol.wait"):
                close()
                found.append((warp, "wait grid", -1, -1, -1, row.time, row.time + 1, row.line))
            elif row.opcode.startswith("cp.async.mbarrier"):  # arrives when the batch has landed
                start = open_span[5] if open_span else row.time
                batches.append((start if batch_start is None else batch_start, issued, stage))
                found.append((warp, "issue", stage, issued, -1, start, row.time + 1, row.line))
                open_span, batch_start, issued = None, None, issued + 1
            elif what := _busy(row.opcode):
                if what == "issue" and batch_start is None:
                    batch_start = row.time
                tile = {"issue": issued, "compute": drained - 1}.get(what, -1)
                if open_span and (open_span[1], open_span[3]) == (what, tile):
                    open_span[6] = row.time + 1
                else:
                    close()
                    open_span = [warp, what, -1, tile, -1, row.time, row.time + 1, row.line]
        close()
    frame = pd.DataFrame(found, columns=["warp", "what", "stage", "tile", "parity", "start", "end", "line"])
    for what, teller in (("compute", "wait full"), ("issue", "in flight")):  # whose row of the same tile has the stage
        stages = frame[frame.what == teller].drop_duplicates(["warp", "tile"]).set_index(["warp", "tile"]).stage
        mine = frame.what == what
        keys = pd.MultiIndex.from_frame(frame.loc[mine, ["warp", "tile"]])
        frame.loc[mine, "stage"] = stages.reindex(keys).fillna(-1).astype(int).to_numpy()
    return frame.sort_values(["warp", "start"], ignore_index=True)


def phases(table: pd.DataFrame, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """When each barrier of the ring was in which phase: barrier ("full" or "empty"), stage, phase, start, end."""
    last = int(table.time.max()) + 1
    rows = []
    for name, offset, size in regions:
        if name not in ("full", "empty"):
            continue
        inside = (table.barrier >= offset) & (table.barrier < offset + size)
        mine = table[table.opcode.str.contains("mbarrier") & inside]
        for address, events in mine.groupby("barrier"):
            events = events.sort_values("time", kind="stable")
            starts = events[events.phase > events.phase.cummax().shift(fill_value=-1)]
            ends = [*starts.time[1:], last]
            rows += [
                (name, (address - offset) // 8, phase, start, end)
                for phase, start, end in zip(starts.phase, starts.time, ends, strict=True)
            ]
    return pd.DataFrame(rows, columns=["barrier", "stage", "phase", "start", "end"])


def roles(frame: pd.DataFrame) -> dict[int, str]:
    """Each warp's role, told from what it does: compute, or a loader that waits for the previous grid or does not."""
    named = {}
    for warp, rows in frame.groupby("warp"):
        did = set(rows.what)
        named[warp] = "compute" if "compute" in did else "load x" if "wait grid" in did else "load weights"
    return named


def state(frame: pd.DataFrame, names: Mapping[int, str], time: int) -> pd.DataFrame:
    """What every warp does at logical `time`, in words: warp, role, doing, line (of the PTX), in flight (batches)."""
    rows = []
    for warp, mine in frame.groupby("warp"):
        flying = mine[(mine.what == "in flight") & (mine.start <= time) & (time < mine.end)]
        own = mine[mine.what != "in flight"]
        now = own[(own.start <= time) & (time < own.end)]
        doing, line = "between two traced instructions", ""
        if len(now):
            span = now.iloc[-1]
            doing, line = _sentence(span), int(span.line)
        elif len(own) and time >= own.end.max():
            doing = "done"
        rows.append((warp, names[warp], doing, line, ", ".join(f"tile {t}" for t in flying.tile)))
    return pd.DataFrame(rows, columns=["warp", "role", "doing", "line", "in flight"])


def timeline(
    frame: pd.DataFrame,
    barriers: pd.DataFrame,
    names: Mapping[int, str],
    time: int | None = None,
    window: tuple[int, int] | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """One lane per warp over logical time, and below it the phase of every full and empty barrier.

    `frame` from `spans`, `barriers` from `phases`, `names` warp to role. Numbers in the spans are stages. `time` draws
    a cursor; `window` limits the time shown.
    """
    low, high = window or (int(frame.start.min()), int(frame.end.max()))
    warps, stages = sorted(names), sorted(barriers.stage.unique())
    kinds = [kind for kind in ("full", "empty") if (barriers.barrier == kind).any()]
    lanes, tracks = 0.36 * len(warps), 0.17 * len(stages) * len(kinds)
    fig = style.figure(12, lanes + tracks + 1.9, theme)
    top = Panel(fig, 1.75, 1.1 + tracks, 9.95, lanes, theme, x=(low, high), y=(len(warps), 0))
    top.title("what each warp does; the number is the stage", raised=25)
    colors = dict(zip(dict.fromkeys(names.values()), (theme.green, theme.blue, theme.vermillion), strict=False))
    row_of = {warp: i for i, warp in enumerate(warps)}
    top.labels([(low, i + 0.45) for i in range(len(warps))], [f"warp {w}, {names[w]}" for w in warps], ha="right",
               offset=(-8, 0))  # fmt: skip
    seen = frame[(frame.end > low) & (frame.start < high)]
    start, end = seen.start.clip(lower=low).to_numpy(), seen.end.clip(upper=high).to_numpy()
    rows = seen.warp.map(row_of).to_numpy(dtype=float)
    fills = np.array([colors[names[warp]] for warp in seen.warp], dtype=object)
    what = seen.what.to_numpy()
    for kind in (*BUSY, *WAITS, "in flight"):
        mine = what == kind
        if not mine.any():
            continue
        y, height = (rows + 0.84, 0.1) if kind == "in flight" else (rows + 0.1, 0.66)
        boxes = np.column_stack([start, y, end - start, np.full(len(rows), height)])[mine]
        if kind in WAITS:
            look = dict(hatch=WAITS[kind], edgecolor=theme.faint, linewidth=0.5)
            top.boxes(boxes, theme.paper, **look)
        else:
            shade = {"reduce": 0.55, "in flight": 0.6}.get(kind, 1.0)
            top.boxes(boxes, fills[mine], alpha=shade, edgecolor=theme.paper, linewidth=0.4)
    inches = (end - start) / (high - low) * top.width
    wide = (seen.stage.to_numpy() >= 0) & (inches > 0.1) & (what != "in flight")
    for mask, color in ((np.isin(what, BUSY), theme.paper), (np.isin(what, list(WAITS)), theme.ink)):
        at = np.column_stack([(start + end) / 2, rows + 0.43])[wide & mask]
        top.labels(at, seen.stage[wide & mask], color, size=8)
    entries = [(role, dict(facecolor=color)) for role, color in colors.items()]
    if "reduce" in set(frame.what) and "compute" in colors:
        entries.append(("partial sums", dict(facecolor=colors["compute"], alpha=0.55)))
    entries += [
        (kind, dict(facecolor=theme.paper, hatch=hatch, edgecolor=theme.muted, linewidth=0.5))
        for kind, hatch in WAITS.items()
        if (frame.what == kind).any()
    ]
    top.key(entries, 0, lanes + 0.1, 1.24)
    top.note(1, 1, "thin bar below: its copies in flight", theme.muted, ha="right", offset=(0, 30))

    low_panel = Panel(fig, 1.75, 0.8, 9.95, tracks, theme, x=(low, high), y=(len(stages) * len(kinds), 0))
    for k, kind in enumerate(kinds):
        mine = barriers[(barriers.barrier == kind) & (barriers.end > low) & (barriers.start < high)]
        begin, finish = mine.start.clip(lower=low).to_numpy(), mine.end.clip(upper=high).to_numpy()
        y = mine.stage.to_numpy() + k * len(stages)
        boxes = np.column_stack([begin, y + 0.1, finish - begin, np.full(len(y), 0.8)])
        odd = (mine.phase % 2).to_numpy() == 1
        low_panel.boxes(boxes[~odd], theme.faint)
        low_panel.boxes(boxes[odd], theme.grey)
        fits = (finish - begin) / (high - low) * low_panel.width > 0.12
        middle = np.column_stack([(begin + finish) / 2, y + 0.5])
        for shown, color in ((fits & ~odd, theme.ink), (fits & odd, theme.paper)):
            low_panel.labels(middle[shown], mine.phase[shown], color, size=7)
        at = [(low, k * len(stages) + s + 0.5) for s in stages]
        low_panel.labels(at, [f"{kind} {s}" for s in stages], size=7.5, ha="right", offset=(-8, 0))
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10**9) if (high - low) / s <= 12)
    steps = range(-(-low // step) * step, high + 1, step)
    low_panel.ticks("x", steps, steps, "logical time (order of traced events, not cycles)", grid=False)
    low_panel.note(0, 1, "completed phases of each mbarrier: a wait for parity 0 passes while the count is odd, "
                   "for parity 1 while it is even", theme.muted, ha="left", offset=(0, 7), size=8.5)  # fmt: skip
    if time is not None and low <= time <= high:
        for panel in (top, low_panel):
            panel.lines([[(time + 0.5, panel.y[0]), (time + 0.5, panel.y[1])]], theme.ink, clip=False, linewidths=1.6)
    return fig


def _busy(opcode: str) -> str | None:
    if opcode.startswith("cp.async"):
        return "issue"
    if opcode.startswith(("ldmatrix", "mma")):
        return "compute"
    if opcode.startswith(("ld.shared", "st.shared")):
        return "reduce"
    return None


def _sentence(span) -> str:
    if span.what == "issue":
        return f"issues the copies of tile {span.tile} into stage {span.stage}"
    if span.what == "compute":
        return f"multiplies tile {span.tile} in stage {span.stage}"
    if span.what == "reduce":
        return "exchanges and adds partial sums"
    if span.what == "wait full":
        return f"waits until stage {span.stage} is full (tile {span.tile}, parity {span.parity})"
    if span.what == "wait empty":
        return f"waits until stage {span.stage} is empty (for tile {span.tile}, parity {span.parity})"
    if span.what == "wait grid":
        return "waits for the previous grid (griddepcontrol.wait)"
    return "waits for the other warps (bar.sync)"
