"""What the prepared GEMMs share: a weight, and the kernels of some Ms, compiled and loaded in advance."""

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from ..artifact import CompiledKernel
from ..checks import is_integer
from ..problem import GemmProblem
from ..tactics import Tactic
from . import runner, tensors
from .compile import compile_kernel

ALIGNMENT = 32  #: bytes, of weight, x and out


class Prepared:
    """Base of `PreparedWarpSplitK` and `PreparedWsGemm`; `compiled` maps M to the kernel that runs."""

    kind: ClassVar[type[Tactic]]  #: of the tactics

    def __init__(
        self,
        weight: Any,
        tactics: Mapping[int, Any],
        problem: Callable[[int], GemmProblem],
        max_m: int,
        **options: Any,
    ) -> None:
        """Checks `tactics`, then compiles and loads them for `problem(m)`; `options` are those of `compile_kernel`."""
        if not isinstance(tactics, Mapping):
            raise ValueError(f"tactics is {tactics!r}, but must be a mapping from M to its tactic")
        if not tactics:
            raise ValueError(f"tactics is empty, but must map at least one M (1 to {max_m}) to its tactic")
        self.weight, self.tactics = weight, dict(tactics)
        gpu = tensors.device_of(weight)
        for m, tactic in self.tactics.items():
            if not is_integer(m) or not 1 <= m <= max_m:
                raise ValueError(f"tactics has M = {m!r}, but M must be an integer from 1 to {max_m}")
            if not isinstance(tactic, self.kind):
                raise ValueError(f"the tactic for M = {m} is {tactic!r}, but must be a {self.kind.__name__}")
            tactic.check(problem(m), gpu)
        self.compiled: dict[int, CompiledKernel] = {}
        for m, tactic in self.tactics.items():
            self.compiled[m] = compile_kernel(tactic, problem(m), gpu.arch, **options)
            runner.load(self.compiled[m], weight.device)

    def edited(self, edit: Callable[[CompiledKernel], CompiledKernel]) -> Self:
        """The same with `edit(kernel)` in place of each compiled kernel: a mutant, to see what catches it."""
        other = copy.copy(self)
        other.compiled = {m: edit(compiled) for m, compiled in self.compiled.items()}
        return other

    def tokens_of(self, x: Any) -> int:
        """M of x; ValueError unless it is BF16 `[M, K]`, beside the weight, and of a prepared M."""
        tensors.check_tensor("x", x, ("M", self.weight.shape[1]), ALIGNMENT, like=self.weight)
        m = x.shape[0]
        if m not in self.compiled:
            raise ValueError(f"x has M = {m}, but the prepared Ms are {', '.join(map(str, sorted(self.compiled)))}")
        return m

    def launch(self, m: int, x: Any, out: Any, interpreting: Mapping[str, Any], **others: Any) -> None:
        """Runs the kernel for M on x; `others` are parameters by name, as of `runner.bind`."""
        arguments = runner.bind(self.compiled[m], self.tactics[m], x, self.weight, out, **others)
        runner.run(self.compiled[m], arguments, **interpreting)
