"""Where the weights of the weight-stationary GEMM wait, how K is permuted, and what a warp does after the wait."""

from functools import partial

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..analysis import stationary as readings
from ..figures import stationary as figures
from ..figures.export import provenance
from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from ..runtime.trials import Trial
from ..tactics import WsGemmTactic
from .base import View, ViewExplorer
from .controls import choice, slider, toggles
from .markup import impossible, possible, source_of
from .pictures import Picture
from .traced import GPU, TracedExplorer

M = 8  #: one token tile: what waits before the previous kernel is done does not depend on M


class WeightStationaryExplorer(ViewExplorer):
    """Layouts only: the K permutation lane by lane, and the weights of a cluster over CTAs, warps and memories."""

    def __init__(self) -> None:
        self.lane = slider("lane", 0, 31, 13, "340px")
        self.block = slider("block", 0, 1, 2, "240px")
        self.k = toggles("K", [1024, 2048, 7168], 2048)
        self.rt = toggles("rt", [1, 2, 4], 2)
        self.kq = toggles("kq", [1, 2, 4], 2)
        self.ks = toggles("ks", [1, 2, 4, 8], 4)
        self.staged = slider("staged", 0, 8, 3, "240px")
        self.cta = slider("CTA", 0, 7, 1, "200px")
        self.warp = slider("warp", 0, 15, 2, "200px")
        self.permutation, self.placement = Picture(), Picture()
        self._fragments = readings.fragment_table()  # the same for every lane and block
        self.verdict, self.source = widgets.HTML(), widgets.HTML()
        rows = [(self.lane, self.block, self.cta, self.warp), (self.rt, self.kq, self.ks, self.staged, self.k)]
        super().__init__(rows, [self.permutation, self.verdict, self.placement, self.source])

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, self.staged.value, 0, 1)

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(M, 16 * self.rt.value, self.k.value)

    @property
    def column(self) -> int:
        """First K of the chosen block of the chosen warp."""
        part = self.cta.value * self.kq.value + self.warp.value % self.kq.value
        return layout.k_column(part, self.block.value, 0, self.tactic.blocks(self.problem))

    def draw(self) -> None:
        blocks = self.tactic.blocks(self.problem)
        with self.quietly():
            self.staged.max, self.block.max = blocks, blocks - 1
            self.cta.max, self.warp.max = self.ks.value - 1, self.rt.value * self.kq.value - 1
        reason = self.tactic.why_not(self.problem, GPU)
        registers, staged = 8 * (blocks - self.staged.value), self.tactic.smem_regions(self.problem)[0][2]
        held = f"{registers} registers of each thread and {staged:,} B of shared memory per CTA hold weights"
        self.verdict.value = impossible(reason) if reason else possible(held)
        super().draw()
        drawn = layout.k_column, layout.load_row, layout.a_words, layout.b_words, layout.k_element, layout.stage_offset
        self.source.value = source_of(*drawn)

    def table(self) -> pd.DataFrame:
        """Where the weights wait (`placement_table`) for what the controls say."""
        t = self.tactic
        return readings.placement_table(t.rt, t.kq, t.ks, t.blocks(self.problem), t.staged)

    def views(self) -> list[View]:
        t, k, lane, column = self.tactic, self.k.value, self.lane.value, self.column
        cta, warp, kernel = self.cta.value, self.warp.value, WsGemmTactic.kernel
        load = provenance("model", kernel=kernel, lane=lane, column=column)
        place = provenance("model", kernel=kernel, tactic=str(t), k=k, cta=cta, warp=warp)
        permutation = partial(figures.permutation_view, self._fragments, lane, column)
        load_stem = f"k-permutation-lane{lane}-k{column}"
        place_stem = f"weight-placement-{k}-{t.rt}x{t.kq}x{t.ks}-staged{t.staged}-cta{cta}-warp{warp}"
        return [
            View(self.permutation, load_stem, permutation, self._fragments, load),
            View(self.placement, place_stem, self._placement, self.table, place),
        ]

    def _placement(self) -> Figure:
        return figures.placement_view(self.table(), self.cta.value, self.warp.value)


class ExposureExplorer(TracedExplorer):
    """One warp of a traced run, before and after the wait for the previous kernel."""

    opcodes = readings.OPCODES

    def __init__(self) -> None:
        late = dict(continuous_update=False)  # each value is a compilation and a run
        self.m = choice("M", [1, 8, 16], 8, "200px", **late)
        self.rt = toggles("rt", [1, 2, 4], 1)
        self.kq = toggles("kq", [1, 2, 4], 2)
        self.ks = toggles("ks", [1, 2, 4], 2)
        self.staged = slider("staged", 0, 8, 2, "240px", **late)
        self.ch = slider("ch", 0, 4, 2, "200px", **late)
        self.warp = slider("warp", 0, 1, 0, "200px")
        self.picture = Picture()
        super().__init__([(self.m, self.rt, self.kq, self.ks), (self.staged, self.ch, self.warp)], [self.picture])

    @property
    def tactic(self) -> WsGemmTactic:
        rt, kq, ks, staged, ch = (getattr(self, name).value for name in ("rt", "kq", "ks", "staged", "ch"))
        return WsGemmTactic(rt, kq, ks, staged, tg=0, ch=ch)

    def draw(self) -> None:
        with self.quietly():
            self.staged.max = self.tactic.blocks(self.problem)
            self.warp.max = self.rt.value * self.kq.value - 1
        super().draw()

    def read(self, run: Trial) -> None:
        self._table, self._ptx = run.table, run.compiled.ptx

    def steps(self) -> pd.DataFrame:
        """The chosen warp's instructions (`warp_steps`)."""
        of_warp = self._table[(self._table.cta == 0) & (self._table.warp == self.warp.value)]
        return readings.warp_steps(of_warp, self._ptx, self.tactic.smem_regions(self.problem))

    def views(self) -> list[View]:
        warp = self.warp.value
        stem, facts = f"exposed-{self.stem}-warp{warp}", self.facts(warp=warp)
        return [View(self.picture, stem, lambda: figures.exposure_view(self.steps()), self.steps, facts)]
