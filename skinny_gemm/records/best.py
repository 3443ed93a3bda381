"""Answers from the records: the best tactic of a problem, how sure, how far from its bound and from its peers.

`write_defaults` writes data/best.csv, the default tactics, from them.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..catalogue import data_dir as default_data_dir
from ..files import write_whole
from . import store
from .schema import BOUNDS, PEERS, Record

COLUMNS = ("device", "kernel", "n", "k", "m", "tactic", "median_us", "campaign")  #: of data/best.csv


@dataclass(frozen=True)
class Best:
    """The fastest recorded tactic of one problem with cold weights; times in microseconds per launch."""

    kernel: str
    tactic: str
    microseconds: float  #: the median
    interval: tuple[float, float]  #: its 95 % interval
    bound: float | None  #: the best recorded stream or, where it is more, dependency floor; None if neither is recorded
    ratio_to_bound: float | None
    peers: dict[str, float]  #: each recorded peer's best time
    campaign: str  #: that the tactic's record is of
    commit: str  #: that the campaign ran


def best(
    n: int,
    k: int,
    m: int,
    mode: str = "chained",
    device: str = "h200",
    kernel: str | None = None,
    data_dir: str | Path | None = None,
    rows: Sequence[Record] | None = None,
) -> Best:
    """The fastest tactic recorded for N, K and M on `device`, cold, each tactic's newest record in the running.

    `kernel` selects one; by default all of ours compete. `rows`, if read already, are `weight_rows` of the same.
    ValueError, in a sentence, where there is no such record.
    """
    here = weight_rows(n, k, mode, device, data_dir) if rows is None else rows
    problem = [row for row in here if row.m == m]
    ours = [row for row in problem if (row.kernel == kernel if kernel else row.kernel not in PEERS + BOUNDS)]
    if not ours:
        raise ValueError(
            f"No record of {kernel or 'our kernels'} for N = {n}, K = {k}, M = {m}, {mode}, cold weights on {device}."
        )
    fastest = min(ours, key=lambda row: row.median_us)
    bound = bound_of(here)
    peers = {name: fastest_of(problem, name) for name in PEERS}
    return Best(
        kernel=fastest.kernel,
        tactic=fastest.tactic,
        microseconds=fastest.median_us,
        interval=(fastest.low_us, fastest.high_us),
        bound=bound,
        ratio_to_bound=bound and round(fastest.median_us / bound, 4),
        peers={name: time for name, time in peers.items() if time is not None},
        campaign=fastest.campaign,
        commit=store.campaigns(data_dir)[fastest.campaign].commit,
    )


def weight_rows(n: int, k: int, mode: str, device: str, data_dir: str | Path | None = None) -> list[Record]:
    """The newest record of every point of a weight `[n, k]`: cold, of one mode, on one device."""
    wanted = (n, k, mode, device, "cold")
    return newest(r for r in store.rows(data_dir) if (r.n, r.k, r.mode, r.device, r.weights) == wanted)


def newest(rows: Iterable[Record]) -> list[Record]:
    """Of each point the last of `rows`, which come oldest campaign first."""
    return list({row.point: row for row in rows}.values())


def fastest_of(rows: Iterable[Record], kernel: str) -> float | None:
    """The least median of `kernel`'s newest records, or None."""
    return min((row.median_us for row in newest(rows) if row.kernel == kernel), default=None)


def bound_of(rows: Iterable[Record]) -> float | None:
    """The best stream among `rows` of one weight or, where it is more, the best dependency floor; None without both."""
    rows = list(rows)
    times = [fastest_of(rows, name) for name in BOUNDS]
    return max((time for time in times if time is not None), default=None)


def defaults(data_dir: str | Path | None = None) -> str:
    """The text of data/best.csv: for each problem of each kernel of ours the fastest tactic, chained and cold.

    `Tactic.default` reads it. ValueError if a campaign is broken.
    """
    for sentence in store.problems(data_dir).values():
        raise ValueError(sentence)
    if not store.rows(data_dir):
        raise ValueError("There is no record to choose from: nothing was written.")
    fastest: dict[tuple, Record] = {}
    for row in newest(store.rows(data_dir)):
        if row.kernel in PEERS + BOUNDS or (row.mode, row.weights) != ("chained", "cold"):
            continue
        key = row.device, row.kernel, row.n, row.k, row.m
        if key not in fastest or row.median_us < fastest[key].median_us:
            fastest[key] = row
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([getattr(fastest[key], column) for column in COLUMNS] for key in sorted(fastest))
    return text.getvalue()


def write_defaults() -> Path:
    """Writes data/best.csv anew and returns its path."""
    return write_whole(default_data_dir() / "best.csv", defaults().encode())
