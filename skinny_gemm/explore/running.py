"""Runs for the explorers: random operands, the interpreter or the GPU, and the trace of a run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from ..artifact import CompiledKernel
from ..problem import GemmProblem
from ..tactics import Tactic


@dataclass(frozen=True)
class Run:
    """One launch on random operands: the output as BF16 bits (uint16 `[M, N]`) and the product in FP64."""

    compiled: CompiledKernel
    out: np.ndarray
    reference: np.ndarray
    seconds: float  #: of execution; on a GPU of one launch with everything around it
    backend: str  #: "interpreter" or "cuda"
    table: pd.DataFrame | None = None  #: the trace, if one was asked for

    @property
    def values(self) -> np.ndarray:
        """The output in FP64."""
        from ..runtime.bfloat16 import from_bits

        return from_bits(self.out).astype(np.float64)

    @property
    def relative_error(self) -> float:
        """Frobenius norm of the error over that of the reference."""
        return float(np.linalg.norm(self.values - self.reference) / np.linalg.norm(self.reference))


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

    `opcodes` asks for a trace of the first CTA (interpreter only). The output starts as NaN.
    """
    from ..runtime import bind, compile_kernel

    compiled = compile_kernel(tactic, problem, arch)
    x, weight, reference = operands(problem, seed)
    out = np.full((problem.m, problem.n), 0xFFFF, np.uint16)
    if backend == "cuda":
        begin = time.perf_counter()
        out = _on_gpu(compiled, tactic, x, weight, out)
        return Run(compiled, out, reference, time.perf_counter() - begin, backend)
    from .. import interpreter
    from ..interpreter.trace import Trace

    trace = Trace(opcodes=tuple(opcodes), ctas=[0]) if opcodes else None
    arguments = bind(compiled, tactic, x, weight, out)
    result = interpreter.run(compiled, arguments, schedule, trace, progress=progress)
    return Run(compiled, out, reference, result.seconds, backend, trace.table() if trace else None)


@lru_cache(maxsize=32)
def traced(tactic: Tactic, problem: GemmProblem, arch: str, schedule: str, opcodes: tuple[str, ...]) -> Run:
    """A traced run in the interpreter, remembered."""
    return run(tactic, problem, arch, schedule=schedule, opcodes=opcodes)


def _on_gpu(compiled: CompiledKernel, tactic: Tactic, *arrays: np.ndarray) -> np.ndarray:
    import torch

    from ..runtime import bind, launch

    x, weight, out = (torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).cuda() for bits in arrays)
    launch(compiled, bind(compiled, tactic, x, weight, out))
    return out.view(torch.int16).cpu().numpy().view(np.uint16)
