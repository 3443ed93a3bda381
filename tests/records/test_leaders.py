"""The tactics that were fastest so far.

Properties: the fastest of the nearest Ms below and above, or of M itself; of one kernel, chained, cold and this device;
a newer record replaces an older one of the same point; nothing where nothing is recorded.
"""

from dataclasses import replace

import pytest

from skinny_gemm.records import Point
from skinny_gemm.records.best import weight_rows
from skinny_gemm.records.leaders import leaders
from tests.support.records import write


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))

    def at(m, tactic, **more):
        return replace(Point("cublaslt", 64, 1024, m, tactic, "chained"), **more)

    old = {at(8, "0"): 9.0, at(8, "1"): 1.0, at(8, "2"): 3.0, at(8, "3"): 4.0, at(32, "4"): 7.0, at(32, "2"): 6.0}
    others = {
        at(8, "5", mode="isolated"): 0.1,
        at(8, "6", k=512): 0.1,
        at(8, "7", weights="warm"): 0.1,
        at(4, "8"): 0.1,
    }
    write(tmp_path, "2026-01-01-old", old | others)
    write(tmp_path, "2026-01-01-b200", {at(8, "9"): 0.1}, device="b200")
    write(tmp_path, "2026-01-02-new", {at(8, "1"): 8.0})
    return weight_rows(64, 1024, "chained", "h200")


def test_the_fastest_of_the_nearest_ms(recorded):
    assert leaders("cublaslt", recorded, 8, 2) == ["2", "3"], "1 has become slow"
    assert leaders("cublaslt", recorded, 16, 2) == ["2", "3", "4"], "of M = 8, then of 32"
    assert leaders("cublaslt", recorded, 64, 1) == ["2"]
    assert leaders("cublaslt", recorded, 2) == ["8"]


def test_nothing_where_nothing_is_recorded(recorded):
    assert leaders("triton", recorded, 8) == leaders("cublaslt", [], 8) == []
    with pytest.raises(ValueError, match="most is 0"):
        leaders("cublaslt", recorded, 8, 0)
