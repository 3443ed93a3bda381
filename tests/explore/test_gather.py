"""The gather: blocks, traffic and the cluster over time follow their sliders."""

from skinny_gemm.explore import GatherExplorer
from tests.support.widgets import facts_of


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
