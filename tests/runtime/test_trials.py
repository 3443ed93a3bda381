"""A run on random operands beside what it should be: errors, stray writes, traces of the first cluster."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from skinny_gemm import WarpSplitKTactic, WsGemmTactic
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.runtime import compile_kernel, trials

PROBLEM = FrontProblem(3, 64, 512, split=16, valid=8, latent=96, experts=16)
TACTIC = WsGemmTactic(1, 2, 2, 0, 0, 1)


def test_a_trial_knows_its_results_and_their_errors():
    ran = trials.trial(compile_kernel(TACTIC, PROBLEM), TACTIC, PROBLEM)
    assert [result.name for result in ran.results] == ["latent", "logits"] and ran.stray_writes == 0
    assert all(0 < ran.relative_error(result) < result.tolerance for result in ran.results)
    assert ran.table is None and ran.backend == "interpreter" and ran.seconds > 0


def test_a_mutant_errs():
    compiled = compile_kernel(TACTIC, PROBLEM)
    mutant = replace(compiled, ptx=compiled.ptx.replace("add.f32", "sub.f32"))
    ran = trials.trial(mutant, TACTIC, PROBLEM)
    assert all(ran.relative_error(result) > 0.1 for result in ran.results)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("copies", [(), (4,)])
def test_stray_writes_are_words_outside_the_results(library, copies):
    empty, results = TACTIC.output(PROBLEM), TACTIC.results(PROBLEM)
    out = np.broadcast_to(empty, (*copies, *empty.shape)).copy()
    for result in results:
        out[..., result.columns] = 1
    outside = np.setdiff1d(np.arange(empty.shape[1]), np.concatenate([np.r_[r.columns] for r in results]))
    as_library = np.asarray if library == "numpy" else lambda bits: torch.from_numpy(bits.view(np.int16))
    assert trials.stray_writes(as_library(out), as_library(empty), results) == 0
    out[..., 1, outside[:3]] = 7
    assert trials.stray_writes(as_library(out), as_library(empty), results) == 3 * (copies or (1,))[0]


@pytest.mark.parametrize(
    ("tactic", "ctas"), [(TACTIC, [0, 1]), (WarpSplitKTactic(16, 8, 128, 2, 1), [0])], ids=["cluster", "no clusters"]
)
def test_a_trace_is_of_the_first_cluster(tactic, ctas):
    ran = trials.traced(tactic, GemmProblem(3, 64, 512), opcodes=("mma",))
    assert sorted(ran.table.cta.unique()) == ctas and set(ran.table.opcode.str.split(".").str[0]) == {"mma"}
