"""Compile and run any tactic of any kernel on any shape here and now: resources, SASS, errors, repeatability."""

import html
import time
from dataclasses import dataclass
from math import prod
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .. import device as devices
from ..artifact import CompiledKernel
from ..figures import errors, resources
from ..figures.export import provenance
from ..problem import GemmProblem
from ..runtime import sass
from ..tactics import Tactic
from . import markup, running
from .base import Figures
from .controls import progress_bar, toggles
from .pictures import Picture
from .problem_controls import TacticControls

REPEATS = 3  #: runs that must agree bitwise, the first included
SASS_LINES = 24


@dataclass(frozen=True)
class Outcome:
    """The latest run: what ran, for which GPU, what came out, and where its numbers come from."""

    tactic: Tactic
    problem: GemmProblem
    gpu: devices.Device
    run: running.Run
    source: dict[str, Any]  #: provenance of the run
    model: dict[str, Any]  #: provenance of what the tactic occupies

    @property
    def what(self) -> tuple[Tactic, GemmProblem, str]:
        """What the controls have to say for this run to be theirs."""
        return self.tactic, self.problem, self.gpu.name


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
        self.build(gpu.name if gpu and gpu.name in devices.names() else device, projection, [self.backend])
        self.rows[2] += (self.run_button, self.progress)
        super().__init__(self.rows, [self.smem, self.heading, self.last], self.watched)

    def draw(self) -> None:
        tactic, problem, gpu = self.judge(), self.problem, self.gpu
        self.run_button.disabled = tactic is None
        self._head()
        if tactic:
            footprint = tactic.footprint(problem, gpu)
            facts = provenance("model", device=gpu.title, **self._facts())
            self.smem.show((tactic, problem, gpu.name), lambda: resources.smem_map(footprint, gpu), facts)
        else:
            self.smem.clear()

    def _head(self) -> None:
        """Says which run is shown, and pales it where the controls describe another."""
        if self.outcome is None:
            return
        tactic, problem, gpu = self.outcome.tactic, self.outcome.problem, self.outcome.gpu
        self.heading.value = f"<b>last run: {tactic} at {problem.n}x{problem.k}, M = {problem.m}, {gpu.title}</b>"
        same = self.outcome.what == (self.tactic, self.problem, self.gpu.name)
        (self.last.remove_class if same else self.last.add_class)("sg-stale")

    def run(self) -> None:
        """Compiles, runs `REPEATS` times and compares with FP64; ValueError in words if the tactic cannot run."""
        tactic, problem, gpu, backend = self.checked(), self.problem, self.gpu, self.backend.value
        self.progress.layout.visibility, self.progress.value = "visible", 0
        try:
            begin = time.perf_counter()
            first = running.run(tactic, problem, gpu.arch, backend, progress=self._advance)
            seconds = time.perf_counter() - begin
            schedules = [f"adversarial({seed})" for seed in range(REPEATS - 1)]
            again = [running.run(tactic, problem, gpu.arch, backend, s, progress=self._advance) for s in schedules]
        finally:
            self.progress.layout.visibility = "hidden"
        equal = all(np.array_equal(first.out, other.out) for other in again)
        live = backend == "cuda"
        source = provenance(
            "live" if live else "interpreter", device=gpu.title if live else None, arch=gpu.arch, **self._facts()
        )
        model = provenance("model", device=gpu.title, **self._facts())
        self.outcome = Outcome(tactic, problem, gpu, first, source, model)
        self._head()
        self.facts.value = _report(self.outcome, equal, seconds)
        pictures = [Picture() for _ in first.results]
        self.histograms.children = pictures
        for picture, (figure, _) in zip(pictures, _histograms(first).values(), strict=True):
            picture.show(object(), lambda figure=figure: figure, source)
        self.sass.value = _sass(first.compiled)

    def figures(self) -> Figures:
        if self.outcome is None:
            raise ValueError("There is nothing to export yet: press Run first.")
        tactic, problem, gpu, run = self.outcome.tactic, self.outcome.problem, self.outcome.gpu, self.outcome.run
        stem = f"{tactic.kernel}-{problem.n}x{problem.k}-m{problem.m}"
        histograms = {
            f"{stem}-errors" + (f"-{name}" if len(run.results) > 1 else ""): (*parts, self.outcome.source)
            for name, parts in _histograms(run).items()
        }
        footprint = tactic.footprint(problem, gpu)
        occupied = resources.smem_map(footprint, gpu), resources.smem_table(footprint, gpu), self.outcome.model
        return {**histograms, f"{stem}-smem": occupied}

    def _facts(self) -> dict[str, Any]:
        problem = self.problem
        return dict(kernel=self.kernel.value, n=problem.n, k=problem.k, m=problem.m, tactic=str(self.tactic))

    def _advance(self, fraction: float) -> None:
        self.progress.value = fraction


def _report(outcome: Outcome, equal: bool, seconds: float) -> str:
    """What the compiler and the run say, as a table; `equal`: all runs gave the same bits; `seconds`: everything."""
    tactic, problem, run, compiled = outcome.tactic, outcome.problem, outcome.run, outcome.run.compiled
    used = compiled.resources
    how = "3 launches" if run.backend == "cuda" else "in-order run and two adversarial schedules"
    return markup.facts(
        {
            "tactic": f"{tactic} on {problem.n}x{problem.k}, M = {problem.m}",
            "compiled for": compiled.arch,
            "registers": f"{used.registers} per thread, {used.spill_bytes} B spilled, {used.stack_bytes} B of stack",
            "shared memory": f"{compiled.smem_bytes:,} B dynamic, {used.static_smem_bytes} B static",
            "grid": f"{prod(tactic.grid(problem))} CTAs in clusters of {prod(compiled.cluster)}",
            "ran on": f"{run.backend}, {run.seconds:.3f} s of execution, {seconds:.1f} s with everything",
            "relative error": f"{', '.join(_errors(run))} against FP64",
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


def _histograms(run: running.Run) -> dict[str, tuple[Figure, pd.DataFrame]]:
    """Result name to its (error histogram, plotted data)."""
    parts = {}
    for result in run.results:
        table = errors.error_table(run.values(result), run.expected(result), result.dtype)
        name = result.name if len(run.results) > 1 else ""
        parts[result.name] = errors.error_histogram(table, run.relative_error(result), result.dtype, name), table
    return parts


def _errors(run: running.Run) -> list[str]:
    """Each result's relative error in words; the only one needs no name."""
    names = [f" of {result.name}" if len(run.results) > 1 else "" for result in run.results]
    return [f"{run.relative_error(result):.2e}{name}" for result, name in zip(run.results, names, strict=True)]
