"""The histogram of a result's distance from FP64, in units of the spacing of its own format."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.errors import FORMATS, LIMIT
from . import style
from .panel import Panel, rectangles
from .style import LIGHT


def error_histogram(table: pd.DataFrame, relative_error: float, dtype: str = "bf16", name: str = "") -> Figure:
    """An `error_table` with the band that rounding the exact product alone would fill; `name`: of several results."""
    fig = style.figure(9, 3.4)
    top = max(int(table["count"].max()), 1) * 1.3
    limit = table.high.iloc[-1]
    panel = Panel(fig, 0.75, 0.9, 7.9, 1.9, x=(-limit, limit), y=(0, top))
    total = int(table["count"].sum())
    what = f"{name}: error of {total:,} {FORMATS[dtype][0]}" if name else f"error of {total:,}"
    panel.title(f"{what} outputs against FP64; relative Frobenius error {relative_error:.2e}")
    panel.boxes([(-0.5, 0, 1, top)], LIGHT.grid)
    width = table.high - table.low
    panel.boxes(rectangles(table.low, 0, width, table["count"]), LIGHT.blue, edgecolor=LIGHT.paper, linewidth=0.3)
    ticks = np.linspace(-limit, limit, 9)
    names = [f"{t:g}" for t in ticks]
    names[0], names[-1] = f"≤ {names[0]}", f"≥ {names[-1]}"
    panel.ticks("x", ticks, names, f"out - reference, in {FORMATS[dtype][0]} spacings at the reference", grid=False)
    step = 10 ** np.floor(np.log10(top))
    step = step / 2 if top / step < 3 else step
    values = np.arange(0, top, max(step, 1))
    panel.ticks("y", values, [f"{int(v):,}" for v in values])
    panel.frame()
    note = "shaded: rounding alone"
    if limit == LIMIT:  # else no bin ends where the band does
        inside = table[(table.low >= -0.5) & (table.high <= 0.5)]["count"].sum() / max(total, 1)
        note += f", {100 * inside:.1f} % of outputs"
    panel.note(0.5, 0.92, note)
    return fig
