"""The K permutation, the places of weights and what is exposed follow their sliders; trouble shows no earlier run."""

from skinny_gemm.explore import ExposureExplorer, WeightStationaryExplorer, traced
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

    monkeypatch.setattr(traced, "traced", failing)
    explorer.ks.value = 4
    assert seen == ["compiling and running 1,2,4,2,0,2 ..."] and explorer.busy.value == ""
    assert "no compiler today" in text(explorer.trouble) and explorer.picture.value == ""
    monkeypatch.undo()
    explorer.ks.value = 2
    assert explorer.trouble.value == "" and "<svg" in explorer.picture.value
