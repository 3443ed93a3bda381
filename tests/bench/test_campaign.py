"""Running a campaign, with a fake rig.

Properties: every task is measured once, in order, the quiet process before the busy one; an interrupt, a crash or a
full budget loses nothing and a resumed run measures exactly the rest; one failure stays one failure; a host without a
GPU and a folder that exists are one sentence; the files on disk are what they were.
"""

import math
from dataclasses import replace

import pytest

from skinny_gemm import device, records
from skinny_gemm.bench import campaign
from skinny_gemm.bench.plan import Request, plan
from skinny_gemm.bench.task import Measurement
from skinny_gemm.bench.worker import Failed
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter

H200 = device.get("h200")
SMALL = Request("warp-splitk", [GemmProblem(1, 2112, 7168)])


class FakeRig:
    """Answers instantly; `faults` maps a task to the exception that measuring it raises."""

    def __init__(self, faults=None):
        self.faults = faults or {}
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
    wrong = {tasks[5].point: "does not compile: no luck"}
    campaign.run_campaign(writer(tmp_path), tasks, rig, lambda tasks, progress: wrong)
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


def test_the_budget_ends_a_run_incomplete(tmp_path, tasks):
    clock = iter(range(1000))
    rig = FakeRig()
    campaign.run_campaign(writer(tmp_path), tasks, rig, deadline=8, now=lambda: next(clock))
    assert 0 < len(rig.measured) < len(tasks) and recorded(tmp_path) == points_of(rig.measured)
    assert not records.campaigns(tmp_path)["c1"].complete


def test_the_budget_ends_a_run_that_still_compiles(tmp_path, tasks):
    def compile_all(todo, progress):
        for done in range(100):
            progress("compile", done, 100)
            compiled.append(done)

    clock, compiled, rig = iter(range(1000)), [], FakeRig()
    campaign.run_campaign(writer(tmp_path), tasks, rig, compile_all, deadline=8, now=lambda: next(clock))
    assert 0 < len(compiled) < 100 and rig.measured == []
    assert not records.campaigns(tmp_path)["c1"].complete


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
