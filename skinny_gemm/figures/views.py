"""One tactic on one problem: every figure of it, with its data and provenance, for explorers, scripts and the shell.

view = tactic_view("warp-splitk", tactic, GemmProblem(8, 3584, 7168), device.get("h200"))
for stem, parts in view.figures().items():
    export(*parts, folder / stem)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.performance import fastest_of_each_m, grouped, recorded, recorded_of, rows_of, used
from ..analysis.tactic import TacticData, smem_table
from ..checks import check_choice
from ..device import Device
from ..problem import GemmProblem
from ..records import MODES, PEERS, campaigns, load
from ..tactics import KERNELS, Tactic, tactic_type
from . import charts, layout, neighbours, style
from .charts import LIVE, MODEL, Series, against_m, in_roofline, peer_look
from .panel import Panel, rectangles
from .style import LIGHT

FIGURES = ("bandwidth", "roofline", "tactic-fields", "sensitivity", "smem")  #: by the end of their files' names


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
            known = self.fit and not self.scaled
            name = f"model, 90 % ±{100 * self.fit.held_out_p90_error:.0f} %" if known else "scaled model"
            ends += charts.draw_against_m(panel, [Series(name, against_m(modelled), LIGHT.sky, model=True)])
        if ours:
            _draw_context(panel, list(tactics.values()))
        series = [
            Series(peer, against_m(fastest_of_each_m(group)), LIGHT.series[1 + i], peer_look(i, 1.6, markersize=5))
            for i, (peer, group) in enumerate(grouped(rivals, "kernel").items())
        ]
        look: dict[str, Any]
        if ours:
            look = dict(linestyle=(0, (4, 1.5)), linewidth=1.6, zorder=2.2)
            series.append(Series("best tactic", against_m(fastest_of_each_m(ours)), LIGHT.ink, look))
        if chosen:
            look = dict(marker="o", markersize=6, linewidth=2.8, zorder=3)
            series.append(Series("selected", against_m(chosen), LIGHT.blue, look, intervals=True))
        if live:
            series.append(Series("", against_m(live), LIGHT.ink, LIVE))
            panel.note(0.02, 0.04, "hollow: measured live", ha="left", va="bottom")
        charts.end_labels(panel, ends + charts.draw_against_m(panel, series))
        if not (self.table.kernel == self.kernel).any():
            look = dict(x=0.02, y=0.04, ha="left", va="bottom") if modelled else dict(x=0.5, y=0.45, size=style.TEXT)
            panel.note(text=f"no recorded data: {self.kernel}, {p.n}x{p.k}", weight="bold", **look)
        elif ours and not chosen:
            panel.note(0.5, 0.3, "the selected tactic was not recorded", va="bottom", weight="bold")
        return fig

    def roofline(self) -> Figure:
        """The roofline: the tactic at each M, or dashed the best recorded where it was not; this problem marked."""
        series = [
            Series(peer, in_roofline(fastest_of_each_m(group)), LIGHT.series[1 + i], peer_look(i, 1.2, markersize=5))
            for i, (peer, group) in enumerate(grouped(self._rivals(), "kernel").items())
        ]
        look: dict[str, Any]
        ours = self._ours()
        if chosen := grouped(ours, "tactic").get(str(self.tactic)):
            look = dict(marker="o", markersize=6, linewidth=2.6, zorder=3)
            series.append(Series("selected", in_roofline(chosen), LIGHT.blue, look))
            series += charts.ring(chosen, self.problem.m, LIGHT.blue, 13, 2)
        elif ours:
            look = dict(linestyle="--", linewidth=1.6, marker="o", markersize=4)
            series.append(Series("best tactic", in_roofline(fastest_of_each_m(ours)), LIGHT.ink, look))
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
        """Bandwidth against each field of the tactic, which must be legal."""
        return neighbours.draw_fields(self)

    def sensitivity(self) -> Figure:
        """What one step of each slider does to the time; the tactic must be legal."""
        return neighbours.draw_steps(self)

    def figures(self) -> dict[str, tuple[Figure, pd.DataFrame, dict]]:
        """File stem to (figure, plotted data, provenance); those of a tactic only if it is legal. Ends as `FIGURES`."""
        facts = self.provenance()
        parts = [(self.bandwidth(), self.plotted, facts), (self.roofline(), self.plotted, facts)]
        if self.legal:
            parts += [
                (self.fields(), self.neighbours, self.provenance(self.neighbours.source)),
                (self.sensitivity(), self.steps, self.provenance(self.steps.source)),
                (self.smem(), smem_table(self.footprint, self.device), self.modelled()),
            ]
        return {f"{self.stem}-{name}": part for name, part in zip(FIGURES, parts, strict=False)}

    def _ours(self) -> list:
        """The recorded rows of this kernel."""
        return recorded_of(rows_of(self.table), [self.kernel])

    def _rivals(self) -> list:
        """The recorded rows of what is drawn beside the kernel: peers, and the other kernels of ours."""
        return recorded_of(rows_of(self.table), [*PEERS, *(name for name in KERNELS if name != self.kernel)])


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
