"""Answers in words: each number is a recorded one, each verdict the one of the intervals; no record is one sentence."""

from dataclasses import replace

import pytest

from skinny_gemm.records import Record, sentences
from tests.support.records import FAST, SLOW, write

ROW = Record("c", "h200", "warp-splitk", 64, 512, 8, "16,8,128,2,1", "chained", "cold", 10.0, 9.99, 10.01, 25, 1e-3, 1)


def row(kernel: str, median: float, half: float = 0.01, tactic: str = "") -> Record:
    return replace(ROW, kernel=kernel, tactic=tactic, median_us=median, low_us=median - half, high_us=median + half)


def test_how_sure_counts_the_verdicts():
    others = [
        row("warp-splitk", us, half) for us, half in ((12, 0.01), (13, 0.01), (10.05, 0.01), (10.3, 1), (5, 0.01))
    ]
    said = "Of 5 other recorded tactics it is FASTER than 2, SLOWER than 1, SAME as 1 and UNDECIDED against 1."
    assert sentences.how_sure(ROW, others) == said
    assert sentences.how_sure(ROW, others[:2]) == "Of 2 other recorded tactics it is FASTER than all 2."
    assert sentences.how_sure(ROW, others[:1]) == "Of 1 other recorded tactic it is FASTER than 1."
    assert sentences.how_sure(ROW, []) == "No other tactic is recorded."


def test_each_peer_stands_at_its_fastest():
    peers = sentences.best_peers([row("triton", 30, tactic="a"), row("triton", 20, tactic="b"), row("cublas", 5), ROW])
    said = "FASTER than triton b (20.000 us, 2.00 times as long), SLOWER than cublas (5.000 us, 0.50 times as long)"
    assert sentences.against(ROW, peers) == said
    lettered = sentences.against(ROW, {"B": peers["triton"]})
    assert lettered == "FASTER than B (20.000 us, 2.00 times as long)", "a letter stands for kernel and tactic"


def test_how_far_is_a_ratio_to_the_bound():
    assert sentences.how_far(ROW, 8.0) == "That is 1.250 times the measured bound of 8.000 us."
    assert sentences.how_far(ROW, None) == "No bound is recorded of chained launches."


def test_numbers_of_other_campaigns_are_named():
    far = [replace(row(name, 20), campaign=campaign) for name, campaign in (("cublas", "d"), ("triton", "c"))]
    rivals = {"the bound": replace(row("stream", 5), campaign="d")} | sentences.best_peers(far)
    assert sentences.elsewhere(ROW, rivals) == "Of other campaigns are the bound and cublas (d)."
    assert sentences.elsewhere(ROW, {"triton": far[1]}) == ""


def test_the_whole_answer_tells_the_record(tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    peer = replace(FAST, kernel="cublas", tactic="")
    stream = replace(FAST, kernel="stream", m=0, tactic="528x3x8192")
    write(tmp_path, "2026-01-01", {FAST: 9.0, SLOW: 10.0, peer: 18.0, stream: 6.0}, commit="0123456789")
    best, said = sentences.answer(64, 1024, 8)
    assert best.tactic == FAST.tactic and said == (
        "For 64x1024 at M = 8 on h200, chained launches and cold weights in a quiet process, take warp-splitk "
        f"{FAST.tactic}: 9.000 us (95 % interval 8.910 to 9.090). That is 1.500 times the measured bound of 6.000 us. "
        "Of 1 other recorded tactic it is FASTER than 1. Of the peers' best, it is FASTER than cublas (18.000 us, 2.00 "
        "times as long). Campaign 2026-01-01, commit 01234567."
    )
    with pytest.raises(ValueError, match="No record of our kernels for N = 64, K = 1024, M = 9"):
        sentences.answer(64, 1024, 9)
    with pytest.raises(ValueError, match="process is 'idle', but must be one of quiet, busy"):
        sentences.answer(64, 1024, 8, process="idle")
    with pytest.raises(ValueError, match="mode is 'quick', but must be one of isolated, chained, exposed"):
        sentences.answer(64, 1024, 8, mode="quick")


def test_an_answer_is_of_one_process_and_names_it(tmp_path, monkeypatch):
    """Busy, where both are recorded; its bound and its peers are of a busy process too."""
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    peer = replace(FAST, kernel="cublas", tactic="")
    stream = replace(FAST, kernel="stream", m=0, tactic="528x3x8192")
    quiet = {FAST: 9.0, SLOW: 10.0, peer: 18.0, stream: 6.0}
    busy = {replace(point, process="busy"): time for point, time in {FAST: 12.0, SLOW: 11.0, peer: 10.0}.items()}
    write(tmp_path, "2026-01-01", quiet | busy)
    best, said = sentences.answer(64, 1024, 8)
    assert (best.process, best.tactic) == ("busy", SLOW.tactic) and "cold weights in a busy process, take" in said
    assert "No bound is recorded" in said and "SLOWER than cublas (10.000 us" in said and "FASTER than 1" in said
    best, said = sentences.answer(64, 1024, 8, process="quiet")
    assert (best.process, best.tactic) == ("quiet", FAST.tactic) and "cold weights in a quiet process, take" in said
    assert "bound of 6.000 us" in said and "FASTER than cublas (18.000 us" in said
