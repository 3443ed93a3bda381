"""Global memory beyond plain accesses: hints, orders, multicast addresses and the clock of a poll."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import kernel, run

WHERE = """mul.wide.u32 %rd10, %r0, 16; add.s64 %rd11, %rd10, %rd0; add.s64 %rd12, %rd10, %rd1;"""
WORDS = "{%r1, %r2, %r3, %r4}"
SCHEDULES = ["in_order", "adversarial(0)", "adversarial(1)"]


@pytest.mark.parametrize(
    "load",
    ["ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {w}, [%rd11], %rd20;",
     "ld.volatile.global.v4.u32 {w}, [%rd11];",
     "ld.relaxed.gpu.global.v4.b32 {w}, [%rd11];", "ld.relaxed.sys.global.v4.b32 {w}, [%rd11];",
     "ld.acquire.cluster.global.v4.b32 {w}, [%rd11];", "ld.global.L1::evict_last.L2::128B.v4.f32 {w}, [%rd11];",
     "ld.global.cs.v4.b32 {w}, [%rd11];"],
)  # fmt: skip
@pytest.mark.parametrize(
    "store",
    ["st.relaxed.sys.global.v4.b32 [%rd12], {w};", "st.volatile.global.v4.u32 [%rd12], {w};",
     "st.release.gpu.global.v4.b32 [%rd12], {w};", "st.global.L2::cache_hint.v4.b32 [%rd12], {w}, %rd20;",
     "st.global.cs.v4.b32 [%rd12], {w};"],
)  # fmt: skip
def test_orders_and_hints_move_the_same_bytes(load, store):
    body = WHERE + "createpolicy.fractional.L2::evict_first.b64 %rd20, 1.0;" + load + store
    source, out = np.random.default_rng(0).integers(0, 1 << 32, 128, dtype=np.uint32), np.zeros(128, np.uint32)
    run(kernel(body.replace("{w}", WORDS)), source, out)
    assert (out == source).all()


@pytest.mark.parametrize(
    "text",
    ["ld.global.v4.b32 {%r1, %r2}, [%rd0];", "ld.global.v2.b128 {%r1, %r2}, [%rd0];",
     "ld.global.b32 %r1, [%rd0], %rd20;", "ld.global.L2::cache_hint.b32 %r1, [%rd0];"],
)  # fmt: skip
def test_a_load_whose_operands_do_not_fit_is_refused(text):
    with pytest.raises(interpreter.UnsupportedInstruction, match="PTX line"):
        run(kernel(text, "out"), np.zeros(32, np.uint32))


PUBLISH = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd11]; multimem.st.{how} [%rd12], {%r1, %r2, %r3, %r4};"


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("how", ["relaxed.sys.global.v4.f32", "release.gpu.global.v4.bf16x2", "relaxed.sys.v4.f16x2"])
def test_a_multicast_store_reaches_every_mailbox(schedule, checks, how):
    boxes = [np.full(160, 7, np.uint32) for _ in range(3)]
    source = np.arange(128, dtype=np.uint32)
    body = WHERE + "setp.eq.u32 %p1, %r0, 3; @%p1 ret;" + PUBLISH.replace("{how}", how)
    program = kernel(body, "a out", 32)
    result = run(program, source, interpreter.Multicast(boxes), schedule=schedule, checks=checks)
    for box in boxes:
        want = np.concatenate([source, np.full(32, 7)])
        want[12:16] = 7
        assert (box == want).all()
    assert result.written["out"].sum() == 31 * 16


def test_multicast_and_ordinary_addresses_do_not_mix():
    boxes, plain = interpreter.Multicast([np.zeros(128, np.uint32)] * 2), np.zeros(128, np.uint32)
    for body, message in (
        (
            "st.global.b32 [%rd1], %r0;",
            "a multicast address of out, which only multimem instructions reach: 'st.global",
        ),
        (
            "ld.global.b32 %r1, [%rd1];",
            "a multicast address of out, which only multimem instructions reach: 'ld.global",
        ),
        ("multimem.st.relaxed.sys.global.b32 [%rd0], %r0;", "is no multicast address: 'multimem"),
        ("st.global.b32 [%rd0+512], %r0;", "4 bytes past the end of a"),
        (
            WHERE + "multimem.st.relaxed.sys.global.b32 [%rd12+256], %r0;",
            r"multimem store: .*out of bounds .*'multimem",
        ),
        (
            "mov.b32 %f0, %r0; multimem.st.relaxed.sys.global.v2.f32 [%rd1+4], {%f0, %f0};",
            "multimem store: .*misaligned",
        ),
    ):
        with pytest.raises(interpreter.MemoryAccessError, match=message):
            run(kernel(body), plain, boxes)
    with pytest.raises(interpreter.ReadOnlyError, match="stores to out, which is not declared as written"):
        run(kernel("multimem.st.relaxed.sys.global.b32 [%rd1], %r0;", written=()), plain, boxes)
    with pytest.raises(interpreter.PoisonError, match="the stored value of 'multimem"):
        run(kernel("multimem.st.relaxed.sys.global.b32 [%rd1], %r50;"), plain, boxes)
    for arrays, count in (([], 0), ([np.zeros(4), np.zeros(5)], 2)):
        with pytest.raises(ValueError, match=f"out is a Multicast of {count} arrays; at least one, all of one size"):
            run(kernel(""), plain, interpreter.Multicast(arrays))


def test_the_clock_moves_by_a_microsecond_per_read_and_by_every_sleep():
    body = """mov.u64 %rd1, %globaltimer; st.shared.b32 [smem], 1; mov.u64 %rd2, %globaltimer; nanosleep.u32 5000;
        st.shared.b32 [smem], 1; mov.u64 %rd3, %clock64; mov.u32 %r1, %clock; mov.u32 %r2, %globaltimer_lo;
        sub.s64 %rd4, %rd2, %rd1; sub.s64 %rd5, %rd3, %rd2; st.global.b64 [%rd0], %rd4; st.global.b64 [%rd0+8], %rd5;
        cvt.u64.u32 %rd6, %r1; cvt.u64.u32 %rd7, %r2; sub.s64 %rd6, %rd6, %rd3; st.global.b64 [%rd0+16], %rd6;"""
    out = np.zeros(3, np.uint64)
    for schedule in SCHEDULES:
        run(kernel(body, "out", shared=16), out, schedule=schedule)
        assert out.tolist() == [1000, 6000, 2000]  # nothing happens between the last two: the step doubles


POLL = """mov.u64 %rd2, %globaltimer; mov.b64 %rd5, 0;
    LOOP: ld.relaxed.sys.global.b32 %r1, [%rd0]; setp.ne.u32 %p1, %r1, 0; @%p1 bra END; nanosleep.u32 100;
    mov.u64 %rd3, %globaltimer; sub.s64 %rd4, %rd3, %rd2; add.s64 %rd5, %rd5, 1; setp.lt.u64 %p2, %rd4, 2000000000;
    @%p2 bra LOOP; st.global.b64 [%rd1], %rd5; END:"""


def test_a_bounded_poll_ends_by_its_time_limit_soon():
    out = np.zeros(1, np.uint64)
    for schedule in SCHEDULES:
        run(kernel(POLL), np.zeros(1, np.uint32), out, schedule=schedule)
        assert 10 < out[0] < 60
    run(kernel(POLL), np.ones(1, np.uint32), out)
    assert 10 < out[0] < 60  # published at once: nothing was stored this time
