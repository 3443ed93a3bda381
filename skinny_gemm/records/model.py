"""A performance model: what a tactic's time is made of, in a few terms with a meaning and a unit.

It answers where nobody measured: other Ms, other tactics, devices without records. Every number that comes from here
is labelled *model*. Its coefficients are fitted to the records (`python -m skinny_gemm.bench.fit` writes
data/model.json), for each kernel and mode; `Fit` states how far off they are. A device without records is computed with
the coefficients of the recorded one and its own SMs, shared memory and HBM ceiling; its clock and latencies count as
those of the recorded device, since nobody stated them.

**Warp split-K.** With p-norms as soft maxima, |a, b, c| = (a^p + b^p + c^p)^(1/p):

    time  = fixed e + | HBM (1 + crowd f), fixed (1 - e) + path, fixed (1 - e) + port |
    fixed = start + cta * CTAs + refill * (1 - 1 / waves)
    HBM   = (weights + reread * (weights read again by further token tiles)) / the device's HBM ceiling
    path  = waves * ((tiles / stages - 1) * latency + tiles * (handshake + copy * copies per tile))
    port  = bytes of weights and x that the busiest SM reads / port

`path` is Little's law for one CTA: a ring of `stages` is refilled once per latency. x is read again by every CTA, from
L2: it costs loader time (copy) and bytes through the SM's port. Isolated launches have e = 1 and crowd = cta = 0. In a
chain the next launch's rings fill while this one drains, and e = 1 / (1 + bytes of all rings / ahead) of the fixed time
is left to see; on the other hand a launch shares the SMs' slots with its neighbours: f is the fraction of a launch that
the last slots hold, and the CTAs of one launch may fill all slots of an SM.

**Weight-stationary GEMM.** All weights are on their way at once; what follows the wait adds up:

    time  = | fixed + after, HBM, port |
    fixed = start + cta * CTAs
    after = x / x_rate + parts / exchange + group * (groups - 1) + gather (if a single pass) + mma * mma per scheduler
    HBM   = weights / the HBM ceiling, port = weights of the busiest SM / port

x and parts are a CTA's bytes: its K slice of all tokens (in a single pass once per row tile), and the partial sums that
come over DSMEM. Port counts for isolated launches only.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from .. import device as devices
from ..catalogue import data_dir
from ..device import Device
from ..layouts import ws_gemm as ws_layout
from ..layouts.swizzle import CHUNK
from ..layouts.warp_splitk import WARP
from ..problem import GemmProblem
from ..tactics import KERNELS, Tactic

MODES = ("isolated", "chained")  #: an exposed time is a difference to a producer, which no term here knows
SPREAD = 16  #: SMs that even a crowded launch is spread over, about a GPC's
OUTLIER = 0.1  #: of log time: residuals beyond it count in proportion, not squared, so that no few tactics decide

Terms = dict[str, np.ndarray]  #: microseconds


@dataclass(frozen=True)
class Coefficient:
    """One number of a formula. `start` is where the fit begins."""

    name: str
    unit: str
    meaning: str
    start: float
    modes: tuple[str, ...] = MODES


@dataclass(frozen=True)
class Formula:
    """The model of one kernel: what it needs of a tactic, and the time that follows with given coefficients."""

    coefficients: tuple[Coefficient, ...]
    quantities: Callable[[Tactic, GemmProblem, Device], dict[str, float]]
    terms: Callable[[Mapping[str, np.ndarray], Mapping[str, float], str], Terms]  #: the last one, "time", is the result

    def of(self, mode: str) -> tuple[Coefficient, ...]:
        """The coefficients that a mode has."""
        return tuple(c for c in self.coefficients if mode in c.modes)


@dataclass(frozen=True)
class Fit:
    """Coefficients of one kernel and mode, what they were fitted to, and how far off they are.

    Errors are |predicted / measured - 1| over all records: the median and what 90 % of them stay below, of the fit
    itself and of predictions of each weight shape from a fit that never saw it (`held_out`).
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
        return (
            f"fitted to {self.records:,} records of {self.shapes} shapes; on shapes it had not seen off by "
            f"{100 * self.held_out_median_error:.0f} % in the median, 90 % within {100 * self.held_out_p90_error:.0f} %"
        )


def _norm(p: float, *terms: np.ndarray) -> np.ndarray:
    """A soft maximum."""
    largest = np.maximum.reduce(terms)
    return largest * sum((np.maximum(term, 0) / largest) ** p for term in terms) ** (1 / p)


def _hbm_rate(device: Device) -> float:
    """Bytes per microsecond."""
    return device.ceilings["hbm_read_tbs"] * 1e6


def _warp_splitk(tactic: Tactic, problem: GemmProblem, device: Device) -> dict[str, float]:
    footprint = tactic.footprint(problem, device)
    _, token_tiles, _ = tactic.grid(problem)
    tiles = problem.k // tactic.k_tile
    busiest = -(-footprint.ctas // device.sms)
    slots = footprint.ctas_per_sm * device.sms / footprint.ctas  # launches that fit on the device
    crowded = min(footprint.ctas_per_sm, -(-footprint.ctas // SPREAD)) if slots > 1 else 0
    cta_bytes = 2 * (tactic.output_tile + problem.m / token_tiles) * problem.k
    rows = 2 * tactic.output_tile * tactic.k_tile
    return {
        "ctas": footprint.ctas,
        "later_waves": 1 - 1 / footprint.waves,
        "waves": footprint.waves,
        "weights_us": problem.weight_bytes / _hbm_rate(device),
        "again_us": (token_tiles - 1) * problem.weight_bytes / _hbm_rate(device),
        "refills": tiles / tactic.stages - 1,
        "tiles": tiles,
        "copies": tactic.token_tile * tactic.k_tile / CHUNK / WARP / tactic.b_loader_warps,
        "sm_bytes": busiest * cta_bytes,
        "crowded_bytes": max(crowded, busiest) * cta_bytes,
        "partial": slots % 1 if slots > 1 else 0.0,
        "ring_bytes": min(footprint.ctas, footprint.ctas_per_sm * device.sms) * min(tactic.stages, tiles) * rows,
    }


def _warp_splitk_terms(q: Mapping[str, np.ndarray], c: Mapping[str, float], mode: str) -> Terms:
    fixed = c["start"] + c["refill"] * q["later_waves"]
    hbm = q["weights_us"] + c["reread"] * q["again_us"]
    per_tile = 1e-3 * (c["handshake"] + c["copy"] * q["copies"])
    path = q["waves"] * (q["refills"] * c["latency"] + q["tiles"] * per_tile)
    port = 1e-3 * q["sm_bytes" if mode == "isolated" else "crowded_bytes"] / c["port"]
    seen = fixed
    if mode == "chained":
        fixed = fixed + 1e-3 * c["cta"] * q["ctas"]
        hbm = hbm * (1 + c["crowd"] * q["partial"])
        seen = fixed / (1 + 1e-6 * q["ring_bytes"] / c["ahead"])
    hidden = fixed - seen
    time = seen + _norm(c["sharpness"], hbm, hidden + path, hidden + port)
    return {"fixed": fixed, "HBM": hbm, "path": path, "port": port, "time": time}


def _ws_gemm(tactic: Tactic, problem: GemmProblem, device: Device) -> dict[str, float]:
    ctas, _, _ = tactic.grid(problem)
    tiles = ws_layout.token_tiles(problem.m)
    slots = ws_layout.slots(tiles * tactic.rt, tactic.ks)
    x_bytes = 2 * problem.m * problem.k / tactic.ks
    return {
        "ctas": ctas,
        "weights_us": problem.weight_bytes / _hbm_rate(device),
        "sm_bytes": -(-ctas // device.sms) * 2 * ws_layout.MMA_M * tactic.rt * problem.k / tactic.ks,
        "x_bytes": x_bytes if tactic.tg else x_bytes * tactic.rt,
        "part_bytes": slots * tactic.ks * tactic.kq * ws_layout.FRAGMENT_BYTES,
        "more_groups": ws_layout.groups(problem.m, tactic.tg) - 1,
        "single_pass": float(tactic.tg == 0),
        "mmas": 2 * tiles * tactic.blocks(problem) * -(-tactic.rt * tactic.kq // 4),
    }


def _ws_gemm_terms(q: Mapping[str, np.ndarray], c: Mapping[str, float], mode: str) -> Terms:
    fixed = c["start"] + 1e-3 * c["cta"] * q["ctas"]
    x, exchange = 1e-3 * q["x_bytes"] / c["x_rate"], 1e-3 * q["part_bytes"] / c["exchange"]
    exchange = exchange + c["group"] * q["more_groups"] + c["gather"] * q["single_pass"]
    mma = 1e-3 * c["mma"] * q["mmas"]
    terms = {"fixed": fixed, "x": x, "exchange": exchange, "mma": mma, "HBM": q["weights_us"]}
    ahead = [terms["HBM"]]
    if mode == "isolated":
        terms["port"] = 1e-3 * q["sm_bytes"] / c["port"]
        ahead.append(terms["port"])
    return terms | {"time": _norm(c["sharpness"], fixed + x + exchange + mma, *ahead)}


_SHARPNESS = Coefficient("sharpness", "", "p of the soft maximum; a large one hides all but the largest term", 2.5)
FORMULAS = {
    "warp-splitk": Formula(
        (
            Coefficient("start", "us", "launch, first latency, reduction and store; in a chain the wait for x", 1.0),
            Coefficient("cta", "ns per CTA", "launching a CTA, which only a chain shows", 0.5, MODES[1:]),
            Coefficient("refill", "us", "idle SMs between waves, times the share of CTAs that wait for a slot", 1.0),
            Coefficient("reread", "share", "of the weights that a second token tile finds no longer in L2", 0.7),
            Coefficient("latency", "us", "from freeing a ring to having it full again", 0.6),
            Coefficient("handshake", "ns per K tile", "barriers and the loop over a stage", 20.0),
            Coefficient("copy", "ns per copy", "a loader warp's cp.async of 512 bytes of x", 6.0),
            Coefficient("port", "GB/s", "what one SM reads from L2", 130.0),
            Coefficient(
                "crowd", "share", "bandwidth lost where a launch shares slots with its neighbour", 0.3, MODES[1:]
            ),
            Coefficient("ahead", "MB", "in rings that hide half of the fixed time of a chain", 1.5, MODES[1:]),
            _SHARPNESS,
        ),
        _warp_splitk,
        _warp_splitk_terms,
    ),
    "ws-gemm": Formula(
        (
            Coefficient("start", "us", "launch, cluster barriers, settling the last group; in a chain the wait", 1.0),
            Coefficient("cta", "ns per CTA", "launching a CTA and its place in a cluster", 8.0),
            Coefficient("x_rate", "GB/s", "at which a CTA gets x from L2 after the wait", 250.0),
            Coefficient("exchange", "GB/s", "at which a CTA takes in the parts of its blocks over DSMEM", 60.0),
            Coefficient("group", "us per group", "settling one more token group", 0.2),
            Coefficient("gather", "us", "a single pass's second cluster barrier and remote reads", 0.6),
            Coefficient("mma", "ns per mma", "of one scheduler's", 6.0),
            Coefficient(
                "port", "GB/s", "what one SM reads of the weights; in a chain they come ahead", 80.0, MODES[:1]
            ),
            _SHARPNESS,
        ),
        _ws_gemm,
        _ws_gemm_terms,
    ),
}


# --- asking


def why_not(kernel: str, mode: str, device: Device) -> str | None:
    """Why the model has no time of `kernel` in `mode` on `device`, in words; None if it has."""
    if kernel not in FORMULAS:
        return f"there is no model of {kernel}"
    if mode not in MODES:
        return f"there is no model of {mode} launches: their time is a difference to a producer's"
    if (kernel, mode) not in fits():
        return f"the model of {kernel}, {mode}, was not fitted: run python -m skinny_gemm.bench.fit"
    if "hbm_read_tbs" not in device.ceilings:
        return f"there is no model of {device.title}: nobody measured or stated its HBM bandwidth"
    return None


def times(tactics: Sequence[Tactic], problems: Sequence[GemmProblem], device: Device, mode: str) -> np.ndarray:
    """Microseconds per launch of tactics of one kernel, each on its problem; all must be legal, weights are cold.

    ValueError in words where there is no model.
    """
    return _terms(tactics, problems, device, mode)["time"]


def explain(tactic: Tactic, problem: GemmProblem, device: Device, mode: str) -> dict[str, float]:
    """The terms of one tactic's time in microseconds, "time" last; ValueError where there is no model."""
    return {name: float(term[0]) for name, term in _terms([tactic], [problem], device, mode).items()}


def is_scaled(kernel: str, mode: str, device: Device) -> bool:
    """Whether the coefficients come from other devices than this."""
    return device.name not in fit_of(kernel, mode).devices


def fit_of(kernel: str, mode: str) -> Fit:
    """The fit in use; ValueError in words where there is none."""
    if reason := why_not(kernel, mode, devices.get("h200")):
        raise ValueError(reason)
    return fits()[kernel, mode]


def fits() -> dict[tuple[str, str], Fit]:
    """The stored fits by (kernel, mode), from data/model.json; none where it was never written."""
    return _read(data_dir() / "model.json")


@cache
def _read(path: Path) -> dict[tuple[str, str], Fit]:
    if not path.exists():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        found = {}
        for kernel, modes in entries.items():
            for mode, entry in modes.items():
                fit = Fit(**{**entry, "devices": tuple(entry["devices"]), "campaigns": tuple(entry["campaigns"])})
                names = {c.name for c in FORMULAS[kernel].of(mode)}
                if set(fit.coefficients) != names:
                    raise ValueError(f"{kernel}, {mode}: coefficients are {set(fit.coefficients)}, not {names}")
                found[kernel, mode] = fit
        return found
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{path} is not a fit of this model: {error}; python -m skinny_gemm.bench.fit writes it anew."
        raise ValueError(message) from error


def _terms(tactics: Sequence[Tactic], problems: Sequence[GemmProblem], device: Device, mode: str) -> Terms:
    kernel = tactics[0].kernel
    if reason := why_not(kernel, mode, device):
        raise ValueError(reason)
    formula = FORMULAS[kernel]
    rows = [formula.quantities(t, p, device) for t, p in zip(tactics, problems, strict=True)]
    return formula.terms(_columns(rows), fits()[kernel, mode].coefficients, mode)


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


# --- fitting


def fit(kernel: str, mode: str, table) -> Fit:
    """Fits to the rows of `table` (columns as the records have them) of this kernel and mode, cold weights.

    Least squares of log(predicted / measured), so that every time counts by its relative error, each residual beyond
    `OUTLIER` in proportion only. Levenberg-Marquardt from `start` on the logarithms of the coefficients, which keeps
    them positive. The newest record of each point counts. ValueError where no row is left.
    """
    rows = table[(table.kernel == kernel) & (table["mode"] == mode) & (table.weights == "cold")]
    rows = rows[rows.device.isin(devices.names())]
    rows = rows.drop_duplicates(["device", "n", "k", "m", "tactic"], keep="last")
    if rows.empty:
        raise ValueError(f"No record of {kernel}, {mode}, with cold weights: nothing to fit the model to.")
    formula, kind = FORMULAS[kernel], KERNELS[kernel]
    problems = [kind.problem(GemmProblem(row.m, row.n, row.k)) for row in rows.itertuples()]
    tactics, gpus = map(kind.parse, rows.tactic), map(devices.get, rows.device)
    quantities = _columns([formula.quantities(*each) for each in zip(tactics, problems, gpus, strict=True)])
    measured = rows.median_us.to_numpy(float)
    coefficients = _minimise(formula, mode, quantities, measured)

    def errors(these: Mapping[str, float], where=slice(None)) -> np.ndarray:
        chosen = {name: values[where] for name, values in quantities.items()}
        return np.abs(formula.terms(chosen, these, mode)["time"] / measured[where] - 1)

    shapes = rows.n.to_numpy() * (1 << 32) + rows.k.to_numpy()
    held_out = np.empty(len(rows))
    for shape in np.unique(shapes):
        others, mine = shapes != shape, shapes == shape
        known = {name: values[others] for name, values in quantities.items()}
        without = _minimise(formula, mode, known, measured[others], coefficients) if others.any() else coefficients
        held_out[mine] = errors(without, mine)
    seen = errors(coefficients)
    return Fit(
        coefficients={name: float(f"{value:.4g}") for name, value in coefficients.items()},
        devices=tuple(sorted(rows.device.unique())),
        campaigns=tuple(sorted(rows.campaign.unique())),
        records=len(rows),
        shapes=len(np.unique(shapes)),
        median_error=round(float(np.median(seen)), 4),
        p90_error=round(float(np.quantile(seen, 0.9)), 4),
        held_out_median_error=round(float(np.median(held_out)), 4),
        held_out_p90_error=round(float(np.quantile(held_out, 0.9)), 4),
    )


def _minimise(
    formula: Formula,
    mode: str,
    quantities: Mapping[str, np.ndarray],
    measured: np.ndarray,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """The coefficients with the least cost; see `fit`."""
    wanted = formula.of(mode)
    names = [c.name for c in wanted]
    low, high = np.log([c.start / 1000 for c in wanted]), np.log([c.start * 1000 for c in wanted])
    goal = np.log(measured)

    def residuals(at: np.ndarray) -> np.ndarray:
        return np.log(formula.terms(quantities, dict(zip(names, np.exp(at), strict=True)), mode)["time"]) - goal

    def cost(r: np.ndarray) -> float:
        return float(np.sum(np.sqrt(1 + (r / OUTLIER) ** 2) - 1))

    at = np.log([start[name] for name in names] if start else [c.start for c in wanted])
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
            if (found := cost(residual)) < best:
                break
            damping *= 4
        else:
            break  # no step lowers the cost
        gained, best, at, r, damping = best - found, found, there, residual, damping / 3
        if gained < 1e-9 * best:
            break
    return dict(zip(names, (float(value) for value in np.exp(at)), strict=True))
