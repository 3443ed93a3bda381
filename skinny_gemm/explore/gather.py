"""The DSMEM gather of the weight-stationary GEMM: owners, traffic, cluster barriers and what breaks without them."""

import ipywidgets as widgets
import pandas as pd

from ..analysis import cluster as readings
from ..figures import gather as figures
from ..figures.cluster import traffic_view
from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from . import cluster
from .base import Picture, choice, slider, source_of, toggles


class GatherExplorer(cluster.ClusterExplorer):
    """Blocks and their owners, bytes from CTA to CTA, and the cluster over time: a real run in the interpreter."""

    opcodes = readings.OPCODES
    N, K = 64, 1024

    def __init__(self):
        self.m = choice("M", [1, 8, 16, 20, 32], 20, "240px")
        self.rt = toggles("rt", [1, 2], 2)
        self.kq = toggles("kq", [1, 2], 2)
        self.ks = toggles("ks", [2, 4, 8], 4)
        self.block = slider("block", 0, 5, 3, "300px")
        self.schedule = choice("schedule", cluster.SCHEDULES, "adversarial(1)", "420px")
        for control in (self.m, self.schedule):
            control.continuous_update = False  # each value is a run
        self.blocks, self.traffic, self.timeline = Picture(), Picture(), Picture()
        self.source = widgets.HTML(source_of(layout.owner, layout.owned_block, layout.part_offset))
        rows = [(self.m, self.rt, self.kq, self.ks), (self.block, self.schedule)]
        super().__init__(rows, [self.blocks, self.traffic, self.timeline, self.source])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.m.value, self.N, self.K)

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, 0, 0, 2)

    @property
    def schedule_name(self) -> str:
        return self.schedule.value

    def read(self, run) -> None:
        t, p = self.tactic, self.problem
        self.parts = readings.owners(p.m, t.rt, t.kq, t.ks)
        self.moved = readings.traffic(run.table, t.ks)
        self.spans = readings.cluster_spans(run.table, t, p)
        self.block.max = int(self.parts.block.max())

    def show(self) -> None:
        geometry = self.tactic, self.problem
        self.blocks.show((geometry, self.block.value), self._blocks, self.facts("model"))
        self.traffic.show(self._ran, self._traffic, self.facts())
        self.timeline.show(self._ran, self._timeline, self.facts())

    def figures(self):
        self.run()
        cut = f"{str(self.tactic).replace(',', 'x')}-m{self.m.value}"
        schedule = self.schedule_name.replace("(", "-").rstrip(")")
        return {
            f"gather-blocks-{cut}-b{self.block.value}": (
                self._blocks(), self.parts, self.facts("model", block=self.block.value)
            ),
            f"gather-traffic-{cut}": (self._traffic(), self.moved, self.facts()),
            f"gather-timeline-{cut}-{schedule}": (self._timeline(), self.spans, self.facts()),
        }  # fmt: skip

    def _blocks(self):
        return figures.gather_view(self.parts, self.block.value)

    def _traffic(self):
        leader = readings.planned_traffic(self.parts, self.tactic.ks, leader=True)
        return traffic_view(
            {"bytes of sums, from CTA to CTA: the trace": self.moved, "the same with one leader (model)": leader}
        )

    def _timeline(self):
        return figures.gather_timeline(self.spans)


def without_barriers(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of the single pass with a cluster barrier weakened or gone: kernel, looked, verdict."""
    from ..runtime import compile_kernel

    tactic.check(problem, cluster.GPU)
    compiled = compile_kernel(tactic, problem, cluster.GPU.arch)
    (arrive, wait), second = cluster.cluster_barriers(compiled)
    kernels = {
        "as compiled": compiled,
        "barrier 1 relaxed": cluster.edited(compiled, {arrive: "barrier.cluster.arrive.relaxed;"}),
        "without barrier 1": cluster.edited(compiled, {arrive: "", wait: ""}),
        "without barrier 2": cluster.edited(compiled, dict.fromkeys(second, "")),
    }
    return cluster.verdicts(kernels, tactic, problem)
