"""Clusters: ranks, cluster barriers, the shared memory of other CTAs, transfers and the barriers they complete at."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from skinny_gemm.interpreter import launch as machine_launch
from tests.interpreter.programs import kernel, run
from tests.support.clusters import BULK, PUSH, RING, SYNC, launch, pushed

SCHEDULES = ["in_order", *(f"adversarial({s})" for s in range(8))]


def test_special_registers_of_a_cluster():
    names = ("cluster_ctarank", "cluster_nctarank", "clusterid.x", "nclusterid.x",
             "cluster_ctaid.x", "cluster_nctaid.x", "warpid", "nctaid.x", "clusterid.y",
             "cluster_ctaid.y", "cluster_nctaid.y")  # fmt: skip
    wants = (lambda c: c % 4, lambda c: 4, lambda c: c // 4, lambda c: 3, lambda c: c % 4, lambda c: 4,
             lambda c: np.arange(64) // 32, lambda c: 12, lambda c: 0, lambda c: 0, lambda c: 1)  # fmt: skip
    for name, want in zip(names, wants, strict=True):
        for schedule in ("in_order", "adversarial(0)"):
            out = launch(f"mov.u32 %r9, %{name}; st.global.b32 [%rd10], %r9;", 12, 4, 64, schedule=schedule)
            assert (out == np.stack([np.broadcast_to(want(c), 64) for c in range(12)])).all(), name


def test_a_grid_consists_of_whole_clusters():
    with pytest.raises(ValueError, match="6 CTAs along x, which is no multiple of the cluster's 4"):
        launch("", 6, 4)
    with pytest.raises(ValueError, match=r"cluster \(17, 1, 1\) must be \(x, 1, 1\) with x from 1 to 16"):
        launch("", 17, 17)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("ctas", "cluster"), [(12, 4), (16, 16), (3, 1)])
def test_every_cta_reads_and_writes_its_neighbours_shared_memory(schedule, ctas, cluster):
    c = np.arange(ctas)
    thread = np.arange(ctas * 64).reshape(ctas, 64)
    pulled = launch(RING.format(write="st.shared.b32 [%r3], %r2;", read="ld.shared::cluster.b32 %r9, [%r8];"),
                    ctas, cluster, 64, schedule=schedule, races=True)  # fmt: skip
    assert (pulled == thread[c // cluster * cluster + (c + 1) % cluster]).all()
    pushed = launch(
        RING.format(write="", read=f"st.shared::cluster.b32 [%r8], %r2; {SYNC} ld.shared.b32 %r9, [%r3];"),
        ctas, cluster, 64, schedule=schedule, races=True,
    )  # fmt: skip
    assert (pushed == thread[c // cluster * cluster + (c - 1) % cluster]).all()


def test_vectors_cross_the_cluster_and_the_own_rank_is_the_own_memory():
    body = f"""mad.lo.u32 %r3, %r0, 12, %r3; add.u32 %r6, %r2, 1; add.u32 %r7, %r2, 2; add.u32 %r8, %r2, 3;
        mapa.shared::cluster.u32 %r20, %r3, %r1; st.shared::cluster.v4.b32 [%r20], {{%r2, %r6, %r7, %r8}};
        ld.shared.b32 %r9, [%r20+4]; {SYNC} mapa.u32 %r21, %r3, 2;
        ld.shared::cluster.v2.f32 {{%f1, %f2}}, [%r21+8]; {SYNC} mov.b32 %r10, %f2;
        shl.b32 %r10, %r10, 16; add.u32 %r9, %r9, %r10; st.global.b32 [%rd10], %r9;"""
    lane = np.arange(32, dtype=np.uint32)
    want = np.stack([32 * c + lane + 1 + (64 + lane + 3 << 16) for c in range(4)])
    assert (launch(body, races=True) == want).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_cluster_barrier_needs_all_threads_but_those_that_have_exited(schedule):
    """Warp 1 and the whole of CTA 3 leave early; the others pass two barriers all the same."""
    body = f"""setp.ge.u32 %p1, %r0, 32; @%p1 ret; setp.eq.u32 %p2, %r1, 3; @%p2 ret;
        st.shared.b32 [%r3], %r2; {SYNC} setp.eq.u32 %p3, %r1, 2; add.u32 %r6, %r1, 1; selp.b32 %r6, 0, %r6, %p3;
        mapa.shared::cluster.u32 %r8, %r3, %r6; ld.shared::cluster.b32 %r9, [%r8]; {SYNC} st.global.b32 [%rd10], %r9;"""
    out = launch(body, 8, 4, 64, schedule=schedule)
    thread = np.arange(8 * 64).reshape(8, 64)
    for c in range(8):
        want = thread[c // 4 * 4 + (c + 1) % 4 % 3, :32] if c % 4 < 3 else np.zeros(32)
        assert (out[c, :32] == want).all() and not out[c, 32:].any()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_thread_that_arrives_and_exits_counts_once_per_phase(schedule):
    """Warp 1 leaves after its first arrival; the others pass two barriers, and read between them."""
    body = f"""st.shared.b32 [%r3], %r2; setp.lt.u32 %p1, %r0, 32; @%p1 bra STAY; barrier.cluster.arrive; ret;
        STAY: {SYNC} add.u32 %r6, %r1, 1; and.b32 %r6, %r6, 3; mapa.shared::cluster.u32 %r8, %r3, %r6;
        ld.shared::cluster.b32 %r9, [%r8+128]; {SYNC} st.global.b32 [%rd10], %r9;"""
    out = launch(body, 8, 4, 64, schedule=schedule, races=True)
    c = np.arange(8)
    assert (out[:, :32] == np.arange(8 * 64).reshape(8, 64)[c // 4 * 4 + (c + 1) % 4, 32:]).all()


def test_chunks_keep_clusters_whole(monkeypatch):
    monkeypatch.setattr(machine_launch, "CHUNK_ROWS", 6)  # with twins, less than one cluster
    for schedule in SCHEDULES[:3]:
        out = launch(RING.format(write="st.shared.b32 [%r3], %r2;", read="ld.shared::cluster.b32 %r9, [%r8];"),
                     12, 4, 64, schedule=schedule)  # fmt: skip
        c = np.arange(12)
        assert (out == np.arange(12 * 64).reshape(12, 64)[c // 4 * 4 + (c + 1) % 4]).all()


ERRORS = {
    "arrives twice": ("barrier.cluster.arrive; barrier.cluster.arrive;", "BarrierError",
                      r"A thread arrives twice at the cluster barrier without a wait in between: .*PTX line"),
    "waits alone": ("barrier.cluster.wait;", "BarrierError", "waits at the cluster barrier without having arrived"),
    "divergent aligned arrival": ("setp.eq.u32 %p1, %r0, 5; @%p1 barrier.cluster.arrive.aligned;", "DivergenceError",
                                  "Lanes of one warp are apart at '@%p1 barrier.cluster.arrive.aligned'"),
    "divergent wait": (f"setp.eq.u32 %p1, %r0, 5; @%p1 bra SKIP; {SYNC} SKIP:", "DivergenceError", "part in front of"),
    "outside the cluster": ("mapa.shared::cluster.u32 %r6, %r3, 4; ld.shared::cluster.b32 %r7, [%r6];",
                            "MemoryAccessError", r"Shared address 0 of CTA rank 4, outside the cluster: 'ld\.shared::"
                            r"cluster.* CTA \(0, 0, 0\), warp 0, lane 0"),
    "out of bounds": (f"{SYNC} add.u32 %r3, %r3, 904; mapa.shared::cluster.u32 %r6, %r3, 1; "
                      "ld.shared::cluster.b32 %r7, [%r6];", "MemoryAccessError",
                      r"Shared address 1024 .* lies 4 bytes past the CTA's 1024 bytes .* lane 30"),
    "misaligned": (f"{SYNC} mapa.shared::cluster.u32 %r6, %r3, 1; st.shared::cluster.v2.b32 [%r6], {{%r1, %r1}};",
                   "MemoryAccessError", "Shared address 4 .* is not aligned to 8 bytes"),
    "exited": (f"""{SYNC} setp.ne.u32 %p1, %r1, 0; @%p1 ret; mapa.shared::cluster.u32 %r6, %r3, 2;
               ld.shared::cluster.b32 %r7, [%r6]; st.global.b32 [%rd10], %r1;""", "MemoryAccessError",
               r"Shared address 0 of CTA rank 2, which has exited: .* CTA \(0, 0, 0\), warp 0, lane 0"),
    "st.async without a cluster": ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r3], %r1, [%r3];",
                                   "ClusterError", "st.async in a launch without a cluster is an illegal instruction"),
    "uninitialised remote barrier": (f"""{SYNC} mapa.shared::cluster.u32 %r6, %r3, 1;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];""", "MemoryAccessError", "aligned to 8"),
    "uninitialised": (f"""{SYNC} mov.b32 %r5, smem; mapa.shared::cluster.u32 %r6, %r5, 1;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];""", "BarrierError",
                      "No mbarrier has been initialised at shared address 0"),
    "initialised elsewhere": (f"""setp.eq.u32 %p1, %r1, 0; mov.b32 %r5, smem;
        @%p1 mbarrier.init.shared::cta.b64 [%r5], 1; {SYNC} mapa.shared::cluster.u32 %r6, %r5, 1;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r6+64], %r1, [%r6];""", "BarrierError",
                              "No mbarrier has been initialised at shared address 0"),
    "two CTAs": (f"""mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5], 1;
        {SYNC} mapa.shared::cluster.u32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r5, 2;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r6+64], %r1, [%r7];""", "BarrierError",
                 "Data and mbarrier lie in different CTAs"),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_what_a_cluster_does_wrong_is_named(case):
    body, kind, message = ERRORS[case]
    cluster = 1 if "without a cluster" in case else 4
    with pytest.raises(getattr(interpreter, kind), match=message):
        launch(body, cluster=cluster)


def test_a_cta_that_has_not_started_is_out_of_bounds():
    """Some schedule runs a CTA far ahead of its peer; in order all start at once."""
    body = "mapa.shared::cluster.u32 %r6, %r3, 1; setp.eq.u32 %p1, %r1, 0; @%p1 st.shared::cluster.b32 [%r6], %r1;"
    seen = []
    for seed in range(12):
        try:
            launch(body, schedule=f"adversarial({seed})")
        except interpreter.MemoryAccessError as error:
            seen.append(str(error))
    assert any("of CTA rank 1, which has not started" in message for message in seen)


def test_a_deadlock_at_the_cluster_barrier_names_the_absent_ctas():
    body = f"""mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5], 1; bar.sync 0;
        setp.ne.u32 %p2, %r1, 2; @%p2 bra REST; {SYNC} bra END;
        REST: setp.ne.u32 %p3, %r1, 1; @%p3 bra ALL;
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 48;
        W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r5], 0; @!%p4 bra W; ALL: {SYNC} END:"""
    with pytest.raises(interpreter.DeadlockError) as error:
        launch(body)
    message = str(error.value)
    assert "the cluster barrier: 0 phases are complete, 32 of 128 threads are missing (of CTA ranks [1])" in message
    assert "0 phases are complete, 0 of 1 arrivals are pending and 48 bytes" in message


# One pass of a reduction: rank r pushes a word per thread to every owner, which sums what has come.


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("ctas", "cluster", "threads"), [(8, 4, 64), (16, 16, 32)])
def test_pushes_arrive_once_each_and_complete_their_barrier(schedule, ctas, cluster, threads):
    shared = 16 + 4 * threads * cluster
    out = launch(PUSH, ctas, cluster, threads, shared, schedule, races=True)
    assert (out == pushed(ctas, cluster, threads)).all()


def test_vector_and_wide_pushes():
    body = f"""mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5], 1; {SYNC}
        @%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r5], 768;
        @%p1 mbarrier.arrive.shared::cta.b64 _, [%r5];
        xor.b32 %r6, %r1, 1; mad.lo.u32 %r7, %r0, 16, %r5; mapa.shared::cluster.u32 %r8, %r7, %r6;
        mapa.shared::cluster.u32 %r9, %r5, %r6; add.u32 %r10, %r2, 1000; cvt.u64.u32 %rd2, %r2; mov.b32 %f1, %r2;
        mov.b32 %f2, %r10;
        st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%r8+16], {{%f1, %f2, %f1, %f2}}, [%r9];
        mad.lo.u32 %r7, %r0, 8, %r5; mapa.shared::cluster.u32 %r8, %r7, %r6;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r8+528], %rd2, [%r9];
        W: mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W;
        mad.lo.u32 %r7, %r0, 16, %r5; ld.shared.v4.b32 {{%r11, %r12, %r13, %r14}}, [%r7+16]; sub.u32 %r12, %r12, %r11;
        mad.lo.u32 %r7, %r0, 8, %r5; ld.shared.b64 %rd3, [%r7+528]; cvt.u32.u64 %r15, %rd3; shl.b32 %r15, %r15, 16;
        add.u32 %r12, %r12, %r15; {SYNC} st.global.b32 [%rd10], %r12;"""
    out = launch(body, races=True)
    lane = np.arange(32)
    assert (out == np.stack([1000 + (32 * (c ^ 1) + lane << 16) for c in range(4)])).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_remote_arrivals_free_a_stage(schedule):
    """Rank 0 waits for one arrival of every thread of every CTA."""
    body = f"""mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5], 128; {SYNC}
        mapa.shared::cluster.u32 %r6, %r5, 0; mapa.shared::cluster.u32 %r7, %r3, 0; mad.lo.u32 %r7, %r1, 128, %r7;
        st.shared::cluster.b32 [%r7+16], %r2; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
        setp.ne.u32 %p2, %r1, 0; @%p2 ret;
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W;
        ld.shared.b32 %r8, [%r3+16]; ld.shared.b32 %r9, [%r3+400]; add.u32 %r8, %r8, %r9; st.global.b32 [%rd10], %r8;"""
    out = launch(body, schedule=schedule, races=True)
    assert (out[0] == 2 * np.arange(32) + 96).all() and not out[1:].any()


def bulk(schedule="in_order", total=256, size=64, to=16, at=0, space="shared::cluster", hint=False, cluster=2, n=128):
    text = BULK.format(total=total, size=size, to=to, at=at, space=space, hint=".L2::cache_hint" * hint,
                       policy=", %rd9" * hint)  # fmt: skip
    source, out = np.arange(n, dtype=np.uint32) * 1000, np.zeros((2, 32), np.uint32)
    program = kernel(text, shared=272, cluster=cluster)
    run(program, source, out, grid=(2, 1, 1), schedule=schedule, races=True)
    return source, out


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bulk_copies_land_at_their_barrier(schedule):
    for space, hint, cluster in (("shared::cluster", False, 2), ("shared::cta", True, 1), ("shared::cluster", True, 1)):
        source, out = bulk(schedule, space=space, hint=hint, cluster=cluster)
        assert (out == source.reshape(2, 2, 32).sum(axis=1)).all()


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"size": 24}, "MemoryAccessError", r"bulk copy moves a positive multiple of 16 bytes, not 24: .*lane 0"),
        ({"to": 24}, "MemoryAccessError", "Shared address 24 .* not aligned to 16 bytes: .*lane 0"),
        ({"at": 8}, "MemoryAccessError", "Global bulk copy .* not aligned to 16 bytes: .*lane 0"),
        ({"n": 120}, "MemoryAccessError", r"past the end of a .*CTA \(1, 0, 0\), warp 0, lane 3"),
        ({"to": 32}, "MemoryAccessError", "Shared address 272 .* 16 bytes past the CTA's 272 bytes.* lane 3"),
        ({"total": 240}, "BarrierError", "more bytes have come than the phase expects, although all arrivals"),
        ({"total": 1 << 20}, "BarrierError", "transaction count leaves its range of 1048575 bytes"),
        ({"total": 272}, "DeadlockError", "0 of 1 arrivals are pending and 16 bytes"),
    ],
)
def test_bulk_copies_have_rules(options, kind, message):
    with pytest.raises(getattr(interpreter, kind), match=message):
        bulk(**options)


def test_bytes_may_come_before_they_are_expected_while_arrivals_are_pending():
    """One schedule or another lands the push of 128 bytes before the barrier's owner expects them."""
    body = f"""mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5], 1; {SYNC}
        xor.b32 %r6, %r1, 1; mapa.shared::cluster.u32 %r8, %r3, %r6; mapa.shared::cluster.u32 %r9, %r5, %r6;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r8+16], %r2, [%r9];
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 128;
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W;
        ld.shared.b32 %r12, [%r3+16]; st.global.b32 [%rd10], %r12;"""
    trace = interpreter.Trace(("st.async", "mbarrier.arrive"))
    early = False
    for seed in range(8):
        trace = interpreter.Trace(("st.async", "mbarrier.arrive"))
        out = launch(body, schedule=f"adversarial({seed})", trace=trace, races=True)
        assert (out == (np.arange(128).reshape(4, 32)[[1, 0, 3, 2]])).all()
        early |= bool((trace.table().pending_bytes < 0).any())
    assert early


def test_an_unfinished_transfer_is_not_visible_and_must_not_outlive_its_target():
    wait = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra WAIT;"
    assert wait in PUSH
    with pytest.raises(interpreter.PoisonError, match="stored value of 'st.global"):
        launch(PUSH.replace(wait, ""))
    gone = PUSH.replace(wait, "").replace("ld.shared.b32 %r13", "mov.b32 %r13, 0; //")
    with pytest.raises(interpreter.MemoryAccessError, match=r"asynchronous transfer arrives at .* after its exit: 'st"):
        launch(gone)
    seen = set()
    for seed in range(12):  # if it happens to land in time, only the clocks tell
        with pytest.raises((interpreter.MemoryAccessError, interpreter.RaceError)) as error:
            launch(gone, schedule=f"adversarial({seed})", races=True)
        seen.add("DSMEM access not ordered before exit" in str(error.value))
    assert seen == {True, False}
