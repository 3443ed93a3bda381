"""Compile and run any tactic of any kernel on any shape here and now: resources, SASS, errors, repeatability."""

import html
import time
from math import prod

import ipywidgets as widgets
import numpy as np
import pandas as pd

from .. import device as devices
from ..analysis.errors import error_table
from ..analysis.resources import smem_table
from ..figures import errors, resources
from ..figures.export import provenance
from ..runtime.trials import Trial
from . import running
from .base import Picture, toggles
from .controls import TacticControls

REPEATS = 3  #: runs that must agree bitwise, the first included
SASS_LINES = 24


class RunExplorer(TacticControls):
    """Controls for shape and tactic; *Run* compiles, runs and checks. What it shows says which run it was."""

    def __init__(self, device: str = "h200", projection: str = "q_b"):
        gpu = devices.current()
        places = [("interpreter", "interpreter"), *([(f"GPU: {gpu.title}", "cuda")] if gpu else [])]
        self.backend = toggles("run on", places, places[-1][1])
        self.run_button = widgets.Button(description="Run", button_style="primary", tooltip="compile, run and check")
        self.run_button.on_click(lambda _: self.guard(self.run))
        self.progress = widgets.FloatProgress(min=0, max=1, layout=widgets.Layout(width="240px", visibility="hidden"))
        self.smem, self.histograms = Picture(), widgets.VBox()  # of histograms one picture for each result
        self.facts, self.sass = widgets.HTML(), widgets.HTML()
        self.heading = widgets.HTML()
        self.last = widgets.VBox([self.facts, self.histograms, self.sass])
        self.outcome = None  #: (tactic, problem, Run, its provenance, that of its resources, GPU) of the latest run
        self.build(gpu.name if gpu and gpu.name in devices.names() else device, projection, [self.backend])
        self.rows[2] += (self.run_button, self.progress)
        super().__init__(self.rows, [self.smem, self.heading, self.last], self.watched)

    def draw(self) -> None:
        legal = self.legality()
        self.run_button.disabled = not legal
        self._head()
        if legal:
            footprint, gpu = self.tactic.footprint(self.problem, self.gpu), self.gpu
            facts = provenance("model", device=gpu.title, **self._facts())
            self.smem.show((self.tactic, self.problem, gpu.name), lambda: resources.smem_map(footprint, gpu), facts)
        else:
            self.smem.clear()

    def _head(self) -> None:
        """Says which run is shown, and pales it where the controls describe another."""
        if self.outcome is None:
            return
        tactic, problem, *_, gpu = self.outcome
        self.heading.value = f"<b>last run: {tactic} at {problem.n}x{problem.k}, M = {problem.m}, {gpu.title}</b>"
        same = (tactic, problem, gpu.name) == (self.tactic, self.problem, self.gpu.name)
        (self.last.remove_class if same else self.last.add_class)("sg-stale")

    def run(self) -> None:
        """Compiles, runs `REPEATS` times and compares with FP64; ValueError in words if the tactic cannot run."""
        self.tactic.check(self.problem, self.gpu)
        tactic, problem, gpu, backend = self.tactic, self.problem, self.gpu, self.backend.value
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
        facts = provenance(
            "live" if live else "interpreter", device=gpu.title if live else None, arch=gpu.arch, **self._facts()
        )
        model = provenance("model", device=gpu.title, **self._facts())
        self.outcome = tactic, problem, first, facts, model, gpu
        self._head()
        self.facts.value = self._report(first, equal, seconds)
        pictures = [Picture() for _ in first.results]
        self.histograms.children = pictures
        for picture, (figure, _) in zip(pictures, _histograms(first).values(), strict=True):
            picture.show(object(), lambda figure=figure: figure, facts)
        self.sass.value = self._sass(first.compiled)

    def figures(self):
        if self.outcome is None:
            raise ValueError("There is nothing to export yet: press Run first.")
        tactic, problem, result, facts, model, gpu = self.outcome
        stem = f"{tactic.kernel}-{problem.n}x{problem.k}-m{problem.m}"
        histograms = {
            f"{stem}-errors" + (f"-{name}" if len(result.results) > 1 else ""): (*parts, facts)
            for name, parts in _histograms(result).items()
        }
        footprint = tactic.footprint(problem, gpu)
        occupied = resources.smem_map(footprint, gpu), smem_table(footprint, gpu)
        return {**histograms, f"{stem}-smem": (*occupied, model)}

    def _facts(self) -> dict:
        p = self.problem
        return dict(kernel=self.kernel.value, n=p.n, k=p.k, m=p.m, tactic=str(self.tactic))

    def _advance(self, fraction: float) -> None:
        self.progress.value = fraction

    def _report(self, result, equal: bool, seconds: float) -> str:
        r = result.compiled.resources
        other = "3 launches" if result.backend == "cuda" else "in-order run and two adversarial schedules"
        rows = {
            "tactic": f"{self.tactic} on {self.problem.n}x{self.problem.k}, M = {self.problem.m}",
            "compiled for": result.compiled.arch,
            "registers": f"{r.registers} per thread, {r.spill_bytes} B spilled, {r.stack_bytes} B of stack",
            "shared memory": f"{result.compiled.smem_bytes:,} B dynamic, {r.static_smem_bytes} B static",
            "grid": f"{prod(self.tactic.grid(self.problem))} CTAs in clusters of {prod(result.compiled.cluster)}",
            "ran on": f"{result.backend}, {result.seconds:.3f} s of execution, {seconds:.1f} s with everything",
            "relative error": f"{', '.join(_errors(result))} against FP64",
            "repeatability": f"{'the same bits' if equal else '<b>DIFFERENT bits</b>'} ({other})",
        }
        cells = "".join(
            f"<tr><td style='padding-right:24px'>{name}</td><td><b>{value}</b></td></tr>"
            for name, value in rows.items()
        )
        return f"<table>{cells}</table>"

    def _sass(self, compiled) -> str:
        from ..runtime import sass

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


def _histograms(result: Trial) -> dict[str, tuple]:
    """Result name to its (error histogram, plotted data)."""
    parts = {}
    for part in result.results:
        table = error_table(result.values(part), result.expected(part), part.dtype)
        name = part.name if len(result.results) > 1 else ""
        parts[part.name] = errors.error_histogram(table, result.relative_error(part), part.dtype, name), table
    return parts


def _errors(result: Trial) -> list[str]:
    """Each result's relative error in words; the only one needs no name."""
    names = [f" of {part.name}" if len(result.results) > 1 else "" for part in result.results]
    return [f"{result.relative_error(part):.2e}{name}" for part, name in zip(result.results, names, strict=True)]
