"""What single cells of the notebooks show: the environment, a result beside FP64, bank conflicts, broken kernels."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.bank_conflicts import modelled, observed
from ..analysis.performance import error_table
from ..artifact import CompiledKernel
from ..figures.charts import error_histogram
from ..figures.export import inline_svg, provenance
from ..figures.layout import conflict_bars
from ..interpreter import InterpreterError, shared_accesses
from ..problem import GemmProblem
from ..runtime import compile_kernel
from ..runtime.trials import relative_error, trial
from ..tactics import BalancedSplitKTactic, Tactic, WarpSplitKTactic, WsGemmTactic
from . import markup
from .base import Shown, facts_of
from .traced import GPU, traced

SHARED = ("ldmatrix", "cp.async.cg", "ld.shared", "st.shared", "st.async")  #: opcodes that shared memory serves
_numbers = itertools.count()
TRIES = 5  #: adversarial schedules that a mutant is put through


def environment() -> Any:
    """What is here and what will run the kernels, as a table for a notebook's output."""
    from IPython.display import HTML

    from ..runtime.doctor import doctor

    report = doctor()
    packages, campaigns = report.pop("packages"), report.pop("campaigns")
    rows = {name.replace("_", " "): value or "none" for name, value in report.items()}
    rows["packages"] = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
    rows["recorded data"] = "; ".join(f"{name} ({where})" for name, where in campaigns.items()) or "no campaign yet"
    return HTML(markup.facts(rows))


def show(figure: Figure, data: pd.DataFrame | None = None, provenance: dict[str, Any] | None = None) -> Any:
    """`figure` for a notebook's output: SVG in the page's theme, `provenance` in the footer; `data` is not used."""
    from IPython.display import HTML

    return HTML(inline_svg(figure, provenance, salt=f"figure-{next(_numbers)}"))


def compare_with_fp64(out: Any, x: Any, weight: Any) -> Shown:
    """The errors of `out` `[M, N]` against x `[M, K]` @ weight `[N, K]`^T in FP64; torch tensors."""
    import torch

    reference = (x.double() @ weight.double().T).cpu().numpy()
    values = out.double().cpu().numpy()
    data = error_table(values, reference)
    gpu = torch.cuda.get_device_name(out.device) if out.is_cuda else None
    shape = dict(m=x.shape[0], n=weight.shape[0], k=weight.shape[1])
    facts = provenance("live" if gpu else "interpreter", device=gpu, kernel=WarpSplitKTactic.kernel, **shape)
    return error_histogram(data, relative_error(values, reference)), data, facts


def conflicts(tactic: Tactic, problem: GemmProblem) -> Shown:
    """Wavefronts per access, from the bank model and from a traced run; ValueError, in words, if it cannot run."""
    tactic.check(problem, GPU)
    table = traced(tactic, problem, GPU.arch, "in_order", SHARED).table
    table = table[table.event == "execute"].assign(space="shared")  # what a peer's memory serves has its banks, too
    seen = observed(shared_accesses(table), tactic.footprint(problem, GPU).regions)
    data = pd.concat([modelled(tactic, problem), seen], ignore_index=True)
    data = data.sort_values("access", kind="stable", ignore_index=True)
    return conflict_bars(data), data, facts_of("interpreter", tactic, problem)


def without_barriers(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of the single pass with a cluster barrier weakened or gone: kernel, looked, verdict."""
    compiled, (first, second) = _compiled(tactic, problem)
    mutants = {
        "barrier 1 relaxed": {first[0]: "barrier.cluster.arrive.relaxed;"},
        "without barrier 1": dict.fromkeys(first, ""),
        "without barrier 2": dict.fromkeys(second, ""),
    }
    return _verdicts(compiled, mutants, tactic, problem)


def broken_settle(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of token groups without what orders them: kernel, looked, verdict."""
    compiled, (barrier,) = _compiled(tactic, problem)
    waits = _lines_with(compiled, ".acquire.cluster")
    mutants = {
        "without the cluster barrier": dict.fromkeys(barrier, ""),
        "owners wait at CTA scope": {n: line.replace(".acquire.cluster", ".acquire.cta") for n, line in waits.items()},
        "owners do not wait": dict.fromkeys(waits, ""),
    }
    return _verdicts(compiled, mutants, tactic, problem)


def broken_ring(tactic: BalancedSplitKTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of balanced split-K in a cluster without what orders it: kernel, looked, verdict."""
    compiled, (barrier,) = _compiled(tactic, problem)
    mutants = {
        "no wait for the warp's own copies": dict.fromkeys(_lines_with(compiled, "cp.async.wait_group"), ""),
        "lanes of a warp do not meet": dict.fromkeys(_lines_with(compiled, "bar.warp.sync"), ""),
        "warps do not meet before they add": dict.fromkeys(_lines_with(compiled, "bar.sync"), ""),
        "without the cluster barrier": dict.fromkeys(barrier, ""),
    }
    return _verdicts(compiled, mutants, tactic, problem)


def show_verdicts(table: pd.DataFrame) -> Any:
    """Such a table for a notebook's output: the sentences whole, each kernel named once."""
    from IPython.display import HTML

    return HTML(markup.table(table.assign(kernel=table.kernel.where(table.kernel != table.kernel.shift(), ""))))


def _lines_with(compiled: CompiledKernel, text: str) -> dict[int, str]:
    """The PTX lines that hold `text`, by number (from 1)."""
    return {number: line for number, line in enumerate(compiled.ptx.split("\n"), start=1) if text in line}


def _compiled(tactic: Tactic, problem: GemmProblem) -> tuple[CompiledKernel, list[tuple[int, int]]]:
    """The kernel, and the PTX lines (from 1) of each of its cluster barriers' arrive and wait."""
    tactic.check(problem, GPU)
    compiled = compile_kernel(tactic, problem, GPU.arch)
    lines = list(_lines_with(compiled, "barrier.cluster"))
    return compiled, list(zip(lines[::2], lines[1::2], strict=True))


def _verdicts(
    compiled: CompiledKernel, mutants: Mapping[str, Mapping[int, str]], tactic: Tactic, problem: GemmProblem
) -> pd.DataFrame:
    """A row for each kernel, as compiled and with the lines of each mutant replaced, and way of looking."""
    ways: dict[str, tuple[list[str], Iterable[int]]] = {  # schedules, and CTAs that are watched for races
        "in order": (["in_order"], ()),
        "in order, watched for races": (["in_order"], range(prod(compiled.cluster))),
        f"{TRIES} adversarial schedules": ([f"adversarial({seed})" for seed in range(TRIES)], ()),
    }
    rows, expected = [], None
    for name, lines in {"as compiled": {}, **mutants}.items():
        ptx = [lines.get(number, line) for number, line in enumerate(compiled.ptx.split("\n"), start=1)]
        kernel = replace(compiled, ptx="\n".join(ptx))
        for way, (schedules, races) in ways.items():
            try:
                outs = [trial(kernel, tactic, problem, schedule=schedule, races=races).out for schedule in schedules]
            except InterpreterError as error:
                rows.append((name, way, f"{type(error).__name__}: {error}"))
                continue
            expected = outs[0] if expected is None else expected
            same = all(np.array_equal(out, expected) for out in outs)
            rows.append((name, way, "the same bits" if same else "DIFFERENT bits"))
    return pd.DataFrame(rows, columns=["kernel", "looked", "verdict"])
