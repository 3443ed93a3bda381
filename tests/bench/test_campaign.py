"""Running a campaign, with a fake rig.

Properties: every task is measured once, in order, the quiet process before the busy one; an interrupt, a crash or a
full budget loses nothing and a resumed run measures exactly the rest; one failure stays one failure; of many tactics
those that look fastest are measured, and the others are named; a host without a GPU fills the cache, and says in one
sentence that it does not measure; so is a folder that exists refused; the files on disk are what they were.
"""

import math
from dataclasses import replace

import pytest

from skinny_gemm import device, records
from skinny_gemm.bench import campaign
from skinny_gemm.bench.plan import Request, plan
from skinny_gemm.bench.task import Compilation, Measurement, Task
from skinny_gemm.bench.worker import Failed
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter

H200 = device.get("h200")
SMALL = Request("warp-splitk", [GemmProblem(1, 2112, 7168)])


class FakeRig:
    """Answers instantly; `faults` maps tasks to the exceptions that measuring them raises, `looks` to a brief look."""

    def __init__(self, faults=None, looks=None):
        self.faults, self.looks = faults or {}, looks or {}
        self.measured, self.clock_samples, self.ceilings_measured = [], [], 0
        self.process = "quiet"

    def enter(self, process):
        assert (self.process, process) != ("busy", "quiet"), "none becomes quiet again"
        self.process = process

    def measure(self, task):
        assert task.point.process == self.process
        if task in self.faults:
            raise self.faults[task]
        self.measured.append(task)
        error = math.nan if task.point.kernel in records.BOUNDS else 0.0017
        return Measurement([10.0 + 0.01 * i for i in range(25)], error, 1000)

    def screen(self, task):
        look = self.looks[task]
        if isinstance(look, Exception):
            raise look
        return look

    def ceilings(self):
        self.ceilings_measured += 1
        assert self.process == "quiet"
        return {"hbm_read_tbs": 4.5}

    def sample_clocks(self, when):
        self.clock_samples.append({"when": when, "sm_mhz": 1980, "throttle": []})


@pytest.fixture
def tasks():
    problems = [GemmProblem(1, n, 7168) for n in (2112, 896)]
    return plan(Request("warp-splitk", problems, [1, 8], peers=["cublas"], bounds=True), H200)[0]


def points_of(tasks):
    return [task.point for task in tasks]


def writer(tmp_path, resume=False):
    meta = Campaign(
        id="c1", device="h200", gpu="fake", driver="", cuda="", torch="", dsl="", commit="abc", dirty=False,
        date="2026-01-01T00:00:00+00:00", command="bench",
    )  # fmt: skip
    return CampaignWriter(tmp_path / "campaigns" / "c1", meta, resume)


def recorded(tmp_path):
    return [records.Record(**row).point for row in records.load(tmp_path).to_dict("records")]


def test_a_campaign_measures_every_point_once_in_order(tmp_path, tasks):
    rig = FakeRig()
    campaign.run_campaign(writer(tmp_path), tasks, rig, ceilings=True)
    assert rig.measured == tasks and recorded(tmp_path) == points_of(tasks)
    done = records.campaigns(tmp_path)["c1"]
    assert done.complete and done.ceilings == {"hbm_read_tbs": 4.5} and not done.failures
    assert [sample["when"] for sample in done.clocks["samples"]] == ["before", "after"]


def test_both_processes_are_measured_the_quiet_one_first(tmp_path, tasks):
    shown, rig = [], FakeRig()
    busy = [replace(task, point=replace(task.point, process="busy")) for task in tasks]
    campaign.run_campaign(
        writer(tmp_path), [*busy, *tasks], rig, ceilings=True, progress=lambda *told: shown.append(told)
    )
    assert rig.measured == [*tasks, *busy] and recorded(tmp_path) == points_of([*tasks, *busy])
    count = len(tasks)
    told = [(f"measure {process}", done + 1, count) for process in records.PROCESSES for done in range(count)]
    assert shown == told and rig.ceilings_measured == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_keeps_what_it_has_and_resume_does_the_rest(tmp_path, tasks, stop):
    rig = FakeRig({tasks[len(tasks) // 2]: stop()})
    with pytest.raises(stop):
        campaign.run_campaign(writer(tmp_path), tasks, rig, ceilings=True)
    assert recorded(tmp_path) == points_of(rig.measured) and not records.campaigns(tmp_path)["c1"].complete
    rest = FakeRig()
    campaign.run_campaign(writer(tmp_path, resume=True), tasks, rest, ceilings=True)
    assert rig.measured + rest.measured == tasks and recorded(tmp_path) == points_of(tasks)
    assert rest.ceilings_measured == 0 and records.campaigns(tmp_path)["c1"].complete


def test_failures_are_recorded_in_words_and_cost_only_their_point(tmp_path, tasks):
    rig = FakeRig({tasks[3]: Failed("wrong result: 0.3")})

    class Unlucky(Compilation):
        def wait(self, task):
            return "does not compile: no luck" if task == tasks[5] else None

    campaign.run_campaign(writer(tmp_path), tasks, rig, lambda todo: Unlucky("", ()))
    assert recorded(tmp_path) == [task.point for i, task in enumerate(tasks) if i not in (3, 5)]
    failures = {records.failed_point(f): f["reason"] for f in records.campaigns(tmp_path)["c1"].failures}
    assert failures == {tasks[3].point: "wrong result: 0.3", tasks[5].point: "does not compile: no luck"}


def test_a_machine_that_is_lost_for_good_stops_the_run_and_blames_no_point(tmp_path, tasks):
    rig = FakeRig({tasks[4]: RuntimeError("The measuring process does not start: no GPU")})
    with pytest.raises(RuntimeError, match="does not start"):
        campaign.run_campaign(writer(tmp_path), tasks, rig)
    assert recorded(tmp_path) == points_of(tasks[:4])
    rest = FakeRig()
    campaign.run_campaign(writer(tmp_path, resume=True), tasks, rest)
    assert rest.measured == tasks[4:] and not records.campaigns(tmp_path)["c1"].failures


def test_ceilings_that_fail_are_noted_and_cost_nothing_else(tmp_path, tasks):
    class NoCeilings(FakeRig):
        def ceilings(self):
            raise Failed("RuntimeError: out of memory")

    campaign.run_campaign(writer(tmp_path), tasks, NoCeilings(), ceilings=True)
    assert recorded(tmp_path) == points_of(tasks)
    assert records.campaigns(tmp_path)["c1"].method["ceilings_failed"] == "RuntimeError: out of memory"


@pytest.fixture
def proposals():
    """Eight tactics of a peer in two modes, and in front one point of ours."""
    problem = GemmProblem(8, 2112, 7168)
    ours = Task.of("warp-splitk", problem, "16,8,256,8,1")
    return [ours, *(Task.of("cublaslt", problem, i, mode) for i in range(8) for mode in ("isolated", "chained"))]


def test_of_many_tactics_those_that_look_fastest_are_measured_and_the_others_named(tmp_path, proposals):
    looks = {task: 10.0 - int(task.point.tactic) for task in proposals[1:]}  # the last is the fastest
    looks[proposals[-1]], looks[proposals[-3]] = Failed("wrong"), None  # chained: 7 fails, 6 is not there
    rig = FakeRig(looks=looks)
    campaign.run_campaign(writer(tmp_path), proposals, rig, most=2)
    chosen = [(task.point.kernel, task.point.tactic, task.point.mode) for task in rig.measured]
    assert chosen == [("warp-splitk", "16,8,256,8,1", "chained"), ("cublaslt", "4", "chained"),
                      ("cublaslt", "5", "chained"), ("cublaslt", "6", "isolated"), ("cublaslt", "6", "chained"),
                      ("cublaslt", "7", "isolated")]  # fmt: skip
    done = records.campaigns(tmp_path)["c1"]
    assert [failure["reason"] for failure in done.failures] == ["wrong"]
    out = done.method["screened_out"]
    assert len(out) == 6 + 4 and out["cublaslt [3] 2112x7168 M=8 isolated cold quiet"] == 7.0


def test_a_brief_look_is_taken_in_each_process(tmp_path, proposals):
    """The fastest of a quiet process look slowest in a busy one."""
    busy = [replace(task, point=replace(task.point, process="busy")) for task in proposals]
    looks = {task: float(task.point.tactic) for task in proposals[1:]}
    looks |= {task: 10.0 - float(task.point.tactic) for task in busy[1:]}
    rig = FakeRig(looks=looks)
    campaign.run_campaign(writer(tmp_path), [*proposals, *busy], rig, most=1)
    chosen = {(task.point.process, task.point.tactic) for task in rig.measured if task.point.kernel == "cublaslt"}
    slowest = max(proposals[1:], key=lambda task: int(task.point.tactic)).point.tactic
    assert chosen == {("quiet", "0"), ("busy", slowest)}


def test_a_resumed_campaign_keeps_its_choice(tmp_path, proposals):
    looks = {task: float(task.point.tactic) for task in proposals[1:]}
    rig = FakeRig({proposals[2]: KeyboardInterrupt()}, looks)
    with pytest.raises(KeyboardInterrupt):
        campaign.run_campaign(writer(tmp_path), proposals, rig, most=2)
    rest = FakeRig()  # has no looks to give
    campaign.run_campaign(writer(tmp_path, resume=True), proposals, rest, most=2)
    assert rig.measured + rest.measured == proposals[:5]


def test_a_tactic_that_is_not_there_leaves_no_trace(tmp_path, proposals):
    class Lacking(FakeRig):
        def measure(self, task):
            return None if task.point.kernel == "cublaslt" and int(task.point.tactic) > 2 else super().measure(task)

    campaign.run_campaign(writer(tmp_path), proposals, Lacking())
    assert recorded(tmp_path) == points_of(proposals[:7])
    done = records.campaigns(tmp_path)["c1"]
    assert done.complete and not done.failures and "screened_out" not in done.method


def test_the_budget_ends_a_run_incomplete(tmp_path, tasks):
    clock = iter(range(1000))
    rig = FakeRig()
    campaign.run_campaign(writer(tmp_path), tasks, rig, deadline=8, now=lambda: next(clock))
    assert 0 < len(rig.measured) < len(tasks) and recorded(tmp_path) == points_of(rig.measured)
    assert not records.campaigns(tmp_path)["c1"].complete


def test_what_is_compiled_is_measured_while_the_rest_compiles(tmp_path, tasks):
    compiled, rig = [], FakeRig()

    class Slow(Compilation):
        def wait(self, task):
            compiled.append(task)
            assert compiled[:-1] == rig.measured

    campaign.run_campaign(writer(tmp_path), tasks, rig, lambda todo: Slow("", ()))
    assert compiled == rig.measured == tasks


def test_rows_are_saved_while_the_campaign_runs(tmp_path, tasks):
    """What a SIGKILL would leave: the files as they are seen from inside a measurement."""
    seen = []

    class Watching(FakeRig):
        def measure(self, task):
            seen.append(len(recorded(tmp_path)))
            return super().measure(task)

    clock = iter(range(0, 100000, 6))  # every look at the clock is more than SAVE_EVERY_S later
    campaign.run_campaign(writer(tmp_path), tasks, Watching(), now=lambda: next(clock))
    assert seen == list(range(len(tasks)))


def test_bench_without_a_gpu_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "current", lambda: None)
    with pytest.raises(ValueError, match="no CUDA GPU is visible"):
        campaign.bench(SMALL, tmp_path / "c")
    with pytest.raises(ValueError, match="name the campaign's folder"):
        campaign.bench(SMALL, resume=True)
    with pytest.raises(ValueError, match="limit for a point is 0 seconds"):
        campaign.bench(SMALL, tmp_path / "c", limit_s=0)


def test_bench_refuses_an_existing_folder_before_it_touches_the_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "current", lambda: H200)
    with pytest.raises(ValueError, match="never overwritten"):
        campaign.bench(SMALL, tmp_path)


def test_the_cache_is_filled_for_a_device_without_one(monkeypatch, tmp_path):
    compiled = []

    def compile_all(arch, tasks, progress):
        compiled.append((arch, len(tasks)))
        return {tasks[0].point: "does not compile: no luck"}

    monkeypatch.setattr(device, "current", lambda: None)
    monkeypatch.setattr(campaign, "compile_all", compile_all)
    monkeypatch.setattr(campaign.peers, "available", lambda: dict.fromkeys(records.PEERS) | {"simt": "no file"})
    request = Request("warp-splitk", [GemmProblem(1, 2112, 7168), GemmProblem(1, 128, 2880)], [1], peers=["simt"])
    wrong, left_out = campaign.compile_only(request, H200)
    assert compiled == [("sm_90a", 2)] and list(wrong.values()) == ["does not compile: no luck"]
    assert left_out[0].startswith("128x2880 M=1: ") and left_out[1] == "simt: no file"
    with pytest.raises(ValueError, match="Nothing to measure"):
        campaign.compile_only(Request("warp-splitk", [GemmProblem(1, 128, 2880)], [1]), H200)
