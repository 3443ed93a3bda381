"""How exact a result is: its distance from FP64, in units of the spacing of its own format."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from . import style
from .panel import Panel

LIMIT = 1.0  #: spacings of BF16; what lies beyond is counted in the outermost bins
BINS = 60
FORMATS = {"bf16": ("BF16", 7), "f32": ("FP32", 23)}  #: name, and bits after the leading one


def error_table(out: np.ndarray, reference: np.ndarray, dtype: str = "bf16") -> pd.DataFrame:
    """A histogram of (out - reference) in spacings of `dtype` at the reference: low, high, count; ends hold the rest.

    `out` and `reference` are FP64 of one shape. Of FP32, whose last bits the accumulation decides, it spans nine in ten
    outputs. ValueError if an output is NaN: it was not written.
    """
    if np.isnan(out).any():
        raise ValueError(f"{int(np.isnan(out).sum())} outputs are NaN: they were not written, or an operand was NaN")
    exponent = np.floor(np.log2(np.maximum(np.abs(reference), 2.0**-126)))
    distance = (out - reference) / 2.0 ** (exponent - FORMATS[dtype][1])
    limit = LIMIT
    if dtype != "bf16":
        limit = max(LIMIT, 2.0 ** np.ceil(np.log2(max(np.quantile(np.abs(distance), 0.9), LIMIT))))
    edges = np.linspace(-limit, limit, BINS + 1)
    counts, _ = np.histogram(np.clip(distance, -limit, limit), edges)
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "count": counts})


def error_histogram(
    table: pd.DataFrame, relative_error: float, dtype: str = "bf16", name: str = "", theme: style.Theme = style.LIGHT
) -> Figure:
    """`table` from `error_table`, with the band that rounding the exact product alone would fill.

    `name` tells one of several results.
    """
    fig = style.figure(9, 3.4, theme)
    top = max(int(table["count"].max()), 1) * 1.3
    limit = table.high.iloc[-1]
    panel = Panel(fig, 0.75, 0.9, 7.9, 1.9, theme, x=(-limit, limit), y=(0, top))
    total = int(table["count"].sum())
    what = f"{name}: error of {total:,} {FORMATS[dtype][0]}" if name else f"error of {total:,}"
    panel.title(f"{what} outputs against FP64; relative Frobenius error {relative_error:.2e}")
    panel.boxes([(-0.5, 0, 1, top)], theme.grid)
    width = table.high - table.low
    panel.boxes(np.column_stack([table.low, 0 * width, width, table["count"]]), theme.blue, edgecolor=theme.paper,
                linewidth=0.3)  # fmt: skip
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
