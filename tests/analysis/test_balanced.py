"""Balanced split-K, cut and traced: SMs share the rows, warps share nothing until they add, sums reach their owners.

- a cut covers N once; balanced tiles differ by at most one row, and what idles is what the busiest SM has to do more;
- a warp goes through its turns in order, in the stage of each, which it multiplies when its copies are there and fills
  when it has been read; x is loaded or copied after the previous grid, the first weights may be in registers before;
- no warp waits for another one until it has left its sums: under some schedule one is done before another begins;
- a fragment is pushed once by each CTA, behind the cluster barrier, and finished by its owner when all of it is there;
- the kernel with `wgmma` copies each chunk of a stage where the table says and by that thread, its descriptors lead
  there, and each result is one thread's, in the fragment in which that warp stores it.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.analysis import balanced, cluster
from skinny_gemm.layouts import descriptors, wgmma_splitk
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime.trials import traced
from skinny_gemm.tactics import WgmmaSplitKTactic
from skinny_gemm.tactics.balanced_splitk import MOST_ROWS, RING
from skinny_gemm.tactics.base import LAST
from tests.support import traces
from tests.support.traces import SCATTER, SCATTER_PROBLEM, WARPS, WARPS_PROBLEM

SCHEDULES = ["in_order", "adversarial(1)", "adversarial(2)"]
TURNS = WARPS.turns(WARPS_PROBLEM)
RINGS = {
    "refilled": WARPS,
    "x in the ring": replace(WARPS, x_ring=RING, stages=3, trigger=LAST),
    "first weights held": replace(WARPS, stages=TURNS, trigger=LAST),
    "both": replace(WARPS, stages=TURNS, x_ring=RING),
}


@given(st.integers(1, 2500).map(lambda n: 8 * n), st.integers(1, 160), st.sampled_from([16, 32, 64]))
def test_a_cut_covers_every_row_once(n, sms, tile):
    table = balanced.cuts(n, sms, tile)
    for cut, ctas in table.groupby("cut"):
        assert ctas["first"].tolist() == [0, *ctas.rows.cumsum()][:-1] and ctas.rows.sum() == n
        assert (ctas.cta == ctas.sm + sms * ctas.wave).all()
        if cut == balanced.EQUAL:
            assert (ctas.rows.iloc[:-1] == tile).all()
        else:
            assert ctas.rows.max() - ctas.rows.min() <= 1 and 1 <= ctas.rows.min() <= ctas.rows.max() <= MOST_ROWS
            assert len(ctas) % sms == 0 or len(ctas) == n
    found = balanced.shares(table, sms)
    assert (found.most * sms * (1 - found.idle)).round(6).tolist() == [n, n]


def test_what_idles_is_what_the_busiest_sm_has_to_do_more():
    def shares(n, sms=132, tile=32):
        return balanced.shares(balanced.cuts(n, sms, tile), sms).itertuples(index=False, name=None)

    equal, even = shares(4608)
    assert equal == (144, 2, 32, 32, 32, 64, pytest.approx(1 - 4608 / 132 / 64))
    assert even == (132, 1, 34, 35, 34, 35, pytest.approx(1 - 4608 / 132 / 35))
    equal, even = shares(4224)
    assert equal == even == (132, 1, 32, 32, 32, 32, 0)
    equal, _ = shares(4608, 148)
    assert equal[1] == 1 and equal[4] == 0, "four SMs have none"


@pytest.fixture(scope="module", params=[(name, schedule) for name in RINGS for schedule in SCHEDULES], ids=str)
def ring(request):
    """(tactic, what the warps of its first CTA did)."""
    name, schedule = request.param
    return RINGS[name], traces.of_warps(RINGS[name], WARPS_PROBLEM, schedule)[1]


def test_a_warp_goes_through_its_turns_in_the_stage_of_each(ring):
    tactic, spans = ring
    turns = list(range(TURNS))
    for _, mine in spans.groupby("warp"):
        issued, waited, read = (mine[mine.what == what] for what in ("copy", "wait copies", "multiply"))
        assert issued.number.tolist() == read.number.tolist() == turns
        assert waited.number.drop_duplicates().tolist() == turns
        of_turns = mine[mine.number.ge(0) & (mine.what != "finish")]
        assert (of_turns.stage == of_turns.number % tactic.stages).all()
    assert sorted(set(spans.number[spans.what == "finish"])) == [0], "15 rows of 8 tokens"


def test_a_turn_is_multiplied_when_its_copies_are_there_and_its_stage_filled_when_it_was_read(ring):
    tactic, spans = ring
    for (_, turn), mine in spans[spans.what != "finish"].groupby(["warp", "number"]):
        if turn < 0:
            continue
        (read,) = mine[mine.what == "multiply"].itertuples()
        assert mine.end[mine.what == "wait copies"].max() == read.start
        assert mine.end[mine.what.isin(["copy", "copy x"])].max() <= mine.start[mine.what == "wait copies"].max()
        refilled = spans[(spans.warp == read.warp) & (spans.what == "copy") & (spans.number == turn + tactic.stages)]
        met = mine.end[mine.what == "wait lanes"]
        assert all(read.end <= met.min() and met.min() <= start for start in refilled.start)


def test_only_x_waits_for_the_previous_grid(ring):
    tactic, spans = ring
    held = tactic.held_blocks(WARPS_PROBLEM) > 0
    for _, mine in spans.groupby("warp"):
        (free,) = mine[mine.what == "wait grid"].itertuples()
        early = mine[mine.end <= free.start]
        assert early.number[early.what == "copy"].tolist() == list(range(tactic.stages))
        assert ("hold" in set(early.what)) == ("hold" in set(mine.what)) == held
        comes = mine[mine.what == ("copy x" if tactic.x_ring else "load x")]
        assert comes.start.min() >= free.end
        assert comes.number.tolist() == (list(range(TURNS)) if tactic.x_ring else [-1])
        (fired,) = mine[mine.what == "trigger"].itertuples()
        last_copy = mine.end[mine.what.isin(["copy", "copy x"])].max()
        assert fired.start >= max(last_copy, free.end) if tactic.trigger == LAST else fired.end <= early.end.min()


def test_no_warp_waits_for_another_before_it_has_left_its_sums(ring):
    tactic, spans = ring
    for _, mine in spans.groupby("warp"):
        done = mine.start[mine.what == "store"].min()
        waits = mine[(mine.end <= done) & mine.what.isin(balanced.WAITS)]
        assert set(waits.what) <= {"wait grid", "wait copies", "wait lanes"}
        assert (waits.end - waits.start <= 2).all(), "an instruction or two that pass at once"
    assert spans.end[spans.what == "store"].max() <= spans.end[spans.what == "wait CTA"].min()


@pytest.mark.parametrize("name", RINGS)
def test_under_some_schedule_a_warp_is_done_before_another_begins(name):
    apart = [balanced.turns_apart(traces.of_warps(RINGS[name], WARPS_PROBLEM, schedule)[1]) for schedule in SCHEDULES]
    assert apart[0][0] == 0 and max(turns for turns, _, _ in apart) == TURNS
    for turns, ahead, behind in apart[1:]:
        assert turns == 0 or ahead != behind


def test_copies_fly_until_the_wait_that_needs_them(ring):
    _, spans = ring
    flying = balanced.flights(spans)
    assert len(flying) == WARPS.warps * TURNS
    for flight in flying.itertuples():
        mine = spans[(spans.warp == flight.warp) & (spans.number == flight.number)]
        assert flight.start == mine.start[mine.what == "copy"].min()
        assert flight.end in set(mine.end[mine.what == "wait copies"])
        assert flight.end > mine.end[mine.what.isin(["copy", "copy x"])].max()
        assert flight.end <= mine.start[mine.what == "multiply"].min()


def test_the_state_is_told_in_words():
    _, spans = traces.of_warps(WARPS, WARPS_PROBLEM, "adversarial(1)")
    second = spans[(spans.what == "multiply") & (spans.number == 1)].iloc[0]
    state = balanced.warp_state(spans, int(second.start)).set_index("warp")
    assert state.doing[second.warp] == "multiplies turn 1 in stage 1" and state.line[second.warp] == second.line
    assert state["in flight"][second.warp] == "turn 2"
    assert (balanced.warp_state(spans, -1).doing == "computes its addresses").all()
    assert balanced.warp_state(spans, int(spans.end.max())).doing.eq("done").all()
    assert {*balanced.WAITS, *spans.what} <= set(balanced.SENTENCES)


@pytest.fixture(scope="module", params=SCHEDULES)
def scattered(request):
    table, spans = traces.of_warps(SCATTER, SCATTER_PROBLEM, request.param)
    return table, spans, balanced.owners(SCATTER, SCATTER_PROBLEM)


def test_a_fragment_is_pushed_by_each_cta_and_finished_by_its_owner(scattered):
    _, spans, parts = scattered
    done = {what: {*zip(s.cta, s.warp, s.number, strict=True)} for what, s in spans.groupby("what")}
    each = parts.drop_duplicates("fragment")
    assert done["push"] == {(cta, f % SCATTER.warps, f) for cta in range(SCATTER.cluster) for f in each.fragment}
    assert done["finish"] == {(r.owner, r.slot % SCATTER.warps, r.fragment) for r in each.itertuples()}
    assert len(each) == 6 and each.owner.tolist() == [0, 1, 2, 3, 0, 1] and each.slot.tolist() == [0, 0, 0, 0, 1, 1]


def test_a_warp_arrives_at_the_cluster_barrier_first_and_waits_there_right_before_it_pushes(scattered):
    _, spans, _ = scattered
    for _, mine in spans.groupby(["cta", "warp"]):
        (arrived,), (waited,) = (mine[mine.what == what].itertuples() for what in ("arrive", "wait cluster"))
        assert arrived.end <= mine.start[mine.what == "copy"].min()
        assert mine.what.loc[waited.Index - 1] == "wait CTA" and mine.what.loc[waited.Index + 1] == "push"
    assert spans.end[spans.what == "arrive"].max() <= spans.end[spans.what == "wait cluster"].min()
    assert spans.end[spans.what == "arm"].max() <= spans.start[spans.what == "push"].min()


def test_what_lands_is_what_the_owner_expects_and_waits_for(scattered):
    table, spans, parts = scattered
    landings = balanced.arrivals(table, SCATTER, SCATTER_PROBLEM)
    sums = landings.groupby(["cta", "fragment", "source"]).bytes.sum()
    assert (sums == 512).all() and len(sums) == 6 * SCATTER.cluster
    for cta, rows in landings.groupby("cta"):
        assert rows.landed.iloc[-1] == rows.expected.iloc[0] == 512 * SCATTER.cluster * (2 if cta < 2 else 1)
        complete = rows.time.iloc[-1]
        assert (spans.end[(spans.cta == cta) & (spans.what == "wait sums")] > complete).all()
    moved = cluster.traffic(table, SCATTER.cluster)
    planned = cluster.planned_traffic(parts[parts.warp == 0], SCATTER.cluster)
    assert moved.equals(planned.astype(moved.dtypes)) and moved.bytes.sum() == 512 * 6 * SCATTER.cluster


def test_a_fragment_is_told_in_words():
    first, second = balanced.fragment_sentences(balanced.owners(SCATTER, SCATTER_PROBLEM), 5)
    assert first == "fragment 5  →  rows 32 to 47 of the tile, tokens 8 to 15  →  owner CTA 1 = 5 mod 4, slot 1"
    assert second.startswith("in each CTA warp 1 adds the sums of 2 warps")
    assert second.endswith("to the owner, whose warp 1 adds those of 4 CTAs")


STAGES = [(24, 40), (24, 44), (64, 3), (48, 17), (32, 129)]  #: token tile, rows


def of_stage(table):
    """{(x or weights, index, chunk): (address, thread)} of what is copied."""
    copied = table[table.what != balanced.PAST]
    return {
        (r.what, r.index_, r.chunk): (r.address, r.thread)
        for r in copied.rename(columns={"index": "index_"}).itertuples()
    }


def test_the_kernel_copies_each_chunk_where_the_table_says_and_by_that_thread():
    problem, tokens, rows = GemmProblem(24, 44, 128), 24, 44
    tactic = WgmmaSplitKTactic(1, 1, 1, 64, 2, tokens)
    run = traced(tactic, problem, "sm_90a", "in_order", ("cp.async", "st.shared")).table
    of_weights = run[run.opcode.str.contains("cache_hint")]
    of_x = run[run.opcode.str.fullmatch("cp.async.cg.shared.global")]
    found = {}
    for what, copies in ((balanced.WEIGHTS, of_weights), (balanced.TOKENS, of_x)):
        start = min(min(r.source) for r in copies.itertuples())
        for r in copies.itertuples():
            lanes = np.flatnonzero([r.active >> lane & 1 for lane in range(32)])
            for lane, to, source in zip(lanes, r.addresses, r.source, strict=True):
                row, byte = divmod(source - start, 2 * problem.k)
                if byte < 128:  # of the first turn, which is in the first stage
                    found[what, row, byte // 16] = (to, 32 * r.warp + lane)
    assert found == of_stage(balanced.stage_chunks(rows, tokens)) and len(found) == 8 * (tokens + rows)
    sums = balanced.wgmma_sums(rows, tokens)
    stored = {(r.warp, a // 512) for r in run[run.opcode.str.startswith("st.shared")].itertuples() for a in r.addresses}
    assert stored == {*zip(sums.thread // 32, sums.fragment, strict=True)} - {(2, -1), (3, -1)}


@pytest.mark.parametrize(("tokens", "rows"), STAGES)
def test_descriptors_lead_to_the_chunks_of_the_table(tokens, rows):
    table = balanced.stage_chunks(rows, tokens)
    assert len({*table.address}) == len(table) and {*table.address} == {*range(0, 16 * len(table), 16)}
    for operand, first in (("a", 0), ("b", tokens)):
        read = table[table[operand] >= 0]
        step, half = np.divmod(read.chunk, balanced.STEP_CHUNKS)
        words = wgmma_splitk.descriptor(wgmma_splitk.ATOM_ROW_BYTES * first + 32 * step.to_numpy())
        told = descriptors.decoded(words)
        width = np.array(descriptors.WIDTHS)[told.mode]
        at = descriptors.chunk_address(read[operand].to_numpy(), half.to_numpy(), told.start, 16, told.stride, width)
        assert at.tolist() == read.address.tolist()
    assert (
        len(table[table.a >= 0]) == 8 * 64 and (table.b.max() + 1) % 8 == 0 and (table.a[table.what == "x"] >= 0).all()
    )


@pytest.mark.parametrize(("tokens", "rows"), STAGES)
def test_every_result_is_one_threads_in_the_fragment_that_its_warp_stores(tokens, rows):
    sums = balanced.wgmma_sums(rows, tokens)
    assert not sums.duplicated(["a", "b"]).any() and len(sums) == 64 * wgmma_splitk.whole_rows(rows)
    results = sums[sums.result]
    assert len(results) == tokens * rows and results.a.max() == tokens - 1 and results.b.max() == rows - 1
    assert (results.a // 16 == results.thread // 32).all() and (results.fragment >= 0).all()
    for r in results.sample(50, random_state=0).itertuples():
        places = [wgmma_splitk.sum_element(r.fragment, r.thread % 32, word, tokens) for word in range(4)]
        assert (r.b, r.a) in places
    assert sums.fragment.max() + 1 == wgmma_splitk.fragments(rows, tokens)


def test_a_stage_of_wgmma_is_told_in_words():
    chunks, sums = balanced.stage_chunks(44, 24), balanced.wgmma_sums(44, 24)
    row, step, thread = balanced.stage_sentences(chunks, sums, 27, 1, 37)
    assert row == "row 27 of the stage  →  row 3 of the tile  →  row 27 of A (its sums are dropped) and row 3 of B"
    assert step == "its k16 1  →  chunk 2 at place 1, chunk 3 at place 0 of 128 bytes: XOR 3, the row mod 8"
    assert thread.startswith("thread 37  →  copies chunk 5 of rows 4, 20, 28, 44, 60  →  lane 5 of warp 1 ")
    assert thread.endswith("has 12 sums of token 17"), "token 25 is none of 24"
    row, _, thread = balanced.stage_sentences(chunks, sums, 70, 0, 127)
    assert row == "row 70 of the stage  →  past the tile, never copied  →  row 46 of B"
    assert thread.endswith("lane 31 of warp 3 has no result")
    assert balanced.stage_sentences(chunks, sums, 5, 0, 0)[0] == "row 5 of the stage  →  token 5  →  row 5 of A"
