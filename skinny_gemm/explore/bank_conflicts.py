"""Bank conflicts of the warp split-K kernel, model and trace side by side."""

import pandas as pd

from .. import device as devices
from ..figures import conflicts as figures
from ..figures.export import provenance
from ..problem import GemmProblem
from ..tactics import WarpSplitKTactic
from . import running

OPCODES = ("ldmatrix", "cp.async", "ld.shared", "st.shared")


def conflicts(tactic: WarpSplitKTactic, problem: GemmProblem):
    """(figure, data, provenance): wavefronts per access, from the bank model and from a traced run of the kernel.

    ValueError, in words, if `tactic` cannot run `problem` on an H200.
    """
    from ..interpreter.trace import shared_accesses

    gpu = devices.get("h200")
    tactic.check(problem, gpu)
    run = running.traced(tactic, problem, gpu.arch, "in_order", OPCODES)
    seen = figures.traced(shared_accesses(run.table), tactic.footprint(problem, gpu).regions)
    data = pd.concat([figures.modelled(tactic), seen], ignore_index=True)
    data = data.sort_values("access", kind="stable", ignore_index=True)
    facts = provenance("interpreter", kernel=tactic.kernel, tactic=str(tactic), n=problem.n, k=problem.k, m=problem.m)
    return figures.conflict_bars(data), data, facts
