"""What lands in a cluster's shared memory is counted up to what a barrier expects, never beyond; x has no conflicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.analysis import settle
from skinny_gemm.layouts import banks
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import WsGemmTactic
from tests.support import traces
from tests.support.traces import GROUPS, GROUPS_PROBLEM

SCHEDULES = ["in_order", "adversarial(1)", "adversarial(4)"]


@pytest.fixture(scope="module", params=SCHEDULES)
def settled(request):
    return traces.of_cluster(GROUPS, GROUPS_PROBLEM, request.param)


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
    table, parts, _ = traces.of_cluster(tactic, problem, "in_order")
    landings = settle.arrivals(table, tactic, problem)
    mine = landings[landings.kind == "parts"]
    assert mine.groupby("block").bytes.sum().to_dict() == parts.groupby("block").bytes.sum().to_dict()


@given(st.sampled_from([64, 96, 128, 224, 448, 512, 1024]), st.booleans(), st.integers(0, 1))
def test_the_wavefronts_of_a_load_of_x_are_the_bank_models(k_slice, padded, block):
    table = settle.x_load_table(k_slice, padded, block)
    assert table.wavefront.max() + 1 == banks.wavefronts(table.address.to_numpy(), 16)
    assert table.wavefront.max() + 1 == (8 if not padded and k_slice % 64 == 0 else 4)
    pairs = table[["wavefront", "bank"]].drop_duplicates()
    assert len(pairs) == 32, "no two lanes at the same banks in the same wavefront"
    assert (table.address // table.token.clip(lower=1) >= 2 * k_slice)[table.token > 0].all()
