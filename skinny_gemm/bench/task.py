"""What a campaign measures, one thing at a time, what comes of it, and the binaries that it needs."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from ..artifact import CompiledKernel, LaunchArguments
from ..problem import GemmProblem
from ..records import Point, Samples
from ..runtime import bind, compile_kernel
from ..tactics import KERNELS
from . import peers

NICE = 10  #: of compilers: whoever measures meanwhile comes first
Progress = Callable[[str, int, int], None]  #: (what, done, of how many)


@dataclass(frozen=True)
class Task:
    """A point and the problem that it measures, as its kernel sees it; a bound's is its weight with one token."""

    point: Point
    problem: GemmProblem

    @classmethod
    def of(
        cls, kernel: str, problem: GemmProblem, tactic: object = "", mode: str = "chained", weights: str = "cold",
        process: str = "quiet",
    ) -> "Task":  # fmt: skip
        """The task of `kernel`, one of ours or a peer, for `problem` as `seen_by` it."""
        point = Point(kernel, problem.n, problem.k, problem.m, str(tactic), mode, weights, process)
        return cls(point, seen_by(kernel, problem))


@dataclass(frozen=True)
class Measurement:
    """What measuring a task gave."""

    samples_us: Samples  #: per launch
    relative_error: float  #: the largest of the kernel's results, NaN for a bound
    bytes: int  #: that a launch must move


def seen_by(kernel: str, problem: GemmProblem) -> GemmProblem:
    """`problem` as `kernel` sees it: a front stays what it is to a kernel of fronts, to all others it is its weight."""
    plain = GemmProblem(problem.m, problem.n, problem.k)
    seen = KERNELS[kernel].problem(plain) if kernel in KERNELS else plain
    return problem if type(problem) is type(seen) else seen


def sentence(error: BaseException) -> str:
    """An exception in one line of words."""
    text = " ".join(str(error).split())[:400]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def compiled_for(task: Task) -> dict[str, Any] | None:
    """What the binary of a task is compiled for, beside its tactic; None if this package compiles none for it."""
    kernel, tactic = task.point.kernel, task.point.tactic
    if kernel in KERNELS:
        return KERNELS[kernel].parse(tactic).specialisation(task.problem)
    return peers.specialisation(kernel, tactic, task.problem) if kernel in peers.ADAPTED else None


def compile_task(task: Task, arch: str) -> CompiledKernel:
    """The binary of a task of ours or of an adapted peer, with PDL: from the caches, or compiled."""
    kernel, tactic = task.point.kernel, task.point.tactic
    if kernel in KERNELS:
        return compile_kernel(KERNELS[kernel].parse(tactic), task.problem, arch, pdl=True)
    return peers.compile_peer(kernel, tactic, task.problem, arch)


def arguments_of(task: Task, compiled: CompiledKernel, x: Any, weight: Any, out: Any) -> LaunchArguments:
    """One launch of that binary."""
    kernel, tactic = task.point.kernel, task.point.tactic
    if kernel in KERNELS:
        return bind(compiled, KERNELS[kernel].parse(tactic), x, weight, out)
    return peers.arguments(kernel, tactic, x, weight, out)


class Compilation(AbstractContextManager["Compilation"]):
    """Compiles what `tasks` need into the cache, in their order, on every core, while its block goes on.

    An exit does not wait for what has not begun.
    """

    def __init__(self, arch: str, tasks: Iterable[Task]):
        jobs: dict[tuple, list[Task]] = {}  # tasks by their binary
        for task in tasks:
            if (special := compiled_for(task)) is not None:
                jobs.setdefault((task.point.kernel, task.point.tactic, *special.items()), []).append(task)
        workers = min(os.cpu_count() or 1, len(jobs) or 1)
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=os.nice, initargs=(NICE,))
        self._futures: dict[Point, Future] = {}
        for same in jobs.values():
            future = self._pool.submit(_compile_only, same[0], arch)
            self._futures |= {task.point: future for task in same}

    def wait(self, task: Task) -> str | None:
        """Waits for the binary of a task, if it needs one; why it does not compile, in words, or None."""
        try:
            if future := self._futures.get(task.point):
                future.result()
        except BrokenExecutor:
            pass  # the compiler died on one of them: each is compiled again, alone, where it is measured
        except Exception as error:
            return f"does not compile: {sentence(error)}"
        return None

    def progress(self, progress: Progress) -> None:
        """Waits for all, and tells how many are done."""
        futures = set(self._futures.values())
        for done, _ in enumerate(as_completed(futures), 1):
            progress("compile", done, len(futures))

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def compile_all(arch: str, tasks: Sequence[Task], progress: Progress) -> dict[Point, str]:
    """Compiles what `tasks` need into the cache; returns why, for each point that does not compile."""
    with Compilation(arch, tasks) as compilation:
        compilation.progress(progress)
        return {task.point: reason for task in tasks if (reason := compilation.wait(task))}


def _compile_only(task: Task, arch: str) -> None:
    compile_task(task, arch)  # into the cache: binaries need not travel
