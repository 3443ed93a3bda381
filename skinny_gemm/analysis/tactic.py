"""One tactic on one problem as data: its times, those of its peers and neighbours, the ceilings, where all is from.

A neighbour differs in one control: a field of the tactic, or M. What that does to the time is stated from two records
where both exist, otherwise from the model alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from .. import device as devices
from .. import records
from ..device import Device
from ..problem import GemmProblem
from ..records import model
from ..records.statistics import verdict
from ..tactics import MAX_M, Footprint, Tactic, tactic_type
from .performance import RATES, grouped
from .provenance import commit_of, provenance, state_named

MEMORY = {"hbm_read_tbs": ("HBM", "read"), "l2_read_tbs": ("L2", "read")}  #: ceilings: of what, measured how
COMPUTE = {"bf16_tflops": ("BF16", "mma")}
M = "M"  #: the control that is no field of the tactic
TIMES = ["median_us", "low_us", "high_us", "tbs", "low_tbs", "high_tbs"]
NEIGHBOURS = ["control", "value", "tactic", "m", "reason", "source", *TIMES, "campaign"]
STEPS = ["control", "before", "after", "tactic", "m", "source", "before_us", "after_us", "change", "verdict", "reason"]
BOUND_NAMES = {"stream": "stream bound", "dependency-floor": "dependency floor"}


@dataclass(frozen=True)
class TacticData:
    """`tactic` (None where none is legal) on `problem`; `table` from `performance.recorded`, and any live points.

    All of it is of one state of the process, `process`.
    """

    kernel: str
    tactic: Tactic | None
    problem: GemmProblem
    device: Device
    mode: str
    table: pd.DataFrame
    campaigns: tuple[records.Campaign, ...]  #: of the recorded rows, from `performance.used`
    process: str = "quiet"

    @property
    def stem(self) -> str:
        """What the names of all its files begin with."""
        return f"{self.kernel}-{self.problem.n}x{self.problem.k}-m{self.problem.m}"

    @cached_property
    def campaign(self) -> records.Campaign | None:
        """The campaign of the selected tactic's points, or of most points where it has none; its ceilings are drawn."""
        t = self.table
        names = t.campaign[(t.kernel == self.kernel) & (t.tactic == str(self.tactic)) & ~t.live].value_counts().index
        own = [campaign for campaign in self.campaigns if len(names) and campaign.id == names[0]]
        return next(iter([*own, *self.campaigns]), None)

    @cached_property
    def illegal(self) -> str | None:
        """Why there is no tactic, or why it cannot run the problem; None if it can."""
        if self.tactic is None:
            return tactic_type(self.kernel).unsupported(self.problem, self.device) or "no tactic is selected"
        return self.tactic.why_not(self.problem, self.device)

    @property
    def footprint(self) -> Footprint:
        """What the tactic, which must be legal, occupies."""
        return self.selected.footprint(self.problem, self.device)

    @cached_property
    def fit(self) -> model.Fit | None:
        """The model of the kernel's times in this mode; None without one, as for a tactic that takes no M at all."""
        return None if self.curve is None else self._fit

    @cached_property
    def scaled(self) -> bool:
        """Whether the model was fitted on other devices only."""
        return model.is_scaled(self.kernel, self.mode, self.device, self.process)

    @property
    def fitted_on(self) -> str:
        """The devices that the model was fitted on."""
        return ", ".join(devices.get(name).title for name in self.fit.devices) if self.fit else ""

    @cached_property
    def curve(self) -> pd.DataFrame | None:
        """The model's times of the tactic at every M it takes (m, `TIMES`); None without a model."""
        if self.tactic is None or not self._has_model:
            return None
        every = (replace(self.problem, m=m) for m in range(1, MAX_M + 1))
        problems = [problem for problem in every if self.tactic.why_not(problem, self.device) is None]
        if not problems:
            return None
        return self._modelled([self.tactic] * len(problems), problems)

    @cached_property
    def plotted(self) -> pd.DataFrame:
        """The table and the curve as one, with the source of each row: what the charts against M plot."""
        measured = self.table.assign(source=self.table.live.map({True: "live", False: "recorded"})).drop(columns="live")
        if self.curve is None:
            return measured
        p = self.problem
        facts: dict[str, Any] = dict(kernel=self.kernel, tactic=str(self.tactic), n=p.n, k=p.k, source="model")
        facts |= dict(mode=self.mode, process=self.process)
        curve = self.curve.assign(device=self.device.name, **facts)
        return pd.concat([measured, curve]) if len(measured) else curve

    @property
    def selected(self) -> Tactic:
        """The tactic, legal; ValueError, in a sentence, where it is not."""
        if self.tactic is None or self.illegal:
            raise ValueError(f"There is nothing to compare with, since the tactic selected cannot run: {self.illegal}")
        return self.tactic

    @cached_property
    def choices(self) -> dict[str, tuple[int, ...]]:
        """For each control the values to look at: of a field of the legal tactic all, of M the steps to either side."""
        m = self.problem.m
        return dict(self.selected.choices(self.problem, self.device)) | {M: tuple(v for v in (m - 1, m, m + 1) if v)}

    def value(self, control: str) -> int:
        """Where the control stands."""
        return self.problem.m if control == M else getattr(self.tactic, control)

    def in_words(self, control: str, value: int) -> str:
        """A value of the control for people to read."""
        return tactic_type(self.kernel).in_words(control, value)

    def at(self, control: str, value: int) -> tuple[Tactic, GemmProblem]:
        """The tactic, legal, and its problem with one control at another value."""
        if control == M:
            return self.selected, replace(self.problem, m=value)
        return replace(self.selected, **{control: value}), self.problem

    @cached_property
    def neighbours(self) -> pd.DataFrame:
        """A row (`NEIGHBOURS`) for each value of each control and each source of a time for it, or one without a time.

        `source` is recorded, live, model or "": then `reason` says why that tactic cannot run. Model rows have its 90 %
        error as low and high. ValueError as `selected`.
        """
        near = self.table[self.table.m.isin(self.choices[M]) & (self.table.kernel == self.kernel)]
        measured = grouped(near.itertuples(index=False), "tactic", "m")
        rows: list[tuple] = []
        modelled: list[tuple[str, int, Tactic, GemmProblem]] = []
        for control, values in self.choices.items():
            for value in values:
                tactic, problem = self.at(control, value)
                reason = tactic.why_not(problem, self.device) or ""
                timed = [] if reason else measured.get((str(tactic), problem.m), [])
                for row in timed:
                    times = [getattr(row, name) for name in TIMES]
                    source = "live" if row.live else "recorded"
                    rows.append((control, value, str(tactic), problem.m, "", source, *times, row.campaign))
                if self._has_model and not reason:
                    modelled.append((control, value, tactic, problem))
                elif not timed:
                    rows.append((control, value, str(tactic), problem.m, reason, "", *[np.nan] * len(TIMES), ""))
        if modelled:
            known = self._modelled([row[2] for row in modelled], [row[3] for row in modelled])[TIMES]
            for (control, value, tactic, problem), times in zip(modelled, known.values.tolist(), strict=True):
                rows.append((control, value, str(tactic), problem.m, "", "model", *times, ""))
        return pd.DataFrame(rows, columns=NEIGHBOURS)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """What one step of each control does to the time (`STEPS`), from `neighbours`; `change` is a fraction.

        From records where both ends have one, and then with a verdict; else from the model.
        """
        times = {(row.control, row.value, row.source): row for row in self.neighbours.itertuples(index=False)}
        reasons = {(control, value): row.reason for (control, value, _), row in times.items()}
        rows = []
        for control, values in self.choices.items():
            start = self.value(control)
            if start not in values:
                continue
            at = values.index(start)
            for value in (*values[max(at - 1, 0) : at], *values[at + 1 : at + 2]):
                tactic, problem = self.at(control, value)
                step = dict.fromkeys(STEPS, np.nan) | dict(control=control, before=start, after=value)
                step |= dict(tactic=str(tactic), m=problem.m, source="", verdict="", reason=reasons[control, value])
                for source in ("recorded", "model"):
                    before, after = times.get((control, start, source)), times.get((control, value, source))
                    if before and after:
                        step |= dict(source=source, before_us=before.median_us, after_us=after.median_us)
                        step["change"] = after.median_us / before.median_us - 1
                        if source == "recorded" and control != M:
                            step["verdict"] = str(verdict(after, before))
                        break
                rows.append(step)
        return pd.DataFrame(rows, columns=STEPS)

    @property
    def _has_model(self) -> bool:
        return model.why_not(self.kernel, self.mode, self.device, self.process) is None

    @property
    def _fit(self) -> model.Fit:
        return model.fit_of(self.kernel, self.mode, self.process)

    def _modelled(self, tactics: list[Tactic], problems: list[GemmProblem]) -> pd.DataFrame:
        """The model's times of legal tactics: m, median_us, low_us, high_us, tbs, low_tbs, high_tbs."""
        error = self._fit.held_out_p90_error
        us = model.times(tactics, problems, self.device, self.mode, self.process)
        size = np.array([problem.bytes for problem in problems])
        ends = dict(median_us=us, low_us=us / (1 + error), high_us=us / (1 - error))
        rates = {name: size / ends[time] * 1e-6 for name, time in RATES.items()}
        return pd.DataFrame({"m": [problem.m for problem in problems], **ends, **rates})

    @property
    def ceilings(self) -> Mapping[str, float]:
        """Those measured with the points on screen, before the catalogue's."""
        return {**self.device.ceilings, **self._measured_ceilings}

    @cached_property
    def _measured_ceilings(self) -> Mapping[str, float]:
        """Those of the first campaign that measured any, the selected tactic's before the others."""
        campaigns = [self.campaign, *self.campaigns] if self.campaign else []
        return next((campaign.ceilings for campaign in campaigns if campaign.ceilings), {})

    def _is_datasheet(self, name: str) -> bool:
        return name not in self._measured_ceilings and self.device.source.get(name) == "datasheet"

    def _named(self, names: Mapping[str, tuple[str, str]]) -> dict[str, float]:
        """The ceilings of these names that are known, by label: `HBM read` where measured, else `HBM datasheet`."""
        known = {name: label for name, label in names.items() if name in self.ceilings}
        labels = {name: (what, "datasheet" if self._is_datasheet(name) else how) for name, (what, how) in known.items()}
        return {" ".join(label): self.ceilings[name] for name, label in labels.items()}

    def roofs(self) -> tuple[dict[str, float], dict[str, float]]:
        """The ceilings of the roofline: label to TB/s of memory, and label to TFLOP/s of arithmetic."""
        return self._named(MEMORY), self._named(COMPUTE)

    def limits(self) -> dict[str, float]:
        """The horizontal lines of the bandwidth chart, TB/s: the HBM ceiling and the bounds of this weight."""
        hbm = "hbm_read_tbs"
        how = "" if self._is_datasheet(hbm) else " (isolated)"  # chained streams overlap their tails
        lines = {f"{name} {tbs:.3g}{how}": tbs for name, tbs in self._named({hbm: MEMORY[hbm]}).items()}
        for bound in records.BOUNDS:
            times = self.table.median_us[self.table.kernel == bound]
            tbs = self.problem.weight_bytes / times.min() * 1e-6 if len(times) else None
            if tbs and tbs < 1.1 * max(lines.values(), default=0):  # a bound far above the rest would squeeze it
                lines[BOUND_NAMES[bound]] = tbs
        return lines

    def modelled(self) -> dict[str, Any]:
        """Provenance of what was computed: shared memory."""
        return provenance("model", device=self.device.title, **self._facts())

    def provenance(self, sources: Iterable[str] | None = None) -> dict[str, Any]:
        """Provenance of the times: recorded, live or, without any, the model's; `model` says what its curve is.

        `sources`: those of the times in a figure, by default of all that charts against M plot.
        """
        if sources is None:
            curve = [] if self.curve is None else ["model"]
            sources = ["live" if live else "recorded" for live in self.table.live] + curve
        sources = list(sources)
        live = sources.count("live")
        facts = self._facts() | dict(launches=self.mode, process=state_named(self.process), live_points=live or None)
        if "model" in sources:
            facts["model"] = self._fit.describe()
            if self.scaled:
                facts["model"] += f"; scaled to {self.device.title}"
        campaign = self.campaign if "recorded" in sources else None
        if campaign is None:
            return provenance("live" if live else "model", device=self.device.title, **facts)
        facts |= dict(campaign=campaign.id, date=campaign.date, command=campaign.command, driver=campaign.driver)
        facts["campaigns"] = {each.id: commit_of(each) for each in self.campaigns}
        return provenance("recorded", device=campaign.gpu, commit=commit_of(campaign), **facts)

    def _facts(self) -> dict[str, Any]:
        p = self.problem
        return dict(kernel=self.kernel, n=p.n, k=p.k, m=p.m, tactic=str(self.tactic) if self.tactic else None)

    def status(self) -> str:
        """One line for people: where the times on screen come from."""
        live = int(self.table.live.sum())
        also = f"  |  hollow points: {live} measured live on this machine" if live else ""
        if self.fit:
            scaled = f", scaled from {self.fitted_on} by the ceilings and there" if self.scaled else ","
            also += f"  |  dotted: model{scaled} {self.fit.describe()}"
        p, first = self.problem, self.campaign
        state = ", busy process" * (self.process == "busy")
        if first is None:
            bench = f"bench {self.kernel} --n {p.n} --k {p.k}" + " --modes exposed" * (self.mode == "exposed")
            bench += " --processes busy" * (self.process == "busy")
            possible = tactic_type(self.kernel).unsupported(GemmProblem(1, p.n, p.k), self.device) is None
            record = f"; on a GPU, record some with python -m skinny_gemm {bench}" if possible else ""
            missing = f"no recorded data for {p.n}x{p.k} on {self.device.title} ({self.mode} launches{state})"
            return f"{missing}: the ceilings are the catalogue's{record}{also}"
        campaigns = sorted(self.campaigns, key=lambda each: each is not first)
        dirty = {each.id: " with uncommitted changes" * each.dirty for each in campaigns}
        named = (f"campaign {each.id}  |  commit {each.commit[:8]}{dirty[each.id]}" for each in campaigns)
        return f"recorded{state}  |  {first.gpu}  |  {'  and  '.join(named)}{also}"


def smem_table(footprint: Footprint, device: Device) -> pd.DataFrame:
    """One row per region of every CTA that fits on an SM, and what is free: cta, region, start in the SM, bytes."""
    rows, start = [], 0
    for cta in range(footprint.ctas_per_sm):
        rows.append((cta, "reserved", start, device.smem_reserved_per_cta))
        start += device.smem_reserved_per_cta
        rows += [(cta, name, start + offset, size) for name, offset, size in footprint.regions]
        start += footprint.smem_bytes
    rows.append((-1, "free", start, max(device.smem_per_sm - start, 0)))
    return pd.DataFrame(rows, columns=["cta", "region", "start", "bytes"])
