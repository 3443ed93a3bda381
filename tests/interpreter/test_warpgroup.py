"""`wgmma` multiplies what the PTX ISA says its descriptors name, and every misuse of it is reported.

- the product of any N and swizzle, laid out as the ISA's figures draw it, is NumPy's, in the ISA's accumulators;
- signs, scale-d, chains of steps, moves of accumulators and several warpgroups in a CTA;
- a ring of copies that feeds wgmma gives the same bits under any schedule, and has no race;
- without one of its fences, waits or barriers it has one, and without its wait it multiplies other bytes;
- accumulators in use, warps that are apart and what is not executed are refused in words.
"""

import itertools

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import kernel, run
from tests.support.warpgroups import (
    COMMIT,
    FENCE,
    PUBLISH,
    WAIT,
    assert_close,
    copies_in,
    declared,
    descriptor,
    exact,
    launch,
    operands,
    placed,
    product,
    stores,
    whole_product,
)


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize(("n", "width"), [*itertools.product((8, 48, 256), (16, 32, 64, 128)), (96, 128), (200, 64)])
def test_a_product_is_that_of_the_matrices_which_the_descriptors_name(n, width, kind):
    body, image, want = whole_product(n, width, kind)
    assert_close(launch(body, image, n)[0], want)
    assert_close(launch(body, image, n, schedule="adversarial(1)", races=True)[0], want)


@pytest.mark.parametrize(("signs", "sign"), [("1, -1", -1), ("-1, 1", -1), ("-1, -1", 1)])
def test_a_sign_negates_a_product_and_not_its_accumulator(signs, sign):
    a, b = operands(16, 32)
    image = np.concatenate([placed(a, 64), placed(b, 64)])
    steps = [product(16, descriptor(0, 64, 32, s), descriptor(4096, 64, 32, s), s, "bf16", (signs, "1, 1")[s])
             for s in (0, 1)]  # fmt: skip
    body = " ".join([copies_in(image.size), PUBLISH, FENCE, *steps, COMMIT, WAIT, stores(16)])
    assert_close(launch(body, image, 16)[0], sign * exact(a[:, :16], b[:, :16]) + exact(a[:, 16:], b[:, 16:]))


def turns(count: int, between: str) -> list[str]:
    """Products of a 64x16 and a 16x16 operand, `between` one and the next."""
    one = product(16, descriptor(0, 32, 16), descriptor(2048, 32, 16))
    return [f"{FENCE} {one} {COMMIT} {WAIT} {between}"] * count


MOVES = " ".join(f"mov.f32 %b{v}, %a{v}; mov.f32 %a{v}, 0f7FC00000; mov.f32 %a{v}, %b{v};" for v in range(8))
ADDS = " ".join(f"add.f32 %a{v}, %a{v}, 0f00000000;" for v in range(8))


@pytest.mark.parametrize("between", ["", MOVES, ADDS], ids=["nothing", "moves", "arithmetic"])
def test_an_accumulator_goes_on_from_what_its_registers_hold(between):
    a, b = operands(16, 16)
    image = np.concatenate([placed(a, 32), placed(b, 32)])
    start = " ".join(f"mov.f32 %a{v}, 0f40E00000;" for v in range(8))
    body = " ".join([copies_in(image.size), PUBLISH, start, *turns(3, between), stores(16)])
    assert_close(launch(body, image, 16)[0], 3 * exact(a, b) + 7)


def test_a_finished_product_keeps_its_value_when_another_goes_on_from_it():
    a, b = operands(16, 16)
    image = np.concatenate([placed(a, 32), placed(b, 32)])
    start = " ".join(f"mov.f32 %a{v}, 0f00000000;" for v in range(8))
    copy, back = (" ".join(f"mov.f32 %{to}{v}, %{source}{v};" for v in range(8)) for to, source in ("ba", "ab"))
    body = [copies_in(image.size), PUBLISH, start, *turns(1, copy), *turns(1, back), stores(16)]
    assert_close(launch(" ".join(body), image, 16)[0], exact(a, b))


def test_scale_d_is_a_predicate_of_the_run():
    a, b = operands(16, 16)
    image = np.concatenate([placed(a, 32), placed(b, 32)])
    start = " ".join(f"mov.f32 %a{v}, 0f40E00000;" for v in range(8))
    one = product(16, descriptor(0, 32, 16), descriptor(2048, 32, 16), "%r5")
    for block in (0, 1):
        body = f"mov.u32 %r5, %ctaid.x; {copies_in(image.size)} {PUBLISH} {start} {FENCE} {one} {COMMIT} {WAIT}"
        body += f"setp.ne.u32 %p1, %r5, {block}; @%p1 ret; {stores(16)}"
        assert_close(launch(body, image, 16, grid=(2, 1, 1))[0], exact(a, b) + 7 * block)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(0)", "adversarial(1)"])
def test_every_warpgroup_multiplies_what_its_own_descriptors_name(schedule):
    parts = [operands(24, 32, seed=seed) for seed in range(2)]
    image = np.concatenate([np.pad(placed(x, 64), (0, -64 * len(x) % 1024)) for part in parts for x in part])
    apart = image.size // 2 // 16
    body = f"""shr.u32 %r5, %r0, 7; mul.wide.u32 %rd5, %r5, {apart};
    add.s64 %rd6, %rd5, {descriptor(0, 64, 32)}; add.s64 %rd7, %rd5, {descriptor(4096, 64, 32)};
    add.s64 %rd8, %rd6, 2; add.s64 %rd9, %rd7, 2;"""
    steps = product(24, "%rd6", "%rd7", 0) + product(24, "%rd8", "%rd9")
    whole = [copies_in(-(-image.size // 4096) * 4096, 256), PUBLISH, body, FENCE, steps, COMMIT, WAIT, stores(24, 256)]
    result = launch(" ".join(whole), image, 24, 256, schedule=schedule, races=True)
    for i, (a, b) in enumerate(parts):
        assert_close(result[i], exact(a, b))
    one = f"setp.lt.u32 %p1, %r0, 128; @%p1 bra OVER; {' '.join([FENCE, steps, COMMIT, WAIT])} OVER: {stores(24, 256)}"
    zeros = " ".join(f"mov.f32 %a{v}, 0f00000000;" for v in range(12))
    result = launch(" ".join([*whole[:3], zeros, one]), image, 24, 256, schedule=schedule, races=True)
    assert_close(result[1], exact(*parts[1]))
    assert not result[0].any()


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(0)", "adversarial(1)"])
@pytest.mark.parametrize("by", ["shr.u32 %r5, %r0, 6;", "mov.u32 %r5, %ctaid.x;"], ids=["warps", "CTAs"])
def test_a_product_in_flight_follows_warps_that_part(by, schedule):
    a, b = operands(16, 16)
    image = np.concatenate([placed(a, 32), placed(b, 32)])
    one = product(16, descriptor(0, 32, 16), descriptor(2048, 32, 16), 0)
    threads = 64 if "shr" in by else 128
    part = f"""{by} setp.eq.u32 %p1, %r5, 0; @%p1 bra FIRST; bar.sync 1, {threads}; bra BOTH;
    FIRST: bar.sync 2, {threads}; BOTH:"""
    body = " ".join([copies_in(image.size), PUBLISH, FENCE, one, COMMIT, part, WAIT, stores(16)])
    assert_close(launch(body, image, 16, schedule=schedule, races=True, grid=(2, 1, 1))[0], exact(a, b))


# A ring of two stages of 64x64 and 16x64 elements, copied by the threads of the warpgroup that multiplies them

TURNS, STAGE = 4, 64 * 128 + 16 * 128


def ring(last: int = 0) -> str:
    """Each turn publishes its stage, multiplies it, and refills it once `wgmma.wait_group` `last` has been passed."""

    def refill(turn: int) -> str:
        copies = (f"cp.async.cg.shared.global [%r1+{turn % 2 * STAGE + at}], [%rd21+{turn * STAGE + at}], 16;"
                  for at in range(0, STAGE, 2048))  # fmt: skip
        return " ".join(copies) if turn < TURNS else ""

    out = [copies_in(0).removesuffix("cp.async.wait_all;")]
    out += [f"{refill(turn)} cp.async.commit_group;" for turn in (0, 1)]
    for turn in range(TURNS):
        at = turn % 2 * STAGE
        steps = (product(16, descriptor(at, 128, 64, s), descriptor(at + 8192, 128, 64, s), turn + s) for s in range(4))
        wait = WAIT if turn == TURNS - 1 else WAIT.replace("0", str(last))
        out += [
            "cp.async.wait_group 1;",
            "fence.proxy.async;",
            "bar.sync 0;",
            FENCE,
            *steps,
            COMMIT,
            wait,
            "bar.sync 1;",
        ]
        out.append(f"{refill(turn + 2)} cp.async.commit_group;")
    return "\n".join([*out, stores(16)])


@pytest.fixture(scope="module")
def tiles():
    """(the bytes that the ring copies, the result)"""
    parts = [operands(16, 64, seed=seed) for seed in range(TURNS)]
    return np.concatenate([placed(x, 128) for part in parts for x in part]), sum(exact(*part) for part in parts)


def test_a_ring_gives_the_same_bits_under_any_schedule(tiles):
    image, want = tiles
    first = launch(ring(), image, 16, races=True)
    assert_close(first[0], want)
    for seed in range(6):
        assert (launch(ring(), image, 16, races=True, schedule=f"adversarial({seed})") == first).all()
    assert (launch(ring(), image, 16, races=True, cluster=2, schedule="adversarial(0)") == first).all()


SOME = "setp.lt.u32 %p1, %r0, 96; @%p1 fence.proxy.async;"
FIRST_LANES = "and.b32 %r9, %r0, 31; setp.lt.u32 %p1, %r9, 8; @%p1 fence.proxy.async;"
MUTANTS = {
    "no proxy fence": ("fence.proxy.async;", "", "no fence.proxy.async between"),
    "a fence of global memory": ("fence.proxy.async;", "fence.proxy.async.global;", "no fence.proxy.async between"),
    "a proxy fence of some warps": ("fence.proxy.async;", SOME, "warp 3 writes in 'cp.async.* no fence.proxy.async"),
    "a proxy fence of some lanes": ("fence.proxy.async;", FIRST_LANES, "no fence.proxy.async between"),
    "a proxy fence before the copies are there": (
        "cp.async.wait_group 1;\nfence.proxy.async;", "fence.proxy.async; cp.async.wait_group 1;", "no fence.proxy"
    ),
    "a proxy fence of the reader": (
        "fence.proxy.async;\nbar.sync 0;", "bar.sync 0; fence.proxy.async;", "no fence.proxy.async between"
    ),
    "no wait for the copies": ("cp.async.wait_group 1;", "", "an unfinished copy of warp . writes"),
    "no barrier before": ("bar.sync 0;", "", "nothing orders the two"),
    "no barrier after": ("bar.sync 1;", "", "an unfinished wgmma of warp . reads in 'wgmma"),
}  # fmt: skip


@pytest.mark.parametrize("case", MUTANTS)
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(2)"])
def test_a_ring_without_one_of_its_fences_waits_or_barriers_has_a_race(case, schedule, tiles):
    old, new, message = MUTANTS[case]
    assert old in ring()
    with pytest.raises(interpreter.RaceError, match=rf"Race on shared address \d+ of CTA \(0, 0, 0\): .*{message}"):
        launch(ring().replace(old, new), tiles[0], 16, races=True, schedule=schedule, checks=False)


@pytest.mark.parametrize("when", ["bar.sync 0;", "cp.async.wait_group 1;"])
def test_lanes_that_commit_apart_need_the_same_fences(when, tiles):
    """From before the first wait, or after the first fence, half of the lanes have a group more, of no copies."""
    apart = ring().replace(when, f"setp.lt.u32 %p1, %r0, 16; @%p1 cp.async.commit_group; {when}", 1)
    apart = apart.replace("cp.async.wait_group 1;", "cp.async.wait_all;")  # covers the first copies of all lanes
    assert_close(launch(apart, tiles[0], 16, races=True)[0], tiles[1])
    with pytest.raises(interpreter.RaceError, match="writes in 'cp.async.* no fence.proxy.async between"):
        launch(apart.replace("fence.proxy.async;", ""), tiles[0], 16, races=True, checks=False)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(2)"])
@pytest.mark.parametrize("last", [1, 2])
def test_a_stage_that_is_refilled_before_its_wait_is_a_race(last, schedule, tiles):
    with pytest.raises(interpreter.RaceError, match="an unfinished wgmma of warp . reads in .* writes in 'cp.async"):
        launch(ring(last), tiles[0], 16, races=True, schedule=schedule)


def test_a_product_reads_as_late_as_its_wait_allows(tiles):
    image, want = tiles
    assert np.abs(launch(ring(2), image, 16)[0] - want).max() > 1
    assert_close(launch(ring(0), image, 16)[0], want)


STORES = "mov.b32 %r4, 0; shl.b32 %r1, %r0, 5; mov.b32 %r3, smem; add.s32 %r1, %r1, %r3; " + " ".join(
    f"st.shared.v4.b32 [%r1+{at}], {{%r4, %r4, %r4, %r4}};" for at in (0, 16)
)
ZEROS = product(8, descriptor(0, 32, 16), descriptor(2048, 32, 16), 0)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(2)"])
def test_stores_need_a_fence_of_the_lanes_that_store(schedule):
    for store, fence, fine in (
        (STORES, "fence.proxy.async;", True),
        (STORES, "fence.proxy.async.shared::cta;", True),
        (STORES, "", False),
        (STORES, FIRST_LANES, False),
        ("setp.lt.u32 %p1, %r0, 8; @%p1 st.shared.b32 [smem], %r4;", "@%p1 fence.proxy.async;", True),
    ):
        text = " ".join(["mov.b32 %r4, 0;", store, fence, "bar.sync 0;", FENCE, ZEROS, COMMIT, WAIT])
        if fine:
            launch(text, np.zeros(4096, np.uint8), 8, races=True, schedule=schedule)
            continue
        with pytest.raises(interpreter.RaceError, match="writes in 'st.shared.* no fence.proxy.async between"):
            launch(text, np.zeros(4096, np.uint8), 8, races=True, schedule=schedule)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(2)"])
def test_one_lane_may_release_operands_for_its_warp_once_it_has_waited(schedule):
    """The fifth warp overwrites them when an elected lane of each of the four has arrived."""
    body = f"""setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [smem+4088], 4; bar.sync 0;
    setp.ge.u32 %p2, %r0, 128; @%p2 bra WAIT; {FENCE} {ZEROS} {COMMIT} DONE
    and.b32 %r9, %r0, 31; setp.eq.u32 %p3, %r9, 0;
    shl.b32 %r1, %r0, 2; mov.b32 %r3, smem; add.s32 %r1, %r1, %r3; ld.shared.b32 %r2, [%r1+3072];
    @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+4088]; bra END;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [smem+4088], 0; @!%p4 bra WAIT;
    mov.b32 %r4, 0; st.shared.b32 [smem], %r4; END: ret;"""

    def attempt(wait: str) -> None:
        run(
            kernel(declared(8) + body.replace("DONE", wait), "out", 160, shared=4096),
            np.zeros(1),
            races=True,
            schedule=schedule,
        )

    attempt(WAIT)
    with pytest.raises(interpreter.RaceError, match="an unfinished wgmma of warp . reads in .* warp 4 writes"):
        attempt("")


def test_writes_of_the_asynchronous_proxy_need_no_fence():
    a, b = operands(16, 16)
    image = np.concatenate([placed(a, 32), placed(b, 32), np.zeros(1536, np.uint8)])
    copy = """setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [smem+4000], 1; bar.sync 0; @!%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared.b64 %rd20, [smem+4000], 2560;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [smem], [%rd0], 2560, [smem+4000];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [smem+4000], 0; @!%p2 bra WAIT;"""
    one = product(16, descriptor(0, 32, 16), descriptor(2048, 32, 16), 0)
    for schedule in ("in_order", "adversarial(0)"):
        result = launch(f"{copy} {FENCE} {one} {COMMIT} {WAIT} {stores(16)}", image, 16, races=True, schedule=schedule)
        assert_close(result[0], exact(a, b))


def test_a_product_of_uninitialised_shared_memory_may_not_be_stored():
    one = product(8, descriptor(0, 32, 16), descriptor(2048, 32, 16), 0)
    with pytest.raises(interpreter.PoisonError, match="the stored value"):
        launch(" ".join([FENCE, one, COMMIT, WAIT, stores(8)]), np.zeros(4096, np.uint8), 8)


# Misuse

ONE = product(16, descriptor(0, 32, 16), descriptor(2048, 32, 16), 0)
LAST = [COMMIT, WAIT, stores(16)]
BY_WARP = f"and.b32 %r5, %r0, {{}}; mul.wide.u32 %rd5, %r5, 1; add.s64 %rd6, %rd5, {descriptor(0, 32, 16)};"
OTHER = product(16, "%rd6", descriptor(2048, 32, 16), 0)
THIRD = "shr.u32 %r5, %r0, 5; setp.eq.u32 %p1, %r5, 3; @%p1 bra OVER;"
MISUSES = {
    "no fence at all": ([ONE, *LAST], "No wgmma.fence lies"),
    "no fence after a write": ([FENCE, "mov.f32 %a3, 0f00000000;", ONE, *LAST], "No wgmma.fence lies"),
    "no fence after a read": ([FENCE, ONE, COMMIT, WAIT, "add.f32 %f1, %a3, %a3;", ONE, *LAST], "No wgmma.fence lies"),
    "a read before the wait": ([FENCE, ONE, COMMIT, "add.f32 %f1, %a3, %a3;", WAIT], r"is used.*'add.f32 %f1"),
    "a move before the wait": ([FENCE, ONE, "mov.f32 %f1, %a7;", *LAST], "A register of an accumulator is used"),
    "a read on both sides": (["add.f32 %f1, %a3, %a3;", FENCE, ONE, COMMIT, "add.f32 %f1, %a3, %a3;", WAIT], "is used"),
    "a write before the wait": ([FENCE, ONE, COMMIT, "mov.f32 %a3, 0f00000000;", WAIT], "is used, and no wgmma.wait"),
    "a wait for too few": ([FENCE, ONE, COMMIT, WAIT.replace("0", "1"), stores(16)], "is used.*'st.global"),
    "a wait without a commit": ([FENCE, ONE, WAIT, stores(16)], "A register of an accumulator is used"),
    "another shape in flight": (
        [FENCE, ONE, product(8, descriptor(0, 32, 16), descriptor(2048, 32, 16), 0), *LAST], "A register .* is used"
    ),
    "three warps of four": ([THIRD, FENCE, ONE, COMMIT, WAIT, "OVER: ret;"], "they executed 1, 1, 1, 0 of them.* none"),
    "other descriptors by warp": ([BY_WARP.format(32), FENCE, OTHER, *LAST], "Warps 0 to 3 of CTA .* are a warpgroup"),
    "other descriptors by lane": ([BY_WARP.format(1), FENCE, OTHER, *LAST], "Lanes of one warp differ in a matrix"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISUSES)
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(0)", "adversarial(1)"])
def test_misuse_is_reported_in_words(case, schedule):
    body, message = MISUSES[case]
    image = np.zeros(4096, np.uint8)
    with pytest.raises(interpreter.WarpgroupError, match=message):
        launch(" ".join([copies_in(4096), PUBLISH, *body]), image, 16, schedule=schedule)


def test_a_branch_around_a_product_may_part_warps_but_not_lanes():
    body = f"setp.lt.u32 %p1, %r0, 16; @%p1 bra OVER; {FENCE} {ONE} {COMMIT} {WAIT} OVER: ret;"
    with pytest.raises(interpreter.DivergenceError, match="Lanes of one warp part"):
        launch(body, np.zeros(4096, np.uint8), 16)


def test_a_warpgroup_is_four_warps():
    text = f"{declared(16)} {copies_in(4096, 64)} {PUBLISH} {FENCE} {ONE} {COMMIT} {WAIT}"
    with pytest.raises(interpreter.WarpgroupError, match="A warpgroup is 4 warps, and the last of the CTA's 2 belong"):
        run(kernel(text, threads=64, shared=4096), np.zeros(4096, np.uint8), np.zeros(1))


BAD = {
    "base offset": (descriptor(0, 32, 16) | 1 << 49, interpreter.UnsupportedInstruction, "has a base offset"),
    "reserved bits": (descriptor(0, 32, 16) | 1 << 52, interpreter.UnsupportedInstruction, "has reserved bits"),
    "out of bounds": (descriptor(4096 - 512, 32, 16), interpreter.MemoryAccessError, "past the CTA's 4096 bytes"),
    "below": (descriptor(-512, 32, 16), interpreter.MemoryAccessError, "512 bytes before the CTA's shared memory"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_descriptor_is_refused(case):
    value, error, message = BAD[case]
    body = [copies_in(4096), PUBLISH, FENCE, product(16, value, descriptor(2048, 32, 16), 0), *LAST]
    with pytest.raises(error, match=f"{message}.*wgmma.mma_async.*PTX line"):
        launch(" ".join(body), np.zeros(4096, np.uint8), 16)


OPCODE = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


@pytest.mark.parametrize(
    "text",
    [
        f"{OPCODE} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 1, 1, 1, 0;",
        f"{OPCODE} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 1, 1, 0, 1;",
        f"{OPCODE} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 2, 1, 0, 0;",
        f"{OPCODE} {{%f1, %f2, %f3, %f4}}, {{%r1, %r2, %r3, %r4}}, %rd2, 1, 1, 1, 0;",
        f"{OPCODE} {{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        f"@%p1 {OPCODE} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        f"{OPCODE.replace('n8', 'n12')} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        f"{OPCODE.replace('n8', 'n264')} {{%f1, %f2, %f3, %f4}}, %rd1, %rd2, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1;",
        "@%p1 wgmma.wait_group.sync.aligned 0;",
    ],
)
def test_a_form_that_is_not_executed_is_refused_by_name(text):
    with pytest.raises(interpreter.UnsupportedInstruction, match="PTX line .* does not execute 'wgmma"):
        run(kernel(text, "out", threads=128), np.zeros(1, np.uint32))


def test_a_trace_counts_a_product_as_an_access_without_banks():
    body = " ".join([copies_in(4096), PUBLISH, FENCE, ONE, COMMIT, WAIT, stores(16)])
    trace = interpreter.Trace(("wgmma.mma_async", "cp.async.cg"))
    launch(body, np.zeros(4096, np.uint8), 16, trace=trace)
    table = trace.table()
    products = table[table.opcode.str.startswith("wgmma")]
    assert len(products) == 4 and (products.space == "shared").all() and products.addresses.isna().all()
    assert set(interpreter.shared_accesses(table).opcode) == {"cp.async.cg.shared.global"}
