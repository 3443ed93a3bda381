"""What all tactics share: they are integers, read and written as text, from which defaults at the end are left off;
a kernel says which problems it takes.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import KERNELS, Tactic, WarpSplitKTactic, tactic_type

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


@dataclasses.dataclass(frozen=True)
class Later(WarpSplitKTactic):
    """What the kernel might become: the fields that it has, and one more."""

    more: int = 3


@dataclasses.dataclass(frozen=True)
class Whole(Tactic):
    """Of a kernel whose fields have no defaults."""

    kernel = "whole"
    width: int
    depth: int


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("16,8,256,4,2", (0, 3)),
        ("16,8,256,4,2,1", (1, 3)),
        ("16,8,256,4,2,0,5", (0, 5)),
        ("16,8,256,4,2,1,0", (1, 0)),
    ],
)
def test_text_leaves_off_the_defaults_at_its_end_so_that_what_is_recorded_stays_the_name_of_the_same_tactic(
    text, values
):
    tactic = Later(16, 8, 256, 4, 2, *values)
    assert Later.parse(text) == tactic and str(tactic) == text
    assert Later.parse(",".join(map(str, dataclasses.astuple(tactic)))) == tactic, "they need not be left off"


@pytest.mark.parametrize("text", ["", "16,8,256,4", "16,8,256,4,2,1,0", "16,8,256,four,2", "16;8;256;4;2"])
def test_unreadable_text_names_itself_the_fields_and_what_may_be_left_off(text):
    with pytest.raises(ValueError) as raised:
        WarpSplitKTactic.parse(text)
    fields = "output_tile,token_tile,k_tile,stages,b_loader_warps,trigger; trigger may be left off, then it is 0"
    assert str(raised.value) == f"tactic {text!r} is not 6 comma-separated integers ({fields})"
    with pytest.raises(ValueError, match=r"is not 2 comma-separated integers \(width,depth\)$"):
        Whole.parse(text)


def test_a_value_is_told_in_the_words_of_its_field_or_as_a_number():
    assert [WarpSplitKTactic.in_words("trigger", value) for value in (0, 1)] == ["first", "after the last tile"]
    assert WarpSplitKTactic.in_words("stages", 4) == "4"


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
