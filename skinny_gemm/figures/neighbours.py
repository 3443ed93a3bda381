"""What one field does, drawn: bandwidth against each field of a tactic, and what one step of each slider does.

Recorded points are filled, live ones hollow, the model is dotted and has its error as a band; they share no line.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..analysis.performance import grouped
from ..analysis.tactic import M, TacticData
from . import style
from .charts import LIVE, MODEL, draw_model
from .panel import Panel, tick_step
from .style import LIGHT

MARGIN = 3  #: impossible values shown on either side of the possible ones
WIDEST = 0.6  #: change of time that a bar shows at most; its number is written in any case
_IMPOSSIBLE: dict[str, Any] = dict(linestyle="", marker="x", markersize=5)
_RECORDED: dict[str, Any] = dict(linestyle="", marker="o", markersize=6, zorder=3)
_CEILING: dict[str, Any] = dict(linestyle="--", linewidth=1.2)


def draw_fields(data: TacticData) -> Figure:
    """Bandwidth against each field of a legal tactic: recorded points, the model's line and band, the HBM ceiling."""
    all_rows = [row for row in data.neighbours.itertuples(index=False) if row.control != M]  # tables are slow to walk
    ceiling = data.ceilings.get("hbm_read_tbs")
    fig = style.figure(12.6, 5.9)
    top = max([1e-3, *(row.tbs for row in all_rows if row.source), *([ceiling] if ceiling else [])]) * 1.08
    by_control = grouped(all_rows, "control")
    for i, name in enumerate(name for name in data.choices if name != M):
        rows = by_control[name]
        values = _near_possible(rows)
        place = {value: j for j, value in enumerate(values)}
        left, bottom = 0.55 + (i % 3) * 4.1, 3.6 - (i // 3) * 2.6
        panel = Panel(fig, left, bottom, 3.55, 1.75, (-0.5, max(len(values), 2) - 0.5), (0, top))
        panel.title(f"{name} = {data.value(name)}", 7)
        shown = range(0, len(values), -(-len(values) // 12))
        panel.ticks("x", list(shown), [values[j] for j in shown], grid=False)
        panel.level_ticks(6, "TB/s")
        panel.frame()
        if ceiling:
            ends = [(panel.x[0], ceiling), (panel.x[1], ceiling)]
            panel.lines([ends], LIGHT.muted, linewidths=1.2, linestyles=["--"])
        if data.value(name) in place:
            panel.mark(place[data.value(name)])
        impossible = [place[row.value] for row in rows if row.reason and row.value in place]
        if impossible:
            panel.line(impossible, [0.04 * top] * len(impossible), LIGHT.muted, **_IMPOSSIBLE)
        draw_model(panel, _pieces([row for row in rows if row.source == "model"], place))
        for source, color, look in (("recorded", LIGHT.blue, _RECORDED), ("live", LIGHT.ink, LIVE)):
            points = [row for row in rows if row.source == source]
            if points:
                bars = [[(place[row.value], row.low_tbs), (place[row.value], row.high_tbs)] for row in points]
                panel.lines(bars, color, linewidths=1.6)
                panel.line([place[row.value] for row in points], [row.tbs for row in points], color, **look)
    note = Panel(fig, 0.55, 0.4, 11.6, 0.2)
    recorded, live, modelled = (any(row.source == name for row in all_rows) for name in ("recorded", "live", "model"))
    name = "scaled model, others' error" if modelled and data.scaled else "model and its 90 % error"
    entries = [
        (recorded, "recorded", LIGHT.blue, _RECORDED),
        (live, "measured live", LIGHT.ink, LIVE),
        (modelled, name, LIGHT.sky, MODEL),
        (any(row.reason for row in all_rows), "not possible", LIGHT.muted, _IMPOSSIBLE),
        (ceiling, "HBM ceiling", LIGHT.muted, _CEILING),
    ]
    for i, (_, text, color, look) in enumerate(entry for entry in entries if entry[0]):
        x = i * 2.45 / note.width
        spot = [0.0, 0.4] if look["linestyle"] else [0.3]  # inches: a line, or a single mark
        note.line([x + inches / note.width for inches in spot], [0.5] * len(spot), color, clip=False, **look)
        note.note(x + 0.5 / note.width, 0.5, text, ha="left")
    return fig


def draw_steps(data: TacticData) -> Figure:
    """A bar per step of each slider of a legal tactic, filled from records, else outlined."""
    rows = list(data.steps.itertuples(index=False))
    height = 3.3  # whatever the number of rows, so that nothing below moves when a slider does
    fig = style.figure(12.6, height + 1.85)
    widest = min(WIDEST, max([0.02, *(abs(row.change) for row in rows if row.source)])) * 1.05
    panel = Panel(fig, 2.6, 1.25, 4.6, height, (-widest, widest), (max(len(rows), 1), 0))
    panel.title("one step of each slider: change of time", 8)
    grid = tick_step(widest, 4, least=0.005)
    at = np.arange(-int(widest / grid), int(widest / grid) + 1) * grid
    panel.ticks("x", at, [f"{100 * v:+.3g} %" if abs(v) > 1e-9 else "0" for v in at])
    panel.note(0.02, 0, "← faster", LIGHT.muted, ha="left", va="top", offset=(0, -19))
    panel.note(0.98, 0, "slower →", LIGHT.muted, ha="right", va="top", offset=(0, -19))
    for i, row in enumerate(rows):
        y = i + 0.5
        if i and row.control != rows[i - 1].control:
            panel.lines([[(-widest, i), (widest, i)]], LIGHT.grid, linewidths=0.7)
        panel.labels([(-widest, y)], [f"{row.control} {row.before} → {row.after}"], ha="right", offset=(-8, 0))
        if row.source:
            length = max(-widest, min(widest, row.change))
            box = (min(0, length), y - 0.3, abs(length), 0.6)
            if row.source == "recorded":
                panel.boxes([box], LIGHT.blue)
            else:
                panel.boxes([box], "none", edgecolor=LIGHT.sky, linewidth=1.4, linestyle=":")
            if abs(row.change) > widest:  # the bar goes on
                beyond, side = ("»", "right") if length > 0 else ("«", "left")
                panel.labels([(length, y)], [beyond], ha=side, size=style.TITLE, offset=(-4 if length > 0 else 4, 0))
    for i, row in enumerate(rows):
        color = LIGHT.ink if row.source == "recorded" else LIGHT.muted
        panel.labels([(widest, i + 0.5)], [_step_text(row)], color, ha="left", offset=(10, 0))
    panel.lines([[(0, 0), (0, len(rows))]], LIGHT.ink, linewidths=0.9)
    foot = "filled: both ends recorded"
    if data.fit:
        within = f"{100 * data.fit.held_out_p90_error:.0f} %"
        foot += f"; outlined: model, 90 % of whose times were within {within} on {data.fitted_on}"
    panel.note(0, 0, foot, LIGHT.muted, ha="left", va="top", offset=(-175, -36))
    return fig


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


def _step_text(row: Any) -> str:
    """What stands beside a step's bar: the times, or why there are none, as long as it stays readable."""
    if row.source:
        source = f"{row.source}, {row.verdict}" if row.verdict else row.source
        return f"{_percent(row.change)}: {row.before_us:.2f} → {row.after_us:.2f} us ({source})"
    reason = row.reason.split(": ")[0]
    if len(reason) > 62:
        reason = reason[:60].rsplit(" ", 1)[0] + " …"
    return f"not possible: {reason}" if reason else "not recorded, and no model"


def _percent(change: float) -> str:
    """Signed, in tenths; what rounds to nothing has no sign."""
    return f"{100 * change:+.1f} %" if abs(change) >= 5e-4 else "0.0 %"
