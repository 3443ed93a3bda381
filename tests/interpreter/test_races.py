"""The race detector finds, in one run in any order, every pair of accesses that nothing orders, and no other."""

import dataclasses

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import SMALL, WIDE, Eager, Gemm, compiled, kernel, mutants, run

ADDRESSES = """shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; mov.b32 %r3, smem; shl.b32 %r4, %r2, 4; add.s32 %r5, %r3, %r4;
    mul.wide.u32 %rd10, %r2, 16; add.s64 %rd11, %rd10, %rd0; setp.ne.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r1, 0;"""
COPY = "cp.async.cg.shared.global [%r5], [%rd11], 16;"
WRITE, READ = "st.shared.b32 [%r5], %r0;", "ld.shared.b32 %r9, [%r5];"

BARRIERS = """setp.eq.u32 %p5, %r0, 0; setp.eq.u32 %p4, %r2, 0; @%p5 mbarrier.init.shared.b64 [smem+520], 1;
    bar.sync 0;"""
WAIT = "TRY: mbarrier.try_wait.parity.shared.b64 %p6, [smem+520], 0; @!%p6 bra TRY;"


def watch(body, threads=64, schedule="in_order"):
    source, out = np.zeros(128, np.uint32), np.zeros(1, np.uint32)
    run(kernel(ADDRESSES + body, threads=threads, shared=1024), source, out, races=True, schedule=schedule)


LANES = "setp.eq.u32 %p3, %r0, 0; setp.lt.u32 %p7, %r0, 16; setp.lt.u32 %p8, %r2, 16;"
TIE, WAIT_ALL, COMMIT = "cp.async.mbarrier.arrive.noinc.shared.b64", "cp.async.wait_all;", "cp.async.commit_group;"
HAND_OVER = f"""{BARRIERS} {LANES} @%p2 bra FILL; {WAIT} @%p8 {READ} bra END;
    FILL: {{}} @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520]; END: ret;"""
HALVES = f"""{LANES} @%p3 mbarrier.init.shared.b64 [smem+520], 16; @%p3 mbarrier.init.shared.b64 [smem+528], 16;
    bar.sync 0; @%p1 bra USE; {COPY} @!%p7 bra REST; {TIE} [smem+520]; bra END; REST: {TIE} [smem+528]; bra END;
    USE: {WAIT} {{}} {READ} END: ret;"""
SYNCED = f"@%p2 {WRITE} bar.warp.sync -1;"
HALF = "st.shared.b16 [%r5], %r1;"  # by each warp its number; finer than a word
RACES = {
    "write and read": f"@%p2 {WRITE} @%p1 {READ}",
    "two writes": WRITE,
    "read, then write": f"@%p1 {READ} @%p2 {WRITE}",
    "write after the barrier's other side": f"@%p2 {WRITE} bar.sync 0; @%p1 {READ} @%p2 {WRITE}",
    "copy and read": f"@%p2 {COPY} bar.sync 0; @%p1 {READ}",
    "copy, own read": f"@%p2 {COPY} @%p2 {READ} cp.async.wait_all;",
    "two copies": f"@%p2 {COPY} cp.async.commit_group; @%p2 {COPY} cp.async.wait_all;",
    "copy over a read": f"@%p1 {READ} @%p2 {COPY} cp.async.wait_all;",
    "use of a barrier that is being initialised": """@%p1 bra USE; mbarrier.init.shared.b64 [smem+512], 64; USE:
        mbarrier.arrive.shared.b64 %rd20, [smem+512];""",
    "elected arrival without a warp sync": f"""{BARRIERS} @%p2 bra LOAD; {READ} setp.eq.u32 %p3, %r2, 0;
        @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520]; bra END; LOAD: {WAIT} {WRITE} END: ret;""",
    "a word between two lanes": f"@%p2 {WRITE} xor.b32 %r5, %r5, 16; @%p2 {READ}",
    "a word that another lane may still read": f"{SYNCED} @%p2 {READ} xor.b32 %r5, %r5, 16; @%p2 {WRITE}",
    "a copy over a word that another lane may still read": f"@%p2 {READ} xor.b32 %r5, %r5, 16; @%p2 {COPY}"
    "cp.async.wait_all;",
    "a word that one lane writes for all": "setp.eq.u32 %p3, %r0, 0; @%p3 st.shared.b32 [smem], %r0;"
    "@%p2 ld.shared.b32 %r9, [smem];",
    "lanes of one store": "@%p2 st.shared.b32 [smem], %r0;",
    "a barrier that another warp waits for, invalidated": f"""{BARRIERS}
        @%p5 mbarrier.arrive.shared.b64 %rd20, [smem+520]; {WAIT} @%p5 mbarrier.inval.shared.b64 [smem+520];""",
    "copies of lanes that have not waited": f"{LANES} @%p2 {COPY} {COMMIT} @%p7 cp.async.wait_group 0; bar.sync 0;"
    f"@%p1 {READ}",
    "one's own copy, for which another lane has waited": f"{LANES} @%p2 {COPY} @%p3 {WAIT_ALL} bar.warp.sync -1;"
    f"@%p2 {READ}",
    "copies of lanes that have not committed": f"{LANES} @%p2 {COPY} @%p7 {COMMIT} cp.async.wait_group 0; bar.sync 0;"
    f"@%p1 {READ}",
    "copies that all lanes wait for and one hands over": HAND_OVER.format(COPY + WAIT_ALL),
    "copies that one lane waits for and hands over": HAND_OVER.format(f"{COPY} @%p3 {WAIT_ALL} bar.warp.sync -1;"),
    "copies of the lanes that arrive at another mbarrier": HALVES.format("@!%p8"),
    "a copy that arrives at an mbarrier, uncommitted": f"{BARRIERS} @%p2 {COPY} @%p2 {TIE} [smem+520];"
    f"cp.async.wait_group 0; @%p2 {READ}",
    "a group before copies that arrive at an mbarrier": f"{BARRIERS} @%p2 {COPY} {COMMIT} @%p2 {TIE} [smem+520];"
    f"cp.async.wait_group 1; @%p2 {READ}",
    "a copy of another lane": f"@%p2 {COPY} cp.async.wait_all; xor.b32 %r5, %r5, 16; @%p2 {READ}",
}
ORDERED = {
    "elected arrival after a warp sync": f"""{BARRIERS} @%p2 bra LOAD; {READ} setp.eq.u32 %p3, %r2, 0;
        bar.warp.sync -1; @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520]; bra END; LOAD: {WAIT} {WRITE} END: ret;""",
    "elected arrival of the only lane that read": f"""{BARRIERS} @%p2 bra LOAD; setp.eq.u32 %p3, %r2, 0; @%p3 {READ}
        @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520]; bra END; LOAD: {WAIT} @%p4 {WRITE} END: ret;""",
    "a word between two lanes, synchronised": f"{SYNCED} xor.b32 %r6, %r5, 16; @%p2 ld.shared.b32 %r9, [%r6];"
    + f"bar.warp.sync -1; @%p2 {WRITE}",
    "a copy over a word that another lane has read, synchronised": f"@%p2 {READ} bar.warp.sync -1;"
    f"xor.b32 %r5, %r5, 16; @%p2 {COPY} cp.async.wait_all;",
    "a copy over one's own read": f"@%p2 {READ} @%p2 {COPY} cp.async.wait_all;",
    "a word that several lanes read": f"{SYNCED} @%p2 ld.shared.b32 %r9, [smem]; bar.warp.sync -1; @%p2 {WRITE}",
    "a word that one lane reads again and writes": f"""{SYNCED} @%p2 ld.shared.b32 %r9, [smem]; bar.warp.sync -1;
        setp.eq.u32 %p3, %r0, 0; @%p3 ld.shared.b32 %r9, [smem]; @%p3 st.shared.b32 [smem], %r0;""",
    "read of one's own copy": f"@%p2 {COPY} cp.async.wait_all; @%p2 {READ} @%p2 {WRITE}",
    "read of one's own write": f"@%p2 {WRITE} @%p2 {READ} @%p2 {WRITE}",
    "barrier between": f"@%p2 {WRITE} bar.sync 0; @%p1 {READ} bar.sync 0; @%p2 {WRITE}",
    "reads only": READ + READ,
    "one value from all lanes": "@%p2 st.shared.b32 [smem], %r1;",
    "a barrier invalidated after all have waited": f"""{BARRIERS} @%p5 mbarrier.arrive.shared.b64 %rd20, [smem+520];
        {WAIT} bar.sync 0; @%p5 mbarrier.inval.shared.b64 [smem+520];""",
    "neighbouring words": "shl.b32 %r6, %r1, 2; add.s32 %r5, %r5, %r6;" + WRITE + READ,
    "neighbouring halves of a word": f"shl.b32 %r6, %r1, 1; add.s32 %r5, %r5, %r6; {HALF}",
    "copies of the lanes that have waited": f"{LANES} @%p2 {COPY} {COMMIT} @%p7 cp.async.wait_group 0; bar.sync 0;"
    f"@%p1 bra HALF; bra END; HALF: @%p8 {READ} END:",
    "one's own copy, for which one has waited": f"{LANES} @%p2 {COPY} @%p3 {WAIT_ALL} @%p3 {READ}",
    "copies that all lanes wait for, meet and one hands over": HAND_OVER.format(f"{COPY} {WAIT_ALL} bar.warp.sync -1;"),
    "copies of some lanes, of which all have waited": HAND_OVER.format(
        f"@%p7 {COPY} @%p7 {WAIT_ALL} bar.warp.sync -1;"
    ),
    "the only copy, which its lane hands over": f"""{BARRIERS} {LANES} @%p2 bra FILL; {WAIT} @%p4 {READ} bra END;
        FILL: @%p3 {COPY} {WAIT_ALL} @%p3 mbarrier.arrive.shared.b64 %rd20, [smem+520]; END: ret;""",
    "copies of the lanes that arrive at this mbarrier": HALVES.format("@%p8"),
    "a group that also arrives at an mbarrier": f"{BARRIERS} @%p2 {COPY} {COMMIT} @%p2 {TIE} [smem+520];"
    f"cp.async.wait_group 0; @%p2 {READ}",
    "a copy for which all waited before their lanes part": f"{LANES} @%p2 {COPY} {WAIT_ALL} @%p7 {COMMIT} @%p2 {READ}",
    "a copy over a finished one, in flight as lanes part": f"{LANES} @%p2 {COPY} {WAIT_ALL} @%p2 {COPY} @%p7 {COMMIT}"
    f"{WAIT_ALL} @%p2 {READ}",
    "copies over one's own finished ones, by lanes apart": f"{LANES} @%p2 {COPY} @%p7 {WAIT_ALL} @%p7 {COPY}"
    f"{WAIT_ALL} bar.sync 0; @%p1 {READ}",
    "copy, wait, barrier": f"@%p2 {COPY} cp.async.wait_all; bar.sync 0; @%p1 {READ}",
    "copies into two stages": f"""@%p2 {COPY} cp.async.commit_group; add.s32 %r6, %r5, 512;
        @%p2 cp.async.cg.shared.global [%r6], [%rd11], 16; cp.async.commit_group; cp.async.wait_group 1;
        bar.sync 0; @%p1 {READ}""",
}
RACES["one half of a word"] = HALF


@pytest.mark.parametrize("case", RACES)
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)", Eager()])
def test_what_nothing_orders_is_a_race(case, schedule):
    with pytest.raises(interpreter.RaceError, match=r"Race on shared address \d+ of CTA \(0, 0, 0\): .*PTX line"):
        watch(RACES[case], schedule=schedule)


@pytest.mark.parametrize("case", ORDERED)
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)", Eager()])
def test_what_is_ordered_is_none(case, schedule):
    watch(ORDERED[case], schedule=schedule)


def test_a_race_names_both_instructions():
    with pytest.raises(interpreter.RaceError) as error:
        watch(f"@%p2 {COPY} bar.sync 0; @%p1 {READ}")
    message = str(error.value)
    assert "an unfinished copy of warp 0 writes in '@%p2 cp.async" in message
    assert "warp 1 reads in '@%p1 ld.shared.b32" in message


@pytest.mark.parametrize("case", [SMALL, WIDE], ids=lambda c: c[2])
@pytest.mark.parametrize("schedule", ["in_order", "adversarial(0)", "adversarial(1)", "adversarial(2)"])
def test_the_shipped_kernel_has_no_race(case, schedule):
    program, tactic = compiled(*case)
    Gemm(9, *case[:2]).run(program, tactic, races=True, schedule=schedule, preceding=("x",))


@pytest.mark.parametrize("kind", ["wait", "parity", "named barrier", "CTA barrier", "warp sync"])
def test_every_dropped_wait_and_barrier_is_a_race_even_in_order(kind):
    program, tactic = compiled(*SMALL)
    gemm = Gemm(7, *SMALL[:2])
    texts = list(mutants(program.ptx, kind))
    assert texts
    for text in texts:
        with pytest.raises(interpreter.RaceError):
            gemm.run(dataclasses.replace(program, ptx=text), tactic, races=True)


@pytest.mark.parametrize(
    "access",
    ["ld.shared.b32 %r9, [%r6];", "st.shared.b32 [%r6], %r0;", "cp.async.cg.shared.global [%r6], [%rd11], 16;",
     "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r6];",
     "mbarrier.arrive.shared.b64 %rd20, [%r6];"],
)  # fmt: skip
@pytest.mark.parametrize("offset", [-2048, 1 << 20])
def test_an_access_out_of_bounds_is_no_race(access, offset):
    with pytest.raises(interpreter.MemoryAccessError):
        watch(f"add.s32 %r6, %r5, {offset}; {access} cp.async.wait_all;", threads=32)


def test_only_watched_ctas_are_searched():
    body = "mov.u32 %r7, %ctaid.x; setp.eq.u32 %p3, %r7, 1; @%p3 st.shared.b32 [smem], %r7;"
    compiled_ = kernel(body, "out", 64, shared=64)
    for watched, racy in (((0, 2), False), ((1,), True)):
        if racy:
            with pytest.raises(interpreter.RaceError, match=r"of CTA \(1, 0, 0\)"):
                run(compiled_, np.zeros(1), grid=(3, 1, 1), races=watched)
        else:
            run(compiled_, np.zeros(1), grid=(3, 1, 1), races=watched)
    with pytest.raises(ValueError, match="races .* must be True or numbers of CTAs from 0 to 2"):
        run(compiled_, np.zeros(1), grid=(3, 1, 1), races=[3])


def test_reading_ahead_of_the_dependency_wait_is_an_error():
    program, tactic = compiled(*SMALL)
    gemm = Gemm(7, *SMALL[:2])
    mutant = dataclasses.replace(program, ptx=program.ptx.replace("griddepcontrol.wait;", ""))
    gemm.run(mutant, tactic)
    with pytest.raises(interpreter.DependencyError, match=r"Reads x, which the preceding kernel writes.* warp 6"):
        gemm.run(mutant, tactic, preceding=("x",))
    with pytest.raises(interpreter.DependencyError, match="Reads weight"):
        gemm.run(program, tactic, preceding=("weight",))
    with pytest.raises(ValueError, match="preceding names y"):
        gemm.run(program, tactic, preceding=("y",))
