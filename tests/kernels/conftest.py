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

GUARDS = {np.uint16: 0x7FC1, np.uint32: 0x7FC1_0000}  #: NaN, as BF16 and FP32, that no computation here produces


@dataclass
class Case:
    """A run's outputs and what they should have been."""

    out: np.ndarray  #: the bits: uint16 of BF16, uint32 of FP32
    expected: np.ndarray
    result: interpreter.Result

    @property
    def values(self):
        return from_bits(self.out) if self.out.dtype == np.uint16 else self.out.view(np.float32)

    @property
    def error(self):
        return relative_error(self.values, self.expected)


@pytest.fixture
def run():
    """`run(tactic, m, n, k, bias=False, schedule="in_order", compiled=None, seed=0, bits=np.uint16, ...) -> Case`.

    x has exactly M rows and weight N, so reading past them is out of bounds; out has a guard row behind it, so writing
    past M shows. `bits`: of one value of out. More options are those of `interpreter.run`.
    """

    def run(tactic, m, n, k, bias=False, schedule="in_order", compiled=None, seed=0, bits=np.uint16, **interpreting):
        problem = GemmProblem(m, n, k)
        tactic.check(problem, device.get("h200"))
        compiled = compiled or compile_kernel(tactic, GemmProblem(1, n, k))
        x, weight = random_operands(problem, seed)
        added = to_bits(np.random.default_rng(seed).normal(size=n)) if bias else None
        out = np.full((m + 1, n), GUARDS[bits], bits)
        arguments = bind(compiled, tactic, x, weight, out, bias=added)
        result = interpreter.run(compiled, arguments, schedule, **interpreting)
        assert (out[m] == GUARDS[bits]).all(), "a row at or past M was written"
        expected = reference(x, weight) + (from_bits(added) if bias else 0)
        return Case(out[:m], expected, result)

    return run


@pytest.fixture
def tolerance():
    return BF16_TOLERANCE
