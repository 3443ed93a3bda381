"""Planning and running a campaign, with a fake machine.

Properties: a plan holds every problem once, with tactics that are legal and near the default; an interrupt, a crash or
a full budget loses nothing and a resumed run measures exactly the rest; one failure stays one failure; bad arguments
and a host without a GPU are one sentence.
"""

import math
from dataclasses import replace

import pytest

from skinny_gemm import device, records
from skinny_gemm.bench import campaign
from skinny_gemm.bench.machine import Measurement
from skinny_gemm.bench.worker import Failed
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter, Point
from skinny_gemm.tactics import KERNELS, Tactic, WarpSplitKTactic, WsGemmTactic, sweep

H200 = device.get("h200")


class FakeMachine:
    """Answers instantly; `faults` maps a point to the exception that measuring it raises."""

    def __init__(self, faults=None):
        self.faults = faults or {}
        self.measured, self.clock_samples, self.ceilings_measured = [], [], 0

    def measure(self, point):
        if point in self.faults:
            raise self.faults[point]
        self.measured.append(point)
        error = math.nan if point.kernel in records.BOUNDS else 0.0017
        return Measurement([10.0 + 0.01 * i for i in range(25)], error, 1000)

    def ceilings(self):
        self.ceilings_measured += 1
        return {"hbm_read_tbs": 4.5}

    def sample_clocks(self, when):
        self.clock_samples.append({"when": when, "sm_mhz": 1980, "throttle": []})


@pytest.fixture
def points():
    found, _ = campaign.plan("warp-splitk", [(2112, 7168), (896, 7168)], [1, 8], H200, peers=["cublas"], bounds=True)
    return found


def writer(tmp_path, resume=False):
    meta = Campaign(
        id="c1", device="h200", gpu="fake", driver="", cuda="", torch="", dsl="", commit="abc", dirty=False,
        date="2026-01-01T00:00:00+00:00", command="bench",
    )  # fmt: skip
    return CampaignWriter(tmp_path / "campaigns" / "c1", meta, resume)


def recorded(tmp_path):
    return [records.Record(**row).point for row in records.load(tmp_path).to_dict("records")]


def test_a_campaign_measures_every_point_once_in_order(tmp_path, points):
    machine = FakeMachine()
    campaign.run_campaign(writer(tmp_path), points, machine, ceilings=True)
    assert machine.measured == points == recorded(tmp_path)
    done = records.campaigns(tmp_path)["c1"]
    assert done.complete and done.ceilings == {"hbm_read_tbs": 4.5} and not done.failures
    assert [sample["when"] for sample in done.clocks["samples"]] == ["before", "after"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_keeps_what_it_has_and_resume_does_the_rest(tmp_path, points, stop):
    machine = FakeMachine({points[len(points) // 2]: stop()})
    with pytest.raises(stop):
        campaign.run_campaign(writer(tmp_path), points, machine, ceilings=True)
    assert recorded(tmp_path) == machine.measured and not records.campaigns(tmp_path)["c1"].complete
    rest = FakeMachine()
    campaign.run_campaign(writer(tmp_path, resume=True), points, rest, ceilings=True)
    assert machine.measured + rest.measured == points == recorded(tmp_path)
    assert rest.ceilings_measured == 0 and records.campaigns(tmp_path)["c1"].complete


def test_failures_are_recorded_in_words_and_cost_only_their_point(tmp_path, points):
    machine = FakeMachine({points[3]: Failed("wrong result: 0.3")})
    wrong = {points[5]: "does not compile: no luck"}
    campaign.run_campaign(writer(tmp_path), points, machine, lambda points, progress: wrong)
    assert recorded(tmp_path) == [p for i, p in enumerate(points) if i not in (3, 5)]
    failures = {records.failed_point(f): f["reason"] for f in records.campaigns(tmp_path)["c1"].failures}
    assert failures == {points[3]: "wrong result: 0.3", points[5]: "does not compile: no luck"}


def test_a_machine_that_is_lost_for_good_stops_the_run_and_blames_no_point(tmp_path, points):
    machine = FakeMachine({points[4]: RuntimeError("The measuring process does not start: no GPU")})
    with pytest.raises(RuntimeError, match="does not start"):
        campaign.run_campaign(writer(tmp_path), points, machine)
    assert recorded(tmp_path) == points[:4]
    rest = FakeMachine()
    campaign.run_campaign(writer(tmp_path, resume=True), points, rest)
    assert rest.measured == points[4:] and not records.campaigns(tmp_path)["c1"].failures


def test_ceilings_that_fail_are_noted_and_cost_nothing_else(tmp_path, points):
    class NoCeilings(FakeMachine):
        def ceilings(self):
            raise Failed("RuntimeError: out of memory")

    campaign.run_campaign(writer(tmp_path), points, NoCeilings(), ceilings=True)
    assert recorded(tmp_path) == points
    assert records.campaigns(tmp_path)["c1"].method["ceilings_failed"] == "RuntimeError: out of memory"


def test_the_budget_ends_a_run_incomplete(tmp_path, points):
    clock = iter(range(1000))
    machine = FakeMachine()
    campaign.run_campaign(writer(tmp_path), points, machine, deadline=8, now=lambda: next(clock))
    assert 0 < len(machine.measured) < len(points) and recorded(tmp_path) == machine.measured
    assert not records.campaigns(tmp_path)["c1"].complete


def test_the_budget_ends_a_run_that_still_compiles(tmp_path, points):
    def compile_all(todo, progress):
        for done in range(100):
            progress("compile", done, 100)
            compiled.append(done)

    clock, compiled, machine = iter(range(1000)), [], FakeMachine()
    campaign.run_campaign(writer(tmp_path), points, machine, compile_all, deadline=8, now=lambda: next(clock))
    assert 0 < len(compiled) < 100 and machine.measured == []
    assert not records.campaigns(tmp_path)["c1"].complete


def test_rows_are_saved_while_the_campaign_runs(tmp_path, points):
    """What a SIGKILL would leave: the files as they are seen from inside a measurement."""
    seen = []

    class Watching(FakeMachine):
        def measure(self, point):
            seen.append(len(recorded(tmp_path)))
            return super().measure(point)

    clock = iter(range(0, 100000, 6))  # every look at the clock is more than SAVE_EVERY_S later
    campaign.run_campaign(writer(tmp_path), points, Watching(), now=lambda: next(clock))
    assert seen == list(range(len(points)))


def test_a_plan_has_no_duplicates_and_only_legal_tactics():
    every = [(shape.n, shape.k) for shape in shapes() if shape.parallel == "TP8"]
    points, left_out = campaign.plan(
        "warp-splitk", every, campaign.MS, H200, "coarse", peers=["cublas", "triton"], bounds=True
    )
    assert len(points) == len(set(points))
    measured = {(p.n, p.k, p.m) for p in points if p.kernel == "warp-splitk"}
    for n, k in set(every):
        for m in campaign.MS:
            assert ((n, k, m) in measured) != any(s.startswith(f"{n}x{k} M={m}:") for s in left_out)
    for point in points:
        if point.kernel == "warp-splitk":
            tactic = KERNELS["warp-splitk"].parse(point.tactic)
            assert tactic.why_not(GemmProblem(point.m, point.n, point.k), H200) is None
    order = list(dict.fromkeys((p.n, p.k) for p in points))
    assert [(p.n, p.k) for p in points] == sorted(((p.n, p.k) for p in points), key=order.index)  # shape by shape


def test_the_coarse_grid_is_small_and_contains_the_default():
    for shape in shapes():
        for m in campaign.MS:
            problem = GemmProblem(m, shape.n, shape.k)
            try:
                default = KERNELS["warp-splitk"].default(problem, H200)
            except ValueError:
                continue
            grid = sweep.select("warp-splitk", problem, H200, "coarse")
            assert default in grid and len(grid) <= (15 if m <= 16 else 32) and len(set(grid)) == len(grid)


@pytest.mark.parametrize(("n", "k"), [(560, 7168), (288, 7168)])
@pytest.mark.parametrize("m", campaign.MS)
def test_the_coarse_grid_of_a_front_is_small_and_varied(n, k, m):
    problem = WsGemmTactic.problem(GemmProblem(m, n, k))
    grid, start = WsGemmTactic.coarse(problem, H200), WsGemmTactic.heuristic(problem, H200)
    assert start in grid and 20 <= len(grid) <= 80 and len(set(grid)) == len(grid)
    assert all(tactic.why_not(problem, H200) is None for tactic in grid)
    around = [tactic for tactic in grid if tactic != start]
    assert {7, 14} <= {tactic.blocks(problem) for tactic in around}
    assert len({tactic.ks for tactic in around}) >= 4 and len({tactic.rt for tactic in around}) == 2
    assert {tactic.tg for tactic in around} > {0} and all(m <= 4 * tactic.tg for tactic in around if tactic.tg)
    for tactic in around:
        if tactic.staged:
            assert replace(tactic, staged=tactic.staged - 1).why_not(problem, H200), "registers would have held it"
    assert sweep.select("ws-gemm", problem, H200, "coarse")[0] == WsGemmTactic.default(problem, H200)


def test_a_campaign_of_a_front_has_its_rivals_beside_it():
    points, left_out = campaign.plan(
        "ws-gemm", [(560, 7168)], [8, 64], H200, "coarse", ["chained", "exposed"], ["cublas", "triton"], bounds=True
    )
    split_k = KERNELS["warp-splitk"].default(GemmProblem(8, 560, 7168), H200)
    assert [p for p in points if p.kernel == "warp-splitk"] == [
        Point("warp-splitk", 560, 7168, 8, str(split_k), mode) for mode in ("chained", "exposed")
    ]
    assert left_out == ["warp-splitk 560x7168 M=64: 560x7168 at M = 64: M is 64, but this kernel takes 1 to 32 tokens"]
    assert {p.m for p in points if p.kernel in ("ws-gemm", "cublas", "triton") and p.mode == "exposed"} == {8, 64}
    assert {p.mode for p in points if p.kernel in records.BOUNDS} == {"chained"}, "nothing of a bound is exposed"
    assert all(p.kernel != "ws-gemm" for p in campaign.plan("warp-splitk", [(560, 7168)], [8], H200)[0])


def test_a_mode_can_be_of_the_default_tactic_only():
    problem = GemmProblem(8, 3584, 7168)
    arguments = "warp-splitk", [(3584, 7168)], [8], H200, "coarse"
    points, _ = campaign.plan(*arguments, ["isolated:default", "chained"], ["cublas"], bounds=True)
    ours = [p for p in points if p.kernel == "warp-splitk"]
    default = str(KERNELS["warp-splitk"].default(problem, H200))
    assert [p.tactic for p in ours if p.mode == "isolated"] == [default]
    everywhere, _ = campaign.plan(*arguments, ["chained"], ["cublas"], bounds=True)
    assert [p for p in points if p.mode == "chained"] == [p for p in everywhere if p.mode == "chained"]
    for kernel in ("cublas", "stream"):
        assert {p.mode for p in points if p.kernel == kernel} == {"isolated", "chained"}, "rivals stand beside ours"
    with pytest.raises(ValueError, match="mode is 'isolated:best'"):
        campaign.plan(*arguments, ["isolated:best"])


def test_a_full_sweep_is_every_legal_tactic_or_a_sentence():
    points, _ = campaign.plan("warp-splitk", [(3584, 7168)], [8], H200, "full", ["chained"])
    legal = KERNELS["warp-splitk"].enumerate(GemmProblem(8, 3584, 7168), H200)
    assert sorted(p.tactic for p in points) == sorted(map(str, legal))
    points, left_out = campaign.plan("ws-gemm", [(560, 7168)], [8], H200, "full", ["chained"])
    assert points == [] and "ws-gemm has 4,782 tactics" in left_out[0] and "choose 'coarse'" in left_out[0]


def test_the_coarse_grid_does_not_follow_the_records(monkeypatch, tmp_path):
    """Else a sweep would look for the best around what it found before, and pruning would seem to cost nothing."""
    problem = GemmProblem(8, 3584, 7168)
    before = WarpSplitKTactic.coarse(problem, H200)
    odd = "16,32,128,2,1"
    monkeypatch.setattr(KERNELS["warp-splitk"], "default", lambda problem, device: WarpSplitKTactic.parse(odd))
    assert WarpSplitKTactic.coarse(problem, H200) == before and odd not in map(str, before)
    assert str(sweep.select("warp-splitk", problem, H200, "coarse")[0]) == odd


def test_exposed_launches_are_measured_where_they_are_asked_for():
    points, _ = campaign.plan("ws-gemm", [(560, 7168)], [8], H200)
    assert {p.mode for p in points} == {"isolated", "chained"}


def test_a_kernel_without_a_grid_gets_the_neighbours_of_its_default():
    problem = GemmProblem(8, 2112, 7168)
    default = KERNELS["warp-splitk"].default(problem, H200)
    neighbours = Tactic.variations(default, problem, H200)
    assert len(neighbours) > 5 and all(tactic.why_not(problem, H200) is None for tactic in neighbours)
    for tactic in neighbours:
        assert sum(a != b for a, b in zip(str(tactic).split(","), str(default).split(","), strict=True)) <= 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kernel": "nope"}, "unknown kernel 'nope'"),
        ({"modes": ["warm"]}, "mode is 'warm', but must be one of isolated, chained, exposed"),
        ({"peers": ["mkl"]}, "peer is 'mkl'"),
        ({"weights": "hot"}, "weights is 'hot', but must be one of cold, warm"),
        ({"tactics": "all"}, "tactics is 'all', but must be 'default', 'coarse', 'full' or a list of tactics"),
        ({"tactics": ["16,8"]}, "16,8"),
        ({"ms": [0]}, "m is 0"),
    ],
)
def test_bad_arguments_are_one_sentence(change, complaint):
    arguments = {"kernel": "warp-splitk", "shapes": [(2112, 7168)], "ms": [1], "device": H200}
    with pytest.raises(ValueError, match=complaint):
        campaign.plan(**{**arguments, **change})


def test_an_unsupported_shape_is_left_out_with_its_reason():
    points, left_out = campaign.plan("warp-splitk", [(7168, 2112), (128, 2880)], [1], H200, bounds=True)
    assert points == [] and all("K = " in sentence for sentence in left_out) and len(left_out) == 2


def test_bench_without_a_gpu_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "current", lambda: None)
    with pytest.raises(ValueError, match="no CUDA GPU is visible"):
        campaign.bench("warp-splitk", [(2112, 7168)], out=tmp_path / "c")
    with pytest.raises(ValueError, match="name the campaign's folder"):
        campaign.bench("warp-splitk", [(2112, 7168)], resume=True)
    with pytest.raises(ValueError, match="limit for a point is 0 seconds"):
        campaign.bench("warp-splitk", [(2112, 7168)], out=tmp_path / "c", limit_s=0)


def test_bench_refuses_an_existing_folder_before_it_touches_the_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "current", lambda: H200)
    with pytest.raises(ValueError, match="never overwritten"):
        campaign.bench("warp-splitk", [(2112, 7168)], out=tmp_path, peers=False)


def test_the_commit_can_be_given_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv(campaign.COMMIT_VARIABLE, "abc-dirty")
    assert campaign.git_commit() == ("abc", True)
    monkeypatch.setenv(campaign.COMMIT_VARIABLE, "abc")
    assert campaign.git_commit() == ("abc", False)


def test_a_dropped_clock_flags_the_campaign():
    from skinny_gemm.bench.clocks import summary

    def sample(mhz, when="during", throttle=()):
        return {"when": when, "sm_mhz": mhz, "throttle": list(throttle)}

    assert not summary([sample(345, "before"), sample(1980), sample(1965)])["dropped"]
    slow = summary([sample(1980), sample(1700, throttle=["hardware slowdown"])])
    assert slow["dropped"] and slow["throttle"] == ["hardware slowdown"] and slow["sm_mhz_low"] == 1700
    assert summary([])["dropped"] is False


def test_point_reads_as_a_sentence():
    assert str(Point("warp-splitk", 64, 128, 8, "16,8,128,1,1")) == (
        "warp-splitk [16,8,128,1,1] 64x128 M=8 chained cold"
    )
