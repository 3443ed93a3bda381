"""The performance model of warp split-K; |a, b, c| is `soft_maximum`.

    time  = fixed e + | HBM (1 + crowd f), fixed (1 - e) + path, fixed (1 - e) + port |
    fixed = start + cta * CTAs + refill * (1 - 1 / waves)
    HBM   = (weights + reread * (weights read again by further token tiles)) / the device's HBM ceiling
    path  = waves * ((tiles / stages - 1) * latency + tiles * (handshake + copy * copies per tile))
    port  = bytes of weights and x that the busiest SM reads / port

`path` is Little's law for one CTA: a ring of `stages` is refilled once per latency. x is read again by every CTA, from
L2: it costs loader time (copy) and bytes through the SM's port. Isolated launches have e = 1 and crowd = cta = 0. In a
chain the next launch's rings fill while this one drains, and e = 1 / (1 + bytes of all rings / ahead) of the fixed time
is left to see; but a launch shares the SMs' slots with its neighbours: f is the fraction of a launch that the last
slots hold, and the CTAs of one launch may fill all slots of an SM.
The trigger is not in it: a tactic has the same time with either.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..device import Device
from ..layouts import WARP
from ..layouts.swizzle import CHUNK
from ..problem import GemmProblem
from .formula import SHARPNESS, Coefficient, Formula, Terms, hbm_rate, soft_maximum

SPREAD = 16  #: SMs that even a crowded launch is spread over, about a GPC's
CHAIN = ("chained",)


def _quantities(tactic: Any, problem: GemmProblem, device: Device) -> dict[str, float]:
    """Of a `WarpSplitKTactic`, whose module imports this one."""
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
        "weights_us": problem.weight_bytes / hbm_rate(device),
        "again_us": (token_tiles - 1) * problem.weight_bytes / hbm_rate(device),
        "refills": tiles / tactic.stages - 1,
        "tiles": tiles,
        "copies": tactic.token_tile * tactic.k_tile / CHUNK / WARP / tactic.b_loader_warps,
        "sm_bytes": busiest * cta_bytes,
        "crowded_bytes": max(crowded, busiest) * cta_bytes,
        "partial": slots % 1 if slots > 1 else 0.0,
        "ring_bytes": min(footprint.ctas, footprint.ctas_per_sm * device.sms) * min(tactic.stages, tiles) * rows,
    }


def _terms(q: Mapping[str, np.ndarray], c: Mapping[str, float], mode: str) -> Terms:
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
    time = seen + soft_maximum(c["sharpness"], hbm, hidden + path, hidden + port)
    return {"fixed": fixed, "HBM": hbm, "path": path, "port": port, "time": time}


FORMULA = Formula(
    (
        Coefficient("start", "us", "launch, first latency, reduction and store; in a chain the wait for x", 1.0),
        Coefficient("cta", "ns per CTA", "launching a CTA, which only a chain shows", 0.5, CHAIN),
        Coefficient("refill", "us", "idle SMs between waves, times the share of CTAs that wait for a slot", 1.0),
        Coefficient("reread", "share", "of the weights that a second token tile finds no longer in L2", 0.7),
        Coefficient("latency", "us", "from freeing a ring to having it full again", 0.6),
        Coefficient("handshake", "ns per K tile", "barriers and the loop over a stage", 20.0),
        Coefficient("copy", "ns per copy", "a loader warp's cp.async of 512 bytes of x", 6.0),
        Coefficient("port", "GB/s", "what one SM reads from L2", 130.0),
        Coefficient("crowd", "share", "bandwidth lost where a launch shares slots with its neighbour", 0.3, CHAIN),
        Coefficient("ahead", "MB", "in rings that hide half of the fixed time of a chain", 1.5, CHAIN),
        SHARPNESS,
    ),
    _quantities,
    _terms,
)
