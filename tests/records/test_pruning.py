"""What pruning costs.

Properties: the cost is that of the grid's best over all tactics' best, by a scan; only full sweeps are judged, each of
one process, and a tactic that failed in it counts as swept, one that the kernel did not have then as none; the text
counts what is within the target.
"""

import random
from dataclasses import replace

import pytest

from skinny_gemm import device, records
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Point, pruning
from skinny_gemm.tactics import WarpSplitKTactic
from tests.support.records import write

H200 = device.get("h200")
N, K, M = 64, 2048, 8
PROBLEM = GemmProblem(M, N, K)
ALL = [str(tactic) for tactic in WarpSplitKTactic.enumerate(PROBLEM, H200)]
COARSE = {str(tactic) for tactic in WarpSplitKTactic.coarse(PROBLEM, H200)}


def sweep(root, tactics=ALL, seed=0):
    rng = random.Random(seed)
    folder = write(root, "2026-01-01", {Point("warp-splitk", N, K, M, t): rng.uniform(4, 5) for t in tactics})
    return folder, records.store.read_rows(folder / "records.csv")


@pytest.mark.parametrize("seed", range(3))
def test_the_cost_is_that_of_a_scan(tmp_path, seed):
    folder, rows = sweep(tmp_path, seed=seed)
    (found,) = pruning.costs_of(records.load_campaign(folder), rows)
    times = {row.tactic: row.median_us for row in rows}
    assert found.best.median_us == min(times.values()) and found.tactics == len(ALL)
    assert found.coarse.median_us == min(times[tactic] for tactic in COARSE) and found.tried == len(COARSE)
    assert found.cost == pytest.approx(found.coarse.median_us / found.best.median_us - 1) and found.cost >= 0


def test_half_a_sweep_is_not_judged_but_a_failed_tactic_is_swept(tmp_path):
    missing = next(tactic for tactic in ALL if tactic not in COARSE)
    folder, rows = sweep(tmp_path, [tactic for tactic in ALL if tactic != missing])
    campaign = records.load_campaign(folder)
    assert pruning.costs_of(campaign, rows) == []

    def failed(m):
        return replace(campaign, failures=[vars(Point("warp-splitk", N, K, m, missing))])

    (found,) = pruning.costs_of(failed(M), rows)
    assert found.tactics == len(ALL) - 1
    assert pruning.costs_of(failed(M + 1), rows) == []
    assert pruning.costs_of(failed(M), [replace(row, process="busy") for row in rows]) == []


def test_half_a_sweep_in_each_process_is_no_sweep(tmp_path):
    folder, rows = sweep(tmp_path)
    campaign, busy = records.load_campaign(folder), [replace(row, process="busy", median_us=9.0) for row in rows]
    half = len(rows) // 2
    assert pruning.costs_of(campaign, [*rows[:half], *busy[half:]]) == []
    assert [cost.best.process for cost in pruning.costs_of(campaign, [*rows, *busy])] == ["quiet", "busy"]


def test_a_sweep_of_before_the_last_field_is_judged_by_what_there_was(tmp_path):
    before = [tactic for tactic in ALL if WarpSplitKTactic.parse(tactic).trigger == 0]
    folder, rows = sweep(tmp_path, before)
    campaign = records.load_campaign(folder)
    (found,) = pruning.costs_of(campaign, rows)
    assert found.tactics == len(before) == len(ALL) / 2 and found.tried == len(COARSE & {*before}) < len(COARSE)
    assert pruning.costs_of(campaign, rows[1:]) == [], "one of those is missing"


def test_the_summary_says_how_many_are_within_the_target(tmp_path):
    folder, rows = sweep(tmp_path)
    (found,) = costs = pruning.costs_of(records.load_campaign(folder), rows)
    *_, line, last = pruning.lines(costs)
    assert found.coarse.tactic in line and f"{found.cost:.1%}" in line and line.endswith(str(found.verdict))
    assert last.startswith(f"{int(found.cost <= 0.02)} of 1 problems within 2% of the best")
    assert pruning.lines([]) == ["no problem was swept in full: measure with --tactics full"]
