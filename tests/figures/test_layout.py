"""The pictures of shared memory: maps add up, a lane or a bank lights exactly the lanes it is about, the pitch pays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import device, tactics
from skinny_gemm.analysis.bank_conflicts import ldmatrix_table
from skinny_gemm.analysis.tactic import smem_table
from skinny_gemm.figures import layout as figures
from skinny_gemm.figures import style
from skinny_gemm.problem import GemmProblem
from tests.support.drawings import rectangles, texts

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)
KIND = tactics.KERNELS["warp-splitk"]
loads = st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.integers(0, 1), st.sampled_from([128, 256]))


@settings(deadline=None, max_examples=20)
@given(loads, st.integers(0, 31), st.integers(0, 31))
def test_lane_and_bank_are_told_in_words(load, lane, bank):
    operand, warp, step, k_tile = load
    table = ldmatrix_table(operand, warp, step, 0, k_tile)
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
        table = ldmatrix_table("B", 0, 0, 0, 128, swizzled)
        fig = figures.ldmatrix_view(table, 128, 8)
        assert f"banks: {verdict}" in texts(fig)
        assert sum(rectangles(fig, color) for color in style.BANK_GROUPS) == 8 * 16 + 3 * 32 + 8  # tile, panels, key


@pytest.mark.parametrize("k_tile", [128, 256])
def test_the_swizzle_map_numbers_every_chunk(k_tile):
    said = texts(figures.swizzle_map(k_tile))
    assert "row-major: 32 wavefronts per load" in said and "swizzled: 4 wavefronts per load" in said
    assert sum(t in "01234567" for t in said if len(t) == 1) >= 2 * 16 * k_tile // 8


@pytest.mark.parametrize("text", ["16,8,128,2,1", "32,32,256,2,2"])
def test_the_shared_memory_map_adds_up(text):
    tactic = KIND.parse(text)
    footprint = tactic.footprint(PROBLEM, H200)
    table = smem_table(footprint, H200)
    used = table[table.cta >= 0]
    assert used.groupby("cta")["bytes"].sum().unique().tolist() == [
        sum(size for _, _, size in footprint.regions) + H200.smem_reserved_per_cta
    ]
    assert used.cta.nunique() == footprint.ctas_per_sm
    ends = (used.start + used["bytes"]).to_numpy()
    assert (ends[:-1] <= used.start.to_numpy()[1:]).all() and ends[-1] <= H200.smem_per_sm
    said = texts(figures.smem_map(footprint, H200))
    assert any(t.endswith(f"{footprint.ctas_per_sm} CTAs fit") or "1 CTA fits" in t for t in said)
    assert "A 8 KB" in said or "A 32 KB" in said


def test_regions_that_hold_nothing_are_not_named():
    tactic = tactics.KERNELS["ws-gemm"].parse("1,4,4,0,8,1")
    footprint = tactic.footprint(GemmProblem(8, 560, 7168), H200)
    said = texts(figures.smem_map(footprint, H200))
    assert dict((name, size) for name, _, size in footprint.regions)["stages"] == 0
    assert not any(t.startswith("stages") for t in said) and any(t.startswith("receive ") for t in said)


@pytest.mark.parametrize("k_chunk", [64, 128])
def test_the_picture_of_a_stage_shows_every_lane_where_it_loads_and_when_it_is_served(k_chunk):
    fig = figures.stage_view(k_chunk, block=1)
    said = texts(fig)
    assert [text for text in said if "wavefronts" in text] == ["8 wavefronts a load", "4 wavefronts a load"]
    assert said.count("31") == 2 * 2, "of each of the two layouts, in the tile and at the banks"
    per_group = [2 * (16 * k_chunk // 64) + 2 * 4 + 2 * 8 * (g >= 4) for g in range(8)]  # tiles, swapped and plain load
    assert [rectangles(fig, color) for color in style.BANK_GROUPS] == per_group


def test_the_picture_of_the_pitch():
    said = texts(figures.x_bank_view(512))
    assert "rows end to end, 1,024 B apart: 8 wavefronts" in said
    assert "as in the kernel, 1,088 B apart: 4 wavefronts" in said
