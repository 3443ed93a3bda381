"""Compiles what tasks need, before anything is measured and on every core."""

import os
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from ..artifact import CompiledKernel
from ..records import Point
from ..runtime import compile_kernel
from ..tactics import KERNELS
from .task import Progress, Task, sentence


def binary(task: Task) -> tuple:
    """What names the binary of a task of ours: kernel, tactic and what it is compiled for, as pairs."""
    kernel, tactic = task.point.kernel, task.point.tactic
    return kernel, tactic, *KERNELS[kernel].parse(tactic).specialisation(task.problem).items()


def compile_task(task: Task, arch: str) -> CompiledKernel:
    """The binary of a task of ours, with PDL: from the cache, or compiled."""
    return compile_kernel(KERNELS[task.point.kernel].parse(task.point.tactic), task.problem, arch, pdl=True)


def compile_all(arch: str, tasks: Sequence[Task], progress: Progress) -> dict[Point, str]:
    """Compiles what `tasks` need into the cache, on every core; returns why, for each point that does not compile."""
    jobs: dict[tuple, list[Task]] = {}
    for task in tasks:
        if task.point.kernel in KERNELS:
            jobs.setdefault(binary(task), []).append(task)
    if not jobs:
        return {}
    wrong: dict[Point, str] = {}
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, len(jobs)), mp_context=get_context("spawn"))
    try:
        futures = {pool.submit(_compile_only, same[0], arch): same for same in jobs.values()}
        for done, future in enumerate(as_completed(futures), 1):
            try:
                future.result()
            except BrokenExecutor:
                pass  # the compiler died on one of them: each is compiled again, alone, where it is measured
            except Exception as error:
                reason = f"does not compile: {sentence(error)}"
                wrong |= {task.point: reason for task in futures[future]}
            progress("compile", done, len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for what has not begun
    return wrong


def _compile_only(task: Task, arch: str) -> None:
    compile_task(task, arch)  # into the cache: binaries need not travel
