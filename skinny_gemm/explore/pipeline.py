"""The pipeline of one CTA of the warp split-K kernel, stepped through: a real run in the interpreter, traced."""

import html

import ipywidgets as widgets

from .. import device as devices
from ..analysis import pipeline as readings
from ..figures import pipeline as figures
from ..figures.export import provenance
from ..problem import GemmProblem
from ..tactics import WarpSplitKTactic
from . import running
from .base import Explorer, Picture, choice, slider, toggles

OUTPUT_TILE, TOKEN_TILE, M = 16, 8, 8  #: one CTA, one token tile: the pipeline is along K
MAX_STAGES = 8
SEEDS = 9  #: of adversarial schedules on offer


class PipelineExplorer(Explorer):
    """Stages, k_tile and loaders; the schedule; and a cursor that steps from event to event, forward and back."""

    def __init__(self):
        self.k = choice("K", [1024, 2048, 4096], 2048, "240px")
        self.k_tile = toggles("k_tile", [128, 256], 256)
        self.stages = slider("stages", 2, MAX_STAGES, 3, "260px")
        self.loaders = toggles("b_loader_warps", [1, 2], 1)
        schedules = ["in_order", *[f"adversarial({seed})" for seed in range(SEEDS)]]
        self.schedule = choice("schedule", schedules, "in_order", "420px")
        self.view = toggles("show", ["whole run", "around the cursor"], "whole run")
        self.time = slider("time", 0, 1, 0, "460px")
        self.back = widgets.Button(description="◀ Back", tooltip="to the event before")
        self.forward = widgets.Button(description="Forward ▶", tooltip="to the next event")
        self.back.on_click(lambda _: self.guard(lambda: self.step(-1)))
        self.forward.on_click(lambda _: self.guard(lambda: self.step(+1)))
        for control in (self.stages, self.schedule, self.k):
            control.continuous_update = False  # each value is a compilation and a run
        self.picture, self.doing = Picture(), widgets.HTML()
        self._shown = None
        rows = [
            (self.stages, self.k_tile, self.loaders, self.k),
            (self.schedule, self.view),
            (self.time, self.back, self.forward),
        ]
        super().__init__(rows, [self.picture, self.doing])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(M, OUTPUT_TILE, self.k.value)

    @property
    def tactic(self) -> WarpSplitKTactic:
        return WarpSplitKTactic(OUTPUT_TILE, TOKEN_TILE, self.k_tile.value, self.stages.value, self.loaders.value)

    def step(self, direction: int) -> None:
        """Moves the cursor to the next (+1) or the previous (-1) moment at which a warp begins something."""
        moments = sorted(set(self.spans.start))
        later = [t for t in moments if t > self.time.value] if direction > 0 else []
        earlier = [t for t in moments if t < self.time.value] if direction < 0 else []
        if later or earlier:
            self.time.value = later[0] if later else earlier[-1]

    def draw(self) -> None:
        with self.quietly():  # a ring has no more stages than there are tiles
            self.stages.max = min(MAX_STAGES, self.k.value // self.k_tile.value)
        try:
            self._run()
        except Exception:  # an earlier run would pass for this one
            self.picture.clear()
            self.doing.value = ""
            raise
        key = self._shown, self.time.value, self.view.value
        self.picture.show(key, self._figure, self._facts)
        self.doing.value = self._table()

    def figures(self):
        self._run()
        t = self.tactic
        schedule = self.schedule.value.replace("(", "-").rstrip(")")
        stem = f"pipeline-{t.k_tile}x{t.stages}x{t.b_loader_warps}-{self.k.value}-{schedule}-t{self.time.value}"
        facts = self._facts | dict(time=self.time.value, shown=self.view.value)
        return {stem: (self._figure(), self.spans, facts)}

    def _run(self) -> None:
        """Runs and reads the trace if what to run has changed."""
        key = self.problem, self.tactic, self.schedule.value
        if key == self._shown:
            return
        gpu = devices.get("h200")
        self.tactic.check(self.problem, gpu)
        run = running.traced(self.tactic, self.problem, gpu.arch, self.schedule.value, readings.OPCODES)
        regions = self.tactic.footprint(self.problem, gpu).regions
        self.spans, self.phases = readings.ring_spans(run.table, regions), readings.phases(run.table, regions)
        self.roles = readings.roles(self.spans)
        p, facts = self.problem, dict(kernel=self.tactic.kernel, tactic=str(self.tactic), schedule=self.schedule.value)
        self._facts = provenance("interpreter", n=p.n, k=p.k, m=p.m, **facts)
        with self.quietly():
            self.time.max = int(self.spans.end.max())
        self._shown = key

    def _figure(self):
        window = None
        if self.view.value != "whole run":
            low = max(0, self.time.value - 60)
            window = low, low + 120
        return figures.timeline(self.spans, self.phases, self.roles, self.time.value, window)

    def _table(self) -> str:
        state = readings.ring_state(self.spans, self.roles, self.time.value)
        head = "".join(f"<th style='text-align:left;padding-right:24px'>{name}</th>" for name in state.columns)
        body = "".join(
            "<tr>" + "".join(f"<td style='padding-right:24px'>{html.escape(str(v))}</td>" for v in row) + "</tr>"
            for row in state.itertuples(index=False)
        )
        return f"<b>at time {self.time.value}</b> (line: of the PTX)<table><tr>{head}</tr>{body}</table>"
