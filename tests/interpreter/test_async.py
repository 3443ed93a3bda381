"""Copies in flight, mbarriers and their phases.

- bytes appear with the event that publishes them, never before;
- commits, waits and arrivals are of the copies of the lanes that execute them, whatever guards or branches say which;
- a `cp.async` reads as many bytes of its source as it says and no others, and the rest become zero;
- what it cannot copy is refused in words, and so is a copy over an mbarrier in use;
- barriers are used by their rules, and a deadlock says who waits for what.
"""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skinny_gemm import interpreter
from skinny_gemm.interpreter import machine
from tests.interpreter.programs import Eager, kernel, run

SCHEDULES = ["in_order", *(f"adversarial({s})" for s in range(8))]
ADDRESSES = """mov.b32 %r1, smem; shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2; mul.wide.u32 %rd10, %r0, 16;
    add.s64 %rd11, %rd10, %rd0; add.s64 %rd12, %rd10, %rd1;"""
STORE = "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3]; st.global.v4.b32 [%rd12], {%r4, %r5, %r6, %r7};"


def data(n=128):
    return np.random.default_rng(0).integers(0, 1 << 32, n, dtype=np.uint32)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_wait_group_publishes_all_but_the_latest_groups(schedule):
    body = ADDRESSES + """
    cp.async.cg.shared.global [%r3], [%rd11], 16; cp.async.commit_group;
    cp.async.cg.shared.global [%r3+512], [%rd11], 16; cp.async.commit_group;
    cp.async.wait_group 1;""" + STORE  # fmt: skip
    source, out = data(), np.zeros(128, np.uint32)
    run(kernel(body, shared=1024), source, out, schedule=schedule)
    assert (out == source).all()


def test_an_unfinished_copy_is_not_visible():
    for wait in ("", "cp.async.commit_group; cp.async.wait_group 1;"):
        body = ADDRESSES + "cp.async.cg.shared.global [%r3], [%rd11], 16;" + wait + STORE
        with pytest.raises(interpreter.PoisonError, match=r"stored value of 'st\.global.* lane 0"):
            run(kernel(body, shared=512), data(), np.zeros(128, np.uint32))


def test_adversaries_land_copies_both_early_and_late():
    """Read without a wait, over bytes that were there before: which of the two is seen differs from seed to seed."""
    body = ADDRESSES + """st.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};
    cp.async.cg.shared.global [%r3], [%rd11], 16;""" + STORE  # fmt: skip
    source, seen = data(), set()
    for seed in range(24):
        out = np.zeros(128, np.uint32)
        run(kernel(body, shared=512), source, out, schedule=f"adversarial({seed})")
        late = np.repeat(np.arange(32, dtype=np.uint32), 4)
        seen.add("early" if (out == source).all() else "late" if (out == late).all() else "mixed")
    assert {"early", "late"} <= seen


def test_predicates_hints_and_source_sizes():
    body = ADDRESSES + """mov.b64 %rd5, 0; setp.lt.u32 %p1, %r0, 20; mov.b32 %r8, 4;
    st.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};
    @%p1 cp.async.cg.shared.global.L2::cache_hint [%r3], [%rd11], 16, %rd5;
    setp.ge.u32 %p2, %r0, 30;
    @%p2 cp.async.ca.shared.global [%r3], [%rd11], 16, %r8;
    cp.async.wait_all;""" + STORE  # fmt: skip
    source, out = data().reshape(32, 4), np.zeros((32, 4), np.uint32)
    run(kernel(body, shared=512), source, out)
    assert (out[:20] == source[:20]).all()
    assert (out[20:30] == np.arange(20, 30)[:, None]).all()
    assert (out[30:, 0] == source[30:, 0]).all() and not out[30:, 1:].any()


WORDS = """mov.b32 %r1, smem; shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2; mov.b32 %r4, -1;
    st.shared.v4.b32 [%r3], {%r4, %r4, %r4, %r4}; mul.wide.u32 %rd10, %r0, 16; add.s64 %rd12, %rd10, %rd1;"""


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("schedule", SCHEDULES[:4])
def test_a_copy_reads_what_its_source_size_says_and_zeroes_the_rest(size, schedule):
    """Lane l reads l modulo (size + 1) bytes; those past them lie outside the buffer, which a lane without any bytes
    does not touch at all."""
    left = np.arange(32) % (size + 1)
    source = np.random.default_rng(1).integers(1, 256, 16 * 32 + size // 2, dtype=np.uint8)
    at = np.where(left == 0, 1 << 20, np.where(left <= size // 2, 16 * 32, np.arange(32) * 16)).astype(np.uint64)
    body = WORDS.replace("%rd1;", "%rd2;") + f"""mul.wide.u32 %rd10, %r0, 8; add.s64 %rd11, %rd10, %rd1;
    ld.global.b64 %rd13, [%rd11]; add.s64 %rd13, %rd13, %rd0; rem.u32 %r8, %r0, {size + 1};
    cp.async.ca.shared.global [%r3], [%rd13], {size}, %r8; cp.async.wait_all;""" + STORE  # fmt: skip
    out = np.zeros((32, 16), np.uint8)
    run(kernel(body, "a at out", shared=512), source, at, out, schedule=schedule)
    for lane, n in enumerate(left.tolist()):
        assert (out[lane, :n] == source[int(at[lane]) :][:n]).all()
        assert not out[lane, n:size].any() and (out[lane, size:] == 0xFF).all()


@pytest.mark.parametrize("schedule", SCHEDULES[:3])
def test_a_copy_that_ignores_its_source_writes_zeros_and_reads_nothing(schedule):
    """The predicate is true in the lanes from 8 on, the last of which have a source past the buffer's end."""
    body = WORDS + """add.s64 %rd11, %rd10, %rd0; setp.ge.u32 %p1, %r0, 8;
    cp.async.cg.shared.global [%r3], [%rd11], 16, %p1; cp.async.wait_all;""" + STORE  # fmt: skip
    source, out = data(64), np.ones((32, 4), np.uint32)
    run(kernel(body, shared=512), source, out, schedule=schedule)
    assert (out[:8] == source[:32].reshape(8, 4)).all() and not out[8:].any()


def test_what_a_copy_does_not_read_does_not_depend_on_the_preceding_kernel():
    body = ADDRESSES + "cp.async.ca.shared.global [%r3], [%rd11], 4, {}; cp.async.wait_all;"
    run(kernel(body.format(0), shared=512), data(), np.zeros(1, np.uint32), preceding=("a",))
    with pytest.raises(interpreter.DependencyError, match="Reads a"):
        run(kernel(body.format(1), shared=512), data(), np.zeros(1, np.uint32), preceding=("a",))


@pytest.mark.parametrize(
    ("copy", "error", "message"),
    [
        (
            "ca.shared.global [%r3], [%rd11], 3",
            "UnsupportedInstruction",
            "cp.async.ca copies 4 or 8 or 16 bytes, not 3",
        ),
        ("ca.shared.global [%r3], [%rd11], 32", "UnsupportedInstruction", "cp.async.ca copies 4 or 8 .*, not 32"),
        ("cg.shared.global [%r3], [%rd11], 8", "UnsupportedInstruction", "cp.async.cg copies 16 bytes, not 8"),
        ("ca.shared.global [%r3], [%rd11], 4, %rd10", "UnsupportedInstruction", "does not execute 'cp.async.ca"),
        ("ca.shared.global [%r3], [%rd11], 4, 0f3F800000", "UnsupportedInstruction", "does not execute 'cp.async.ca"),
        ("ca.shared.global [%r3], [%rd11], 4, 5", "MemoryAccessError", "copies 4 bytes and cannot read 5"),
        ("ca.shared.global [%r3], [%rd11], 8, %r0", "MemoryAccessError", "copies 8 bytes and cannot read 9: .* lane 9"),
        ("ca.shared.global [%r3], [%rd11], 8, %r40", "PoisonError", "undefined register reaches the source size"),
        ("ca.shared.global [%r3], [%rd11+4], 8, 2", "MemoryAccessError", "not aligned to 8 bytes.* lane 0"),
        (
            "cg.shared.global [%r3], [%rd11+16], 16, 15",
            "MemoryAccessError",
            "of 1 bytes .* past the end of a.* lane 31",
        ),
        ("cg.shared.global [%r3], [%rd11+16], 16, 16", "MemoryAccessError", "of 16 bytes .* past the end .* lane 31"),
    ],
)
def test_what_cannot_be_copied_is_refused_in_words(copy, error, message):
    with pytest.raises(getattr(interpreter, error), match=message):
        run(kernel(f"{ADDRESSES} cp.async.{copy};", shared=512), data(), np.zeros(1, np.uint32))


LIVE = """setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [smem+512], 32;
    @%p1 mbarrier.init.shared.b64 [smem+528], 1; bar.sync 0;"""
BULK = """@%p1 mbarrier.arrive.expect_tx.shared.b64 %rd20, [smem+528], 16;
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3+512], [%rd0], 16, [smem+528];
    TRY: mbarrier.try_wait.parity.shared.b64 %p2, [smem+528], 0; @!%p2 bra TRY;"""


@pytest.mark.parametrize("schedule", SCHEDULES[:3])
@pytest.mark.parametrize(
    "write",
    ["@%p1 cp.async.cg.shared.global [%r3+512], [%rd11], 16;",
     "@%p1 cp.async.ca.shared.global [%r3+516], [%rd11], 4, 0;", BULK],
)  # fmt: skip
def test_nothing_may_be_copied_over_a_live_mbarrier(write, schedule):
    with pytest.raises(
        interpreter.BarrierError, match="overwrites the mbarrier at shared address 512, .*warp 0, lane 0"
    ):
        run(kernel(ADDRESSES + LIVE + write, shared=544), data(), np.zeros(1, np.uint32), schedule=schedule)
    ended = LIVE + "@%p1 mbarrier.inval.shared.b64 [smem+512];"
    run(kernel(ADDRESSES + ended + write, shared=544), data(), np.zeros(1, np.uint32), schedule=schedule)


def test_copies_that_nobody_waits_for_happen_all_the_same():
    body = ADDRESSES + "cp.async.cg.shared.global [%r3], [%rd11+16], 16;"
    tied = "mbarrier.init.shared.b64 [smem+512], 33; cp.async.mbarrier.arrive.noinc.shared.b64 [smem+512];"
    for ending in ("", tied):
        with pytest.raises(interpreter.MemoryAccessError, match=r"16 bytes past the end of a .* lane 31"):
            run(kernel(body + ending, shared=520), data(), np.zeros(1, np.uint32))


ALL = 0xFFFFFFFF
SOME = st.one_of(st.just(ALL), st.sampled_from([0, 1, 0xFFFF, 0xFFFF0000]), st.integers(0, ALL))
STEP = st.tuples(st.sampled_from(["copy", "copy", "commit", 0, 1, 2, "all", "tie"]), SOME, st.booleans())
COUNT = 1 << 19  #: arrivals that never come
MARK = 0xABCDEF


def program(steps) -> tuple[str, int]:
    """(a program that takes `steps`, each of some lanes, by a guard or by a branch; its copies). Lane l copies word l
    of the source into word l of the copy's own 32, which hold a mark."""
    body = """mov.b32 %r1, smem; shl.b32 %r2, %r0, 2; add.s32 %r3, %r1, %r2; mul.wide.u32 %rd10, %r0, 4;
    add.s64 %rd11, %rd10, %rd0; add.s64 %rd12, %rd10, %rd1; setp.ne.u32 %p1, %r0, 0; mov.b32 %r6, {mark};
    @%p1 bra READY; mbarrier.init.shared.b64 [smem+4096], {count}; READY: bar.sync 0;"""
    body, copies = body.format(mark=MARK, count=COUNT), 0
    for i, (what, lanes, branch) in enumerate(steps):
        text = {"commit": "cp.async.commit_group;", "all": "cp.async.wait_all;",
                "tie": "cp.async.mbarrier.arrive.noinc.shared.b64 [smem+4096];"}.get(what)  # fmt: skip
        if what == "copy":
            text = f"cp.async.ca.shared.global [%r3+{128 * copies}], [%rd11], 4;"
            body += f"st.shared.b32 [%r3+{128 * copies}], %r6;"
            copies += 1
        text = text or f"cp.async.wait_group {what};"
        body += f"mov.b32 %r4, {lanes}; shr.u32 %r4, %r4, %r0; and.b32 %r4, %r4, 1; setp.ne.u32 %p2, %r4, 0;"
        body += f"@!%p2 bra S{i}; {text} S{i}:" if branch else f"@%p2 {text}"
    return body, copies


def complete(steps) -> np.ndarray:
    """What each lane has waited for by itself, as (copies, lanes): a model of one lane at a time."""
    done = np.zeros((sum(what == "copy" for what, *_ in steps), 32), bool)
    for lane in range(32):
        loose: list[int] = []
        groups: list[list[int]] = []
        copies = 0
        for what, lanes, _ in steps:
            if lanes >> lane & 1:
                if what == "copy":
                    loose.append(copies)
                if what in ("commit", "all"):
                    groups.append(loose)
                    loose = []
                if what == "all" or isinstance(what, int):
                    finished = groups[: len(groups) - (0 if what == "all" else what)] if groups else []
                    done[sum(finished, []), lane] = True
            copies += what == "copy"
    return done


def copied(steps) -> np.ndarray:
    """Which lanes issue each copy."""
    return np.array([[lanes >> lane & 1 for lane in range(32)] for what, lanes, _ in steps if what == "copy"], bool)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(steps=st.lists(STEP.filter(lambda step: step[0] != "tie"), min_size=2, max_size=12))
@example(steps=[("copy", ALL, False), ("commit", ALL, False), (0, 0xFFFF, False)])
@example(steps=[("copy", ALL, False), ("commit", 0xFFFF, True), (0, 0xFF, True), ("all", 0xFFFF0000, False)])
@example(steps=[("copy", ALL, False), ("commit", ALL, False), ("copy", 1, True), ("commit", 1, True), (1, ALL, False)])
def test_a_wait_lands_the_committed_copies_of_its_own_lanes_and_no_others(steps):
    body, copies = program(steps)
    for i in range(copies):
        body += f"ld.shared.b32 %r5, [%r3+{128 * i}]; st.global.b32 [%rd12+{128 * i}], %r5;"
    source, out = data(32) | 1 << 31, np.zeros((max(copies, 1), 32), np.uint32)
    run(kernel(body, shared=4104), source, out, checks=False)
    assert (out[:copies] == np.where(complete(steps), source, MARK)).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(steps=st.lists(STEP, min_size=2, max_size=12), seed=st.integers(-2, 3), probe=st.integers(0, 1 << 20))
@example(steps=[("copy", ALL, False), ("commit", ALL, False), (0, 0xFFFF, False)], seed=-2, probe=16)
@example(steps=[("copy", ALL, False), ("commit", 0xFFFF, True), (0, ALL, True)], seed=-2, probe=16)
@example(steps=[("copy", ALL, False), ("commit", ALL, False), ("tie", ALL, False), (1, ALL, True)], seed=-2, probe=3)
def test_the_race_detector_knows_which_copies_of_a_lane_are_complete(steps, seed, probe):
    body, copies = program(steps)
    issued = np.argwhere(copied(steps)) if copies else []
    if not len(issued):
        return
    copy, lane = issued[probe % len(issued)].tolist()
    body += f"setp.eq.u32 %p3, %r0, {lane}; @%p3 ld.shared.b32 %r5, [%r3+{128 * copy}];"
    schedule = {-2: Eager(), -1: "in_order"}.get(seed, f"adversarial({seed})")

    def read():
        run(kernel(body, shared=4104), data(32), np.zeros(32, np.uint32), races=True, schedule=schedule)

    if complete(steps)[copy, lane]:
        read()
    else:
        with pytest.raises(interpreter.RaceError, match="an unfinished copy of warp 0"):
            read()


def test_an_arrival_publishes_the_copies_of_its_own_lanes_only():
    body = (
        ADDRESSES
        + """setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [smem+512], 1; bar.sync 0;
    cp.async.cg.shared.global [%r3], [%rd11], 16; @%p1 cp.async.mbarrier.arrive.noinc.shared.b64 [smem+512];
    TRY: mbarrier.try_wait.parity.shared.b64 %p2, [smem+512], 0; @!%p2 bra TRY;"""
    )
    with pytest.raises(interpreter.PoisonError, match=r"stored value of 'st\.global.* lane 1\."):
        run(kernel(body + STORE, shared=520), data(), np.zeros(128, np.uint32))
    one = STORE.replace("ld.", "@%p1 ld.").replace("st.", "@%p1 st.")
    source, out = data(), np.zeros(128, np.uint32)
    run(kernel(body + one, shared=520), source, out)
    assert (out[:4] == source[:4]).all()


def test_an_arrival_that_no_lane_executes_is_none():
    body = ADDRESSES + """setp.gt.u32 %p1, %r0, 99; cp.async.cg.shared.global [%r3], [%rd11], 16;
    @%p1 cp.async.mbarrier.arrive.noinc.shared.b64 [smem+512]; cp.async.wait_all;""" + STORE  # fmt: skip
    source, out = data(), np.zeros(128, np.uint32)
    run(kernel(body, shared=520), source, out)
    assert (out == source).all()


@pytest.mark.parametrize("schedule", SCHEDULES[:3])
def test_lanes_keep_their_groups_when_warps_part(schedule):
    """The lanes 0 to 47 commit a first copy, and all a second one; then the warps go on apart."""
    body = (
        ADDRESSES
        + """setp.lt.u32 %p1, %r0, 48; setp.lt.u32 %p2, %r0, 32;
    cp.async.cg.shared.global [%r3], [%rd11], 16; @%p1 cp.async.commit_group;
    cp.async.cg.shared.global [%r3+1024], [%rd11], 16; cp.async.commit_group;
    @%p2 bra A; bar.sync 1, 32; cp.async.wait_group 0; bra.uni B; A: bar.sync 2, 32; cp.async.wait_group 1; B:"""
    )
    source, out = data(256), np.zeros(256, np.uint32)
    run(kernel(body + STORE, threads=64, shared=2048), source, out, schedule=schedule, races=True)
    assert (out == source).all()
    late = body + STORE.replace("[%r3]", "[%r3+1024]")
    with pytest.raises((interpreter.RaceError, interpreter.PoisonError), match="warp 0"):
        run(kernel(late, threads=64, shared=2048), source, out, schedule=schedule, races=True)


PIPE = """
    mov.b32 %r1, smem; shr.u32 %r9, %r0, 5; and.b32 %r10, %r0, 31; shl.b32 %r2, %r10, 4; add.s32 %r3, %r1, %r2;
    mul.wide.u32 %rd10, %r10, 16; add.s64 %rd11, %rd10, %rd0; add.s64 %rd12, %rd10, %rd1;
    setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
    mbarrier.init.shared.b64 [smem+512], 32; mbarrier.init.shared.b64 [smem+520], 1;
READY:
    bar.sync 0;
    mov.b32 %r11, 0;
    setp.eq.u32 %p2, %r9, 0; @%p2 bra LOADER;
CONSUME:
    and.b32 %r12, %r11, 1;
    { .reg .pred P1; W: mbarrier.try_wait.parity.shared.b64 P1, [smem+512], %r12, 1000; @P1 bra.uni D; bra.uni W; D: }
    ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r3];
    st.global.v4.b32 [%rd12], {%r4, %r5, %r6, %r7};
    bar.warp.sync -1;
    elect.sync %r20|%p3, -1;
    @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520];
    add.s64 %rd12, %rd12, 512; add.s32 %r11, %r11, 1; setp.lt.u32 %p4, %r11, 5; @%p4 bra CONSUME;
    ret;
LOADER:
    and.b32 %r12, %r11, 1; xor.b32 %r13, %r12, 1;
    { .reg .pred P1; W: mbarrier.try_wait.parity.shared.b64 P1, [smem+520], %r13, 1000; @P1 bra.uni D; bra.uni W; D: }
    cp.async.cg.shared.global [%r3], [%rd11], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [smem+512];
    add.s64 %rd11, %rd11, 512; add.s32 %r11, %r11, 1; setp.lt.u32 %p4, %r11, 5; @%p4 bra LOADER;
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_rolled_ring_hands_over_every_stage(schedule):
    source, out = data(640), np.zeros(640, np.uint32)
    run(kernel(PIPE, threads=64, shared=528), source, out, schedule=schedule)
    assert (out == source).all()


def test_incrementing_arrivals_leave_the_count_alone():
    body = (
        ADDRESSES
        + """setp.ne.u32 %p1, %r0, 0; @%p1 bra READY; mbarrier.init.shared.b64 [smem+512], 32; READY:
    cp.async.cg.shared.global [%r3], [%rd11], 16;
    cp.async.mbarrier.arrive.shared.b64 [smem+512];
    mbarrier.arrive.shared.b64 %rd5, [smem+512];
    { .reg .pred P1; W: mbarrier.test_wait.shared.b64 P1, [smem+512], %rd5; @P1 bra.uni D; bra.uni W; D: }"""
        + STORE
    )
    source, out = data(), np.zeros(128, np.uint32)
    run(kernel(body, shared=520), source, out)
    assert (out == source).all()


def test_a_deadlock_names_the_waiting_warp_the_phase_and_what_is_missing():
    mutant = PIPE.replace("@%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520];", "")
    with pytest.raises(interpreter.DeadlockError) as error:
        run(kernel(mutant, threads=64, shared=528), data(640), np.zeros(640, np.uint32))
    message = str(error.value)
    assert "CTA (0, 0, 0) warps [0] wait at PTX line" in message and "shared address 520" in message
    assert "1 of 1 arrivals are pending (no instruction with this literal address arrives there)" in message
    assert "shared address 512" in message and "32 of 32 arrivals are pending (arrivals are at PTX line" in message


def test_a_deadlock_at_a_named_barrier_counts_the_missing_threads():
    body = "shr.u32 %r1, %r0, 5; setp.eq.u32 %p1, %r1, 2; @%p1 ret; bar.sync 3, 96;"
    with pytest.raises(interpreter.DeadlockError, match="named barrier 3, where 32 of 96 threads are missing"):
        run(kernel(body, "out", 96), np.zeros(1, np.uint32))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.arrive.shared.b64 %rd5, [smem+8];", "No mbarrier has been initialised at shared address 8"),
        ("mbarrier.init.shared.b64 [smem], 0;", "cannot expect 0 arrivals"),
        ("bar.sync 1, 40;", "expects 40 threads, which is not a multiple of 32"),
        ("bar.sync 17;", "Barrier 17 does not exist"),
    ],
)
def test_barriers_are_used_by_their_rules(body, message):
    with pytest.raises(interpreter.BarrierError, match=message):
        run(kernel(body, "out", shared=64), np.zeros(1, np.uint32))


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)"])
@pytest.mark.parametrize(
    "body",
    [
        "SPIN: bra SPIN;",
        "setp.eq.u32 %p1, %r0, 5; SPIN: @%p1 bra SPIN;",
        """setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [smem], 1; bar.sync 0;
        SPIN: mbarrier.try_wait.parity.shared.b64 %p2, [smem], 1; bra SPIN;""",
    ],
)
def test_an_endless_loop_is_reported(monkeypatch, body, schedule):
    monkeypatch.setattr(machine, "ENDLESS", 500)
    with pytest.raises(interpreter.DeadlockError, match=r"Endless loop: 500 blocks .* CTA \(0, 0, 0\).*PTX line \d+"):
        run(kernel(body, "out", 64, shared=64), np.zeros(1, np.uint32), schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES[:3])
@pytest.mark.parametrize("kind", ["init", "inval"])
def test_a_barrier_instruction_without_active_lanes_does_nothing(kind, schedule):
    body = f"""setp.eq.u32 %p1, %r0, 0; setp.gt.u32 %p2, %r0, 64; @%p1 mbarrier.init.shared.b64 [smem], 64; bar.sync 0;
        @%p2 mbarrier.{kind}.shared.b64 [smem]{", 1" * (kind == "init")}; mbarrier.arrive.shared.b64 %rd5, [smem];"""
    run(kernel(body, "out", 64, shared=64), np.zeros(1, np.uint32), schedule=schedule)
