"""Runs for the explorers: `runtime.trials`, compiled on the way and remembered."""

from functools import lru_cache

from ..problem import GemmProblem
from ..runtime import compile_kernel, trials
from ..tactics import Tactic


def run(
    tactic: Tactic, problem: GemmProblem, arch: str, backend: str = "interpreter", schedule="in_order", progress=None
) -> trials.Trial:
    """Compiles (or finds compiled) and runs `tactic`, legal for `problem`, on random operands, always the same."""
    compiled = compile_kernel(tactic, problem, arch)
    return trials.trial(compiled, tactic, problem, backend=backend, schedule=schedule, progress=progress)


traced = lru_cache(maxsize=32)(trials.traced)  #: a traced run in the interpreter, remembered
