"""One tactic on one problem: every figure of it, with its data and provenance, for explorers, scripts and the shell.

view = tactic_view("warp-splitk", tactic, GemmProblem(8, 3584, 7168), device.get("h200"))
for stem, parts in view.figures().items():
    export(*parts, folder / stem)

Recorded points are filled, live ones hollow, the model is dotted and has its error as a band; they share no line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.performance import fastest_of_each_m, grouped, recorded, rows_of, used
from ..analysis.tactic import M, TacticData, smem_table
from ..checks import check_choice
from ..device import Device
from ..problem import GemmProblem
from ..records import MODES, PEERS, campaigns, load
from ..tactics import KERNELS, Tactic, tactic_type
from . import charts, layout, style
from .charts import LIVE, MODEL, Series, against_m, best_of_peers, in_roofline
from .panel import Panel, rectangles, tick_step
from .style import LIGHT

FIGURES = ("bandwidth", "roofline", "tactic-fields", "sensitivity", "smem")  #: by the end of their files' names
MARGIN = 3  #: impossible values shown on either side of the possible ones
WIDEST = 0.6  #: change of time that a bar shows at most; its number is written in any case
_IMPOSSIBLE: dict[str, Any] = dict(linestyle="", marker="x", markersize=5)
_RECORDED: dict[str, Any] = dict(linestyle="", marker="o", markersize=6, zorder=3)
_CEILING: dict[str, Any] = dict(linestyle="--", linewidth=1.2)


@dataclass(frozen=True)
class TacticView(TacticData):
    """The data of a tactic, and their figures."""

    def smem(self) -> Figure:
        """Shared memory of an SM; the tactic must be legal."""
        return layout.smem_map(self.footprint, self.device)

    def bandwidth(self) -> Figure:
        """Bandwidth against M: all tactics faint, this one bold, the best envelope, peers at best, ceilings."""
        p, limits, ours, rivals = self.problem, self.limits(), self._ours(), self._rivals()
        live = [row for row in rows_of(self.table) if row.live]
        tactics = grouped(ours, "tactic")
        chosen = tactics.get(str(self.tactic), [])
        modelled = [] if self.curve is None else list(self.curve.itertuples(index=False))
        fig = style.figure(6.6, 4.3)
        drawn = [(row.m, row.tbs) for row in [*ours, *rivals, *live, *modelled]]
        title = "bytes over exposed time, TB/s" if self.mode == "exposed" else "bandwidth, TB/s"
        panel = charts.bandwidth_panel(fig, (0.55, 0.85, 4.1, 2.85), drawn, limits, p.m, title)

        dashes = [style.DASHES[(i + 1) % 4] for i in range(len(limits))]
        spans = [[(panel.x[0], tbs), (panel.x[1], tbs)] for tbs in limits.values()]
        panel.lines(spans, LIGHT.muted, linewidths=1.2, linestyles=dashes)
        ends = [(panel.x[1], tbs, name, LIGHT.muted) for name, tbs in limits.items()]
        if modelled:
            error = self.fit and not self.scaled and f"model, 90 % ±{100 * self.fit.held_out_p90_error:.0f} %"
            name = error or "scaled model"
            ends += charts.draw_against_m(panel, [Series(name, against_m(modelled), LIGHT.sky, model=True)])
        if ours:
            _draw_context(panel, list(tactics.values()))
        series = best_of_peers(grouped(rivals, "kernel"), against_m, LIGHT.series[1:], linewidth=1.6, markersize=5)
        if ours:
            dashed = dict(linestyle=(0, (4, 1.5)), linewidth=1.6, zorder=2.2)
            series.append(Series("best tactic", against_m(fastest_of_each_m(ours)), LIGHT.ink, dashed))
        if chosen:
            bold = dict(marker="o", markersize=6, linewidth=2.8, zorder=3)
            series.append(Series("selected", against_m(chosen), LIGHT.blue, bold, intervals=True))
        if live:
            series.append(Series("", against_m(live), LIGHT.ink, LIVE))
            panel.note(0.02, 0.04, "hollow: measured live", ha="left", va="bottom")
        charts.end_labels(panel, ends + charts.draw_against_m(panel, series))
        if not (self.table.kernel == self.kernel).any():
            missing = f"no recorded data: {self.kernel}, {p.n}x{p.k}"
            if modelled:
                panel.note(0.02, 0.04, missing, ha="left", va="bottom", weight="bold")
            else:
                panel.note(0.5, 0.45, missing, size=style.TEXT, weight="bold")
        elif ours and not chosen:
            panel.note(0.5, 0.3, "the selected tactic was not recorded", va="bottom", weight="bold")
        return fig

    def roofline(self) -> Figure:
        """The roofline: the tactic at each M, or dashed the best recorded where it was not; this problem marked."""
        peers = grouped(self._rivals(), "kernel")
        series = best_of_peers(peers, in_roofline, LIGHT.series[1:], linewidth=1.2, markersize=5)
        ours = self._ours()
        if chosen := grouped(ours, "tactic").get(str(self.tactic)):
            bold = dict(marker="o", markersize=6, linewidth=2.6, zorder=3)
            series.append(Series("selected", in_roofline(chosen), LIGHT.blue, bold))
            series += charts.ring(chosen, self.problem.m, LIGHT.blue, 13, 2)
        elif ours:
            dashed = dict(linestyle="--", linewidth=1.6, marker="o", markersize=4)
            series.append(Series("best tactic", in_roofline(fastest_of_each_m(ours)), LIGHT.ink, dashed))
        if self.curve is not None:
            intensity = np.array([replace(self.problem, m=int(m)).intensity for m in self.curve.m])
            rates = [intensity * self.curve[name] for name in ("tbs", "low_tbs", "high_tbs")]
            series.append(Series("model", np.column_stack([intensity, *rates]), LIGHT.sky, MODEL, model=True))
        if live := [row for row in rows_of(self.table) if row.live and row.m]:
            series.append(Series("measured live", in_roofline(live), LIGHT.ink, LIVE))
        fig = style.figure(6.6, 4.3)
        title = "roofline over exposed time, TFLOP/s" if self.mode == "exposed" else "roofline, TFLOP/s"
        charts.draw_roofline(fig, (0.6, 0.85, 5.6, 2.85), series, *self.roofs(), self.problem, title)
        return fig

    def fields(self) -> Figure:
        """Bandwidth against each field of a legal tactic: measured points, the model's line and band, the ceiling."""
        all_rows = [row for row in self.neighbours.itertuples(index=False) if row.control != M]
        ceiling = self.ceilings.get("hbm_read_tbs")
        names = [name for name in self.choices if name != M]
        height = 0.7 + 2.6 * -(-len(names) // 3)  # of three panels in a line
        fig = style.figure(12.6, height)
        top = max([1e-3, *(row.tbs for row in all_rows if row.source), *([ceiling] if ceiling else [])]) * 1.08
        by_control = grouped(all_rows, "control")
        for i, name in enumerate(names):
            rows = by_control[name]
            values = _near_possible(rows)
            place = {value: j for j, value in enumerate(values)}
            left, bottom = 0.55 + (i % 3) * 4.1, height - 2.3 - (i // 3) * 2.6
            panel = Panel(fig, left, bottom, 3.55, 1.75, (-0.5, max(len(values), 2) - 0.5), (0, top))
            panel.title(f"{name} = {self.in_words(name, self.value(name))}", 7)
            shown = range(0, len(values), -(-len(values) // 12))
            panel.ticks("x", list(shown), [self.in_words(name, values[j]) for j in shown], grid=False)
            panel.level_ticks(6, "TB/s")
            panel.frame()
            if ceiling:
                ends = [(panel.x[0], ceiling), (panel.x[1], ceiling)]
                panel.lines([ends], LIGHT.muted, linewidths=1.2, linestyles=["--"])
            if self.value(name) in place:
                panel.mark(place[self.value(name)])
            impossible = [place[row.value] for row in rows if row.reason and row.value in place]
            if impossible:
                panel.line(impossible, [0.04 * top] * len(impossible), LIGHT.muted, **_IMPOSSIBLE)
            charts.draw_model(panel, _pieces([row for row in rows if row.source == "model"], place))
            for source, color, look in (("recorded", LIGHT.blue, _RECORDED), ("live", LIGHT.ink, LIVE)):
                points = [row for row in rows if row.source == source]
                if points:
                    bars = [[(place[row.value], row.low_tbs), (place[row.value], row.high_tbs)] for row in points]
                    panel.lines(bars, color, linewidths=1.6)
                    panel.line([place[row.value] for row in points], [row.tbs for row in points], color, **look)
        note = Panel(fig, 0.55, 0.4, 11.6, 0.2)
        sources = {row.source for row in all_rows}
        name = "scaled model, others' error" if "model" in sources and self.scaled else "model and its 90 % error"
        entries = [
            ("recorded" in sources, "recorded", LIGHT.blue, _RECORDED),
            ("live" in sources, "measured live", LIGHT.ink, LIVE),
            ("model" in sources, name, LIGHT.sky, MODEL),
            (any(row.reason for row in all_rows), "not possible", LIGHT.muted, _IMPOSSIBLE),
            (ceiling, "HBM ceiling", LIGHT.muted, _CEILING),
        ]
        for i, (_, text, color, look) in enumerate(entry for entry in entries if entry[0]):
            x = i * 2.45 / note.width
            spot = [0.0, 0.4] if look["linestyle"] else [0.3]  # inches: a line, or a single mark
            note.line([x + inches / note.width for inches in spot], [0.5] * len(spot), color, clip=False, **look)
            note.note(x + 0.5 / note.width, 0.5, text, ha="left")
        return fig

    def sensitivity(self) -> Figure:
        """A bar per step of each slider of a legal tactic, filled from records, else outlined."""
        rows = list(self.steps.itertuples(index=False))
        height = 3.3  # whatever the number of rows, so that nothing below moves when a slider does
        fig = style.figure(12.6, height + 1.85)
        widest = min(WIDEST, max([0.02, *(abs(row.change) for row in rows if row.source)])) * 1.05
        panel = Panel(fig, 2.6, 1.25, 4.6, height, (-widest, widest), (max(len(rows), 1), 0))
        panel.title("one step of each slider: change of time", 8)
        grid = tick_step(widest, 4, least=0.005)
        at = np.arange(-int(widest / grid), int(widest / grid) + 1) * grid
        panel.ticks("x", at, [f"{100 * v:+.3g} %" if abs(v) > 1e-9 else "0" for v in at])
        panel.note(0.02, 0, "← faster", LIGHT.muted, ha="left", va="top", offset=(0, -19))
        panel.note(0.98, 0, "slower →", LIGHT.muted, ha="right", va="top", offset=(0, -19))
        for i, row in enumerate(rows):
            y = i + 0.5
            if i and row.control != rows[i - 1].control:
                panel.lines([[(-widest, i), (widest, i)]], LIGHT.grid, linewidths=0.7)
            before, after = (self.in_words(row.control, value) for value in (row.before, row.after))
            panel.labels([(-widest, y)], [f"{row.control} {before} → {after}"], ha="right", offset=(-8, 0))
            if row.source:
                length = max(-widest, min(widest, row.change))
                box = (min(0, length), y - 0.3, abs(length), 0.6)
                if row.source == "recorded":
                    panel.boxes([box], LIGHT.blue)
                else:
                    panel.boxes([box], "none", edgecolor=LIGHT.sky, linewidth=1.4, linestyle=":")
                if abs(row.change) > widest:  # the bar goes on
                    beyond, side, dx = ("»", "right", -4) if length > 0 else ("«", "left", 4)
                    panel.labels([(length, y)], [beyond], ha=side, size=style.TITLE, offset=(dx, 0))
        for i, row in enumerate(rows):
            color = LIGHT.ink if row.source == "recorded" else LIGHT.muted
            panel.labels([(widest, i + 0.5)], [_step_text(row)], color, ha="left", offset=(10, 0))
        panel.lines([[(0, 0), (0, len(rows))]], LIGHT.ink, linewidths=0.9)
        foot = "filled: both ends recorded"
        if self.fit:
            within = f"{100 * self.fit.held_out_p90_error:.0f} %"
            foot += f"; outlined: model, 90 % of whose times were within {within} on {self.fitted_on}"
        panel.note(0, 0, foot, LIGHT.muted, ha="left", va="top", offset=(-175, -36))
        return fig

    def figures(self) -> dict[str, tuple[Figure, pd.DataFrame, dict]]:
        """File stem to (figure, plotted data, provenance); those of a tactic only if it is legal. Ends as `FIGURES`."""
        facts = self.provenance()
        parts = [(self.bandwidth(), self.plotted, facts), (self.roofline(), self.plotted, facts)]
        if self.illegal is None:
            parts += [
                (self.fields(), self.neighbours, self.provenance(self.neighbours.source)),
                (self.sensitivity(), self.steps, self.provenance(self.steps.source)),
                (self.smem(), smem_table(self.footprint, self.device), self.modelled()),
            ]
        return {f"{self.stem}-{name}": part for name, part in zip(FIGURES, parts, strict=False)}

    def _ours(self) -> list:
        """The recorded rows of this kernel."""
        return [row for row in rows_of(self.table) if row.kernel == self.kernel and not row.live]

    def _rivals(self) -> list:
        """The recorded rows of what is drawn beside the kernel: peers, and the other kernels of ours."""
        names = {*PEERS, *KERNELS} - {self.kernel}
        return [row for row in rows_of(self.table) if row.kernel in names and not row.live]


def tactic_view(
    kernel: str, tactic: Tactic | None, problem: GemmProblem, device: Device, mode: str = "chained",
    data_dir: Path | None = None,
) -> TacticView:  # fmt: skip
    """The view of `tactic` with what `data_dir` (by default data/) holds for it; ValueError on an unknown mode."""
    check_choice("mode", mode, MODES)
    problem = tactic_type(kernel).problem(problem)
    table = recorded(load(data_dir), problem.n, problem.k, device.name, mode)
    return TacticView(kernel, tactic, problem, device, mode, table, used(table, campaigns(data_dir)))


def _draw_context(panel: Panel, tactics: Sequence[Sequence]) -> None:
    """Faint lines and squares of all tactics, each as one path: a full sweep has thousands of points."""
    lines = [np.array([(np.log2(row.m), row.tbs) for row in rows]) for rows in tactics]
    x, y = np.concatenate([np.concatenate([line, [(np.nan, np.nan)]]) for line in lines]).T  # gaps part the lines
    panel.line(x, y, LIGHT.faint, linewidth=0.8)
    width, height = 0.035 * (panel.x[1] - panel.x[0]) / panel.width, 0.035 * (panel.y[1] - panel.y[0]) / panel.height
    x, y = np.concatenate(lines).T
    panel.boxes(rectangles(x - width / 2, y - height / 2, width, height), LIGHT.faint, zorder=2)


def _near_possible(rows: Sequence) -> list[int]:
    """A field's values in order, without the long runs of impossible ones on either side of the possible."""
    values = sorted({row.value for row in rows})
    possible = {row.value for row in rows if not row.reason}
    at = [i for i, value in enumerate(values) if value in possible]
    return values[max(0, at[0] - MARGIN) : at[-1] + MARGIN + 1]


def _pieces(rows: Sequence, place: dict[int, int]) -> list[np.ndarray]:
    """Runs of neighbouring values: a line does not cross values that are not possible."""
    points = np.array(sorted((place[row.value], row.tbs, row.low_tbs, row.high_tbs) for row in rows))
    return np.split(points, np.flatnonzero(np.diff(points[:, 0]) > 1) + 1) if len(points) else []


def _step_text(row: Any) -> str:
    """What stands beside a step's bar: the times, or why there are none, as long as it stays readable."""
    if row.source:
        untold = row.source == "model" and row.change == 0  # a field that its formula does not have
        source = f"{row.source}, {row.verdict}" if row.verdict else row.source + ", which knows no difference" * untold
        return f"{_percent(row.change)}: {row.before_us:.2f} → {row.after_us:.2f} us ({source})"
    reason = row.reason.split(": ")[0]
    if len(reason) > 62:
        reason = reason[:60].rsplit(" ", 1)[0] + " …"
    return f"not possible: {reason}" if reason else "not recorded, and no model"


def _percent(change: float) -> str:
    """Signed, in tenths; what rounds to nothing has no sign."""
    return f"{100 * change:+.1f} %" if abs(change) >= 5e-4 else "0.0 %"
