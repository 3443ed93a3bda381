"""What a trace says of a cluster: who moved how many bytes to whom, and what became of the barriers."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import kernel, run
from tests.interpreter.test_clusters import BULK, PUSH, RING, launch


def traced(body, ctas=8, cluster=4, threads=64, schedule="in_order", **chosen):
    trace = interpreter.Trace(**chosen)
    launch(body, ctas, cluster, threads, 16 + 4 * threads * cluster, schedule, trace=trace)
    return trace.table()


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(3)"])
def test_pushes_are_counted_per_pair_of_ctas(schedule):
    traffic = interpreter.dsmem_traffic(traced(PUSH, schedule=schedule))
    pairs = {(c, c // 4 * 4 + r): 256 for c in range(8) for r in range(4)}
    assert set(traffic.kind) == {"push"}
    assert {(r.source, r.destination): r.bytes for r in traffic.itertuples()} == pairs


def test_pulls_go_from_the_owner_to_the_reader():
    write, read = "st.shared.b32 [%r3], %r2;", "setp.lt.u32 %p1, %r0, 40; @%p1 ld.shared::cluster.b32 %r9, [%r8];"
    table = traced(RING.format(write=write, read=read).replace("st.global.b32 [%rd10], %r9;", ""))
    traffic = interpreter.dsmem_traffic(table)
    assert set(traffic.kind) == {"pull"} and (traffic.bytes == 160).all()
    assert set(zip(traffic.source, traffic.destination, strict=True)) == {
        (c // 4 * 4 + (c + 1) % 4, c) for c in range(8)
    }
    moved = interpreter.bytes_by_space(table)
    assert moved["dsmem read"] == 8 * 160 and moved["shared write"] == 8 * 256 and "dsmem write" not in moved
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
    mine, all_of_it = interpreter.dsmem_traffic(alone.table()), interpreter.dsmem_traffic(table)
    assert set(mine.source) == {6} and set(mine.destination) == {4, 5, 6, 7}
    assert (mine.bytes.to_numpy() == all_of_it[all_of_it.source == 6].bytes.to_numpy()).all()


def test_the_timeline_spans_pushes_and_cluster_waits():
    spans = interpreter.timeline(traced(PUSH, schedule="adversarial(1)"))
    counts = spans.groupby(["what"]).size()
    assert counts["wait"] >= 2 * 8 * 2 and counts["push"] >= 8 * 2 * 4
    assert (spans.start <= spans.end).all()
    pushes = interpreter.timeline(traced(PUSH))
    pushes = pushes[pushes.what == "push"]
    assert (pushes.groupby(["cta", "warp"]).start.nunique() == 4).all()  # each lands with the issue that it began with


def test_bulk_copies_have_bytes_sources_and_spans():
    text = BULK.format(total=256, size=64, to=16, at=0, space="shared::cluster", hint="", policy="")
    source, out = np.arange(128, dtype=np.uint32), np.zeros((2, 32), np.uint32)
    trace = interpreter.Trace(("cp.async", "mbarrier"))
    run(kernel(text, shared=272, cluster=2), source, out, grid=(2, 1, 1), trace=trace)
    table = trace.table()
    copies = table[table.opcode.str.startswith("cp.async.bulk") & (table.event == "execute")]
    assert (copies.bytes == 64).all() and (copies.lanes == 4).all() and copies.source.notna().all()
    traffic = interpreter.dsmem_traffic(table)
    assert traffic.to_dict("records") == [
        {"source": -1, "destination": c, "kind": "bulk", "bytes": 256} for c in range(2)
    ]
    assert interpreter.bytes_by_space(table)["global read"] == 512
    spans = interpreter.timeline(table)
    assert (spans[spans.what == "copy"].groupby("cta").size() == 1).all()
    assert (spans[spans.what == "copy"].end > spans[spans.what == "copy"].start).all()
    assert (interpreter.global_accesses(table).sectors == 8).all()
