"""One tactic on one problem: every figure of it, with its data and provenance, for explorers, scripts and the shell.

view = tactic_view("warp-splitk", tactic, GemmProblem(8, 3584, 7168), device.get("h200"))
for stem, parts in view.figures().items():
    export(*parts, folder / stem)
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ..analysis.performance import recorded, used
from ..analysis.resources import smem_table
from ..analysis.tactic import TacticData
from ..checks import check_choice
from ..device import Device
from ..problem import GemmProblem
from ..records import MODES, PEERS, campaigns, load
from ..tactics import KERNELS, Tactic, tactic_type
from . import neighbours, performance, resources

FIGURES = ("bandwidth", "roofline", "tactic-fields", "sensitivity", "smem")  #: by the end of their files' names


@dataclass(frozen=True)
class TacticView(TacticData):
    """The data of a tactic, and their figures."""

    def smem(self) -> Figure:
        """Shared memory of an SM; the tactic must be legal."""
        return resources.smem_map(self.footprint, self.device)

    def bandwidth(self) -> Figure:
        """Bandwidth against M."""
        p, fit = self.problem, self.fit
        missing = "" if (self.table.kernel == self.kernel).any() else f"no recorded data: {self.kernel}, {p.n}x{p.k}"
        title = "bytes over exposed time, TB/s" if self.mode == "exposed" else "bandwidth, TB/s"
        error = f"model, 90 % ±{100 * fit.held_out_p90_error:.0f} %" if fit and not self.scaled else "scaled model"
        arguments = self.table, self.kernel, self._rivals(), str(self.tactic), p.m, self.limits(), missing
        return performance.bandwidth(*arguments, title=title, curve=self.curve, curve_name=error)

    def roofline(self) -> Figure:
        """Roofline, the problem's intensity marked."""
        title = "roofline over exposed time, TFLOP/s" if self.mode == "exposed" else "roofline, TFLOP/s"
        arguments = self.table, self.kernel, self._rivals(), str(self.tactic), self.problem, *self.roofs()
        return performance.roofline(*arguments, title=title, curve=self.curve)

    def fields(self) -> Figure:
        """Bandwidth against each field of the tactic, which must be legal."""
        return neighbours.draw_fields(self.selection, self.neighbours, self.ceilings.get("hbm_read_tbs"))

    def sensitivity(self) -> Figure:
        """What one step of each slider does to the time; the tactic must be legal."""
        error = ""
        if self.fit:
            within = f"{100 * self.fit.held_out_p90_error:.0f} %"
            error = f"90 % of whose times were within {within} on {self.fitted_on}"
        return neighbours.draw_steps(self.steps, error)

    def figures(self) -> dict[str, tuple[Figure, pd.DataFrame, dict]]:
        """File stem to (figure, plotted data, provenance); those of a tactic only if it is legal. Ends as `FIGURES`."""
        facts = self.provenance()
        parts = {
            "bandwidth": (self.bandwidth(), self.plotted, facts),
            "roofline": (self.roofline(), self.plotted, facts),
        }
        if self.legal:
            parts["tactic-fields"] = self.fields(), self.neighbours, self.provenance(self.neighbours.source)
            parts["sensitivity"] = self.sensitivity(), self.steps, self.provenance(self.steps.source)
            parts["smem"] = self.smem(), smem_table(self.footprint, self.device), self.modelled()
        return {f"{self.stem}-{name}": parts[name] for name in FIGURES if name in parts}

    def _rivals(self) -> tuple[str, ...]:
        """What is drawn beside the kernel: peers, and the other kernels of ours."""
        return (*PEERS, *(name for name in KERNELS if name != self.kernel))


def tactic_view(
    kernel: str, tactic: Tactic | None, problem: GemmProblem, device: Device, mode: str = "chained",
    data_dir: Path | None = None,
) -> TacticView:  # fmt: skip
    """The view of `tactic` with what was recorded for it under `data_dir` (the repository's data/ by default).

    ValueError on a mode that there is not.
    """
    check_choice("mode", mode, MODES)
    problem = tactic_type(kernel).problem(problem)
    table = recorded(load(data_dir), problem.n, problem.k, device.name, mode)
    return TacticView(kernel, tactic, problem, device, mode, table, used(table, campaigns(data_dir)))
