"""data/best.csv, the fastest tactic of each problem, chained and cold: `records.best` chooses and writes its rows.

Each is of one state of the process, a busy one where that was measured.
"""

import csv
import io
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..catalogue import data_dir
from ..problem import GemmProblem

COLUMNS = ("device", "kernel", "n", "k", "m", "tactic", "median_us", "campaign")  #: rows ascend by the first five
CURE = "write it anew with python -m skinny_gemm defaults"


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
def best_recorded(path: Path) -> dict[tuple[str, str, int, int], dict[int, str]]:
    """The file's tactics: (device, kernel, N, K) to M to tactic; {} if there is no file. ValueError if it is broken."""
    best: dict[tuple[str, str, int, int], dict[int, str]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = row["device"], row["kernel"], int(row["n"]), int(row["k"])
                best.setdefault(key, {})[int(row["m"])] = row["tactic"]
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__} {error}): {CURE}") from error
    return best


def covering(device: str, kernel: str, problem: GemmProblem) -> tuple[int, str] | None:
    """(M, tactic) of the row of this device, kernel, N and K, and of M or the next M above that has one; or None."""
    recorded = best_recorded(path()).get((device, kernel, problem.n, problem.k), {})
    return min(((m, tactic) for m, tactic in recorded.items() if m >= problem.m), default=None)
