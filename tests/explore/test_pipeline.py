"""The pipeline of one CTA: its cursor steps forth and back, its sliders offer what can run, trouble is told."""

import pytest

from skinny_gemm.explore import PipelineExplorer
from tests.support.widgets import facts_of, text


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
    explorer.loaders.value = 2
    assert explorer.roles[7] == "load x"
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
