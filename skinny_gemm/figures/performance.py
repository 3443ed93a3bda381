"""How fast: bandwidth against M, and the roofline, from records of `bench.records`.

Both take a table with one row per measurement: kernel, tactic, m, median_us, low_us, high_us, bytes, and `live` (True
for a point measured on this machine, just now). Live points are hollow, recorded ones filled; they never share a line.
The model's curve of the selected tactic is dotted, with its error as a band, and says that it is a model's.
"""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.neighbours import LIVE, MODEL, draw_model
from ..problem import GemmProblem
from . import style
from .panel import Panel

_PLOTTED = ["kernel", "tactic", "m", "median_us", "live", "tbs", "low_tbs", "high_tbs", "tflops", "intensity"]


def measured(records: pd.DataFrame, n: int, k: int) -> pd.DataFrame:
    """`records` of weights `[n, k]`, with what the figures plot: tbs (TB/s), low_tbs, high_tbs, tflops, intensity."""
    table = records[(records.n == n) & (records.k == k)].copy()
    for name, time in (("tbs", "median_us"), ("low_tbs", "high_us"), ("high_tbs", "low_us")):
        table[name] = table["bytes"] / table[time] * 1e-6
    flops = 2.0 * table.m * n * k
    table["tflops"] = flops / table.median_us * 1e-6
    table["intensity"] = flops / table["bytes"]
    table = table.astype({"kernel": object, "tactic": object})  # Python strings: faster to walk through
    return table.sort_values(["kernel", "tactic", "m"])


def bandwidth(
    table: pd.DataFrame,
    kernel: str,
    peers: Sequence[str],
    tactic: str,
    m: int,
    ceilings: Mapping[str, float],
    missing: str = "",
    theme: style.Theme = style.LIGHT,
    title: str = "bandwidth, TB/s",
    curve: pd.DataFrame | None = None,
    curve_name: str = "model",
) -> Figure:
    """Bandwidth against M: all tactics of `kernel` faint, `tactic` bold, the best envelope, peers at best, ceilings.

    `table` from `measured`; `ceilings` label to TB/s; `missing` is written large where nothing was measured. `curve` is
    the model's of `tactic`, named `curve_name`: rows of m, tbs, low_tbs, high_tbs.
    """
    rows = _rows(table)
    recorded, live = _of(rows, [kernel]), [row for row in rows if row.live]
    rivals = _of(rows, peers)
    fig = style.figure(6.6, 4.3, theme)
    modelled = [] if curve is None else list(curve.itertuples(index=False))
    top = max([row.tbs for row in [*recorded, *rivals, *live, *modelled]] + [*ceilings.values()], default=1.0) * 1.08
    biggest = max([32, m, *(row.m for row in [*rows, *modelled])])
    panel = Panel(fig, 0.55, 0.85, 4.1, 2.85, theme, x=(-0.15, np.log2(biggest) + 0.15), y=(0, top))
    panel.title(title)
    ms = [2**i for i in range(int(np.log2(biggest)) + 1)]
    panel.ticks("x", np.log2(ms), ms, "M, tokens")
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if top / s <= 8)
    values = np.arange(0, top, step)
    panel.ticks("y", values, [f"{v:g}" for v in values.round(3)])
    panel.frame()
    panel.lines([[(np.log2(m), 0), (np.log2(m), top)]], theme.faint, linewidths=1.2, linestyles=[(0, (2, 2))])

    ends: list[tuple[float, float, str, str]] = []  # a line's right end (x, y), its label and colour
    dashes = [style.DASHES[(i + 1) % 4] for i in range(len(ceilings))]
    spans = [[(panel.x[0], value), (panel.x[1], value)] for value in ceilings.values()]
    panel.lines(spans, theme.muted, linewidths=1.2, linestyles=dashes)
    ends += [(panel.x[1], value, name, theme.muted) for name, value in ceilings.items()]
    if modelled:
        points = np.array([(np.log2(row.m), row.tbs, row.low_tbs, row.high_tbs) for row in modelled])
        draw_model(panel, [points], theme)
        ends.append((*points[-1, :2], curve_name, theme.sky))
    context = [_points(group, "tbs") for group in _groups(recorded, "tactic").values()]
    if context:  # thousands of points in a full sweep: one path each, where markers would be an element of the SVG each
        gaps = [np.concatenate([line, [(np.nan, np.nan)]]) for line in context]
        panel.line(*np.concatenate(gaps).T, theme.faint, linewidth=0.8)
        side = 0.035 * np.array([(panel.x[1] - panel.x[0]) / panel.width, (panel.y[1] - panel.y[0]) / panel.height])
        points = np.concatenate(context)
        panel.boxes(np.hstack([points - side / 2, np.broadcast_to(side, points.shape)]), theme.faint, zorder=2)

    def series(group, name, color, **look):
        points = _points(group, "tbs")
        panel.line(*points.T, color, **look)
        ends.append((*points[-1], name, color))

    for i, (peer, group) in enumerate(_groups(rivals, "kernel").items()):
        series(_envelope(group), peer, theme.series[1 + i], markersize=5, linewidth=1.6, **_peer_look(i))
    if recorded:
        series(_envelope(recorded), "best tactic", theme.ink, linestyle=(0, (4, 1.5)), linewidth=1.6, zorder=2.2)
    chosen = [row for row in recorded if row.tactic == tactic]
    if chosen:
        bars = [[(np.log2(row.m), row.low_tbs), (np.log2(row.m), row.high_tbs)] for row in chosen]
        panel.lines(bars, theme.blue, linewidths=1.6)
        series(chosen, "selected", theme.blue, marker="o", markersize=6, linewidth=2.8, zorder=3)
    if live:
        panel.line(*_points(live, "tbs").T, theme.ink, **LIVE)
        panel.note(0.02, 0.04, "hollow: measured live", ha="left", va="bottom")
    end_labels(panel, ends)
    if missing:
        place = dict(x=0.02, y=0.04, ha="left", va="bottom") if modelled else dict(x=0.5, y=0.45)
        panel.note(text=missing, size=style.SMALL if modelled else style.TEXT, weight="bold", **place)
    elif recorded and not chosen:
        panel.note(0.5, 0.3, "the selected tactic was not recorded", va="bottom", weight="bold")
    return fig


def roofline(
    table: pd.DataFrame,
    kernel: str,
    peers: Sequence[str],
    tactic: str,
    problem: GemmProblem,
    memory: Mapping[str, float],
    compute: Mapping[str, float],
    theme: style.Theme = style.LIGHT,
    title: str = "roofline, TFLOP/s",
    curve: pd.DataFrame | None = None,
) -> Figure:
    """The roofline: `memory` ceilings (label to TB/s) and `compute` ceilings (label to TFLOP/s), `tactic` at each M.

    `table` from `measured`; `problem` marks the intensity in question. Where two ceilings meet, the ridge, the FLOP per
    byte are written. The best recorded tactics stand in, dashed, where `tactic` was not recorded. `curve` as in
    `bandwidth`.
    """
    rows = _rows(table)
    fig = style.figure(6.6, 4.3, theme)
    low, high = 0.5, 1024.0
    peak, widest = max([*compute.values(), 1.0]), max([*memory.values(), 1.0])
    y = np.log10(low * widest * 0.15), np.log10(peak * 2)
    panel = Panel(fig, 0.6, 0.85, 5.6, 2.85, theme, x=(np.log10(low), np.log10(high)), y=y)
    panel.title(title)
    xs = [1, 4, 16, 64, 256, 1024]
    panel.ticks("x", np.log10(xs), xs, "FLOP per byte")
    ys = [10.0**i for i in range(-1, 5) if y[0] <= i <= y[1]]
    panel.ticks("y", np.log10(ys), [f"{value:g}" for value in ys])
    panel.frame()

    entries: list[tuple[str, str, dict]] = []

    def series(points, name, color, **look):
        panel.line(*np.log10(points).T, color, **look)
        entries.append((name, color, look))

    for i, (name, tbs) in enumerate(memory.items()):
        end = min(peak / tbs, high)
        look = dict(linewidth=1.6, linestyle=style.DASHES[i % 4])
        series([(low, low * tbs), (end, end * tbs)], f"{name} {tbs:.3g} TB/s", theme.muted, **look)
    for name, tflops in compute.items():
        panel.line(np.log10([tflops / widest, high]), np.log10([tflops] * 2), theme.muted, linewidth=1.6)
        look = dict(ha="right", va="bottom", offset=(0, 3))
        panel.labels([(panel.x[1], np.log10(tflops))], [f"{name} {tflops:.4g}"], theme.muted, **look)
    if compute:
        for i, (name, tbs) in enumerate(memory.items()):
            ridge, text = np.log10([(peak / tbs, peak)]), f"{name.split()[0]} ridge {peak / tbs:.0f}"
            panel.line(*ridge.T, theme.muted, linestyle="", marker="o", markersize=5)
            panel.labels(ridge, [text], theme.muted, ha="left", va="top", offset=(6, -3 - 13 * i))
    for i, (peer, group) in enumerate(_groups(_of(rows, peers), "kernel").items()):
        points = [(row.intensity, row.tflops) for row in _envelope(group)]
        series(points, peer, theme.series[1 + i], markersize=5, linewidth=1.2, **_peer_look(i))
    recorded = _of(rows, [kernel])
    chosen = [row for row in recorded if row.tactic == tactic]
    if chosen:
        points = [(row.intensity, row.tflops) for row in chosen]
        series(points, "selected", theme.blue, marker="o", markersize=6, linewidth=2.6, zorder=3)
        here = [point for row, point in zip(chosen, points, strict=True) if row.m == problem.m]
        if here:
            ring = dict(linestyle="", marker="o", markersize=13, markerfacecolor="none", markeredgewidth=2)
            panel.line(*np.log10(here).T, theme.blue, **ring)
    elif recorded:
        points = [(row.intensity, row.tflops) for row in _envelope(recorded)]
        series(points, "best tactic", theme.ink, linestyle="--", linewidth=1.6, marker="o", markersize=4)
    if curve is not None:
        intensity = np.array([replace(problem, m=int(m)).intensity for m in curve.m])
        points = np.stack([intensity, intensity * curve.tbs, intensity * curve.low_tbs, intensity * curve.high_tbs], 1)
        draw_model(panel, [np.log10(points)], theme)
        entries.append(("model", theme.sky, MODEL))
    live = [(row.intensity, row.tflops) for row in rows if row.live and row.m]
    if live:
        series(live, "measured live", theme.ink, **LIVE)
    panel.line_key(entries)
    x = np.log10(problem.intensity)
    panel.lines([[(x, y[0]), (x, y[1])]], theme.faint, linewidths=1.2, linestyles=[(0, (2, 2))])
    panel.labels([(x, y[0])], [f"M = {problem.m}"], ha="left", va="bottom", offset=(4, 3))
    return fig


def _peer_look(i: int) -> dict:
    return dict(linestyle=style.DASHES[i + 1], marker=style.MARKERS[i + 1])


def _rows(table: pd.DataFrame) -> list:
    """The rows as tuples: a step of a slider has no time for table arithmetic, nor to walk through the same rows again.

    The latest table's are kept; nobody changes a table that was drawn.
    """
    global _walked
    known, rows = _walked
    if known() is not table:
        rows = list(table[_PLOTTED].itertuples(index=False))
        _walked = weakref.ref(table), rows
    return rows


_walked = (lambda: None, [])  #: the latest table, and its rows


def _of(rows: Iterable, kernels: Sequence[str]) -> list:
    """The recorded rows of some kernels."""
    return [row for row in rows if row.kernel in kernels and not row.live]


def _groups(rows: Iterable, name: str) -> dict[str, list]:
    groups: dict[str, list] = {}
    for row in rows:
        groups.setdefault(getattr(row, name), []).append(row)
    return groups


def _envelope(rows: Iterable) -> list:
    """The fastest row of each M, in ascending M."""
    best = {m: min(group, key=lambda row: row.median_us) for m, group in _groups(rows, "m").items()}
    return [best[m] for m in sorted(best)]


def _points(rows: Sequence, name: str) -> np.ndarray:
    return np.array([(np.log2(row.m), getattr(row, name)) for row in rows])


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
