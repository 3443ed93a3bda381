"""The measuring process, with a fake rig in it.

Properties: a point that hangs, crashes, or ruins the GPU context fails in words and costs no other point anything; one
process measures many points, but never quiet and busy ones; what cannot start stops the campaign and blames no point;
an interrupt keeps what was measured, leaves no process behind, and a resumed run measures exactly the rest.
"""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from skinny_gemm import device, records
from skinny_gemm.bench import campaign
from skinny_gemm.bench.plan import Request
from skinny_gemm.bench.task import Compilation
from skinny_gemm.bench.worker import Failed, Worker
from skinny_gemm.problem import GemmProblem
from tests.support.fake_rig import TASKS, FakeGpu, FakeRig, with_tactic, writer

ROOT = Path(__file__).resolve().parents[2]
GOOD = with_tactic(TASKS[0], "good")


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def starts(log):
    return [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("start")]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_process_measures_many_points_and_its_clocks_are_kept(log):
    with Worker(partial(FakeRig, log)) as worker:
        assert worker.describe()["gpu"] == "fake" and worker.ceilings() == {"hbm_read_tbs": 4.5}
        worker.sample_clocks("before")
        assert worker.screen(GOOD) == 10.0 and worker.screen(with_tactic(GOOD, "missing")) is None
        for m in (1, 2, 3):
            assert len(worker.measure(with_tactic(TASKS[m - 1], "good")).samples_us) == 12
        assert [sample.get("m") for sample in worker.clock_samples] == [None, 1, 2, 3]
    (pid,) = starts(log)
    assert pid != os.getpid() and not alive(pid)


def test_each_state_has_a_process_of_its_own_also_after_a_crash(log):
    with Worker(partial(FakeRig, log), process="quiet") as worker:
        for process in ("quiet", "quiet", "busy", "busy"):
            worker.enter(process)
            worker.measure(GOOD)
        with pytest.raises(Failed):
            worker.measure(with_tactic(GOOD, "crash"))
        worker.measure(GOOD)
    states = [line.split()[2] for line in log.read_text().splitlines() if line.startswith("start")]
    assert states == ["quiet", "busy", "busy"] and len(set(starts(log))) == 3 and not any(map(alive, starts(log)))


@pytest.mark.parametrize(
    ("tactic", "words", "fresh"),
    [
        ("hang", "no result after 2 s: killed", True),
        ("crash", "the measuring process ended with exit status 3", True),
        ("segfault", "the measuring process ended by SIGSEGV", True),
        ("illegal", "RuntimeError: CUDA driver: CUDA_ERROR_ILLEGAL_ADDRESS (the GPU context was lost)", True),
        ("wrong", "wrong result: relative error 3.00e-01", False),
    ],
)
def test_a_bad_point_fails_in_words_and_the_next_one_is_measured(log, tactic, words, fresh):
    with Worker(partial(FakeRig, log), limit_s=2) as worker:
        worker.measure(GOOD)
        with pytest.raises(Failed) as failed:
            worker.measure(with_tactic(GOOD, tactic))
        assert str(failed.value) == words
        assert worker.measure(GOOD).relative_error == 0.0017
        assert len(starts(log)) == 1 + fresh
        assert not fresh or not alive(starts(log)[0]), "what hangs must not disturb the measurements to come"


def test_a_campaign_goes_on_past_points_that_hang_and_crash(tmp_path, log):
    tasks = list(map(with_tactic, TASKS, ["good", "hang", "good", "crash", "good"]))
    with Worker(partial(FakeRig, log), limit_s=2) as worker:
        campaign.run_campaign(writer(tmp_path / "campaigns" / "c1"), tasks, worker, ceilings=True)
    done = records.campaigns(tmp_path)["c1"]
    assert done.complete and [row.m for row in records.rows(tmp_path)] == [1, 3, 5]
    assert [(f["m"], f["reason"]) for f in done.failures] == [
        (2, "no result after 2 s: killed"),
        (4, "the measuring process ended with exit status 3"),
    ]
    assert [sample["when"] for sample in done.clocks["samples"]] == ["before", *["during"] * 3, "after"]


def test_a_process_that_cannot_start_is_no_failure_of_a_point(tmp_path):
    with Worker(partial(FakeRig, tmp_path / "refused")) as worker:
        with pytest.raises(RuntimeError, match="measuring process does not start: RuntimeError: no GPU today"):
            campaign.run_campaign(writer(tmp_path / "campaigns" / "c1"), [GOOD], worker)
    done = records.campaigns(tmp_path)["c1"]
    assert not done.complete and not done.failures


def test_bench_from_its_arguments_to_the_records(tmp_path, log, monkeypatch):
    """Everything but the GPU: a hanging M is recorded as failed, a budget ends the run, a resume completes it."""
    monkeypatch.setattr(device, "current", lambda: device.get("h200"))
    monkeypatch.setattr(campaign, "make_rig", FakeGpu)
    monkeypatch.setattr(campaign, "Compilation", lambda arch, tasks: Compilation(arch, ()))
    for name, value in {"LOG": str(log), "HANG": "2", "BOARD": "GPU-1"}.items():
        monkeypatch.setenv(f"FAKE_{name}", value)
    folder = tmp_path / "campaigns" / "c1"
    request = Request("warp-splitk", [GemmProblem(1, 64, 1024)], [1, 2, 4], modes=["chained"])
    campaign.bench(request, folder, seconds_budget=1e-9, limit_s=2)
    assert not records.campaigns(tmp_path)["c1"].complete and records.rows(tmp_path) == []
    with pytest.raises(ValueError, match="never overwritten"):
        campaign.bench(request, folder, limit_s=2)
    monkeypatch.setenv("FAKE_BOARD", "GPU-2")
    assert campaign.bench(request, folder, resume=True, limit_s=2) == folder
    done = records.campaigns(tmp_path)["c1"]
    assert done.complete and [row.m for row in records.rows(tmp_path)] == [1, 4]
    assert [(f["m"], f["reason"]) for f in done.failures] == [(2, "no result after 2 s: killed")]
    assert done.board == "GPU-1 GPU-2" and len(done.method["seeds"]) == 2 and done.method["limit_s"] == 2
    assert list(done.method["processes"]) == ["quiet"] and not any(map(alive, starts(log)))


def test_bench_in_both_processes_interrupted_in_the_second_and_resumed(tmp_path, log, monkeypatch):
    monkeypatch.setattr(device, "current", lambda: device.get("h200"))
    monkeypatch.setattr(campaign, "make_rig", FakeGpu)
    monkeypatch.setattr(campaign, "Compilation", lambda arch, tasks: Compilation(arch, ()))
    for name, value in {"LOG": str(log), "HANG": "", "BOARD": "GPU-1"}.items():
        monkeypatch.setenv(f"FAKE_{name}", value)
    folder = tmp_path / "campaigns" / "c1"
    request = Request("warp-splitk", [GemmProblem(1, 64, 1024)], [1, 2], modes=["chained"], processes=["busy", "quiet"])

    def interrupt(*told):
        if told == ("measure busy", 1, 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        campaign.bench(request, folder, progress=interrupt)
    assert [(row.process, row.m) for row in records.rows(tmp_path)] == [("quiet", 1), ("quiet", 2), ("busy", 1)]
    campaign.bench(request, folder, resume=True)
    done = records.campaigns(tmp_path)["c1"]
    assert done.complete and [(row.process, row.m) for row in records.rows(tmp_path)][3:] == [("busy", 2)]
    assert set(done.method["processes"]) == {"quiet", "busy"} and "8 more streams" in done.method["processes"]["busy"]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [words[2] for words in lines if words[0] == "start"] == ["quiet", "busy", "quiet", "busy"]
    assert [words[1] for words in lines if words[0] == "measure"] == ["1", "2", "1", "2"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_was_measured_and_resume_does_the_rest(tmp_path, log, stop):
    """The signal reaches the whole process group, as Ctrl-C does."""
    folder = tmp_path / "campaigns" / "c1"
    command = [sys.executable, "-m", "tests.support.fake_rig", str(folder)]
    first = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE)
    wait_until(lambda: log.exists() and log.read_text().count("measure") >= 5)
    os.killpg(first.pid, stop)
    _, said = first.communicate(timeout=60)
    assert first.returncode != 0 and said.count(b"Traceback") <= 1, "the worker leaves the interrupt to the campaign"
    wait_until(lambda: not any(map(alive, starts(log))))
    began = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("measure")]
    kept = [row.m for row in records.rows(tmp_path)]
    assert kept == began[: len(kept)] and not records.campaigns(tmp_path)["c1"].complete
    if stop == signal.SIGINT:
        assert 4 <= len(kept) >= len(began) - 1, "all but the one that was being measured"
    rest = TASKS[: len(began) + 3]
    with Worker(partial(FakeRig, log)) as worker:
        campaign.run_campaign(writer(folder, resume=True), rest, worker)
    assert [row.m for row in records.rows(tmp_path)] == [task.point.m for task in rest]
    assert (
        list(records.store.samples("c1", tmp_path)) == [task.point for task in rest]
        and records.campaigns(tmp_path)["c1"].complete
    )


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
