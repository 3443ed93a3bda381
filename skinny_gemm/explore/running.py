"""Runs for the explorers: random operands, the interpreter or the GPU, and the trace of a run."""

import time
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
import pandas as pd

from .. import interpreter
from ..artifact import CompiledKernel
from ..interpreter.trace import Trace
from ..problem import GemmProblem
from ..runtime import bind, compile_kernel
from ..runtime.driver import load, run_on_host_arrays
from ..runtime.verify import random_operands, reference, relative_error, values
from ..tactics import Result, Tactic


@dataclass(frozen=True)
class Run:
    """One launch on random operands: the output as BF16 bits (uint16, as `tactic.output`) and the product in FP64."""

    compiled: CompiledKernel
    out: np.ndarray
    reference: np.ndarray
    results: tuple[Result, ...]  #: where the product lies in the output
    seconds: float  #: of execution; on a GPU of one launch with everything around it
    backend: str  #: "interpreter" or "cuda"
    table: pd.DataFrame | None = None  #: the trace, if one was asked for

    def values(self, result: Result) -> np.ndarray:
        """`result` in FP64."""
        return values(self.out, result)

    def expected(self, result: Result) -> np.ndarray:
        """What `result` should have been, in FP64."""
        return self.reference[:, result.product]

    def relative_error(self, result: Result) -> float:
        """Frobenius norm of the error of `result` over that of what it should have been."""
        return relative_error(self.values(result), self.expected(result))


@lru_cache(maxsize=4)
def operands(problem: GemmProblem, seed: int):
    """Random x and weight as BF16 bits, and their product in FP64."""
    x, weight = random_operands(problem, seed)
    return x, weight, reference(x, weight)


def run(
    tactic: Tactic,
    problem: GemmProblem,
    arch: str,
    backend: str = "interpreter",
    schedule="in_order",
    progress=None,
) -> Run:
    """Compiles (or finds compiled) and runs `tactic`, legal for `problem`, on random operands, always the same."""
    compiled = compile_kernel(tactic, problem, arch)
    x, weight, product = operands(problem, 0)
    out, results = tactic.output(problem), tactic.results(problem)
    arguments = bind(compiled, tactic, x, weight, out)
    if backend == "cuda":
        load(compiled)
        begin = time.perf_counter()
        run_on_host_arrays(compiled, arguments)
        return Run(compiled, out, product, results, time.perf_counter() - begin, backend)
    result = interpreter.run(compiled, arguments, schedule, progress=progress)
    return Run(compiled, out, product, results, result.seconds, backend)


def execute(compiled: CompiledKernel, tactic: Tactic, problem: GemmProblem, schedule: str, **options) -> np.ndarray:
    """The output (uint16, as `tactic.output`) of `compiled` run in the interpreter, which gets `options`."""
    x, weight, _ = operands(problem, 0)
    out = tactic.output(problem)
    interpreter.run(compiled, bind(compiled, tactic, x, weight, out), schedule, **options)
    return out


@lru_cache(maxsize=32)
def traced(
    tactic: Tactic, problem: GemmProblem, arch: str, schedule: str, opcodes: tuple[str, ...] | None = None
) -> Run:
    """A run in the interpreter, remembered, with a trace of `opcodes` (None: all) in the first cluster's CTAs."""
    compiled = compile_kernel(tactic, problem, arch)
    trace = Trace(opcodes=opcodes, ctas=range(prod(compiled.cluster)))
    out = execute(compiled, tactic, problem, schedule, trace=trace)
    product = operands(problem, 0)[2]
    return Run(compiled, out, product, tactic.results(problem), 0.0, "interpreter", trace.table())
