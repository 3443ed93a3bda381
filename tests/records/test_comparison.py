"""Two campaigns point by point.

Properties: every common point has the verdict of its two intervals, of the second against the first; a quiet and a busy
process have no point in common; shares add up; swapping the campaigns swaps the verdicts; the largest changes come
first; what cannot be compared is one sentence.
"""

import dataclasses

import pytest

from skinny_gemm import records
from skinny_gemm.records import Point
from skinny_gemm.records.comparison import compare
from skinny_gemm.records.statistics import verdict
from tests.support.records import write

POINTS = [Point("warp-splitk", 64, 1024, m, "16,8,256,2,1") for m in range(1, 6)]


@pytest.fixture
def pair(tmp_path):
    """The second: the same, twice as fast, 10 % slower, within the noise; one point of each is missing in the other."""
    first = write(tmp_path, "2026-01-01", dict(zip(POINTS, [10.0, 10.0, 10.0, 10.0, 7.0], strict=True)))
    other = dataclasses.replace(POINTS[4], mode="isolated")
    times = dict(zip([*POINTS[:4], other], [10.0, 5.0, 11.0, 10.15, 7.0], strict=True))
    return first, write(tmp_path, "2026-01-02", times)


def test_the_verdicts_are_those_of_the_intervals(pair):
    found = compare(*pair, tolerance=0.03)
    assert {p.first.m: str(p.verdict) for p in found.pairs} == {1: "SAME", 2: "FASTER", 3: "SLOWER", 4: "UNDECIDED"}
    assert (found.only_first, found.only_second) == (1, 1)
    assert sum(found.shares.values()) == pytest.approx(1) and found.shares["SAME"] == 0.25
    assert [p.first.m for p in found.pairs] == [2, 3, 4, 1], "the largest change first, faster or slower"
    for p in found.pairs:
        assert p.verdict == verdict(p.second, p.first, 0.03) and p.first.point == p.second.point


def test_swapping_the_campaigns_swaps_the_verdicts(pair):
    counts, swapped = compare(*pair).counts, compare(*reversed(pair)).counts
    assert swapped == {**counts, "FASTER": counts["SLOWER"], "SLOWER": counts["FASTER"]}


def test_a_quiet_and_a_busy_process_are_never_compared(tmp_path):
    quiet, busy = POINTS[0], dataclasses.replace(POINTS[0], process="busy")
    both = write(tmp_path, "2026-01-01", {quiet: 10.0, busy: 12.0})
    again = write(tmp_path, "2026-01-02", {quiet: 10.0, busy: 24.0})
    found = compare(both, again)
    assert {p.first.process: p.ratio for p in found.pairs} == {"quiet": 1.0, "busy": 2.0}
    assert {point["process"] for point in found.report()["points"]} == {"quiet", "busy"}
    shares = [line.split()[2:4] for line in found.lines() if line.startswith("warp-splitk")]
    assert shares == [["busy", "1"], ["quiet", "1"]]
    with pytest.raises(ValueError, match="have no point in common"):
        compare(write(tmp_path, "2026-01-03", {quiet: 10.0}), write(tmp_path, "2026-01-04", {busy: 10.0}))


def test_a_campaign_by_its_id(pair, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(pair[0].parents[1]))
    assert compare("2026-01-01", "2026-01-02").counts == compare(*pair).counts


@pytest.mark.parametrize(
    ("change", "same", "words"),
    [
        ({}, True, "the same commit;"),
        ({"commit": "other"}, False, "different commits;"),
        ({"dirty": True}, False, "different commits;"),
        ({"board": "GPU-1"}, True, "the same commit, different boards"),
        ({"board": "GPU-0"}, True, "the same commit, the same board;"),
    ],
)
def test_it_says_whether_source_and_board_were_the_same(pair, change, same, words):
    for folder, changes in zip(pair, ({"board": "GPU-0"} if "board" in change else {}, change), strict=True):
        writer = records.CampaignWriter.__new__(records.CampaignWriter)
        writer.folder, (writer.campaign, rows) = folder, records.read_campaign(folder)
        writer.rows, writer._samples = rows, []
        writer.update(**changes)
        writer.save()
    found = compare(*pair)
    assert found.same_commit == same and words in found.lines()[2]


def test_the_text_shows_shares_by_kernel_and_mode_and_the_worst_points(pair):
    lines = compare(*pair).lines()
    (row,) = [line for line in lines if line.startswith("warp-splitk")]
    assert row.split()[:4] == ["warp-splitk", "chained", "quiet", "4"] and row.split()[4:6] == ["25.0%", "25.0%"]
    worst = next(i for i, line in enumerate(lines) if "largest changes" in line) + 1
    assert lines[worst].startswith("FASTER") and "-50.0%" in lines[worst] and "M=2 chained" in lines[worst]


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan")])
def test_a_tolerance_is_a_fraction(pair, tolerance):
    with pytest.raises(ValueError, match="tolerance is .*, but must be a fraction"):
        compare(*pair, tolerance=tolerance)


def test_what_cannot_be_compared_is_one_sentence(tmp_path, pair):
    lonely = write(tmp_path, "2026-01-03", {dataclasses.replace(POINTS[0], n=128): 1.0})
    with pytest.raises(ValueError, match="2026-01-01 and 2026-01-03 have no point in common"):
        compare(pair[0], lonely)
    path = pair[1] / "records.csv"
    path.write_text(path.read_text().replace("cold", "cool"))
    with pytest.raises(ValueError, match="records.csv, line 2: weights is 'cool'"):
        compare(*pair)
