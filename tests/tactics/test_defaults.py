"""Default tactics, of a data/best.csv written for the test: the recorded one of this M or the next above, if legal."""

import dataclasses

import pytest

from skinny_gemm import device
from skinny_gemm.catalogue import data_dir
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import KERNELS, WarpSplitKTactic
from skinny_gemm.tactics.defaults import best_recorded

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)


@pytest.fixture
def best(tmp_path, monkeypatch):
    (tmp_path / "devices.json").write_bytes((data_dir() / "devices.json").read_bytes())
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    best_recorded.cache_clear()
    yield tmp_path / "best.csv"
    best_recorded.cache_clear()


ROWS = """device,kernel,n,k,m,tactic,median_us,campaign
h200,warp-splitk,3584,7168,4,"16,8,128,3,1",1.0,c
h200,warp-splitk,3584,7168,16,"32,16,256,2,2",1.0,c
h200,warp-splitk,3584,7168,32,"16,8,500,2,2",1.0,c
h200,ws-gemm,3584,7168,8,"1,1,8,0,8,1",1.0,c
b200,warp-splitk,3584,7168,8,"16,8,256,2,1",1.0,c
"""


@pytest.mark.parametrize(
    ("m", "expected"),
    [(1, "16,8,128,3,1"), (4, "16,8,128,3,1"), (5, "32,16,256,2,2"), (16, "32,16,256,2,2")],
)
def test_the_row_of_m_or_of_the_next_m_recorded_above_counts(best, m, expected):
    best.write_text(ROWS)
    assert str(WarpSplitKTactic.default(GemmProblem(m, 3584, 7168), H200)) == expected


@pytest.mark.parametrize(("m", "n"), [(17, 3584), (4, 2112)])
def test_without_a_legal_recorded_tactic_it_is_the_heuristic(best, m, n):
    best.write_text(ROWS)
    problem = GemmProblem(m, n, 7168)
    assert WarpSplitKTactic.default(problem, H200) == WarpSplitKTactic.heuristic(problem, H200)


def test_without_the_file_it_is_the_heuristic(best):
    for kind in KERNELS.values():
        assert kind.default(PROBLEM, H200) == kind.heuristic(PROBLEM, H200)


def test_devices_do_not_mix(best):
    best.write_text(ROWS)
    gb = dataclasses.replace(H200, name="gb300")
    assert WarpSplitKTactic.default(PROBLEM, gb) == WarpSplitKTactic.heuristic(PROBLEM, H200)


@pytest.mark.parametrize("text", ["device,kernel\nh200,x\n", "device,kernel,n,k,m,tactic\na,b,c,d,e,f\n", "\xff"])
def test_a_damaged_file_is_one_sentence_with_the_cure(best, text):
    best.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="best.csv cannot be read .*: write it anew with python -m skinny_gemm"):
        WarpSplitKTactic.default(PROBLEM, H200)
