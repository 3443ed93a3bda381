"""A panel of a figure: a rectangle with data coordinates, and the marks the figures are made of.

An `Axes` of matplotlib takes 20 ms before it holds anything, a `Text` or a tick 1 to 2 ms more; a slider step has 150.
A panel costs nothing but its marks, ordinary artists, and `Labels` 0.1 ms a text.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxTransformFrom, BboxTransformTo, Transform, TransformedBbox
from numpy.typing import ArrayLike

from . import style
from .style import LIGHT

STEPS = [float(f"{digit}e{power}") for power in range(-3, 10) for digit in (1, 2, 5)]


def tick_step(span: float, most: int, least: float = 1) -> float:
    """How far ticks are apart: the first of 1, 2, 5, 10 ..., from `least` on, that cuts `span` into at most `most`."""
    return next(step for step in STEPS if step >= least and span / step <= most)


def rectangles(x: ArrayLike, y: ArrayLike, width: ArrayLike = 1, height: ArrayLike = 1) -> np.ndarray:
    """Rectangles (n, 4) for `Panel.boxes`; each argument an array (n,) or one number for all."""
    return np.column_stack(np.broadcast_arrays(x, y, width, height))


_BEFORE = {"left": 0.0, "center": 0.5, "right": 1.0}  # share of the width left of the point
_BELOW = {"center": 0.36, "top": 0.76, "bottom": -0.1, "baseline": 0.0}  # share of the height, for one-line text


class Labels(Artist):
    """Many one-line texts of one style: `points` (n, 2) in the coordinates of `transform`, `texts` n strings.

    `offset` moves every label by (dx, dy) points; `font`: `weight` and `family`. No mathtext, no line breaks.
    """

    def __init__(
        self, points: Any, texts: Iterable[object], transform: Transform, color: str, *, ha: str = "center",
        va: str = "center", offset: tuple[float, float] = (0, 0), size: float = style.SMALL, **font: Any,
    ):  # fmt: skip
        super().__init__()
        self.points = np.asarray(points, dtype=float).reshape(-1, 2)
        self.texts = [str(text) for text in texts]
        self.color, self.offset, self.ha, self.va = color, offset, ha, va
        self.font = FontProperties(size=size, **({"family": "sans-serif"} | font))
        self.set_transform(transform)
        self.set_zorder(4)

    def get_window_extent(self, renderer: Any = None) -> Bbox:
        """Nothing: labels never take part in layout."""
        return Bbox.null()

    def draw(self, renderer: Any) -> None:
        """Writes every text, as matplotlib asks of an artist."""
        pixels = renderer.points_to_pixels(1.0)
        dx = self.offset[0] * pixels
        dy = (self.offset[1] - _BELOW[self.va] * self.font.get_size_in_points()) * pixels
        canvas_height = renderer.get_canvas_width_height()[1]
        # The SVG backend takes place and alignment from a Text, the others from the left end of the baseline.
        template = Text(ha=self.ha, va="baseline")
        svg = hasattr(renderer, "writer")
        gc = renderer.new_gc()
        gc.set_foreground(self.color)
        for (x, y), text in zip(self.get_transform().transform(self.points), self.texts, strict=True):
            width = 0.0
            if not svg and self.ha != "left":
                width = renderer.get_text_width_height_descent(text, self.font, False)[0]
            template.set_position((x + dx, y + dy))
            left, baseline = x + dx - _BEFORE[self.ha] * width, y + dy
            if renderer.flipy():
                baseline = canvas_height - baseline
            renderer.draw_text(gc, left, baseline, text, self.font, 0, mtext=template)
        gc.restore()


class Panel:
    """A rectangle of `fig`, placed in inches from its lower left corner, with data limits `x` and `y`.

    A limit pair may run downwards (rows of a matrix). The methods add marks in data coordinates.
    """

    def __init__(self, fig: Figure, left, bottom, width, height, x=(0, 1), y=(0, 1)):
        self.figure, self.width, self.height, self.x, self.y = fig, width, height, x, y
        self.box = TransformedBbox(Bbox.from_bounds(left, bottom, width, height), fig.dpi_scale_trans)
        self.unit = BboxTransformTo(self.box)  #: (0, 0) lower left to (1, 1) upper right
        self.data = BboxTransformFrom(Bbox([(x[0], y[0]), (x[1], y[1])])) + self.unit

    def add(self, artist: Artist, clip: bool = False) -> Artist:
        """Adds any artist that has its transform; `clip` hides what lies outside the panel."""
        if clip:
            artist.set_clip_box(self.box)
        return self.figure.add_artist(artist)

    def line(self, x: ArrayLike, y: ArrayLike, color: str, clip: bool = True, **look: Any) -> Artist:
        """A line or markers; `look` as matplotlib's `Line2D` takes it."""
        return self.add(Line2D(np.asarray(x), np.asarray(y), color=color, transform=self.data, **look), clip)

    def lines(self, many: Iterable, colors: Any, clip: bool = True, **look: Any) -> Artist:
        """Many lines, each a sequence of (x, y); `look` as `LineCollection` takes it."""
        return self.add(LineCollection(list(many), colors=colors, transform=self.data, **look), clip)

    def boxes(self, rectangles: Any, fill: Any, **look: Any) -> None:
        """Rectangles (n, 4), a fast path per colour of `fill` (one, n, or "none"); `look` as `PathPatch` takes it."""
        rectangles = np.asarray(rectangles, dtype=float).reshape(-1, 4)
        fills = np.array([fill] * len(rectangles) if isinstance(fill, str) else fill, dtype=object)
        for color in dict.fromkeys(fills):
            x, y, w, h = rectangles[fills == color].T
            corners = np.array([(x, y), (x + w, y), (x + w, y + h), (x, y + h), (x, y)])  # (5, 2, n)
            codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(x))
            path = Path(corners.transpose(2, 0, 1).reshape(-1, 2), codes)
            self.add(PathPatch(path, **({"linewidth": 0} | look | {"facecolor": color, "transform": self.data})))

    def labels(self, points: Any, texts: Iterable[object], color: str | None = None, **look: Any) -> None:
        """Texts at data coordinates; `look` as `Labels` takes it."""
        self.add(Labels(points, texts, self.data, color or LIGHT.ink, **look))

    def note(self, x: float, y: float, text: str, color: str | None = None, **look: Any) -> None:
        """A text at (x, y) between (0, 0), the panel's lower left corner, and (1, 1)."""
        self.add(Labels([(x, y)], [text], self.unit, color or LIGHT.ink, **look))

    def title(self, text: str, raised: float = 8) -> None:
        """A bold title above the left end, `raised` points over the top edge."""
        self.note(0, 1, text, size=style.TITLE, ha="left", va="baseline", weight="bold", offset=(0, raised))

    def sentence(self, text: str, dx: float, dy: float, weight: str = "bold") -> None:
        """What the panel shows, in words: (dx, dy) points from its upper left corner."""
        self.note(0, 1, text, size=style.TEXT, ha="left", va="baseline", weight=weight, offset=(dx, dy))

    def ticks(self, axis: str, at: Any, texts: Iterable[object], name: str = "", grid: bool = True) -> None:
        """Labels at positions `at` of axis "x" or "y", grid lines, and the axis's name, of y level above the axis."""
        at = np.asarray(at, dtype=float)
        ones = np.ones_like(at)
        if axis == "x":
            start, end = np.column_stack([at, self.y[0] * ones]), np.column_stack([at, self.y[1] * ones])
            self.labels(start, texts, LIGHT.muted, va="top", offset=(0, -4))
            self.note(0.5, 0, name, va="top", offset=(0, -19))
        else:
            start, end = np.column_stack([self.x[0] * ones, at]), np.column_stack([self.x[1] * ones, at])
            self.labels(start, texts, LIGHT.muted, ha="right", offset=(-5, 0))
            self.note(0, 1, name, ha="right", va="bottom", offset=(-5, 6))
        if grid:
            self.lines(np.stack([start, end], axis=1), LIGHT.grid, clip=False, linewidths=0.7, zorder=0.5)

    def level_ticks(self, most: int, name: str = "") -> None:
        """At most `most` levels of the y axis, from 0 on."""
        levels = np.arange(0, self.y[1], tick_step(self.y[1], most, least=0.1))
        self.ticks("y", levels, [f"{level:g}" for level in levels.round(3)], name)

    def time_ticks(self) -> None:
        """Ticks and name of an x axis of logical time."""
        low, high = self.x
        step = int(tick_step(high - low, 12))
        marks = range(-(-low // step) * step, high + 1, step)
        self.ticks("x", marks, marks, "logical time (order of traced events, not cycles)", grid=False)

    def cursor(self, time: int | None, **look: Any) -> None:
        """A line across the panel at logical `time`, if it is shown; `look` as `LineCollection` takes it."""
        if time is not None and self.x[0] <= time <= self.x[1]:
            ends = [(time + 0.5, self.y[0]), (time + 0.5, self.y[1])]
            self.lines([ends], LIGHT.ink, clip=False, linewidths=1.6, **look)

    def mark(self, x: float) -> None:
        """A faint, dashed line across the panel at `x`: what is selected."""
        ends = [(x, self.y[0]), (x, self.y[1])]
        self.lines([ends], LIGHT.faint, linewidths=1.2, linestyles=[(0, (2, 2))])

    def row_names(self, names: Sequence[object], color: str | None = None, gap: float = 8, **look: Any) -> None:
        """Texts `gap` points left of rows 0, 1, ..."""
        places = [(self.x[0], i + 0.5) for i in range(len(names))]
        self.labels(places, names, color, ha="right", offset=(-gap, 0), **look)

    def column_names(self, names: Sequence[object], color: str | None = None) -> None:
        """Texts below columns 0, 1, ..."""
        self.labels([(i + 0.5, self.y[0]) for i in range(len(names))], names, color, va="top", offset=(0, -4))

    def frame(self, sides: str = "lb") -> None:
        """The left, bottom, right or top edges ("lbrt")."""
        edges = {"l": ((0, 0), (0, 1)), "b": ((0, 0), (1, 0)), "r": ((1, 0), (1, 1)), "t": ((0, 1), (1, 1))}
        chosen = [edges[side] for side in sides]
        self.add(LineCollection(chosen, colors=LIGHT.ink, linewidths=0.9, transform=self.unit, zorder=2.5))

    def key(self, entries: Sequence[tuple[str, dict]], x: float, y: float, step: float) -> None:
        """A legend in one row: `entries` (label, look of its box) from (x, y) inches of the panel, one every `step`."""
        there = BboxTransformFrom(Bbox([(0, 0), (self.width, self.height)])) + self.unit
        for i, (text, look) in enumerate(entries):
            left = x + i * step
            box = Path([(left, y), (left + 0.22, y), (left + 0.22, y + 0.13), (left, y + 0.13), (left, y)], closed=True)
            self.add(PathPatch(box, transform=there, **({"linewidth": 0} | look)))
            self.add(Labels([(left + 0.28, y + 0.065)], [text], there, LIGHT.ink, ha="left"))

    def line_key(self, entries: Sequence[tuple[str, str, dict]]) -> None:
        """A legend in the upper left corner: `entries` (label, colour, look of its line), one below the other."""
        for i, (text, color, look) in enumerate(entries):
            y = 1 - (0.12 + 0.21 * i) / self.height
            ends = [0.12 / self.width, 0.55 / self.width]
            self.add(Line2D(ends, [y, y], color=color, transform=self.unit, **look))
            self.note(0.63 / self.width, y, text, color, ha="left")
