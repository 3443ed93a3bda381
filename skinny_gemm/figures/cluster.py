"""Pictures of a cluster that single passes and token groups share: its blocks by owner, bytes from CTA to CTA."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts.fragments import MMA_M, MMA_N
from . import style
from .panel import Panel, rectangles


def token_tiles(count: int) -> list[str]:
    """The names of token tiles 0, 1, ..."""
    return [f"tokens {MMA_N * i} +" for i in range(count)]


def row_tiles(count: int) -> list[str]:
    """The names of row tiles 0, 1, ..."""
    return [f"rows {MMA_M * i} +" for i in range(count)]


def draw_blocks(
    panel: Panel, cells: np.ndarray, fills: Any, texts: Iterable[object], lit: Any, outline: float = 2.4
) -> None:
    """The blocks at `cells` (n, 4), each with its fill and text; those of the mask `lit` outlined."""
    panel.boxes(cells, fills, edgecolor=panel.theme.paper, linewidth=1.5)
    panel.labels(cells[:, :2] + 0.5, texts, style.ON_FILL, size=9)
    panel.boxes(cells[lit], "none", edgecolor=panel.theme.vermillion, linewidth=outline, zorder=3)


def traffic_view(matrices: Mapping[str, pd.DataFrame], theme: style.Theme = style.LIGHT) -> Figure:
    """Up to two matrices of bytes, CTA to CTA, by title; darker is more, what is hatched stays home.

    Each from `analysis.cluster.traffic` or `planned_traffic`.
    """
    ks = max(int(data.source.max()) for data in matrices.values()) + 1
    most = max(int(data.bytes.max()) for data in matrices.values())
    cell = min(0.62, 3.6 / ks)
    fig = style.figure(12, cell * ks + 1.65, theme)
    for i, (title, data) in enumerate(matrices.items()):
        panel = Panel(fig, 1.0 + 5.9 * i, 0.55, 4.1, cell * ks, theme, x=(0, ks), y=(ks, 0))
        panel.title(title, raised=34)
        boxes = rectangles(data.target, data.source)
        for value in sorted(data.bytes.unique()):
            some = (data.bytes == value).to_numpy()
            panel.boxes(boxes[some], theme.grey, alpha=0.05 + 0.55 * value / max(most, 1))
        home = (data.source == data.target).to_numpy()
        panel.boxes(boxes[home], "none", hatch="//", edgecolor=theme.faint, linewidth=0)
        panel.boxes(boxes, "none", edgecolor=theme.paper, linewidth=1.5)
        panel.labels(boxes[:, :2] + 0.5, [f"{value:,}" for value in data.bytes], size=9, weight="bold")
        middle = np.arange(ks) + 0.5
        panel.labels(np.column_stack([middle, 0 * middle]), range(ks), theme.muted, va="bottom", offset=(0, 4))
        panel.row_names([f"CTA {c}" for c in range(ks)], theme.muted, gap=6)
        panel.note(0, 1, "to CTA", theme.muted, ha="left", offset=(0, 22))
        total = int(data.bytes[~home].sum())
        panel.note(0, 0, f"{total:,} B cross between CTAs, {int(data.bytes[home].sum()):,} B stay; most into one: "
                   f"{int(data.bytes.groupby(data.target).sum().max()):,} B", ha="left", offset=(0, -13))  # fmt: skip
    return fig
