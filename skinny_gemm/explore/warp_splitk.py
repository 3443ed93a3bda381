"""The warp split-K kernel: one `ldmatrix.x4` lane by lane, and the pipeline of one CTA, stepped through."""

from functools import partial

import ipywidgets as widgets
import pandas as pd

from ..analysis import pipeline as readings
from ..analysis.bank_conflicts import ADDRESSES, ldmatrix_table
from ..figures import pipeline as figures
from ..figures.export import provenance
from ..figures.layout import ldmatrix_view
from ..layouts import swizzle
from ..layouts import warp_splitk as layout
from ..problem import GemmProblem
from ..runtime.trials import Trial
from ..tactics import WarpSplitKTactic
from ..tactics.base import FIRST, TRIGGERS
from .base import Picture, View, ViewExplorer
from .controls import choice, slider, toggles
from .markup import source_of
from .traced import AROUND, GPU, SteppedExplorer, schedules

OUTPUT_TILE, M = 16, 8  #: one CTA, one token tile: the pipeline is along K
MAX_STAGES = 8


class SwizzleExplorer(ViewExplorer):
    """Linked views of one load: address, bank and register of each lane, with and without the swizzle."""

    def __init__(self) -> None:
        self.operand = toggles("operand", [("A, weight", "A"), ("B, tokens", "B")], "A")
        self.swizzled = toggles("swizzle", [("on", True), ("off", False)], True)
        self.k_tile = choice("k_tile", [128, 256], 256, "200px")
        self.warp = slider("warp", 0, layout.COMPUTE_WARPS - 1, 1, "220px")
        self.phase = slider("phase", 0, 3, 0, "220px")
        self.lane = slider("lane", 0, 31, 5, "340px")
        self.bank = choice("bank", [("none", -1), *[(str(b), b) for b in range(32)]], -1, "340px")
        self.picture, self.source = Picture(), widgets.HTML()
        rows = [(self.operand, self.swizzled, self.k_tile), (self.warp, self.phase), (self.lane, self.bank)]
        super().__init__(rows, [self.picture, self.source])

    def draw(self) -> None:
        per_load = 16 if self.operand.value == "A" else 32  # K elements: one k16 phase of A, two of B
        phases = self.k_tile.value // layout.COMPUTE_WARPS // per_load
        with self.quietly():
            self.phase.max = max(phases - 1, 1)
            self.phase.value = min(self.phase.value, phases - 1)
        self.phase.layout.display = "none" if phases == 1 else ""
        super().draw()
        address = ADDRESSES[self.operand.value]
        self.source.value = source_of(address, swizzle.tile_offset if self.swizzled.value else swizzle.plain_offset)

    def views(self) -> list[View]:
        controls = ("operand", "swizzled", "k_tile", "warp", "phase", "lane")
        chosen = {name: getattr(self, name).value for name in controls}
        operand, k_tile, bank = chosen["operand"], chosen["k_tile"], None if self.bank.value < 0 else self.bank.value
        facts = provenance("model", kernel=WarpSplitKTactic.kernel, **chosen, bank=bank)
        order = "swizzled" if chosen["swizzled"] else "rowmajor"
        where = "-".join(f"{name}{facts[name]}" for name in ("warp", "phase", "lane", "bank") if name in facts)
        table = ldmatrix_table(operand, self.warp.value, 0, self.phase.value, k_tile, self.swizzled.value)
        stem = f"ldmatrix-{operand}-{order}-{k_tile}-{where}"
        rows = 16 if operand == "A" else 8  # that one `ldmatrix.x4` covers
        figure = partial(ldmatrix_view, table, k_tile, rows, chosen["lane"], bank)
        return [View(self.picture, stem, figure, table, facts)]


class PipelineExplorer(SteppedExplorer):
    """A real run in the interpreter: ring, loaders and trigger, its schedule, and a cursor from event to event."""

    opcodes, kind = readings.OPCODES, WarpSplitKTactic
    fixed = dict(output_tile=OUTPUT_TILE, token_tile=8)

    def __init__(self) -> None:
        self.k = choice("K", [1024, 2048, 4096], 2048, continuous_update=False)  # each value is a compilation and a run
        self.k_tile = toggles("k_tile", [128, 256], 256)
        self.stages = slider("stages", 2, MAX_STAGES, 3, "260px", continuous_update=False)
        self.b_loader_warps = toggles("b_loader_warps", [1, 2], 1)
        self.trigger = toggles("trigger", [(self.kind.in_words("trigger", place), place) for place in TRIGGERS], FIRST)
        self.schedule = schedules("in_order")
        self.build(["whole run", AROUND])
        ring = self.stages, self.k_tile, self.b_loader_warps, self.k
        rows = [ring, (self.trigger, self.schedule, self.view), self.cursor.row]
        super().__init__(rows, [self.timeline, self.doing])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(M, OUTPUT_TILE, self.k.value)

    def draw(self) -> None:
        with self.quietly():  # a ring has no more stages than there are tiles
            self.stages.max = min(MAX_STAGES, self.k.value // self.k_tile.value)
        super().draw()

    def read(self, run: Trial) -> None:
        regions = self.tactic.footprint(self.problem, GPU).regions
        self.spans, self.phases = readings.ring_spans(run.table, regions), readings.phases(run.table, regions)
        self.roles = readings.roles(self.spans)
        self.cursor.max = int(self.spans.end.max())

    def state(self) -> pd.DataFrame:
        return readings.ring_state(self.spans, self.roles, self.cursor.value)

    def views(self) -> list[View]:
        tactic, time = self.tactic, self.cursor.value
        ring = f"{tactic.k_tile}x{tactic.stages}x{tactic.b_loader_warps}x{tactic.trigger}"
        stem = f"pipeline-{ring}-{self.k.value}-{self.schedule_stem}-{self.moment_stem}"
        timeline = partial(figures.timeline, self.spans, self.phases, self.roles, time, self.window())
        return [View(self.timeline, stem, timeline, self.spans, self.facts(time=time, shown=self.view.value))]
