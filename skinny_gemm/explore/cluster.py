"""What the explorers of the weight-stationary GEMM share: traced runs of every CTA of the first cluster."""

import html
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

import ipywidgets as widgets
import numpy as np
import pandas as pd

from .. import device as devices
from ..artifact import CompiledKernel
from ..figures.export import provenance
from ..problem import GemmProblem
from ..runtime.trials import Trial, trial
from ..tactics import WsGemmTactic
from .base import Explorer, Picture
from .running import traced

GPU = devices.get("h200")
SEEDS = 9  #: of adversarial schedules on offer
TRIES = 5  #: adversarial schedules that a mutant is put through
SCHEDULES = ("in_order", *(f"adversarial({seed})" for seed in range(SEEDS)))


def edited(compiled: CompiledKernel, lines: Mapping[int, str]) -> CompiledKernel:
    """`compiled` with the PTX lines of these numbers (from 1) replaced: a mutant, to see what catches it."""
    text = [lines.get(number, line) for number, line in enumerate(compiled.ptx.split("\n"), start=1)]
    return replace(compiled, ptx="\n".join(text))


def cluster_barriers(compiled: CompiledKernel) -> list[tuple[int, int]]:
    """The PTX lines (from 1) of each cluster barrier's arrive and wait, in the order of the text."""
    found = [n for n, line in enumerate(compiled.ptx.split("\n"), start=1) if "barrier.cluster" in line]
    return list(zip(found[::2], found[1::2], strict=True))


def verdicts(kernels: Mapping[str, CompiledKernel], tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of several `kernels`, a row for each way of looking: kernel, looked, verdict.

    The first of them is the kernel as compiled; the bits of the others are compared with its.
    """
    from ..interpreter import InterpreterError

    rows, expected = [], None
    ways = {
        "in order": [("in_order", {})],
        "in order, watched for races": [("in_order", {"races": range(tactic.ks)})],
        f"{TRIES} adversarial schedules": [(f"adversarial({seed})", {}) for seed in range(TRIES)],
    }
    for name, kernel in kernels.items():
        for looked, runs in ways.items():
            verdict = "the same bits"
            for schedule, options in runs:
                try:
                    out = trial(kernel, tactic, problem, schedule=schedule, **options).out
                except InterpreterError as error:
                    verdict = f"{type(error).__name__}: {error}"
                    break
                expected = out if expected is None else expected
                if not np.array_equal(out, expected):
                    verdict = "DIFFERENT bits"
                    break
            rows.append((name, looked, verdict))
    return pd.DataFrame(rows, columns=["kernel", "looked", "verdict"])


def told(table: pd.DataFrame):
    """A table of `verdicts` for a notebook's output: the sentences whole, each kernel named once."""
    from IPython.display import HTML

    return HTML(rows_of_html(table.assign(kernel=table.kernel.where(table.kernel != table.kernel.shift(), ""))))


def rows_of_html(table: pd.DataFrame) -> str:
    """`table` as HTML: texts escaped and at the left, only the last column broken into lines."""
    look = "text-align:left;vertical-align:top;padding-right:24px"
    looks = [*[f"{look};white-space:nowrap"] * (table.shape[1] - 1), look]
    head = "".join(f"<th style='{look}'>{name}</th>" for name in table.columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='{s}'>{html.escape(str(value))}</td>" for s, value in zip(looks, row, strict=True))
        + "</tr>"
        for row in table.itertuples(index=False)
    )
    return f"<table><tr>{head}</tr>{body}</table>"


class ClusterExplorer(Explorer):
    """An explorer of a traced run: compiles and runs when the kernel has changed, and says so while it does.

    A subclass has the properties `problem` and `tactic`, and defines `read` and `show`.
    """

    opcodes: tuple[str, ...] | None = None  #: to trace; None: all

    def __init__(self, rows: Sequence[Sequence[widgets.Widget]], pictures: Sequence[widgets.Widget]):
        self.busy = widgets.HTML()
        self._ran = None
        watch = [control for row in rows for control in row if hasattr(control, "value")]
        super().__init__([*rows[:-1], (*rows[-1], self.busy)], pictures, watch)

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
    def read(self, run: Trial) -> None:
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
            run = traced(self.tactic, self.problem, GPU.arch, self.schedule_name, self.opcodes)
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
