"""The pipeline of one CTA over logical time: a lane for each warp, and the phases of the ring's barriers.

Colour is the warp's role. Time is the trace's logical time: the order of events, not cycles.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.pipeline import BUSY
from . import style
from .panel import Panel, rectangles
from .style import LIGHT

WAITS = {"wait full": "//", "wait empty": "..", "wait CTA": "\\\\", "wait grid": "xx"}  #: waits and their hatches


def timeline(
    spans: pd.DataFrame, barriers: pd.DataFrame, names: Mapping[int, str], time: int | None = None,
    window: tuple[int, int] | None = None,
) -> Figure:  # fmt: skip
    """One lane per warp over logical time (`ring_spans`, `roles`), and below it the `phases` of every barrier.

    Numbers in the spans are stages, arrows the trigger. `time` draws a cursor; `window` limits the time shown.
    """
    low, high = window or (int(spans.start.min()), int(spans.end.max()))
    warps, stages = sorted(names), sorted(barriers.stage.unique())
    kinds = [kind for kind in ("full", "empty") if (barriers.barrier == kind).any()]
    lanes, tracks = 0.36 * len(warps), 0.17 * len(stages) * len(kinds)
    fig = style.figure(12, lanes + tracks + 1.9)
    top = Panel(fig, 1.75, 1.1 + tracks, 9.95, lanes, x=(low, high), y=(len(warps), 0))
    top.title("what each warp does; the number is the stage", raised=25)
    colors = dict(zip(dict.fromkeys(names.values()), (LIGHT.green, LIGHT.blue, LIGHT.vermillion), strict=False))
    places = [(low, i + 0.45) for i in range(len(warps))]
    top.labels(places, [f"warp {warp}, {names[warp]}" for warp in warps], ha="right", offset=(-8, 0))
    seen = spans[(spans.end > low) & (spans.start < high)]
    start, end = seen.start.clip(lower=low).to_numpy(), seen.end.clip(upper=high).to_numpy()
    rows = np.searchsorted(warps, seen.warp)
    fills = np.array([colors[names[warp]] for warp in seen.warp], dtype=object)
    what = seen.what.to_numpy()
    for kind in (*BUSY, *WAITS, "in flight"):
        of_kind = what == kind
        y, height = (rows + 0.84, 0.1) if kind == "in flight" else (rows + 0.1, 0.66)
        boxes = rectangles(start, y, end - start, height)[of_kind]
        if kind in WAITS:
            top.boxes(boxes, LIGHT.paper, hatch=WAITS[kind], edgecolor=LIGHT.faint, linewidth=0.5)
        else:
            shade = {"reduce": 0.55, "in flight": 0.6}.get(kind, 1.0)
            top.boxes(boxes, fills[of_kind], alpha=shade, edgecolor=LIGHT.paper, linewidth=0.4)
    at = what == "trigger"
    top.line((start + end)[at] / 2, rows[at] + 0.43, LIGHT.ink, linestyle="", marker=">", markersize=7, zorder=3)
    inches = (end - start) / (high - low) * top.width
    wide = (seen.stage.to_numpy() >= 0) & (inches > 0.1) & (what != "in flight")
    for mask, color in ((np.isin(what, BUSY), LIGHT.paper), (np.isin(what, list(WAITS)), LIGHT.ink)):
        at = np.column_stack([(start + end) / 2, rows + 0.43])[wide & mask]
        top.labels(at, seen.stage[wide & mask], color, size=8)
    entries: list[tuple[str, dict]] = [(role, dict(facecolor=color)) for role, color in colors.items()]
    if "reduce" in set(spans.what) and "compute" in colors:
        entries.append(("partial sums", dict(facecolor=colors["compute"], alpha=0.55)))
    entries += [
        (kind, dict(facecolor=LIGHT.paper, hatch=hatch, edgecolor=LIGHT.muted, linewidth=0.5))
        for kind, hatch in WAITS.items()
        if (spans.what == kind).any()
    ]
    top.key(entries, 0, lanes + 0.1, 1.24)
    said = "arrow: lets the next grid start; thin bar below: its copies in flight"
    top.note(1, 1, said, LIGHT.muted, ha="right", offset=(0, 30))

    bottom = Panel(fig, 1.75, 0.8, 9.95, tracks, x=(low, high), y=(len(stages) * len(kinds), 0))
    for k, kind in enumerate(kinds):
        shown = barriers[(barriers.barrier == kind) & (barriers.end > low) & (barriers.start < high)]
        begin, finish = shown.start.clip(lower=low).to_numpy(), shown.end.clip(upper=high).to_numpy()
        y = shown.stage.to_numpy() + k * len(stages)
        boxes = rectangles(begin, y + 0.1, finish - begin, 0.8)
        odd = (shown.phase % 2).to_numpy() == 1
        fits = (finish - begin) / (high - low) * bottom.width > 0.12
        middle = np.column_stack([(begin + finish) / 2, y + 0.5])
        for some, fill, ink in ((~odd, LIGHT.faint, LIGHT.ink), (odd, LIGHT.grey, LIGHT.paper)):
            bottom.boxes(boxes[some], fill)
            bottom.labels(middle[some & fits], shown.phase[some & fits], ink, size=7)
        at = [(low, k * len(stages) + s + 0.5) for s in stages]
        bottom.labels(at, [f"{kind} {s}" for s in stages], size=7.5, ha="right", offset=(-8, 0))
    bottom.time_ticks()
    bottom.note(0, 1, "completed phases of each mbarrier: a wait for parity 0 passes while the count is odd, "
                   "for parity 1 while it is even", LIGHT.muted, ha="left", offset=(0, 7), size=8.5)  # fmt: skip
    for panel in (top, bottom):
        panel.cursor(time)
    return fig
