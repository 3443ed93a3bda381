"""One tactic on one problem: every figure of it, with its data and provenance, for explorers, scripts and the shell.

view = tactic_view("warp-splitk", tactic, GemmProblem(8, 3584, 7168), device.get("h200"))
for stem, parts in view.figures().items():
    export(*parts, folder / stem)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from .. import device as devices
from .. import records
from ..analysis import neighbours
from ..device import Device
from ..problem import GemmProblem
from ..records import model
from ..tactics import KERNELS, MAX_M, Tactic, tactic_type
from . import performance, resources
from .export import provenance

_MEMORY = {"hbm_read_tbs": ("HBM", "read"), "l2_read_tbs": ("L2", "read")}  #: ceilings: of what, measured how
_COMPUTE = {"bf16_tflops": ("BF16", "mma")}
FIGURES = ("bandwidth", "roofline", "tactic-fields", "sensitivity", "smem")  #: by the end of their files' names
_BOUNDS = {"stream": "stream bound", "dependency-floor": "dependency floor"}


def recorded(table: pd.DataFrame, n: int, k: int, device: str, mode: str) -> pd.DataFrame:
    """What was measured of weights `[n, k]` on `device`, cold, each point from the newest campaign that has it."""
    table = table[(table.n == n) & (table.k == k) & (table.weights == "cold")]
    table = table[(table.device == device) & (table["mode"] == mode)]
    newest = table.drop_duplicates(["kernel", "tactic", "m"], keep="last")
    return performance.measured(newest.assign(live=False), n, k)


def used(table: pd.DataFrame, campaigns: Mapping[str, records.Campaign]) -> tuple[records.Campaign, ...]:
    """The campaigns that `table`'s recorded rows come from, the one with most of them first."""
    return tuple(campaigns[name] for name in table.campaign[~table.live].value_counts().index)


def commit_of(campaign: records.Campaign) -> str:
    """Its commit, shortened; "+" marks uncommitted changes."""
    return campaign.commit[:8] + ("+" if campaign.dirty else "")


@dataclass(frozen=True)
class TacticView:
    """`tactic` (None where none is legal) on `problem`, and `table`: from `recorded`, any live points appended."""

    kernel: str
    tactic: Tactic | None
    problem: GemmProblem
    device: Device
    mode: str
    table: pd.DataFrame
    campaigns: tuple[records.Campaign, ...]  #: of the recorded rows, from `used`

    @cached_property
    def campaign(self) -> records.Campaign | None:
        """The campaign of the selected tactic's points, or of most points where it has none; its ceilings are drawn."""
        t = self.table
        names = t.campaign[(t.kernel == self.kernel) & (t.tactic == str(self.tactic)) & ~t.live].value_counts().index
        mine = [campaign for campaign in self.campaigns if len(names) and campaign.id == names[0]]
        return next(iter([*mine, *self.campaigns]), None)

    def smem(self) -> Figure:
        """Shared memory of an SM; the tactic must be legal."""
        return resources.smem_map(self.tactic.footprint(self.problem, self.device), self.device)

    @property
    def stem(self) -> str:
        """What the names of all its files begin with."""
        return f"{self.kernel}-{self.problem.n}x{self.problem.k}-m{self.problem.m}"

    @cached_property
    def legal(self) -> bool:
        """Whether there is a tactic and it can run the problem."""
        return self.tactic is not None and self.tactic.why_not(self.problem, self.device) is None

    @cached_property
    def curve(self) -> pd.DataFrame | None:
        """The model's times of the tactic at every M it takes, as `neighbours.modelled_times`; None without a model."""
        if self.tactic is None or model.why_not(self.kernel, self.mode, self.device):
            return None
        problems = [replace(self.problem, m=m) for m in range(1, MAX_M + 1)]
        problems = [p for p in problems if self.tactic.why_not(p, self.device) is None]
        if not problems:
            return None
        return neighbours.modelled_times([self.tactic] * len(problems), problems, self.device, self.mode)

    @cached_property
    def selection(self) -> neighbours.Selection:
        """The tactic, legal, as the figures of its neighbours take it; ValueError, in a sentence, where it is not."""
        if not self.legal:
            unsupported = tactic_type(self.kernel).unsupported(self.problem, self.device)
            reason = unsupported if self.tactic is None else self.tactic.why_not(self.problem, self.device)
            raise ValueError(f"There is nothing to compare with, since the tactic selected cannot run: {reason}")
        return neighbours.Selection(self.tactic, self.problem, self.device, self.mode, self.table)

    @cached_property
    def neighbours(self) -> pd.DataFrame:
        """Every tactic that differs in one field, see `neighbours.neighbours`; the tactic must be legal."""
        return neighbours.neighbours(self.selection)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """What one step of each control does, see `neighbours.steps`; the tactic must be legal."""
        return neighbours.steps(self.selection, self.neighbours)

    def bandwidth(self) -> Figure:
        """Bandwidth against M."""
        p, ours = self.problem, (self.table.kernel == self.kernel).any()
        missing = "" if ours else f"no recorded data: {self.kernel}, {p.n}x{p.k}"
        arguments = self.table, self.kernel, self._rivals(), str(self.tactic), p.m, self.limits(), missing
        title = "bytes over exposed time, TB/s" if self.mode == "exposed" else "bandwidth, TB/s"
        return performance.bandwidth(*arguments, title=title, curve=self.curve, curve_name=self._curve_name())

    def roofline(self) -> Figure:
        """Roofline, the problem's intensity marked."""
        arguments = self.table, self.kernel, self._rivals(), str(self.tactic), self.problem, *self.roofs()
        title = "roofline over exposed time, TFLOP/s" if self.mode == "exposed" else "roofline, TFLOP/s"
        return performance.roofline(*arguments, title=title, curve=self.curve)

    def fields(self) -> Figure:
        """Bandwidth against each field of the tactic, which must be legal."""
        return neighbours.draw_fields(self.selection, self.neighbours, self._ceilings().get("hbm_read_tbs"))

    def sensitivity(self) -> Figure:
        """What one step of each slider does to the time; the tactic must be legal."""
        error = ""
        if self.curve is not None:
            fit = model.fit_of(self.kernel, self.mode)
            error = f"90 % of whose times were within {100 * fit.held_out_p90_error:.0f} % on {self._fitted_on()}"
        return neighbours.draw_steps(self.steps, error)

    def figures(self) -> dict[str, tuple[Figure, pd.DataFrame, dict]]:
        """File stem to (figure, plotted data, provenance); those of a tactic only if it is legal. Ends as `FIGURES`."""
        measured = self.table.assign(source=self.table.live.map({True: "live", False: "recorded"}))
        plotted = measured.drop(columns="live")
        if self.curve is not None:
            p = self.problem
            facts = dict(kernel=self.kernel, tactic=str(self.tactic), mode=self.mode, n=p.n, k=p.k, source="model")
            curve = self.curve.assign(device=self.device.name, **facts)
            plotted = pd.concat([plotted, curve]) if len(plotted) else curve
        facts = self.provenance()
        parts = {"bandwidth": (self.bandwidth(), plotted, facts), "roofline": (self.roofline(), plotted, facts)}
        if self.legal:
            compared = self.provenance(self.neighbours.source)
            parts["tactic-fields"] = self.fields(), self.neighbours, compared
            parts["sensitivity"] = self.sensitivity(), self.steps, self.provenance(self.steps.source)
            occupied = resources.smem_table(self.tactic.footprint(self.problem, self.device), self.device)
            parts["smem"] = self.smem(), occupied, self.modelled()
        return {f"{self.stem}-{name}": parts[name] for name in FIGURES if name in parts}

    def modelled(self) -> dict:
        """Provenance of what was computed: shared memory."""
        return provenance("model", device=self.device.title, **self._facts())

    def provenance(self, sources: Iterable[str] | None = None) -> dict:
        """Provenance of the times: recorded, live or, without any, the model's; `model` says what its curve is.

        `sources`: those of the times in a figure, by default of the whole table and the curve.
        """
        if sources is None:
            sources = ["live" if each else "recorded" for each in self.table.live] + ["model"] * (
                self.curve is not None
            )
        sources = list(sources)
        live = sources.count("live")
        facts = self._facts() | dict(launches=self.mode, live_points=live or None)
        if "model" in sources:
            facts["model"] = model.fit_of(self.kernel, self.mode).describe()
            if self._scaled():
                facts["model"] += f"; scaled to {self.device.title}"
        campaign = self.campaign if "recorded" in sources else None
        if campaign is None:
            return provenance("live" if live else "model", device=self.device.title, **facts)
        facts |= dict(campaign=campaign.id, date=campaign.date, command=campaign.command)
        facts["campaigns"] = {each.id: commit_of(each) for each in self.campaigns}
        return provenance("recorded", device=campaign.gpu, commit=commit_of(campaign), driver=campaign.driver, **facts)

    def status(self) -> str:
        """One line for people: where the times on screen come from."""
        live = int(self.table.live.sum())
        also = f"  |  hollow points: {live} measured live on this machine" if live else ""
        c = self.campaign
        if c is None:
            p = self.problem
            bench = f"bench {self.kernel} --n {p.n} --k {p.k}" + " --modes exposed" * (self.mode == "exposed")
            record = f"; on a GPU, record some with python -m skinny_gemm {bench}"
            return (
                f"no recorded data for {p.n}x{p.k} on {self.device.title} ({self.mode} launches): the ceilings are the "
                f"catalogue's{record if self._possible() else ''}{also}{self._about_model()}"
            )
        named = [
            f"campaign {each.id}  |  commit {each.commit[:8]}{' with uncommitted changes' if each.dirty else ''}"
            for each in (c, *(each for each in self.campaigns if each is not c))
        ]
        return f"recorded  |  {c.gpu}  |  {'  and  '.join(named)}{also}{self._about_model()}"

    def _about_model(self) -> str:
        """What the dotted line is."""
        if self.curve is None:
            return ""
        fit = model.fit_of(self.kernel, self.mode)
        scaled = f", scaled from {self._fitted_on()} by the ceilings and there" if self._scaled() else ","
        return f"  |  dotted: model{scaled} {fit.describe()}"

    def _scaled(self) -> bool:
        """Whether the model was fitted on other devices only."""
        return model.is_scaled(self.kernel, self.mode, self.device)

    def _fitted_on(self) -> str:
        """The devices that the model was fitted on."""
        return ", ".join(devices.get(name).title for name in model.fit_of(self.kernel, self.mode).devices)

    def _curve_name(self) -> str:
        """What the model's curve is called, with its error where that is known: on devices of the fit."""
        if self.curve is None or self._scaled():
            return "scaled model"
        return f"model, 90 % ±{100 * model.fit_of(self.kernel, self.mode).held_out_p90_error:.0f} %"

    def _possible(self) -> bool:
        """Whether some tactic takes the weight, be it for one token."""
        one = GemmProblem(1, self.problem.n, self.problem.k)
        return tactic_type(self.kernel).unsupported(one, self.device) is None

    def _rivals(self) -> tuple[str, ...]:
        """What is drawn beside the kernel: peers, and the other kernels of ours."""
        return (*records.PEERS, *(name for name in KERNELS if name != self.kernel))

    def _facts(self) -> dict:
        p = self.problem
        return dict(kernel=self.kernel, n=p.n, k=p.k, m=p.m, tactic=str(self.tactic) if self.tactic else None)

    def _ceilings(self) -> Mapping[str, float]:
        """Those measured with the points on screen, before the catalogue's."""
        return {**self.device.ceilings, **self._measured_ceilings()}

    def _measured_ceilings(self) -> Mapping[str, float]:
        """Those of the first campaign that measured any, the selected tactic's before the others."""
        some = [self.campaign, *self.campaigns] if self.campaign else []
        return next((campaign.ceilings for campaign in some if campaign.ceilings), {})

    def _datasheet(self, name: str) -> bool:
        """Whether that ceiling was not measured, but is the datasheet's."""
        return name not in self._measured_ceilings() and self.device.source.get(name) == "datasheet"

    def _ceiling(self, name: str) -> str:
        """What a ceiling is called: `HBM read` where it was measured, else `HBM datasheet`."""
        what, how = (_MEMORY | _COMPUTE)[name]
        return f"{what} {'datasheet' if self._datasheet(name) else how}"

    def roofs(self) -> tuple[dict[str, float], dict[str, float]]:
        """The ceilings of the roofline: label to TB/s of memory, and label to TFLOP/s of arithmetic."""
        ceilings = self._ceilings()
        memory = {self._ceiling(name): ceilings[name] for name in _MEMORY if name in ceilings}
        return memory, {self._ceiling(name): ceilings[name] for name in _COMPUTE if name in ceilings}

    def limits(self) -> dict[str, float]:
        """The horizontal lines of the bandwidth chart, TB/s: the HBM ceiling and the bounds of this weight."""
        lines = {}
        if tbs := self._ceilings().get("hbm_read_tbs"):
            how = "" if self._datasheet("hbm_read_tbs") else " (isolated)"  # chained streams overlap their tails
            lines[f"{self._ceiling('hbm_read_tbs')} {tbs:.3g}{how}"] = tbs
        for bound in records.BOUNDS:
            times = self.table.median_us[self.table.kernel == bound]
            tbs = self.problem.weight_bytes / times.min() * 1e-6 if len(times) else None
            if tbs and tbs < 1.1 * max(lines.values(), default=0):  # a bound far above the rest would squeeze it
                lines[_BOUNDS[bound]] = tbs
        return lines


def tactic_view(
    kernel: str,
    tactic: Tactic,
    problem: GemmProblem,
    device: Device,
    mode: str = "chained",
    data_dir: Path | None = None,
) -> TacticView:
    """The view of `tactic` with what was recorded for it under `data_dir` (the repository's data/ by default)."""
    if mode not in records.MODES:
        raise ValueError(f"mode is {mode!r}, but must be one of {', '.join(records.MODES)}")
    problem = tactic_type(kernel).problem(problem)
    table = recorded(records.load(data_dir), problem.n, problem.k, device.name, mode)
    return TacticView(kernel, tactic, problem, device, mode, table, used(table, records.campaigns(data_dir)))
