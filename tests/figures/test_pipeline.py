"""The timeline of a CTA names its warps, barriers and waits, points at the trigger, and shows the window it is asked
for.
"""

from matplotlib.lines import Line2D

from skinny_gemm.figures import pipeline
from tests.support import traces
from tests.support.drawings import texts


def test_the_picture_names_warps_and_barriers():
    spans, phases, roles = traces.of_ring("in_order")
    said = set(texts(pipeline.timeline(spans, phases, roles, time=20)))
    assert {"warp 0, compute", "warp 4, load weights", "warp 7, load x", "full 2", "empty 0", "wait empty"} <= said
    narrow = pipeline.timeline(spans, phases, roles, time=20, window=(10, 40))
    assert "40" in texts(narrow) and "200" not in texts(narrow)


def test_an_arrow_points_at_the_trigger_of_every_activation_loader():
    spans, phases, roles = traces.of_ring("in_order")
    at = spans[spans.what == "trigger"]
    for window, shown in ((None, at), ((int(at.start.max()) + 5, int(spans.end.max())), at[:0])):
        artists = pipeline.timeline(spans, phases, roles, window=window).artists
        (arrows,) = (a for a in artists if isinstance(a, Line2D) and a.get_marker() == ">")
        assert sorted(arrows.get_xdata()) == sorted(shown.start + 0.5)
