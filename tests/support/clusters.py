"""PTX programs for clusters, what they compute, and what a trace of them says about bytes from CTA to CTA."""

from collections import Counter

import numpy as np

from tests.interpreter.programs import kernel, run

SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
#: %r1 = rank, %r2 = global thread of the grid, %rd10 = &out[that thread], %r3 = &smem[thread]
START = """mov.u32 %r1, %cluster_ctarank; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x; mad.lo.u32 %r2, %r4, %r5, %r0;
    mul.wide.u32 %rd11, %r2, 4; add.s64 %rd10, %rd11, %rd0; mov.b32 %r3, smem; mad.lo.u32 %r3, %r0, 4, %r3;"""


def launch(body, ctas=4, cluster=4, threads=32, shared=1024, schedule="in_order", start=START, **options):
    """What `body` leaves in out[thread of the grid]."""
    out = np.zeros(ctas * threads, np.uint32)
    program = kernel(start + body, "out", threads, shared, cluster=cluster)
    run(program, out, grid=(ctas, 1, 1), schedule=schedule, **options)
    return out.reshape(ctas, threads)


#: Every CTA passes something on to the next rank.
RING = f"""{{write}} {SYNC}
    mov.u32 %r6, %cluster_nctarank; add.u32 %r7, %r1, 1; rem.u32 %r7, %r7, %r6;
    mapa.shared::cluster.u32 %r8, %r3, %r7; {{read}} {SYNC} st.global.b32 [%rd10], %r9;"""

PUSH = """mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; mov.u32 %r20, %cluster_nctarank; mov.u32 %r21, %ntid.x;
    mul.lo.u32 %r22, %r20, %r21; shl.b32 %r22, %r22, 2;
    @!%p1 bra READY; mbarrier.init.shared::cta.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], %r22;
READY:
    bar.sync 0; barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;
    mad.lo.u32 %r6, %r1, %r21, %r0; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r5; mov.b32 %r7, 0;
NEXT:
    mapa.shared::cluster.u32 %r8, %r6, %r7; mapa.shared::cluster.u32 %r9, %r5, %r7; mad.lo.u32 %r10, %r2, 10, %r7;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r8+16], %r10, [%r9];
    add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r20; @%p2 bra NEXT;
WAIT:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra WAIT;
    mov.b32 %r11, 0; mov.b32 %r7, 0; shl.b32 %r12, %r21, 2;
SUM:
    ld.shared.b32 %r13, [%r3+16]; add.u32 %r11, %r11, %r13; add.u32 %r3, %r3, %r12;
    add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, %r20; @%p2 bra SUM;
    st.global.b32 [%rd10], %r11;"""


def pushed(ctas, cluster, threads):
    thread = 10 * np.arange(ctas * threads).reshape(-1, cluster, threads)
    owner = np.arange(ctas).reshape(-1, cluster, 1) % cluster
    return (thread.sum(axis=1, keepdims=True) + cluster * owner).reshape(ctas, threads)


BULK = """mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r5], 1;
    @%p1 fence.mbarrier_init.release.cluster; bar.sync 0; mov.u32 %r4, %ctaid.x;
    @%p1 mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r5], {total}; setp.lt.u32 %p2, %r0, 4;
    mad.lo.u32 %r6, %r0, {size}, %r5; shl.b32 %r9, %r4, 2; add.u32 %r9, %r9, %r0; mul.wide.u32 %rd2, %r9, {size};
    add.s64 %rd3, %rd2, %rd0; mov.b32 %r10, {size}; mov.b64 %rd9, 0;
    @%p2 cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{hint} [%r6+{to}], [%rd3+{at}], %r10, [%r5]{policy};
    W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r5], 0; @!%p3 bra W;
    mad.lo.u32 %r3, %r0, 4, %r5; ld.shared.b32 %r7, [%r3+16]; ld.shared.b32 %r8, [%r3+144]; add.u32 %r7, %r7, %r8;
    mad.lo.u32 %r9, %r4, 32, %r0; mul.wide.u32 %rd4, %r9, 4; add.s64 %rd5, %rd4, %rd1; st.global.b32 [%rd5], %r7;"""


def traffic(table) -> Counter:
    """Bytes between CTAs in a `Trace.table()`, by (source, destination, kind): `pull` (`ld.shared::cluster`), `push`
    (`st.shared::cluster`, `st.async`) or `bulk` (`cp.async.bulk`, whose source is global memory: -1), at the issue."""
    moved = Counter()
    for row in table[(table.event == "execute") & (table.bytes > 0)].itertuples():
        bulk, pull = row.opcode.startswith("cp.async.bulk"), row.opcode.startswith("ld")
        if not bulk and row.peer is None:
            continue
        for lane in np.flatnonzero(row.active >> np.arange(32) & 1):
            peer = row.cta if row.peer is None else int(row.peer[lane])
            ends = (-1, row.cta, "bulk") if bulk else (peer, row.cta, "pull") if pull else (row.cta, peer, "push")
            moved[ends] += row.bytes
    return moved


def moved(table, opcodes: str) -> int:
    """Bytes that all lanes of the executed instructions moved whose opcode starts with `opcodes`."""
    rows = table[(table.event == "execute") & table.opcode.str.startswith(opcodes)]
    return int((rows.bytes * rows.lanes).sum())
