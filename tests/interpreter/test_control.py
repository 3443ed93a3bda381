"""Divergence, loops, warp-level exchange and warp roles: every thread gets what it would get alone."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import elementwise, kernel, run

THREADS = np.arange(32, dtype=np.uint32)


def test_nested_branches_and_loops_diverge_and_meet_again():
    code = """
    mov.b32 %r20, 0; mov.b32 %r30, 0;
    and.b32 %r31, %r10, 3;
    setp.eq.s32 %p1, %r31, 0;
    @%p1 bra SKIP;
LOOP:
    add.s32 %r20, %r20, %r10;
    and.b32 %r32, %r30, 1;
    setp.ne.s32 %p2, %r32, 0;
    @%p2 bra ODD;
    add.s32 %r20, %r20, 100;
    bra.uni NEXT;
ODD:
    add.s32 %r20, %r20, 1000;
NEXT:
    add.s32 %r30, %r30, 1;
    setp.lt.s32 %p3, %r30, %r31;
    @%p3 bra LOOP;
SKIP:
    add.s32 %r20, %r20, 7;"""
    values = np.random.default_rng(0).integers(0, 1000, 32).astype(np.uint32)
    want = []
    for v in values.tolist():
        total = sum(v + (1000 if i & 1 else 100) for i in range(v & 3))
        want.append(total + 7)
    assert elementwise(code, (values,), np.uint32).tolist() == want


def test_a_register_of_the_other_side_survives():
    code = """mov.b32 %r30, 5; setp.lt.u32 %p1, %r10, 16; @%p1 bra LOW;
    mov.b32 %r31, %r30; mov.b32 %r30, 9; add.s32 %r20, %r31, %r30; bra.uni END;
LOW:
    add.s32 %r20, %r30, 1;
END:
    add.s32 %r20, %r20, 0;"""
    got = elementwise(code, (THREADS,), np.uint32)
    assert got.tolist() == [6] * 16 + [14] * 16


def test_an_early_exit_leaves_the_others_running():
    body = """setp.lt.u32 %p1, %r0, 40; @%p1 ret;
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r0;"""
    out = np.full(96, 7, np.uint32)
    result = run(kernel(body, "out", 96), out)
    assert out.tolist() == [7] * 40 + list(range(40, 96))
    assert result.written["out"].reshape(96, 4).all(axis=1).tolist() == [False] * 40 + [True] * 56


def test_inline_scopes_redeclare_registers_and_labels():
    code = """mov.b32 %r20, 0;
    { .reg .pred P1; .reg .b32 t;
    mov.b32 t, %r10;
    AGAIN:
    setp.eq.u32 P1, t, 0; @P1 bra DONE; add.s32 %r20, %r20, 3; sub.u32 t, t, 1; bra.uni AGAIN;
    DONE: }
    { .reg .pred P1; .reg .b32 t; mov.b32 t, %r20;
    setp.gt.u32 P1, t, 30; @P1 bra DONE; add.s32 %r20, t, 1000; DONE: }"""
    got = elementwise(code, (THREADS,), np.uint32)
    assert (got == np.where(3 * THREADS > 30, 3 * THREADS, 3 * THREADS + 1000)).all()


@pytest.mark.parametrize("mode", ["idx", "up", "down", "bfly"])
@pytest.mark.parametrize("b", [0, 1, 5, 16, 31])
@pytest.mark.parametrize("width", [32, 8])
def test_shuffles_follow_the_isa(mode, b, width):
    segment = 32 - width << 8
    c = segment | (0 if mode == "up" else 31)
    code = f"shfl.sync.{mode}.b32 %r30|%p1, %r10, {b}, {c}, -1; selp.b32 %r31, 65536, 0, %p1; or.b32 %r20, %r30, %r31;"
    values = THREADS + 100
    got = elementwise(code, (values,), np.uint32)
    for lane in range(32):
        low = lane & ~(width - 1)
        high = low + width - 1
        source = {"idx": low | (b & (width - 1)), "up": lane - b, "down": lane + b, "bfly": lane ^ b}[mode]
        valid = source >= low if mode == "up" else source <= high
        want = values[source if valid else lane] | (65536 if valid else 0)
        assert got[lane] == want, lane


def test_votes_and_election():
    values = np.random.default_rng(2).integers(0, 2, 32).astype(np.uint32)
    base = "setp.ne.u32 %p1, %r10, 0;"
    ballot = elementwise(base + "vote.sync.ballot.b32 %r20, %p1, -1;", (values,), np.uint32)
    assert (ballot == (values << THREADS).sum()).all()
    for mode, want in (("any", values.any()), ("all", values.all())):
        code = base + f"vote.sync.{mode}.pred %p2, %p1, -1; selp.b32 %r20, 1, 0, %p2;"
        assert (elementwise(code, (values,), np.uint32) == want).all()
    elected = elementwise("elect.sync %r30|%p1, -1; selp.b32 %r20, 1, 0, %p1;", (values,), np.uint32)
    assert elected.tolist() == [1] + [0] * 31


ROLES = """
    shr.u32 %r1, %r0, 5; mov.b32 %r2, smem; shl.b32 %r3, %r0, 2; add.s32 %r4, %r2, %r3;
    setp.eq.u32 %p1, %r1, 0; @%p1 bra PRODUCER;
    bar.sync 1, 64;
    ld.shared.b32 %r5, [%r4+-128]; add.s32 %r5, %r5, 1; bra.uni STORE;
PRODUCER:
    mul.lo.s32 %r5, %r0, 10; st.shared.b32 [%r4], %r5;
    bar.sync 1, 64;
STORE:
    mov.u32 %r6, %ctaid.x; shl.b32 %r7, %r6, 6; add.s32 %r7, %r7, %r0; mul.wide.u32 %rd1, %r7, 4;
    add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r5;
"""


@pytest.mark.parametrize("schedule", ["in_order", *(f"adversarial({s})" for s in range(4))])
def test_warp_roles_meet_at_a_named_barrier(schedule):
    out = np.zeros((3, 64), np.uint32)
    result = run(kernel(ROLES, "out", 64, shared=256), out, grid=(3, 1, 1), schedule=schedule)
    assert (out == np.concatenate([10 * THREADS, 10 * THREADS + 1])).all()
    assert result.schedule == schedule and result.ctas == 3 and result.instructions > 0


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)", "adversarial(2)"])
def test_warps_may_name_their_barriers_by_a_register(schedule):
    body = """shr.u32 %r1, %r0, 6; add.s32 %r2, %r1, 3; shl.b32 %r3, %r0, 2; add.s32 %r3, %r3, smem;
    xor.b32 %r4, %r0, 32; shl.b32 %r5, %r4, 2; add.s32 %r5, %r5, smem; st.shared.b32 [%r3], %r0; bar.sync %r2, 64;
    ld.shared.b32 %r6, [%r5]; mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd10, %rd0; st.global.b32 [%rd11], %r6;"""
    out = np.zeros(128, np.uint32)
    run(kernel(body, "out", 128, shared=512), out, schedule=schedule, races=True)
    assert (out == np.arange(128) ^ 32).all()
    with pytest.raises(interpreter.BarrierError, match="differ between the lanes of a warp"):
        run(kernel("bar.sync %r0, 128;", "out", 128), out, schedule=schedule)


ARRIVE = """shr.u32 %r1, %r0, 5; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 1; add.u32 %r2, %r1, 1;
    {arrive} @!%p1 bra E; bar.sync 1, {count}; E:"""
FIRST_THREE = ["in_order", "adversarial(0)", "adversarial(1)"]


def arriving(arrive, threads, count=64, schedule="in_order"):
    body = ARRIVE.format(arrive=arrive, count=count)
    return run(kernel(body, "out", threads), np.zeros(1, np.uint32), schedule=schedule, races=True)


@pytest.mark.parametrize("schedule", FIRST_THREE)
@pytest.mark.parametrize(
    "arrive",
    ["@!%p2 bra X; bar.arrive 1, 64; X:", "@%p2 barrier.arrive.aligned 1, 64;", "@!%p1 bar.arrive %r1, 64;"],
)
def test_only_warps_that_execute_an_arrival_are_counted_at_the_barrier_that_each_names(arrive, schedule):
    arriving(arrive, 64, schedule=schedule)
    if "%r1" in arrive:  # a third warp arrives elsewhere
        arriving(arrive, 96, schedule=schedule)
        return
    with pytest.raises(interpreter.DeadlockError, match="32 of 96 threads are missing"):
        arriving(arrive.replace("64", "96"), 96, 96, schedule=schedule)


def test_an_arrival_that_no_warp_executes_is_none():
    with pytest.raises(interpreter.DeadlockError, match="32 of 64 threads are missing"):
        arriving("setp.ne.u32 %p3, %r0, %r0; @%p3 bar.arrive 1, 64;", 64)


@pytest.mark.parametrize("count", [0, 63, 100, 4096])
@pytest.mark.parametrize("op", ["bar.arrive", "bar.sync"])
def test_a_barrier_expects_whole_warps_of_its_cta(op, count):
    with pytest.raises(interpreter.BarrierError, match=f"{op} 1, {count}.*expects {count} threads, .*up to the CTA's"):
        run(kernel(f"{op} 1, {count};", "out", 64), np.zeros(1, np.uint32))


def test_lanes_of_a_warp_arrive_together_and_at_one_barrier():
    with pytest.raises(interpreter.BarrierError, match="operands that differ between the lanes"):
        arriving("and.b32 %r3, %r0, 1; bar.arrive %r3, 64;", 64)
    with pytest.raises(interpreter.DivergenceError, match="apart at '@%p3 bar.arrive"):
        arriving("setp.lt.u32 %p3, %r0, 40; @%p3 bar.arrive 1, 64;", 64)


def test_lanes_may_not_part_at_a_uniform_branch():
    code = "setp.lt.u32 %p1, %r10, {}; mov.b32 %r20, 1; @%p1 bra.uni E; mov.b32 %r20, 2; E:"
    assert (elementwise(code.format(32), (THREADS,), np.uint32) == 1).all()
    nested = "setp.lt.u32 %p2, %r10, 8; @%p2 bra F; " + code.format(16) + " F:"
    for divergent in (code.format(16), nested):
        with pytest.raises(interpreter.DivergenceError, match="Lanes of one warp part.*bra.uni E"):
            elementwise(divergent, (THREADS,), np.uint32)


def test_lanes_may_not_part_in_front_of_a_barrier():
    body = "setp.lt.u32 %p1, %r0, 5; @%p1 bra SKIP; bar.sync 0; SKIP:"
    with pytest.raises(interpreter.DivergenceError, match=r"Lanes of one warp part .* CTA \(0, 0, 0\), warp 0"):
        run(kernel(body, "out"), np.zeros(4, np.uint32))


def test_a_matrix_load_needs_the_whole_warp():
    body = """mov.b32 %r1, smem; setp.lt.u32 %p1, %r0, 5; @%p1 bra SKIP;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1]; SKIP:"""
    with pytest.raises(interpreter.DivergenceError, match="apart at 'ldmatrix"):
        run(kernel(body, "out", shared=128), np.zeros(4, np.uint32))


def test_a_grid_of_many_chunks_runs_every_cta():
    body = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mad.lo.s32 %r4, %r2, %r3, %r1;
    shl.b32 %r5, %r4, 5; add.s32 %r5, %r5, %r0; mul.wide.u32 %rd1, %r5, 4; add.s64 %rd2, %rd0, %rd1;
    st.global.b32 [%rd2], %r5;"""
    out = np.zeros(300 * 3 * 32, np.uint32)
    run(kernel(body, "out"), out, grid=(300, 3, 1))
    assert (out == np.arange(out.size)).all()
