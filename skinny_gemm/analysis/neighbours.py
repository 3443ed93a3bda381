"""What one field does: the tactics that differ from the selected one in a single field, recorded and modelled.

A recorded time and a model's never share a line: recorded points are filled, live ones hollow, the model is dotted and
has its error as a band. A change is stated from two records where both exist, otherwise from the model alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..device import Device
from ..figures import style
from ..figures.panel import Panel
from ..problem import GemmProblem
from ..records import model
from ..records.statistics import verdict
from ..tactics import Tactic

NEIGHBOURS = ["control", "value", "tactic", "m", "reason", "source", "median_us", "low_us", "high_us", "tbs", "low_tbs",
              "high_tbs", "campaign"]  # fmt: skip
STEPS = ["control", "before", "after", "tactic", "m", "source", "before_us", "after_us", "change", "verdict", "reason"]
M = "M"  #: the control that is no field
MARGIN = 3  #: impossible values shown on either side of the possible ones
WIDEST = 0.6  #: change of time that a bar shows at most; its number is written in any case


@dataclass(frozen=True)
class Selection:
    """The legal tactic that everything here changes a field of; `table` from `performance.measured`."""

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
    kind, wanted, rows = selection.tactic.kernel, [], []
    measured: dict[tuple[str, int], list] = {}
    mine = selection.table.m.isin(selection.choices[M]) & (selection.table.kernel == kind)
    for row in selection.table[mine].itertuples(index=False):
        measured.setdefault((row.tactic, row.m), []).append(row)
    modelled = model.why_not(kind, selection.mode, selection.device) is None
    for control, values in selection.choices.items():
        for value in values:
            tactic, problem = selection.at(control, value)
            reason = tactic.why_not(problem, selection.device) or ""
            mine = [] if reason else measured.get((str(tactic), problem.m), [])
            for row in mine:
                times = row.median_us, row.low_us, row.high_us, row.tbs, row.low_tbs, row.high_tbs, row.campaign
                rows.append((control, value, str(tactic), problem.m, "", "live" if row.live else "recorded", *times))
            if not reason and modelled:
                wanted.append((control, value, tactic, problem))
            elif not mine:
                rows.append((control, value, str(tactic), problem.m, reason, "", *[np.nan] * 6, ""))
    if wanted:
        tactics, problems = [w[2] for w in wanted], [w[3] for w in wanted]
        times = modelled_times(tactics, problems, selection.device, selection.mode)
        known = times.drop(columns="m").itertuples(index=False)
        rows += [(c, v, str(t), p.m, "", "model", *each, "") for (c, v, t, p), each in zip(wanted, known, strict=True)]
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
    rates = {name: size / ends[time] * 1e-6 for name, time in _RATES.items()}
    return pd.DataFrame({"m": [problem.m for problem in problems], **ends, **rates})


_RATES = {"tbs": "median_us", "low_tbs": "high_us", "high_tbs": "low_us"}


def steps(selection: Selection, table: pd.DataFrame) -> pd.DataFrame:
    """What one step of each control does to the time (`STEPS`), from `neighbours`; `change` is a fraction.

    From records where both ends have one, and then with a verdict; else from the model.
    """
    rows = []
    times = {(r.control, r.value, r.source): r for r in table.itertuples(index=False)}
    reasons = {(r.control, r.value): r.reason for r in table.itertuples(index=False)}
    for control, values in selection.choices.items():
        here = selection.value(control)
        if here not in values:
            continue
        at = values.index(here)
        for there in (values[at - 1 : at] if at else ()), values[at + 1 : at + 2]:
            for value in there:
                tactic, problem = selection.at(control, value)
                row = dict(control=control, before=here, after=value, tactic=str(tactic), m=problem.m, source="")
                row |= dict(
                    before_us=np.nan, after_us=np.nan, change=np.nan, verdict="", reason=reasons[control, value]
                )
                for source in ("recorded", "model"):
                    before, after = times.get((control, here, source)), times.get((control, value, source))
                    if before and after:
                        change = after.median_us / before.median_us - 1
                        row |= dict(source=source, before_us=before.median_us, after_us=after.median_us, change=change)
                        row["verdict"] = str(verdict(after, before)) if source == "recorded" and control != M else ""
                        break
                rows.append(row)
    return pd.DataFrame(rows, columns=STEPS)


# --- figures


def draw_fields(
    selection: Selection, table: pd.DataFrame, ceiling: float | None, theme: style.Theme = style.LIGHT
) -> Figure:
    """Bandwidth against each field, the others as selected: recorded points, the model's line and band.

    `table` from `neighbours`; `ceiling` is a line in TB/s.
    """
    names = [field.name for field in fields(selection.tactic)]
    fig = style.figure(12.6, 5.9, theme)
    all_rows = [row for row in table.itertuples(index=False) if row.control != M]  # tables are slow to walk through
    top = max([1e-3, *(row.tbs for row in all_rows if row.source), *([ceiling] if ceiling else [])]) * 1.08
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if top / s <= 6)
    levels = np.arange(0, top, step)
    for i, name in enumerate(names):
        rows = [row for row in all_rows if row.control == name]
        values = _near_possible(rows)
        place = {value: j for j, value in enumerate(values)}
        left, bottom = 0.55 + (i % 3) * 4.1, 3.6 - (i // 3) * 2.6
        panel = Panel(fig, left, bottom, 3.55, 1.75, theme, x=(-0.5, max(len(values), 2) - 0.5), y=(0, top))
        panel.title(f"{name} = {selection.value(name)}", 7)
        shown = range(0, len(values), -(-len(values) // 12))
        panel.ticks("x", list(shown), [values[j] for j in shown], grid=False)
        panel.ticks("y", levels, [f"{v:g}" for v in levels.round(3)], "TB/s")
        panel.frame()
        if ceiling:
            line = [(panel.x[0], ceiling), (panel.x[1], ceiling)]
            panel.lines([line], theme.muted, linewidths=1.2, linestyles=["--"])
        at = place.get(selection.value(name))
        if at is not None:
            panel.lines([[(at, 0), (at, top)]], theme.faint, linewidths=1.2, linestyles=[(0, (2, 2))])
        impossible = [place[row.value] for row in rows if row.reason and row.value in place]
        if impossible:
            panel.line(impossible, [0.04 * top] * len(impossible), theme.muted, **_IMPOSSIBLE)
        draw_model(panel, _pieces([row for row in rows if row.source == "model"], place), theme)
        for source, color, look in (("recorded", theme.blue, _RECORDED), ("live", theme.ink, LIVE)):
            points = [row for row in rows if row.source == source]
            if points:
                ends = [[(place[row.value], row.low_tbs), (place[row.value], row.high_tbs)] for row in points]
                panel.lines(ends, color, linewidths=1.6)
                panel.line([place[row.value] for row in points], [row.tbs for row in points], color, **look)
    note = Panel(fig, 0.55, 0.4, 11.6, 0.2, theme)
    sources = {row.source for row in all_rows}
    known = {
        "recorded": ("recorded", theme.blue, _RECORDED),
        "live": ("measured live", theme.ink, LIVE),
    }
    entries = [entry for source, entry in known.items() if source in sources]
    if "model" in sources:
        entries.append((model_name(selection), theme.sky, MODEL))
    if any(row.reason for row in all_rows):
        entries.append(("not possible", theme.muted, _IMPOSSIBLE))
    if ceiling:
        entries.append(("HBM ceiling", theme.muted, dict(linestyle="--", linewidth=1.2)))
    for i, (text, color, look) in enumerate(entries):
        x = i * 2.45 / note.width
        spot = [0.0, 0.4] if look["linestyle"] else [0.3]  # inches: a line, or a single mark
        note.line([x + inches / note.width for inches in spot], [0.5] * len(spot), color, clip=False, **look)
        note.note(x + 0.5 / note.width, 0.5, text, ha="left")
    return fig


def model_name(selection: Selection) -> str:
    """What the model's line in a band is called: on a device without records its error is only that of others."""
    scaled = model.is_scaled(selection.tactic.kernel, selection.mode, selection.device)
    return "scaled model, others' error" if scaled else "model and its 90 % error"


def draw_steps(table: pd.DataFrame, error: str, theme: style.Theme = style.LIGHT) -> Figure:
    """What one step of each slider does to the time, from `steps`: a bar per step, filled from records, else outlined.

    `error` says in words how far off the model is.
    """
    rows = list(table.itertuples(index=False))
    height = 3.3  # whatever the number of rows, so that nothing below moves when a slider does
    fig = style.figure(12.6, height + 1.85, theme)
    changes = [abs(row.change) for row in rows if row.source]
    widest = min(WIDEST, max([0.02, *changes])) * 1.05
    panel = Panel(fig, 2.6, 1.25, 4.6, height, theme, x=(-widest, widest), y=(max(len(rows), 1), 0))
    panel.title("one step of each slider: change of time", 8)
    grid = next(s for s in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2) if widest / s <= 4)
    at = np.arange(-int(widest / grid), int(widest / grid) + 1) * grid
    panel.ticks("x", at, [f"{100 * v:+.3g} %" if abs(v) > 1e-9 else "0" for v in at])
    panel.note(0.02, 0, "← faster", theme.muted, ha="left", va="top", offset=(0, -19))
    panel.note(0.98, 0, "slower →", theme.muted, ha="right", va="top", offset=(0, -19))
    said, previous = [], None
    for i, row in enumerate(rows):
        y = i + 0.5
        if row.control != previous and i:
            panel.lines([[(-widest, i), (widest, i)]], theme.grid, linewidths=0.7)
        previous = row.control
        panel.labels([(-widest, y)], [f"{row.control} {row.before} → {row.after}"], ha="right", offset=(-8, 0))
        if row.source:
            length = max(-widest, min(widest, row.change))
            box = (min(0, length), y - 0.3, abs(length), 0.6)
            color = theme.blue if row.source == "recorded" else theme.sky
            if row.source == "recorded":
                panel.boxes([box], color)
            else:
                panel.boxes([box], "none", edgecolor=color, linewidth=1.4, linestyle=":")
            if abs(row.change) > widest:  # the bar goes on
                beyond, side = ("»", "right") if length > 0 else ("«", "left")
                panel.labels([(length, y)], [beyond], ha=side, size=style.TITLE, offset=(-4 if length > 0 else 4, 0))
            source = f"{row.source}, {row.verdict}" if row.verdict else row.source
            text = f"{_percent(row.change)}: {row.before_us:.2f} → {row.after_us:.2f} us ({source})"
        else:
            text = "not possible: " + _short(row.reason) if row.reason else "not recorded, and no model"
        said.append((i, text, theme.ink if row.source == "recorded" else theme.muted))
    for i, text, color in said:
        panel.labels([(widest, i + 0.5)], [text], color, ha="left", offset=(10, 0))
    panel.lines([[(0, 0), (0, len(rows))]], theme.ink, linewidths=0.9)
    foot = "filled: both ends recorded" + (f"; outlined: model, {error}" if error else "")
    panel.note(0, 0, foot, theme.muted, ha="left", va="top", offset=(-175, -36))
    return fig


def draw_model(panel: Panel, pieces: Iterable[np.ndarray], theme: style.Theme) -> None:
    """The model: dotted lines in a pale band; a piece holds rows of x, y, low and high."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    for piece in pieces:
        x, y, low, high = piece.T
        outline = np.concatenate([np.stack([x, low], 1), np.stack([x, high], 1)[::-1]])
        band = PathPatch(Path(outline), facecolor=theme.sky, alpha=0.22, linewidth=0, transform=panel.data, zorder=0.8)
        panel.add(band, clip=True)
        panel.line(x, y, theme.sky, **(MODEL if len(x) > 1 else MODEL | dict(marker="_", markersize=9)))


MODEL = dict(linestyle=":", linewidth=2.6, zorder=2.4)
LIVE = dict(linestyle="", marker="D", markersize=7, markerfacecolor="none", markeredgewidth=1.8, zorder=3.5)
_IMPOSSIBLE = dict(linestyle="", marker="x", markersize=5)
_RECORDED = dict(linestyle="", marker="o", markersize=6, zorder=3)


def _near_possible(rows: Sequence) -> list[int]:
    """A field's values in order, without the long runs of impossible ones on either side of the possible."""
    values = sorted({row.value for row in rows})
    possible = {row.value for row in rows if not row.reason}
    at = [i for i, value in enumerate(values) if value in possible]
    return values[max(0, at[0] - MARGIN) : at[-1] + MARGIN + 1]


def _pieces(rows: Sequence, place: dict[int, int]) -> list[np.ndarray]:
    """Runs of neighbouring values: a line does not cross values that are not possible."""
    points = np.array(sorted((place[row.value], row.tbs, row.low_tbs, row.high_tbs) for row in rows))
    return np.split(points, np.flatnonzero(np.diff(points[:, 0]) > 1) + 1) if len(points) else []


def _percent(change: float) -> str:
    """Signed, in tenths; what rounds to nothing has no sign."""
    return f"{100 * change:+.1f} %" if abs(change) >= 5e-4 else "0.0 %"


def _short(reason: str) -> str:
    """A sentence's beginning, up to what stays readable beside a bar."""
    text = reason.split(": ")[0]
    return text if len(text) <= 62 else text[:60].rsplit(" ", 1)[0] + " …"
