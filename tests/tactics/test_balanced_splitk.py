"""Tactics of balanced split-K: illegal ones say why, `enumerate` is what is legal, defaults and footprint follow."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import BalancedSplitKTactic
from skinny_gemm.tactics.base import FIRST, LAST

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)
WIDE = GemmProblem(64, 3584, 7168)


@pytest.mark.parametrize(
    ("tactic", "problem", "sentence"),
    [
        ("132,1,8,64,4,8", GemmProblem(65, 3584, 7168), "M is 65, but this kernel takes 1 to 64 tokens"),
        ("132,1,8,64,4,8", GemmProblem(8, 3588, 7168), "N = 3588 is not a multiple of 8"),
        ("132,1,8,64,4,8", GemmProblem(8, 2**31, 7168), "N = 2147483648 is more than 2147483632, the most rows"),
        ("132,1,8,64,4,8", GemmProblem(8, 3584, 7200), "K = 7200 is not a multiple of 64"),
        ("132,3,8,64,4,8", PROBLEM, "cluster is 3, but must be one of 1, 2, 4, 8, 16"),
        ("132,1,8,256,4,8", PROBLEM, "k_chunk is 256, but must be one of 64, 128"),
        ("132,1,8,64,4,12", PROBLEM, "token_tile is 12, but must be one of 8, 16, 24, 32, 48, 64"),
        ("132,1,8,64,4,8,2", PROBLEM, "trigger is 2, but must be one of 0, 1"),
        ("132,1,8,64,4,8,0,2", PROBLEM, "x_ring is 2, but must be one of 0, 1"),
        ("0,1,8,64,4,8", PROBLEM, "row_tiles is 0, but must be 1 to 3584"),
        ("3585,1,8,64,4,8", PROBLEM, "row_tiles is 3585, but must be 1 to 3584"),
        ("14135,1,8,64,4,8", GemmProblem(8, 151936, 2048), "row_tiles is 14135, but must be 1 to 14134"),
        ("132,1,0,64,4,8", PROBLEM, "warps is 0, but must be 1 to 16"),
        ("132,1,17,64,4,8", PROBLEM, "warps is 17, but must be 1 to 16"),
        ("132,1,8,64,4,8", GemmProblem(9, 3584, 7168), "token_tile is 8, but must be at least M = 9"),
        ("132,2,5,64,4,8", PROBLEM, "make 10 warps that take chunks of 64 in turn, which do not divide K = 7168"),
        ("132,1,1,64,4,8", PROBLEM, "would take 112 turns, but the unrolled K loop has at most 64: raise warps"),
        ("132,1,8,64,0,8", PROBLEM, "stages is 0, but must be 1 to 6 for 14 turns of a warp"),
        ("132,1,8,64,7,8", PROBLEM, "stages is 7, but must be 1 to 6 for 14 turns of a warp"),
        ("132,8,7,64,3,8", PROBLEM, "stages is 3, but must be 1 to 2 for 2 turns of a warp"),
        ("132,8,14,64,2,8", PROBLEM, "stages is 2, but must be 1 for 1 turn of a warp"),
        ("112,1,2,64,4,64", WIDE, "would run 3,584 unrolled mma, but at most 2,048 are allowed: raise row_tiles"),
        (
            "64,1,8,64,2,64",
            WIDE,
            "about 264 registers per thread needed, 255 available to 256 threads: raise row_tiles",
        ),
        ("75,1,8,64,5,8", PROBLEM, "245,760 B of shared memory needed, 232,448 available: lower stages or warps"),
    ],
)
def test_an_illegal_tactic_says_why_in_one_sentence(tactic, problem, sentence):
    tactic = BalancedSplitKTactic.parse(tactic)
    assert sentence in tactic.why_not(problem, H200)
    with pytest.raises(ValueError, match=str(tactic)):
        tactic.check(problem, H200)


def test_a_smaller_gpu_allows_smaller_clusters_and_rings():
    small, wide, deep = device.get("rtx5090"), "33,16,7,64,1,8", "132,1,8,64,6,8"
    assert [BalancedSplitKTactic.parse(text).why_not(PROBLEM, H200) for text in (wide, deep)] == [None, None]
    wide, deep = (BalancedSplitKTactic.parse(text).why_not(PROBLEM, small) for text in (wide, deep))
    assert wide == "cluster is 16, but this device allows clusters up to 8" and "101,376 available" in deep


FIELDS = st.tuples(
    st.sampled_from([-1, 0, 1, 7, 60, 132, 264, 4000]),
    st.sampled_from([0, 1, 2, 5, 8, 16, 32]),
    st.integers(-1, 18),
    st.sampled_from([0, 32, 64, 128]),
    st.integers(-1, 9),
    st.sampled_from([0, 8, 12, 24, 64]),
    st.integers(-1, 2),
    st.integers(-1, 2),
)


@given(FIELDS, st.integers(1, 65), st.sampled_from([8, 72, 3584, 3588]), st.sampled_from([64, 2880, 7168, 7176]))
def test_whatever_the_fields_the_answer_is_yes_or_one_sentence(fields, m, n, k):
    reason = BalancedSplitKTactic(*fields).why_not(GemmProblem(m, n, k), H200)
    assert reason is None or (reason and "\n" not in reason and not reason.endswith("."))


def tried(problem, gpu):
    """The space that `enumerate` documents, restated by hand: every combination of its fields' values."""
    cuts = [
        (cluster, warps, chunk)
        for cluster, warps, chunk in itertools.product((1, 2, 4, 8, 16), range(1, 17), (64, 128))
        if problem.k % (cluster * warps * chunk) == 0 and cluster <= gpu.max_cluster
    ]
    cuts = [cut for cut in cuts if cut[1] >= 4] or cuts
    tokens = min(tile for tile in (8, 16, 24, 32, 48, 64) if tile >= problem.m)
    for cluster, warps, chunk in cuts:
        places = gpu.clusters[cluster - 1] if gpu.clusters else gpu.sms // cluster
        tilings, tiles = [], places
        while tiles * 8 <= problem.n:  # tiles have at least 8 rows
            if tiles * 96 >= problem.n:  # and at most 96
                tilings.append(tiles)
            tiles *= 2
        for tiles in tilings[:3] or [problem.n // 8]:
            for stages, trigger, x_ring in itertools.product(range(1, 7), (0, 1), (0, 1)):
                yield BalancedSplitKTactic(tiles, cluster, warps, chunk, stages, tokens, trigger, x_ring)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 64),
    st.sampled_from([8, 72, 128, 560, 2112, 3584, 24576]),
    st.sampled_from([64, 128, 512, 1536, 2112, 2880, 7168]),
    st.sampled_from(["h200", "b200", "rtx5090"]),
)
def test_enumerate_is_exactly_what_is_legal(m, n, k, name):
    problem, gpu = GemmProblem(m, n, k), device.get(name)
    legal = {tactic for tactic in tried(problem, gpu) if tactic.why_not(problem, gpu) is None}
    assert BalancedSplitKTactic.enumerate(problem, gpu) == sorted(legal, key=dataclasses.astuple)
    for name, values in BalancedSplitKTactic.choices(problem, gpu).items():
        assert values == tuple(sorted({getattr(tactic, name) for tactic in legal}))


@settings(deadline=None, max_examples=30)
@given(st.sampled_from((1, 8, 16, 32, 64)), st.sampled_from(shapes()), st.sampled_from(device.names()))
def test_defaults_are_legal_and_some_dozens_are_tried_around_them_or_the_reason_is_given(m, shape, name):
    """A sample: all 1,450 cases take over a minute."""
    problem, gpu = GemmProblem(m, shape.n, shape.k), device.get(name)
    if reason := BalancedSplitKTactic.unsupported(problem, gpu):
        assert f"{shape.n}x{shape.k} at M = {m}: " in reason and not BalancedSplitKTactic.enumerate(problem, gpu)
        for choose in (BalancedSplitKTactic.default, BalancedSplitKTactic.heuristic):
            with pytest.raises(ValueError) as raised:
                choose(problem, gpu)
            assert str(raised.value) == reason
        return
    heuristic, *_ = coarse = BalancedSplitKTactic.coarse(problem, gpu)
    assert heuristic == BalancedSplitKTactic.heuristic(problem, gpu) and heuristic.trigger == FIRST
    assert {*coarse, BalancedSplitKTactic.default(problem, gpu)} <= set(BalancedSplitKTactic.enumerate(problem, gpu))
    assert len(set(coarse)) == len(coarse) <= 80
    assert dataclasses.replace(heuristic, trigger=LAST) in coarse


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (GemmProblem(65, 64, 512), "64x512 at M = 65: M is 65, but this kernel takes 1 to 64 tokens"),
        (GemmProblem(8, 60, 512), "60x512 at M = 8: N = 60 is not a multiple of 8"),
        (GemmProblem(8, 64, 4288), "64x4288 at M = 8: no tactic fits NVIDIA H200"),  # 67 chunks: one warp, 67 turns
        (GemmProblem(8, 2**24, 512), f"{2**24}x512 at M = 8: no tactic fits NVIDIA H200"),  # 127 row tiles at most
    ],
)
def test_what_the_kernel_cannot_take_is_unsupported_in_words(problem, reason):
    assert BalancedSplitKTactic.unsupported(problem, H200) == reason


@given(st.sampled_from(BalancedSplitKTactic.enumerate(PROBLEM, H200)))
def test_text_round_trips(tactic):
    assert BalancedSplitKTactic.parse(str(tactic)) == tactic
    assert len(str(tactic).split(",")) == (8 if tactic.x_ring else 6 if tactic.trigger == FIRST else 7)


@pytest.mark.parametrize(
    ("tactic", "problem", "expected"),
    [  # regions, bytes, threads, CTAs, CTAs an SM, waves, bytes in flight an SM
        (  # 8 warps of 4 stages of 28 x 128 B; shared memory leaves room for a second CTA
            "132,1,8,64,4,8",
            PROBLEM,
            ((("rings", 0, 114688),), 114688, 256, 132, 2, 1, 114688),
        ),
        (  # 14 rows: memory for four on an SM, but 92 registers a thread, counted as 96, leave room for two
            "264,1,8,64,4,8",
            PROBLEM,
            ((("rings", 0, 57344),), 57344, 256, 264, 2, 1, 114688),
        ),
        (  # 24 fragments of 38 x 64 sums, more than a warp's ring; 3 slots of 8 parts; 224 registers a thread
            "15,8,7,64,2,64",
            GemmProblem(64, 560, 7168),
            ((("rings", 0, 86016), ("receive", 86016, 12288), ("received", 98304, 8)), 98312, 224, 120, 1, 1, 68096),
        ),
        (  # 128 CTAs fit the 132 SMs at once, but an H200 runs 15 clusters of 8 at a time, not 16
            "16,8,7,64,2,64",
            GemmProblem(64, 560, 7168),
            ((("rings", 0, 86016), ("receive", 86016, 12288), ("received", 98304, 8)), 98312, 224, 128, 1, 2, 62720),
        ),
    ],
)
def test_the_footprint_is_what_one_counts_by_hand(tactic, problem, expected):
    footprint = BalancedSplitKTactic.parse(tactic).footprint(problem, H200)
    assert dataclasses.astuple(footprint) == expected


@given(st.sampled_from(BalancedSplitKTactic.enumerate(GemmProblem(20, 2112, 7168), H200)))
def test_the_footprint_is_the_sum_of_its_regions_and_the_waves_are_counted_in_clusters(tactic):
    problem = GemmProblem(20, 2112, 7168)
    footprint = tactic.footprint(problem, H200)
    _, offset, size = footprint.regions[-1]
    assert footprint.smem_bytes == offset + size <= 232448 and footprint.threads == 32 * tactic.warps
    assert footprint.ctas == tactic.row_tiles * tactic.cluster and footprint.ctas_per_sm >= 1
    assert footprint.ctas_per_sm * (footprint.smem_bytes + 1024) <= 233472
    at_once = H200.clusters[tactic.cluster - 1] * footprint.ctas_per_sm
    assert (footprint.waves - 1) * at_once < tactic.row_tiles <= footprint.waves * at_once
    assert dataclasses.replace(tactic, trigger=1 - tactic.trigger).footprint(problem, H200) == footprint
