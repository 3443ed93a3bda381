"""Trials: a kernel run once on random operands, beside what it should have computed."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..artifact import CompiledKernel
from ..interpreter import Trace
from ..problem import GemmProblem
from ..tactics import Result, Tactic
from . import runner
from .bfloat16 import from_bits
from .compile import compile_kernel


def random_operands(problem: GemmProblem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x `[M, K]` and weight `[N, K]` as BF16 bits (uint16): random sign and mantissa, magnitudes from 2^-13 to 8.

    So wide that FP32 sums of the products round, and therefore tell in which order they were added. They do so gently:
    at K = 7168 FP32 sums of 1 to 224 parts are 1e-7 to 4e-7 off, and 3e-6 in 4 parts if every step rounds to zero.
    """
    generator = np.random.default_rng(seed)
    x, weight = (generator.integers(0, 1 << 16, (rows, problem.k), np.uint16) for rows in (problem.m, problem.n))
    for bits in (x, weight):
        bits &= 0x87FF  # sign, four bits of exponent, mantissa
        bits += 0x3900  # 2^-13
    return x, weight


def reference(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x @ weight^T in FP64 from BF16 bits, a slice of weight rows at a time: FP64 copies of all would be large."""
    wide = from_bits(x).astype(np.float64)
    return np.concatenate([wide @ from_bits(rows).astype(np.float64).T for rows in np.array_split(weight, 16)], axis=1)


def values(out: np.ndarray, result: Result) -> np.ndarray:
    """The values of `result` in FP64, from an output's BF16 bits."""
    bits = np.ascontiguousarray(out[:, result.columns])
    return (from_bits(bits) if result.dtype == "bf16" else bits.view(np.float32)).astype(np.float64)


def relative_error(values: np.ndarray, expected: np.ndarray) -> float:
    """Relative Frobenius error; NaN if anything in `values` is NaN."""
    return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


def stray_writes(out: Any, empty: Any, results: tuple[Result, ...]) -> int:
    """How many 16-bit words of `out` (NumPy or torch, of any more dimensions) differ from `empty` outside `results`."""
    changed = out != empty
    for result in results:
        changed[..., result.columns] = False
    return int(changed.sum())


@dataclass(frozen=True)
class Operands:
    """x `[M, K]` and weight `[N, K]` as BF16 bits (uint16), and their product `[M, N]` in FP64."""

    x: np.ndarray
    weight: np.ndarray
    product: np.ndarray

    @classmethod
    def random(cls, problem: GemmProblem, seed: int) -> "Operands":
        x, weight = random_operands(problem, seed)
        return cls(x, weight, reference(x, weight))


@dataclass(frozen=True)
class Trial:
    """One launch: the output as BF16 bits (uint16, as `tactic.output`), and what the product should have been."""

    compiled: CompiledKernel
    out: np.ndarray
    product: np.ndarray  #: of x and weight, FP64 `[M, N]`
    results: tuple[Result, ...]  #: where the product lies in the output
    stray_writes: int  #: BF16 words outside all results that changed
    seconds: float  #: of execution; on a GPU of one launch with everything around it
    backend: str  #: "interpreter" or "cuda"
    table: Any = None  #: the trace as a pandas DataFrame, if there was one

    def values(self, result: Result) -> np.ndarray:
        return values(self.out, result)

    def expected(self, result: Result) -> np.ndarray:
        return self.product[:, result.product]

    def relative_error(self, result: Result) -> float:
        return relative_error(self.values(result), self.expected(result))


def trial(
    compiled: CompiledKernel,
    tactic: Tactic,
    problem: GemmProblem,
    operands: Operands | None = None,
    backend: str = "interpreter",
    trace: Trace | None = None,
    **interpreting: Any,
) -> Trial:
    """Runs `compiled`, the kernel of `tactic` or a mutant of it, once on `operands` (default: `remembered_operands`).

    `backend`: "interpreter", or "cuda" for the first GPU. `trace` and `interpreting`: options of `interpreter.run`.
    """
    operands = operands or remembered_operands(problem)
    out, results = tactic.output(problem), tactic.results(problem)
    arguments = runner.bind(compiled, tactic, operands.x, operands.weight, out)
    ran = runner.run(compiled, arguments, backend, trace=trace, **interpreting)
    stray = stray_writes(out, tactic.output(problem), results)
    return Trial(compiled, out, operands.product, results, stray, ran.seconds, backend, trace and trace.table())


def traced(
    tactic: Tactic,
    problem: GemmProblem,
    arch: str = "sm_90a",
    schedule: str = "in_order",
    opcodes: tuple[str, ...] | None = None,
) -> Trial:
    """Compiles `tactic`, legal for `problem`, and interprets it; traces `opcodes` (None: all) of the first cluster."""
    compiled = compile_kernel(tactic, problem, arch)
    trace = Trace(opcodes=opcodes, ctas=range(prod(compiled.cluster)))
    return trial(compiled, tactic, problem, schedule=schedule, trace=trace)


@lru_cache(maxsize=4)
def remembered_operands(problem: GemmProblem) -> Operands:
    """Operands of seed 0, made once: an explorer runs one problem again and again."""
    return Operands.random(problem, 0)
