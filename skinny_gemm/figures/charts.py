"""Charts of errors, and of speed in parts that tactics and reviews share: axes, series as data, labels of lines.

Live points are hollow, recorded ones filled; they never share a line. The model is dotted, with its error as a band.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ..analysis.performance import FORMATS, LIMIT, fastest_of_each_m
from ..problem import GemmProblem
from . import style
from .panel import Panel, rectangles
from .style import LIGHT

MODEL: dict[str, Any] = dict(linestyle=":", linewidth=2.6, zorder=2.4)
_HOLLOW = dict(markerfacecolor="none", markeredgewidth=1.8)
LIVE: dict[str, Any] = dict(linestyle="", marker="D", markersize=7, zorder=3.5, **_HOLLOW)
Place = tuple[float, float, float, float]  #: left, bottom, width and height of a chart, in inches
LOWEST, HIGHEST = 0.5, 1024.0  #: FLOP per byte of the roofline


@dataclass(frozen=True)
class Series:
    """One line, or marks, of a chart: rows of x and y in the chart's units, and its look as `Line2D` takes it.

    Two further columns, low and high, are drawn as `intervals`, or as the band of a `model`; "" as name is not told.
    """

    name: str
    points: np.ndarray
    color: str
    look: Mapping[str, Any] = field(default_factory=dict)
    intervals: bool = False
    model: bool = False

    def draw(self, panel: Panel, x: Callable, y: Callable) -> np.ndarray:
        """Draws it on axes that show x(x) and y(y); returns its places there."""
        places = np.column_stack([x(self.points[:, 0]), y(self.points[:, 1:])])
        if self.model:
            draw_model(panel, [places])
            return places
        if self.intervals:
            panel.lines([[(at, low), (at, high)] for at, _, low, high in places], self.color, linewidths=1.6)
        panel.line(places[:, 0], places[:, 1], self.color, **self.look)
        return places


def against_m(rows: Iterable) -> np.ndarray:
    """Rows as points of a bandwidth chart: `(n, 4)` of M, TB/s, and its interval."""
    return np.array([(row.m, row.tbs, row.low_tbs, row.high_tbs) for row in rows])


def in_roofline(rows: Iterable) -> np.ndarray:
    """Rows as points of a roofline: `(n, 2)` of FLOP per byte and TFLOP/s."""
    return np.array([(row.intensity, row.tflops) for row in rows])


def best_of_peers(groups: Mapping[str, Iterable], points: Callable, colors: Sequence[str], **look: Any) -> list[Series]:
    """The fastest rows of each M of each peer, as `points` of a chart; a dash and a marker tell peers apart."""
    return [
        Series(name, points(fastest_of_each_m(rows)), colors[i % len(colors)],
               dict(linestyle=style.DASHES[i + 1], marker=style.MARKERS[i + 1], **look))
        for i, (name, rows) in enumerate(groups.items())
    ]  # fmt: skip


def bandwidth_panel(
    fig: Figure, place: Place, points: Sequence[tuple[float, float]], limits: Mapping[str, float], m: int,
    title: str = "",
) -> Panel:  # fmt: skip
    """The axes of a bandwidth chart that holds `points` (M, TB/s) and `limits` (label to TB/s), with `m` marked."""
    top = 1.08 * max([rate for _, rate in points] + [*limits.values()], default=1.0)
    most = np.log2(max([32, m, *(tokens for tokens, _ in points)]))
    panel = Panel(fig, *place, (-0.15, most + 0.15), (0, top))
    if title:
        panel.title(title)
    doublings = np.arange(int(most) + 1)
    panel.ticks("x", doublings, 2**doublings, "M, tokens")
    panel.level_ticks(8 if title else 10, "" if title else "TB/s")
    panel.frame()
    panel.mark(np.log2(m))
    if not title:
        panel.labels([(np.log2(m), top)], [f"M = {m}"], va="bottom", offset=(0, 3))
    return panel


def draw_against_m(panel: Panel, series: Iterable[Series]) -> list[tuple[float, float, str, str]]:
    """Draws the `series` in a `bandwidth_panel`; returns the right ends of those with a name, for `end_labels`."""
    ends = []
    for each in series:
        places = each.draw(panel, np.log2, np.asarray)
        if each.name:
            ends.append((*places[-1, :2], each.name, each.color))
    return ends


def draw_roofline(
    fig: Figure, place: Place, series: Sequence[Series], memory: Mapping[str, float], compute: Mapping[str, float],
    problem: GemmProblem, title: str = "",
) -> None:  # fmt: skip
    """A roofline: the ceilings `memory` (label to TB/s) and `compute` (label to TFLOP/s), and `series` below them.

    Beside another chart it has a `title` with the unit, ridges, and the mark of `problem` in front. Without one, on a
    sheet of its own, the axis names the unit, the mark is behind, and the key lists what lies on top first.
    """
    peak, widest = max([*compute.values(), 1.0]), max([*memory.values(), 1.0])
    x, y = np.log10([LOWEST, HIGHEST]), np.log10([LOWEST * widest * 0.15, peak * 2])
    panel = Panel(fig, *place, tuple(x), tuple(y))
    if title:
        panel.title(title)
    intensities = [1, 4, 16, 64, 256, 1024]
    panel.ticks("x", np.log10(intensities), intensities, "FLOP per byte")
    rates = [10.0**i for i in range(-1, 5) if y[0] <= i <= y[1]]
    panel.ticks("y", np.log10(rates), [f"{rate:g}" for rate in rates], "" if title else "TFLOP/s")
    panel.frame()
    at, selected = np.log10(problem.intensity), f"M = {problem.m}"
    if not title:
        panel.mark(at)
        panel.labels([(at, y[1])], [selected], va="bottom", offset=(0, 3))
    roofs = []
    for i, (name, tbs) in enumerate(memory.items()):
        end = min(peak / tbs, HIGHEST)
        line = np.array([(LOWEST, LOWEST * tbs), (end, end * tbs)])
        look = dict(linewidth=1.6, linestyle=style.DASHES[i % 4])
        roofs.append(Series(f"{name} {tbs:.3g} TB/s", line, LIGHT.muted, look))
        roofs[-1].draw(panel, np.log10, np.log10)
    for name, tflops in compute.items():
        panel.line(np.log10([tflops / widest, HIGHEST]), np.log10([tflops] * 2), LIGHT.muted, linewidth=1.6)
        text = f"{name} {tflops:.4g}" + ("" if title else " TFLOP/s")
        panel.labels([(x[1], np.log10(tflops))], [text], LIGHT.muted, ha="right", va="bottom", offset=(0, 3))
    for i, (name, tbs) in enumerate(memory.items() if compute and title else ()):
        ridge, text = np.log10([peak / tbs, peak]), f"{name.split()[0]} ridge {peak / tbs:.0f}"
        panel.line(ridge[:1], ridge[1:], LIGHT.muted, linestyle="", marker="o", markersize=5)
        panel.labels([ridge], [text], LIGHT.muted, ha="left", va="top", offset=(6, -3 - 13 * i))
    for each in series:
        each.draw(panel, np.log10, np.log10)
    named = [(each.name, each.color, dict(each.look)) for each in [*roofs, *series] if each.name]
    panel.line_key(named if title else named[::-1])
    if title:
        panel.mark(at)
        panel.labels([(at, y[0])], [selected], ha="left", va="bottom", offset=(4, 3))


def ring(rows: Iterable, m: int, color: str, size: float, width: float) -> list[Series]:
    """A ring of `size` points round the row of `m` in a roofline; none where there is no such row."""
    rows = [row for row in rows if row.m == m]
    look = dict(linestyle="", marker="o", markersize=size, markerfacecolor="none", markeredgewidth=width)
    return [Series("", in_roofline(rows), color, look)] if rows else []


def draw_model(panel: Panel, pieces: Iterable[np.ndarray]) -> None:
    """The model: dotted lines in a pale band; a piece holds rows of x, y, low and high."""
    for piece in pieces:
        x, y, low, high = piece.T
        outline = np.concatenate([np.stack([x, low], 1), np.stack([x, high], 1)[::-1]])
        band = PathPatch(Path(outline), facecolor=LIGHT.sky, alpha=0.22, linewidth=0, transform=panel.data, zorder=0.8)
        panel.add(band, clip=True)
        panel.line(x, y, LIGHT.sky, **(MODEL if len(x) > 1 else MODEL | dict(marker="_", markersize=9)))


def end_labels(panel: Panel, ends: list[tuple[float, float, str, str]], bold: str = "selected") -> None:
    """Labels beside the right ends (x, y, label, colour) of lines, moved apart where they would overlap."""
    ends = sorted(ends, key=lambda end: end[1])
    gap = 0.165 / panel.height * (panel.y[1] - panel.y[0])
    # Labels that touch form a block, which sits where its members are nearest to their lines on average.
    blocks: list[list[float]] = []  # of each block the places of its lines, each less what is below it in the block
    for i, (_, y, *_) in enumerate(ends):
        blocks.append([y - i * gap])
        while len(blocks) > 1 and np.mean(blocks[-2]) >= np.mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    at = [np.mean(block) for block in blocks for _ in block] + gap * np.arange(len(ends))
    edge, step = panel.x[1], 0.12 / panel.width * (panel.x[1] - panel.x[0])
    paths = [[(x, y), (edge, y), (edge + step, level)] for (x, y, *_), level in zip(ends, at, strict=True)]
    panel.lines(paths, [color for *_, color in ends], clip=False, linewidths=0.7)
    for (_, _, name, color), level in zip(ends, at, strict=True):
        weight = "bold" if name == bold else "normal"
        panel.labels([(edge + step, level)], [name], color, ha="left", weight=weight, offset=(3, 0))


def error_histogram(table: pd.DataFrame, relative_error: float, dtype: str = "bf16", name: str = "") -> Figure:
    """An `error_table` with the band that rounding the exact product alone would fill; `name`: of several results."""
    fig = style.figure(9, 3.4)
    top = max(int(table["count"].max()), 1) * 1.3
    limit = table.high.iloc[-1]
    panel = Panel(fig, 0.75, 0.9, 7.9, 1.9, (-limit, limit), (0, top))
    total = int(table["count"].sum())
    what = f"{name}: error of {total:,} {FORMATS[dtype][0]}" if name else f"error of {total:,}"
    panel.title(f"{what} outputs against FP64; relative Frobenius error {relative_error:.2e}")
    panel.boxes([(-0.5, 0, 1, top)], LIGHT.grid)
    bars = rectangles(table.low, 0, table.high - table.low, table["count"])
    panel.boxes(bars, LIGHT.blue, edgecolor=LIGHT.paper, linewidth=0.3)
    ticks = np.linspace(-limit, limit, 9)
    names = [f"≤ {-limit:g}", *(f"{t:g}" for t in ticks[1:-1]), f"≥ {limit:g}"]
    panel.ticks("x", ticks, names, f"out - reference, in {FORMATS[dtype][0]} spacings at the reference", grid=False)
    step = 10 ** np.floor(np.log10(top))
    step = step / 2 if top / step < 3 else step
    values = np.arange(0, top, max(step, 1))
    panel.ticks("y", values, [f"{int(v):,}" for v in values])
    panel.frame()
    note = "shaded: rounding alone"
    if limit == LIMIT:  # else no bin ends where the band does
        inside = table[(table.low >= -0.5) & (table.high <= 0.5)]["count"].sum() / max(total, 1)
        note += f", {100 * inside:.1f} % of outputs"
    panel.note(0.5, 0.92, note)
    return fig
