"""The settle pipeline of the weight-stationary GEMM, stepped through; the pitch of its x tile; and what breaks it."""

import ipywidgets as widgets
import pandas as pd

from ..analysis import cluster as readings
from ..analysis.loads import x_load_table
from ..figures import settle as figures
from ..figures.cluster import traffic_view
from ..figures.export import provenance
from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from . import cluster
from .base import Explorer, Picture, choice, slider, source_of, toggles

VIEWS = ("over time", "around the cursor", "owners and pushes")


class SettleExplorer(cluster.ClusterExplorer):
    """Token groups through one cluster: a cursor that steps from event to event, owners, and pushed bytes."""

    opcodes = readings.OPCODES
    N, K = 64, 1024

    def __init__(self):
        self.m = choice("M", [8, 12, 16, 20, 24, 32], 32, "260px")
        self.tg = toggles("tg", [8, 16], 8)
        self.ks = toggles("ks", [2, 4], 2)
        self.rt = toggles("rt", [1, 2], 2)
        self.kq = toggles("kq", [1, 2], 2)
        self.cta = slider("CTA", 0, 1, 0, "200px")
        self.schedule = choice("schedule", cluster.SCHEDULES, "in_order", "400px")
        self.view = toggles("show", VIEWS, VIEWS[0])
        self.time = slider("time", 0, 1, 0, "440px")
        self.back = widgets.Button(description="◀ Back", tooltip="to the event before")
        self.forward = widgets.Button(description="Forward ▶", tooltip="to the next event")
        self.back.on_click(lambda _: self.guard(lambda: self.step(-1)))
        self.forward.on_click(lambda _: self.guard(lambda: self.step(+1)))
        for control in (self.m, self.schedule):
            control.continuous_update = False  # each value is a run
        self.timeline, self.owners, self.traffic = Picture(), Picture(), Picture()
        self.doing = widgets.HTML()
        self.source = widgets.HTML(source_of(layout.owner, layout.owned_block, layout.groups, layout.part_offset))
        rows = [
            (self.m, self.tg, self.ks, self.rt, self.kq),
            (self.schedule, self.cta, self.view),
            (self.time, self.back, self.forward),
        ]
        super().__init__(rows, [self.timeline, self.owners, self.traffic, self.doing, self.source])

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.m.value, self.N, self.K)

    @property
    def tactic(self) -> WsGemmTactic:
        return WsGemmTactic(self.rt.value, self.kq.value, self.ks.value, 0, self.tg.value, 1)

    @property
    def schedule_name(self) -> str:
        return self.schedule.value

    def step(self, direction: int) -> None:
        """Moves the cursor to the next (+1) or previous (-1) moment at which a warp of the CTA begins something."""
        moments = sorted(set(self.spans.start[self.spans.cta == self.cta.value]))
        later = [t for t in moments if t > self.time.value] if direction > 0 else []
        earlier = [t for t in moments if t < self.time.value] if direction < 0 else []
        if later or earlier:
            self.time.value = later[0] if later else earlier[-1]

    def read(self, run) -> None:
        t, p = self.tactic, self.problem
        self.parts = readings.owners(p.m, t.rt, t.kq, t.ks, t.tg)
        self.spans = readings.cluster_spans(run.table, t, p)
        self.landings = readings.arrivals(run.table, t, p)
        self.moved = readings.traffic(run.table, t.ks)
        self.cta.max, self.time.max = t.ks - 1, int(self.spans.end.max())

    def show(self) -> None:
        moving = self.view.value != VIEWS[2]
        for widget in (self.timeline, self.doing):
            widget.layout.display = "" if moving else "none"
        for widget in (self.owners, self.traffic):
            widget.layout.display = "none" if moving else ""
        if moving:
            key = self._ran, self.cta.value, self.time.value, self.view.value
            self.timeline.show(key, self._timeline, self.facts())
            mine = self.spans[self.spans.cta == self.cta.value]
            state = readings.cluster_state(mine, self.time.value, readings.settle_sentence)
            title = f"<b>at time {self.time.value}</b> (line: of the PTX)"
            self.doing.value = title + cluster.rows_of_html(state)
        else:
            self.owners.show((self.tactic, self.problem, self.cta.value), self._owners, self.facts("model"))
            self.traffic.show(self._ran, self._traffic, self.facts())

    def figures(self):
        self.run()
        cut = f"{str(self.tactic).replace(',', 'x')}-m{self.m.value}"
        schedule = self.schedule_name.replace("(", "-").rstrip(")")
        facts = self.facts(cta=self.cta.value, time=self.time.value, shown=self.view.value)
        stem = f"settle-{cut}-{schedule}-cta{self.cta.value}-t{self.time.value}"
        return {
            stem: (self._timeline(), self.spans, facts),
            f"settle-owners-{cut}-cta{self.cta.value}": (self._owners(), self.parts, self.facts("model")),
            f"settle-traffic-{cut}": (self._traffic(), self.moved, self.facts()),
        }

    def _timeline(self):
        window = None
        if self.view.value == VIEWS[1]:
            low = max(0, self.time.value - 60)
            window = low, low + 120
        return figures.settle_timeline(self.spans, self.landings, self.cta.value, self.time.value, window)

    def _owners(self):
        return figures.owner_view(self.parts, self.rt.value * self.kq.value, self.cta.value)

    def _traffic(self):
        last = self.parts[self.parts.group == self.parts.group.max()]
        return traffic_view(
            {
                "pushed bytes, from CTA to CTA: the trace": self.moved,
                "of the last group alone (model)": readings.planned_traffic(last, self.tactic.ks),
            }
        )


class PitchExplorer(Explorer):
    """The banks that serve a load of x, for any K and cluster size: layouts only."""

    def __init__(self):
        self.k = choice("K", [1024, 1536, 2048, 7168], 1024, "260px")
        self.ks = toggles("ks", [2, 4, 8, 16], 2)
        self.verdict, self.picture = widgets.HTML(), Picture()
        self.source = widgets.HTML(source_of(layout.x_pitch, layout.x_offset))
        super().__init__([(self.k, self.ks)], [self.verdict, self.picture, self.source])

    @property
    def k_slice(self) -> int:
        return self.k.value // self.ks.value

    def draw(self) -> None:
        pitch = layout.x_pitch(self.k_slice)
        added = pitch - 2 * self.k_slice
        why = "a multiple of 128" if added else "an odd multiple of 64 by itself"
        self.verdict.value = (
            f"a CTA's slice of a row is {2 * self.k_slice:,} B, {why}: "
            f"<b>{added or 'no'} bytes of padding</b>, {pitch:,} B from row to row"
        )
        self.picture.show(self.k_slice, self._figure, self._facts())

    def figures(self):
        tables = [x_load_table(self.k_slice, padded).assign(padded=padded) for padded in (False, True)]
        return {f"x-banks-{self.k_slice}": (self._figure(), pd.concat(tables), self._facts())}

    def _figure(self):
        return figures.x_bank_view(self.k_slice)

    def _facts(self) -> dict:
        return provenance("model", kernel=WsGemmTactic.kernel, k=self.k.value, ks=self.ks.value, k_slice=self.k_slice)


def broken_settle(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of token groups without what orders them: kernel, looked, verdict."""
    from ..runtime import compile_kernel

    tactic.check(problem, cluster.GPU)
    compiled = compile_kernel(tactic, problem, cluster.GPU.arch)
    lines = dict(enumerate(compiled.ptx.split("\n"), start=1))
    ((arrive, wait),) = cluster.cluster_barriers(compiled)
    waits = {n: line for n, line in lines.items() if ".acquire.cluster" in line}
    narrow = {n: line.replace(".acquire.cluster", ".acquire.cta") for n, line in waits.items()}
    kernels = {
        "as compiled": compiled,
        "without the cluster barrier": cluster.edited(compiled, {arrive: "", wait: ""}),
        "owners wait at CTA scope": cluster.edited(compiled, narrow),
        "owners do not wait": cluster.edited(compiled, dict.fromkeys(waits, "")),
    }
    return cluster.verdicts(kernels, tactic, problem)
