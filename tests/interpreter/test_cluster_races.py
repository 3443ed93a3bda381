"""Races across a cluster: every barrier, fence, scope and expectation of a small program is needed, and is missed."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from skinny_gemm.interpreter.observers import races
from tests.interpreter.programs import kernel, run
from tests.support.clusters import BULK, PUSH, START, SYNC, launch, pushed

READ = "mapa.shared::cluster.u32 %r8, %r3, 1; ld.shared::cluster.b32 %r9, [%r8];"
WRITE = "st.shared.b32 [%r3], %r2;"
BARRIER = "mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5+512], {count};"
REMOTE = "mapa.shared::cluster.u32 %r6, %r5, 1; setp.eq.u32 %p4, %r1, 1;"

PEER = "xor.b32 %r6, %r1, 1; mov.b32 %r7, smem; mapa.shared::cluster.u32 %r11, %r7, %r6;"
NEXT = "xor.b32 %r6, %r1, 1; xor.b32 %r7, %r3, 4;" + "".join(
    f"mapa.shared::cluster.u32 {to}, {own}, %r6;" for to, own in (("%r8", "%r3"), ("%r10", "%r7"))
)  # the own word at the peer, and the neighbouring lane's
SLOT = f"""{BARRIER.format(count=1)} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r5+512], {{bytes}}; {SYNC}"""
ASYNC = """mapa.shared::cluster.u32 %r9, %r5, %r6;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [{to}], %r2, [%r9+512];
    W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5+512], 0; @!%p3 bra W;"""
TRANSFERS = "an unfinished transfer writes in .* and an unfinished transfer writes in .* and nothing orders the two"

RACES = {
    "read without a barrier after the write": (f"{SYNC} {WRITE} {READ} {SYNC}", "Race on shared address"),
    "relaxed arrival after a write": (
        f"{WRITE} barrier.cluster.arrive.relaxed; barrier.cluster.wait; {READ} {SYNC}",
        r"shared address 0 of CTA \(1, 0, 0\): warp 0 of CTA rank 1 writes in .* and warp 0 of CTA rank 0 reads",
    ),
    "fence of CTA scope": (
        f"{WRITE} fence.acq_rel.cta; barrier.cluster.arrive.relaxed; barrier.cluster.wait; {READ} {SYNC}",
        "Race on shared address",
    ),
    "CTA barrier instead of a cluster barrier": (f"{WRITE} bar.sync 0; {READ} {SYNC}", "has started"),
    "access before the peer is known to run": (f"{READ} {SYNC}", r"of CTA \(1, 0, 0\), .* that this CTA has started"),
    "overwritten under a reader": (f"{WRITE} {SYNC} {READ} {WRITE} {SYNC}", "Race on shared address"),
    "a word of the peer that another lane may still read": (
        f"{WRITE} {SYNC} {NEXT} ld.shared::cluster.b32 %r9, [%r10]; st.shared::cluster.b32 [%r8], %r2; {SYNC}",
        "another lane of the same warp writes in .* and no bar.warp.sync",
    ),
    "lanes of one store to the peer": (
        f"{SYNC} {PEER} st.shared::cluster.b32 [%r11], %r0; {SYNC}", "two lanes write different values"
    ),
    "lanes of one push to one word": (f"{SLOT.format(bytes=128)} {PEER} {ASYNC.format(to='%r11')}", TRANSFERS),
    "pushes of two CTAs to one slot": (
        f"{SLOT.format(bytes=512)} mov.b32 %r6, 0; mapa.shared::cluster.u32 %r12, %r3, 0; {ASYNC.format(to='%r12')}",
        TRANSFERS,
    ),
    "exit under a reader": (f"{WRITE} {SYNC} {READ}", r"DSMEM read not ordered before exit of CTA \(1, 0, 0\): warp 0"),
    "exit under a writer": (
        f"{SYNC} mapa.shared::cluster.u32 %r8, %r3, 1; st.shared::cluster.b32 [%r8], %r2;",
        "Race on|DSMEM access not ordered before exit of CTA",
    ),
    "remote arrival of CTA scope": (
        f"""{BARRIER.format(count=128)} {SYNC} {REMOTE} mad.lo.u32 %r7, %r1, 128, %r6; add.u32 %r7, %r7, 520;
        st.shared::cluster.b32 [%r7], %r1; mbarrier.arrive.shared::cluster.b64 _, [%r6+512]; @!%p4 bra END;
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5+512], 0; @!%p3 bra W;
        ld.shared.b32 %r9, [%r5+520]; END: {SYNC}""",
        "Race on shared address 520",
    ),
    "wait of CTA scope for a remote arrival": (
        f"""{BARRIER.format(count=128)} {SYNC} {REMOTE} mad.lo.u32 %r7, %r1, 128, %r6; add.u32 %r7, %r7, 520;
        st.shared::cluster.b32 [%r7], %r1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6+512];
        @!%p4 bra END; W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5+512], 0; @!%p3 bra W;
        ld.shared.b32 %r9, [%r5+520]; END: {SYNC}""",
        "Race on shared address 520",
    ),
}  # fmt: skip
ORDERED = {
    "write, barrier, read, barrier": f"{WRITE} {SYNC} {READ} {SYNC}",
    "relaxed arrival after a fence": f"""{WRITE} fence.acq_rel.cluster; barrier.cluster.arrive.relaxed;
        barrier.cluster.wait; {READ} {SYNC}""",
    "reader knows, owner overwrites": f"{WRITE} {SYNC} {READ} {SYNC} {WRITE}",
    "the peer's word between two lanes, synchronised": f"""{WRITE} {SYNC} {NEXT} ld.shared::cluster.b32 %r9, [%r10];
        bar.warp.sync -1; st.shared::cluster.b32 [%r8], %r2; {SYNC}""",
    "own rank": f"{WRITE} mapa.shared::cluster.u32 %r8, %r3, %r1; ld.shared::cluster.b32 %r9, [%r8];",
    "exit after the other's arrival": f"{WRITE} {SYNC} {READ} barrier.cluster.arrive; barrier.cluster.wait;",
}


@pytest.mark.parametrize("case", RACES)
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)"])
def test_what_nothing_orders_across_a_cluster_is_a_race(case, schedule):
    body, message = RACES[case]
    with pytest.raises((interpreter.RaceError, interpreter.MemoryAccessError)) as error:
        launch(body, schedule=schedule, races=True)
    if schedule == "in_order":
        assert isinstance(error.value, interpreter.RaceError) and error.match(message)


@pytest.mark.parametrize("case", ORDERED)
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)", "adversarial(2)"])
def test_what_is_ordered_across_a_cluster_is_none(case, schedule):
    launch(ORDERED[case], schedule=schedule, races=True)


def test_reads_that_all_know_of_are_forgotten_and_no_others(monkeypatch):
    monkeypatch.setattr(races, "KEPT_READS", 4)
    rounds = f"{WRITE} {SYNC} {READ} {SYNC}" * 6
    launch(rounds, races=True)
    with pytest.raises(interpreter.RaceError, match="warp 0 of CTA rank 0 reads in 'ld.shared::cluster"):
        launch(rounds + f"{WRITE} {SYNC}" + READ * 8 + WRITE + SYNC, races=True)


#: What each mutant of the push takes away, and what finds it in one run in order.
MUTANTS = {
    "init fence": ("fence.mbarrier_init.release.cluster;", "", "RaceError"),
    "cluster barrier": (PUSH[PUSH.index("barrier.cluster") : PUSH.index("mad.lo.u32 %r6")], "", "RaceError"),
    "cluster wait": ("barrier.cluster.wait.acquire.aligned;", "", "RaceError"),
    "acquire of cluster scope": (".acquire.cluster.shared::cta", ".shared::cta", "RaceError"),
    "wait": (PUSH[PUSH.index("mbarrier.try_wait") : PUSH.index("mov.b32 %r11")], "", "PoisonError"),
    "parity": ("[%r5], 0; @!%p3", "[%r5], 1; @!%p3", "PoisonError"),
    "init": ("mbarrier.init.shared::cta.b64 [%r5], 1;", "", "BarrierError"),
    "expected bytes": ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], %r22;", "", "DeadlockError"),
    "all expected bytes": ("shl.b32 %r22, %r22, 2;", "shl.b32 %r22, %r22, 1;", "BarrierError"),
    "CTA barrier": ("bar.sync 0;", "", None),  # the cluster barrier alone orders the initialisation
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_every_synchronisation_of_the_push_is_missed(name):
    old, new, kind = MUTANTS[name]
    assert PUSH.count(old) == 1
    mutant = PUSH.replace(old, new)
    options = {"ctas": 8, "cluster": 4, "threads": 64, "shared": 16 + 4 * 64 * 4, "races": True}
    if kind is None:
        assert (launch(mutant, **options) == pushed(8, 4, 64)).all()
    else:
        with pytest.raises(getattr(interpreter, kind)):
            launch(mutant, **options)


def test_a_slot_read_without_waiting_for_its_own_barrier_is_a_race():
    """Two pushes of one warp complete at two barriers: having waited for the later one says nothing of the earlier."""
    push = f"""mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5+512], 1;
        @%p1 mbarrier.init.shared::cta.b64 [%r5+520], 1; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r5+512], 128;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r5+520], 128; {SYNC}
        xor.b32 %r6, %r1, 1; mapa.shared::cluster.u32 %r8, %r3, %r6; mapa.shared::cluster.u32 %r9, %r5, %r6;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r8], %r2, [%r9+512];
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r8+128], %r2, [%r9+520];"""
    first, second = (
        f"W{at}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r5+{at}], 0; @!%p2 bra W{at};"
        for at in (512, 520)
    )
    reads = "ld.shared.b32 %r10, [%r3]; ld.shared.b32 %r11, [%r3+128];"
    launch(push + first + second + reads, races=True)
    for body, address in ((first + reads + second, 128), (second + reads + first, 0)):
        with pytest.raises(interpreter.RaceError, match=f"Race on shared address {address} of CTA"):
            launch(push + body, races=True)


def bulk_twice(body):
    text = BULK.split("W: mbarrier")[0].format(
        total=64, size=64, to=16, at=0, space="shared::cluster", hint="", policy=""
    )
    text = text.replace("%r0, 4;", "%r0, 1;")  # one copy of 64 bytes
    source, out = np.zeros(128, np.uint32), np.zeros(64, np.uint32)
    run(kernel(text + body, shared=272), source, out, races=True)


def test_a_bulk_copy_is_ordered_by_its_barrier_alone():
    wait = "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W;"
    again = """@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 64;
        @%p2 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6+16], [%rd3], %r10, [%r5];
        V: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], 1; @!%p3 bra V;"""
    bulk_twice(f"{wait} ld.shared.b32 %r7, [%r5+16]; bar.warp.sync -1; {again} ld.shared.b32 %r7, [%r5+16];")
    for bad in ("ld.shared.b32 %r7, [%r5+16];" + wait, f"st.shared.b32 [%r5+16], %r10; {wait}"):
        with pytest.raises(interpreter.RaceError, match="Race on shared address 16 .*unfinished transfer writes"):
            bulk_twice(bad)


def test_only_the_cluster_of_a_watched_cta_is_searched():
    body = f"{SYNC} mov.u32 %r6, %clusterid.x; setp.eq.u32 %p1, %r6, 1; @%p1 st.shared.b32 [smem], %r6; {SYNC}"
    program = kernel(START + body, "out", 64, 64, cluster=2)
    for watched, racy in ((True, False), ([1], False), ([4, 5], False), ([3], True), ([2], True)):
        out = np.zeros(6 * 64, np.uint32)
        if racy:
            with pytest.raises(interpreter.RaceError, match=r"of CTA \([23], 0, 0\)"):
                run(program, out, grid=(6, 1, 1), races=watched)
        else:
            run(program, out, grid=(6, 1, 1), races=watched)
