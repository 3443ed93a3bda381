"""Accesses to shared memory as tables say what the layouts, the PTX ISA and a traced run say.

- every lane of a load is at the address the kernel's own offset function gives, and its bytes fill the registers that
  the PTX ISA's fragment maps name;
- a conflict in the table of a load is a conflict of the bank model;
- what the bank model says of every kind of access is what a traced run of each kernel shows, and is drawn so.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm.analysis.bank_conflicts import PLAIN, SHIPPED, TRACED, ldmatrix_table, stage_load_table, x_load_table
from skinny_gemm.explore import conflicts
from skinny_gemm.layouts import banks, fragments
from skinny_gemm.layouts import warp_splitk as layout
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import BalancedSplitKTactic, WarpSplitKTactic, WgmmaSplitKTactic, WsGemmTactic
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


@pytest.mark.parametrize("text", ["4,1,2,64,2,8", "2,2,1,64,3,24,1", "4,4,1,128,1,48", "2,2,1,128,2,16,0,1"])
def test_of_balanced_split_k(text):
    """Tiles of 18 and 36 rows: the trace has the copies of the tile alone, half a warp's where the last one ends."""
    tactic = BalancedSplitKTactic.parse(text)
    fig, data, facts = conflicts(tactic, GemmProblem(tactic.token_tile - 1, 72, 512))
    by = {source: rows.set_index("access") for source, rows in data.groupby("source")}
    traced, shipped = by[TRACED], by[SHIPPED]
    assert set(traced.index) == set(shipped.index) and len(traced) == (5 if tactic.cluster > 1 else 3)
    assert (traced.wavefronts == traced.ideal).all() and (shipped.wavefronts == shipped.ideal).all()
    others = traced.index.drop("rings, cp.async")
    assert (traced.wavefronts[others] == shipped.wavefronts[others]).all()
    assert by[PLAIN].wavefronts["rings, ld"] > 6 and facts["kernel"] == "balanced-splitk"
    assert set(data.access) <= set(texts(fig))


@pytest.mark.parametrize("text", ["2,1,2,64,2,32", "4,2,1,128,2,48", "1,4,1,128,1,8"])
def test_of_wgmma_split_k(text):
    """wgmma itself is no access of lanes; of the copies those past the tile and past M are missing."""
    tactic = WgmmaSplitKTactic.parse(text)
    fig, data, facts = conflicts(tactic, GemmProblem(tactic.token_tile - 1, 72, 512))
    by = {source: rows.set_index("access") for source, rows in data.groupby("source")}
    traced, shipped = by[TRACED], by[SHIPPED]
    assert len(traced) == (5 if tactic.cluster > 1 else 3) and set(shipped.index) == set(traced.index) - {"rings, ld"}
    assert (traced.wavefronts == traced.ideal).all() and (shipped.wavefronts == shipped.ideal).all()
    assert set(data.access) <= set(texts(fig)) and facts["kernel"] == "wgmma-splitk"


def test_an_illegal_tactic_is_refused_in_words():
    with pytest.raises(ValueError, match="stages is 1"):
        conflicts(WarpSplitKTactic(16, 8, 128, 1, 1), GemmProblem(5, 32, 512))


loads = st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.integers(0, 1), st.sampled_from([128, 256]))


@settings(deadline=None)
@given(loads, st.booleans())
def test_the_table_is_the_kernels_own_arithmetic(load, swizzled):
    operand, warp, step, k_tile = load
    table = ldmatrix_table(operand, warp, step, 0, k_tile, swizzled)
    if swizzled:
        offset = {"A": layout.a_offset, "B": layout.b_offset}[operand]
        assert (table.address == 2 * offset(warp, step, 0, np.arange(32), k_tile)).all()
    wavefronts = int((table.groupby("matrix").turn.max() + 1).sum())
    assert wavefronts == banks.wavefronts(table.address.to_numpy(), 16)
    assert wavefronts == (4 if swizzled else 32)


def test_registers_hold_the_fragment_that_mma_wants():
    table = ldmatrix_table("A", 2, 0, 1, 256)
    first_k = table.col.min()
    for lane in range(32):
        for register in range(4):
            source = table[(table.register == register) & (table.first_lane == lane // 4 * 4)].iloc[0]
            row, k = fragments.a_element(lane, register, 0)
            assert (source.row, source.col - first_k) == (row, k // 8 * 8)


def test_unknown_operand_is_named():
    with pytest.raises(ValueError, match="operand is 'C'"):
        ldmatrix_table("C", 0, 0, 0, 128)


@given(st.sampled_from([64, 96, 128, 224, 448, 512, 1024]), st.booleans(), st.integers(0, 1))
def test_the_wavefronts_of_a_load_of_x_are_the_bank_models(k_slice, padded, block):
    table = x_load_table(k_slice, padded, block)
    assert table.wavefront.max() + 1 == banks.wavefronts(table.address.to_numpy(), 16)
    assert table.wavefront.max() + 1 == (8 if not padded and k_slice % 64 == 0 else 4)
    pairs = table[["wavefront", "bank"]].drop_duplicates()
    assert len(pairs) == 32, "no two lanes at the same banks in the same wavefront"
    assert (table.address // table.token.clip(lower=1) >= 2 * k_slice)[table.token > 0].all()


@given(st.sampled_from([64, 128]), st.booleans(), st.integers(0, 5), st.integers(0, 3))
def test_the_wavefronts_of_a_load_of_a_stage_are_the_bank_models(k_chunk, swapped, half, block):
    block %= k_chunk // 32
    table = stage_load_table(k_chunk, swapped, half, block)
    assert table.wavefront.max() + 1 == banks.wavefronts(table.address.to_numpy(), 16) == (4 if swapped else 8)
    assert len(table[["wavefront", "bank"]].drop_duplicates()) == 32
    assert sorted(set(table.row)) == list(range(8 * half, 8 * half + 8)), "a half tile"
    assert sorted(set(table.chunk)) == list(range(4 * block, 4 * block + 4)), "a K block"
    assert (table.address // (2 * k_chunk) == table.row).all(), "a swap stays in its row"
    assert table.groupby("phase").row.nunique().eq(2).all()
