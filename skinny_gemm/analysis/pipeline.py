"""The pipeline of one CTA, read off a trace in its logical time: who issues, who waits for what, barriers' phases."""

from collections.abc import Mapping, Sequence

import pandas as pd

#: Opcodes to trace: all that moves data or synchronises.
OPCODES = ("cp.async", "ldmatrix", "mma", "mbarrier", "bar.sync", "griddepcontrol", "ld.shared", "st.shared")
#: What a warp does while it does not wait, by how the opcode begins.
ACTS = {"cp.async": "issue", "ldmatrix": "compute", "mma": "compute", "ld.shared": "reduce", "st.shared": "reduce"}
BUSY = ("issue", "compute", "reduce")
SENTENCES = {  #: a span of `ring_spans` in words
    "issue": "issues the copies of tile {tile} into stage {stage}",
    "compute": "multiplies tile {tile} in stage {stage}",
    "reduce": "exchanges and adds partial sums",
    "wait full": "waits until stage {stage} is full (tile {tile}, parity {parity})",
    "wait empty": "waits until stage {stage} is empty (for tile {tile}, parity {parity})",
    "wait grid": "waits for the previous grid (griddepcontrol.wait)",
    "trigger": "lets the next grid start (griddepcontrol.launch_dependents)",
    "wait CTA": "waits for the other warps (bar.sync)",
}


def region_at(regions: Sequence[tuple[str, int, int]], byte: int) -> tuple[str, int]:
    """(name, first byte) of the region of shared memory that holds `byte`; ("", 0) where none does."""
    return next(((name, start) for name, start, size in regions if start <= byte < start + size), ("", 0))


def ring_spans(table: pd.DataFrame, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """What each warp of a traced CTA did: one row per span of logical time, by warp and start.

    `table` from `Trace.table` recorded with `OPCODES`; `regions` as in a footprint, of which "full" and "empty" hold
    the ring's barriers. Columns: warp, what (of `SENTENCES`, or "in flight": from a batch's issue to its landing),
    stage and tile (-1 without), parity (that a wait waited for, else -1), start, end (exclusive), line.
    """
    barriers = [region for region in regions if region[0] in ("full", "empty")]
    spans: list[tuple] = []
    for warp, rows in table.groupby("warp", sort=True):
        open_span, waiting, batch_start, issued, drained = None, None, None, 0, 0
        batches: list[tuple] = []

        def close():
            nonlocal open_span
            if open_span:
                spans.append(tuple(open_span))
            open_span = None

        for row in rows.itertuples():
            of_barrier = row.opcode.startswith(("mbarrier", "cp.async.mbarrier"))
            name, first = region_at(barriers, row.barrier) if of_barrier else ("", 0)
            stage = (row.barrier - first) // 8 if name else -1
            if row.event == "land":
                start, tile, where = batches.pop(0)
                spans.append((warp, "in flight", where, tile, -1, start, row.time, row.line))
            elif row.event in ("wait", "pass"):
                close()
                waiting = row.time if waiting is None else waiting
                if row.event == "pass":
                    what = f"wait {name}" if name else "wait CTA"
                    retried = spans and spans[-1][:3] == (warp, what, stage) and spans[-1][-1] == row.line
                    if retried:  # the first try_wait may fail without need
                        waiting = spans.pop()[5]
                        drained -= name == "full"
                    tile = drained if name == "full" else issued if name == "empty" else -1
                    parity = (row.phase - 1) & 1 if name else -1
                    spans.append((warp, what, stage, tile, parity, waiting, row.time + 1, row.line))
                    drained += name == "full"
                    waiting = None
            elif row.opcode.startswith("griddepcontrol"):
                close()
                what = "wait grid" if row.opcode.endswith(".wait") else "trigger"
                spans.append((warp, what, -1, -1, -1, row.time, row.time + 1, row.line))
            elif row.opcode.startswith("cp.async.mbarrier"):  # arrives when the batch has landed
                start = open_span[5] if open_span else row.time
                batches.append((start if batch_start is None else batch_start, issued, stage))
                spans.append((warp, "issue", stage, issued, -1, start, row.time + 1, row.line))
                open_span, batch_start, issued = None, None, issued + 1
            elif busy := next((what for start, what in ACTS.items() if row.opcode.startswith(start)), None):
                if busy == "issue" and batch_start is None:
                    batch_start = row.time
                tile = {"issue": issued, "compute": drained - 1}.get(busy, -1)
                if open_span and (open_span[1], open_span[3]) == (busy, tile):
                    open_span[6] = row.time + 1
                else:
                    close()
                    open_span = [warp, busy, -1, tile, -1, row.time, row.time + 1, row.line]
        close()
    frame = pd.DataFrame(spans, columns=["warp", "what", "stage", "tile", "parity", "start", "end", "line"])
    for what, teller in (("compute", "wait full"), ("issue", "in flight")):  # whose row of the same tile has the stage
        stages = frame[frame.what == teller].drop_duplicates(["warp", "tile"]).set_index(["warp", "tile"]).stage
        without = frame.what == what
        keys = pd.MultiIndex.from_frame(frame.loc[without, ["warp", "tile"]])
        frame.loc[without, "stage"] = stages.reindex(keys).fillna(-1).astype(int).to_numpy()
    return frame.sort_values(["warp", "start"], ignore_index=True)


def phases(table: pd.DataFrame, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """When each barrier of the ring was in which phase: barrier ("full" or "empty"), stage, phase, start, end."""
    last = int(table.time.max()) + 1
    rows = []
    for name, offset, size in regions:
        if name not in ("full", "empty"):
            continue
        inside = (table.barrier >= offset) & (table.barrier < offset + size)
        for address, events in table[table.opcode.str.contains("mbarrier") & inside].groupby("barrier"):
            events = events.sort_values("time", kind="stable")
            starts = events[events.phase > events.phase.cummax().shift(fill_value=-1)]
            ends = [*starts.time[1:], last]
            stage = (address - offset) // 8
            rows += [(name, stage, *span) for span in zip(starts.phase, starts.time, ends, strict=True)]
    return pd.DataFrame(rows, columns=["barrier", "stage", "phase", "start", "end"])


def roles(frame: pd.DataFrame) -> dict[int, str]:
    """Each warp's role, told from what it does: compute, or a loader that waits for the previous grid or does not."""
    named = {}
    for warp, rows in frame.groupby("warp"):
        did = set(rows.what)
        named[warp] = "compute" if "compute" in did else "load x" if "wait grid" in did else "load weights"
    return named


def doing_at(spans: pd.DataFrame, time: int, sentences: Mapping[str, str], first: str = "") -> tuple[str, int | str]:
    """What the warp of these `spans` does at `time`, before them `first`, in words; and the line of the PTX or ""."""
    now = spans[(spans.start <= time) & (time < spans.end)]
    if len(now):
        return sentences[now.iloc[-1].what].format_map(now.iloc[-1]), int(now.iloc[-1].line)
    if first and time < spans.start.min():
        return first, ""
    if len(spans) and time >= spans.end.max():
        return "done", ""
    return "between two traced instructions", ""


def ring_state(spans: pd.DataFrame, names: Mapping[int, str], time: int) -> pd.DataFrame:
    """What every warp does at logical `time`, in words: warp, role, doing, line (of the PTX), in flight (batches)."""
    rows = []
    for warp, of_warp in spans.groupby("warp"):
        flying = of_warp[(of_warp.what == "in flight") & (of_warp.start <= time) & (time < of_warp.end)]
        doing, line = doing_at(of_warp[of_warp.what != "in flight"], time, SENTENCES)
        rows.append((warp, names[warp], doing, line, ", ".join(f"tile {t}" for t in flying.tile)))
    return pd.DataFrame(rows, columns=["warp", "role", "doing", "line", "in flight"])
