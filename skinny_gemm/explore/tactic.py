"""The tactic explorer: pick a shape and a tactic, see whether it can run, what it occupies and how fast it was."""

import html
import secrets
import threading
from dataclasses import fields
from pathlib import Path

import ipywidgets as widgets
import pandas as pd

from .. import device as devices
from .. import records
from ..analysis.performance import measured, recorded, used
from ..artifact import Resources
from ..bench.task import Task
from ..figures import views
from ..problem import GemmProblem
from ..records import best as tables
from ..tactics import Tactic
from .base import Picture, left_out, toggles
from .controls import TacticControls

SHOWN = ("against M", "against each field", "sensitivity")  #: what the charts show, the last two of a legal tactic
LIVE_MS = (1, 2, 4, 8, 16, 32, 64)  #: measured live, beside the M on screen


class TacticExplorer(TacticControls):
    """Controls for shape, kernel and tactic; legality in words; shared memory; and charts of one of three kinds.

    Bandwidth against M beside the roofline, bandwidth against each field of the tactic, or what one step of each slider
    does. Only what is shown is drawn. Times are recorded, or live, or the model's, and always say which.
    `data_dir` holds the recorded campaigns (the repository's data/ by default), `device` is a catalogued name. Where a
    GPU is, *Measure live* times the tactic on it; `machine(gpu, shapes)` makes the `bench.rig.Rig` for that.
    """

    def __init__(self, data_dir: Path | None = None, device: str = "h200", machine=None):
        self.data_dir = data_dir
        self.records, self.campaigns = records.load(data_dir), records.campaigns(data_dir)
        self._left_out = left_out(data_dir)
        self.live = self.records[:0]
        self.machine = machine or _machine
        self._recorded: tuple = (None, None)  # key and table of what was last drawn
        self._stop = threading.Event()
        self.mode = toggles("launches", list(records.MODES), "chained")
        self.best_button = _button("Best recorded", "the fastest recorded tactic", lambda: self.guard(self.take_best))
        self.compile_button = _button("Compile", "what the assembler says of it", lambda: self.guard(self.compile))
        self.live_button = _button("Measure live", "time this tactic here and now", lambda: self.guard(self.measure))
        self.cancel_button = _button("Cancel", "stop, and keep what was measured", self._stop.set)
        self.progress = widgets.IntProgress(description="measuring")
        self.cancel_button.layout.display = self.progress.layout.display = "none"
        self.live_button.layout.display = "" if devices.current() else "none"
        self.compiled: dict[tuple, Resources] = {}
        self.numbers, self.status = widgets.HTML(), widgets.HTML()
        self.smem, self.bandwidth, self.roofline = Picture(), Picture(), Picture()
        self.against_fields, self.sensitivity = Picture(), Picture()
        for picture in (self.bandwidth, self.roofline):
            picture.layout = widgets.Layout(flex="1 1 440px", min_width="0", max_width="760px")
        self.shown = toggles("charts", SHOWN, SHOWN[0])
        against_m = widgets.HBox([self.bandwidth, self.roofline], layout=widgets.Layout(flex_flow="row wrap"))
        self.charts = dict(zip(SHOWN, (against_m, self.against_fields, self.sensitivity), strict=True))
        sweep = widgets.HBox([self.live_button, self.cancel_button, self.progress])
        self.build(device, "latent_down", [self.mode])
        self.rows[2] += (self.best_button, self.compile_button)
        pictures = [self.smem, self.numbers, self.shown, *self.charts.values(), self.status, sweep]
        super().__init__(self.rows, pictures, [*self.watched, self.mode, self.shown])

    @property
    def view(self) -> views.TacticView:
        """All that is on screen, as data."""
        key = self.n.value, self.k.value, self.device.value, self.mode.value, len(self.live)
        if self._recorded[0] != key:
            table = recorded(self.records, *key[:4])
            fresh = self.live[(self.live.device == self.device.value) & (self.live["mode"] == self.mode.value)]
            if len(fresh):
                mine = measured(fresh.assign(live=True), self.n.value, self.k.value)
                table = pd.concat([table, mine]) if len(table) else mine
            self._recorded = key, table
        table = self._recorded[1]
        campaigns = used(table, self.campaigns)
        return views.TacticView(
            self.kernel.value, self.tactic, self.problem, self.gpu, self.mode.value, table, campaigns
        )

    def take_best(self) -> None:
        """Sets the controls to the fastest recorded tactic of this problem; ValueError in words if none is recorded."""
        p, device, kernel = self.problem, self.device.value, self.kernel.value
        best = tables.best(p.n, p.k, p.m, self.mode.value, device, kernel, self.data_dir)
        self._set(self.kind.parse(best.tactic))
        self.draw()

    def compile(self) -> None:
        """Compiles the tactic, which tells its registers; ValueError in words if it cannot run."""
        from ..runtime import compile_kernel

        tactic, problem, gpu = self.tactic, self.problem, self.gpu
        tactic.check(problem, gpu)
        compiled = compile_kernel(tactic, problem, gpu.arch)
        self.compiled[_binary(tactic, problem, gpu)] = compiled.resources
        self.draw()

    def measure(self) -> threading.Thread:
        """Times the tactic on the GPU here at `LIVE_MS` and the M on screen, in the background; returns the thread.

        ValueError in words without a GPU, on another GPU than the one on screen, or for an illegal tactic.
        """
        here = devices.current()
        if here is None or here.name != self.gpu.name:
            raise ValueError(f"The GPU here is {here.title if here else 'none'}, but {self.gpu.title} is on screen.")
        tactic, n, k, mode = self.tactic, self.n.value, self.k.value, self.mode.value
        tactic.check(self.problem, here)
        ms = [m for m in sorted({*LIVE_MS, self.m.value}) if tactic.why_not(GemmProblem(m, n, k), here) is None]
        tasks = [Task.of(tactic.kernel, GemmProblem(m, n, k), tactic, mode) for m in ms]
        self._stop.clear()
        self._measuring(True, len(tasks))
        thread = threading.Thread(target=lambda: self.guard(lambda: self._sweep(here, tasks)), daemon=True)
        thread.start()
        return thread

    def draw(self) -> None:
        legal, view = self.legality(), self.view
        if legal:
            self.smem.show((view.tactic, view.problem, view.device.name), view.smem, view.modelled())
            self.numbers.value = self._numbers(view)
        else:
            self.smem.hide()
            self.numbers.value = "&nbsp;"  # a line as high as the numbers
        for name, chart in self.charts.items():
            chart.layout.display = "" if name == self.shown.value else "none"
        key = self._recorded[0], view.kernel, view.tactic, view.problem.m
        if self.shown.value == SHOWN[0]:
            facts = view.provenance()
            self.bandwidth.show(key, view.bandwidth, facts)
            self.roofline.show(key, view.roofline, facts)
        elif not legal:
            self.charts[self.shown.value].hide()
        elif self.shown.value == SHOWN[1]:
            self.against_fields.show(key, view.fields, view.provenance(view.neighbours.source))
        else:
            self.sensitivity.show(key, view.sensitivity, view.provenance(view.steps.source))
        self.status.value = html.escape(view.status()) + self._left_out

    def figures(self):
        return self.view.figures()

    def _numbers(self, view: views.TacticView) -> str:
        footprint, gpu = view.tactic.footprint(view.problem, view.device), view.device
        known = self.compiled.get(_binary(view.tactic, view.problem, gpu))
        facts = {
            "shared memory": f"{footprint.smem_bytes:,} of {gpu.smem_per_cta:,} B per CTA",
            "threads": f"{footprint.threads} per CTA",
            "registers": f"{known.registers} per thread, {known.spill_bytes} B spilled" if known else "press Compile",
            "grid": f"{footprint.ctas} CTAs on {gpu.sms} SMs",
        }
        return " &nbsp;·&nbsp; ".join(f"{name}: <b>{value}</b>" for name, value in facts.items())

    def _sweep(self, gpu: devices.Device, tasks: list[Task]) -> None:
        """Measures `tasks` one by one, each drawn as it comes, until done or cancelled."""
        try:
            machine = self.machine(gpu, [(tasks[0].point.n, tasks[0].point.k)])
            for done, task in enumerate(tasks, 1):
                if self._stop.is_set():
                    return
                row = _row(gpu, task.point, machine.measure(task))
                self.live = pd.concat([self.live, row]) if len(self.live) else row
                self.progress.value = done
                self.redraw()
        finally:
            self._measuring(False)

    def _measuring(self, on: bool, points: int = 0) -> None:
        self.live_button.disabled = on
        self.cancel_button.layout.display = self.progress.layout.display = "" if on else "none"
        if on:
            self.progress.value, self.progress.max = 0, points


def _machine(gpu: devices.Device, shapes: list[tuple[int, int]]):
    from ..bench.rig import Rig

    return Rig(gpu, shapes, secrets.randbits(32))


def _binary(tactic: Tactic, problem: GemmProblem, gpu: devices.Device) -> tuple:
    """What names the binary of a tactic, of its own kernel and problem."""
    return tactic, *tactic.specialisation(problem).items(), gpu.arch


def _row(gpu: devices.Device, point: records.Point, measurement) -> pd.DataFrame:
    """One live measurement as a row of records."""
    interval = records.interval_of(measurement.samples_us)
    values = {field.name: getattr(point, field.name) for field in fields(point)} | {
        "campaign": "live",
        "device": gpu.name,
        "median_us": interval.median,
        "low_us": interval.low,
        "high_us": interval.high,
        "samples": len(measurement.samples_us),
        "relative_error": measurement.relative_error,
        "bytes": measurement.bytes,
    }
    return pd.DataFrame([values], columns=records.COLUMNS)


def _button(name: str, tooltip: str, pressed) -> widgets.Button:
    button = widgets.Button(description=name, tooltip=tooltip)
    button.on_click(lambda _: pressed())
    return button
