"""The pictures of the balanced kernels: every row of a weight is drawn once, warps, turns and fragments are named, a
stage is what memory holds, and what is lit, in a window or under the cursor is what was asked for.
"""

import pytest
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch

from skinny_gemm.analysis import balanced as readings
from skinny_gemm.figures import balanced as figures
from skinny_gemm.figures import style
from skinny_gemm.figures.panel import Labels
from skinny_gemm.figures.style import LIGHT
from tests.support import traces
from tests.support.drawings import rectangles, texts
from tests.support.traces import SCATTER, SCATTER_PROBLEM, WARPS, WARPS_PROBLEM


@pytest.mark.parametrize(("n", "ctas", "waves"), [(4608, 144, 2), (4224, 132, 1), (16384, 512, 4)])
def test_every_cta_is_a_box_and_the_idle_share_is_written(n, ctas, waves):
    table = readings.cuts(n, 132, 32)
    found = readings.shares(table, 132)
    fig = figures.shares_view(table, 132, 7168)
    said = texts(fig)
    assert sum(rectangles(fig, fill) for fill in style.BANK_GROUPS) == len(table) + waves, "and one each in the key"
    for cut, share in zip(readings.CUTS, found.itertuples(), strict=True):
        idle = f"{100 * share.idle:.1f} % of the SMs' time idle"
        assert any(text.startswith(f"{cut} of ") and text.endswith(idle) for text in said)
        assert any(f"streams {2 * 7168 * share.most:,} B" in text for text in said)
    assert any(text.startswith(f"equal tiles of 32 rows: {ctas} CTAs in {waves} wave") for text in said)


def test_the_rings_name_warps_and_turns_and_how_far_they_are_apart():
    _, spans = traces.of_warps(WARPS, WARPS_PROBLEM, "adversarial(1)")
    turns, ahead, behind = readings.turns_apart(spans)
    said = texts(figures.ring_timeline(spans, WARPS.stages, time=20))
    assert {"warp 0", "warp 3", "copy", "load x", "wait", "stage 1", "CTA"} <= set(said) and "stage 2" not in said
    assert any(text.startswith(f"once warp {ahead} was {turns} turns ahead of warp {behind};") for text in said)
    assert "push" not in said and "add, send" not in said, "no cluster, nothing is sent"
    _, spans = traces.of_warps(WARPS, WARPS_PROBLEM, "in_order")
    said = texts(figures.ring_timeline(spans, WARPS.stages))
    assert any(text.startswith("in this schedule all keep step") for text in said)
    narrow = texts(figures.ring_timeline(spans, WARPS.stages, 20, (10, 40)))
    assert "40" in narrow and "100" not in narrow


def test_an_arrow_points_at_the_trigger_of_every_warp_in_the_window():
    _, spans = traces.of_warps(WARPS, WARPS_PROBLEM, "in_order")
    for window, shown in ((None, WARPS.warps), ((20, 60), 0)):
        artists = figures.ring_timeline(spans, WARPS.stages, window=window).artists
        (arrows,) = (a for a in artists if isinstance(a, Line2D) and a.get_marker() == ">")
        assert len(arrows.get_xdata()) == shown


def test_the_owners_are_named_and_every_part_is_drawn():
    parts = readings.owners(SCATTER, SCATTER_PROBLEM)
    fig = figures.owner_view(parts, 4)
    said = texts(fig)
    assert {*readings.fragment_sentences(parts, 4), "0.0", "3.1", "sum", "slot 1", "received: 4 a slot"} <= set(said)
    drawn = len(parts) + 6 * SCATTER.cluster + 6 + 8 + 1 + 4  # rings, slots, tile, chain, its sum, key
    assert sum(rectangles(fig, fill) for fill in style.BANK_GROUPS) == drawn
    patches = [a for a in fig.artists if isinstance(a, PathPatch)]
    lit = [p for p in patches if to_hex(p.get_edgecolor()) == LIGHT.vermillion]
    count = sum(len(patch.get_path().vertices) // 5 for patch in lit)
    assert count == 1 + 8 + 4 + 1, "the fragment, its 8 parts, what arrives of 4 CTAs, its sum"


def test_the_cluster_over_time_says_what_arrives_and_marks_who_has_come():
    table, spans = traces.of_warps(SCATTER, SCATTER_PROBLEM, "adversarial(1)")
    landings = readings.arrivals(table, SCATTER, SCATTER_PROBLEM)
    fig = figures.cluster_timeline(spans, landings, time=50)
    assert {"CTA 0, warp 1", "CTA 0, 4,096 B", "CTA 3, 2,048 B", "add, send", "cluster"} <= set(texts(fig))
    (marks,) = (a for a in fig.artists if isinstance(a, Line2D) and a.get_marker() == "|")
    assert len(marks.get_xdata()) == SCATTER.cluster * SCATTER.warps
    narrow = texts(figures.cluster_timeline(spans, landings, 50, (20, 60)))
    assert "40" in narrow and "200" not in narrow


@pytest.mark.parametrize(("tokens", "rows"), [(24, 44), (64, 35), (8, 40)])
def test_a_stage_of_wgmma_is_drawn_chunk_by_chunk_and_its_sums_by_fragment(tokens, rows):
    chunks, sums = readings.stage_chunks(rows, tokens), readings.wgmma_sums(rows, tokens)
    row, thread = tokens + rows - 1, 37
    fig = figures.wgmma_view(chunks, sums, row, 2, thread)
    said = texts(fig)
    assert {*readings.stage_sentences(chunks, sums, row, 2, thread), "A", "B", f"x, {tokens} tokens", "warp 3"} <= set(
        said
    )
    assert (readings.PAST in said) == (rows % 8 > 0)
    copied = chunks[chunks.what != readings.PAST]
    there = int((copied.row // 8 == row // 8).sum())  # in the eight rows that are drawn once more
    assert sum(rectangles(fig, fill) for fill in style.BANK_GROUPS) == len(copied) + there
    assert rectangles(fig, LIGHT.faint) == sums.fragment.max() + 1
    in_stage, in_sums = (a for a in fig.artists if isinstance(a, Line2D) and a.get_marker() == "o")
    assert len(in_stage.get_xdata()) == (chunks.thread == thread).sum()
    assert len(in_sums.get_xdata()) == (sums.result & (sums.thread == thread)).sum()


def test_what_lies_beside_each_other_in_the_picture_does_so_in_memory():
    """The numbers of the eight rows are, line by line, the chunks in the order of their addresses."""
    chunks = readings.stage_chunks(44, 24)
    fig = figures.wgmma_view(chunks, readings.wgmma_sums(44, 24), 27, 1)
    numbers = [a for a in fig.artists if isinstance(a, Labels) and a.color == style.ON_FILL]
    drawn = sorted((y, x, int(text)) for a in numbers for (x, y), text in zip(a.points, a.texts, strict=True))
    rows = chunks[chunks.row.between(24, 31)].sort_values("address")
    assert [chunk for _, _, chunk in drawn] == rows.chunk.tolist()
