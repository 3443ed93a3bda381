"""What pictures of several warps and CTAs are made of: lanes of spans over logical time, and cells of blocks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from . import style
from .panel import Panel, rectangles
from .style import LIGHT

COLORS = np.array(style.BANK_GROUPS, dtype=object)  #: of CTAs, stages or groups; more of them than that repeat them


def draw_blocks(
    panel: Panel, cells: np.ndarray, fills: Any, texts: Iterable[object], lit: Any, outline: float = 2.4
) -> None:
    """The blocks at `cells` (n, 4), each with its fill and text; those of the mask `lit` outlined."""
    panel.boxes(cells, fills, edgecolor=LIGHT.paper, linewidth=1.5)
    panel.labels(cells[:, :2] + cells[:, 2:] / 2, texts, style.ON_FILL, size=9)
    panel.boxes(cells[lit], "none", edgecolor=LIGHT.vermillion, linewidth=outline, zorder=3)


def looks_of(hatches: Mapping[str, str], waits: Iterable[str]) -> dict[str, dict]:
    """The look of each kind of span: what is done has its hatch of `hatches`, `waits` are blank."""
    looks = {what: dict(hatch=hatch, edgecolor=style.HATCH_ON_FILL, linewidth=0.4) for what, hatch in hatches.items()}
    return looks | {what: dict(facecolor=LIGHT.paper, edgecolor=LIGHT.faint, linewidth=0.8) for what in waits}


def lane_key(hatches: Mapping[str, str], words: Mapping[str, str]) -> list[tuple[str, dict]]:
    """The entries of a key: the hatch of each kind of span, by its name or its one of `words`, and a wait."""
    neutral = dict(facecolor=LIGHT.faint, edgecolor=LIGHT.paper, linewidth=0.4)
    wait = dict(facecolor=LIGHT.paper, edgecolor=LIGHT.muted, linewidth=0.8)
    return [(words.get(what, what), neutral | dict(hatch=hatch)) for what, hatch in hatches.items()] + [("wait", wait)]


def draw_lanes(
    panel: Panel, spans: pd.DataFrame, names: Sequence[tuple[int, int]], fills: np.ndarray,
    looks: Mapping[str, dict], texts: Sequence[str], height: float = 0.84,
) -> None:  # fmt: skip
    """A lane per (CTA, warp) of `names`, its spans `height` high, with the `fills` and `texts` of each.

    `looks` by `what` of a span; a "facecolor" there overrides the fill. Spans of other kinds are not drawn.
    """
    low, high = panel.x
    lane = {name: i for i, name in enumerate(names)}
    rows = np.array([lane[pair] for pair in zip(spans.cta, spans.warp, strict=True)], dtype=float)
    shown = (spans.end > low).to_numpy() & (spans.start < high).to_numpy()
    start, end = spans.start.clip(lower=low).to_numpy(), spans.end.clip(upper=high).to_numpy()
    what, lengths = spans.what.to_numpy(), np.array([len(text) for text in texts])
    boxes = rectangles(start, rows + 0.08, end - start, height)
    for kind, look in looks.items():
        of_kind = shown & (what == kind)
        panel.boxes(boxes[of_kind], look.get("facecolor") or fills[of_kind], **look)
    of_theme = np.isin(what, [kind for kind, look in looks.items() if "facecolor" in look])  # dark in the dark one
    inches = (end - start) / (high - low) * panel.width
    wide = shown & (lengths > 0) & (inches > 0.068 * lengths + 0.03)
    middle = np.column_stack([(start + end) / 2, rows + 0.08 + height / 2])
    for some, color in ((wide & ~of_theme, style.ON_FILL), (wide & of_theme, LIGHT.ink)):
        panel.labels(middle[some], np.array(texts)[some], color, size=8)
