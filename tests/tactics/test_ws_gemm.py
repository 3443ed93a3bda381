"""Tactics of the weight-stationary GEMM: illegal ones say why, `enumerate` is exactly what is legal, defaults run."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WsGemmTactic
from skinny_gemm.tactics.base import TRIGGERS

H200 = device.get("h200")
FRONT = GemmProblem(8, 560, 7168)


@pytest.mark.parametrize(
    ("tactic", "problem", "sentence"),
    [
        ("5,2,16,0,8,1", GemmProblem(65, 560, 7168), "M is 65, but this kernel takes 1 to 64 tokens"),
        ("5,2,16,0,8,1", GemmProblem(8, 568, 7168), "N = 568 is not a multiple of 16"),
        ("5,2,16,0,8,1", GemmProblem(8, 560, 7176), "K = 7176 is not a multiple of 32"),
        ("5,2,16,0,8,1", GemmProblem(8, 10**12, 7168), "N = 1000000000000 is more than 134217712, the most rows"),
        ("0,2,16,0,8,1", FRONT, "rt is 0, but must be 1 to 32"),
        ("5,0,16,0,8,1", FRONT, "kq is 0, but must be 1 to 32"),
        ("5,2,17,0,8,1", FRONT, "ks is 17, but must be 1 to 16"),
        ("5,2,16,0,8,5", FRONT, "ch is 5, but must be 0 to 4"),
        ("5,2,16,0,12,1", FRONT, "tg is 12, but must be 0 or a multiple of 8"),
        ("5,2,16,0,-8,1", FRONT, "tg is -8, but must be 0 or a multiple of 8"),
        ("1,16,1,0,8,1", FRONT, "tg is 8, but token groups need a cluster: raise ks above 1, or set tg to 0"),
        ("6,2,16,0,8,1", FRONT, "rt 6 makes tiles of 96 rows, which do not divide N = 560"),
        ("5,3,16,0,8,1", FRONT, "kq 3 and ks 16 cut K into 48 parts of whole 32-element blocks"),
        ("7,8,4,0,8,1", FRONT, "rt 7 x kq 8 warps are 1,792 threads, more than a CTA's 1,024"),
        ("5,2,16,8,8,1", FRONT, "staged is 8, but must be 0 to 7, the K blocks of a warp"),
        ("1,1,1,200,0,1", GemmProblem(64, 560, 7168), "unrolled mma, but at most 2,048 are allowed: raise kq or ks"),
        ("5,1,4,0,8,1", FRONT, "registers per thread needed, 168 available to 160 threads"),
        ("5,1,4,50,8,1", FRONT, "B of shared memory needed, 232,448 available: lower staged or rt, or raise ks"),
    ],
)
def test_an_illegal_tactic_says_why_in_one_sentence(tactic, problem, sentence):
    tactic = WsGemmTactic.parse(tactic)
    reason = tactic.why_not(problem, H200)
    if "168 available" in sentence:
        sentence = f"registers per thread needed, {tactic.register_limit()} available to 160 threads"
    assert sentence in reason and "\n" not in reason
    with pytest.raises(ValueError, match=str(tactic)):
        tactic.check(problem, H200)


def test_chains_that_would_stay_empty_cost_no_registers():
    problem = GemmProblem(64, 256, 8192)
    few, many = (WsGemmTactic(1, 16, 16, 0, 64, ch) for ch in (2, 4))  # one K block a warp: two mma for a tile
    assert many.chains(problem) == 2 and many.registers(problem) == few.registers(problem)
    assert many.why_not(problem, H200) is None


def test_a_device_with_small_clusters_says_so():
    tactic = WsGemmTactic.parse("5,2,16,0,8,1")
    assert tactic.why_not(FRONT, H200) is None
    assert "ks is 16, but this device allows clusters up to 8" in tactic.why_not(FRONT, device.get("rtx5090"))


FIELDS = st.tuples(
    st.integers(-1, 9),
    st.integers(-1, 33),
    st.integers(-1, 17),
    st.integers(-1, 20),
    st.integers(-8, 72),
    st.integers(-1, 5),
)


@given(FIELDS, st.integers(1, 65), st.sampled_from([16, 96, 560, 568]), st.sampled_from([256, 7168, 7184]))
def test_whatever_the_fields_the_answer_is_yes_or_one_sentence(fields, m, n, k):
    reason = WsGemmTactic(*fields).why_not(GemmProblem(m, n, k), H200)
    assert reason is None or (reason and "\n" not in reason and not reason.endswith("."))


@pytest.mark.parametrize(("m", "n", "k"), [(20, 160, 512), (1, 96, 256), (64, 32, 224)])
def test_enumerate_is_exactly_what_is_legal(m, n, k):
    """Against `why_not` of every combination of fields in the space that `enumerate` documents."""
    problem = GemmProblem(m, n, k)
    groups = [0, *(8 << i for i in range(4) if 8 << i < 16 * -(-m // 8))]
    space = itertools.product(range(1, 9), range(1, 33), range(1, 17), range(k // 32 + 1), groups, (1, 2, 4), TRIGGERS)
    cuts = {(q, s) for q in range(1, 33) for s in range(1, 17) if k % (32 * q * s) == 0}
    legal = [
        tactic
        for f in space
        if (f[1], f[2]) in cuts and n % (16 * f[0]) == 0
        if (tactic := WsGemmTactic(*f)).why_not(problem, H200) is None
    ]
    assert WsGemmTactic.enumerate(problem, H200) == sorted(legal, key=dataclasses.astuple)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 64), st.sampled_from(shapes()), st.sampled_from(device.names()))
def test_the_default_is_legal_or_the_reason_is_given(m, shape, name):
    problem, gpu = GemmProblem(m, shape.n, shape.k), device.get(name)
    if reason := WsGemmTactic.unsupported(problem, gpu):
        for choose in (WsGemmTactic.default, WsGemmTactic.heuristic):
            with pytest.raises(ValueError) as raised:
                choose(problem, gpu)
            assert str(raised.value) == reason
    else:
        assert WsGemmTactic.default(problem, gpu).why_not(problem, gpu) is None
        assert WsGemmTactic.heuristic(problem, gpu).why_not(problem, gpu) is None


@pytest.mark.parametrize(("m", "n", "k"), [(3, 64, 512), (17, 48, 1792), (64, 80, 896)])
def test_enumerate_and_choices_are_exactly_what_is_legal(m, n, k):
    """It searches ranges of `staged`; here every value is asked. M counts by tiles of eight tokens alone."""
    problem, legal = GemmProblem(m, n, k), []
    sizes = [8 << i for i in range(4) if 8 << i < 16 * -(-m // 8)]
    for rt, kq, ks in itertools.product(range(1, 9), range(1, 33), range(1, 17)):
        if rt * kq <= 32 and n % (16 * rt) == 0 and k % (32 * kq * ks) == 0:
            rest = itertools.product(range(k // (32 * kq * ks) + 2), [0, *sizes], (1, 2, 4), TRIGGERS)
            legal += [t for more in rest if (t := WsGemmTactic(rt, kq, ks, *more)).why_not(problem, H200) is None]
    assert WsGemmTactic.enumerate(problem, H200) == legal
    assert WsGemmTactic.choices(problem, H200) == {
        f.name: tuple(sorted({getattr(t, f.name) for t in legal})) for f in dataclasses.fields(WsGemmTactic)
    }


def test_the_choices_are_the_values_of_legal_tactics():
    legal = WsGemmTactic.enumerate(FRONT, H200)
    for field, values in WsGemmTactic.choices(FRONT, H200).items():
        assert values == tuple(sorted({getattr(tactic, field) for tactic in legal}))


@given(st.sampled_from(WsGemmTactic.enumerate(FRONT, H200)))
def test_text_round_trips(tactic):
    assert WsGemmTactic.parse(str(tactic)) == tactic


@given(st.sampled_from(WsGemmTactic.enumerate(GemmProblem(20, 560, 7168), H200)))
def test_the_footprint_is_the_sum_of_its_regions(tactic):
    footprint = tactic.footprint(GemmProblem(20, 560, 7168), H200)
    assert footprint.smem_bytes == sum(size for _, _, size in footprint.regions) <= 232448
    assert footprint.ctas == 560 // (16 * tactic.rt) * tactic.ks and footprint.threads == 32 * tactic.rt * tactic.kq
    assert footprint.bytes_in_flight_per_sm >= 2 * 560 * 7168 // footprint.ctas


def test_waves_are_counted_in_clusters():
    """128 CTAs fit the 132 SMs at once, but an H200 runs 7 clusters of 16 at a time, not 8."""
    problem, tactic = GemmProblem(16, 640, 7168), WsGemmTactic.parse("5,2,16,0,16,2")
    footprint = tactic.footprint(problem, H200)
    assert (footprint.ctas, footprint.ctas_per_sm, footprint.waves) == (128, 1, 2)
    assert tactic.footprint(problem, dataclasses.replace(H200, clusters=())).waves == 1
