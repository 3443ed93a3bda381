"""The settle pipeline steps forth and back and follows its sliders; the pitch of x is told in words."""

from skinny_gemm.explore import PitchExplorer, SettleExplorer
from tests.support.widgets import facts_of, text


def test_the_settle_pipeline_steps_forth_and_back(tmp_path):
    explorer = SettleExplorer()
    for _ in range(4):
        explorer.cursor.forward.click()
    assert explorer.cursor.value in set(explorer.spans.start) and f"at time {explorer.cursor.value}" in text(
        explorer.doing
    )
    explorer.cursor.value = int(explorer.spans.start[explorer.spans.what == "settle"].min())
    assert "adds, turns round and publishes block 0 of group 0" in text(explorer.doing)
    before = explorer.cursor.value
    explorer.cursor.back.click()
    assert explorer.cursor.value < before
    explorer.cta.value = 1
    assert ">CTA 1, warp 0" in explorer.timeline.value
    explorer.view.value = "owners and pushes"
    assert explorer.timeline.layout.display == "none" and "block mod 2" in explorer.owners.value
    assert "pushed bytes, from CTA to CTA: the trace" in explorer.traffic.value
    assert facts_of(explorer.export(tmp_path), "settle-2x2")["shown"] == "owners and pushes"


def test_groups_follow_their_sliders():
    explorer = SettleExplorer()
    assert sorted(set(explorer.parts.group)) == [0, 1, 2, 3]
    explorer.tg.value = 16
    assert sorted(set(explorer.parts.group)) == [0, 1]
    explorer.m.value, explorer.rt.value, explorer.ks.value = 8, 1, 4
    assert explorer.trouble.value == "" and sorted(set(explorer.parts.group)) == [0] and explorer.cta.max == 3
    explorer.cta.value = 3
    assert "slot" not in explorer.timeline.value, "one block: CTA 3 owns nothing"


def test_under_some_schedule_a_warp_runs_ahead():
    """What notebook 05 says in its fifth answer."""
    explorer = SettleExplorer()

    def ahead(spans):
        first, late = (spans[(spans.what == "multiply") & (spans.group == g)] for g in (2, 0))
        return any(first.start[first.cta == cta].min() < late.end[late.cta == cta].max() for cta in (0, 1))

    found = []
    for schedule in ("in_order", "adversarial(1)", "adversarial(2)"):
        explorer.schedule.value = schedule
        found.append(ahead(explorer.spans))
    assert not found[0] and any(found)


def test_the_pitch_is_told_in_words():
    explorer = PitchExplorer()
    assert "64 bytes of padding" in text(explorer.verdict) and "8 wavefronts" in explorer.picture.value
    explorer.k.value, explorer.ks.value = 1536, 16
    assert "no bytes of padding" in text(explorer.verdict) and "8 wavefronts" not in explorer.picture.value
