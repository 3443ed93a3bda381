"""Tactics of warp split-K: illegal ones say why, `enumerate` is what is legal, defaults and footprint follow."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WarpSplitKTactic

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)


@pytest.mark.parametrize(
    ("tactic", "problem", "sentence"),
    [
        ("16,8,256,4,2", GemmProblem(33, 3584, 7168), "M is 33"),
        ("24,8,256,4,2", PROBLEM, "output_tile is 24, but must be one of 16, 32"),
        ("16,12,256,4,2", PROBLEM, "token_tile is 12"),
        ("16,8,64,4,2", PROBLEM, "k_tile is 64"),
        ("16,8,256,4,3", PROBLEM, "b_loader_warps is 3"),
        ("16,8,256,4,2,2", PROBLEM, "trigger is 2, but must be one of 0, 1"),
        ("32,8,256,4,2", GemmProblem(8, 48, 7168), "output_tile 32 does not divide N = 48"),
        ("16,8,256,4,2", GemmProblem(8, 48, 1408), "k_tile 256 does not divide K = 1408"),
        ("16,8,128,4,2", GemmProblem(8, 48, 14336), "at most 64"),
        ("16,8,256,1,2", PROBLEM, "stages is 1, but must be 2 to 16"),
        ("16,8,256,17,2", PROBLEM, "stages is 17"),
        ("16,8,256,2,2", GemmProblem(8, 48, 256), "stages is 2, but must be 1 for 1 K tile of 256"),
        ("32,32,256,7,2", PROBLEM, "of shared memory needed, 232,448 available: lower stages, k_tile or token_tile"),
    ],
)
def test_an_illegal_tactic_says_why_in_one_sentence(tactic, problem, sentence):
    tactic = WarpSplitKTactic.parse(tactic)
    assert sentence in tactic.why_not(problem, H200)
    with pytest.raises(ValueError, match=str(tactic)):
        tactic.check(problem, H200)


def test_a_smaller_gpu_allows_fewer_stages():
    tactic = WarpSplitKTactic(32, 8, 256, 8, 2)
    assert tactic.why_not(PROBLEM, H200) is None
    assert "101,376 available" in tactic.why_not(PROBLEM, device.get("rtx5090"))


@settings(deadline=None)
@given(st.sampled_from([16, 48, 64, 560, 3584]), st.sampled_from([128, 256, 512, 640, 1536, 7168]), st.integers(1, 32))
def test_enumerate_is_exactly_what_is_legal(n, k, m):
    """Against the specification's table, restated here by hand."""
    problem = GemmProblem(m, n, k)
    expected = set()
    for o, t, kt, s, b, g in itertools.product((16, 32), (8, 16, 32), (128, 256), range(1, 18), (1, 2), (0, 1)):
        if n % o or k % kt or k // kt > 64 or s > min(16, k // kt) or (s < 2 and k // kt > 1):
            continue
        if 2 * (o + t) * kt * s + 16 * o * t + 16 * s <= 232448:
            expected.add((o, t, kt, s, b, g))
    assert [dataclasses.astuple(t) for t in WarpSplitKTactic.enumerate(problem, H200)] == sorted(expected)


@settings(deadline=None)
@given(st.integers(1, 32), st.sampled_from(shapes()), st.sampled_from(device.names()))
def test_the_default_is_legal_wherever_any_tactic_is(m, shape, name):
    problem, gpu = GemmProblem(m, shape.n, shape.k), device.get(name)
    legal = WarpSplitKTactic.enumerate(problem, gpu)
    for choose in (WarpSplitKTactic.default, WarpSplitKTactic.heuristic):
        if legal:
            assert choose(problem, gpu) in legal
        else:
            with pytest.raises(ValueError, match=f"{shape.n}x{shape.k}"):
                choose(problem, gpu)


@given(st.sampled_from(WarpSplitKTactic.enumerate(PROBLEM, H200)))
def test_the_footprint_counts_the_reservation(tactic):
    footprint = tactic.footprint(PROBLEM, H200)
    by_threads, charged = 2048 // tactic.threads, footprint.smem_bytes + 1024
    assert footprint.ctas_per_sm * charged <= 233472
    assert (footprint.ctas_per_sm + 1) * charged > 233472 or footprint.ctas_per_sm == by_threads
    assert footprint.ctas == 3584 // tactic.output_tile * -(-8 // tactic.token_tile)
    assert footprint.waves == -(-footprint.ctas // (132 * footprint.ctas_per_sm))


def test_choices_are_the_values_of_legal_tactics():
    choices = WarpSplitKTactic.choices(GemmProblem(8, 48, 512), H200)
    assert choices["output_tile"] == (16,) and choices["stages"] == (2, 3, 4) and choices["trigger"] == (0, 1)
    assert list(choices) == [field.name for field in dataclasses.fields(WarpSplitKTactic)]
