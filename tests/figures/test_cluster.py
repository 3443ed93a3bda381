"""The pictures of a cluster name its blocks, owners and warps, what lands and the slots, and add up its traffic."""

from skinny_gemm.analysis import cluster
from skinny_gemm.figures import cluster as figures
from skinny_gemm.figures import style
from tests.support import traces
from tests.support.drawings import rectangles, texts
from tests.support.traces import GROUPS, GROUPS_PROBLEM, SINGLE, SINGLE_PROBLEM


def test_the_pictures_of_a_gather_name_what_they_show():
    _, parts, spans = traces.of_cluster(SINGLE, SINGLE_PROBLEM, "in_order")
    said = texts(figures.gather_view(parts, 3))
    assert "block 3  →  tokens 8 to 15, row tile 1  →  owner CTA 3 = 3 mod 4, slot 0  →  it adds 8 parts of 512 B, " \
        "6 of them from other CTAs" in said  # fmt: skip
    assert {"0.0", "3.1", "sum"} <= set(said)
    assert "CTA 3, warp 3" in texts(figures.gather_timeline(spans))


def test_the_traffic_is_written_and_summed():
    parts = cluster.owners(20, 2, 2, 4)
    shared, led = cluster.planned_traffic(parts, 4), cluster.planned_traffic(parts, 4, leader=True)
    said = texts(figures.traffic_view({"shared": shared, "led": led}))
    assert "shared" in said and "6,144" in said
    assert "18,432 B cross between CTAs, 6,144 B stay; most into one: 24,576 B" in said


def test_the_pictures_of_token_groups_name_what_they_show():
    table, parts, spans = traces.of_cluster(GROUPS, GROUPS_PROBLEM, "in_order")
    landings = cluster.arrivals(table, GROUPS, GROUPS_PROBLEM)
    said = set(texts(figures.settle_timeline(spans, landings, 1, time=40)))
    assert {"CTA 1, warp 0", "x of group 3, 4,096 B", "slot 3: block 7, 2,048 B"} <= said
    narrow = texts(figures.settle_timeline(spans, landings, 1, time=40, window=(20, 60)))
    assert "30" in narrow and "200" not in narrow
    view = figures.owner_view(parts, 4, cta=1)
    assert {"5: CTA 1", "block 5", "slot 2, w 2"} <= set(texts(view))
    assert sum(rectangles(view, color) for color in style.BANK_GROUPS) == 8 + 8 + 4
