"""What the bank model says of every kind of access is what a traced run of each kernel shows, and is drawn so."""

import numpy as np
import pytest

from skinny_gemm.analysis.bank_conflicts import PLAIN, SHIPPED, TRACED
from skinny_gemm.explore import conflicts
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WarpSplitKTactic, WsGemmTactic
from tests.support.drawings import texts
from tests.support.traces import SINGLE_PROBLEM


@pytest.mark.parametrize("tactic", ["16,8,256,2,1", "32,16,128,3,2", "16,32,128,2,1"])
def test_of_warp_split_k(tactic):
    fig, data, facts = conflicts(WarpSplitKTactic.parse(tactic), GemmProblem(5, 32, 512))
    by = {source: rows.set_index("access") for source, rows in data.groupby("source")}
    traced, shipped = by[TRACED], by[SHIPPED]
    assert set(traced.index) == set(shipped.index)
    for access in ("A, ldmatrix", "B, ldmatrix", "partials, st", "partials, ld", "A, cp.async"):
        assert traced.wavefronts[access] == shipped.wavefronts[access] == shipped.ideal[access], access
    assert by[PLAIN].wavefronts["A, ldmatrix"] == 32
    assert facts["source"] == "interpreter" and facts["tactic"] == tactic
    assert {"32", *data.access} <= set(texts(fig))


@pytest.mark.parametrize("text", ["2,2,4,2,0,2", "2,2,2,2,8,1", "1,2,1,1,0,2"])
def test_of_the_weight_stationary_gemm(text):
    tactic = WsGemmTactic.parse(text)
    fig, data, facts = conflicts(tactic, SINGLE_PROBLEM)
    by = {source: rows.set_index("access") for source, rows in data.groupby("source")}
    traced, shipped = by[TRACED], by[SHIPPED]
    assert set(traced.index) == set(shipped.index) and len(traced) == (7 if tactic.tg else 6)
    assert (traced.wavefronts == shipped.wavefronts[traced.index]).all() and (traced.wavefronts == traced.ideal).all()
    assert by[PLAIN].wavefronts["red, ld"] == 4
    assert np.isin(["red, ld", "stages, cp.async"], texts(fig)).all() and facts["kernel"] == "ws-gemm"


def test_an_illegal_tactic_is_refused_in_words():
    with pytest.raises(ValueError, match="stages is 1"):
        conflicts(WarpSplitKTactic(16, 8, 128, 1, 1), GemmProblem(5, 32, 512))
