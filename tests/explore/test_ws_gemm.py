"""The explorers of the weight-stationary GEMM follow their sliders, and trouble shows no earlier run."""

from skinny_gemm.explore import (
    ExposureExplorer,
    GatherExplorer,
    PitchExplorer,
    SettleExplorer,
    WeightStationaryExplorer,
)
from tests.support.widgets import facts_of, text


def test_lane_and_block_change_the_permutation_and_nothing_else(tmp_path):
    explorer = WeightStationaryExplorer()
    placement = explorer.placement.value
    explorer.lane.value = 14
    assert (
        ">lane 14  →  16 bytes each of weight rows 3 and 11 and of token 3: K 560 to 567" in explorer.permutation.value
    )
    explorer.block.value = 0
    assert "K 528 to 535" in explorer.permutation.value and explorer.placement.value == placement
    paths = explorer.export(tmp_path)
    assert facts_of(paths, "k-permutation")["column"] == 512 and facts_of(paths, "weight-placement")["warp"] == 2


def test_a_placement_that_cannot_be_says_why():
    explorer = WeightStationaryExplorer()
    assert "40 registers of each thread and 12,288 B" in text(explorer.verdict)
    explorer.k.value, explorer.rt.value, explorer.kq.value = 7168, 1, 1
    assert "Not possible:" in text(explorer.verdict) and "registers per thread" in text(explorer.verdict)
    assert explorer.warp.max == 0 and explorer.staged.max == 56 and explorer.trouble.value == ""
    explorer.staged.value = 50
    assert "OK:" in text(explorer.verdict), "what notebook 03 says: raise staged"
    assert "k_element" in text(explorer.source)


def test_chains_follow_their_slider(tmp_path):
    explorer = ExposureExplorer()
    for ch, longest in ((1, 16), (4, 4), (0, 4)):
        explorer.ch.value = ch
        assert f"(the longest {longest})" in explorer.picture.value, ch
    explorer.staged.value = 8
    assert "no loads of weights" in explorer.picture.value and ">weights to registers" not in explorer.picture.value
    paths = explorer.export(tmp_path)
    assert facts_of(paths, "exposed")["tactic"] == "1,2,2,8,0,0"


def test_it_says_that_it_compiles_and_forgets_the_run_before(monkeypatch):
    explorer = ExposureExplorer()
    seen = []

    def failing(*_):
        seen.append(explorer.busy.value)
        raise ValueError("no compiler today")

    monkeypatch.setattr("skinny_gemm.explore.traced.traced", failing)
    explorer.ks.value = 4
    assert seen == ["compiling and running 1,2,4,2,0,2 ..."] and explorer.busy.value == ""
    assert "no compiler today" in text(explorer.trouble) and explorer.picture.value == ""
    monkeypatch.undo()
    explorer.ks.value = 2
    assert explorer.trouble.value == "" and "<svg" in explorer.picture.value


def test_the_gather_follows_its_sliders(tmp_path):
    explorer = GatherExplorer()
    assert explorer.block.max == 5 and "18,432 B cross" in explorer.traffic.value
    explorer.block.value = 5
    assert ">block 5  →  tokens 16 to 23, row tile 1  →  owner CTA 1 = 5 mod 4" in explorer.blocks.value
    explorer.kq.value = 1
    assert "9,216 B cross" in explorer.traffic.value, "half the parts, half the bytes"
    explorer.m.value, explorer.ks.value = 1, 8
    assert explorer.block.max == 1 and explorer.block.value == 1 and set(explorer.parts.owner) == {0, 1}
    explorer.schedule.value = "in_order"
    paths = explorer.export(tmp_path)
    assert facts_of(paths, "gather-timeline")["schedule"] == "in_order"
    assert facts_of(paths, "gather-blocks")["source"] == "model" and facts_of(paths, "gather-traffic")["m"] == 1


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
