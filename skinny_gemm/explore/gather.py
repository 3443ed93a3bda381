"""The DSMEM gather of the weight-stationary GEMM: owners, traffic, and the cluster over time."""

from functools import partial

import ipywidgets as widgets
from matplotlib.figure import Figure

from ..analysis import cluster as readings
from ..figures import cluster as figures
from ..layouts import ws_gemm as layout
from ..runtime.trials import Trial
from ..tactics import WsGemmTactic
from .base import View
from .controls import choice, slider, toggles
from .markup import source_of
from .pictures import Picture
from .traced import TracedExplorer, schedules


class GatherExplorer(TracedExplorer):
    """Blocks and their owners, bytes from CTA to CTA, and the cluster over time: a real run in the interpreter."""

    opcodes = readings.OPCODES

    def __init__(self) -> None:
        self.m = choice("M", [1, 8, 16, 20, 32], 20, continuous_update=False)  # each value is a run
        self.rt = toggles("rt", [1, 2], 2)
        self.kq = toggles("kq", [1, 2], 2)
        self.ks = toggles("ks", [2, 4, 8], 4)
        self.block = slider("block", 0, 5, 3)
        self.schedule = schedules("adversarial(1)")
        self.blocks, self.traffic, self.timeline = Picture(), Picture(), Picture()
        self.source = widgets.HTML(source_of(layout.owner, layout.owned_block, layout.part_offset))
        rows = [(self.m, self.rt, self.kq, self.ks), (self.block, self.schedule)]
        super().__init__(rows, [self.blocks, self.traffic, self.timeline, self.source])

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, staged=0, tg=0, ch=2)

    def read(self, run: Trial) -> None:
        t, p = self.tactic, self.problem
        self.parts = readings.owners(p.m, t.rt, t.kq, t.ks)
        self.moved = readings.traffic(run.table, t.ks)
        self.spans = readings.cluster_spans(run.table, t, p)
        self.block.max = int(self.parts.block.max())

    def views(self) -> list[View]:
        stem, block, facts = self.stem, self.block.value, self.facts()
        blocks = partial(figures.gather_view, self.parts, block)
        timeline = partial(figures.gather_timeline, self.spans)
        return [
            View(self.blocks, f"gather-blocks-{stem}-b{block}", blocks, self.parts, self.facts("model", block=block)),
            View(self.traffic, f"gather-traffic-{stem}", self._traffic, self.moved, facts),
            View(self.timeline, f"gather-timeline-{stem}-{self.schedule_stem}", timeline, self.spans, facts),
        ]

    def _traffic(self) -> Figure:
        leader = readings.planned_traffic(self.parts, self.tactic.ks, leader=True)
        return figures.traffic_view(
            {"bytes of sums, from CTA to CTA: the trace": self.moved, "the same with one leader (model)": leader}
        )
