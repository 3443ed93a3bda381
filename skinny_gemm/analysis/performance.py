"""Results as tables: how fast, records of one weight with the rates that charts plot; how exact, errors to FP64."""

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..records import Campaign, fastest

#: What charts walk through; rows are tuples with these names.
PLOTTED = ["kernel", "tactic", "m", "median_us", "live", "tbs", "low_tbs", "high_tbs", "tflops", "intensity"]
RATES = {"tbs": "median_us", "low_tbs": "high_us", "high_tbs": "low_us"}  #: each rate's time
LIMIT = 1.0  #: spacings of BF16; what lies beyond is counted in the outermost bins
BINS = 60
FORMATS = {"bf16": ("BF16", 7), "f32": ("FP32", 23)}  #: name, and bits after the leading one


def measured(records: pd.DataFrame, n: int, k: int) -> pd.DataFrame:
    """`records` of weights `[n, k]`, with what the figures plot: tbs (TB/s), low_tbs, high_tbs, tflops, intensity."""
    table = records[(records.n == n) & (records.k == k)].copy()
    for rate, time in RATES.items():
        table[rate] = table["bytes"] / table[time] * 1e-6
    flops = 2.0 * table.m * n * k
    table["tflops"] = flops / table.median_us * 1e-6
    table["intensity"] = flops / table["bytes"]
    table = table.astype({"kernel": object, "tactic": object})  # Python strings: faster to walk through
    return table.sort_values(["kernel", "tactic", "m"])


def recorded(table: pd.DataFrame, n: int, k: int, device: str, mode: str) -> pd.DataFrame:
    """What was measured of weights `[n, k]` on `device`, cold, each point from the newest campaign that has it.

    In either state of the process: rows of both are never drawn together.
    """
    table = table[(table.n == n) & (table.k == k) & (table.weights == "cold")]
    table = table[(table.device == device) & (table["mode"] == mode)]
    newest = table.drop_duplicates(["kernel", "tactic", "m", "process"], keep="last")
    return measured(newest.assign(live=False), n, k)


def used(table: pd.DataFrame, campaigns: Mapping[str, Campaign]) -> tuple[Campaign, ...]:
    """The campaigns that `table`'s recorded rows come from, the one with most of them first."""
    return tuple(campaigns[name] for name in table.campaign[~table.live].value_counts().index)


_latest: tuple[Callable[[], Any], list] = (lambda: None, [])  #: the table that `rows_of` walked through last, its rows


def rows_of(table: pd.DataFrame) -> list:
    """The rows of a table from `measured` as tuples of `PLOTTED`; the latest table's are kept, for speed of sliders."""
    global _latest
    known, rows = _latest
    if known() is not table:
        rows = list(table[PLOTTED].itertuples(index=False))
        _latest = weakref.ref(table), rows
    return rows


def grouped(rows: Iterable, *names: str) -> dict[Any, list]:
    """The rows by the value of a field, or by those of several as a tuple, in the order of first appearance."""
    groups: dict[Any, list] = {}
    for row in rows:
        values = tuple(getattr(row, name) for name in names)
        groups.setdefault(values if len(names) > 1 else values[0], []).append(row)
    return groups


def fastest_of_each_m(rows: Iterable) -> list:
    """The row with the least median of each M, in ascending M."""
    return [fastest(of_m) for _, of_m in sorted(grouped(rows, "m").items())]


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
