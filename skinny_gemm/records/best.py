"""Answers from the records: the best tactic of a problem, how sure, how far from its bound and from its peers.

An answer is of one state of the process: `answering` says of which.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import check_choice
from ..device import REFERENCE
from ..files import write_whole
from ..tactics import defaults
from . import store
from .schema import BOUNDS, PEERS, PROCESSES, Record, fastest


@dataclass(frozen=True)
class Rival:
    """The fastest recorded tactic of a peer."""

    tactic: str  #: "" where it chooses by itself
    microseconds: float  #: per launch, the median


@dataclass(frozen=True)
class Best:
    """The fastest recorded tactic of one problem with cold weights; times in microseconds per launch."""

    kernel: str
    tactic: str
    microseconds: float  #: the median
    interval: tuple[float, float]  #: its 95 % interval
    bound: float | None  #: the best recorded stream or, where it is more, dependency floor; None if neither is recorded
    ratio_to_bound: float | None
    peers: dict[str, Rival]  #: each recorded peer at its best, the fastest first
    campaign: str  #: that the tactic's record is of
    commit: str  #: that the campaign ran
    process: str  #: the state of the process that measured all of it


def best(
    n: int,
    k: int,
    m: int,
    mode: str = "chained",
    device: str = REFERENCE,
    kernel: str | None = None,
    data_dir: str | Path | None = None,
    rows: Collection[Record] | None = None,
    process: str | None = None,
) -> Best:
    """The fastest tactic recorded for N, K and M on `device`, cold, each tactic's newest record in the running.

    `kernel` selects one of ours, `process` the state of the process, by default the one that is `answering`. `rows`, if
    read already, are `weight_rows` of the same. ValueError without a record.
    """
    rows = weight_rows(n, k, mode, device, data_dir) if rows is None else rows
    process = answering(competing((row for row in rows if row.m == m), kernel), process)
    rows = measured_in(process, rows)
    of_problem = [row for row in rows if row.m == m]
    row = fastest(competing(of_problem, kernel))
    if row is None:
        asked = f"N = {n}, K = {k}, M = {m}, {mode}, cold weights on {device}, {process} process"
        raise ValueError(f"No record of {kernel or 'our kernels'} for {asked}.")
    bound, rivals = bound_of(rows), best_peers(of_problem)
    peers = {name: Rival(peer.tactic, peer.median_us) for name, peer in rivals.items()}
    times = row.median_us, (row.low_us, row.high_us), bound, bound and round(row.median_us / bound, 4)
    commit = store.campaigns(data_dir)[row.campaign].commit
    return Best(row.kernel, row.tactic, *times, peers, row.campaign, commit, process)


def weight_rows(n: int, k: int, mode: str, device: str, data_dir: str | Path | None = None) -> list[Record]:
    """The newest record of every point of a weight `[n, k]`: cold, of one mode, on one device, of either process."""
    wanted = (n, k, mode, device, "cold")
    return newest(r for r in store.rows(data_dir) if (r.n, r.k, r.mode, r.device, r.weights) == wanted)


def answering(ours: Collection[Any], process: str | None = None) -> str:
    """The state of the process whose records answer: `process` if asked for, ValueError if there is no such.

    Otherwise busy, as the process of a serving engine is, where that has records of every kernel among `ours`, rows of
    our kernels (`Record` or of a table); else quiet.
    """
    if process is not None:
        check_choice("process", process, PROCESSES)
        return process
    quiet, busy = ({row.kernel for row in ours if row.process == state} for state in PROCESSES)
    return "busy" if busy and busy >= quiet else "quiet"


def measured_in(process: str, rows: Iterable[Record]) -> list[Record]:
    """Those of `rows` that a process in this state measured."""
    return [row for row in rows if row.process == process]


def competing(rows: Iterable[Record], kernel: str | None = None) -> list[Record]:
    """Those of `rows` that are of `kernel`, or of any kernel of ours."""
    return [row for row in rows if (row.kernel == kernel if kernel else row.is_ours)]


def newest(rows: Iterable[Record]) -> list[Record]:
    """Of each point the last of `rows`, which come as `store.rows` gives them."""
    return list({row.point: row for row in rows}.values())


def best_peers(rows: Collection[Record]) -> dict[str, Record]:
    """The fastest record of each peer among `rows` of one problem, the fastest peer first."""
    peers = [row for peer in PEERS if (row := fastest(row for row in rows if row.kernel == peer))]
    return {row.kernel: row for row in sorted(peers, key=lambda row: row.median_us)}


def bound_of(rows: Collection[Record]) -> float | None:
    """The best stream among `rows` of one weight or, where it is more, the best dependency floor; None without both."""
    best_of_each = [fastest(row for row in rows if row.kernel == bound) for bound in BOUNDS]
    return max((row.median_us for row in best_of_each if row), default=None)


def default_table() -> str:
    """The text of data/best.csv; ValueError if a campaign is broken or there is no record."""
    store.check()
    rows = newest(store.rows())
    if not rows:
        raise ValueError("There is no record to choose from: nothing was written.")
    problems: dict[tuple, list[Record]] = {}
    for row in rows:
        if row.is_ours and (row.mode, row.weights) == ("chained", "cold"):
            problems.setdefault((row.device, row.n, row.k, row.m), []).append(row)
    best = []
    for rows in problems.values():  # all kernels in one state, so that their times can be compared
        answers = measured_in(answering(rows), rows)
        best += [fastest(competing(answers, kernel)) for kernel in {row.kernel for row in answers}]
    return defaults.table(best)


def write_defaults() -> Path:
    """Writes data/best.csv anew, which `Tactic.default` reads; returns its path. ValueError as `default_table`."""
    return write_whole(defaults.path(), default_table().encode())
