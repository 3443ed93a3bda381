"""Where the weights of the weight-stationary GEMM wait, how K is permuted, and what a warp does after the wait."""

import html

import ipywidgets as widgets

from ..analysis import stationary as readings
from ..figures import stationary as figures
from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from .base import Explorer, Picture, choice, slider, source_of, toggles
from .cluster import GPU, ClusterExplorer, provenance

M = 8  #: one token tile: what waits before the previous kernel is done does not depend on M


class WeightStationaryExplorer(Explorer):
    """Layouts only: the K permutation lane by lane, and the weights of a cluster over CTAs, warps and memories."""

    def __init__(self):
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
        rows = [
            (self.lane, self.block, self.cta, self.warp),
            (self.rt, self.kq, self.ks, self.staged, self.k),
        ]
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
        self.verdict.value = f"<b>Not possible:</b> {html.escape(reason)}" if reason else f"<b>OK:</b> {held}"
        self.permutation.show((self.lane.value, self.column), self._permutation, self._facts())
        key = self.tactic, self.problem, self.cta.value, self.warp.value
        self.placement.show(key, self._placement, self._facts(tactic=str(self.tactic), k=self.k.value))
        drawn = layout.k_column, layout.load_row, layout.a_words, layout.b_words, layout.k_element, layout.stage_offset
        self.source.value = source_of(*drawn)

    def table(self):
        """Where the weights wait (`placement_table`) for what the controls say."""
        t = self.tactic
        return readings.placement_table(t.rt, t.kq, t.ks, t.blocks(self.problem), t.staged)

    def figures(self):
        t, lane, column = self.tactic, self.lane.value, self.column
        where = f"cta{self.cta.value}-warp{self.warp.value}"
        cut = f"{self.k.value}-{t.rt}x{t.kq}x{t.ks}-staged{t.staged}-{where}"
        facts = dict(tactic=str(t), k=self.k.value, cta=self.cta.value, warp=self.warp.value)
        return {
            f"k-permutation-lane{lane}-k{column}": (
                self._permutation(), self._fragments, self._facts(lane=lane, column=column)
            ),
            f"weight-placement-{cut}": (self._placement(), self.table(), self._facts(**facts)),
        }  # fmt: skip

    def _facts(self, **more) -> dict:
        return provenance("model", kernel=WsGemmTactic.kernel, **more)

    def _permutation(self):
        return figures.permutation_view(self._fragments, self.lane.value, self.column)

    def _placement(self):
        return figures.placement_view(self.table(), self.cta.value, self.warp.value)


class ExposureExplorer(ClusterExplorer):
    """One warp of a traced run, before and after the wait for the previous kernel."""

    opcodes = readings.OPCODES
    N, K = 64, 1024

    def __init__(self):
        self.m = choice("M", [1, 8, 16], 8, "200px")
        self.rt = toggles("rt", [1, 2, 4], 1)
        self.kq = toggles("kq", [1, 2, 4], 2)
        self.ks = toggles("ks", [1, 2, 4], 2)
        self.staged = slider("staged", 0, 8, 2, "240px")
        self.ch = slider("ch", 0, 4, 2, "200px")
        self.warp = slider("warp", 0, 1, 0, "200px")
        for control in (self.m, self.staged, self.ch):
            control.continuous_update = False  # each value is a compilation and a run
        self.picture = Picture()
        rows = [(self.m, self.rt, self.kq, self.ks), (self.staged, self.ch, self.warp)]
        super().__init__(rows, [self.picture])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.m.value, self.N, self.K)

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, self.staged.value, 0, self.ch.value)

    def draw(self) -> None:
        with self.quietly():
            self.staged.max = self.tactic.blocks(self.problem)
            self.warp.max = self.rt.value * self.kq.value - 1
        super().draw()

    def read(self, run) -> None:
        self._run = run

    def steps(self):
        """The chosen warp's instructions (`warp_steps`)."""
        table = self._run.table
        mine = table[(table.cta == 0) & (table.warp == self.warp.value)]
        return readings.warp_steps(mine, self._run.compiled.ptx, self.tactic.smem_regions(self.problem))

    def show(self) -> None:
        self.picture.show((self._ran, self.warp.value), self._figure, self.facts())

    def figures(self):
        self.run()
        stem = f"exposed-{str(self.tactic).replace(',', 'x')}-m{self.m.value}-warp{self.warp.value}"
        return {stem: (self._figure(), self.steps(), self.facts(warp=self.warp.value))}

    def _figure(self):
        return figures.exposure_view(self.steps())
