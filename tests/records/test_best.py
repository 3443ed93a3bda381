"""Answers from the records.

Properties: the best agrees with a scan of the records, newest record of each tactic only; the bound is the larger of
stream and dependency floor; modes, kernels, devices, processes, and warm and cold never mix; a busy process answers
where it has every kernel of ours; no record is one sentence.
"""

import dataclasses

import pytest

from skinny_gemm import records
from skinny_gemm.records import Point
from skinny_gemm.records.best import Rival, best, default_table, write_defaults
from tests.support.records import FAST, FIXTURES, SLOW, write


def test_best_agrees_with_a_scan():
    rows = records.store.read_rows(FIXTURES / "campaigns" / "synthetic" / "records.csv")
    for n, k, m, mode in {(r.n, r.k, r.m, r.mode) for r in rows if r.kernel == "warp-splitk"}:
        here = [r for r in rows if (r.n, r.k, r.mode) == (n, k, mode)]
        found = best(n, k, m, mode, data_dir=FIXTURES)
        fastest = min((r for r in here if (r.kernel, r.m) == ("warp-splitk", m)), key=lambda r: r.median_us)
        assert (found.kernel, found.tactic, found.microseconds) == ("warp-splitk", fastest.tactic, fastest.median_us)
        assert found.interval == (fastest.low_us, fastest.high_us)
        assert found.peers == {"cublas": Rival("", next(r.median_us for r in here if (r.kernel, r.m) == ("cublas", m)))}
        assert found.bound == max(r.median_us for r in here if r.kernel in records.BOUNDS)
        assert found.ratio_to_bound == pytest.approx(found.microseconds / found.bound, abs=1e-4)
        assert (found.campaign, found.commit) == ("synthetic", "0" * 40)


def test_the_newest_record_of_each_tactic_counts_not_the_luckiest(tmp_path):
    write(tmp_path, "2026-01-01", {FAST: 9.0, SLOW: 7.0}, commit="old")
    write(tmp_path, "2026-02-01", {SLOW: 10.0}, commit="new")
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.tactic, found.campaign, found.commit) == (FAST.tactic, "2026-01-01", "old")
    write(tmp_path, "2026-03-01", {SLOW: 8.0}, commit="newest")
    assert best(64, 1024, 8, data_dir=tmp_path).commit == "newest"


def test_the_bound_is_the_larger_of_the_best_stream_and_the_best_floor(tmp_path):
    stream, floor = Point("stream", 64, 1024, 0, "528x3x8192"), Point("dependency-floor", 64, 1024, 1, "4")
    times = {SLOW: 9.0, stream: 2.0, dataclasses.replace(stream, tactic="132x6x16384"): 1.5}
    write(tmp_path, "2026-01-01", times)
    assert best(64, 1024, 8, data_dir=tmp_path).bound == 1.5
    write(tmp_path, "2026-02-01", {floor: 3.0, dataclasses.replace(floor, tactic="2"): 2.5})
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.bound, found.ratio_to_bound) == (2.5, 3.6)


def test_what_is_not_recorded_is_none_and_no_zero(tmp_path):
    write(tmp_path, "2026-01-01", {SLOW: 9.0})
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.bound, found.ratio_to_bound, found.peers) == (None, None, {})


def test_kernels_peers_modes_devices_and_warm_weights_do_not_mix(tmp_path):
    other = {
        dataclasses.replace(SLOW, mode="isolated"): 1.0,
        dataclasses.replace(SLOW, weights="warm"): 2.0,
        dataclasses.replace(SLOW, m=4): 3.0,
        dataclasses.replace(SLOW, kernel="cublas", tactic=""): 4.0,
        dataclasses.replace(SLOW, kernel="ws-gemm", tactic="1,2,2,0,0,1"): 20.0,
    }
    write(tmp_path, "2026-01-01", {SLOW: 10.0, **other})
    write(tmp_path, "2026-01-02", {SLOW: 0.5}, device="b200")
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.kernel, found.microseconds, found.peers) == ("warp-splitk", 10.0, {"cublas": Rival("", 4.0)})
    assert best(64, 1024, 8, kernel="ws-gemm", data_dir=tmp_path).microseconds == 20.0
    assert best(64, 1024, 8, device="b200", data_dir=tmp_path).microseconds == 0.5


def busy(times):
    return {dataclasses.replace(point, process="busy"): time for point, time in times.items()}


def test_a_busy_process_answers_where_it_was_measured_and_alone(tmp_path):
    cublas, stream = Point("cublas", 64, 1024, 8), Point("stream", 64, 1024, 0, "528x3x8192")
    quiet = {FAST: 8.0, SLOW: 9.0, cublas: 16.0, stream: 4.0, dataclasses.replace(FAST, m=4): 7.0}
    write(tmp_path, "2026-01-01", quiet | busy({FAST: 12.0, SLOW: 10.0, cublas: 15.0, stream: 5.0}))
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.process, found.tactic, found.microseconds) == ("busy", SLOW.tactic, 10.0)
    assert (found.bound, found.peers) == (5.0, {"cublas": Rival("", 15.0)})
    found = best(64, 1024, 8, data_dir=tmp_path, process="quiet")
    assert (found.process, found.tactic, found.bound) == ("quiet", FAST.tactic, 4.0)
    assert found.peers == {"cublas": Rival("", 16.0)}
    found = best(64, 1024, 4, data_dir=tmp_path)
    assert (found.process, found.bound) == ("quiet", 4.0), "nothing of this M was measured in a busy process"
    with pytest.raises(ValueError, match="M = 4, chained, cold weights on h200, busy process"):
        best(64, 1024, 4, data_dir=tmp_path, process="busy")


def test_a_busy_process_answers_for_the_kernels_that_it_ran(tmp_path):
    """It says nothing of a kernel that was measured in a quiet one only, and so nothing of which kernel is best."""
    ws = dataclasses.replace(SLOW, kernel="ws-gemm", tactic="1,2,2,0,0,1")
    write(tmp_path, "2026-01-01", {FAST: 8.0, ws: 5.0} | busy({FAST: 9.0}))
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.kernel, found.process) == ("ws-gemm", "quiet")
    assert best(64, 1024, 8, kernel="warp-splitk", data_dir=tmp_path).process == "busy"
    write(tmp_path, "2026-02-01", busy({ws: 10.0}))
    found = best(64, 1024, 8, data_dir=tmp_path)
    assert (found.kernel, found.process, found.microseconds) == ("warp-splitk", "busy", 9.0)


def test_each_peer_is_told_with_its_best_tactic_the_fastest_peer_first(tmp_path):
    peers = {("cublas", ""): 8.0, ("simt", "224,2,4,8,0"): 9.0, ("simt", "128,4,2,8,0"): 7.0, ("cublaslt", "3"): 7.5}
    rows = {dataclasses.replace(SLOW, kernel=kernel, tactic=tactic): us for (kernel, tactic), us in peers.items()}
    write(tmp_path, "2026-01-01", {SLOW: 10.0, **rows})
    found = best(64, 1024, 8, data_dir=tmp_path).peers
    told = {"simt": Rival("128,4,2,8,0", 7.0), "cublaslt": Rival("3", 7.5), "cublas": Rival("", 8.0)}
    assert found == told and list(found) == list(told)


def test_no_record_is_said_in_words():
    with pytest.raises(ValueError, match="No record of our kernels for N = 5, K = 7168, M = 8, chained, cold"):
        best(5, 7168, 8, data_dir=FIXTURES)


def test_the_default_tactics_in_the_repository_are_what_the_records_say():
    """If this fails: python -m skinny_gemm defaults"""
    from skinny_gemm.catalogue import data_dir

    assert (data_dir() / "best.csv").read_text(encoding="utf-8") == default_table()


def test_the_defaults_are_the_best_of_every_problem_of_ours(tmp_path, monkeypatch):
    ws = dataclasses.replace(SLOW, kernel="ws-gemm", tactic="1,2,2,0,0,1")
    write(
        tmp_path,
        "2026-01-01",
        {
            SLOW: 8.0,
            FAST: 9.0,
            ws: 12.0,
            dataclasses.replace(SLOW, m=1): 7.0,
            dataclasses.replace(SLOW, m=2, mode="isolated"): 7.0,
            dataclasses.replace(SLOW, m=4, weights="warm"): 7.0,
            dataclasses.replace(SLOW, kernel="cublas", tactic=""): 1.0,
            Point("stream", 64, 1024, 0, "528x3x8192"): 1.0,
        },
    )
    write(tmp_path, "2026-02-01", {SLOW: 10.0})
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    assert write_defaults() == tmp_path / "best.csv"
    assert (tmp_path / "best.csv").read_text().splitlines() == [
        "device,kernel,n,k,m,tactic,median_us,campaign",
        'h200,warp-splitk,64,1024,1,"16,8,256,2,1",7.0,2026-01-01',
        'h200,warp-splitk,64,1024,8,"16,8,256,4,1",9.0,2026-01-01',
        'h200,ws-gemm,64,1024,8,"1,2,2,0,0,1",12.0,2026-01-01',
    ]


def test_the_defaults_are_of_a_busy_process_where_that_was_measured(tmp_path, monkeypatch):
    ws = dataclasses.replace(SLOW, kernel="ws-gemm", tactic="1,2,2,0,0,1")
    at_4 = {dataclasses.replace(point, m=4): time for point, time in {FAST: 7.0, SLOW: 8.0}.items()}
    write(tmp_path, "2026-01-01", {FAST: 8.0, SLOW: 9.0, ws: 5.0} | at_4 | busy({FAST: 12.0, SLOW: 11.0}))
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    assert default_table().splitlines()[1:] == [
        'h200,warp-splitk,64,1024,4,"16,8,256,4,1",7.0,2026-01-01',
        'h200,warp-splitk,64,1024,8,"16,8,256,4,1",8.0,2026-01-01',
        'h200,ws-gemm,64,1024,8,"1,2,2,0,0,1",5.0,2026-01-01',
    ], "the two kernels of M = 8 are both in a quiet process only"
    write(tmp_path, "2026-01-02", busy({ws: 6.0}))
    assert default_table().splitlines()[1:] == [
        'h200,warp-splitk,64,1024,4,"16,8,256,4,1",7.0,2026-01-01',
        'h200,warp-splitk,64,1024,8,"16,8,256,2,1",11.0,2026-01-01',
        'h200,ws-gemm,64,1024,8,"1,2,2,0,0,1",6.0,2026-01-02',
    ]


def test_defaults_are_not_made_of_half_the_records(tmp_path, monkeypatch):
    path = write(tmp_path, "2026-01-01", {SLOW: 8.0}) / "records.csv"
    path.write_text(path.read_text()[:-6])
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="records.csv, line 2"):
        write_defaults()
    assert not (tmp_path / "best.csv").exists()
