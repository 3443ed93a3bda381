"""What all tactics share: they are integers, read and written as text; a kernel says which problems it takes."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import KERNELS, WarpSplitKTactic, tactic_type

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)


@pytest.mark.parametrize("stages", [2.0, "2", None, True])
def test_a_field_that_is_no_integer_is_refused(stages):
    with pytest.raises(ValueError, match=f"stages is {stages!r}, but must be an integer"):
        WarpSplitKTactic(16, 8, 256, stages, 2)


def test_numpy_integers_become_python_integers():
    tactic = WarpSplitKTactic(*map(np.int64, (16, 8, 256, 2, 2)))
    assert tactic == WarpSplitKTactic(16, 8, 256, 2, 2) and type(tactic.stages) is int


@given(st.sampled_from(WarpSplitKTactic.enumerate(PROBLEM, H200)))
def test_text_round_trips(tactic):
    assert WarpSplitKTactic.parse(str(tactic)) == tactic


@pytest.mark.parametrize("text", ["", "16,8,256,4", "16,8,256,4,2,1", "16,8,256,four,2", "16;8;256;4;2"])
def test_unreadable_text_names_itself_and_the_fields(text):
    with pytest.raises(ValueError, match="output_tile,token_tile,k_tile,stages,b_loader_warps"):
        WarpSplitKTactic.parse(text)


def test_the_number_of_resident_ctas_has_a_limit_of_its_own():
    few = dataclasses.replace(H200, ctas_per_sm=2)
    tactic = WarpSplitKTactic(16, 8, 128, 2, 1)
    assert tactic.footprint(PROBLEM, H200).ctas_per_sm > 2 == tactic.footprint(PROBLEM, few).ctas_per_sm


@pytest.mark.parametrize("kind", KERNELS.values(), ids=list(KERNELS))
@pytest.mark.parametrize("name", ["h200", "rtx5090"])
def test_a_problem_is_unsupported_exactly_where_there_is_no_default(kind, name):
    for m, n, k in ((1, 560, 7168), (33, 560, 7168), (65, 64, 512), (8, 40, 512), (8, 64, 500), (8, 128, 2880)):
        problem, gpu = GemmProblem(m, n, k), device.get(name)
        reason = kind.unsupported(problem, gpu)
        if reason is None:
            assert kind.default(problem, gpu).why_not(problem, gpu) is None
        else:
            assert kind.enumerate(problem, gpu) == [] and f"{n}x{k}" in reason
            with pytest.raises(ValueError, match=f"M = {m}: "):
                kind.default(problem, gpu)


def test_an_unknown_kernel_lists_the_known_ones():
    with pytest.raises(ValueError, match=", ".join(KERNELS)):
        tactic_type("nope")
