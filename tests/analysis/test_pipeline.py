"""The pipeline is read off the trace: right roles, ring arithmetic and barrier phases, under every schedule."""

import pytest

from skinny_gemm.analysis import pipeline
from skinny_gemm.tactics.base import LAST, TRIGGERS
from tests.support import traces
from tests.support.traces import STAGES, TILES


@pytest.fixture(scope="module", params=["in_order", "adversarial(1)", "adversarial(5)"])
def read(request):
    return traces.of_ring(request.param)


def test_warps_have_the_roles_of_the_kernel(read):
    assert read[2] == dict.fromkeys(range(4), "compute") | {
        4: "load weights",
        5: "load weights",
        6: "load x",
        7: "load x",
    }


def test_every_warp_goes_through_the_ring_in_order(read):
    spans, _, roles = read
    for warp, role in roles.items():
        mine = spans[spans.warp == warp]
        full, empty, flying = (mine[mine.what == what] for what in ("wait full", "wait empty", "in flight"))
        if role == "compute":
            assert full.tile.tolist() == list(range(TILES))
            assert full.stage.tolist() == [tile % STAGES for tile in range(TILES)]
            assert full.parity.tolist() == [tile // STAGES & 1 for tile in range(TILES)]
            assert sorted(mine[mine.what == "compute"].tile.unique()) == list(range(TILES))
        else:
            assert flying.tile.tolist() == list(range(TILES))
            assert empty.tile.tolist() == list(range(STAGES, TILES)), "the first round waits for nobody"
            assert empty.parity.tolist() == [tile // STAGES - 1 & 1 for tile in range(STAGES, TILES)]


def test_whoever_issues_or_computes_does_so_in_the_stage_of_its_tile(read):
    spans, _, _ = read
    busy = spans[spans.what.isin(["issue", "compute"])]
    assert (busy.stage == busy.tile % STAGES).all() and (busy.tile >= 0).all()


def test_nobody_computes_on_a_tile_before_it_has_landed(read):
    spans, _, _ = read
    for tile in range(TILES):
        landed = spans[(spans.what == "in flight") & (spans.tile == tile)].end.max()
        assert (spans[(spans.what == "compute") & (spans.tile == tile)].start > landed).all()


def test_nobody_fills_a_stage_before_it_is_drained(read):
    spans, _, _ = read
    for tile in range(STAGES, TILES):
        drained = spans[(spans.what == "compute") & (spans.tile == tile - STAGES)].end.max()
        assert (spans[(spans.what == "in flight") & (spans.tile == tile)].start >= drained).all()


def test_a_barrier_goes_through_its_phases_without_a_gap(read):
    _, phases, _ = read
    assert set(phases.barrier) == {"full", "empty"}
    for (kind, stage), rows in phases.groupby(["barrier", "stage"]):
        assert rows.phase.tolist() == list(range(len(rows)))
        assert (rows.end.to_numpy()[:-1] == rows.start.to_numpy()[1:]).all()
        if kind == "full":
            assert len(rows) == 1 + len(range(stage, TILES, STAGES))


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_the_next_grid_may_start_before_the_wait_for_the_previous_one_or_after_the_last_copies(trigger):
    spans, _, roles = traces.of_ring("in_order", trigger)
    fired = spans[spans.what == "trigger"].set_index("warp")
    assert sorted(fired.index) == [warp for warp, role in roles.items() if role == "load x"] == [6, 7]
    for warp, mine in spans[spans.warp.isin(fired.index)].groupby("warp"):
        waited, issued = mine[mine.what == "wait grid"], mine[mine.what == "issue"]
        start = fired.start[warp]
        assert start >= issued.end.max() if trigger == LAST else start < waited.start.min() < issued.start.min()
        state = pipeline.ring_state(spans, roles, start).set_index("warp")
        assert state.doing[warp] == "lets the next grid start (griddepcontrol.launch_dependents)"


def test_the_state_says_what_a_warp_waits_for(read):
    spans, _, roles = read
    wait = spans[(spans.warp == 0) & (spans.what == "wait full")].iloc[1]
    state = pipeline.ring_state(spans, roles, int(wait.start)).set_index("warp")
    assert state.doing[0] == "waits until stage 1 is full (tile 1, parity 0)"
    assert pipeline.ring_state(spans, roles, int(spans.end.max())).doing.eq("done").all()
