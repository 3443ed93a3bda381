"""How fast: records of one weight as a table with the rates that charts plot, and what is fastest in it."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ..records import Campaign, fastest

#: What charts walk through; rows are tuples with these names.
PLOTTED = ["kernel", "tactic", "m", "median_us", "live", "tbs", "low_tbs", "high_tbs", "tflops", "intensity"]
RATES = {"tbs": "median_us", "low_tbs": "high_us", "high_tbs": "low_us"}  #: each rate's time


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
    """What was measured of weights `[n, k]` on `device`, cold, each point from the newest campaign that has it."""
    table = table[(table.n == n) & (table.k == k) & (table.weights == "cold")]
    table = table[(table.device == device) & (table["mode"] == mode)]
    newest = table.drop_duplicates(["kernel", "tactic", "m"], keep="last")
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


def recorded_of(rows: Iterable, kernels: Sequence[str]) -> list:
    """The rows of some kernels that were not measured live."""
    return [row for row in rows if row.kernel in kernels and not row.live]


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
