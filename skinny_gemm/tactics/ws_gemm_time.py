"""The performance model of the weight-stationary GEMM; |a, b, c| is `soft_maximum`.

    time  = | fixed + after, HBM, port |
    fixed = start + cta * CTAs
    after = x / x_rate + parts / exchange + group * (groups - 1) + gather (if a single pass) + mma * mma per scheduler
    HBM   = weights / the HBM ceiling, port = weights of the busiest SM / port

All weights are on their way at once; what follows the wait adds up. x and parts are a CTA's bytes: its K slice of all
tokens (in a single pass once per row tile), and the partial sums over DSMEM. Port is of isolated launches only.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..device import Device
from ..layouts import ws_gemm as layout
from ..problem import GemmProblem
from .formula import SHARPNESS, Coefficient, Formula, Terms, hbm_rate, soft_maximum


def _quantities(tactic: Any, problem: GemmProblem, device: Device) -> dict[str, float]:
    """Of a `WsGemmTactic`, whose module imports this one."""
    ctas, _, _ = tactic.grid(problem)
    tiles = layout.token_tiles(problem.m)
    slots = layout.slots(tiles * tactic.rt, tactic.ks)
    x_bytes = 2 * problem.m * problem.k / tactic.ks
    return {
        "ctas": ctas,
        "weights_us": problem.weight_bytes / hbm_rate(device),
        "sm_bytes": -(-ctas // device.sms) * 2 * layout.MMA_M * tactic.rt * problem.k / tactic.ks,
        "x_bytes": x_bytes if tactic.tg else x_bytes * tactic.rt,
        "part_bytes": slots * tactic.ks * tactic.kq * layout.FRAGMENT_BYTES,
        "more_groups": layout.groups(problem.m, tactic.tg) - 1,
        "single_pass": float(tactic.tg == 0),
        "mmas": 2 * tiles * tactic.blocks(problem) * -(-tactic.rt * tactic.kq // 4),
    }


def _terms(q: Mapping[str, np.ndarray], c: Mapping[str, float], mode: str) -> Terms:
    fixed = c["start"] + 1e-3 * c["cta"] * q["ctas"]
    x, exchange = 1e-3 * q["x_bytes"] / c["x_rate"], 1e-3 * q["part_bytes"] / c["exchange"]
    exchange = exchange + c["group"] * q["more_groups"] + c["gather"] * q["single_pass"]
    mma = 1e-3 * c["mma"] * q["mmas"]
    ahead = {"HBM": q["weights_us"]}
    if mode == "isolated":
        ahead["port"] = 1e-3 * q["sm_bytes"] / c["port"]
    time = soft_maximum(c["sharpness"], fixed + x + exchange + mma, *ahead.values())
    return {"fixed": fixed, "x": x, "exchange": exchange, "mma": mma, **ahead, "time": time}


FORMULA = Formula(
    (
        Coefficient("start", "us", "launch, cluster barriers, settling the last group; in a chain the wait", 1.0),
        Coefficient("cta", "ns per CTA", "launching a CTA and its place in a cluster", 8.0),
        Coefficient("x_rate", "GB/s", "at which a CTA gets x from L2 after the wait", 250.0),
        Coefficient("exchange", "GB/s", "at which a CTA takes in the parts of its blocks over DSMEM", 60.0),
        Coefficient("group", "us per group", "settling one more token group", 0.2),
        Coefficient("gather", "us", "a single pass's second cluster barrier and remote reads", 0.6),
        Coefficient("mma", "ns per mma", "of one scheduler's", 6.0),
        Coefficient(
            "port", "GB/s", "what one SM reads of the weights; in a chain they come ahead", 80.0, ("isolated",)
        ),
        SHARPNESS,
    ),
    _quantities,
    _terms,
)
