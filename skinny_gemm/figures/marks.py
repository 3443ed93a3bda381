"""What matplotlib lacks: many short labels at little cost, and axes whose ticks are such labels.

A matplotlib `Text` costs 1 to 2 ms to lay out and write as SVG, and an axis tick as much again; a slider step has
150 ms for everything. `Labels` writes one in a tenth of that, still as text in SVG and PDF.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.transforms import Bbox, Transform

from . import style

_BEFORE = {"left": 0.0, "center": 0.5, "right": 1.0}  # share of the width left of the point
_BELOW = {"center": 0.36, "top": 0.76, "bottom": -0.1, "baseline": 0.0}  # share of the height, for one-line text


class Labels(Artist):
    """Many one-line texts of one style: `points` (n, 2) in the coordinates of `transform`, `texts` n strings.

    `offset` moves every label by (dx, dy) points. Plain text only: no mathtext, no line breaks.
    """

    def __init__(
        self,
        points,
        texts: Sequence[str],
        transform: Transform,
        *,
        size: float = style.SMALL,
        color: str = style.LIGHT.ink,
        ha: str = "center",
        va: str = "center",
        weight: str = "normal",
        offset: tuple[float, float] = (0, 0),
    ):
        super().__init__()
        self.points = np.asarray(points, dtype=float).reshape(-1, 2)
        self.texts = [str(text) for text in texts]
        self.color, self.offset, self.ha, self.va = color, offset, ha, va
        self.font = FontProperties(family="sans-serif", size=size, weight=weight)
        self.set_transform(transform)
        self.set_zorder(4)

    def get_window_extent(self, renderer=None):
        return Bbox.null()  # labels never take part in layout

    def draw(self, renderer):
        if not self.texts or not self.get_visible():
            return
        pixels = renderer.points_to_pixels(1.0)
        dx = self.offset[0] * pixels
        dy = (self.offset[1] - _BELOW[self.va] * self.font.get_size_in_points()) * pixels
        canvas_height = renderer.get_canvas_width_height()[1]
        # The SVG backend takes place and alignment from a Text, the others from the left end of the baseline.
        template = Text(ha=self.ha, va="baseline")
        gc = renderer.new_gc()
        gc.set_foreground(self.color)
        widths: dict[str, float] = {}
        for (x, y), text in zip(self.get_transform().transform(self.points), self.texts, strict=True):
            if self.ha != "left" and text not in widths:
                widths[text] = renderer.get_text_width_height_descent(text, self.font, False)[0]
            template.set_position((x + dx, y + dy))
            left, baseline = x + dx - _BEFORE[self.ha] * widths.get(text, 0.0), y + dy
            if renderer.flipy():
                baseline = canvas_height - baseline
            renderer.draw_text(gc, left, baseline, text, self.font, 0, mtext=template)
        gc.restore()


def labels(ax: Axes, points, texts: Sequence[str], **look) -> Labels:
    """Labels at data coordinates; `look` as `Labels` takes it."""
    return ax.add_artist(Labels(points, texts, ax.transData, **look))


def note(ax: Axes, x: float, y: float, text: str, **look) -> Labels:
    """One label at axes coordinates (0..1)."""
    return ax.add_artist(Labels([(x, y)], [text], ax.transAxes, **look))


def title(ax: Axes, text: str, theme: style.Theme, raised: float = 8) -> Labels:
    """A bold title above the left end of `ax`, `raised` points over its top edge."""
    look = dict(size=style.TITLE, color=theme.ink, ha="left", va="baseline", weight="bold", offset=(0, raised))
    return note(ax, 0, 1, text, **look)


def ticks(ax: Axes, axis: str, positions, texts, theme: style.Theme, name: str = "", grid: bool = True) -> None:
    """Tick labels, grid lines and the name of `axis` "x" or "y", for axes whose own axis is off.

    The y name is written level, above the axis, where it needs no turned head.
    """
    positions = np.asarray(positions, dtype=float)
    zeros, ones = np.zeros_like(positions), np.ones_like(positions)
    if axis == "x":
        transform, start, end = ax.get_xaxis_transform(), (positions, zeros), (positions, ones)
        side = dict(ha="center", va="top", offset=(0, -4))
        name_at, name_side = (0.5, 0), dict(ha="center", va="top", offset=(0, -19))
    else:
        transform, start, end = ax.get_yaxis_transform(), (zeros, positions), (ones, positions)
        side = dict(ha="right", offset=(-5, 0))
        name_at, name_side = (0, 1), dict(ha="left", va="bottom", offset=(-30, 4))
    start, end = np.column_stack(start), np.column_stack(end)
    ax.add_artist(Labels(start, texts, transform, color=theme.muted, **side))
    if grid:
        lines = np.stack([start, end], axis=1)
        ax.add_artist(LineCollection(lines, colors=theme.grid, linewidths=0.7, transform=transform, zorder=0.5))
    if name:
        note(ax, *name_at, name, color=theme.ink, **name_side)


def frame(ax: Axes, theme: style.Theme, sides: str = "lb") -> None:
    """The edges (left, bottom, right, top: "lbrt") of axes whose own axis is off."""
    edges = {"l": ((0, 0), (0, 1)), "b": ((0, 0), (1, 0)), "r": ((1, 0), (1, 1)), "t": ((0, 1), (1, 1))}
    lines = LineCollection([edges[s] for s in sides], colors=theme.ink, linewidths=0.9, transform=ax.transAxes)
    lines.set_clip_on(False)
    lines.set_zorder(2.5)
    ax.add_artist(lines)
