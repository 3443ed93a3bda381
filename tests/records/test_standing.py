"""The text summary of a campaign: every problem once per process and mode, with the minimum of each kernel's records.

The standing: every problem once, in one state of the process.
"""

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
        shape, m, process, mode, kernel, ours, tactic, stream, ratio, cublas, verdict, peer = line.split()
        n, k = map(int, shape.split("x"))
        assert (process, kernel) == ("quiet", "warp-splitk")
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
    assert [line.split()[3:5] for line in table[:2]] == [["chained", "warp-splitk"], ["exposed", "ws-gemm"]]


def test_the_summary_says_what_failed():
    out = "\n".join(standing.summary(*records.read_campaign(FOLDER)))
    assert "SYNTHETIC" in out and "failed:" in out and "made up" in out and "hbm_read_tbs" in out


def test_the_standing_counts_every_problem_and_names_those_in_which_a_peer_is_ahead():
    rows = records.store.read_rows(FOLDER / "records.csv")
    ms = {row.m for row in rows if row.kernel == "warp-splitk" and row.mode == "chained"}
    *table, verdict, states = standing.standing(rows)
    total = sum(int(line.split()[1]) for line in table[1:])
    assert {int(line.split()[0]) for line in table[1:]} == ms
    assert verdict.startswith(f"{total} of {total} problems: no recorded peer has a lower median")
    assert states == f"0 of these {total} were measured in a busy process, the others in a quiet one"
    slowed = [
        replace(row, median_us=9 * row.median_us, low_us=9 * row.low_us, high_us=9 * row.high_us)
        if (row.kernel, row.n, row.k, row.m) == ("warp-splitk", 7168, 1536, 8) else row
        for row in rows
    ]  # fmt: skip
    *_, verdict, _, behind = standing.standing(slowed)
    assert verdict.startswith(f"{total - 1} of {total} ") and "M=8" in behind
    assert behind.endswith("in a quiet process, SLOWER")


def test_processes_are_never_mixed():
    """Where a problem was measured in both, the summary has a line of each, and the standing takes the busy one."""
    rows = [row for row in records.store.read_rows(FOLDER / "records.csv") if (row.n, row.mode) == (3584, "chained")]
    ours = [row for row in rows if row.kernel == "warp-splitk"]
    busy = [
        replace(row, process="busy", median_us=row.median_us * factor, low_us=row.low_us, high_us=99.0 * factor)
        for row in rows
        if row.m in (0, 1, 8) and (factor := 3 if row.kernel == "warp-splitk" else 2)
    ]
    _, *quiet = standing.lines(rows)
    _, *table = standing.lines([*rows, *busy])
    assert [line for line in table if line.split()[2] == "quiet"] == quiet
    ((shape, m, _, mode, kernel, us, *_),) = [line.split() for line in table if line.split()[1:3] == ["8", "busy"]]
    assert float(us) == pytest.approx(3 * min(row.median_us for row in ours if row.m == 8), abs=0.01)
    bounds = [row for row in busy if row.is_bound]
    told = [line.split() for line in standing.standing([*rows, *busy])[1:]]
    of_8 = next(line for line in told if line[0] == "8")
    cublas = next(row for row in rows if (row.kernel, row.m) == ("cublas", 8))
    assert float(of_8[2]) == pytest.approx(2 * cublas.median_us / float(us), abs=0.01)
    assert float(of_8[4]) == pytest.approx(float(us) / max(row.median_us for row in bounds), abs=0.01)
    total = len({row.m for row in ours})
    assert " ".join(told[total + 1]).startswith(f"2 of these {total} were measured in a busy process")
    assert standing.standing([*rows, *busy], "quiet") == standing.standing(rows)
    with pytest.raises(ValueError, match="of a bound on this device in a busy process"):
        standing.standing(rows, "busy")


def test_without_a_problem_to_compare_nothing_is_counted():
    with pytest.raises(ValueError, match="no weight with records of ours, of a peer and of a bound"):
        standing.standing([])
