"""The explorers of the balanced kernels follow their controls, offer only what can run, and say what an export is of.

A second export writes the same again; one of something else does not replace it.
"""

from itertools import product

import pytest

from skinny_gemm.explore import ScatterExplorer, WarpRingExplorer, WavesExplorer, WgmmaStageExplorer
from skinny_gemm.explore.base import pictures_in
from skinny_gemm.explore.traced import AROUND, WINDOW
from tests.support.widgets import facts_of, text


def test_the_waves_follow_their_sliders(tmp_path):
    """What notebook 10 answers to its questions on waves."""
    explorer = WavesExplorer()
    assert "equal tiles of 32 rows: 144 CTAs in 2 waves, 45.5 %" in explorer.picture.value
    assert "balanced tiles of 34 or 35 rows: 132 CTAs in 1 wave, 0.3 %" in explorer.picture.value
    for tile, told in ((16, "288 CTAs in 3 waves, 27.3 %"), (64, "72 CTAs in 1 wave, 45.5 %")):
        explorer.tile.value = tile
        assert told in explorer.picture.value
    explorer.tile.value, explorer.sms.value = 32, 148
    assert "144 CTAs in 1 wave, 2.7 %" in explorer.picture.value
    explorer.sms.value, explorer.n.value = 132, 4256
    assert "49.6 % of the SMs" in explorer.picture.value
    explorer.n.value = 512
    assert "balanced tiles of 3 or 4 rows" in explorer.picture.value
    facts = facts_of(explorer.export(tmp_path))
    assert (facts["n"], facts["sms"], facts["tile"], facts["source"]) == (512, 132, 32, "model")
    assert "row_range" in text(explorer.source)


def test_the_rings_step_forth_and_back_and_tell_what_is_done(tmp_path):
    explorer = WarpRingExplorer()
    for _ in range(2):
        explorer.cursor.forward.click()
    later = explorer.cursor.value
    assert later in set(explorer.spans.start) and f"at time {later}" in text(explorer.doing)
    assert "issues the copies of turn 1 into stage 1" in text(explorer.doing)
    assert "turn 0, turn 1" in text(explorer.doing), "both are in flight"
    explorer.cursor.back.click()
    assert explorer.cursor.value < later
    explorer.view.value, explorer.cursor.value = "around the cursor", 100
    assert explorer.window() == (100 - WINDOW // 2, 100 + WINDOW // 2)
    explorer.schedule.value = "adversarial(2)"
    assert "4 turns ahead" in explorer.timeline.value, "what notebook 10 answers"
    facts = facts_of(explorer.export(tmp_path))
    assert (facts["schedule"], facts["source"], facts["kernel"]) == ("adversarial(2)", "interpreter", "balanced-splitk")


def test_a_deep_ring_has_no_refills_and_holds_the_first_weights():
    explorer = WarpRingExplorer()
    assert explorer.spans.number[explorer.spans.what == "wait lanes"].nunique() > 1
    explorer.stages.value = 4
    spans = explorer.spans
    last = spans.start[spans.what == "wait grid"].min()
    assert (spans.start[spans.what == "copy"] < last).all() and "hold" in set(spans.what)
    explorer.x_ring.value = 1
    assert explorer.spans.start[explorer.spans.what == "copy x"].min() > last
    explorer.trigger.value = 1
    spans = explorer.spans
    assert spans.start[spans.what == "trigger"].min() > spans.start[spans.what == "copy x"].max()
    assert explorer.trouble.value == ""


def test_every_ring_on_offer_can_run():
    explorer = WarpRingExplorer()
    explorer.stages.value = explorer.stages.max
    for warps, k_chunk in product(explorer.warps.options, explorer.k_chunk.options):
        explorer.warps.value, explorer.k_chunk.value = warps, k_chunk
        turns = explorer.tactic.turns(explorer.problem)
        assert explorer.trouble.value == "" and explorer.stages.max == min(4, turns) >= explorer.stages.value
        assert explorer.spans.number[explorer.spans.what == "multiply"].max() == turns - 1


def test_the_reduce_scatter_follows_its_controls(tmp_path):
    """What notebook 10 answers to its questions on the reduce-scatter."""
    explorer = ScatterExplorer()
    assert "CTA 1, 4,096 B" in explorer.timeline.value and "CTA 2, 2,048 B" in explorer.timeline.value
    explorer.view.value = "owners and pushes"
    assert explorer.timeline.layout.display == "none" and ">fragment 3  →  rows 16 to 31" in explorer.owners.value
    assert "9,216 B cross" in explorer.traffic.value and "36,864 B cross" in explorer.traffic.value
    explorer.fragment.value = 5
    assert "owner CTA 1 = 5 mod 4, slot 1" in explorer.owners.value
    explorer.token_tile.value, explorer.cluster.value, explorer.warps.value = 8, 2, 2
    assert explorer.fragment.max == 2 == explorer.fragment.value and explorer.trouble.value == ""
    assert set(explorer.parts.owner) == {0, 1} and explorer.problem.m == 8
    explorer.view.value = "over time"
    explorer.cursor.value = int(explorer.spans.start[explorer.spans.what == "push"].min())
    assert "sends it to its owner (st.async)" in text(explorer.doing)
    paths = explorer.export(tmp_path)
    assert facts_of(paths, "scatter-owners")["source"] == "model" and facts_of(paths, "scatter-2x2")["schedule"]


def test_a_cluster_waits_for_its_last_warp_to_start_and_not_to_be_done():
    explorer = ScatterExplorer()
    spans = explorer.spans
    waits, starts = spans[spans.what == "wait cluster"], spans[spans.what == "arrive"]
    assert waits.end.min() > starts.end.max() > spans.start[spans.what == "store"].min()
    assert waits.end.min() < spans.end[spans.what == "push"].min() < spans.end[spans.what == "wait CTA"].max()


def test_the_stage_of_wgmma_follows_its_controls(tmp_path):
    """What notebook 10 says, and answers to its questions on wgmma."""
    explorer = WgmmaStageExplorer()
    assert explorer.trouble.value == "" and explorer.row.max == 71
    assert "row 27 of A (its sums are dropped) and row 3 of B" in explorer.picture.value
    assert "9,216 B, and a thread 24 registers" in text(explorer.verdict)
    explorer.thread.value = 64
    assert "lane 0 of warp 2 has no result" in explorer.picture.value
    explorer.token_tile.value = 64
    assert "lane 0 of warp 2 has 24 sums of tokens 32 and 40" in explorer.picture.value
    explorer.row.value = explorer.row.max
    assert explorer.row.value == 111 and "past the tile, never copied  →  row 47 of B" in explorer.picture.value
    explorer.token_tile.value = 24
    assert explorer.row.value == 71, "of a lower stage"
    explorer.rows.value = 32
    assert "needs tiles of at least 33 rows" in text(explorer.verdict) and explorer.trouble.value == ""
    explorer.rows.value = 33
    assert "OK" in text(explorer.verdict)
    explorer.token_tile.value, explorer.rows.value, explorer.thread.value = 8, 1, 127
    assert "copies nothing" in explorer.picture.value and explorer.trouble.value == ""
    facts = facts_of(explorer.export(tmp_path))
    assert (facts["kernel"], facts["source"], facts["thread"]) == ("wgmma-splitk", "model", 127)
    assert "descriptor" in text(explorer.children[-2])


@pytest.mark.parametrize("kind", [WavesExplorer, WarpRingExplorer, ScatterExplorer, WgmmaStageExplorer])
def test_a_second_export_writes_the_same_and_changes_nothing_on_screen(kind, tmp_path):
    explorer = kind()
    screen = [picture.value for picture in pictures_in(explorer)]
    first, second = (
        {path.name: path.read_bytes() for path in explorer.export(tmp_path / name)} for name in ("first", "second")
    )
    assert first == second and len(first) == 5 * len(screen)
    assert [picture.value for picture in pictures_in(explorer)] == screen


@pytest.mark.parametrize("kind", [WarpRingExplorer, ScatterExplorer])
def test_exports_of_the_whole_run_and_of_a_part_stand_side_by_side(kind, tmp_path):
    explorer = kind()
    whole = explorer.export(tmp_path)[:5]
    before = [path.read_bytes() for path in whole]
    explorer.view.value = AROUND
    part = explorer.export(tmp_path)[:5]
    assert not {*whole} & {*part} and [path.read_bytes() for path in whole] == before
    assert facts_of(part)["shown"] == AROUND != facts_of(whole)["shown"]
