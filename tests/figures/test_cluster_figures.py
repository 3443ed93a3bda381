"""The pictures of notebooks 04 and 05 are read off traces, and say of them what the layouts promise.

- bytes from CTA to CTA are those of the plan; owners share them;
- a block is settled once, by its owner, after all parts are there, and one group behind its push;
- what lands is counted up to what a barrier expects, never beyond;
- banks: the model is what the trace shows, and the kernel's layouts have no conflicts.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.explore import bank_conflicts
from skinny_gemm.figures import cluster, conflicts, gather, settle, style
from skinny_gemm.layouts import banks
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import trials
from skinny_gemm.tactics import WsGemmTactic
from tests.support.drawings import rectangles, texts

SCHEDULES = ["in_order", "adversarial(1)", "adversarial(4)"]
SINGLE, GROUPS = WsGemmTactic(2, 2, 4, 1, 0, 2), WsGemmTactic(2, 2, 2, 0, 8, 1)
SINGLE_PROBLEM, GROUPS_PROBLEM = GemmProblem(20, 64, 1024), GemmProblem(28, 64, 1024)


def read(tactic, problem, schedule):
    table = trials.traced(tactic, problem, "sm_90a", schedule, cluster.OPCODES).table
    parts = cluster.owners(problem.m, tactic.rt, tactic.kq, tactic.ks, tactic.tg)
    return table, parts, cluster.spans(table, tactic, problem)


@pytest.fixture(scope="module", params=SCHEDULES)
def gathered(request):
    return read(SINGLE, SINGLE_PROBLEM, request.param)


@pytest.fixture(scope="module", params=SCHEDULES)
def settled(request):
    return read(GROUPS, GROUPS_PROBLEM, request.param)


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
    said = texts(cluster.traffic_view({"shared": shared, "led": led}))
    assert "shared" in said and "6,144" in said
    assert "18,432 B cross between CTAs, 6,144 B stay; most into one: 24,576 B" in said


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


def test_what_lands_is_what_the_barriers_expect(settled):
    table, parts, spans = settled
    landings = settle.arrivals(table, GROUPS, GROUPS_PROBLEM)
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
    table, parts, _ = read(tactic, problem, "in_order")
    landings = settle.arrivals(table, tactic, problem)
    mine = landings[landings.kind == "parts"]
    assert mine.groupby("block").bytes.sum().to_dict() == parts.groupby("block").bytes.sum().to_dict()


def test_the_pictures_name_what_they_show(gathered, settled):
    _, parts, spans = gathered
    said = texts(gather.gather_view(parts, 3))
    assert "block 3  →  tokens 8 to 15, row tile 1  →  owner CTA 3 = 3 mod 4, slot 0  →  it adds 8 parts of 512 B, " \
        "6 of them from other CTAs" in said  # fmt: skip
    assert {"0.0", "3.1", "sum"} <= set(said)
    assert "CTA 3, warp 3" in texts(gather.gather_timeline(spans))
    table, parts, spans = settled
    landings = settle.arrivals(table, GROUPS, GROUPS_PROBLEM)
    said = set(texts(settle.settle_timeline(spans, landings, 1, time=40)))
    assert {"CTA 1, warp 0", "x of group 3, 4,096 B", "slot 3: block 7, 2,048 B"} <= said
    narrow = texts(settle.settle_timeline(spans, landings, 1, time=40, window=(20, 60)))
    assert "30" in narrow and "200" not in narrow
    view = settle.owner_view(parts, 4, cta=1)
    assert {"5: CTA 1", "block 5", "slot 2, w 2"} <= set(texts(view))
    assert sum(rectangles(view, color) for color in style.BANK_GROUPS) == 8 + 8 + 4


def test_the_state_is_told_in_words(settled):
    _, _, spans = settled
    for what in ("wait x", "multiply", "push", "settle", "wait slot"):
        span = spans[(spans.what == what) & (spans.cta == 1)].iloc[-1]
        state = cluster.state(spans[spans.cta == 1], int(span.start), settle.span_sentence).set_index("warp")
        assert state.doing[span.warp] == settle.span_sentence(span) and state.line[span.warp] == span.line
    begin = cluster.state(spans, -1, settle.span_sentence)
    assert (begin.doing == "loads weights").all()
    assert cluster.state(spans, int(spans.end.max()), settle.span_sentence).doing.eq("done").all()


def test_every_span_of_a_gather_has_a_sentence(gathered):
    for span in gathered[2].drop_duplicates("what").itertuples():
        assert gather.span_sentence(span)


@given(st.sampled_from([64, 96, 128, 224, 448, 512, 1024]), st.booleans(), st.integers(0, 1))
def test_the_wavefronts_of_a_load_of_x_are_the_bank_models(k_slice, padded, block):
    table = settle.x_load_table(k_slice, padded, block)
    assert table.wavefront.max() + 1 == banks.wavefronts(table.address.to_numpy(), 16)
    assert table.wavefront.max() + 1 == (8 if not padded and k_slice % 64 == 0 else 4)
    pairs = table[["wavefront", "bank"]].drop_duplicates()
    assert len(pairs) == 32, "no two lanes at the same banks in the same wavefront"
    assert (table.address // table.token.clip(lower=1) >= 2 * k_slice)[table.token > 0].all()


def test_the_picture_of_the_pitch():
    said = texts(settle.x_bank_view(512))
    assert "rows end to end, 1,024 B apart: 8 wavefronts" in said
    assert "as in the kernel, 1,088 B apart: 4 wavefronts" in said


@pytest.mark.parametrize("text", ["2,2,4,2,0,2", "2,2,2,2,8,1", "1,2,1,1,0,2"])
def test_the_bank_model_is_what_the_kernel_does(text):
    tactic = WsGemmTactic.parse(text)
    fig, data, facts = bank_conflicts.conflicts(tactic, SINGLE_PROBLEM)
    by = {source: rows.set_index("access") for source, rows in data.groupby("source")}
    traced, shipped = by[conflicts.TRACED], by[conflicts.SHIPPED]
    assert set(traced.index) == set(shipped.index) and len(traced) == (7 if tactic.tg else 6)
    assert (traced.wavefronts == shipped.wavefronts[traced.index]).all() and (traced.wavefronts == traced.ideal).all()
    assert by[conflicts.PLAIN].wavefronts["red, ld"] == 4
    assert np.isin(["red, ld", "stages, cp.async"], texts(fig)).all() and facts["kernel"] == "ws-gemm"
