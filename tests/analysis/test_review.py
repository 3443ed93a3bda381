"""A design review: numbers are records, verdicts are the intervals', the best candidate wins wherever it stands."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from skinny_gemm import records
from skinny_gemm.analysis import review
from skinny_gemm.analysis.review import design_review
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records.best import weight_rows
from skinny_gemm.records.statistics import verdict
from skinny_gemm.tactics import KERNELS
from tests.support.reviews import H200, SMALL, A, B

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_the_table_agrees_with_the_records(small, data):
    found = weight_rows(64, 1024, "chained", "h200", data)
    rows = {row.tactic if row.kernel == "warp-splitk" else row.kernel: row for row in found if row.m == 8}
    table = small.comparison().set_index("name")
    assert table.index.tolist() == ["A", "B", "C", "cublas", "bound"]
    for name in ("A", "B", "cublas"):
        row = rows[table.tactic[name]] if name in "AB" else rows[name]
        told = table.loc[name, ["median_us", "low_us", "high_us", "samples", "campaign"]].tolist()
        assert told == [row.median_us, row.low_us, row.high_us, row.samples, row.campaign]
        assert table.over_bound[name] == pytest.approx(row.median_us / 6)
        for column, rival in (("against_A", rows["16,8,256,2,1"]), ("against_cublas", rows["cublas"])):
            told = table.loc[name, column]
            assert pd.isna(told) if rival is row else told == verdict(row, rival)
    assert table.loc["C", ["median_us", "against_A", "against_cublas"]].isna().all()
    assert table.median_us["bound"] == 6


def test_the_fastest_candidate_is_recommended_wherever_it_stands(small):
    assert small.winner.letter == "B" and small.headline().startswith("B  warp-splitk 16,8,256,4,1: 9.040 us")
    said = " ".join(small.answer())
    assert "1.507 times the measured bound of 6.000 us" in said and "Not recorded at this M: C." in said
    assert "Of the candidates, B is FASTER than A (10.040 us, 1.11 times as long)." in said
    assert "Of the peers' best, B is FASTER than cublas (18.040 us" in said


def test_a_faster_tactic_that_is_no_candidate_is_told(data):
    said = " ".join(design_review(SMALL, H200, candidates=[A], data_dir=data).answer())
    assert "A tactic that is no candidate is FASTER: warp-splitk 16,8,256,4,1 at 9.040 us." in said


def test_the_suggested_are_the_fastest_the_default_and_the_runner_up(data):
    rows = weight_rows(64, 1024, "chained", "h200", data)
    found = review.suggested(SMALL, H200, rows, review.defaults(SMALL, H200))
    assert [f"{tactic.kernel}:{tactic}" for tactic, _ in found] == [B, A]
    assert found[0][1].startswith("fastest") and "runner-up" in found[1][1]
    at_7 = replace(SMALL, m=7)
    nothing = review.suggested(at_7, H200, rows, review.defaults(at_7, H200))
    assert {tactic.kernel for tactic, _ in nothing} == set(KERNELS)
    assert {note for _, note in nothing} == {"default"}, "nothing was recorded at M = 7"
    assert review.defaults(GemmProblem(8, 24, 100), H200) == {}


def test_no_more_are_suggested_than_a_review_compares(data):
    """Of each kernel the fastest and another default, and the runner-up of all, would be more."""
    (record, *_) = (row for row in weight_rows(64, 1024, "chained", "h200", data) if row.m == 8 and row.is_ours)
    rows, standing = [], review.defaults(SMALL, H200)
    for i, (name, default) in enumerate(standing.items()):
        kind = KERNELS[name]
        others = [t for t in kind.enumerate(kind.problem(SMALL), H200) if t != default]
        times = zip((9 + i, 9.1 + i, 20 + i), (*others[:2], default), strict=True)
        rows += [replace(record, kernel=name, tactic=str(tactic), median_us=time) for time, tactic in times]
    found = review.suggested(SMALL, H200, rows, standing)
    fastest = sorted(rows, key=lambda row: row.median_us)
    assert 2 * len(standing) + 1 > len(found) == len(review.LETTERS)
    dropped = [default for default in standing.values() if default not in [tactic for tactic, _ in found]]
    slowest = fastest[len(found) - 2 * len(standing) - 1 :]
    assert {str(default) for default in dropped} == {record.tactic for record in slowest}
    assert [note for _, note in found[:2]] == ["fastest", "runner-up"]


@pytest.mark.parametrize(
    ("candidates", "mode", "words"),
    [
        (["nonsense"], "chained", "candidate 'nonsense' is not written KERNEL:TACTIC"),
        (["x:1,2"], "chained", "unknown kernel 'x'"),
        (["warp-splitk:1,2"], "chained", "tactic '1,2' is not 6 comma-separated integers"),
        (["warp-splitk:16,8,256,99,1"], "chained", "stages is 99"),
        ([A, A], "chained", "candidate warp-splitk:16,8,256,2,1 is there twice"),
        ([f"warp-splitk:16,8,128,{s},1" for s in range(2, 9)], "chained", "7 candidates are too many"),
        ([A], "quick", "mode is 'quick', but must be one of isolated, chained, exposed"),
    ],
)
def test_bad_input_is_named(data, candidates, mode, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        design_review(SMALL, H200, mode, candidates, data)


def test_a_shape_that_no_kernel_takes_says_why(data):
    with pytest.raises(ValueError, match="No kernel takes 24x100 at M = 8: warp-splitk: .*N = 24 is not a multiple"):
        design_review(GemmProblem(8, 24, 100), H200, data_dir=data)


def test_campaigns_are_numbered_the_first_candidates_first(small, data):
    (first,) = small.campaigns
    other = replace(first, id="2026-02-02-test")
    rows = [
        replace(row, campaign=other.id) if row.kernel == "cublas" else row
        for row in weight_rows(64, 1024, "chained", "h200", data)
    ]
    proposed = [(candidate.tactic, candidate.note) for candidate in small.candidates]
    mixed = review.review_of(SMALL, H200, "chained", "quiet", proposed, rows, {first.id: first, other.id: other})
    assert [campaign.id for campaign in mixed.campaigns] == ["2026-01-01-test", "2026-02-02-test"]
    assert mixed.runs().startswith("run 1: NVIDIA H200, campaign 2026-01-01-test, commit 01234567+  |  run 2: ")
    sources = mixed.comparison().set_index("name").campaign
    assert sources["A"] == first.id and sources["cublas"] == other.id
    assert records.PEERS[0] in mixed.peers


def test_a_review_is_of_one_process_and_names_it():
    """Of 2304x1536 the busy process is recorded too, at M = 8 but not at 16; in it another tactic is the fastest."""
    found = {p: design_review(GemmProblem(8, 2304, 1536), H200, process=p, data_dir=FIXTURES) for p in (None, "quiet")}
    for asked, process, fastest in ((None, "busy", "32,8,256,4,2"), ("quiet", "quiet", "32,8,256,6,2")):
        made = found[asked]
        assert made.process == process and str(made.winner) == f"warp-splitk:{fastest}"
        assert (
            set(made.lead.table.process) == {process} == {row.process for row in (*made.others, *made.peers.values())}
        )
        rows = [r for r in weight_rows(2304, 1536, "chained", "h200", FIXTURES) if r.process == process]
        assert made.bound == next(row.median_us for row in rows if row.kernel == "stream")
        assert f"chained launches, cold weights, {process} process." in made.setting()
        assert f" --process {process} " in made.command()
    busy, quiet = found[None], found["quiet"]
    assert busy.stem() == "review-2304x1536-m8-chained-busy-h200" and quiet.stem() == "review-2304x1536-m8-chained-h200"
    assert busy.provenance()["process"] == "busy" and "process" not in quiet.provenance()
    assert design_review(GemmProblem(16, 2304, 1536), H200, data_dir=FIXTURES).process == "quiet"
    with pytest.raises(ValueError, match="process is 'idle', but must be one of quiet, busy"):
        design_review(SMALL, H200, process="idle", data_dir=FIXTURES)
