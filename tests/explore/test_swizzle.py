"""The views of one `ldmatrix` follow their controls, and an export says which load it is."""

import pytest

from skinny_gemm.explore import SwizzleExplorer
from tests.support.widgets import facts_of


def test_choosing_a_lane_and_a_bank_changes_the_linked_view():
    explorer = SwizzleExplorer()
    explorer.lane.value = 13
    assert ">lane 13  →  row 13, k 64 to 71" in explorer.picture.value
    explorer.bank.value = 7
    assert ">bank 7 serves" in explorer.picture.value
    explorer.swizzled.value = False
    assert "32 wavefronts, 8-way conflict" in explorer.picture.value and "plain_offset" in explorer.source.value


@pytest.mark.parametrize(("operand", "k_tile", "phases"), [("A", 256, 4), ("A", 128, 2), ("B", 256, 2), ("B", 128, 1)])
def test_the_phase_slider_spans_the_phases_there_are(operand, k_tile, phases):
    explorer = SwizzleExplorer()
    explorer.phase.value = 3
    explorer.operand.value, explorer.k_tile.value = operand, k_tile
    assert explorer.trouble.value == ""
    shown = explorer.phase.layout.display != "none"
    assert (explorer.phase.max + 1 if shown else 1) == phases
    assert explorer.table().col.max() < k_tile


def test_an_export_says_which_load_it_is(tmp_path):
    explorer = SwizzleExplorer()
    paths = explorer.export(tmp_path)
    explorer.lane.value, explorer.bank.value = 13, 7
    others = explorer.export(tmp_path)
    assert not set(paths) & set(others)
    facts = facts_of(others)
    assert (facts["warp"], facts["phase"], facts["lane"], facts["bank"]) == (1, 0, 13, 7)
