"""How long one step of a control takes, computing and drawing together; the aim is under 150 ms.

`python tests/explore/benchmark.py` prints the median and the slowest of a dozen steps in each direction.
"""

import statistics
import time

from skinny_gemm.explore import (
    GatherExplorer,
    PipelineExplorer,
    SettleExplorer,
    SwizzleExplorer,
    TacticExplorer,
    WeightStationaryExplorer,
)
from skinny_gemm.explore.tactic import SHOWN

STEPS = 12


def steps(name: str, control, values) -> None:
    """Times setting `control` to each of `values`."""
    control.value = values[0]
    wall, cpu = [], []
    for value in [*values[1 : STEPS + 1], *values[STEPS - 1 :: -1]]:
        before = time.perf_counter(), time.process_time()
        control.value = value
        wall.append(1e3 * (time.perf_counter() - before[0]))
        cpu.append(1e3 * (time.process_time() - before[1]))
    print(f"{name:34} {statistics.median(wall):7.0f} {max(wall):7.0f} {statistics.median(cpu):7.0f}")


def main() -> None:
    print(f"{'step, milliseconds':34} {'median':>7} {'slowest':>7} {'CPU':>7}")
    tactic, swizzle, pipeline = TacticExplorer(), SwizzleExplorer(), PipelineExplorer()
    for shown in SHOWN:
        tactic.shown.value = shown
        steps(f"{shown}: M", tactic.m, range(1, 14))
        tactic.m.value = 8
        steps(f"{shown}: stages", tactic.fields["stages"], range(2, 12))
    tactic.model.value = None
    tactic.n.value, tactic.k.value = 560, 7168
    tactic.kernel.value = "ws-gemm"
    for shown in SHOWN:
        tactic.shown.value = shown
        steps(f"{shown}, ws-gemm: M", tactic.m, range(5, 65, 5))
    tactic.shown.value, tactic.m.value = SHOWN[0], 8
    for name in ("rt", "kq", "ks", "staged", "tg"):
        steps(f"{SHOWN[0]}, ws-gemm: {name}", tactic.fields[name], tactic.fields[name].options)
    steps("swizzle explorer, lane", swizzle.lane, range(13))
    steps("pipeline explorer, time", pipeline.time, range(20, 85, 5))
    weights, gather, settle = WeightStationaryExplorer(), GatherExplorer(), SettleExplorer()
    gather.m.value = 32
    steps("weight-stationary explorer, lane", weights.lane, range(13))
    steps("weight-stationary, staged", weights.staged, [*range(8), *range(6, 0, -1)])
    steps("gather explorer, block", gather.block, [*range(8), *range(6, 0, -1)])
    steps("settle explorer, time", settle.time, range(20, 150, 10))


if __name__ == "__main__":
    main()
