"""Rigs for a spawned process, without GPU and PyTorch: what a task does is written in its tactic.

`python -m tests.support.fake_rig FOLDER [resume]` runs a campaign of slow points on it, to be interrupted.
"""

import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from skinny_gemm.bench import campaign
from skinny_gemm.bench.task import Measurement, Task
from skinny_gemm.bench.worker import Worker
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter

SLOW_S = 0.05
TASKS = [Task.of("warp-splitk", GemmProblem(1 + i, 64, 1024), "slow") for i in range(200)]


def with_tactic(task: Task, tactic: str) -> Task:
    return Task(replace(task.point, tactic=tactic), task.problem)


class FakeRig:
    """Notes in `log` the id and the state of each process that starts and the points that were measured."""

    def __init__(self, log: Path, process: str):
        if log.name == "refused":
            raise RuntimeError("no GPU today")
        self.log, self.clock_samples, self.dead = log, [], False
        self._note(f"start {os.getpid()} {process}")

    def describe(self):
        return {"gpu": "fake", "driver": "", "cuda": "", "torch": "", "dsl": ""}

    def measure(self, task):
        point = task.point
        self._note(f"measure {point.m} {point.tactic}")
        if point.tactic == "hang":
            time.sleep(1000)
        if point.tactic == "crash":
            os._exit(3)
        if point.tactic == "segfault":
            os.kill(os.getpid(), 11)
        if point.tactic == "wrong":
            raise ValueError("wrong result: relative error 3.00e-01")
        if point.tactic == "illegal":
            self.dead = True
        if self.dead:
            raise RuntimeError("CUDA driver: CUDA_ERROR_ILLEGAL_ADDRESS")
        if point.tactic == "slow":
            time.sleep(SLOW_S)
        self.clock_samples.append({"when": "during", "sm_mhz": 1980, "throttle": [], "m": point.m})
        return Measurement([10.0 + 0.01 * i for i in range(12)], 0.0017, 1000)

    def screen(self, task):
        return None if task.point.tactic == "missing" else 10.0

    def ceilings(self):
        return {"hbm_read_tbs": 4.5}

    def sample_clocks(self, when):
        self.clock_samples.append({"when": when, "sm_mhz": 345, "throttle": []})

    def lost(self):
        return self.dead

    def _note(self, line: str) -> None:
        with self.log.open("a") as file:
            file.write(line + "\n")


class FakeGpu(FakeRig):
    """Made as a `Rig` is; the environment says where the log is and at which M a point hangs."""

    def __init__(self, device, shapes, seed, process):
        super().__init__(Path(os.environ["FAKE_LOG"]), process)

    def describe(self):
        return {**super().describe(), "board": os.environ["FAKE_BOARD"]}

    def measure(self, task):
        return super().measure(with_tactic(task, "hang") if str(task.point.m) == os.environ["FAKE_HANG"] else task)


def writer(folder: Path, resume: bool = False) -> CampaignWriter:
    meta = Campaign(
        id=folder.name, device="h200", gpu="fake", driver="", cuda="", torch="", dsl="", commit="abc", dirty=False,
        date="2026-01-01T00:00:00+00:00", command="bench",
    )  # fmt: skip
    return CampaignWriter(folder, meta, resume)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in a shell's background
    target, resume = Path(sys.argv[1]), sys.argv[2:] == ["resume"]
    with Worker(partial(FakeRig, target.parents[1] / "log")) as worker:
        campaign.run_campaign(writer(target, resume), TASKS, worker)
