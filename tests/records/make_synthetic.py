"""Writes tests/fixtures/campaigns/synthetic-states: made-up records of the real schema, for tests that load and draw.

The times follow a formula and a fixed random seed; nothing here was measured. `python tests/records/make_synthetic.py`
replaces the folder. One weight, in a quiet and in a busy process, in which each stage costs so much that another tactic
is best; M = 16 and isolated launches in a quiet one only. `synthetic` beside it, four weights, was made in the same way
before records had a column for the process: it stays as it is, since such campaigns have to be read for good.
"""

import random
import shutil
from dataclasses import replace
from pathlib import Path

from skinny_gemm import device, tactics
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter, Point

FOLDER = Path(__file__).parents[1] / "fixtures" / "campaigns" / "synthetic-states"
N, K = 2304, 1536
MS = {("quiet", "chained"): (1, 8, 16), ("quiet", "isolated"): (1, 8, 16), ("busy", "chained"): (1, 8)}
SAMPLES = 12


def main() -> None:
    rng = random.Random(0)
    shutil.rmtree(FOLDER, ignore_errors=True)
    campaign = Campaign(
        id=FOLDER.name,
        device="h200",
        gpu="SYNTHETIC, not a measurement",
        driver="0",
        cuda="0",
        torch="0",
        dsl="0",
        commit="0" * 40,
        dirty=False,
        date="2000-01-02T00:00:00+00:00",
        command="python tests/records/make_synthetic.py",
        ceilings={"hbm_read_tbs": 4.6, "copy_tbs": 4.2, "bf16_tflops": 600.0, "l2_read_tbs": 7.0},
        clocks={"samples": [], "dropped": False},
        complete=True,
    )
    writer = CampaignWriter(FOLDER, campaign)

    def add(point: Point, microseconds: float, error: float, size: int) -> None:
        writer.add(point, [microseconds * rng.uniform(1.0, 1.02) for _ in range(SAMPLES)], error, size)

    weight_bytes = GemmProblem(1, N, K).weight_bytes
    for (process, mode), ms in MS.items():
        busy = process == "busy"
        stream = weight_bytes / 4.5e6 + (0.2 if mode == "chained" else 1.9) + 0.1 * busy
        where = dict(mode=mode, process=process)
        add(Point("stream", N, K, 0, "528x3x8192", **where), stream, float("nan"), weight_bytes)
        for m in ms:
            problem = GemmProblem(m, N, K)
            for tactic in _tactics(problem):
                time = stream * (1 + 0.5 / tactic.stages) + 0.05 * m + 0.1 * busy * tactic.stages
                add(Point("warp-splitk", N, K, m, str(tactic), **where), time, 1.7e-3, problem.bytes)
            add(Point("cublas", N, K, m, "", **where), stream * 2 + 2, 1.7e-3, problem.bytes)
    writer.fail(Point("warp-splitk", N, K, 8, "32,8,256,2,1", process="busy"), "made up, to show a failure")
    writer.save()


def _tactics(problem: GemmProblem) -> list:
    kind, h200 = tactics.KERNELS["warp-splitk"], device.get("h200")
    start = kind.heuristic(problem, h200)
    near = [
        tactic
        for tactic in kind.enumerate(problem, h200)
        if replace(tactic, stages=start.stages) == start and tactic.stages in (2, 4, 6)
    ]
    return list(dict.fromkeys([start, *near]))


if __name__ == "__main__":
    main()
