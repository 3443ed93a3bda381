"""The pipeline of one CTA of the warp split-K kernel, stepped through: a real run in the interpreter, traced."""

from functools import partial

import pandas as pd

from ..analysis import pipeline as readings
from ..figures import pipeline as figures
from ..problem import GemmProblem
from ..runtime.trials import Trial
from ..tactics import WarpSplitKTactic
from .base import View
from .controls import choice, slider, toggles
from .traced import AROUND, GPU, SteppedExplorer, schedules

OUTPUT_TILE, TOKEN_TILE, M = 16, 8, 8  #: one CTA, one token tile: the pipeline is along K
MAX_STAGES = 8


class PipelineExplorer(SteppedExplorer):
    """Stages, k_tile and loaders; the schedule; and a cursor that steps from event to event, forward and back."""

    opcodes = readings.OPCODES

    def __init__(self) -> None:
        self.k = choice("K", [1024, 2048, 4096], 2048, continuous_update=False)  # each value is a compilation and a run
        self.k_tile = toggles("k_tile", [128, 256], 256)
        self.stages = slider("stages", 2, MAX_STAGES, 3, "260px", continuous_update=False)
        self.loaders = toggles("b_loader_warps", [1, 2], 1)
        self.schedule = schedules("in_order")
        self.build(["whole run", AROUND])
        rows = [(self.stages, self.k_tile, self.loaders, self.k), (self.schedule, self.view), self.cursor.row]
        super().__init__(rows, [self.timeline, self.doing])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(M, OUTPUT_TILE, self.k.value)

    @property
    def tactic(self) -> WarpSplitKTactic:
        return WarpSplitKTactic(OUTPUT_TILE, TOKEN_TILE, self.k_tile.value, self.stages.value, self.loaders.value)

    def draw(self) -> None:
        with self.quietly():  # a ring has no more stages than there are tiles
            self.stages.max = min(MAX_STAGES, self.k.value // self.k_tile.value)
        super().draw()

    def read(self, run: Trial) -> None:
        regions = self.tactic.footprint(self.problem, GPU).regions
        self.spans, self.phases = readings.ring_spans(run.table, regions), readings.phases(run.table, regions)
        self.roles = readings.roles(self.spans)
        self.cursor.slider.max = int(self.spans.end.max())

    def state(self) -> pd.DataFrame:
        return readings.ring_state(self.spans, self.roles, self.cursor.value)

    def views(self) -> list[View]:
        tactic, time = self.tactic, self.cursor.value
        ring = f"{tactic.k_tile}x{tactic.stages}x{tactic.b_loader_warps}"
        stem = f"pipeline-{ring}-{self.k.value}-{self.schedule_stem}-t{time}"
        timeline = partial(figures.timeline, self.spans, self.phases, self.roles, time, self.window())
        return [View(self.timeline, stem, timeline, self.spans, self.facts(time=time, shown=self.view.value))]
