"""The explorers of warp split-K: the views of one load, and the pipeline, follow their controls and tell trouble."""

import pytest

from skinny_gemm.explore import PipelineExplorer, SwizzleExplorer
from skinny_gemm.explore.traced import WINDOW
from tests.support.widgets import facts_of, text


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
    assert explorer.views()[0].data.col.max() < k_tile


def test_an_export_says_which_load_it_is(tmp_path):
    explorer = SwizzleExplorer()
    paths = explorer.export(tmp_path)
    explorer.lane.value, explorer.bank.value = 13, 7
    others = explorer.export(tmp_path)
    assert not set(paths) & set(others)
    facts = facts_of(others)
    assert (facts["warp"], facts["phase"], facts["lane"], facts["bank"]) == (1, 0, 13, 7)


def test_the_pipeline_steps_from_event_to_event_and_back():
    explorer = PipelineExplorer()
    assert explorer.cursor.value == 0
    for _ in range(3):
        explorer.cursor.forward.click()
    later = explorer.cursor.value
    assert later in set(explorer.spans.start) and f"at time {later}" in text(explorer.doing)
    for _ in range(3):
        explorer.cursor.back.click()
    assert explorer.cursor.value == 0
    explorer.cursor.back.click()
    assert explorer.cursor.value == 0 and explorer.trouble.value == ""


def test_the_pipeline_follows_its_sliders_and_says_what_cannot_be(tmp_path):
    explorer = PipelineExplorer()
    explorer.stages.min = 1  # the slider itself offers nothing that cannot be
    explorer.stages.value = 1
    assert "stages is 1, but must be 2 to 8" in text(explorer.trouble)
    assert explorer.timeline.value == explorer.doing.value == "", "another run would pass for this one"
    with pytest.raises(ValueError, match="stages is 1"):
        explorer.export(tmp_path)
    explorer.export_button.click()
    assert "nothing written: " in text(explorer.exported) and "stages is 1" in text(explorer.exported)
    explorer.stages.value = 8
    assert explorer.trouble.value == "" and "empty" not in set(explorer.phases.barrier)
    explorer.b_loader_warps.value = 2
    assert explorer.roles[7] == "load x"
    explorer.trigger.value = 1
    at = explorer.spans[explorer.spans.what == "trigger"].start.min()
    explorer.cursor.value = int(at)
    assert "lets the next grid start" in text(explorer.doing) and explorer.tactic.trigger == 1
    explorer.view.value = "around the cursor"
    explorer.schedule.value = "adversarial(4)"
    paths = explorer.export(tmp_path)
    facts = facts_of(paths)
    assert facts["schedule"] == "adversarial(4)" and facts["source"] == "interpreter"


def test_every_stage_on_offer_can_run():
    explorer = PipelineExplorer()
    assert (explorer.stages.min, explorer.stages.max) == (2, 8)
    explorer.stages.value = 8
    explorer.k.value = 1024
    assert explorer.stages.max == explorer.stages.value == 4 and explorer.trouble.value == ""
    explorer.k_tile.value = 128
    assert explorer.stages.max == 8 and explorer.trouble.value == ""


def test_the_window_is_around_the_cursor_and_starts_at_0():
    explorer = PipelineExplorer()
    assert explorer.window() is None
    explorer.view.value, explorer.cursor.value = "around the cursor", 200
    assert explorer.window() == (200 - WINDOW // 2, 200 + WINDOW // 2)
    explorer.cursor.value = 10
    assert explorer.window() == (0, WINDOW)
