"""The pictures of token groups name the warps, what lands, and the slots; the pitch of x is seen to pay."""

from skinny_gemm.analysis.cluster import arrivals
from skinny_gemm.figures import settle, style
from tests.support import traces
from tests.support.drawings import rectangles, texts
from tests.support.traces import GROUPS, GROUPS_PROBLEM


def test_the_pictures_name_what_they_show():
    table, parts, spans = traces.of_cluster(GROUPS, GROUPS_PROBLEM, "in_order")
    landings = arrivals(table, GROUPS, GROUPS_PROBLEM)
    said = set(texts(settle.settle_timeline(spans, landings, 1, time=40)))
    assert {"CTA 1, warp 0", "x of group 3, 4,096 B", "slot 3: block 7, 2,048 B"} <= said
    narrow = texts(settle.settle_timeline(spans, landings, 1, time=40, window=(20, 60)))
    assert "30" in narrow and "200" not in narrow
    view = settle.owner_view(parts, 4, cta=1)
    assert {"5: CTA 1", "block 5", "slot 2, w 2"} <= set(texts(view))
    assert sum(rectangles(view, color) for color in style.BANK_GROUPS) == 8 + 8 + 4


def test_the_picture_of_the_pitch():
    said = texts(settle.x_bank_view(512))
    assert "rows end to end, 1,024 B apart: 8 wavefronts" in said
    assert "as in the kernel, 1,088 B apart: 4 wavefronts" in said
