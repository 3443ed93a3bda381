"""The shipped weight-stationary GEMM, compiled here and run in the interpreter, against FP64.

Properties: right for a hundred tactics that cover every legal pair of values and triple of kinds of values, for every
kind of M, and for the full fronts; free of races; bitwise the same under any schedule; the parts of K are added in K
order; weights are on their way before the PDL wait in the machine code, and x is read after it; each of its barriers,
waits and fences is needed.
"""

import dataclasses
import re

import numpy as np
import pytest

from skinny_gemm import device, interpreter
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.runtime import bind, compile_kernel, sass
from skinny_gemm.runtime.bfloat16 import to_bits
from skinny_gemm.runtime.trials import random_operands, stray_writes, trial, values
from skinny_gemm.runtime.verify import verify
from skinny_gemm.tactics import WsGemmTactic
from tests.support.covering import combinations, cover

H200 = device.get("h200")
MS = (1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64)


def front(m):
    """One rank of two: 36 of 48 router rows are real, 48 latent columns; 8 K blocks."""
    return FrontProblem(m, 96, 256, split=48, valid=36, latent=96, experts=72)


LEGAL = [(m, tactic) for m in MS for tactic in WsGemmTactic.enumerate(front(m), H200)]


def traits(case):
    """What a case is an example of.

    Each two fields' values, M with the token group, token tiles with one CTA or a cluster; and each three fields',
    where of `staged` counts whether it is none, some or all of the blocks, and of `tg` whether there is one group.
    """
    m, tactic = case
    fields = vars(tactic)
    staged = tactic.staged and ("all" if tactic.staged == tactic.blocks(front(m)) else "some")
    kinds = fields | {"staged": staged, "tg": tactic.tg and ("one" if tactic.tg >= m else "many")}
    with_m = {("m", m, "tg", tactic.tg), ("tiles", -(-m // 8), "cluster", tactic.ks > 1)}
    return combinations(fields, 2) | combinations(kinds, 3) | with_m


CASES = [(m, str(tactic)) for m, tactic in cover(LEGAL, traits)]


def test_the_cover_has_every_trait_and_is_small():
    covered = set().union(*(traits((m, WsGemmTactic.parse(text))) for m, text in CASES))
    assert all(traits(case) <= covered for case in LEGAL)
    assert len(set(CASES)) == len(CASES) < 120 < len(LEGAL) / 100


@pytest.mark.parametrize(("m", "tactic"), CASES)
def test_tactics_that_cover_all_legal_ones(m, tactic):
    result = verify(WsGemmTactic.parse(tactic), front(m), "interpreter", seed=m)
    assert result.passed, result


FULL = [  # (tactic, M, N): the measured defaults, both paths, three chains, everything staged, clusters of 14 and 16
    ("7,2,8,3,8,1", 8, 560),
    ("5,2,8,0,8,4", 15, 560),
    ("5,2,16,0,0,3", 9, 560),
    ("5,1,16,0,32,1", 64, 560),
    ("1,16,1,12,0,0", 1, 560),
    ("6,1,14,0,8,4", 4, 288),
    ("3,2,14,8,16,2", 31, 288),
    ("2,4,7,0,0,2", 17, 288),
]


@pytest.mark.parametrize(("tactic", "m", "n"), FULL)
def test_full_fronts(tactic, m, n):
    result = verify(WsGemmTactic.parse(tactic), GemmProblem(m, n, 7168), "interpreter", seed=m)
    assert result.passed and set(result.relative_error) == {"latent", "logits"}, result


PATHS = ["3,2,4,1,0,2", "2,2,2,2,8,1", "1,1,8,0,16,4", "6,4,1,0,0,1"]


@pytest.mark.parametrize("tactic", PATHS)
def test_every_schedule_gives_the_same_bits(tactic):
    result = verify(WsGemmTactic.parse(tactic), front(17), "interpreter", "adversarial", seeds=5, seed=3)
    assert result.passed and result.runs == 5, result


@pytest.mark.parametrize("tactic", ["1,2,2,0,0,1", "1,2,2,0,8,1", "1,4,1,0,0,1"])
def test_the_parts_are_added_in_k_order(tactic):
    """Four parts of K give 2^24, 1, -2^24, 1: only in the order 0, 1, 2, 3 their FP32 sum is 1."""
    problem, tactic = FrontProblem(1, 16, 128), WsGemmTactic.parse(tactic)
    compiled = compile_kernel(tactic, problem)
    x, weight = np.zeros((1, 128), np.float32), np.zeros((16, 128), np.float32)
    x[0, ::32] = 1
    weight[:, ::32] = 2.0**24, 1, -(2.0**24), 1
    out = tactic.output(problem)
    interpreter.run(compiled, bind(compiled, tactic, to_bits(x), to_bits(weight), out))
    assert (values(out, *tactic.results(problem)) == 1).all()


def test_chains_are_summed_in_order():
    """Chain c of 4 takes every fourth mma: with 2^24, 1, -2^24, 1 in them only the order 0 to 3 gives 1."""
    problem, tactic = FrontProblem(1, 16, 64), WsGemmTactic(1, 1, 1, 0, 0, 4)
    compiled = compile_kernel(tactic, problem)
    x, weight = np.zeros((1, 64), np.float32), np.zeros((16, 64), np.float32)
    x[0, [0, 4, 32, 36]] = 1  # elements 0-3 of a lane's eight belong to the first mma of a block, 4-7 to the second
    weight[:, [0, 4, 32, 36]] = 2.0**24, 1, -(2.0**24), 1
    out = tactic.output(problem)
    interpreter.run(compiled, bind(compiled, tactic, to_bits(x), to_bits(weight), out))
    assert (values(out, *tactic.results(problem)) == 1).all()


@pytest.mark.parametrize("tactic", ["2,2,2,1,0,1", "2,2,2,1,8,1"])
def test_shared_memory_is_exactly_what_the_footprint_says(tactic):
    """At the footprint's size it runs; eight bytes less and the last region is out of bounds."""
    problem, tactic = front(9), WsGemmTactic.parse(tactic)
    compiled = compile_kernel(tactic, problem)
    x, weight = random_operands(problem, 0)
    assert compiled.smem_bytes == tactic.footprint(problem, H200).smem_bytes
    interpreter.run(compiled, bind(compiled, tactic, x, weight, tactic.output(problem)))
    smaller = dataclasses.replace(compiled, smem_bytes=compiled.smem_bytes - 8)
    with pytest.raises(interpreter.InterpreterError):
        interpreter.run(smaller, bind(compiled, tactic, x, weight, tactic.output(problem)))


def test_rows_past_m_are_neither_read_nor_published():
    """x has exactly M rows, so reading past them is out of bounds; the mailbox has one row more, which stays empty."""
    for text in ("3,2,2,0,0,1", "3,2,2,0,8,1"):
        problem, tactic = front(11), WsGemmTactic.parse(text)
        compiled = compile_kernel(tactic, problem)
        x, weight = random_operands(problem, 0)
        out = tactic.output(front(12))
        interpreter.run(compiled, bind(compiled, tactic, x, weight, out))
        assert np.array_equal(out[11:], tactic.output(front(1)))
        assert not stray_writes(out[:11], tactic.output(problem), tactic.results(problem))


@pytest.mark.parametrize("arch", device.architectures())
@pytest.mark.parametrize("options", [{}, {"transport": "peers", "peers": 8}, {"transport": "multicast"}], ids=str)
def test_every_transport_compiles_for_every_architecture(arch, options):
    for text in ("2,2,2,1,0,1", "2,2,2,1,8,1"):
        compiled = compile_kernel(WsGemmTactic.parse(text), front(9), arch, **options)
        assert compiled.arch == arch and f".target {arch}" in compiled.ptx
        assert ("multimem.st" in compiled.ptx) == (options.get("transport") == "multicast")
        assert len(compiled.parameters) == 3 + options.get("peers", 1)


def test_pdl_is_a_switch():
    tactic = WsGemmTactic.parse("2,2,2,1,8,1")
    assert "griddepcontrol" not in compile_kernel(tactic, front(9), pdl=False).ptx
    assert compile_kernel(tactic, front(9)).ptx.count("griddepcontrol.launch_dependents") == 1


@pytest.mark.parametrize("arch", device.architectures())
@pytest.mark.parametrize(
    ("tactic", "order"),
    [
        ("2,2,2,1,8,1", "fire wait x"),  # x by bulk copies: of 9 tokens, in one run of lanes
        ("2,2,2,1,8,1,1", "wait x fire"),
        ("2,2,2,1,0,1", "fire wait"),
        ("2,2,2,1,0,1,1", "wait fire"),
    ],
)
def test_dependents_start_before_all_else_or_where_x_has_been_asked_for(arch, tactic, order):
    """In machine code, where the assembler could still move it."""
    names = {"PREEXIT": "fire", "ACQBULK": "wait", "UBLKCP": "x"}
    cubin = compile_kernel(WsGemmTactic.parse(tactic), front(9), arch=arch).cubin
    assert " ".join(names[opcode] for _, opcode, _, _ in sass.instructions(cubin) if opcode in names) == order


@pytest.mark.parametrize(("tactic", "m", "n"), FULL)
def test_the_machine_code_loads_all_weights_before_it_waits(tactic, m, n):
    """The assembler may move loads behind the wait, which would undo the preload: it did with `ld.global.nc`."""
    tactic, problem = WsGemmTactic.parse(tactic), GemmProblem(m, n, 7168)
    compiled = compile_kernel(tactic, problem)
    opcodes = [(opcode, modifiers) for _, opcode, modifiers, _ in sass.instructions(compiled.cubin)]
    wait = next(i for i, (opcode, _) in enumerate(opcodes) if opcode == "ACQBULK")
    before, after = opcodes[:wait], opcodes[wait:]
    held = tactic.blocks(problem) - tactic.staged
    assert sum(opcode == "LDG" for opcode, _ in before) == 2 * held
    assert sum(opcode == "LDGSTS" for opcode, _ in before) == 2 * tactic.staged
    assert not any(opcode == "LDGSTS" for opcode, _ in after)
    x_loads = 0 if tactic.tg else tactic.blocks(problem) * -(-m // 8)
    assert sum(opcode == "LDG" for opcode, _ in after) == x_loads
    assert compiled.resources.spill_bytes == 0


def test_no_legal_tactic_spills_much():
    """The estimate of registers that legality uses: what it admits compiles with at most a few words spilled."""
    for m, text in CASES:
        resources = compile_kernel(WsGemmTactic.parse(text), front(m)).resources
        assert resources.spill_bytes <= 64, (m, text, resources)


# Mutants: the kernel without one of its synchronisations must fail: with a wrong result, a deadlock, poison, a race.

SINGLE_PASS, GROUPS = "2,2,2,1,0,1", "3,2,2,2,8,1"
MUTANTS = {
    "first cluster barrier": (SINGLE_PASS, r"barrier\.cluster\.arrive;\s*barrier\.cluster\.wait;", "", 0),
    "second cluster barrier": (SINGLE_PASS, r"barrier\.cluster\.arrive;\s*barrier\.cluster\.wait;", "", 1),
    "relaxed arrival": (SINGLE_PASS, r"barrier\.cluster\.arrive;", "barrier.cluster.arrive.relaxed;", 0),
    "CTA barrier of ks = 1": ("3,4,1,0,0,1", r"bar\.sync\s+0;", "", 0),
    "staged copies' wait": (SINGLE_PASS, r"cp\.async\.wait_group\s+0;", "", 0),
    "PDL wait": (SINGLE_PASS, r"griddepcontrol\.wait;", "", 0),
    "PDL wait, groups": (GROUPS, r"griddepcontrol\.wait;", "", 0),
    "barrier init": (GROUPS, r"mbarrier\.init\.shared\.b64[^;]*;", "", -1),
    "init fence": (GROUPS, r"fence\.mbarrier_init\.release\.cluster;", "", 0),
    "arming of an owner": (GROUPS, r"mbarrier\.arrive\.expect_tx\.shared\.b64[^;]*;", "", 0),
    "CTA barrier after init": (GROUPS, r"bar\.sync\s+0;", "", 0),
    "cluster wait before pushes": (GROUPS, r"barrier\.cluster\.wait;", "", 0),
    "cluster barrier before pushes": (GROUPS, r"barrier\.cluster\.(arrive\.relaxed|wait);", "", None),
    "CTA-scope acquire": (GROUPS, r"try_wait\.parity\.acquire\.cluster", "try_wait.parity.acquire.cta", None),
    "owner's wait": (GROUPS, r"\{\s*\.reg \.pred done;[^}]*\}", "", 0),
    "group's wait": (GROUPS, r"mbarrier\.try_wait\.parity\.shared\.b64\s+(\S+),[^;]*;", r"setp.eq.b32 \1, 0, 0;", None),
    "warp barriers around a finished block": (GROUPS, r"bar\.warp\.sync[^;]*;", "", None),
}


def mutate(text, pattern, replacement, which):
    """The PTX with one match (all if `which` is None) replaced."""
    matches = list(re.finditer(pattern, text))
    assert matches, pattern
    for match in reversed(matches if which is None else [matches[which]]):
        text = text[: match.start()] + match.expand(replacement) + text[match.end() :]
    return text


@pytest.mark.parametrize("name", MUTANTS)
def test_the_kernel_without_one_of_its_synchronisations_is_caught(name):
    text, pattern, replacement, which = MUTANTS[name]
    problem, tactic = front(17), WsGemmTactic.parse(text)
    tactic.check(problem, H200)
    compiled = compile_kernel(tactic, problem)

    def outcome(kernel, schedule, races):
        ran = trial(kernel, tactic, problem, schedule=schedule, races=races, preceding=("x",))
        assert all(ran.relative_error(result) < result.tolerance for result in ran.results)

    schedules = [("in_order", True), *((interpreter.adversarial(seed), False) for seed in range(3))]
    for schedule, races in schedules:
        outcome(compiled, schedule, races)
    mutant = dataclasses.replace(compiled, ptx=mutate(compiled.ptx, pattern, replacement, which))
    with pytest.raises((interpreter.InterpreterError, AssertionError)):
        for schedule, races in schedules:
            outcome(mutant, schedule, races)
