"""Shared by the kernel tests: compile, run in the interpreter with guard rows, compare with FP64."""

from dataclasses import dataclass

import numpy as np
import pytest

from skinny_gemm import device, interpreter
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_kernel
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from skinny_gemm.runtime.trials import random_operands, reference, relative_error
from skinny_gemm.tactics.base import BF16_TOLERANCE

GUARD = 0x7FC1  #: a NaN that no computation here produces


@dataclass
class Case:
    """A run's outputs and what they should have been."""

    out: np.ndarray
    expected: np.ndarray
    result: interpreter.Result

    @property
    def error(self):
        return relative_error(from_bits(self.out), self.expected)


@pytest.fixture
def run():
    """`run(tactic, m, n, k, bias=False, schedule="in_order", compiled=None, seed=0) -> Case`.

    x has exactly M rows, so reading past M is out of bounds; out has a guard row behind it, so writing past M shows.
    """

    def run(tactic, m, n, k, bias=False, schedule="in_order", compiled=None, seed=0):
        problem = GemmProblem(m, n, k)
        tactic.check(problem, device.get("h200"))
        compiled = compiled or compile_kernel(tactic, GemmProblem(1, n, k))
        x, weight = random_operands(problem, seed)
        added = to_bits(np.random.default_rng(seed).normal(size=n)) if bias else None
        out = np.full((m + 1, n), GUARD, np.uint16)
        result = interpreter.run(compiled, bind(compiled, tactic, x, weight, out, bias=added), schedule)
        assert (out[m] == GUARD).all(), "a row at or past M was written"
        expected = reference(x, weight) + (from_bits(added) if bias else 0)
        return Case(out[:m], expected, result)

    return run


@pytest.fixture
def tolerance():
    return BF16_TOLERANCE
