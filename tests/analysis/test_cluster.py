"""What the CTAs of a cluster did, read off traces, is what the layouts promise.

- bytes from CTA to CTA are those of the plan; owners share them;
- a block is settled once, by its owner, after all parts are there, and one group behind its push;
- what lands is counted up to what a barrier expects, never beyond;
- what a warp does at any moment is told in words.
"""

import pytest

from skinny_gemm.analysis import cluster
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WsGemmTactic
from tests.support import traces
from tests.support.traces import GROUPS, GROUPS_PROBLEM, SINGLE, SINGLE_PROBLEM

SCHEDULES = ["in_order", "adversarial(1)", "adversarial(4)"]


@pytest.fixture(scope="module", params=SCHEDULES)
def gathered(request):
    return traces.of_cluster(SINGLE, SINGLE_PROBLEM, request.param)


@pytest.fixture(scope="module", params=SCHEDULES)
def settled(request):
    return traces.of_cluster(GROUPS, GROUPS_PROBLEM, request.param)


def settled_blocks(spans):
    """CTA that published each block."""
    rows = spans[spans.what == "settle"].drop_duplicates(["cta", "warp", "block"])
    assert rows.block.is_unique
    return dict(zip(rows.block, rows.cta, strict=True))


def test_traced_traffic_is_the_planned_one(gathered, settled):
    for (table, parts, _), ks in ((gathered, SINGLE.ks), (settled, GROUPS.ks)):
        moved = cluster.traffic(table, ks)
        assert moved.equals(cluster.planned_traffic(parts, ks).astype(moved.dtypes))
        assert moved.bytes.sum() == 512 * len(parts)


def test_a_leader_would_read_everything():
    parts = cluster.owners(20, 2, 2, 4)
    shared, led = cluster.planned_traffic(parts, 4), cluster.planned_traffic(parts, 4, leader=True)
    assert shared.bytes.sum() == led.bytes.sum()
    into = [data.bytes.groupby(data.target).sum().tolist() for data in (shared, led)]
    assert into == [[8192, 8192, 4096, 4096], [24576, 0, 0, 0]], "6 blocks: two owners have two"


def test_nobody_gathers_before_everybody_has_stored_and_all_stay_until_the_end(gathered):
    _, parts, spans = gathered
    assert settled_blocks(spans) == dict(zip(parts.block, parts.owner, strict=True))
    assert spans.end[spans.what == "store"].max() <= spans.start[spans.what == "gather"].min()
    waits = spans[spans.what == "wait cluster"]
    for (_, _), rows in waits.groupby(["cta", "warp"]):
        assert rows.number.tolist() == [1, 2]
    assert waits.end[waits.number == 2].min() > spans.end[spans.what == "gather"].max()


def test_a_block_is_settled_by_its_owner_one_group_behind(settled):
    table, parts, spans = settled
    assert settled_blocks(spans) == dict(zip(parts.block, parts.owner, strict=True))
    warps = GROUPS.rt * GROUPS.kq
    last = parts.group.max()
    for span in spans[spans.what == "settle"].drop_duplicates(["cta", "warp", "block"]).itertuples():
        slot = int(parts.slot[parts.block == span.block].iloc[0])
        assert span.warp == slot % warps and span.group == parts.group[parts.block == span.block].iloc[0]
        mine = spans[(spans.cta == span.cta) & (spans.warp == span.warp)]
        pushed = mine[mine.what == "push"].set_index("group").end
        assert pushed[min(span.group + 1, last)] <= span.start
        assert (
            span.group + 2 > last
            or span.end <= mine[(mine.what == "push") & (mine.group == span.group + 2)].start.min()
        )


def test_every_warp_goes_through_the_groups_in_order(settled):
    _, parts, spans = settled
    groups = list(range(parts.group.max() + 1))
    for _, mine in spans.groupby(["cta", "warp"]):
        for what in ("wait x", "multiply", "push"):
            assert mine[mine.what == what].drop_duplicates("group").group.tolist() == groups
    assert set(spans.warp[spans.what == "stage x"]) == {0}


def test_the_state_is_told_in_words(settled):
    _, _, spans = settled
    for what in ("wait x", "multiply", "push", "settle", "wait slot"):
        span = spans[(spans.what == what) & (spans.cta == 1)].iloc[-1]
        state = cluster.settle_state(spans[spans.cta == 1], int(span.start)).set_index("warp")
        sentence = cluster.SETTLE_SENTENCES[what].format_map(span)
        assert state.doing[span.warp] == sentence and state.line[span.warp] == span.line
    begin = cluster.settle_state(spans, -1)
    assert (begin.doing == "loads weights").all()
    assert cluster.settle_state(spans, int(spans.end.max())).doing.eq("done").all()


def test_what_lands_is_what_the_barriers_expect(settled):
    table, parts, spans = settled
    landings = cluster.arrivals(table, GROUPS, GROUPS_PROBLEM)
    for (cta, kind, number), rows in landings.groupby(["cta", "kind", "number"]):
        assert (rows.bytes > 0).all() and rows.landed.iloc[-1] == rows.expected.iloc[0]
        complete = rows.time[rows.landed == rows.expected].min()
        what = {"x": "wait x", "parts": "wait slot"}[kind]
        passed = spans[(spans.cta == cta) & (spans.what == what) & (spans.number == number)].end
        assert len(passed) and (passed > complete).all(), "nobody passes before all is there"
    expected = landings[landings.kind == "x"].drop_duplicates(["cta", "group"]).groupby("group").expected.first()
    assert expected.tolist() == [8192, 8192, 8192, 4096], "of the last group only four tokens exist"
    assert (landings.expected[landings.kind == "parts"] == 2048).all()
    assert set(zip(landings.block, landings.cta, strict=True)) - {(-1, 0), (-1, 1)} == set(
        zip(parts.block, parts.owner, strict=True)
    )


def test_a_landing_is_counted_for_the_warp_that_sent_it():
    """With ks = 3 row tiles of one token tile are in different slots, pushed by one instruction at one time."""
    tactic, problem = WsGemmTactic(2, 1, 3, 0, 8, 1), GemmProblem(20, 32, 768)
    table, parts, _ = traces.of_cluster(tactic, problem, "in_order")
    landings = cluster.arrivals(table, tactic, problem)
    mine = landings[landings.kind == "parts"]
    assert mine.groupby("block").bytes.sum().to_dict() == parts.groupby("block").bytes.sum().to_dict()
