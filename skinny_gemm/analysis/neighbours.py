"""What one field does: the tactics that differ from the selected one in a single field, recorded and modelled.

A change of time is stated from two records where both exist, otherwise from the model alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from ..device import Device
from ..problem import GemmProblem
from ..records import model
from ..records.statistics import verdict
from ..tactics import Tactic
from .performance import RATES, grouped

TIMES = ["median_us", "low_us", "high_us", "tbs", "low_tbs", "high_tbs"]
NEIGHBOURS = ["control", "value", "tactic", "m", "reason", "source", *TIMES, "campaign"]
STEPS = ["control", "before", "after", "tactic", "m", "source", "before_us", "after_us", "change", "verdict", "reason"]
M = "M"  #: the control that is no field


@dataclass(frozen=True)
class Selection:
    """The legal tactic that everything here changes a field of; `table` from `performance.recorded`."""

    tactic: Tactic
    problem: GemmProblem
    device: Device
    mode: str
    table: pd.DataFrame

    def at(self, control: str, value: int) -> tuple[Tactic, GemmProblem]:
        """The selection with one control at another value."""
        if control == M:
            return self.tactic, replace(self.problem, m=value)
        return replace(self.tactic, **{control: value}), self.problem

    @cached_property
    def choices(self) -> dict[str, tuple[int, ...]]:
        """For each control the values to look at: a field's all, of M the steps to either side."""
        m = self.problem.m
        return dict(self.tactic.choices(self.problem, self.device)) | {M: tuple(v for v in (m - 1, m, m + 1) if v)}

    def value(self, control: str) -> int:
        """Where the control stands."""
        return self.problem.m if control == M else getattr(self.tactic, control)


def neighbours(selection: Selection) -> pd.DataFrame:
    """A row for each value of each control and each source of a time for it (`NEIGHBOURS`); one without a time if none.

    `source` is recorded, live, model or "": then `reason` says why that tactic cannot run. Model rows have its 90 %
    error as low and high.
    """
    kernel, device, mode = selection.tactic.kernel, selection.device, selection.mode
    near = selection.table[selection.table.m.isin(selection.choices[M]) & (selection.table.kernel == kernel)]
    measured = grouped(near.itertuples(index=False), "tactic", "m")
    has_model = model.why_not(kernel, mode, device) is None
    rows: list[tuple] = []
    modelled: list[tuple[str, int, Tactic, GemmProblem]] = []
    for control, values in selection.choices.items():
        for value in values:
            tactic, problem = selection.at(control, value)
            reason = tactic.why_not(problem, device) or ""
            timed = [] if reason else measured.get((str(tactic), problem.m), [])
            for row in timed:
                times = [getattr(row, name) for name in TIMES]
                source = "live" if row.live else "recorded"
                rows.append((control, value, str(tactic), problem.m, "", source, *times, row.campaign))
            if has_model and not reason:
                modelled.append((control, value, tactic, problem))
            elif not timed:
                rows.append((control, value, str(tactic), problem.m, reason, "", *[np.nan] * len(TIMES), ""))
    if modelled:
        times = modelled_times([row[2] for row in modelled], [row[3] for row in modelled], device, mode)
        known = times[TIMES].itertuples(index=False)
        rows += [
            (c, v, str(t), p.m, "", "model", *each, "") for (c, v, t, p), each in zip(modelled, known, strict=True)
        ]
    return pd.DataFrame(rows, columns=NEIGHBOURS)


def modelled_times(
    tactics: Iterable[Tactic], problems: Iterable[GemmProblem], device: Device, mode: str
) -> pd.DataFrame:
    """The model's times of legal tactics of one kernel: m, median_us, low_us, high_us, tbs, low_tbs, high_tbs."""
    tactics, problems = list(tactics), list(problems)
    error = model.fit_of(tactics[0].kernel, mode).held_out_p90_error
    us = model.times(tactics, problems, device, mode)
    size = np.array([problem.bytes for problem in problems])
    ends = dict(median_us=us, low_us=us / (1 + error), high_us=us / (1 - error))
    rates = {name: size / ends[time] * 1e-6 for name, time in RATES.items()}
    return pd.DataFrame({"m": [problem.m for problem in problems], **ends, **rates})


def steps(selection: Selection, table: pd.DataFrame) -> pd.DataFrame:
    """What one step of each control does to the time (`STEPS`), from `neighbours`; `change` is a fraction.

    From records where both ends have one, and then with a verdict; else from the model.
    """
    times = {(row.control, row.value, row.source): row for row in table.itertuples(index=False)}
    reasons = {(row.control, row.value): row.reason for row in table.itertuples(index=False)}
    rows = []
    for control, values in selection.choices.items():
        start = selection.value(control)
        if start not in values:
            continue
        at = values.index(start)
        for value in (*(values[at - 1 : at] if at else ()), *values[at + 1 : at + 2]):
            tactic, problem = selection.at(control, value)
            step = dict.fromkeys(STEPS, np.nan) | dict(control=control, before=start, after=value, tactic=str(tactic))
            step |= dict(m=problem.m, source="", verdict="", reason=reasons[control, value])
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


def model_name(selection: Selection) -> str:
    """What the model's line in a band is called: on a device without records its error is only that of others."""
    scaled = model.is_scaled(selection.tactic.kernel, selection.mode, selection.device)
    return "scaled model, others' error" if scaled else "model and its 90 % error"
