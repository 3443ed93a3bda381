"""What a trace says of a cluster: who moved how many bytes to whom, and what became of the barriers."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import kernel, run
from tests.support.clusters import BULK, PUSH, RING, launch, moved, traffic


def traced(body, ctas=8, cluster=4, threads=64, schedule="in_order", **chosen):
    trace = interpreter.Trace(**chosen)
    launch(body, ctas, cluster, threads, 16 + 4 * threads * cluster, schedule, trace=trace)
    return trace.table()


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(3)"])
def test_pushes_are_counted_per_pair_of_ctas(schedule):
    pairs = {(c, c // 4 * 4 + r, "push"): 256 for c in range(8) for r in range(4)}
    assert traffic(traced(PUSH, schedule=schedule)) == pairs


def test_pulls_go_from_the_owner_to_the_reader():
    write, read = "st.shared.b32 [%r3], %r2;", "setp.lt.u32 %p1, %r0, 40; @%p1 ld.shared::cluster.b32 %r9, [%r8];"
    table = traced(RING.format(write=write, read=read).replace("st.global.b32 [%rd10], %r9;", ""))
    assert traffic(table) == {(c // 4 * 4 + (c + 1) % 4, c, "pull"): 160 for c in range(8)}
    assert moved(table, "ld.shared::cluster") == 8 * 160 and moved(table, "st.shared") == 8 * 256
    remote = table[table.opcode.str.startswith("ld.shared::cluster")]
    assert all((row.addresses == 4 * (np.arange(32) + 32 * row.warp)).all() for row in remote.itertuples())
    assert len(interpreter.shared_accesses(table)) == 16  # the conflict table leaves the memory of others alone


def test_events_show_the_transactions_and_phases_of_every_barrier():
    table = traced(PUSH)
    armed = table[table.opcode.str.startswith("mbarrier.arrive.expect_tx")]
    assert (armed.pending_bytes == 1024).all() and len(armed) == 8
    landed = table[table.event == "land"]
    assert len(landed) == 8 * 2 * 4 and set(landed.opcode.str[:8]) == {"st.async"} and landed.phase.max() == 1
    assert set(landed.pending_bytes) == {0}  # in order, all CTAs push in step
    apart = traced(PUSH, schedule="adversarial(1)")
    left = set(apart[apart.event == "land"].pending_bytes)
    assert apart[apart.event == "land"].lanes.min() < 32  # of one instruction, some lanes' bytes land apart
    assert {0} < left <= set(range(-1024, 1024, 4))
    cluster = table[table.opcode.str.startswith("barrier.cluster.wait")]
    assert len(cluster[cluster.event == "pass"]) == 8 * 2
    assert (cluster[cluster.event == "pass"].phase == 1).all() and (cluster.barrier == -1).all()


def test_one_cta_of_a_cluster_can_be_traced_alone():
    table = traced(PUSH, opcodes=("st.async",))
    alone = interpreter.Trace("st.async", ctas=[6])
    launch(PUSH, 8, 4, 64, 16 + 4 * 64 * 4, trace=alone)
    pushes = traffic(alone.table())
    assert set(pushes) == {(6, to, "push") for to in (4, 5, 6, 7)}
    assert pushes == {ends: size for ends, size in traffic(table).items() if ends[0] == 6}


def test_every_push_is_issued_before_it_lands_and_every_wait_passes_once():
    table = traced(PUSH, schedule="adversarial(1)")
    pushes = table[table.opcode.str.startswith("st.async")]
    for (cta, warp), rows in pushes.groupby(["cta", "warp"]):
        issued, landed = (rows[rows.event == event] for event in ("execute", "land"))
        assert len(issued) == 4 and landed.lanes.sum() == issued.lanes.sum(), (cta, warp)
        before = [issued[issued.time < time].lanes.sum() for time in landed.time]
        assert (landed.lanes.cumsum() <= before).all()
    waits = table[table.opcode.str.contains("wait")]
    passed = waits[waits.event == "pass"].groupby(["cta", "warp", "line"]).size()
    assert len(passed) == 2 * 8 * 2  # of the cluster barrier and of the mbarrier; a try_wait may fail and pass again


def test_bulk_copies_have_bytes_and_sources_and_land_after_their_issue():
    text = BULK.format(total=256, size=64, to=16, at=0, space="shared::cluster", hint="", policy="")
    source, out = np.arange(128, dtype=np.uint32), np.zeros((2, 32), np.uint32)
    trace = interpreter.Trace(("cp.async", "mbarrier"))
    run(kernel(text, shared=272, cluster=2), source, out, grid=(2, 1, 1), trace=trace)
    table = trace.table()
    copies = table[table.opcode.str.startswith("cp.async.bulk") & (table.event == "execute")]
    assert (copies.bytes == 64).all() and (copies.lanes == 4).all() and copies.source.notna().all()
    assert traffic(table) == {(-1, c, "bulk"): 256 for c in range(2)}
    assert moved(table, "cp.async.bulk") == 512
    landed = table[table.event == "land"].set_index("cta")
    assert sorted(landed.index) == [0, 1] and (landed.time > copies.set_index("cta").time).all()
    for row in copies.itertuples():  # 64 bytes a lane, whole sectors one after the other
        assert (np.diff(row.source[:4]) == 64).all() and row.source[0] % 64 == 0
