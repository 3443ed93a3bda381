"""What the explorers of the weight-stationary GEMM share: traced runs of every CTA of the first cluster."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import ipywidgets as widgets
import numpy as np
import pandas as pd

from .. import device as devices
from ..artifact import CompiledKernel
from ..figures.export import provenance
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from .base import Explorer, Picture
from .running import operands

GPU = devices.get("h200")
SEEDS = 9  #: of adversarial schedules on offer
SCHEDULES = ("in_order", *(f"adversarial({seed})" for seed in range(SEEDS)))


@dataclass(frozen=True)
class ClusterRun:
    """One run: the kernel, its output (a mailbox, uint16) and the trace of the first cluster's CTAs 0..ks-1."""

    compiled: CompiledKernel
    out: np.ndarray
    table: pd.DataFrame


@lru_cache(maxsize=32)
def traced(
    tactic: WsGemmTactic, problem: GemmProblem, schedule: str = "in_order", opcodes: tuple[str, ...] | None = None
) -> ClusterRun:
    """Compiles and runs `tactic`, legal for `problem`, on random operands; records `opcodes` (None: all)."""
    from ..interpreter.trace import Trace
    from ..runtime import compile_kernel

    compiled = compile_kernel(tactic, problem, GPU.arch)
    trace = Trace(opcodes=opcodes, ctas=range(tactic.ks))
    out = execute(compiled, tactic, problem, schedule, trace=trace)
    return ClusterRun(compiled, out, trace.table())


def execute(compiled: CompiledKernel, tactic: WsGemmTactic, problem: GemmProblem, schedule: str, **options):
    """The output (uint16, a mailbox) of one run of `compiled` in the interpreter, whose `options` are passed on."""
    from .. import interpreter
    from ..runtime import bind

    x, weight, _ = operands(problem, 0)
    out = tactic.output(problem)
    interpreter.run(compiled, bind(compiled, tactic, x, weight, out), schedule, **options)
    return out


def mutant(compiled: CompiledKernel, *dropped: int) -> CompiledKernel:
    """`compiled` with the PTX lines of these numbers (from 1) taken out: what the kernel would be without them."""
    lines = [line for number, line in enumerate(compiled.ptx.split("\n"), start=1) if number not in dropped]
    return replace(compiled, ptx="\n".join(lines))


class ClusterExplorer(Explorer):
    """An explorer of a traced run: compiles and runs when the kernel has changed, and says so while it does.

    A subclass has the properties `problem` and `tactic`, and defines `read` and `show`.
    """

    opcodes: tuple[str, ...] | None = None  #: to trace; None: all

    def __init__(self, rows: Sequence[Sequence[widgets.Widget]], pictures: Sequence[widgets.Widget]):
        self.busy = widgets.HTML()
        self._ran = None
        super().__init__(rows, [self.busy, *pictures])

    @property
    @abstractmethod
    def problem(self) -> GemmProblem: ...

    @property
    @abstractmethod
    def tactic(self) -> WsGemmTactic: ...

    @property
    def schedule_name(self) -> str:
        return "in_order"

    @abstractmethod
    def read(self, run: ClusterRun) -> None:
        """Takes from a new run what the figures need, and fits the controls to it."""

    @abstractmethod
    def show(self) -> None:
        """Sets the pictures from what `read` took and what the other controls say."""

    def draw(self) -> None:
        try:
            self.run()
        except Exception:  # an earlier run would pass for this one
            for child in self.children:
                if isinstance(child, Picture):
                    child.clear()
            raise
        self.show()

    def run(self) -> None:
        """Compiles, runs and reads, if what to run has changed; ValueError in words if it cannot run."""
        key = self.problem, self.tactic, self.schedule_name
        if key == self._ran:
            return
        self._ran = None
        self.tactic.check(self.problem, GPU)
        self.busy.value = f"compiling and running {self.tactic} ..."
        try:
            run = traced(self.tactic, self.problem, self.schedule_name, self.opcodes)
            with self.quietly():
                self.read(run)
        finally:
            self.busy.value = ""
        self._ran = key

    def facts(self, source: str = "interpreter", **more) -> dict:
        """The provenance of what is shown."""
        p, t = self.problem, self.tactic
        schedule = self.schedule_name if source == "interpreter" else None
        shape = dict(n=p.n, k=p.k, m=p.m)
        return provenance(source, kernel=t.kernel, tactic=str(t), schedule=schedule, **shape, **more)
