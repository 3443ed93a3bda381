"""The pictures of shared memory say what the layouts say.

- every lane of a load is at the address the kernel's own offset function gives, and its bytes fill the registers that
  the PTX ISA's fragment maps name;
- a conflict in the picture is a conflict of the bank model;
- choosing a lane or a bank shows exactly the lanes it is about;
- what the model says of every kind of access is what a traced run of the compiled kernel shows.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.explore import bank_conflicts
from skinny_gemm.figures import conflicts, style
from skinny_gemm.figures import layout as figures
from skinny_gemm.layouts import banks, fragments
from skinny_gemm.layouts import warp_splitk as layout
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WarpSplitKTactic
from tests.support.drawings import rectangles, texts

H200 = device.get("h200")
loads = st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.integers(0, 1), st.sampled_from([128, 256]))


@settings(deadline=None)
@given(loads, st.booleans())
def test_the_table_is_the_kernels_own_arithmetic(load, swizzled):
    operand, warp, step, k_tile = load
    table = figures.ldmatrix_table(operand, warp, step, 0, k_tile, swizzled)
    if swizzled:
        offset = {"A": layout.a_offset, "B": layout.b_offset}[operand]
        assert (table.address == 2 * offset(warp, step, 0, np.arange(32), k_tile)).all()
    wavefronts = int((table.groupby("matrix").turn.max() + 1).sum())
    assert wavefronts == banks.wavefronts(table.address.to_numpy(), 16)
    assert wavefronts == (4 if swizzled else 32)


def test_registers_hold_the_fragment_that_mma_wants():
    table = figures.ldmatrix_table("A", 2, 0, 1, 256)
    first_k = table.col.min()
    for lane in range(32):
        for register in range(4):
            source = table[(table.register == register) & (table.first_lane == lane // 4 * 4)].iloc[0]
            row, k = fragments.a_element(lane, register, 0)
            assert (source.row, source.col - first_k) == (row, k // 8 * 8)


@settings(deadline=None, max_examples=20)
@given(loads, st.integers(0, 31), st.integers(0, 31))
def test_lane_and_bank_are_told_in_words(load, lane, bank):
    operand, warp, step, k_tile = load
    table = figures.ldmatrix_table(operand, warp, step, 0, k_tile)
    row = table.loc[lane]
    said = texts(figures.ldmatrix_view(table, k_tile, 16 * (step + 1), lane, bank))
    sentence = next(t for t in said if t.startswith(f"lane {lane} "))
    for part in (f"byte {row.address} ", f"banks {row.bank} to {row.bank + 3}", f"register {row.register} of lanes"):
        assert part in sentence
    hit = set(table.lane[table.bank == bank // 4 * 4])
    listed = next(t for t in said if t.startswith(f"bank {bank} "))
    parts = [part.split("lane")[1].lstrip("s ") for part in listed.split(":")[1:]]
    assert {int(number) for part in parts for number in part.split(";")[0].split(",")} == hit


def test_a_conflict_is_named_and_every_lane_drawn_once_per_panel():
    for swizzled, verdict in ((True, "4 wavefronts, no conflict"), (False, "32 wavefronts, 8-way conflict")):
        table = figures.ldmatrix_table("B", 0, 0, 0, 128, swizzled)
        fig = figures.ldmatrix_view(table, 128, 8)
        assert f"banks: {verdict}" in texts(fig)
        assert sum(rectangles(fig, color) for color in style.BANK_GROUPS) == 8 * 16 + 3 * 32 + 8  # tile, panels, key


@pytest.mark.parametrize("k_tile", [128, 256])
def test_the_swizzle_map_numbers_every_chunk(k_tile):
    said = texts(figures.swizzle_map(k_tile))
    assert "row-major: 32 wavefronts per load" in said and "swizzled: 4 wavefronts per load" in said
    assert sum(t in "01234567" for t in said if len(t) == 1) >= 2 * 16 * k_tile // 8


def test_unknown_operand_is_named():
    with pytest.raises(ValueError, match="operand is 'C'"):
        figures.ldmatrix_table("C", 0, 0, 0, 128)


@pytest.mark.parametrize("tactic", ["16,8,256,2,1", "32,16,128,3,2", "16,32,128,2,1"])
def test_the_model_is_what_the_kernel_does(tactic):
    fig, data, facts = bank_conflicts.conflicts(WarpSplitKTactic.parse(tactic), GemmProblem(5, 32, 512))
    by = {source: rows.set_index("access") for source, rows in data.groupby("source")}
    traced, shipped = by[conflicts.TRACED], by[conflicts.SHIPPED]
    assert set(traced.index) == set(shipped.index)
    for access in ("A, ldmatrix", "B, ldmatrix", "partials, st", "partials, ld", "A, cp.async"):
        assert traced.wavefronts[access] == shipped.wavefronts[access] == shipped.ideal[access], access
    assert by[conflicts.PLAIN].wavefronts["A, ldmatrix"] == 32
    assert facts["source"] == "interpreter" and facts["tactic"] == tactic
    assert {"32", *data.access} <= set(texts(fig))


def test_an_illegal_tactic_is_refused_in_words():
    with pytest.raises(ValueError, match="stages is 1"):
        bank_conflicts.conflicts(WarpSplitKTactic(16, 8, 128, 1, 1), GemmProblem(5, 32, 512))
