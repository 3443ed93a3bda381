"""Bank conflicts of a kernel, model and trace side by side."""

import pandas as pd

from ..analysis.bank_conflicts import modelled, observed
from ..figures.export import provenance
from ..figures.layout import conflict_bars
from ..interpreter import shared_accesses
from ..problem import GemmProblem
from ..tactics import Tactic
from .base import Shown
from .traced import GPU, traced

OPCODES = ("ldmatrix", "cp.async.cg", "ld.shared", "st.shared", "st.async")


def conflicts(tactic: Tactic, problem: GemmProblem) -> Shown:
    """Wavefronts per access, from the bank model and from a traced run of the kernel.

    ValueError, in words, if `tactic` cannot run `problem` on the reference device.
    """
    tactic.check(problem, GPU)
    table = traced(tactic, problem, GPU.arch, "in_order", OPCODES).table
    table = table[table.event == "execute"].assign(space="shared")  # what a peer's memory serves has its banks, too
    seen = observed(shared_accesses(table), tactic.footprint(problem, GPU).regions)
    data = pd.concat([modelled(tactic, problem), seen], ignore_index=True)
    data = data.sort_values("access", kind="stable", ignore_index=True)
    facts = provenance("interpreter", kernel=tactic.kernel, tactic=str(tactic), n=problem.n, k=problem.k, m=problem.m)
    return conflict_bars(data), data, facts
