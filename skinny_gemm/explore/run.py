"""Compile and run any tactic of any kernel on any shape here and now: resources, SASS, errors, repeatability."""

import html
import time
from functools import partial
from math import prod
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import device as devices
from ..analysis.performance import error_table
from ..analysis.tactic import smem_table
from ..artifact import CompiledKernel
from ..figures import charts, layout
from ..figures.export import provenance
from ..problem import GemmProblem
from ..runtime import compile_kernel, sass, trials
from ..runtime.trials import Trial
from ..tactics import Result, Tactic
from . import markup
from .base import Figures
from .controls import progress_bar, toggles
from .pictures import Picture
from .problem_controls import TacticControls

REPEATS = 3  #: runs that must agree bitwise, the first included
SASS_LINES = 24


class Outcome(NamedTuple):
    """The latest run, and what ran it."""

    tactic: Tactic
    problem: GemmProblem
    gpu: devices.Device  #: compiled for
    run: Trial

    @property
    def source(self) -> dict[str, Any]:
        """The provenance of the run."""
        device = self.gpu.title if self.run.backend == "cuda" else None
        source = "live" if device else "interpreter"
        return _facts(source, self.tactic, self.problem, device=device, arch=self.gpu.arch)


class RunExplorer(TacticControls):
    """Controls for shape and tactic; *Run* compiles, runs and checks. What it shows says which run it was."""

    def __init__(self, device: str = devices.REFERENCE, projection: str = "q_b"):
        gpu = devices.current()
        places = [("interpreter", "interpreter"), *([(f"GPU: {gpu.title}", "cuda")] if gpu else [])]
        self.backend = toggles("run on", places, places[-1][1])
        self.run_button = self.guarded_button("Run", "compile, run and check", self.run, button_style="primary")
        self.progress = progress_bar()
        self.smem, self.histograms = Picture(), widgets.VBox()  # of histograms one picture for each result
        self.facts, self.sass = widgets.HTML(), widgets.HTML()
        self.heading = widgets.HTML()
        self.last = widgets.VBox([self.facts, self.histograms, self.sass])
        self.outcome: Outcome | None = None
        self.build(gpu.name if gpu and gpu.name in devices.names() else device, projection)
        self.rows[0].append(self.backend)
        self.rows[2] += [self.run_button, self.progress]
        super().__init__(self.rows, [self.smem, self.heading, self.last], self.watched)

    def draw(self) -> None:
        tactic, problem, gpu = self.judge(), self.problem, self.gpu
        self.run_button.disabled = tactic is None
        self._head()
        if tactic:
            footprint = tactic.footprint(problem, gpu)
            facts = _facts("model", tactic, problem, device=gpu.title)
            self.smem.show((tactic, problem, gpu.name), lambda: layout.smem_map(footprint, gpu), facts)
        else:
            self.smem.clear()

    def _head(self) -> None:
        """Says which run is shown, and pales it where the controls describe another."""
        if self.outcome is None:
            return
        tactic, problem, gpu, _ = self.outcome
        self.heading.value = f"<b>last run: {tactic} at {problem.n}x{problem.k}, M = {problem.m}, {gpu.title}</b>"
        same = (tactic, problem, gpu.name) == (self.tactic, self.problem, self.gpu.name)
        (self.last.remove_class if same else self.last.add_class)("sg-stale")

    def run(self) -> None:
        """Compiles, runs `REPEATS` times and compares with FP64; ValueError in words if the tactic cannot run."""
        tactic, problem, gpu, backend = self.checked(), self.problem, self.gpu, self.backend.value
        self.progress.layout.visibility, self.progress.value = "visible", 0
        try:
            begin = time.perf_counter()
            compiled = compile_kernel(tactic, problem, gpu.arch)
            run = partial(trials.trial, compiled, tactic, problem, backend=backend, progress=self._advance)
            first = run()
            seconds = time.perf_counter() - begin
            again = [run(schedule=f"adversarial({seed})") for seed in range(REPEATS - 1)]
        finally:
            self.progress.layout.visibility = "hidden"
        equal = all(np.array_equal(first.out, other.out) for other in again)
        self.outcome = Outcome(tactic, problem, gpu, first)
        self._head()
        self.facts.value = _report(self.outcome, equal, seconds)
        pictures = [Picture() for _ in first.results]
        self.histograms.children = pictures
        for picture, result in zip(pictures, first.results, strict=True):
            picture.show(result, partial(_histogram, first, result), self.outcome.source)
        self.sass.value = _sass(first.compiled)

    def figures(self) -> Figures:
        if self.outcome is None:
            raise ValueError("There is nothing to export yet: press Run first.")
        tactic, problem, gpu, run = self.outcome
        stem = f"{tactic.kernel}-{problem.n}x{problem.k}-m{problem.m}"
        source, model = self.outcome.source, _facts("model", tactic, problem, device=gpu.title)
        histograms = {
            f"{stem}-errors-{_name(run, result)}".rstrip("-"): (_histogram(run, result), _table(run, result), source)
            for result in run.results
        }
        footprint = tactic.footprint(problem, gpu)
        occupied = layout.smem_map(footprint, gpu), smem_table(footprint, gpu), model
        return {**histograms, f"{stem}-smem": occupied}

    def _advance(self, fraction: float) -> None:
        self.progress.value = fraction


def _facts(source: str, tactic: Tactic, problem: GemmProblem, **more: Any) -> dict[str, Any]:
    shape = dict(n=problem.n, k=problem.k, m=problem.m)
    return provenance(source, kernel=tactic.kernel, tactic=str(tactic), **shape, **more)


def _report(outcome: Outcome, equal: bool, seconds: float) -> str:
    """What the compiler and the run say, as a table; `equal`: all runs gave the same bits; `seconds`: everything."""
    tactic, problem, _, run = outcome
    compiled, used = run.compiled, run.compiled.resources
    off = [f"{run.relative_error(result):.2e} of {_name(run, result)}".removesuffix(" of ") for result in run.results]
    how = "3 launches" if run.backend == "cuda" else "in-order run and two adversarial schedules"
    return markup.facts(
        {
            "tactic": f"{tactic} on {problem.n}x{problem.k}, M = {problem.m}",
            "compiled for": compiled.arch,
            "registers": f"{used.registers} per thread, {used.spill_bytes} B spilled, {used.stack_bytes} B of stack",
            "shared memory": f"{compiled.smem_bytes:,} B dynamic, {used.static_smem_bytes} B static",
            "grid": f"{prod(tactic.grid(problem))} CTAs in clusters of {prod(compiled.cluster)}",
            "ran on": f"{run.backend}, {run.seconds:.3f} s of execution, {seconds:.1f} s with everything",
            "relative error": f"{', '.join(off)} against FP64",
            "repeatability": f"{'the same bits' if equal else 'DIFFERENT bits'} ({how})",
        }
    )


def _sass(compiled: CompiledKernel) -> str:
    """The opcodes of the binary, counted, and the instructions around the first HMMA."""
    try:
        listing = sass.instructions(compiled.cubin)
    except FileNotFoundError as error:
        return f"No SASS here: {html.escape(str(error))}"
    counts = pd.Series([opcode for _, opcode, _, _ in listing]).value_counts().head(12)
    summary = ", ".join(f"{opcode} {count}" for opcode, count in counts.items())
    first = next((i for i, (_, opcode, _, _) in enumerate(listing) if opcode == "HMMA"), 0)
    start = max(0, first - SASS_LINES // 2)
    lines = [
        f"{address:#06x}  {opcode}{modifiers} {operands}"
        for address, opcode, modifiers, operands in listing[start : start + SASS_LINES]
    ]
    excerpt = html.escape("\n".join(lines))
    return (
        f"<b>SASS</b>: {len(listing):,} instructions: {html.escape(summary)}"
        f"<details open><summary>around the first HMMA</summary><pre>{excerpt}</pre></details>"
    )


def _table(run: Trial, result: Result) -> pd.DataFrame:
    """The errors of one result, counted."""
    return error_table(run.values(result), run.expected(result), result.dtype)


def _histogram(run: Trial, result: Result) -> Figure:
    return charts.error_histogram(_table(run, result), run.relative_error(result), result.dtype, _name(run, result))


def _name(run: Trial, result: Result) -> str:
    """What tells `result` from the run's others; the only one needs no name."""
    return result.name if len(run.results) > 1 else ""
