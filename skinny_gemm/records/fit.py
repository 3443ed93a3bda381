"""Fits the performance model to the records: `python -m skinny_gemm fit` writes data/model.json, `--show` prints it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import device as devices
from ..catalogue import data_dir
from ..files import write_whole
from ..problem import GemmProblem
from ..tactics import tactic_type
from ..tactics.formula import MODES, Coefficient
from . import store
from .model import Fit, columns, fits, formulas
from .schema import PROCESSES

OUTLIER = 0.1  #: of log time: residuals beyond it count in proportion, not squared, so that no few tactics decide

Predict = Callable[[Mapping[str, float]], np.ndarray]  #: coefficients to microseconds


def lines() -> list[str]:
    """The stored coefficients with their meaning and unit, and the errors, as text."""
    text = []
    for (kernel, mode, process), fit in fits().items():
        errors = f"in the fit {fit.median_error:.1%} and {fit.p90_error:.1%}"
        text += [f"{kernel}, {mode}, {process} process: {fit.describe()}; {errors}"]
        for c in formulas()[kernel].of(mode):
            text += [f"  {c.name:10} {fit.coefficients[c.name]:9.4g} {c.unit:13} {c.meaning}"]
    return text


def write_fit() -> Path:
    """Writes data/model.json anew; returns its path. ValueError if a campaign is broken, or without a record.

    What has no records of several shapes, a kernel, mode or state of the process, has no fit.
    """
    store.check()
    rows = store.load()
    entries = {kernel: {mode: _of_processes(kernel, mode, rows) for mode in MODES} for kernel in formulas()}
    entries = {kernel: kept for kernel, of in entries.items() if (kept := {mode: of[mode] for mode in of if of[mode]})}
    if not entries:
        raise ValueError("No records of several weight shapes with cold weights: nothing to fit the model to.")
    return write_whole(data_dir() / "model.json", (json.dumps(entries, indent=1) + "\n").encode())


def fit(kernel: str, mode: str, table: Any, process: str = "quiet") -> Fit:
    """Fits to the newest record of each point in `table` (as of `records.load`) of this kernel, mode and process, cold.

    Least squares of log(predicted / measured): every time counts by its relative error. ValueError without a record.
    """
    rows = _fitted(kernel, mode, table, process)
    if rows.empty:
        raise ValueError(
            f"No record of {kernel}, {mode}, with cold weights, {process} process: nothing to fit the model to."
        )
    formula, kind = formulas()[kernel], tactic_type(kernel)
    problems = [kind.problem(GemmProblem(row.m, row.n, row.k)) for row in rows.itertuples()]
    tactics, ran_on = map(kind.parse, rows.tactic), map(devices.get, rows.device)
    quantities = columns([formula.quantities(*each) for each in zip(tactics, problems, ran_on, strict=True)])
    measured = rows.median_us.to_numpy(float)

    def times_of(chosen: Any) -> Predict:
        """The predictor of the rows `chosen`, a mask."""
        part = {name: values[chosen] for name, values in quantities.items()}
        return lambda coefficients: formula.terms(part, coefficients, mode)["time"]

    def errors(coefficients: Mapping[str, float], chosen: Any) -> np.ndarray:
        return np.abs(times_of(chosen)(coefficients) / measured[chosen] - 1)

    wanted, every = formula.of(mode), np.ones(len(rows), dtype=bool)
    coefficients = _minimise(wanted, times_of(every), measured)
    shapes = rows.n.to_numpy() * (1 << 32) + rows.k.to_numpy()
    in_fit = errors(coefficients, every)
    held_out = in_fit.copy()  # of a single shape there is nothing else to fit to
    for hidden in (shapes == shape for shape in np.unique(shapes)):
        if not hidden.all():
            held_out[hidden] = errors(_minimise(wanted, times_of(~hidden), measured[~hidden], coefficients), hidden)
    rounded = {name: float(f"{value:.4g}") for name, value in coefficients.items()}
    gpus, campaigns = (tuple(sorted(rows[column].unique())) for column in ("device", "campaign"))
    quantiles = [round(float(np.quantile(each, part)), 4) for each in (in_fit, held_out) for part in (0.5, 0.9)]
    return Fit(rounded, gpus, campaigns, len(rows), len(np.unique(shapes)), *quantiles)


def _of_processes(kernel: str, mode: str, table: Any) -> dict[str, dict]:
    """The fits by process, as data/model.json has them, of those with records of several shapes."""
    shapes = {process: _fitted(kernel, mode, table, process).groupby(["n", "k"]).ngroups for process in PROCESSES}
    return {process: asdict(fit(kernel, mode, table, process)) for process in PROCESSES if shapes[process] > 1}


def _fitted(kernel: str, mode: str, table: Any, process: str) -> Any:
    """The rows of `table` that the fit is to."""
    rows = table[(table.kernel == kernel) & (table["mode"] == mode) & (table.process == process)]
    rows = rows[(rows.weights == "cold") & rows.device.isin(devices.names())]
    return rows.drop_duplicates(["device", "n", "k", "m", "tactic"], keep="last")


def _minimise(
    wanted: Iterable[Coefficient], predict: Predict, measured: np.ndarray, start: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The coefficients with the least cost, see `fit`: Levenberg-Marquardt on their logarithms, all being positive."""
    initial = {c.name: c.start for c in wanted}
    starts = np.array(list(initial.values()))
    low, high = np.log(starts / 1000), np.log(starts * 1000)
    goal = np.log(measured)

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.log(predict(dict(zip(initial, np.exp(at), strict=True)))) - goal

    def cost(r: np.ndarray) -> float:
        return float(np.sum(np.sqrt(1 + (r / OUTLIER) ** 2) - 1))

    at = np.log([(start or initial)[name] for name in initial])
    r, damping, step = residuals(at), 1e-2, 1e-5
    best = cost(r)
    for _ in range(200):
        weight = 1 / np.sqrt(1 + (r / OUTLIER) ** 2)
        slopes = np.stack([(residuals(at + step * unit) - r) / step for unit in np.eye(len(at))], axis=1)
        normal, gradient = slopes.T @ (weight[:, None] * slopes), slopes.T @ (weight * r)
        for _ in range(20):
            move = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-9), -gradient)
            there = np.clip(at + np.clip(move, -1, 1), low, high)
            residual = residuals(there)
            if (lower := cost(residual)) < best:
                break
            damping *= 4
        else:
            break  # no step lowers the cost
        gained, best, at, r, damping = best - lower, lower, there, residual, damping / 3
        if gained < 1e-9 * best:
            break
    return dict(zip(initial, (float(value) for value in np.exp(at)), strict=True))
