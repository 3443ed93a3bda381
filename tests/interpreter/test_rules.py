"""Programs that break a rule of mbarriers, addresses or the language end in one sentence; flags may be waited for."""

import numpy as np
import pytest

from skinny_gemm import interpreter
from tests.interpreter.programs import kernel, run
from tests.support.clusters import SYNC, launch

INIT = """mov.b32 %r5, smem; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r5+512], 1; bar.sync 0;"""
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [{at}], {parity}; @!%p2 bra W;"
BROKEN = {
    "store over a barrier": (INIT + "@%p1 st.shared.b32 [%r5+516], 0;", "BarrierError", "overwrites the mbarrier"),
    "vector over a barrier": (
        INIT + "@%p1 st.shared.v4.b32 [%r5+512], {%r0, %r0, %r0, %r0};", "BarrierError", "overwrites the mbarrier"
    ),
    "remote store over a barrier": (
        INIT + SYNC + "mapa.shared::cluster.u32 %r6, %r5, 1; @%p1 st.shared::cluster.b32 [%r6+512], 0;" + SYNC,
        "BarrierError", "overwrites the mbarrier",
    ),
    "second init": (INIT + "@%p1 mbarrier.init.shared.b64 [%r5+512], 1;", "BarrierError", "without mbarrier.inval"),
    "parity 2": (INIT + WAIT.format(at="%r5+512", parity=2), "BarrierError", "A parity is 0 or 1, not 2"),
    "no arrivals": (INIT + "mbarrier.arrive.shared.b64 %rd9, [%r5+512], 0;", "BarrierError", "at least 1, not 0"),
    "float rank": ("mapa.shared::cluster.u32 %r6, %r3, 0f3F800000;", "UnsupportedInstruction", "mapa"),
    "negative rank": (
        "mapa.shared::cluster.u32 %r6, %r3, -1; ld.shared::cluster.b32 %r7, [%r6];", "MemoryAccessError",
        "of CTA rank below 0, outside the cluster",
    ),
    "uninitialised rank": (
        "mapa.shared::cluster.u32 %r6, %r3, %r50; ld.shared::cluster.b32 %r7, [%r6];", "PoisonError", "the address"
    ),
    "uninitialised barrier": ("mbarrier.arrive.shared.b64 %rd9, [%r50];", "PoisonError", "the address"),
    "uninitialised barrier of a wait": (WAIT.format(at="%r50", parity=0), "PoisonError", "the address"),
    "no semicolon": ("mov.b32 %r6, 0\nmov.b32 %r7, 0;", "PtxSyntaxError", "no semicolon ends 'mov.b32 %r6, 0'"),
    "stray brace": ("}", "PtxSyntaxError", "A closing brace is too many"),
    "register without a type": (".reg %x;", "PtxSyntaxError", "register declaration '.reg %x'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_rule_is_one_sentence(case):
    body, kind, message = BROKEN[case]
    with pytest.raises(getattr(interpreter, kind), match=message):
        launch(body)


def test_an_unknown_peer_is_named_as_written():
    with pytest.raises(interpreter.RaceError, match=r"^Warp 0 of CTA rank \d reads in .*%r6.* \(PTX line \d+\)"):
        launch(
            "mapa.shared::cluster.u32 %r6, %r3, 1; ld.shared::cluster.b32 %R7, [%r6];".replace("%R", "%r"), races=True
        )


def test_a_barrier_may_be_initialised_and_overwritten_after_inval():
    inval = "bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%r5+512]; bar.sync 0;"
    launch(f"{INIT} {inval} @%p1 st.shared.b32 [%r5+512], 0; @%p1 mbarrier.init.shared.b64 [%r5+512], 2;", races=True)


@pytest.mark.parametrize("schedule", ["in_order", "adversarial(1)", "adversarial(2)"])
def test_a_flag_that_another_cta_or_warp_sets_is_waited_for(schedule):
    spin = "L: ld.volatile.shared.b32 %r9, [smem]; setp.ne.u32 %p3, %r9, 1; @%p3 bra L;"
    zero = "setp.eq.u32 %p1, %r0, 0; mov.b32 %r5, smem; @%p1 st.shared.b32 [smem], 0;"
    launch(f"{zero} bar.sync 0; setp.lt.u32 %p2, %r0, 32; @%p2 bra A; st.volatile.shared.b32 [smem], 1; bra E; "
           f"A: {spin} E: bar.sync 0;", threads=64, schedule=schedule)  # fmt: skip
    launch(f"{zero} {SYNC} setp.eq.u32 %p2, %r1, 0; @%p2 bra A; mapa.shared::cluster.u32 %r6, %r5, 0;"
           f"st.shared::cluster.b32 [%r6], 1; bra E; A: {spin} E: {SYNC}", schedule=schedule)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": (2.5, 1, 1)}, r"grid \(2.5, 1, 1\) must be three positive integers"),
        ({"grid": None}, "grid None must be three positive integers"),
        ({"schedule": "adversarial(²)"}, "schedule .* must be"),
        ({"races": "ab"}, "races 'ab' must be True or"),
        ({"races": 0.5}, "races 0.5 must be True or"),
    ],
)
def test_options_that_do_not_fit_are_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        run(kernel("", "out"), np.zeros(4, np.uint32), **options)


def test_seeds_are_integers_of_any_make():
    assert interpreter.adversarial(np.int64(3)).name == "adversarial(3)"
    with pytest.raises(ValueError, match="seed is True, but must be an integer"):
        interpreter.adversarial(True)
