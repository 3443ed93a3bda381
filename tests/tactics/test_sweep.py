"""The tactics that a sweep tries.

Properties: a grid is small, legal, varied and holds the default; it does not follow what was recorded.
"""

from dataclasses import astuple, replace

import pytest

from skinny_gemm import device
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import KERNELS, Tactic, WarpSplitKTactic, WsGemmTactic, sweep

H200 = device.get("h200")
MS = (1, 2, 4, 8, 16, 32, 64)


def test_the_coarse_grid_is_small_and_contains_the_default():
    for shape in shapes():
        for m in MS:
            problem = GemmProblem(m, shape.n, shape.k)
            try:
                default = KERNELS["warp-splitk"].default(problem, H200)
            except ValueError:
                continue
            grid = sweep.select("warp-splitk", problem, H200, "coarse")
            assert default in grid and len(grid) <= (24 if m <= 16 else 36) and len(set(grid)) == len(grid)


@pytest.mark.parametrize(
    ("problem", "late"),
    [
        (GemmProblem(8, 2112, 7168), ["16,8,256,16,2,1"]),  # 132 CTAs
        (GemmProblem(8, 2304, 1536), ["32,8,256,6,2,1", "16,8,256,4,2,1", "16,8,256,6,2,1"]),  # 72, or 144
    ],
)
def test_the_coarse_grid_tries_the_late_trigger_once_or_where_launches_crowd_each_other(problem, late):
    grid = WarpSplitKTactic.coarse(problem, H200)
    assert [str(tactic) for tactic in grid if tactic.trigger] == late
    first = {tactic for tactic in grid if not tactic.trigger}
    assert {replace(tactic, trigger=0) for tactic in grid} == first, "each is compared with the early one"


@pytest.mark.parametrize(("n", "k"), [(560, 7168), (288, 7168)])
@pytest.mark.parametrize("m", MS)
def test_the_coarse_grid_of_a_front_is_small_and_varied(n, k, m):
    problem = WsGemmTactic.problem(GemmProblem(m, n, k))
    grid, start = WsGemmTactic.coarse(problem, H200), WsGemmTactic.heuristic(problem, H200)
    assert start in grid and 20 <= len(grid) <= 160 and len(set(grid)) == len(grid)
    assert all(tactic.why_not(problem, H200) is None for tactic in grid)
    around = [tactic for tactic in grid if tactic != start]
    assert {7, 14} <= {tactic.blocks(problem) for tactic in around}
    assert len({tactic.ks for tactic in around}) >= 4 and len({tactic.rt for tactic in around}) == 2
    assert {tactic.tg for tactic in around} > {0} and all(m <= 4 * tactic.tg for tactic in around if tactic.tg)
    for tactic in around:
        if tactic.staged:
            assert replace(tactic, staged=tactic.staged - 1).why_not(problem, H200), "registers would have held it"
    assert sweep.select("ws-gemm", problem, H200, "coarse")[0] == WsGemmTactic.default(problem, H200)


def test_the_coarse_grid_does_not_follow_the_records(monkeypatch, tmp_path):
    """Else a sweep would look for the best around what it found before, and pruning would seem to cost nothing."""
    problem = GemmProblem(8, 3584, 7168)
    before = WarpSplitKTactic.coarse(problem, H200)
    odd = "16,32,128,2,1"
    monkeypatch.setattr(KERNELS["warp-splitk"], "default", lambda problem, device: WarpSplitKTactic.parse(odd))
    assert WarpSplitKTactic.coarse(problem, H200) == before and odd not in map(str, before)
    assert str(sweep.select("warp-splitk", problem, H200, "coarse")[0]) == odd


def test_a_kernel_without_a_grid_gets_the_neighbours_of_its_default():
    problem = GemmProblem(8, 2112, 7168)
    default = KERNELS["warp-splitk"].default(problem, H200)
    neighbours = Tactic.variations(default, problem, H200)
    assert len(neighbours) > 5 and all(tactic.why_not(problem, H200) is None for tactic in neighbours)
    for tactic in neighbours:
        assert sum(a != b for a, b in zip(astuple(tactic), astuple(default), strict=True)) <= 1
