"""What breaks a cluster of the weight-stationary GEMM: mutants of its kernel, and what the interpreter says of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..artifact import CompiledKernel
from ..interpreter import InterpreterError
from ..problem import GemmProblem
from ..runtime import compile_kernel
from ..runtime.trials import trial
from ..tactics import WsGemmTactic
from . import markup
from .traced import GPU

TRIES = 5  #: adversarial schedules that a mutant is put through


def edited(compiled: CompiledKernel, lines: Mapping[int, str]) -> CompiledKernel:
    """`compiled` with the PTX lines of these numbers (from 1) replaced: a mutant, to see what catches it."""
    text = [lines.get(number, line) for number, line in enumerate(compiled.ptx.split("\n"), start=1)]
    return replace(compiled, ptx="\n".join(text))


def lines_with(compiled: CompiledKernel, text: str) -> dict[int, str]:
    """The PTX lines that hold `text`, by number (from 1)."""
    return {number: line for number, line in enumerate(compiled.ptx.split("\n"), start=1) if text in line}


def cluster_barriers(compiled: CompiledKernel) -> list[tuple[int, int]]:
    """The PTX lines (from 1) of each cluster barrier's arrive and wait, in the order of the text."""
    lines = list(lines_with(compiled, "barrier.cluster"))
    return list(zip(lines[::2], lines[1::2], strict=True))


def without_barriers(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of the single pass with a cluster barrier weakened or gone: kernel, looked, verdict."""
    compiled = _compiled(tactic, problem)
    (arrive, wait), second = cluster_barriers(compiled)
    mutants = {
        "barrier 1 relaxed": {arrive: "barrier.cluster.arrive.relaxed;"},
        "without barrier 1": {arrive: "", wait: ""},
        "without barrier 2": dict.fromkeys(second, ""),
    }
    return _verdicts(compiled, mutants, tactic, problem)


def broken_settle(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What the interpreter says of token groups without what orders them: kernel, looked, verdict."""
    compiled = _compiled(tactic, problem)
    (barrier,) = cluster_barriers(compiled)
    waits = lines_with(compiled, ".acquire.cluster")
    mutants = {
        "without the cluster barrier": dict.fromkeys(barrier, ""),
        "owners wait at CTA scope": {n: line.replace(".acquire.cluster", ".acquire.cta") for n, line in waits.items()},
        "owners do not wait": dict.fromkeys(waits, ""),
    }
    return _verdicts(compiled, mutants, tactic, problem)


def show_verdicts(table: pd.DataFrame) -> Any:
    """Such a table for a notebook's output: the sentences whole, each kernel named once."""
    from IPython.display import HTML

    return HTML(markup.table(table.assign(kernel=table.kernel.where(table.kernel != table.kernel.shift(), ""))))


def _compiled(tactic: WsGemmTactic, problem: GemmProblem) -> CompiledKernel:
    tactic.check(problem, GPU)
    return compile_kernel(tactic, problem, GPU.arch)


def _verdicts(
    compiled: CompiledKernel, mutants: Mapping[str, Mapping[int, str]], tactic: WsGemmTactic, problem: GemmProblem
) -> pd.DataFrame:
    """A row for each kernel and way of looking: kernel, looked, verdict.

    `mutants`: by name the PTX lines that are replaced. Their bits are compared with those of the kernel as compiled.
    """
    kernels = {"as compiled": compiled} | {name: edited(compiled, lines) for name, lines in mutants.items()}
    ways: dict[str, list[tuple[str, dict[str, Any]]]] = {
        "in order": [("in_order", {})],
        "in order, watched for races": [("in_order", {"races": range(tactic.ks)})],
        f"{TRIES} adversarial schedules": [(f"adversarial({seed})", {}) for seed in range(TRIES)],
    }
    rows, expected = [], None
    for name, kernel in kernels.items():
        for way, runs in ways.items():
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
            rows.append((name, way, verdict))
    return pd.DataFrame(rows, columns=["kernel", "looked", "verdict"])
