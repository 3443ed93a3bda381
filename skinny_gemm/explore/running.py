"""Runs for the explorers: random operands, the interpreter (or the GPU), and the trace of a run."""

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
    """One launch: its operands (torch BF16, on the CPU), the FP64 product of x and the weight, and the output."""

    compiled: CompiledKernel
    x: object
    weight: object
    out: object
    reference: np.ndarray
    seconds: float  #: of execution
    backend: str  #: "interpreter" or "cuda"
    table: pd.DataFrame | None = None  #: the trace, if one was asked for

    @property
    def error(self) -> np.ndarray:
        """out - reference, FP64 `[M, N]`."""
        return self.out.double().cpu().numpy() - self.reference

    @property
    def relative_error(self) -> float:
        """Frobenius norm of the error over that of the reference."""
        return float(np.linalg.norm(self.error) / np.linalg.norm(self.reference))


def operands(problem: GemmProblem, seed: int = 0):
    """Random BF16 x `[M, K]` and weight `[N, K]`, and their product in FP64."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(problem.m, problem.k, generator=generator).bfloat16()
    weight = torch.randn(problem.n, problem.k, generator=generator).bfloat16()
    return x, weight, (x.double() @ weight.double().T).numpy()


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
    """Compiles (or finds compiled) and runs `tactic` on random operands.

    `opcodes` asks for a trace of the first CTA (interpreter only). The output starts as NaN.
    """
    import torch

    from .. import interpreter
    from ..interpreter.trace import Trace
    from ..runtime import bind, compile_kernel, launch

    compiled = compile_kernel(tactic, problem.n, problem.k, arch)
    x, weight, reference = operands(problem, seed)
    out = torch.full((problem.m, problem.n), float("nan"), dtype=torch.bfloat16)
    if backend == "cuda":
        x, weight, out = x.cuda(), weight.cuda(), out.cuda()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch(compiled, bind(compiled, tactic, x, weight, out))
        end.record()
        end.synchronize()
        return Run(compiled, x, weight, out, reference, start.elapsed_time(end) * 1e-3, backend)
    trace = Trace(opcodes=tuple(opcodes), ctas=[0]) if opcodes else None
    arguments = bind(compiled, tactic, x, weight, out)
    result = interpreter.run(compiled, arguments, schedule, trace, progress=progress)
    table = trace.table() if trace else None
    return Run(compiled, x, weight, out, reference, result.seconds, backend, table)


@lru_cache(maxsize=32)
def traced(tactic: Tactic, problem: GemmProblem, arch: str, seed: int | None, opcodes: tuple[str, ...]) -> Run:
    """A traced run in the interpreter, remembered; `seed` None runs in order, a number adversarially."""
    from .. import interpreter

    schedule = interpreter.in_order() if seed is None else interpreter.adversarial(seed)
    return run(tactic, problem, arch, schedule=schedule, opcodes=opcodes)
