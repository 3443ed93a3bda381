"""Compile and run any tactic of any kernel on any shape here and now: resources, SASS, errors, repeatability."""

import html
import time
from functools import partial
from math import prod
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd

from .. import device as devices
from ..analysis.performance import error_table
from ..analysis.tactic import smem_table
from ..artifact import CompiledKernel
from ..figures import charts, layout
from ..problem import GemmProblem
from ..runtime import compile_kernel, sass, trials
from ..runtime.trials import Trial
from ..tactics import Tactic
from . import markup
from .base import Figures, Picture, facts_of
from .controls import Progress, toggles
from .problem_controls import TacticControls

REPEATS = 3  #: runs that must agree bitwise, the first included
SASS_LINES = 24


class Outcome(NamedTuple):
    """The latest run, what ran it, for which GPU it was compiled, and its provenance."""

    tactic: Tactic
    problem: GemmProblem
    gpu: devices.Device
    run: Trial
    source: dict[str, Any]


class RunExplorer(TacticControls):
    """Controls for shape and tactic; *Run* compiles, runs and checks. What it shows says which run it was."""

    def __init__(self, device: str = devices.REFERENCE, projection: str = "q_b"):
        gpu = devices.current()
        places = [("interpreter", "interpreter"), *([(f"GPU: {gpu.title}", "cuda")] if gpu else [])]
        self.backend = toggles("run on", places, places[-1][1])
        self.run_button = self.guarded_button("Run", "compile, run and check", self.run, button_style="primary")
        self.progress = Progress()
        self.smem, self.histograms = Picture(), widgets.VBox()  # of histograms one picture for each result
        self.heading, self.facts, self.sass = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.last = widgets.VBox([self.facts, self.histograms, self.sass])
        self.outcome: Outcome | None = None
        self.build(gpu.name if gpu and gpu.name in devices.names() else device, projection)
        self.rows[0].append(self.backend)
        self.rows[2] += [self.run_button, self.progress]
        super().__init__(self.rows, [self.smem, self.heading, self.last], self.watched)

    def draw(self) -> None:
        tactic, problem, gpu = self.judge(), self.problem, self.gpu
        self.run_button.disabled = tactic is None
        if self.outcome:  # say which run is shown, and pale it where the controls describe another
            ran, shape, on = self.outcome[:3]
            self.heading.value = f"<b>last run: {ran} at {shape.n}x{shape.k}, M = {shape.m}, {on.title}</b>"
            same = (ran, shape, on.name) == (self.tactic, problem, gpu.name)
            (self.last.remove_class if same else self.last.add_class)("sg-stale")
        if tactic:
            footprint = tactic.footprint(problem, gpu)
            facts = facts_of("model", tactic, problem, device=gpu.title)
            self.smem.show((tactic, problem, gpu.name), lambda: layout.smem_map(footprint, gpu), facts)
        else:
            self.smem.clear()

    def run(self) -> None:
        """Compiles, runs `REPEATS` times and compares with FP64; ValueError in words if the tactic cannot run."""
        tactic, problem, gpu, backend = self.checked(), self.problem, self.gpu, self.backend.value
        with self.progress as advance:
            begin = time.perf_counter()
            compiled = compile_kernel(tactic, problem, gpu.arch)
            run = partial(trials.trial, compiled, tactic, problem, backend=backend, progress=advance)
            first = run()
            seconds = time.perf_counter() - begin
            again = [run(schedule=f"adversarial({seed})") for seed in range(REPEATS - 1)]
        equal = all(np.array_equal(first.out, other.out) for other in again)
        source, device = ("live", gpu.title) if backend == "cuda" else ("interpreter", None)
        facts = facts_of(source, tactic, problem, device=device, arch=gpu.arch)
        self.outcome = Outcome(tactic, problem, gpu, first, facts)
        self.draw()
        self.facts.value = _report(self.outcome, equal, seconds)
        self.histograms.children = [Picture() for _ in first.results]
        for picture, (figure, *_) in zip(self.histograms.children, _errors(self.outcome).values(), strict=True):
            picture.show(figure, lambda figure=figure: figure, facts)
        self.sass.value = _sass(first.compiled)

    def figures(self) -> Figures:
        if self.outcome is None:
            raise ValueError("There is nothing to export yet: press Run first.")
        tactic, problem, gpu, *_ = self.outcome
        stem, footprint = f"{tactic.kernel}-{problem.n}x{problem.k}-m{problem.m}", tactic.footprint(problem, gpu)
        histograms = {f"{stem}-errors-{name}".rstrip("-"): shown for name, shown in _errors(self.outcome).items()}
        model = facts_of("model", tactic, problem, device=gpu.title)
        return histograms | {f"{stem}-smem": (layout.smem_map(footprint, gpu), smem_table(footprint, gpu), model)}


def _report(outcome: Outcome, equal: bool, seconds: float) -> str:
    """What the compiler and the run say, as a table; `equal`: all runs gave the same bits; `seconds`: everything."""
    tactic, problem, _, run, _ = outcome
    compiled, used, several = run.compiled, run.compiled.resources, len(run.results) > 1
    off = [f"{run.relative_error(result):.2e}" + several * f" of {result.name}" for result in run.results]
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
    around = listing[start : start + SASS_LINES]
    lines = [f"{address:#06x}  {opcode}{modifiers} {operands}" for address, opcode, modifiers, operands in around]
    excerpt = html.escape("\n".join(lines))
    return (
        f"<b>SASS</b>: {len(listing):,} instructions: {html.escape(summary)}"
        f"<details open><summary>around the first HMMA</summary><pre>{excerpt}</pre></details>"
    )


def _errors(outcome: Outcome) -> Figures:
    """The errors of each result, counted, by its name: "" if there is but one."""
    run, by_name = outcome.run, {}
    for result in run.results:
        name = result.name if len(run.results) > 1 else ""
        table = error_table(run.values(result), run.expected(result), result.dtype)
        figure = charts.error_histogram(table, run.relative_error(result), result.dtype, name)
        by_name[name] = figure, table, outcome.source
    return by_name
