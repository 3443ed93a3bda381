"""A performance model, for where nobody measured: `Tactic.formula` with coefficients fitted to the records.

They are kept in data/model.json (`records.fit`), each kernel, mode and state of the process with its own. A device
without records is computed with its own SMs, shared memory and HBM ceiling, but the coefficients, and so the clock and
latencies, of the recorded one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from .. import device as devices
from ..catalogue import data_dir
from ..device import Device
from ..problem import GemmProblem
from ..tactics import KERNELS, Tactic
from ..tactics.formula import MODES, Formula, Terms

CURE = "python -m skinny_gemm fit"  #: writes data/model.json


@dataclass(frozen=True)
class Fit:
    """Coefficients of one kernel, mode and process, what they were fitted to, and how far off they are.

    Errors are |predicted / measured - 1|: the median and what 90 % stay below (`p90`), of the fit itself and of
    predictions of each weight shape from a fit that never saw it (`held_out`).
    """

    coefficients: dict[str, float]
    devices: tuple[str, ...]
    campaigns: tuple[str, ...]
    records: int
    shapes: int
    median_error: float
    p90_error: float
    held_out_median_error: float
    held_out_p90_error: float

    def describe(self) -> str:
        """One line for people."""
        middle, most = 100 * self.held_out_median_error, 100 * self.held_out_p90_error
        off = f"off by {middle:.0f} % in the median, 90 % within {most:.0f} %"
        return f"fitted to {self.records:,} records of {self.shapes} shapes; on shapes it had not seen {off}"


def formulas() -> dict[str, Formula]:
    """The kernels that have a model."""
    return {name: kind.formula for name, kind in KERNELS.items() if kind.formula}


def why_not(kernel: str, mode: str, device: Device, process: str = "quiet") -> str | None:
    """Why the model has no time of `kernel` in `mode` and `process` on `device`, in words; None if it has."""
    if kernel not in formulas():
        return f"there is no model of {kernel}"
    if mode not in MODES:
        return f"there is no model of {mode} launches: their time is a difference to a producer's"
    if (kernel, mode, process) not in fits():
        return f"the model of {kernel}, {mode}, in a {process} process was not fitted: run {CURE}"
    if "hbm_read_tbs" not in device.ceilings:
        return f"there is no model of {device.title}: nobody measured or stated its HBM bandwidth"
    return None


def times(
    tactics: Sequence[Tactic], problems: Sequence[GemmProblem], device: Device, mode: str, process: str = "quiet"
) -> np.ndarray:
    """Microseconds per launch of legal tactics of one kernel, each on its problem; ValueError if there is no model."""
    return _terms(tactics, problems, device, mode, process)["time"]


def explain(
    tactic: Tactic, problem: GemmProblem, device: Device, mode: str, process: str = "quiet"
) -> dict[str, float]:
    """The terms of one tactic's time in microseconds, "time" last; ValueError if there is no model."""
    return {name: float(term[0]) for name, term in _terms([tactic], [problem], device, mode, process).items()}


def is_scaled(kernel: str, mode: str, device: Device, process: str = "quiet") -> bool:
    """Whether the coefficients come from other devices than this."""
    return device.name not in fit_of(kernel, mode, process).devices


def fit_of(kernel: str, mode: str, process: str = "quiet") -> Fit:
    """The fit in use; ValueError in words where there is none."""
    if reason := why_not(kernel, mode, devices.reference(), process):
        raise ValueError(reason)
    return fits()[kernel, mode, process]


def fits() -> dict[tuple[str, str, str], Fit]:
    """The stored fits by (kernel, mode, process), from data/model.json; none where it was never written."""
    return read_fits(data_dir() / "model.json")


@cache
def read_fits(path: Path) -> dict[tuple[str, str, str], Fit]:
    """The fits in a file as `fit` writes it; {} if there is none, ValueError in words if it is no such file."""
    if not path.exists():
        return {}
    try:
        fits = {}
        for kernel, modes in json.loads(path.read_text(encoding="utf-8")).items():
            for mode, processes in modes.items():
                names = {c.name for c in formulas()[kernel].of(mode)}
                for process, entry in processes.items():
                    fit = Fit(**{**entry, "devices": tuple(entry["devices"]), "campaigns": tuple(entry["campaigns"])})
                    if set(fit.coefficients) != names:
                        raise ValueError(f"{kernel}, {mode}: coefficients are {set(fit.coefficients)}, not {names}")
                    fits[kernel, mode, process] = fit
        return fits
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a fit of this model: {error}; {CURE} writes it anew.") from error


def columns(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """The quantities of several tactics, an array each."""
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


def _terms(
    tactics: Sequence[Tactic], problems: Sequence[GemmProblem], device: Device, mode: str, process: str
) -> Terms:
    kernel = tactics[0].kernel
    if reason := why_not(kernel, mode, device, process):
        raise ValueError(reason)
    formula = formulas()[kernel]
    rows = [formula.quantities(t, p, device) for t, p in zip(tactics, problems, strict=True)]
    return formula.terms(columns(rows), fits()[kernel, mode, process].coefficients, mode)
