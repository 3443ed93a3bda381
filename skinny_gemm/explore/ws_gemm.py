"""The weight-stationary GEMM: where its weights wait and what is exposed; gather and token groups in its cluster; x."""

from functools import partial

import ipywidgets as widgets
import pandas as pd

from ..analysis import cluster, stationary
from ..analysis.bank_conflicts import x_load_table
from ..figures.cluster import gather_timeline, gather_view, owner_view, settle_timeline, traffic_view
from ..figures.export import provenance
from ..figures.layout import x_bank_view
from ..figures.stationary import exposure_view, permutation_view, placement_view
from ..layouts import fragments
from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from ..runtime.trials import Trial
from ..tactics import WsGemmTactic
from .base import Picture, View, ViewExplorer
from .controls import choice, slider, toggles
from .markup import source_of, verdict
from .traced import AROUND, GPU, SteppedExplorer, TracedExplorer, schedules


class WeightStationaryExplorer(ViewExplorer):
    """Layouts only: the K permutation lane by lane, and the weights of a cluster over CTAs, warps and memories."""

    def __init__(self) -> None:
        self.lane, self.block = slider("lane", 0, 31, 13, "340px"), slider("block", 0, 1, 2, "240px")
        self.k = toggles("K", [1024, 2048, 7168], 2048)
        self.rt, self.kq = toggles("rt", [1, 2, 4], 2), toggles("kq", [1, 2, 4], 2)
        self.ks, self.staged = toggles("ks", [1, 2, 4, 8], 4), slider("staged", 0, 8, 3, "240px")
        self.cta, self.warp = slider("CTA", 0, 7, 1, "200px"), slider("warp", 0, 15, 2, "200px")
        self.permutation, self.placement = Picture(), Picture()
        self._fragments = stationary.fragment_table()  # the same for every lane and block
        self.verdict, self.source = widgets.HTML(), widgets.HTML()
        rows = [(self.lane, self.block, self.cta, self.warp), (self.rt, self.kq, self.ks, self.staged, self.k)]
        super().__init__(rows, [self.permutation, self.verdict, self.placement, self.source])

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, self.staged.value, 0, 1)

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(8, 16 * self.rt.value, self.k.value)  # where weights wait does not depend on M

    def draw(self) -> None:
        blocks = self.tactic.blocks(self.problem)
        with self.quietly():
            self.staged.max, self.block.max = blocks, blocks - 1
            self.cta.max, self.warp.max = self.ks.value - 1, self.rt.value * self.kq.value - 1
        registers, staged = 8 * (blocks - self.staged.value), self.tactic.smem_regions(self.problem)[0][2]
        held = f"{registers} registers of each thread and {staged:,} B of shared memory per CTA hold weights"
        self.verdict.value = verdict(self.tactic.why_not(self.problem, GPU), held)
        super().draw()
        permutation = fragments.load_row, fragments.a_words, fragments.b_words, fragments.k_element
        self.source.value = source_of(layout.k_column, *permutation, layout.stage_offset)

    def views(self) -> list[View]:
        t, k, lane, cta, warp = self.tactic, self.k.value, self.lane.value, self.cta.value, self.warp.value
        part, blocks = cta * t.kq + warp % t.kq, t.blocks(self.problem)
        column = layout.k_column(part, self.block.value, 0, blocks)  # the first K of the chosen block
        load = provenance("model", kernel=t.kernel, lane=lane, column=column)
        place = provenance("model", kernel=t.kernel, tactic=str(t), k=k, cta=cta, warp=warp)
        permutation = partial(permutation_view, self._fragments, lane, column)
        table = stationary.placement_table(t.rt, t.kq, t.ks, blocks, t.staged)
        stem = f"weight-placement-{k}-{t.rt}x{t.kq}x{t.ks}-staged{t.staged}-cta{cta}-warp{warp}"
        return [
            View(self.permutation, f"k-permutation-lane{lane}-k{column}", permutation, self._fragments, load),
            View(self.placement, stem, partial(placement_view, table, cta, warp), table, place),
        ]


class ExposureExplorer(TracedExplorer):
    """One warp of a traced run, before and after the wait for the previous kernel."""

    opcodes, fixed = stationary.OPCODES, dict(tg=0)

    def __init__(self) -> None:
        late = dict(continuous_update=False)  # each value is a compilation and a run
        self.m = choice("M", [1, 8, 16], 8, "200px", **late)
        self.rt, self.kq = toggles("rt", [1, 2, 4], 1), toggles("kq", [1, 2, 4], 2)
        self.ks, self.staged = toggles("ks", [1, 2, 4], 2), slider("staged", 0, 8, 2, "240px", **late)
        self.ch = slider("ch", 0, 4, 2, "200px", **late)
        self.warp = slider("warp", 0, 1, 0, "200px")
        self.schedule = schedules("in_order")  # not shown: what a warp does is the same in any order
        self.picture = Picture()
        super().__init__([(self.m, self.rt, self.kq, self.ks), (self.staged, self.ch, self.warp)], [self.picture])

    def draw(self) -> None:
        with self.quietly():
            self.staged.max = self.tactic.blocks(self.problem)
            self.warp.max = self.rt.value * self.kq.value - 1
        super().draw()

    def read(self, run: Trial) -> None:
        self._table, self._ptx = run.table[run.table.cta == 0], run.compiled.ptx

    def views(self) -> list[View]:
        warp = self.warp.value
        of_warp, regions = self._table[self._table.warp == warp], self.tactic.smem_regions(self.problem)
        steps = stationary.warp_steps(of_warp, self._ptx, regions)
        figure = partial(exposure_view, steps)
        return [View(self.picture, f"exposed-{self.stem}-warp{warp}", figure, steps, self.facts(warp=warp))]


class GatherExplorer(TracedExplorer):
    """Blocks and their owners, bytes from CTA to CTA, and the cluster over time: a real run in the interpreter."""

    opcodes, fixed = cluster.OPCODES, dict(staged=0, tg=0, ch=2)

    def __init__(self) -> None:
        self.m = choice("M", [1, 8, 16, 20, 32], 20, continuous_update=False)  # each value is a run
        self.rt, self.kq = toggles("rt", [1, 2], 2), toggles("kq", [1, 2], 2)
        self.ks = toggles("ks", [2, 4, 8], 4)
        self.block = slider("block", 0, 5, 3)
        self.schedule = schedules("adversarial(1)")
        self.blocks, self.traffic, self.timeline = Picture(), Picture(), Picture()
        self.source = widgets.HTML(source_of(layout.owner, layout.owned_block, layout.part_offset))
        rows = [(self.m, self.rt, self.kq, self.ks), (self.block, self.schedule)]
        super().__init__(rows, [self.blocks, self.traffic, self.timeline, self.source])

    def read(self, run: Trial) -> None:
        t, p = self.tactic, self.problem
        self.parts = cluster.owners(p.m, t.rt, t.kq, t.ks)
        self.matrices = {
            "bytes of sums, from CTA to CTA: the trace": cluster.traffic(run.table, t.ks),
            "the same with one leader (model)": cluster.planned_traffic(self.parts, t.ks, leader=True),
        }
        self.spans = cluster.cluster_spans(run.table, t, p)
        self.block.max = int(self.parts.block.max())

    def views(self) -> list[View]:
        stem, block, facts = self.stem, self.block.value, self.facts()
        blocks = partial(gather_view, self.parts, block)
        traffic, (moved, _) = partial(traffic_view, self.matrices), self.matrices.values()
        timeline = partial(gather_timeline, self.spans)
        return [
            View(self.blocks, f"gather-blocks-{stem}-b{block}", blocks, self.parts, self.facts("model", block=block)),
            View(self.traffic, f"gather-traffic-{stem}", traffic, moved, facts),
            View(self.timeline, f"gather-timeline-{stem}-{self.schedule_stem}", timeline, self.spans, facts),
        ]


class SettleExplorer(SteppedExplorer):
    """Token groups through one cluster: a cursor that steps from event to event, owners, and pushed bytes."""

    opcodes, fixed = cluster.OPCODES, dict(staged=0, ch=1)

    def __init__(self) -> None:
        self.m = choice("M", [8, 12, 16, 20, 24, 32], 32, "260px", continuous_update=False)  # each value is a run
        self.tg, self.ks = toggles("tg", [8, 16], 8), toggles("ks", [2, 4], 2)
        self.rt, self.kq = toggles("rt", [1, 2], 2), toggles("kq", [1, 2], 2)
        self.cta = slider("CTA", 0, 1, 0, "200px")
        self.schedule = schedules("in_order", "400px")
        self.build(["over time", AROUND, "owners and pushes"], "440px")
        self.owners, self.traffic = Picture(), Picture()
        self.source = widgets.HTML(source_of(layout.owner, layout.owned_block, layout.groups, layout.part_offset))
        of_tactic = self.m, self.tg, self.ks, self.rt, self.kq
        rows = [of_tactic, (self.schedule, self.cta, self.view), self.cursor.row]
        super().__init__(rows, [self.timeline, self.owners, self.traffic, self.doing, self.source])

    def stepped(self) -> pd.DataFrame:
        return self.spans[self.spans.cta == self.cta.value]

    def read(self, run: Trial) -> None:
        t, p = self.tactic, self.problem
        self.parts = cluster.owners(p.m, t.rt, t.kq, t.ks, t.tg)
        last = self.parts[self.parts.group == self.parts.group.max()]
        self.matrices = {
            "pushed bytes, from CTA to CTA: the trace": cluster.traffic(run.table, t.ks),
            "of the last group alone (model)": cluster.planned_traffic(last, t.ks),
        }
        self.spans, self.landings = cluster.cluster_spans(run.table, t, p), cluster.arrivals(run.table, t, p)
        self.cta.max, self.cursor.max = t.ks - 1, int(self.spans.end.max())

    def state(self) -> pd.DataFrame:
        return cluster.settle_state(self.stepped(), self.cursor.value)

    def draw(self) -> None:
        moving, owning = ("none", "") if self.view.value == "owners and pushes" else ("", "none")
        self.timeline.layout.display = self.doing.layout.display = moving
        self.owners.layout.display = self.traffic.layout.display = owning
        super().draw()

    def views(self) -> list[View]:
        stem, cta, time = self.stem, self.cta.value, self.cursor.value
        timeline = partial(settle_timeline, self.spans, self.landings, cta, time, self.window())
        owners = partial(owner_view, self.parts, self.rt.value * self.kq.value, cta)
        traffic, (moved, _) = partial(traffic_view, self.matrices), self.matrices.values()
        now = self.facts(cta=cta, time=time, shown=self.view.value)
        moment = f"settle-{stem}-{self.schedule_stem}-cta{cta}-{self.moment_stem}"
        return [
            View(self.timeline, moment, timeline, self.spans, now),
            View(self.owners, f"settle-owners-{stem}-cta{cta}", owners, self.parts, self.facts("model")),
            View(self.traffic, f"settle-traffic-{stem}", traffic, moved, self.facts()),
        ]


class PitchExplorer(ViewExplorer):
    """The banks that serve a load of x, for any K and cluster size: layouts only."""

    def __init__(self) -> None:
        self.k = choice("K", [1024, 1536, 2048, 7168], 1024, "260px")
        self.ks = toggles("ks", [2, 4, 8, 16], 2)
        self.verdict, self.picture = widgets.HTML(), Picture()
        self.source = widgets.HTML(source_of(layout.x_pitch, layout.x_offset))
        super().__init__([(self.k, self.ks)], [self.verdict, self.picture, self.source])

    def draw(self) -> None:
        row = 2 * self.k.value // self.ks.value  # bytes of x that one CTA has of a token
        pitch = layout.x_pitch(row // 2)
        added = pitch - row
        why = "a multiple of 128" if added else "an odd multiple of 64 by itself"
        padding = f"<b>{added or 'no'} bytes of padding</b>, {pitch:,} B from row to row"
        self.verdict.value = f"a CTA's slice of a row is {row:,} B, {why}: {padding}"
        super().draw()

    def views(self) -> list[View]:
        k, ks = self.k.value, self.ks.value
        k_slice = k // ks
        facts = provenance("model", kernel=WsGemmTactic.kernel, k=k, ks=ks, k_slice=k_slice)
        tables = [x_load_table(k_slice, padded).assign(padded=padded) for padded in (False, True)]
        figure = partial(x_bank_view, k_slice)
        return [View(self.picture, f"x-banks-{k_slice}", figure, pd.concat(tables), facts)]
