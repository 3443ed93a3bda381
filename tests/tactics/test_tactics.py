"""Tactics: legality is decided in words before anything is compiled, and the default and the footprint follow it."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import KERNELS, WarpSplitKTactic, WsGemmTactic, tactic_type

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


@pytest.mark.parametrize("stages", [2.0, "2", None, True])
def test_a_field_that_is_no_integer_is_refused(stages):
    with pytest.raises(ValueError, match=f"stages is {stages!r}, but must be an integer"):
        WarpSplitKTactic(16, 8, 256, stages, 2)


def test_numpy_integers_become_python_integers():
    tactic = WarpSplitKTactic(*map(np.int64, (16, 8, 256, 2, 2)))
    assert tactic == WarpSplitKTactic(16, 8, 256, 2, 2) and type(tactic.stages) is int


def test_a_smaller_gpu_allows_fewer_stages():
    tactic = WarpSplitKTactic(32, 8, 256, 8, 2)
    assert tactic.why_not(PROBLEM, H200) is None
    assert "101,376 available" in tactic.why_not(PROBLEM, device.get("rtx5090"))


@given(st.sampled_from([16, 48, 64, 560, 3584]), st.sampled_from([128, 256, 512, 640, 1536, 7168]), st.integers(1, 32))
def test_enumerate_is_exactly_what_is_legal(n, k, m):
    """Against the specification's table, restated here by hand."""
    problem = GemmProblem(m, n, k)
    expected = set()
    for o, t, kt, s, b in itertools.product((16, 32), (8, 16, 32), (128, 256), range(1, 18), (1, 2)):
        if n % o or k % kt or k // kt > 64 or s > min(16, k // kt) or (s < 2 and k // kt > 1):
            continue
        if 2 * (o + t) * kt * s + 16 * o * t + 16 * s <= 232448:
            expected.add((o, t, kt, s, b))
    assert {dataclasses.astuple(tactic) for tactic in WarpSplitKTactic.enumerate(problem, H200)} == expected


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
def test_text_round_trips(tactic):
    assert WarpSplitKTactic.parse(str(tactic)) == tactic


@pytest.mark.parametrize("text", ["", "16,8,256,4", "16,8,256,4,2,1", "16,8,256,four,2", "16;8;256;4;2"])
def test_unreadable_text_names_itself_and_the_fields(text):
    with pytest.raises(ValueError, match="output_tile,token_tile,k_tile,stages,b_loader_warps"):
        WarpSplitKTactic.parse(text)


@given(st.sampled_from(WarpSplitKTactic.enumerate(PROBLEM, H200)))
def test_the_footprint_counts_the_reservation(tactic):
    footprint = tactic.footprint(PROBLEM, H200)
    by_threads, charged = 2048 // tactic.threads, footprint.smem_bytes + 1024
    assert footprint.ctas_per_sm * charged <= 233472
    assert (footprint.ctas_per_sm + 1) * charged > 233472 or footprint.ctas_per_sm == by_threads
    assert footprint.ctas == 3584 // tactic.output_tile * -(-8 // tactic.token_tile)
    assert footprint.waves == -(-footprint.ctas // (132 * footprint.ctas_per_sm))


def test_the_number_of_resident_ctas_has_a_limit_of_its_own():
    few = dataclasses.replace(H200, ctas_per_sm=2)
    tactic = WarpSplitKTactic(16, 8, 128, 2, 1)
    assert tactic.footprint(PROBLEM, H200).ctas_per_sm > 2 == tactic.footprint(PROBLEM, few).ctas_per_sm


def test_choices_are_the_values_of_legal_tactics():
    choices = WarpSplitKTactic.choices(GemmProblem(8, 48, 512), H200)
    assert choices["output_tile"] == (16,) and choices["stages"] == (2, 3, 4)
    assert list(choices) == [field.name for field in dataclasses.fields(WarpSplitKTactic)]


@pytest.mark.parametrize(("m", "n", "k"), [(3, 64, 512), (17, 48, 1792), (64, 80, 896)])
def test_enumerate_of_the_front_kernel_is_exactly_what_is_legal(m, n, k):
    """It searches ranges of `staged`; here every value is asked. M counts by tiles of eight tokens alone."""
    problem, legal = GemmProblem(m, n, k), []
    sizes = [8 << i for i in range(4) if 8 << i < 16 * -(-m // 8)]
    for rt, kq, ks in itertools.product(range(1, 9), range(1, 33), range(1, 17)):
        if rt * kq <= 32 and n % (16 * rt) == 0 and k % (32 * kq * ks) == 0:
            rest = itertools.product(range(k // (32 * kq * ks) + 2), [0, *sizes], (1, 2, 4))
            legal += [t for more in rest if (t := WsGemmTactic(rt, kq, ks, *more)).why_not(problem, H200) is None]
    assert WsGemmTactic.enumerate(problem, H200) == legal
    assert WsGemmTactic.choices(problem, H200) == {
        f.name: tuple(sorted({getattr(t, f.name) for t in legal})) for f in dataclasses.fields(WsGemmTactic)
    }


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
