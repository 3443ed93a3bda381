"""The balanced kernels: what waves of equal tiles cost, the ring of each warp, how a cluster adds up its sums, and a
stage as `wgmma` reads it.
"""

from functools import partial

import ipywidgets as widgets
import pandas as pd

from ..analysis import balanced as readings
from ..analysis import cluster
from ..figures import balanced as figures
from ..figures.cluster import traffic_view
from ..figures.export import provenance
from ..layouts import balanced_splitk as layout
from ..layouts import fragments
from ..layouts import wgmma_splitk as wgmma
from ..problem import GemmProblem
from ..runtime.trials import Trial
from ..tactics import BalancedSplitKTactic, WgmmaSplitKTactic
from ..tactics.balanced_splitk import REGISTERS, TOKEN_TILES, VALUES
from ..tactics.base import FIRST
from .base import Picture, View, ViewExplorer, facts_of
from .controls import choice, slider, toggles
from .markup import source_of, verdict
from .traced import AROUND, GPU, SteppedExplorer, schedules

K = 7168  #: that bytes are counted for
M, MAX_STAGES = 8, 4  #: of the rings: they look the same with more tokens
ROW_TILES = 128  #: of the tactic whose stage is shown
OVER_TIME, WHO = "over time", "owners and pushes"


class WavesExplorer(ViewExplorer):
    """The rows that each SM streams of a weight cut into equal tiles, and into balanced ones: layouts only."""

    def __init__(self) -> None:
        self.n = slider("N", 256, 16384, 4608, "560px", step=8)
        self.tile = toggles("equal tile", [16, 32, 64], 32)
        self.sms = slider("SMs", 16, 160, GPU.sms, "340px")
        self.picture, self.source = Picture(), widgets.HTML(source_of(layout.row_range))
        super().__init__([(self.n,), (self.tile, self.sms)], [self.picture, self.source])

    def views(self) -> list[View]:
        n, sms, tile = self.n.value, self.sms.value, self.tile.value
        table = readings.cuts(n, sms, tile)
        facts = provenance("model", kernel=BalancedSplitKTactic.kernel, n=n, k=K, sms=sms, tile=tile)
        return [
            View(self.picture, f"waves-{n}-{tile}-{sms}", partial(figures.shares_view, table, sms, K), table, facts)
        ]


class WarpRingExplorer(SteppedExplorer):
    """A real run of one CTA in the interpreter: the ring of each warp, and a cursor from event to event."""

    N, K = 72, 1024
    opcodes, kind = readings.OPCODES, BalancedSplitKTactic
    fixed = dict(row_tiles=4, cluster=1, token_tile=8)

    def __init__(self) -> None:
        self.warps, self.k_chunk = toggles("warps", [2, 4, 8], 4), toggles("k_chunk", [64, 128], 64)
        self.stages = slider("stages", 1, MAX_STAGES, 2, "260px", continuous_update=False)  # each value is a run
        named = {name: [(self.kind.in_words(name, v), v) for v in VALUES[name]] for name in ("trigger", "x_ring")}
        self.trigger = toggles("trigger", named["trigger"], FIRST)
        self.x_ring = toggles("x_ring", named["x_ring"], REGISTERS)
        self.schedule = schedules("in_order")
        self.build(["whole run", AROUND])
        ring = self.warps, self.k_chunk, self.stages, self.x_ring
        rows = [ring, (self.trigger, self.schedule, self.view), self.cursor.row]
        source = widgets.HTML(source_of(layout.chunk_column, layout.copied, layout.stage_offset, layout.loaded_chunk))
        super().__init__(rows, [self.timeline, self.doing, source])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(M, self.N, self.K)

    def draw(self) -> None:
        with self.quietly():  # a ring has no more stages than its warp has turns
            self.stages.max = min(MAX_STAGES, self.tactic.turns(self.problem))
        super().draw()

    def read(self, run: Trial) -> None:
        self.spans = readings.warp_spans(run.table, self.tactic, self.problem)
        self.cursor.max = int(self.spans.end.max())

    def state(self) -> pd.DataFrame:
        return readings.warp_state(self.spans, self.cursor.value).drop(columns="CTA")

    def views(self) -> list[View]:
        time = self.cursor.value
        stem = f"warp-rings-{self.stem}-{self.schedule_stem}-{self.moment_stem}"
        timeline = partial(figures.ring_timeline, self.spans, self.tactic.stages, time, self.window())
        return [View(self.timeline, stem, timeline, self.spans, self.facts(time=time, shown=self.view.value))]


class ScatterExplorer(SteppedExplorer):
    """The reduce-scatter of a cluster: who adds which fragment, pushed bytes, and every warp over time."""

    N, K = 80, 1024
    opcodes, kind = readings.OPCODES, BalancedSplitKTactic
    fixed = dict(row_tiles=2, k_chunk=64, stages=1, trigger=FIRST, x_ring=REGISTERS)

    def __init__(self) -> None:
        self.token_tile = choice("token_tile", [8, 16, 24, 32], 16, continuous_update=False)  # each value is a run
        self.cluster, self.warps = toggles("cluster", [2, 4], 4), toggles("warps", [2, 4], 4)
        self.fragment = slider("fragment", 0, 5, 3, "260px")
        self.schedule = schedules("adversarial(1)", "400px")
        self.build([OVER_TIME, AROUND, WHO], "440px")
        self.owners, self.traffic = Picture(), Picture()
        self.source = widgets.HTML(source_of(layout.fragment, layout.owner, layout.owned, layout.lane_offset))
        of_tactic = self.token_tile, self.cluster, self.warps
        rows = [of_tactic, (self.schedule, self.fragment, self.view), self.cursor.row]
        super().__init__(rows, [self.timeline, self.owners, self.traffic, self.doing, self.source])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.token_tile.value, self.N, self.K)

    def read(self, run: Trial) -> None:
        t, p = self.tactic, self.problem
        self.parts = readings.owners(t, p)
        self.matrices = {
            "pushed bytes, from CTA to CTA: the trace": cluster.traffic(run.table, t.cluster),
            "if each warp's sums were pushed (model)": cluster.planned_traffic(self.parts, t.cluster),
        }
        self.spans, self.landings = readings.warp_spans(run.table, t, p), readings.arrivals(run.table, t, p)
        self.fragment.max, self.cursor.max = int(self.parts.fragment.max()), int(self.spans.end.max())

    def state(self) -> pd.DataFrame:
        return readings.warp_state(self.spans, self.cursor.value)

    def draw(self) -> None:
        moving, owning = ("none", "") if self.view.value == WHO else ("", "none")
        self.timeline.layout.display = self.doing.layout.display = moving
        self.owners.layout.display = self.traffic.layout.display = owning
        super().draw()

    def views(self) -> list[View]:
        stem, fragment, time = self.stem, self.fragment.value, self.cursor.value
        timeline = partial(figures.cluster_timeline, self.spans, self.landings, time, self.window())
        owners = partial(figures.owner_view, self.parts, fragment)
        traffic, (moved, _) = partial(traffic_view, self.matrices), self.matrices.values()
        now, of_fragment = self.facts(time=time, shown=self.view.value), self.facts("model", fragment=fragment)
        return [
            View(self.timeline, f"scatter-{stem}-{self.schedule_stem}-{self.moment_stem}", timeline, self.spans, now),
            View(self.owners, f"scatter-owners-{stem}-f{fragment}", owners, self.parts, of_fragment),
            View(self.traffic, f"scatter-traffic-{stem}", traffic, moved, self.facts()),
        ]


class WgmmaStageExplorer(ViewExplorer):
    """A stage of wgmma split-K: which chunk lies where, what `wgmma` reads, and which thread has which sums."""

    def __init__(self) -> None:
        self.token_tile, self.rows = choice("token_tile", TOKEN_TILES, 24), slider("rows of the tile", 1, 128, 44)
        self.row, self.step = slider("row", 0, 71, 27, "340px"), slider("k16", 0, 3, 1, "200px")
        self.thread = slider("thread", 0, wgmma.GROUP - 1, 37, "340px")
        self.verdict, self.picture = widgets.HTML(), Picture()
        used = wgmma.atom_offset, wgmma.copied, wgmma.descriptor, wgmma.sum_element, fragments.wgmma_element
        rows = [(self.token_tile, self.rows), (self.row, self.step, self.thread)]
        super().__init__(rows, [self.verdict, self.picture, widgets.HTML(source_of(*used))])

    @property
    def tactic(self) -> WgmmaSplitKTactic:
        return WgmmaSplitKTactic(ROW_TILES, 1, 2, wgmma.ATOM_K, 2, self.token_tile.value)

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.token_tile.value, ROW_TILES * self.rows.value, K)

    def draw(self) -> None:
        t, rows = self.tactic, self.rows.value
        with self.quietly():
            self.row.max = wgmma.stage_rows(rows, t.token_tile) - 1
        size = wgmma.stage_bytes(rows, t.token_tile, t.k_chunk)
        held = f"a stage has {size:,} B, and a thread {wgmma.whole_rows(rows) // 2} registers of sums"
        self.verdict.value = verdict(t.why_not(self.problem, GPU), held)
        super().draw()

    def views(self) -> list[View]:
        tokens, rows = self.token_tile.value, self.rows.value
        lit = {name: getattr(self, name).value for name in ("row", "step", "thread")}
        chunks, sums = readings.stage_chunks(rows, tokens), readings.wgmma_sums(rows, tokens)
        stem = "-".join(["wgmma-stage", f"{tokens}x{rows}", *(f"{name}{value}" for name, value in lit.items())])
        figure = partial(figures.wgmma_view, chunks, sums, **lit)
        return [View(self.picture, stem, figure, chunks, facts_of("model", self.tactic, self.problem, **lit))]
