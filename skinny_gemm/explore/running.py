"""Runs for the explorers: random operands, the interpreter or the GPU, and the trace of a run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from ..artifact import CompiledKernel
from ..problem import GemmProblem
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
        from ..runtime.verify import values

        return values(self.out, result)

    def expected(self, result: Result) -> np.ndarray:
        """What `result` should have been, in FP64."""
        return self.reference[:, result.product]

    def relative_error(self, result: Result) -> float:
        """Frobenius norm of the error of `result` over that of what it should have been."""
        from ..runtime.verify import relative_error

        return relative_error(self.values(result), self.expected(result))


@lru_cache(maxsize=4)
def operands(problem: GemmProblem, seed: int):
    """Random x and weight as BF16 bits, and their product in FP64."""
    from ..runtime.verify import random_operands, reference

    x, weight = random_operands(problem, seed)
    return x, weight, reference(x, weight)


def run(
    tactic: Tactic,
    problem: GemmProblem,
    arch: str,
    backend: str = "interpreter",
    schedule="in_order",
    opcodes: Sequence[str] | None = None,
    seed: int = 0,
    progress=None,
) -> Run:
    """Compiles (or finds compiled) and runs `tactic`, legal for `problem`, on random operands made from `seed`.

    `opcodes` asks for a trace of the first CTA (interpreter only). The output starts as `tactic.output`.
    """
    from ..runtime import bind, compile_kernel
    from ..runtime.driver import load, run_on_host_arrays

    compiled = compile_kernel(tactic, problem, arch)
    x, weight, reference = operands(problem, seed)
    out, results = tactic.output(problem), tactic.results(problem)
    arguments = bind(compiled, tactic, x, weight, out)
    if backend == "cuda":
        load(compiled)
        begin = time.perf_counter()
        run_on_host_arrays(compiled, arguments)
        return Run(compiled, out, reference, results, time.perf_counter() - begin, backend)
    from .. import interpreter
    from ..interpreter import Trace

    trace = Trace(opcodes=tuple(opcodes), ctas=[0]) if opcodes else None
    result = interpreter.run(compiled, arguments, schedule, trace, progress=progress)
    return Run(compiled, out, reference, results, result.seconds, backend, trace.table() if trace else None)


@lru_cache(maxsize=32)
def traced(tactic: Tactic, problem: GemmProblem, arch: str, schedule: str, opcodes: tuple[str, ...]) -> Run:
    """A traced run in the interpreter, remembered."""
    return run(tactic, problem, arch, schedule=schedule, opcodes=opcodes)
