"""The tactic explorer: pick a shape and a tactic, see whether it can run, what it occupies and how fast it was."""

import html
from collections.abc import Mapping
from pathlib import Path

import ipywidgets as widgets
import pandas as pd

from ..artifact import Resources
from ..bench import records
from ..figures import performance, resources
from ..figures.export import provenance
from .base import Picture, toggles
from .controls import TacticControls

_MEMORY = {"hbm_read_tbs": "HBM read", "l2_read_tbs": "L2 read"}


class TacticExplorer(TacticControls):
    """Controls for shape, kernel and tactic; legality in words; shared memory, bandwidth against M and roofline.

    `data_dir` holds the recorded campaigns (the repository's data/ by default), `device` is a catalogued name.
    """

    def __init__(self, data_dir: Path | None = None, device: str = "h200"):
        self.records, self.campaigns = records.load(data_dir), records.campaigns(data_dir)
        self.live = self.records[:0]
        self._measured: tuple = (None, None)  # key and table of the last `measured`
        self.mode = toggles("launches", list(records.MODES), "chained")
        self.best_button = widgets.Button(description="Best recorded", tooltip="the fastest recorded tactic")
        self.best_button.on_click(lambda _: self.guard(self.take_best))
        self.compile_button = widgets.Button(description="Compile", tooltip="what the assembler says of this tactic")
        self.compile_button.on_click(lambda _: self.guard(self.compile))
        self.compiled: dict[tuple, Resources] = {}
        self.numbers, self.status = widgets.HTML(), widgets.HTML()
        self.smem, self.bandwidth, self.roofline = Picture(), Picture(), Picture()
        for picture in (self.bandwidth, self.roofline):
            picture.layout = widgets.Layout(flex="1 1 440px", min_width="0", max_width="760px")
        charts = widgets.HBox([self.bandwidth, self.roofline], layout=widgets.Layout(flex_flow="row wrap"))
        self.build(device, "latent_down", [self.mode])
        self.rows[2] += (self.best_button, self.compile_button)
        super().__init__(self.rows, [self.smem, self.numbers, charts, self.status], [*self.watched, self.mode])

    @property
    def measured(self) -> pd.DataFrame:
        """What was measured for this weight, device and kind of launch: its newest campaign, and live points."""
        key = self.device.value, self.mode.value, self.n.value, self.k.value, len(self.live)
        if self._measured[0] != key:
            tables = []
            for table, live in ((self.records, False), (self.live, True)):
                table = table[(table.n == self.n.value) & (table.k == self.k.value) & (table.weights == "cold")]
                table = table[(table.device == self.device.value) & (table["mode"] == self.mode.value)]
                if not live and len(table):
                    table = table[table.campaign == table.campaign.iloc[-1]]
                if len(table) or not live:
                    tables.append(table.assign(live=live))
            self._measured = key, performance.measured(pd.concat(tables), self.n.value, self.k.value)
        return self._measured[1]

    @property
    def campaign(self) -> records.Campaign | None:
        """The campaign of the recorded points on screen."""
        table = self.measured
        recorded = table[~table.live]
        return self.campaigns[recorded.campaign.iloc[-1]] if len(recorded) else None

    def take_best(self) -> None:
        """Sets the controls to the fastest recorded tactic of this problem; ValueError in words if none is recorded."""
        p = self.problem
        row = records.best(p.n, p.k, p.m, self.mode.value, self.device.value, self.kernel.value, frame=self.records)
        self._set(self.kind.parse(row.tactic))
        self.draw()

    def compile(self) -> None:
        """Compiles the tactic, which tells its registers; ValueError in words if it cannot run."""
        from ..runtime import compile_kernel

        tactic, problem, gpu = self.tactic, self.problem, self.gpu
        tactic.check(problem, gpu)
        compiled = compile_kernel(tactic, problem.n, problem.k, gpu.arch)
        self.compiled[tactic, problem.n, problem.k, gpu.arch] = compiled.resources
        self.draw()

    def draw(self) -> None:
        legal = self.legality()
        problem, gpu, tactic = self.problem, self.gpu, self.tactic
        if legal:
            footprint = tactic.footprint(problem, gpu)
            key = tactic, problem, gpu.name
            self.smem.show(key, lambda: resources.smem_map(footprint, gpu), self._provenance("model"))
            self.numbers.value = self._numbers(footprint)
        else:
            self.smem.clear()
            self.numbers.value = ""
        table = self.measured
        key = self._measured[0], self.kernel.value, tactic, problem.m
        facts = self._provenance("recorded")
        self.bandwidth.show(key, lambda: self._bandwidth(table), facts)
        self.roofline.show(key, lambda: self._roofline(table), facts)
        self.status.value = html.escape(self._status())

    def figures(self):
        facts, table = self._provenance("recorded"), self.measured
        stem = f"{self.kernel.value}-{self.n.value}x{self.k.value}-m{self.m.value}"
        files = {
            f"{stem}-bandwidth": (self._bandwidth(table), table, facts),
            f"{stem}-roofline": (self._roofline(table), table, facts),
        }
        if self.why_not() is None:
            footprint = self.tactic.footprint(self.problem, self.gpu)
            occupied = resources.smem_table(footprint, self.gpu)
            files[f"{stem}-smem"] = (resources.smem_map(footprint, self.gpu), occupied, self._provenance("model"))
        return files

    def _numbers(self, footprint) -> str:
        gpu = self.gpu
        known = self.compiled.get((self.tactic, self.n.value, self.k.value, gpu.arch))
        registers = f"{known.registers} per thread, {known.spill_bytes} B spilled" if known else "press Compile"
        facts = {
            "shared memory": f"{footprint.smem_bytes:,} of {gpu.smem_per_cta:,} B per CTA",
            "threads": f"{footprint.threads} per CTA",
            "registers": registers,
            "grid": f"{footprint.ctas} CTAs on {gpu.sms} SMs",
        }
        return " &nbsp;·&nbsp; ".join(f"{name}: <b>{value}</b>" for name, value in facts.items())

    def _bandwidth(self, table: pd.DataFrame):
        ours = table[table.kernel == self.kernel.value]
        missing = "" if len(ours) else f"no recorded data: {self.kernel.value}, {self.n.value}x{self.k.value}"
        return performance.bandwidth(
            table, self.kernel.value, records.PEERS, str(self.tactic), self.m.value, self._bounds(table), missing
        )

    def _roofline(self, table: pd.DataFrame):
        ceilings = self._ceilings()
        memory = {label: ceilings[name] for name, label in _MEMORY.items() if name in ceilings}
        compute = {"BF16 mma": ceilings["bf16_tflops"]} if "bf16_tflops" in ceilings else {}
        return performance.roofline(
            table, self.kernel.value, records.PEERS, str(self.tactic), self.problem, memory, compute
        )

    def _ceilings(self) -> Mapping[str, float]:
        """Those measured with the points on screen, before the catalogue's."""
        campaign = self.campaign
        return {**self.gpu.ceilings, **(campaign.ceilings if campaign else {})}

    def _bounds(self, table: pd.DataFrame) -> dict[str, float]:
        """The horizontal lines of the bandwidth chart, TB/s."""
        ceilings = self._ceilings()
        campaign = self.campaign
        of_campaign = campaign.ceilings if campaign else {}
        lines = {}
        if tbs := ceilings.get("hbm_read_tbs"):
            datasheet = "hbm_read_tbs" not in of_campaign and self.gpu.source.get("hbm_read_tbs") == "datasheet"
            lines[f"HBM {'datasheet' if datasheet else 'read'} {tbs:.3g}"] = tbs
        times = {bound: table.median_us[table.kernel == bound] for bound in records.BOUNDS}
        for bound, us in times.items():
            tbs = self.problem.weight_bytes / us.min() * 1e-6 if len(us) else None
            if tbs and tbs < 1.1 * max(lines.values(), default=0):  # a floor far above the rest would squeeze it
                lines[f"{bound} bound"] = tbs
        return lines

    def _status(self) -> str:
        campaign, gpu = self.campaign, self.gpu
        if campaign is None:
            return (
                f"no recorded data for {self.n.value}x{self.k.value} on {gpu.title} ({self.mode.value} launches): "
                f"the ceilings are the catalogue's; measure with python -m skinny_gemm bench on a GPU"
            )
        dirty = " with uncommitted changes" if campaign.dirty else ""
        return f"recorded  |  {campaign.gpu}  |  campaign {campaign.id}  |  commit {campaign.commit[:8]}{dirty}"

    def _provenance(self, source: str) -> dict:
        """Of what is on screen: "model" for what a tactic occupies, "recorded" for times, if there are any."""
        campaign, p = self.campaign, self.problem
        facts = dict(kernel=self.kernel.value, n=p.n, k=p.k, m=p.m, tactic=str(self.tactic))
        if source == "model" or campaign is None:
            return provenance("model", device=self.gpu.title, **facts)
        commit = campaign.commit[:8] + ("+" if campaign.dirty else "")
        facts |= dict(launches=self.mode.value, campaign=campaign.id, date=campaign.date, command=campaign.command)
        return provenance("recorded", device=campaign.gpu, commit=commit, driver=campaign.driver, **facts)
