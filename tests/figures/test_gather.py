"""The pictures of the gather name the blocks, their owners and the warps."""

from skinny_gemm.analysis import cluster
from skinny_gemm.figures import gather
from skinny_gemm.figures.cluster import traffic_view
from tests.support import traces
from tests.support.drawings import texts
from tests.support.traces import SINGLE, SINGLE_PROBLEM


def test_the_pictures_name_what_they_show():
    _, parts, spans = traces.of_cluster(SINGLE, SINGLE_PROBLEM, "in_order")
    said = texts(gather.gather_view(parts, 3))
    assert "block 3  →  tokens 8 to 15, row tile 1  →  owner CTA 3 = 3 mod 4, slot 0  →  it adds 8 parts of 512 B, " \
        "6 of them from other CTAs" in said  # fmt: skip
    assert {"0.0", "3.1", "sum"} <= set(said)
    assert "CTA 3, warp 3" in texts(gather.gather_timeline(spans))


def test_the_traffic_is_written_and_summed():
    parts = cluster.owners(20, 2, 2, 4)
    shared, led = cluster.planned_traffic(parts, 4), cluster.planned_traffic(parts, 4, leader=True)
    said = texts(traffic_view({"shared": shared, "led": led}))
    assert "shared" in said and "6,144" in said
    assert "18,432 B cross between CTAs, 6,144 B stay; most into one: 24,576 B" in said
