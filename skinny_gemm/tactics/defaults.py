"""data/best.csv, the fastest tactic of each problem, chained and cold: `records.best` chooses and writes its rows.

Each is of one state of the process, a busy one where that was measured.
"""

import csv
import io
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ..catalogue import data_dir
from ..problem import GemmProblem

COLUMNS = ("device", "kernel", "n", "k", "m", "tactic", "median_us", "campaign")  #: rows ascend by the first five
CURE = "write it anew with python -m skinny_gemm defaults"


class Row(NamedTuple):
    """The fastest tactic of one device, kernel and problem."""

    m: int
    tactic: str  #: as text
    median_us: float
    campaign: str  #: that recorded it


def path() -> Path:
    """Where the file is."""
    return data_dir() / "best.csv"


def table(rows: Iterable[Any]) -> str:
    """The text of the file from rows with `COLUMNS` as attributes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(sorted([getattr(row, column) for column in COLUMNS] for row in rows))
    return text.getvalue()


@lru_cache(maxsize=4)
def best_recorded(path: Path) -> dict[tuple[str, str, int, int], dict[int, Row]]:
    """The file's rows: (device, kernel, N, K) to M to row; {} if there is no file. ValueError if it is broken."""
    best: dict[tuple[str, str, int, int], dict[int, Row]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = row["device"], row["kernel"], int(row["n"]), int(row["k"])
                m, median_us = int(row["m"]), float(row["median_us"])
                best.setdefault(key, {})[m] = Row(m, row["tactic"], median_us, row["campaign"])
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__} {error}): {CURE}") from error
    return best


def covering(device: str, kernel: str, problem: GemmProblem) -> list[Row]:
    """The rows of this device, kernel, N and K that serve the problem: of its M and of larger ones, ascending."""
    rows = best_recorded(path()).get((device, kernel, problem.n, problem.k), {})
    return sorted(row for m, row in rows.items() if m >= problem.m)
