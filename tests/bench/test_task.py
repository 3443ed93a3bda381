"""Compiling tasks before they are measured.

Property: one binary for all points that share it; what does not compile says so for every point that needs it.
"""

from concurrent.futures import Future
from dataclasses import replace

import pytest

from skinny_gemm.bench import task as module
from skinny_gemm.bench.task import Task
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.records import MODES

N, K = 64, 256
TACTIC, FRONT_TACTIC = "16,8,128,2,1", "1,2,2,0,0,1"
FRONT = FrontProblem(1, N, K, split=16, valid=12, latent=2 * (N - 16), experts=24)  # one of two ranks


def test_an_exit_does_not_wait_for_what_has_not_begun(monkeypatch):
    """An interrupt of the block among others: what no process has taken is cancelled."""

    class Idle:
        def __init__(self, *_, **__):
            self.futures = []

        def submit(self, *_):
            self.futures.append(Future())
            return self.futures[-1]

        def shutdown(self, cancel_futures):
            assert cancel_futures and [future.cancel() for future in self.futures] == [True] * 4

    monkeypatch.setattr(module, "ProcessPoolExecutor", Idle)
    tasks = [Task.of("warp-splitk", GemmProblem(1, 16 * n, K), TACTIC) for n in range(1, 5)]
    with pytest.raises(KeyboardInterrupt), module.Compilation("sm_90a", tasks) as compilation:
        raise KeyboardInterrupt
    assert all(future.cancelled() for future in compilation._futures.values())


def test_compilation_is_shared_by_ms_and_modes_and_its_failure_reaches_every_point(monkeypatch):
    class InProcess:
        def __init__(self, workers, mp_context, initializer, initargs):
            pass

        def submit(self, function, *arguments):
            future = Future()
            try:
                future.set_result(function(*arguments))
            except ValueError as error:
                future.set_exception(error)
            return future

        def shutdown(self, **_):
            pass

    compiled = []

    def compile_one(task, arch):
        compiled.append((task.point.tactic, task.problem, arch))
        if task.point.tactic == "32,8,128,2,1":
            raise ValueError("the assembler refused")
        return "binary"

    monkeypatch.setenv("SKINNY_GEMM_SIMT", __file__)  # any file: its content is all that is looked at
    monkeypatch.setattr(module, "ProcessPoolExecutor", InProcess)
    monkeypatch.setattr(module, "compile_task", compile_one)
    plain, fronts = [GemmProblem(m, N, K) for m in (1, 8)], [replace(FRONT, m=m) for m in (1, 8)]
    good = [Task.of("warp-splitk", problem, TACTIC, mode) for problem in plain for mode in MODES]
    bad = [Task.of("warp-splitk", problem, "32,8,128,2,1", mode) for problem in plain for mode in MODES]
    front = [Task.of("ws-gemm", problem, FRONT_TACTIC, mode) for problem in fronts for mode in MODES]
    progress = []
    simt = [Task.of("simt", replace(problem, n=n), "32,2,1,8,0") for problem in plain for n in (64, 128)]
    tasks = [*good, *bad, *front, *simt, Task.of("cublas", plain[0]), Task.of("cublaslt", plain[0], "3")]
    wrong = module.compile_all("sm_90a", tasks, lambda *args: progress.append(args))
    once = [(TACTIC, plain[0]), ("32,8,128,2,1", plain[0]), *((FRONT_TACTIC, f) for f in fronts)]  # a binary for each M
    once += [("32,2,1,8,0", simt[0].problem), ("32,2,1,8,0", simt[2].problem)]  # of a peer, for any N
    assert compiled == [(*one, "sm_90a") for one in once]
    assert wrong == {task.point: "does not compile: the assembler refused" for task in bad}
    assert progress == [("compile", i, 6) for i in range(1, 7)]
