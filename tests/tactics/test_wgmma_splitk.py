"""Tactics of wgmma split-K: illegal ones say why, `enumerate` is what is legal, defaults and footprint follow."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WgmmaSplitKTactic
from skinny_gemm.tactics.base import FIRST, LAST

H200 = device.get("h200")
PROBLEM = GemmProblem(32, 3584, 7168)
FITTING = "132,1,2,64,6,32"


@pytest.mark.parametrize(
    ("tactic", "problem", "sentence"),
    [
        (FITTING, GemmProblem(65, 3584, 7168), "M is 65, but this kernel takes 1 to 64 tokens"),
        (FITTING, GemmProblem(32, 3588, 7168), "N = 3588 is not a multiple of 8"),
        (FITTING, GemmProblem(32, 2**31, 7168), "N = 2147483648 is more than 2147483632, the most rows"),
        (FITTING, GemmProblem(32, 3584, 7200), "K = 7200 is not a multiple of 64"),
        ("132,3,2,64,6,32", PROBLEM, "cluster is 3, but must be one of 1, 2, 4, 8, 16"),
        ("132,1,2,256,6,32", PROBLEM, "k_chunk is 256, but must be one of 64, 128"),
        ("132,1,2,64,6,12", PROBLEM, "token_tile is 12, but must be one of 8, 16, 24, 32, 48, 64"),
        ("132,1,2,64,6,32,2", PROBLEM, "trigger is 2, but must be one of 0, 1"),
        ("0,1,2,64,6,32", PROBLEM, "row_tiles is 0, but must be 1 to 3584"),
        ("3585,1,2,64,6,32", PROBLEM, "row_tiles is 3585, but must be 1 to 3584"),
        ("14135,1,2,64,6,32", GemmProblem(8, 151936, 2048), "row_tiles is 14135, but must be 1 to 14134"),
        ("132,1,0,64,6,32", PROBLEM, "groups is 0, but must be 1 to 4"),
        ("132,1,5,64,6,32", PROBLEM, "groups is 5, but must be 1 to 4"),
        ("132,1,2,64,6,24", PROBLEM, "token_tile is 24, but must be at least M = 32"),
        ("132,2,3,64,6,32", PROBLEM, "make 6 warpgroups that take chunks of 64 in turn, which do not divide K = 7168"),
        ("132,1,1,64,6,32", GemmProblem(32, 3584, 8256), "would take 129 turns, but at most 128"),
        ("132,1,2,64,1,32", PROBLEM, "stages is 1, but must be 2 to 12 for 56 turns of a group"),
        ("132,1,2,64,13,32", PROBLEM, "stages is 13, but must be 2 to 12 for 56 turns of a group"),
        ("33,8,2,64,8,32", PROBLEM, "stages is 8, but must be 2 to 7 for 7 turns of a group"),
        ("33,8,1,64,2,32", GemmProblem(32, 3584, 512), "stages is 2, but must be 1 for 1 turn of a group"),
        ("13,1,2,64,2,32", PROBLEM, "a tile would have 276 rows, but at most 256 are allowed: raise row_tiles"),
        ("150,1,2,64,2,32", PROBLEM, "token_tile 32 needs tiles of at least 25 rows, but row_tiles makes them 24 high"),
        ("14,1,4,64,2,32", PROBLEM, "about 168 registers per thread needed, 128 available to 512 threads: raise row_"),
        ("28,1,2,64,6,32", PROBLEM, "245,760 B of shared memory needed, 232,448 available: lower stages or groups"),
    ],
)  # fmt: skip
def test_an_illegal_tactic_says_why_in_one_sentence(tactic, problem, sentence):
    tactic = WgmmaSplitKTactic.parse(tactic)
    assert sentence in tactic.why_not(problem, H200)
    with pytest.raises(ValueError, match=str(tactic)):
        tactic.check(problem, H200)


def test_as_few_and_as_many_rows_as_the_sentences_allow_are_legal():
    assert WgmmaSplitKTactic.parse("149,1,2,64,2,32").why_not(PROBLEM, H200) is None  # 25 rows
    assert WgmmaSplitKTactic.parse("14,1,3,64,2,8").why_not(GemmProblem(8, 3584, 768), H200) is None  # 256 rows


@pytest.mark.parametrize("name", [name for name in device.names() if device.get(name).arch != "sm_90a"])
def test_a_gpu_without_wgmma_runs_none_and_says_so(name):
    gpu = device.get(name)
    reason = f"{gpu.title} is {gpu.arch}, but only sm_90a has wgmma"
    assert WgmmaSplitKTactic.parse(FITTING).why_not(PROBLEM, gpu) == reason
    assert WgmmaSplitKTactic.unsupported(PROBLEM, gpu) == f"3584x7168 at M = 32: {reason}"
    assert WgmmaSplitKTactic.enumerate(PROBLEM, gpu) == []


def test_a_smaller_gpu_allows_smaller_clusters_and_rings():
    small = dataclasses.replace(H200, max_cluster=8, smem_per_cta=101376)
    wide, deep = (WgmmaSplitKTactic.parse(text) for text in ("33,16,1,64,2,32", "132,1,2,64,7,32"))
    assert wide.why_not(PROBLEM, H200) is deep.why_not(PROBLEM, H200) is None
    assert wide.why_not(PROBLEM, small) == "cluster is 16, but this device allows clusters up to 8"
    assert "114,688 B of shared memory needed, 101,376 available" in deep.why_not(PROBLEM, small)


FIELDS = st.tuples(
    st.sampled_from([-1, 0, 1, 7, 60, 132, 264, 4000]),
    st.sampled_from([0, 1, 2, 5, 8, 16, 32]),
    st.integers(-1, 6),
    st.sampled_from([0, 32, 64, 128]),
    st.integers(-1, 14),
    st.sampled_from([0, 8, 12, 24, 64]),
    st.integers(-1, 2),
)


@given(FIELDS, st.integers(1, 65), st.sampled_from([8, 72, 3584, 3588]), st.sampled_from([64, 2880, 7168, 7176]))
def test_whatever_the_fields_the_answer_is_yes_or_one_sentence(fields, m, n, k):
    reason = WgmmaSplitKTactic(*fields).why_not(GemmProblem(m, n, k), H200)
    assert reason is None or (reason and "\n" not in reason and not reason.endswith("."))


def legal(problem, gpu):
    """The space that `enumerate` documents and its rules, restated by hand."""
    tokens = min(tile for tile in (8, 16, 24, 32, 48, 64) if tile >= problem.m)
    for cluster, groups, chunk in itertools.product((1, 2, 4, 8, 16), (1, 2, 3, 4), (64, 128)):
        if gpu.arch != "sm_90a" or cluster > gpu.max_cluster or problem.k % (cluster * groups * chunk):
            continue
        turns = problem.k // (cluster * groups * chunk)
        places = gpu.clusters[cluster - 1] if gpu.clusters else gpu.sms // cluster
        tilings = [places * 2**i for i in range(16) if 8 <= problem.n / (places * 2**i) <= 256]
        for tiles in tilings[:2] or [-(-problem.n // 256)]:
            highest = -(-problem.n // tiles)
            height = -(-highest // 8) * 8
            registers = height // 2 + 40 <= {1: 255, 2: 255, 3: 168, 4: 128}[groups]
            if tiles * problem.n >= 2**31 or turns > 128 or tokens + height < 64 or height > 256 or not registers:
                continue
            fragments = height // 8 * -(-tokens // 16)
            for stages, trigger in itertools.product(range(1, 13), (0, 1)):
                ring = -(-max(stages * (tokens + height) * 2 * chunk, 512 * fragments) // 1024) * 1024
                received = -(-fragments // cluster) * cluster * 512 + 8 if cluster > 1 else 0
                if min(2, turns) <= stages <= turns and groups * ring + received <= gpu.smem_per_cta:
                    yield WgmmaSplitKTactic(tiles, cluster, groups, chunk, stages, tokens, trigger)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 64),
    st.sampled_from([8, 72, 128, 560, 2112, 3584, 24576, 151936]),
    st.sampled_from([64, 128, 512, 1536, 2112, 2880, 7168, 16384]),
    st.sampled_from(["h200", "h100", "b200"]),
)
def test_enumerate_is_exactly_what_is_legal(m, n, k, name):
    problem, gpu = GemmProblem(m, n, k), device.get(name)
    expected = sorted(legal(problem, gpu), key=dataclasses.astuple)
    assert WgmmaSplitKTactic.enumerate(problem, gpu) == expected
    for name, values in WgmmaSplitKTactic.choices(problem, gpu).items():
        assert values == tuple(sorted({getattr(tactic, name) for tactic in expected}))


@settings(deadline=None, max_examples=30)
@given(st.sampled_from((1, 8, 16, 32, 64)), st.sampled_from(shapes()), st.sampled_from(device.names()))
def test_defaults_are_legal_and_up_to_three_dozen_are_tried_around_them_or_the_reason_is_given(m, shape, name):
    problem, gpu = GemmProblem(m, shape.n, shape.k), device.get(name)
    every = WgmmaSplitKTactic.enumerate(problem, gpu)
    if reason := WgmmaSplitKTactic.unsupported(problem, gpu):
        assert f"{shape.n}x{shape.k} at M = {m}: " in reason and not every
        for choose in (WgmmaSplitKTactic.default, WgmmaSplitKTactic.heuristic, WgmmaSplitKTactic.coarse):
            with pytest.raises(ValueError) as raised:
                choose(problem, gpu)
            assert str(raised.value) == reason
        return
    heuristic, *others = coarse = WgmmaSplitKTactic.coarse(problem, gpu)
    assert heuristic == WgmmaSplitKTactic.heuristic(problem, gpu) and heuristic.trigger == FIRST
    assert {*coarse, WgmmaSplitKTactic.default(problem, gpu)} <= set(every)
    assert len(set(coarse)) == len(coarse) <= 37
    assert heuristic.footprint(problem, gpu).waves == min(tactic.footprint(problem, gpu).waves for tactic in every)
    if m <= 8:
        assert not others, "mma.sync serves so few tokens better"
    else:
        cut = dataclasses.astuple(heuristic)[:4]  # of N and K: row tiles, cluster, groups, k_chunk
        assert any(tactic.trigger == LAST and dataclasses.astuple(tactic)[:4] == cut for tactic in others)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (GemmProblem(65, 64, 512), "64x512 at M = 65: M is 65, but this kernel takes 1 to 64 tokens"),
        (GemmProblem(8, 60, 512), "60x512 at M = 8: N = 60 is not a multiple of 8"),
        (GemmProblem(8, 48, 512), "48x512 at M = 8: no tactic fits NVIDIA H200"),  # 56 rows, not 64
        (GemmProblem(64, 64, 8384), "64x8384 at M = 64: no tactic fits NVIDIA H200"),  # 131 chunks: 131 turns
        (GemmProblem(64, 2**24, 512), f"{2**24}x512 at M = 64: no tactic fits NVIDIA H200"),  # 127 row tiles at most
    ],
)
def test_what_the_kernel_cannot_take_is_unsupported_in_words(problem, reason):
    assert WgmmaSplitKTactic.unsupported(problem, H200) == reason


@given(st.sampled_from(WgmmaSplitKTactic.enumerate(PROBLEM, H200)))
def test_text_round_trips(tactic):
    assert WgmmaSplitKTactic.parse(str(tactic)) == tactic
    assert len(str(tactic).split(",")) == (6 if tactic.trigger == FIRST else 7)


@pytest.mark.parametrize(
    ("tactic", "problem", "expected"),
    [  # regions, bytes, threads, CTAs, CTAs an SM, waves, bytes in flight an SM
        (  # 2 groups of 6 stages of 32 + 32 rows of 128 B, of which 28 stream
            FITTING,
            PROBLEM,
            ((("rings", 0, 98304),), 98304, 256, 132, 2, 1, 43008),
        ),
        (  # 20 fragments of 40 x 64 sums, less than a ring; 3 slots of 8 parts
            "15,8,2,64,2,64",
            GemmProblem(64, 560, 7168),
            ((("rings", 0, 53248), ("receive", 53248, 12288), ("received", 65536, 8)), 65544, 256, 120, 3, 1, 19456),
        ),
        (  # 128 fragments, more than the one stage of 320 rows
            "1,1,1,64,1,64",
            GemmProblem(64, 256, 64),
            ((("rings", 0, 65536),), 65536, 128, 1, 3, 1, 32768),
        ),
        (  # memory for two on an SM, but 140 registers a thread, counted as 144, leave room for one
            "133,1,3,64,1,8",
            GemmProblem(8, 200 * 133, 192),
            ((("rings", 0, 79872),), 79872, 384, 133, 1, 2, 76800),
        ),
    ],
)
def test_the_footprint_is_what_one_counts_by_hand(tactic, problem, expected):
    tactic = WgmmaSplitKTactic.parse(tactic)
    assert tactic.why_not(problem, H200) is None
    assert dataclasses.astuple(tactic.footprint(problem, H200)) == expected


@given(st.sampled_from(WgmmaSplitKTactic.enumerate(GemmProblem(20, 2112, 7168), H200)))
def test_the_footprint_is_the_sum_of_its_regions_and_the_waves_are_counted_in_clusters(tactic):
    problem = GemmProblem(20, 2112, 7168)
    footprint = tactic.footprint(problem, H200)
    _, offset, size = footprint.regions[-1]
    assert footprint.smem_bytes == offset + size <= 232448 and footprint.threads == 128 * tactic.groups
    assert footprint.ctas == tactic.row_tiles * tactic.cluster and footprint.ctas_per_sm >= 1
    assert footprint.ctas_per_sm * (footprint.smem_bytes + 1024) <= 233472
    at_once = H200.clusters[tactic.cluster - 1] * footprint.ctas_per_sm
    assert (footprint.waves - 1) * at_once < tactic.row_tiles <= footprint.waves * at_once
    assert dataclasses.replace(tactic, trigger=1 - tactic.trigger).footprint(problem, H200) == footprint
