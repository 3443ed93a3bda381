"""How fast: bandwidth against M, and the roofline, of one tactic among the others of its kernel and the peers.

The tables have one row per measurement, from `analysis.performance`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.performance import fastest_of_each_m, grouped, recorded_of, rows_of
from ..problem import GemmProblem
from . import charts, style
from .charts import LIVE, MODEL, Series, against_m, in_roofline
from .panel import Panel, rectangles


def bandwidth(
    table: pd.DataFrame, kernel: str, peers: Sequence[str], tactic: str, m: int, ceilings: Mapping[str, float],
    missing: str = "", theme: style.Theme = style.LIGHT, title: str = "bandwidth, TB/s",
    curve: pd.DataFrame | None = None, curve_name: str = "model",
) -> Figure:  # fmt: skip
    """Bandwidth against M: all tactics of `kernel` faint, `tactic` bold, the best envelope, peers at best, ceilings.

    `table` from `analysis.performance.measured`; `ceilings` label to TB/s; `missing` is written large where nothing was
    measured. `curve` is the model's of `tactic`, named `curve_name`: rows of m, tbs, low_tbs, high_tbs.
    """
    rows = rows_of(table)
    recorded, rivals, live = recorded_of(rows, [kernel]), recorded_of(rows, peers), [row for row in rows if row.live]
    modelled = [] if curve is None else list(curve.itertuples(index=False))
    fig = style.figure(6.6, 4.3, theme)
    drawn = [(row.m, row.tbs) for row in [*recorded, *rivals, *live, *modelled]]
    panel = charts.bandwidth_panel(fig, (0.55, 0.85, 4.1, 2.85), drawn, ceilings, m, theme, title)

    low, high = panel.x
    dashes = [style.DASHES[(i + 1) % 4] for i in range(len(ceilings))]
    spans = [[(low, tbs), (high, tbs)] for tbs in ceilings.values()]
    panel.lines(spans, theme.muted, linewidths=1.2, linestyles=dashes)
    ends = [(high, tbs, name, theme.muted) for name, tbs in ceilings.items()]
    if modelled:
        ends += charts.draw_against_m(panel, [Series(curve_name, against_m(modelled), theme.sky, model=True)])
    if recorded:
        _draw_context(panel, list(grouped(recorded, "tactic").values()))
    series = [
        Series(peer, against_m(fastest_of_each_m(group)), theme.series[1 + i], _peer_look(i, 1.6))
        for i, (peer, group) in enumerate(grouped(rivals, "kernel").items())
    ]
    if recorded:
        look: dict[str, Any] = dict(linestyle=(0, (4, 1.5)), linewidth=1.6, zorder=2.2)
        series.append(Series("best tactic", against_m(fastest_of_each_m(recorded)), theme.ink, look))
    chosen = [row for row in recorded if row.tactic == tactic]
    if chosen:
        look = dict(marker="o", markersize=6, linewidth=2.8, zorder=3)
        series.append(Series("selected", against_m(chosen), theme.blue, look, intervals=True))
    if live:
        series.append(Series("", against_m(live), theme.ink, LIVE))
        panel.note(0.02, 0.04, "hollow: measured live", ha="left", va="bottom")
    charts.end_labels(panel, ends + charts.draw_against_m(panel, series))
    if missing:
        look = dict(x=0.02, y=0.04, ha="left", va="bottom") if modelled else dict(x=0.5, y=0.45, size=style.TEXT)
        panel.note(text=missing, weight="bold", **look)
    elif recorded and not chosen:
        panel.note(0.5, 0.3, "the selected tactic was not recorded", va="bottom", weight="bold")
    return fig


def _draw_context(panel: Panel, tactics: Sequence[Sequence]) -> None:
    """Faint lines and squares of all tactics, each as one path: a full sweep has thousands of points."""
    lines = [np.array([(np.log2(row.m), row.tbs) for row in rows]) for rows in tactics]
    x, y = np.concatenate([np.concatenate([line, [(np.nan, np.nan)]]) for line in lines]).T  # gaps part the lines
    panel.line(x, y, panel.theme.faint, linewidth=0.8)
    width, height = 0.035 * (panel.x[1] - panel.x[0]) / panel.width, 0.035 * (panel.y[1] - panel.y[0]) / panel.height
    x, y = np.concatenate(lines).T
    panel.boxes(rectangles(x - width / 2, y - height / 2, width, height), panel.theme.faint, zorder=2)


def roofline(
    table: pd.DataFrame, kernel: str, peers: Sequence[str], tactic: str, problem: GemmProblem,
    memory: Mapping[str, float], compute: Mapping[str, float], theme: style.Theme = style.LIGHT,
    title: str = "roofline, TFLOP/s", curve: pd.DataFrame | None = None,
) -> Figure:  # fmt: skip
    """The roofline: `memory` ceilings (label to TB/s) and `compute` ceilings (label to TFLOP/s), `tactic` at each M.

    `table` and `curve` as in `bandwidth`; `problem` marks the intensity in question. Where two ceilings meet, the
    ridge, the FLOP per byte are written. The best recorded tactics stand in, dashed, where `tactic` was not recorded.
    """
    rows = rows_of(table)
    recorded = recorded_of(rows, [kernel])
    chosen = [row for row in recorded if row.tactic == tactic]
    series = [
        Series(peer, in_roofline(fastest_of_each_m(group)), theme.series[1 + i], _peer_look(i, 1.2))
        for i, (peer, group) in enumerate(grouped(recorded_of(rows, peers), "kernel").items())
    ]
    if chosen:
        look: dict[str, Any] = dict(marker="o", markersize=6, linewidth=2.6, zorder=3)
        series.append(Series("selected", in_roofline(chosen), theme.blue, look))
        series += charts.ring(chosen, problem.m, theme.blue, 13, 2)
    elif recorded:
        look = dict(linestyle="--", linewidth=1.6, marker="o", markersize=4)
        series.append(Series("best tactic", in_roofline(fastest_of_each_m(recorded)), theme.ink, look))
    if curve is not None:
        intensity = np.array([replace(problem, m=int(m)).intensity for m in curve.m])
        rates = [intensity * curve[name] for name in ("tbs", "low_tbs", "high_tbs")]
        series.append(Series("model", np.column_stack([intensity, *rates]), theme.sky, MODEL, model=True))
    live = [row for row in rows if row.live and row.m]
    if live:
        series.append(Series("measured live", in_roofline(live), theme.ink, LIVE))
    fig = style.figure(6.6, 4.3, theme)
    charts.draw_roofline(fig, (0.6, 0.85, 5.6, 2.85), series, memory, compute, problem, theme, title)
    return fig


def _peer_look(i: int, width: float) -> dict[str, Any]:
    return dict(markersize=5, linewidth=width, linestyle=style.DASHES[i + 1], marker=style.MARKERS[i + 1])
