"""The tactic explorer: pick a shape and a tactic, see whether it can run, what it occupies and how fast it was."""

import html
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd

from .. import device as devices
from .. import records
from ..analysis.performance import measured, recorded, used
from ..artifact import Resources
from ..bench.plan import MS
from ..bench.task import Measurement, Task
from ..figures import views
from ..problem import GemmProblem
from ..records import best as tables
from ..runtime import compile_kernel
from ..tactics import Tactic
from . import markup
from .base import Figures, Picture
from .controls import button, toggles
from .problem_controls import TacticControls

SHOWN = ("against M", "against each field", "sensitivity")  #: what the charts show, the last two of a legal tactic


class TacticExplorer(TacticControls):
    """Controls for shape, kernel and tactic; legality in words; shared memory; and charts of one of three kinds.

    `data_dir` holds the recorded campaigns (the repository's data/ by default), `device` is a catalogued name,
    `machine(gpu, shapes, process)` makes the `bench.rig.Rig` with which *Measure live* times the tactic where a GPU is.
    """

    def __init__(self, data_dir: Path | None = None, device: str = devices.REFERENCE, machine: Callable | None = None):
        self.data_dir, self._left_out = data_dir, markup.left_out(data_dir)
        self.records, self.campaigns = records.load(data_dir), records.campaigns(data_dir)
        self._of_weight = lru_cache(maxsize=4)(partial(recorded, self.records))
        self.live = self._table = self.records[:0]
        self.machine = machine or _machine
        self._key: tuple = ()  # of `_table`: N, K, device, mode, process, and how many points were measured live
        self._stop = threading.Event()
        self.mode = toggles("launches", list(records.MODES), "chained")
        self.best_button = self.guarded_button("Best recorded", "the fastest recorded tactic", self.take_best)
        self.compile_button = self.guarded_button("Compile", "what the assembler says of it", self.compile)
        self.live_button = self.guarded_button("Measure live", "time this tactic here and now", self.measure)
        self.cancel_button = button("Cancel", "stop, and keep what was measured", self._stop.set)
        self.progress = widgets.IntProgress(description="measuring")
        self.cancel_button.layout.display = self.progress.layout.display = "none"
        self.live_button.layout.display = "" if devices.current() else "none"
        self.compiled: dict[tuple, Resources] = {}
        self.numbers, self.status = widgets.HTML(), widgets.HTML()
        self.smem, self.bandwidth, self.roofline, self.against_fields, self.sensitivity = (Picture() for _ in range(5))
        for picture in (self.bandwidth, self.roofline):
            picture.layout = widgets.Layout(flex="1 1 440px", min_width="0", max_width="760px")
        self.shown = toggles("charts", SHOWN, SHOWN[0])
        against_m = widgets.HBox([self.bandwidth, self.roofline], layout=widgets.Layout(flex_flow="row wrap"))
        self.charts = dict(zip(SHOWN, (against_m, self.against_fields, self.sensitivity), strict=True))
        sweep = widgets.HBox([self.live_button, self.cancel_button, self.progress])
        self.build(device, "latent_down")
        self.rows[0] += [self.mode, self.process]
        self.rows[2] += [self.best_button, self.compile_button]
        pictures = [self.smem, self.numbers, self.shown, *self.charts.values(), self.status, sweep]
        super().__init__(self.rows, pictures, [*self.watched, self.mode, self.process, self.shown])

    @property
    def view(self) -> views.TacticView:
        """All that is on screen, as data."""
        n, k, device, mode = self._weight
        process = self.process.value
        key = *self._weight, process, len(self.live)
        if self._key != key:
            table = self._of_weight(*self._weight)
            table = table[table.process == process]
            fresh = self.live[(self.live.device == device) & (self.live["mode"] == mode)]
            if len(fresh := fresh[fresh.process == process]):
                live = measured(fresh.assign(live=True), n, k)
                table = pd.concat([table, live]) if len(table) else live
            self._key, self._table = key, table
        campaigns = used(self._table, self.campaigns)
        shown = self.kernel.value, self.tactic, self.problem, self.gpu, mode, self._table, campaigns, process
        return views.TacticView(*shown)

    @property
    def _weight(self) -> tuple[int, int, str, str]:
        """N, K, device and mode on screen."""
        return self.n.value, self.k.value, self.device.value, self.mode.value

    def take_best(self) -> None:
        """Sets the controls to the fastest recorded tactic of this problem; ValueError in words if none is recorded."""
        n, k, device, mode = self._weight
        asked = n, k, self.m.value, mode, device, self.kernel.value, self.data_dir
        best = tables.best(*asked, process=self.process.value)
        self.take(self.kind.parse(best.tactic))
        self.draw()

    def compile(self) -> None:
        """Compiles the tactic, which tells its registers; ValueError in words if it cannot run."""
        tactic, problem, gpu = self.checked(), self.problem, self.gpu
        self.compiled[_binary(tactic, problem, gpu)] = compile_kernel(tactic, problem, gpu.arch).resources
        self.draw()

    def measure(self) -> threading.Thread:
        """Times the tactic here at `MS` and the M on screen, in a thread, which it returns; ValueError if it cannot."""
        gpu = devices.current()
        if gpu is None or gpu.name != self.gpu.name:
            raise ValueError(f"The GPU here is {gpu.title if gpu else 'none'}, but {self.gpu.title} is on screen.")
        tactic, process, (n, k, _, mode) = self.checked(), self.process.value, self._weight
        ms = [m for m in sorted({*MS, self.m.value}) if tactic.why_not(GemmProblem(m, n, k), gpu) is None]
        tasks = [Task.of(tactic.kernel, GemmProblem(m, n, k), tactic, mode, process=process) for m in ms]
        self._stop.clear()
        self.progress.value, self.progress.max = 0, len(tasks)
        self._measuring(True)
        thread = threading.Thread(target=lambda: self.guard(lambda: self._sweep(gpu, tasks)), daemon=True)
        thread.start()
        return thread

    def draw(self) -> None:
        table = self._of_weight(*self._weight)
        ours = table[table.kernel == self.kernel.value]
        self.offer_process((*self._weight, self.kernel.value), ours.itertuples())
        legal, view = self.judge(), self.view
        if legal:
            self.smem.show((legal, view.problem, view.device.name), view.smem, view.modelled())
            self.numbers.value = self._numbers(legal, view.problem, view.device)
        else:
            self.smem.hide()
            self.numbers.value = "&nbsp;"  # a line as high as the numbers
        for name, chart in self.charts.items():
            chart.layout.display = "" if name == self.shown.value else "none"
        key = self._key, view.kernel, view.tactic, view.problem.m
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

    def figures(self) -> Figures:
        return self.view.figures()

    def _numbers(self, tactic: Tactic, problem: GemmProblem, gpu: devices.Device) -> str:
        """What the tactic occupies, in a line."""
        footprint = tactic.footprint(problem, gpu)
        known = self.compiled.get(_binary(tactic, problem, gpu))
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
            first = tasks[0].point
            machine = self.machine(gpu, [(first.n, first.k)], first.process)
            for done, task in enumerate(tasks, 1):
                if self._stop.is_set():
                    return
                row = pd.DataFrame([_row(gpu, task.point, machine.measure(task))], columns=records.COLUMNS)
                self.live = pd.concat([self.live, row]) if len(self.live) else row
                self.progress.value = done
                self.redraw()
        finally:
            self._measuring(False)

    def _measuring(self, on: bool) -> None:
        self.live_button.disabled = on
        self.cancel_button.layout.display = self.progress.layout.display = "" if on else "none"


def _machine(gpu: devices.Device, shapes: list[tuple[int, int]], process: str) -> Any:
    from ..bench.rig import Rig  # which loads the compiler

    return Rig(gpu, shapes, secrets.randbits(32), process)


def _binary(tactic: Tactic, problem: GemmProblem, gpu: devices.Device) -> tuple:
    """What names the binary of a tactic, of its own kernel and problem."""
    return tactic, *tactic.specialisation(problem).items(), gpu.arch


def _row(gpu: devices.Device, point: records.Point, measurement: Measurement) -> dict[str, Any]:
    """One live measurement as a record of no campaign, its times not rounded."""
    samples = measurement.samples_us
    times = {f"{name}_us": us for name, us in asdict(records.interval_of(samples)).items()}
    checked = dict(relative_error=measurement.relative_error, bytes=measurement.bytes)
    return dict(campaign="live", device=gpu.name, samples=len(samples)) | asdict(point) | times | checked
