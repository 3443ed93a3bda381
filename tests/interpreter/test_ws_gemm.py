"""The weight-stationary GEMM, from the PTX that its compiler emitted: the same bits under every schedule and transport,
no race in a whole cluster, and no synchronisation of it can be dropped unnoticed."""

import dataclasses
import functools
import re

import numpy as np
import pytest

from skinny_gemm import interpreter
from skinny_gemm.layouts import mailbox
from skinny_gemm.runtime.bfloat16 import from_bits
from tests.interpreter.programs import Front
from tests.support.clusters import traffic

RANK = Front.RANK
SINGLE = (9, "2,2,2,2,0,1")  # one pass, two CTAs per cluster, all weights staged
GROUPS = (33, "1,2,2,1,16,2")  # three token groups over two CTAs; a warp settles more than one block
CASES = [SINGLE, GROUPS]


@functools.cache
def front(m, tactic):
    return Front(m, tactic)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[1])
def test_what_is_published_agrees_with_fp64_and_the_rest_stays_empty(case):
    case = front(*case)
    p, box = case.front, case.run(races=True, preceding=("x",))
    first = mailbox.latent_column(RANK, p.shard, 0)
    latent = from_bits(box[:, first : first + p.shard])
    assert np.abs(latent - case.exact[:, p.split :]).max() < 2**-8 * np.abs(case.exact).max()
    first = mailbox.logit_column(RANK, p.valid, 0, p.latent)
    logits = np.ascontiguousarray(box[:, first : first + 2 * p.valid]).view(np.float32)
    np.testing.assert_allclose(logits, case.exact[:, : p.valid], atol=1e-5)
    assert case.result.written["mailbox"].sum() == p.m * (2 * p.shard + 4 * p.valid)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[1])
def test_every_schedule_publishes_the_same_bits(case):
    case = front(*case)
    expected = case.run()
    for seed in range(6):
        box = case.run(schedule=interpreter.adversarial(seed), races=seed < 2, preceding=("x",))
        assert (box == expected).all(), seed
    assert (case.run(checks=False) == expected).all()


def test_every_transport_publishes_the_same_bits():
    expected = front(*SINGLE).run()
    for options in ({"transport": "peers", "peers": 3}, {"transport": "multicast"}):
        case = Front(*SINGLE, **options)
        boxes = [case.empty() for _ in range(3)]
        case.run(boxes=[interpreter.Multicast(boxes)] if options["transport"] == "multicast" else boxes)
        assert all((box == expected).all() for box in boxes), options


def test_traffic_between_the_ctas_is_what_the_partition_says():
    """Every CTA pushes the parts of each block to its owner: 512 bytes per warp and block."""
    case, trace = front(*GROUPS), interpreter.Trace(("st.async", "cp.async.bulk"), ctas=range(2))
    case.run(trace=trace)
    blocks = {0: 3, 1: 2}  # that each CTA owns
    pushes = {(cta, to, "push"): 2 * 512 * blocks[to] for cta in range(2) for to in range(2)}
    assert traffic(trace.table()) == pushes | {(-1, cta, "bulk"): 33 * 256 * 2 // 2 for cta in range(2)}


MUTATIONS = {
    "cluster arrive": r"barrier\.cluster\.arrive[a-z.]*;",
    "cluster wait": r"barrier\.cluster\.wait[a-z.]*;",
    "CTA barrier": r"bar(rier)?\.(cta\.)?sync[^;]*;",
    "init fence": r"fence\.mbarrier_init[^;]*;",
    "wait": r"\{[^{}]*mbarrier\.try_wait[^}]*\}",
    "scope": r"(mbarrier\.try_wait\.parity)\.acquire\.cluster",
    "expected bytes": r"mbarrier\.arrive\.expect_tx[^;]*;",
    "init": r"mbarrier\.init[^;]*;",
    "wait for copies": r"cp\.async\.wait_group[^;]*;",
    "dependency wait": r"griddepcontrol\.wait;",
    "warp sync": r"bar\.warp\.sync[^;]*;",
}
PLACES = {SINGLE: {"cluster arrive": 2, "cluster wait": 2, "wait for copies": 1, "dependency wait": 1},
          GROUPS: {"cluster arrive": 1, "cluster wait": 1, "CTA barrier": 1, "init fence": 1, "wait": 6, "scope": 3,
                   "expected bytes": 6, "init": 6, "wait for copies": 1, "dependency wait": 1}}  # fmt: skip


def fates(case, kind):
    """How each mutant of a kind is found in one run in order, or None."""
    case, found = front(*case), []
    for match in re.finditer(MUTATIONS[kind], case.kernel.ptx):
        kept = match.group(1) if kind == "scope" else ""
        text = case.kernel.ptx[: match.start()] + kept + case.kernel.ptx[match.end() :]
        try:
            case.run(dataclasses.replace(case.kernel, ptx=text), races=True, preceding=("x",))
            found.append(None)
        except interpreter.InterpreterError as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize(("case", "kind"), [(case, kind) for case, kinds in PLACES.items() for kind in kinds])
def test_no_synchronisation_can_be_dropped_unnoticed(case, kind):
    how = fates(case, kind)
    assert len(how) >= PLACES[case][kind] and all(how), how


def test_a_warp_sync_is_needed_where_lanes_exchange_words():
    """One before a block is written, needed where the warp has read another one (slot 2 after slot 0), and one after.

    The first one of all comes after the arming of the x barriers. Bytes may come early, so it is not needed."""
    assert fates(GROUPS, "warp sync") == [None, *(None, "RaceError") * 2, "RaceError", "RaceError"]
