"""The text summary of a campaign: every problem once per mode, with the minimum of each kernel's records."""

from dataclasses import replace

import pytest

from skinny_gemm import records
from skinny_gemm.records import standing
from skinny_gemm.records.best import best
from tests.support.records import FIXTURES

FOLDER = FIXTURES / "campaigns" / "synthetic"


def test_every_line_shows_the_best_of_its_problem():
    rows = records.store.read_rows(FOLDER / "records.csv")
    heading, *table = standing.lines(rows)
    problems = {(r.n, r.k, r.m, r.mode) for r in rows if r.kernel == "warp-splitk"}
    assert len(table) == len(problems) and "cublas" in heading and "triton" not in heading
    for line in table:
        shape, m, mode, kernel, ours, tactic, stream, ratio, cublas, verdict, peer = line.split()
        n, k = map(int, shape.split("x"))
        assert kernel == "warp-splitk"
        recorded = best(n, k, int(m), mode, data_dir=FOLDER.parents[1])
        assert (ours, tactic) == (f"{recorded.microseconds:.2f}", recorded.tactic)
        bound = min(r.median_us for r in rows if (r.n, r.k, r.mode, r.kernel) == (n, k, mode, "stream"))
        assert float(stream) == pytest.approx(bound, abs=0.006)
        assert float(ratio) == pytest.approx(recorded.microseconds / bound, abs=0.006)
        assert (verdict, peer) == ("FASTER", "cublas") and float(cublas) > float(ours)


def test_a_line_ends_with_the_fastest_peer_and_its_tactic():
    rows = [row for row in records.store.read_rows(FOLDER / "records.csv") if (row.m, row.mode) == (8, "chained")]
    cublas = next(row for row in rows if row.kernel == "cublas")
    fast = replace(cublas, kernel="simt", tactic="224,2,4,8,0", median_us=0.2, low_us=0.1, high_us=0.3)
    _, *table = standing.lines([*rows, fast])
    (line,) = [line for line in table if line.split()[0] == f"{cublas.n}x{cublas.k}"]
    assert line.endswith("SLOWER simt 224,2,4,8,0")


def test_every_kernel_of_ours_has_a_line_of_its_own():
    rows = [row for row in records.store.read_rows(FOLDER / "records.csv") if (row.m, row.mode) == (8, "chained")]
    other = [replace(row, kernel="ws-gemm", tactic="t", mode="exposed") for row in rows if row.kernel == "warp-splitk"]
    _, *table = standing.lines([*rows, *other])
    assert [line.split()[2:4] for line in table[:2]] == [["chained", "warp-splitk"], ["exposed", "ws-gemm"]]


def test_the_summary_says_what_failed():
    out = "\n".join(standing.summary(*records.read_campaign(FOLDER)))
    assert "SYNTHETIC" in out and "failed:" in out and "made up" in out and "hbm_read_tbs" in out


def test_the_standing_counts_every_problem_and_names_those_in_which_a_peer_is_ahead():
    rows = records.store.read_rows(FOLDER / "records.csv")
    ms = {row.m for row in rows if row.kernel == "warp-splitk" and row.mode == "chained"}
    *table, verdict = standing.standing(rows)
    total = sum(int(line.split()[1]) for line in table[1:])
    assert {int(line.split()[0]) for line in table[1:]} == ms
    assert verdict.startswith(f"{total} of {total} problems: no recorded peer has a lower median")
    slowed = [
        replace(row, median_us=9 * row.median_us, low_us=9 * row.low_us, high_us=9 * row.high_us)
        if (row.kernel, row.n, row.k, row.m) == ("warp-splitk", 7168, 1536, 8) else row
        for row in rows
    ]  # fmt: skip
    *_, verdict, behind = standing.standing(slowed)
    assert verdict.startswith(f"{total - 1} of {total} ") and "M=8" in behind and behind.endswith("SLOWER")


def test_without_a_problem_to_compare_nothing_is_counted():
    with pytest.raises(ValueError, match="no weight with records of ours, of a peer and of a bound"):
        standing.standing([])
