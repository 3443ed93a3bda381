"""The settle pipeline of the weight-stationary GEMM, stepped through, and the pitch of its x tile."""

from collections.abc import Iterable
from functools import partial

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..analysis import cluster as readings
from ..analysis.bank_conflicts import x_load_table
from ..figures import cluster as figures
from ..figures.export import provenance
from ..figures.layout import x_bank_view
from ..layouts import ws_gemm as layout
from ..runtime.trials import Trial
from ..tactics import WsGemmTactic
from .base import View, ViewExplorer
from .controls import choice, slider, toggles
from .markup import source_of
from .pictures import Picture
from .traced import AROUND, SteppedExplorer, schedules

VIEWS = ("over time", AROUND, "owners and pushes")


class SettleExplorer(SteppedExplorer):
    """Token groups through one cluster: a cursor that steps from event to event, owners, and pushed bytes."""

    opcodes = readings.OPCODES

    def __init__(self) -> None:
        self.m = choice("M", [8, 12, 16, 20, 24, 32], 32, "260px", continuous_update=False)  # each value is a run
        self.tg = toggles("tg", [8, 16], 8)
        self.ks = toggles("ks", [2, 4], 2)
        self.rt = toggles("rt", [1, 2], 2)
        self.kq = toggles("kq", [1, 2], 2)
        self.cta = slider("CTA", 0, 1, 0, "200px")
        self.schedule = schedules("in_order", "400px")
        self.build(VIEWS, "440px")
        self.owners, self.traffic = Picture(), Picture()
        self.source = widgets.HTML(source_of(layout.owner, layout.owned_block, layout.groups, layout.part_offset))
        rows = [
            (self.m, self.tg, self.ks, self.rt, self.kq),
            (self.schedule, self.cta, self.view),
            self.cursor.row,
        ]
        super().__init__(rows, [self.timeline, self.owners, self.traffic, self.doing, self.source])

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, staged=0, tg=self.tg.value, ch=1)

    @property
    def spans_of_cta(self) -> pd.DataFrame:
        """What the warps of the chosen CTA did."""
        return self.spans[self.spans.cta == self.cta.value]

    def moments(self) -> Iterable[int]:
        """When a warp of the chosen CTA begins something."""
        return self.spans_of_cta.start

    def read(self, run: Trial) -> None:
        t, p = self.tactic, self.problem
        self.parts = readings.owners(p.m, t.rt, t.kq, t.ks, t.tg)
        self.spans = readings.cluster_spans(run.table, t, p)
        self.landings = readings.arrivals(run.table, t, p)
        self.moved = readings.traffic(run.table, t.ks)
        self.cta.max, self.cursor.slider.max = t.ks - 1, int(self.spans.end.max())

    def state(self) -> pd.DataFrame:
        return readings.settle_state(self.spans_of_cta, self.cursor.value)

    def draw(self) -> None:
        moving = self.view.value != VIEWS[2]
        for widget in (self.timeline, self.doing):
            widget.layout.display = "" if moving else "none"
        for widget in (self.owners, self.traffic):
            widget.layout.display = "none" if moving else ""
        super().draw()

    def views(self) -> list[View]:
        stem, cta, time = self.stem, self.cta.value, self.cursor.value
        timeline = partial(figures.settle_timeline, self.spans, self.landings, cta, time, self.window())
        owners = partial(figures.owner_view, self.parts, self.rt.value * self.kq.value, cta)
        facts, now = self.facts(), self.facts(cta=cta, time=time, shown=self.view.value)
        return [
            View(self.timeline, f"settle-{stem}-{self.schedule_stem}-cta{cta}-t{time}", timeline, self.spans, now),
            View(self.owners, f"settle-owners-{stem}-cta{cta}", owners, self.parts, self.facts("model")),
            View(self.traffic, f"settle-traffic-{stem}", self._traffic, self.moved, facts),
        ]

    def _traffic(self) -> Figure:
        last = self.parts[self.parts.group == self.parts.group.max()]
        return figures.traffic_view(
            {
                "pushed bytes, from CTA to CTA: the trace": self.moved,
                "of the last group alone (model)": readings.planned_traffic(last, self.tactic.ks),
            }
        )


class PitchExplorer(ViewExplorer):
    """The banks that serve a load of x, for any K and cluster size: layouts only."""

    def __init__(self) -> None:
        self.k = choice("K", [1024, 1536, 2048, 7168], 1024, "260px")
        self.ks = toggles("ks", [2, 4, 8, 16], 2)
        self.verdict, self.picture = widgets.HTML(), Picture()
        self.source = widgets.HTML(source_of(layout.x_pitch, layout.x_offset))
        super().__init__([(self.k, self.ks)], [self.verdict, self.picture, self.source])

    @property
    def k_slice(self) -> int:
        """The K of one CTA."""
        return self.k.value // self.ks.value

    def draw(self) -> None:
        pitch = layout.x_pitch(self.k_slice)
        added = pitch - 2 * self.k_slice
        why = "a multiple of 128" if added else "an odd multiple of 64 by itself"
        self.verdict.value = (
            f"a CTA's slice of a row is {2 * self.k_slice:,} B, {why}: "
            f"<b>{added or 'no'} bytes of padding</b>, {pitch:,} B from row to row"
        )
        super().draw()

    def table(self) -> pd.DataFrame:
        """The load without padding, then with it (`x_load_table`)."""
        tables = [x_load_table(self.k_slice, padded).assign(padded=padded) for padded in (False, True)]
        return pd.concat(tables)

    def views(self) -> list[View]:
        k, ks, k_slice = self.k.value, self.ks.value, self.k_slice
        facts = provenance("model", kernel=WsGemmTactic.kernel, k=k, ks=ks, k_slice=k_slice)
        figure = partial(x_bank_view, k_slice)
        return [View(self.picture, f"x-banks-{k_slice}", figure, self.table, facts)]
