"""Writes tests/fixtures/campaigns/synthetic: made-up records of the real schema, for tests that load and draw.

The times follow a formula and a fixed random seed; nothing here was measured. `python tests/bench/make_synthetic.py`
replaces the folder.
"""

import random
import shutil
from pathlib import Path

from skinny_gemm import device, tactics
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter, Point

FOLDER = Path(__file__).parents[1] / "fixtures" / "campaigns" / "synthetic"
SHAPES = ((3584, 7168), (2112, 7168), (7168, 1536), (6288, 7168))
MS = (1, 2, 4, 8, 16, 32)
SAMPLES = 12


def main() -> None:
    rng = random.Random(0)
    h200 = device.get("h200")
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
        date="2000-01-01T00:00:00+00:00",
        command="python tests/bench/make_synthetic.py",
        ceilings={"hbm_read_tbs": 4.6, "copy_tbs": 4.2, "bf16_tflops": 600.0, "l2_read_tbs": 7.0},
        clocks={"samples": [], "dropped": False},
        failures=[
            {"kernel": "warp-splitk", "n": 3584, "k": 7168, "m": 8, "tactic": "32,8,256,2,1", "mode": "chained",
             "weights": "cold", "reason": "made up, to show how a failure is recorded"}
        ],
        complete=True,
    )  # fmt: skip
    writer = CampaignWriter(FOLDER, campaign)

    def add(point: Point, microseconds: float, error: float, size: int) -> None:
        writer.add(point, [microseconds * rng.uniform(1.0, 1.02) for _ in range(SAMPLES)], error, size)

    for n, k in SHAPES:
        weight_bytes = GemmProblem(1, n, k).weight_bytes
        for mode, launch in (("isolated", 1.9), ("chained", 0.2)):
            stream = weight_bytes / 4.5e6 + launch
            add(Point("stream", n, k, 0, "132x12x16384", mode), stream, float("nan"), weight_bytes)
            for m in MS:
                problem = GemmProblem(m, n, k)
                for tactic in _tactics(problem, h200):
                    depth = 1 + 0.5 / tactic.stages
                    tokens = m * (0.04 + 0.01 * (tactic.output_tile == 16))
                    add(
                        Point("warp-splitk", n, k, m, str(tactic), mode),
                        stream * depth + tokens + 0.8,
                        1.7e-3,
                        problem.bytes,
                    )
                add(Point("cublas", n, k, m, "", mode), stream * 1.4 + 2, 1.7e-3, problem.bytes)
        add(Point("dependency-floor", n, k, 1, str(n // 16), "chained"), 1.0 + n / 16000, float("nan"), 2 * k)
    writer.save()


def _tactics(problem: GemmProblem, h200) -> list:
    start = tactics.KERNELS["warp-splitk"].heuristic(problem, h200)
    near = [
        tactic
        for tactic in tactics.KERNELS["warp-splitk"].enumerate(problem, h200)
        if (tactic.token_tile, tactic.b_loader_warps) == (start.token_tile, start.b_loader_warps)
        and (tactic.k_tile, tactic.trigger) == (start.k_tile, start.trigger)
        and tactic.stages in (2, 4, 6)
    ]
    return list(dict.fromkeys([start, *near]))


if __name__ == "__main__":
    main()
