"""The tactic explorer: pick a shape and a tactic, see whether it can run, what it occupies and how fast it was.

Nothing here knows a kernel: the controls are the fields and choices of the tactic type in the registry.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import ipywidgets as widgets
import pandas as pd

from .. import device as devices
from .. import problem as problems
from ..artifact import Resources
from ..bench import records
from ..figures import performance, resources
from ..figures.export import provenance
from ..problem import GemmProblem
from ..tactics import KERNELS, Tactic, tactic_type
from .base import Explorer, Picture, choice, dropdown, rows_layout, slider, toggles

CUSTOM = "custom N, K"
MAX_M = 64  #: of the slider; a kernel that takes fewer tokens says so
FEW = 4  #: choices that are a row of buttons; more are a slider


class Choice(widgets.Box):
    """One tactic field: buttons for a few values, a slider for many. `value` is one of `options`."""

    def __init__(self, name: str, changed):
        self.name, self._changed, self._control = name, changed, None
        super().__init__()

    @property
    def value(self) -> int | None:
        return self._control.value if self._control else None

    @value.setter
    def value(self, value: int) -> None:
        if value not in self.options:
            raise ValueError(f"{self.name} is {value}, but must be one of {', '.join(map(str, self.options))}")
        self._control.value = value

    @property
    def options(self) -> tuple[int, ...]:
        return tuple(self._control.options) if self._control else ()

    def offer(self, options: Sequence[int]) -> None:
        """Offers `options`, keeping the value or taking the nearest; none leaves what was there, disabled."""
        if self._control:
            self._control.disabled = not options
        if not options or tuple(options) == self.options:
            return
        value = options[0] if self.value is None else min(options, key=lambda option: abs(option - self.value))
        make = toggles if len(options) <= FEW else choice
        if isinstance(self._control, widgets.ToggleButtons if make is toggles else widgets.SelectionSlider):
            self._control.unobserve(self._changed, "value")
            self._control.options, self._control.value = options, value
        else:
            self._control = make(self.name, options, value)
            self.children = [self._control]
        self._control.observe(self._changed, "value")


class TacticExplorer(Explorer):
    """Controls for shape, kernel and tactic; legality in words; shared memory, bandwidth against M and roofline.

    `data_dir` holds the recorded campaigns (the repository's data/ by default), `device` is a catalogued name.
    """

    def __init__(self, data_dir: Path | None = None, device: str = "h200"):
        self.records, self.campaigns = records.load(data_dir), records.campaigns(data_dir)
        self.live = self.records[:0]
        self._measured: tuple = (None, None)  # key and table of the last `measured`
        self.shapes = problems.shapes()
        models = list(dict.fromkeys((shape.model, shape.parallel) for shape in self.shapes))
        self.kernel = toggles("kernel", list(KERNELS), next(iter(KERNELS)))
        self.device = dropdown("device", [(devices.get(name).title, name) for name in devices.names()], device)
        self.mode = toggles("launches", list(records.MODES), "chained")
        self.model = dropdown("model", [(" ".join(m), m) for m in models] + [(CUSTOM, None)], models[0])
        self.projection = dropdown("projection", [("", None)], None, "330px")
        self.n = widgets.BoundedIntText(value=16, min=1, max=1 << 24, description="N", layout=_narrow())
        self.k = widgets.BoundedIntText(value=128, min=1, max=1 << 24, description="K", layout=_narrow())
        self.m = slider("M", 1, MAX_M, 8, "420px")
        self.default_button = widgets.Button(description="Default", tooltip="the tactic the heuristics choose")
        self.best_button = widgets.Button(description="Best recorded", tooltip="the fastest recorded tactic")
        self.default_button.on_click(lambda _: self.guard(self.take_default))
        self.best_button.on_click(lambda _: self.guard(self.take_best))
        self.compile_button = widgets.Button(
            description="Compile", tooltip="what the assembler reports for this tactic"
        )
        self.compile_button.on_click(lambda _: self.guard(self.compile))
        self.compiled: dict[tuple, Resources] = {}
        self.tactic_row = widgets.HBox(layout=rows_layout())
        self.fields: dict[str, Choice] = {}
        self.verdict, self.numbers, self.status = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.smem, self.bandwidth, self.roofline = Picture(), Picture(), Picture()
        self._built = None
        for picture in (self.bandwidth, self.roofline):
            picture.layout = widgets.Layout(flex="1 1 440px", min_width="0", max_width="760px")
        charts = widgets.HBox([self.bandwidth, self.roofline], layout=widgets.Layout(flex_flow="row wrap"))
        rows = [
            (self.kernel, self.device, self.mode),
            (self.model, self.projection, self.n, self.k),
            (self.m, self.default_button, self.best_button, self.compile_button),
            (self.tactic_row,),
            (self.verdict,),
        ]
        self._offer_projections("latent_down")
        self.model.observe(lambda _: self.guard(self._offer_projections), "value")
        self.projection.observe(lambda _: self.guard(self._take_projection), "value")
        self._offer_fields()
        self._set(self.kind.default(self.problem, self.gpu))
        watched = [self.kernel, self.device, self.mode, self.n, self.k, self.m]
        super().__init__(rows, [self.smem, self.numbers, charts, self.status], watched)

    @property
    def kind(self) -> type[Tactic]:
        return tactic_type(self.kernel.value)

    @property
    def gpu(self) -> devices.Device:
        return devices.get(self.device.value)

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.m.value, self.n.value, self.k.value)

    @property
    def tactic(self) -> Tactic | None:
        """The tactic that the controls describe; None before there is a legal choice of every field."""
        values = {name: control.value for name, control in self.fields.items()}
        return None if None in values.values() else self.kind(**values)

    @property
    def measured(self) -> pd.DataFrame:
        """What was measured for this weight, device and kind of launch: its newest campaign, and live points."""
        key = self.device.value, self.mode.value, self.n.value, self.k.value, len(self.live)
        if self._measured[0] != key:
            tables = []
            for table, live in ((self.records, False), (self.live, True)):
                table = table[(table.n == self.n.value) & (table.k == self.k.value) & (table.weights == "cold")]
                table = table[(table.device == self.device.value) & (table["mode"] == self.mode.value)]
                if not live and len(table):
                    table = table[table.campaign == table.campaign.iloc[-1]]
                if len(table) or not live:
                    tables.append(table.assign(live=live))
            self._measured = key, performance.measured(pd.concat(tables), self.n.value, self.k.value)
        return self._measured[1]

    @property
    def campaign(self) -> records.Campaign | None:
        """The campaign of the recorded points on screen."""
        table = self.measured
        recorded = table[~table.live]
        return self.campaigns[recorded.campaign.iloc[-1]] if len(recorded) else None

    def take_default(self) -> None:
        """Sets the controls to the heuristics' tactic; ValueError in words if there is none."""
        self._set(self.kind.default(self.problem, self.gpu))
        self.draw()

    def take_best(self) -> None:
        """Sets the controls to the fastest recorded tactic of this problem; ValueError in words if none is recorded."""
        p = self.problem
        row = records.best(p.n, p.k, p.m, self.mode.value, self.device.value, self.kernel.value, frame=self.records)
        self._set(self.kind.parse(row.tactic))
        self.draw()

    def compile(self) -> None:
        """Compiles the tactic, which tells its registers; ValueError in words if it cannot run."""
        from ..runtime import compile_kernel

        tactic, problem, gpu = self.tactic, self.problem, self.gpu
        tactic.check(problem, gpu)
        compiled = compile_kernel(tactic, problem.n, problem.k, gpu.arch)
        self.compiled[tactic, problem.n, problem.k, gpu.arch] = compiled.resources
        self.draw()

    def draw(self) -> None:
        self._offer_fields()
        problem, gpu, tactic = self.problem, self.gpu, self.tactic
        reason = self._why_not(tactic)
        if reason:
            self.verdict.value = f'<b style="color:{_WARNING}">Not possible:</b> {html.escape(reason)}'
            self.smem.clear()
            self.numbers.value = ""
        else:
            footprint = tactic.footprint(problem, gpu)
            self.verdict.value = f"<b>OK:</b> {footprint.describe()}"
            key = tactic, problem, gpu.name
            self.smem.show(key, lambda: resources.smem_map(footprint, gpu), self._provenance("model"))
            self.numbers.value = self._numbers(footprint)
        table = self.measured
        key = self._measured[0], self.kernel.value, tactic, problem.m
        facts = self._provenance("recorded")
        self.bandwidth.show(key, lambda: self._bandwidth(table), facts)
        self.roofline.show(key, lambda: self._roofline(table), facts)
        self.status.value = html.escape(self._status())

    def figures(self):
        facts, table = self._provenance("recorded"), self.measured
        stem = f"{self.kernel.value}-{self.n.value}x{self.k.value}-m{self.m.value}"
        files = {
            f"{stem}-bandwidth": (self._bandwidth(table), table, facts),
            f"{stem}-roofline": (self._roofline(table), table, facts),
        }
        if self._why_not(self.tactic) is None:
            footprint = self.tactic.footprint(self.problem, self.gpu)
            occupied = resources.smem_table(footprint, self.gpu)
            files[f"{stem}-smem"] = (resources.smem_map(footprint, self.gpu), occupied, self._provenance("model"))
        return files

    def _why_not(self, tactic: Tactic | None) -> str | None:
        if tactic is not None:
            return tactic.why_not(self.problem, self.gpu)
        try:
            self.kind.default(self.problem, self.gpu)
        except ValueError as error:
            return str(error)
        return None

    def _numbers(self, footprint) -> str:
        gpu = self.gpu
        known = self.compiled.get((self.tactic, self.n.value, self.k.value, gpu.arch))
        registers = f"{known.registers} per thread, {known.spill_bytes} B spilled" if known else "press Compile"
        facts = {
            "shared memory": f"{footprint.smem_bytes:,} of {gpu.smem_per_cta:,} B per CTA",
            "threads": f"{footprint.threads} per CTA",
            "registers": registers,
            "grid": f"{footprint.ctas} CTAs on {gpu.sms} SMs",
        }
        return " &nbsp;·&nbsp; ".join(f"{name}: <b>{value}</b>" for name, value in facts.items())

    def _bandwidth(self, table: pd.DataFrame):
        ours = table[table.kernel == self.kernel.value]
        missing = "" if len(ours) else f"no recorded data: {self.kernel.value}, {self.n.value}x{self.k.value}"
        return performance.bandwidth(
            table, self.kernel.value, records.PEERS, str(self.tactic), self.m.value, self._bounds(table), missing
        )

    def _roofline(self, table: pd.DataFrame):
        ceilings = self._ceilings()
        memory = {label: ceilings[name] for name, label in _MEMORY.items() if name in ceilings}
        compute = {"BF16 mma": ceilings["bf16_tflops"]} if "bf16_tflops" in ceilings else {}
        return performance.roofline(
            table, self.kernel.value, records.PEERS, str(self.tactic), self.problem, memory, compute
        )

    def _ceilings(self) -> Mapping[str, float]:
        """Those measured with the points on screen, before the catalogue's."""
        campaign = self.campaign
        return {**self.gpu.ceilings, **(campaign.ceilings if campaign else {})}

    def _bounds(self, table: pd.DataFrame) -> dict[str, float]:
        """The horizontal lines of the bandwidth chart, TB/s."""
        ceilings = self._ceilings()
        campaign = self.campaign
        of_campaign = campaign.ceilings if campaign else {}
        lines = {}
        if tbs := ceilings.get("hbm_read_tbs"):
            datasheet = "hbm_read_tbs" not in of_campaign and self.gpu.source.get("hbm_read_tbs") == "datasheet"
            lines[f"HBM {'datasheet' if datasheet else 'read'} {tbs:.3g}"] = tbs
        times = {bound: table.median_us[table.kernel == bound] for bound in records.BOUNDS}
        for bound, us in times.items():
            tbs = self.problem.weight_bytes / us.min() * 1e-6 if len(us) else None
            if tbs and tbs < 1.1 * max(lines.values(), default=0):  # a floor far above the rest would squeeze it
                lines[f"{bound} bound"] = tbs
        return lines

    def _status(self) -> str:
        campaign, gpu = self.campaign, self.gpu
        if campaign is None:
            return (
                f"no recorded data for {self.n.value}x{self.k.value} on {gpu.title} ({self.mode.value} launches): "
                f"the ceilings are the catalogue's; measure with python -m skinny_gemm bench on a GPU"
            )
        dirty = " with uncommitted changes" if campaign.dirty else ""
        return f"recorded  |  {campaign.gpu}  |  campaign {campaign.id}  |  commit {campaign.commit[:8]}{dirty}"

    def _provenance(self, source: str) -> dict:
        """Of what is on screen: "model" for what a tactic occupies, "recorded" for times, if there are any."""
        campaign, p = self.campaign, self.problem
        facts = dict(kernel=self.kernel.value, n=p.n, k=p.k, m=p.m, tactic=str(self.tactic))
        if source == "model" or campaign is None:
            return provenance("model", device=self.gpu.title, **facts)
        commit = campaign.commit[:8] + ("+" if campaign.dirty else "")
        facts |= dict(launches=self.mode.value, campaign=campaign.id, date=campaign.date, command=campaign.command)
        return provenance("recorded", device=campaign.gpu, commit=commit, driver=campaign.driver, **facts)

    def _set(self, tactic: Tactic) -> None:
        with self.quietly():
            self._offer_fields()
            for name, control in self.fields.items():
                control.value = getattr(tactic, name)

    def _offer_fields(self) -> None:
        """One control for each field of the kernel's tactic type, with the values that are legal for this problem."""
        with self.quietly():
            names = [field.name for field in fields(self.kind)]
            if self._built != self.kernel.value:
                self.fields = {name: Choice(name, self._changed) for name in names}
                self.tactic_row.children = list(self.fields.values())
                self._built = self.kernel.value
            try:
                choices = self.kind.choices(self.problem, self.gpu)
            except ValueError:  # no legal tactic; `_why_not` says why
                choices = {name: () for name in names}
            for name, control in self.fields.items():
                control.offer(choices[name])

    def _offer_projections(self, preferred: str | None = None) -> None:
        custom = self.model.value is None
        self.projection.disabled = custom
        self.n.disabled = self.k.disabled = not custom
        if custom:
            return
        mine = [shape for shape in self.shapes if (shape.model, shape.parallel) == self.model.value]
        options = [(f"{shape.projection} {shape.n}x{shape.k}", shape) for shape in mine]
        start = next((shape for shape in mine if shape.projection == preferred), mine[0])
        self.projection.options = options
        self.projection.value = start
        self._take_projection()

    def _take_projection(self) -> None:
        shape = self.projection.value
        if shape is None or (shape.n, shape.k) == (self.n.value, self.k.value):
            return
        with self.quietly():
            self.n.value, self.k.value = shape.n, shape.k
        if self._built:
            self.draw()


_WARNING = "var(--jp-error-color1, #d55e00)"
_MEMORY = {"hbm_read_tbs": "HBM read", "l2_read_tbs": "L2 read"}


def _narrow() -> widgets.Layout:
    return widgets.Layout(width="170px")
