"""Checks a kernel on fresh random data against FP64: on a GPU, or in the interpreter under any schedule."""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import interpreter
from ..checks import check_choice, check_integer
from ..device import Device
from ..problem import GemmProblem
from ..tactics import Tactic
from .compile import compile_kernel
from .runner import choose
from .trials import Operands, trial

SCHEDULES = ("in_order", "adversarial")


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`; `passed`: every result within its limit, no stray write, and all runs bitwise equal."""

    passed: bool
    relative_error: dict[str, float]  #: of each result: ||out - reference|| / ||reference||, Frobenius, against FP64
    limit: dict[str, float]  #: what `relative_error` must stay under
    stray_writes: int  #: BF16 words outside all results that changed
    bitwise_equal: bool  #: all runs gave the same bits
    runs: int
    backend: str
    schedule: str
    seconds: float  #: everything but imports: data, reference, compilation, runs
    execution_seconds: float  #: of the runs alone: PTX read, or module loaded, before
    kernel: str
    tactic: str
    m: int
    n: int
    k: int
    seed: int  #: of the random data


def verify(
    tactic: Tactic,
    problem: GemmProblem,
    backend: str = "auto",
    schedule: str = "in_order",
    seeds: int = 1,
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Verification:
    """Runs `tactic` on random data of `problem` (or of what it is to the kernel) and compares with FP64.

    `backend`: "cuda", "interpreter", or "auto" (a GPU if there is one). `schedule` is the interpreter's: "adversarial"
    makes one run per seed 0 to `seeds` - 1, all of which must agree bitwise; on a GPU `seeds` is the number of runs.
    `seed` fixes the data. ValueError for an illegal tactic, an unknown name, or "cuda" without a GPU.
    """
    check_integer("seeds", seeds, 1)
    machine, device, seed = choose_run(backend, schedule, seed)
    problem = tactic.problem(problem)
    tactic.check(problem, device)

    start = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:  # NumPy and the compiler each keep a core busy
        data = pool.submit(Operands.random, problem, seed)
        compiled = compile_kernel(tactic, problem, device.arch)
        operands = data.result()
    once = machine == "interpreter" and schedule == "in_order"  # deterministic: a second run proves nothing
    runs = [
        trial(compiled, tactic, problem, operands, machine, progress=progress, **interpreting(machine, schedule, index))
        for index in range(1 if once else seeds)
    ]
    errors = {r.name: max(run.relative_error(r) for run in runs) for r in runs[0].results}
    limits = {r.name: r.tolerance for r in runs[0].results}
    stray = max(run.stray_writes for run in runs)
    equal = all(np.array_equal(run.out, runs[0].out) for run in runs)
    return Verification(
        passed=all(error < limits[name] for name, error in errors.items()) and not stray and equal,
        relative_error=errors,
        limit=limits,
        stray_writes=stray,
        bitwise_equal=equal,
        runs=len(runs),
        backend=machine,
        schedule=schedule if machine == "interpreter" else "hardware",
        seconds=time.perf_counter() - start,
        execution_seconds=sum(run.seconds for run in runs),
        kernel=tactic.kernel,
        tactic=str(tactic),
        m=problem.m,
        n=problem.n,
        k=problem.k,
        seed=seed,
    )


def choose_run(backend: str, schedule: str, seed: int | None) -> tuple[str, Device, int]:
    """The machine and device (`runner.choose`) and the seed of the data, a fresh one for None; checks all three."""
    if seed is not None:
        check_integer("seed", seed, 0)
    machine, device = choose(backend)
    check_choice("schedule", schedule, SCHEDULES)
    return machine, device, secrets.randbits(32) if seed is None else seed


def interpreting(machine: str, schedule: str, launch: int) -> dict[str, Any]:
    """Options of the interpreter for launch number `launch`; a GPU has none. A preceding kernel would write x."""
    if machine == "cuda":
        return {}
    order = interpreter.adversarial(launch) if schedule == "adversarial" else schedule
    # Races of one CTA or cluster, once: all run alike, and vector clocks need no luck.
    return {"schedule": order, "races": [0] if launch == 0 else False, "preceding": ("x",)}
