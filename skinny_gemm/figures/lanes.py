"""Lanes of logical time, one for each warp: what the timelines of a CTA and of a cluster share.

Time is the trace's logical time: the order of events, not cycles.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ..analysis.cluster import WAITS
from . import style
from .panel import Panel, rectangles, tick_step


def lane_looks(hatches: Mapping[str, str], theme: style.Theme) -> dict[str, dict]:
    """The look of each kind of span: what is done has its hatch of `hatches`, waits are blank."""
    looks = {what: dict(hatch=hatch, edgecolor=style.HATCH_ON_FILL, linewidth=0.4) for what, hatch in hatches.items()}
    return looks | {what: dict(facecolor=theme.paper, edgecolor=theme.faint, linewidth=0.8) for what in WAITS}


def lane_key(words: Mapping[str, str], hatches: Mapping[str, str], theme: style.Theme) -> list[tuple[str, dict]]:
    """The entries of a key: the hatch of each kind of span in `words`, by its text, and a wait."""
    neutral = dict(facecolor=theme.faint, edgecolor=theme.paper, linewidth=0.4)
    wait = dict(facecolor=theme.paper, edgecolor=theme.muted, linewidth=0.8)
    return [(text, neutral | dict(hatch=hatches[what])) for what, text in words.items()] + [("wait", wait)]


def draw_lanes(
    panel: Panel, frame: pd.DataFrame, names: Sequence[tuple[int, int]], fills: Sequence[str],
    looks: Mapping[str, dict], texts: Sequence[str], size: float = 8,
) -> None:  # fmt: skip
    """One lane per (CTA, warp) of `names` in `panel`, whose x limits are the time shown.

    `frame` from `analysis.cluster.cluster_spans`; `fills`, `texts`: colour and text of each of its spans. `looks`, from
    `lane_looks`: per what, hatch and the like; a look with a "facecolor" overrides the fill.
    """
    low, high = panel.x
    lane = {name: i for i, name in enumerate(names)}
    rows = np.array([lane.get(pair, -1) for pair in zip(frame.cta, frame.warp, strict=True)], dtype=float)
    shown = (frame.end > low).to_numpy() & (frame.start < high).to_numpy() & (rows >= 0)
    start, end = frame.start.clip(lower=low).to_numpy(), frame.end.clip(upper=high).to_numpy()
    fill_of, text_of, what = np.array(fills, dtype=object), np.array(texts, dtype=object), frame.what.to_numpy()
    boxes = rectangles(start, rows + 0.08, end - start, 0.84)
    for kind, look in looks.items():
        of_kind = shown & (what == kind)
        if of_kind.any():
            panel.boxes(boxes[of_kind], look.get("facecolor") or fill_of[of_kind], **look)
    inches = (end - start) / (high - low) * panel.width
    lengths = np.array([len(text) for text in texts])
    wide = shown & (lengths > 0) & (inches > 0.0085 * size * lengths + 0.03)
    middle = np.column_stack([(start + end) / 2, rows + 0.5])
    for kinds, color in ((~np.isin(what, WAITS), style.ON_FILL), (np.isin(what, WAITS), panel.theme.ink)):
        panel.labels(middle[wide & kinds], text_of[wide & kinds], color, size=size)


def time_ticks(panel: Panel) -> None:
    """Ticks and name of a logical time axis."""
    low, high = panel.x
    step = int(tick_step(high - low, 12))
    marks = range(-(-low // step) * step, high + 1, step)
    panel.ticks("x", marks, marks, "logical time (order of traced events, not cycles)", grid=False)


def cursor(panels: Sequence[Panel], time: int | None, **look) -> None:
    """A line at `time` through `panels`; `look` as `LineCollection` takes it."""
    for panel in panels:
        if time is not None and panel.x[0] <= time <= panel.x[1]:
            ends = [(time + 0.5, panel.y[0]), (time + 0.5, panel.y[1])]
            panel.lines([ends], panel.theme.ink, clip=False, linewidths=1.6, **look)
