"""The performance model of the balanced kernels, whose units are warps or warpgroups; |a, b, c| is `soft_maximum`.

    time  = fixed e + | HBM (1 + crowd f), fixed (1 - e) + path, fixed (1 - e) + port, fixed (1 - e) + issue |
    fixed = start + cta * CTAs + gather * log2 cluster + sum * fragments a warp stores and adds
    HBM   = weights / the device's HBM ceiling
    path  = waves * ((turns / stages - 1) * latency + turns * turn + x * loads of x to registers)
    port  = bytes of weights and x that the busiest SM reads / port
    issue = mma * products of 16 x 8 x 16 on the busiest SM

What e and f are: see `warp_splitk_time`. The trigger is not in it: a tactic has the same time with either.
"""

from collections.abc import Mapping
from math import log2
from typing import Any

import numpy as np

from ..device import Device
from ..layouts import WARP
from ..layouts.fragments import K_BLOCK, MMA_K, MMA_N
from ..problem import GemmProblem
from .formula import SHARPNESS, Coefficient, Formula, Terms, hbm_rate, soft_maximum

SPREAD = 16  #: SMs that even a crowded launch is spread over, about a GPC's
CHAIN = ("chained",)


def _quantities(tactic: Any, problem: GemmProblem, device: Device) -> dict[str, float]:
    """Of a `BalancedSplitKTactic` or a `WgmmaSplitKTactic`, whose modules import this one."""
    footprint, rows, turns = tactic.footprint(problem, device), tactic.rows(problem), tactic.turns(problem)
    busiest = -(-footprint.ctas // device.sms)
    slots = footprint.ctas_per_sm * device.sms / footprint.ctas  # launches that fit on the device
    crowded = min(footprint.ctas_per_sm, -(-footprint.ctas // SPREAD)) if slots > 1 else 0
    k_slice, warps = problem.k // tactic.cluster, footprint.threads // WARP
    fragments, units = tactic.fragments(problem), tactic.units
    cta_bytes = 2 * (rows + problem.m) * k_slice
    loads = turns * (tactic.k_chunk // K_BLOCK) * (tactic.token_tile // MMA_N)
    return {
        "ctas": footprint.ctas,
        "cluster": log2(tactic.cluster),
        "sums": fragments * units / warps + -(-fragments // warps) * (units + tactic.cluster),
        "waves": footprint.waves,
        "weights_us": problem.weight_bytes / hbm_rate(device),
        "refills": max(0.0, turns / tactic.stages - 1),
        "turns": turns,
        "x_loads": 0 if getattr(tactic, "x_ring", 1) else loads,
        "sm_bytes": busiest * cta_bytes,
        "crowded_bytes": max(crowded, busiest) * cta_bytes,
        "sm_mma": busiest * fragments * k_slice / MMA_K,
        "partial": slots % 1 if slots > 1 else 0.0,
        "ring_bytes": min(footprint.ctas, footprint.ctas_per_sm * device.sms)
        * (footprint.bytes_in_flight_per_sm / min(footprint.ctas_per_sm, busiest)),
    }


def _terms(q: Mapping[str, np.ndarray], c: Mapping[str, float], mode: str) -> Terms:
    fixed = c["start"] + c["gather"] * q["cluster"] + 1e-3 * c["sum"] * q["sums"]
    hbm = q["weights_us"]
    path = q["waves"] * (q["refills"] * c["latency"] + 1e-3 * (c["turn"] * q["turns"] + c["x"] * q["x_loads"]))
    port = 1e-3 * q["sm_bytes" if mode == "isolated" else "crowded_bytes"] / c["port"]
    issue = 1e-3 * c["mma"] * q["sm_mma"]
    seen = fixed
    if mode == "chained":
        fixed = fixed + 1e-3 * c["cta"] * q["ctas"]
        hbm = hbm * (1 + c["crowd"] * q["partial"])
        seen = fixed / (1 + 1e-6 * q["ring_bytes"] / c["ahead"])
    hidden = fixed - seen
    time = seen + soft_maximum(c["sharpness"], hbm, hidden + path, hidden + port, hidden + issue)
    return {"fixed": fixed, "HBM": hbm, "path": path, "port": port, "issue": issue, "time": time}


FORMULA = Formula(
    (
        Coefficient("start", "us", "launch, first latency and store; in a chain the wait for x", 1.0),
        Coefficient("cta", "ns per CTA", "launching a CTA, which only a chain shows", 0.5, CHAIN),
        Coefficient("gather", "us", "each doubling of a cluster: its barrier and its sums", 0.1),
        Coefficient("sum", "ns", "a fragment that a warp stores, or adds to another", 5.0),
        Coefficient("latency", "us", "from freeing a ring to having it full again", 0.6),
        Coefficient("turn", "ns per turn", "waiting for copies, and starting the next", 20.0),
        Coefficient("x", "ns per load", "a load of x from L2, some being in flight", 20.0),
        Coefficient("mma", "ns", "a product of 16 x 8 x 16, with the loads that feed it", 0.5),
        Coefficient("port", "GB/s", "what one SM reads from L2", 130.0),
        Coefficient("crowd", "share", "bandwidth lost where a launch shares slots with its neighbour", 0.3, CHAIN),
        Coefficient("ahead", "MB", "in rings that hide half of the fixed time of a chain", 1.5, CHAIN),
        SHARPNESS,
    ),
    _quantities,
    _terms,
)
