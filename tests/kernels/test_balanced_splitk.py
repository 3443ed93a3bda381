"""The shipped balanced split-K kernel, compiled here and run in the interpreter, against FP64.

Properties: right for tactics that cover every two fields' legal values, for every kind of M, odd heights of tiles and
full projections; free of races; bitwise the same under any schedule; sums are added in the order of turns, warps and
CTAs; FP32 results are what is rounded to BF16; one binary serves all M that its token tile holds; never reads x past
M or weights past N, nor writes anything else (guards in the fixture); every warp triggers the next launch once, where
its tactic says, and waits for the preceding one after its first copies and before x, in the run and in the machine
code; no illegal encoding on any architecture; each of its barriers, waits and fences is needed.
"""

import dataclasses
import itertools
import re

import numpy as np
import pytest

from skinny_gemm import device, interpreter
from skinny_gemm.kernels import ptx
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_jit, compile_kernel, sass
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from skinny_gemm.runtime.trials import traced, trial
from skinny_gemm.tactics import BalancedSplitKTactic
from skinny_gemm.tactics.balanced_splitk import X_PATHS
from skinny_gemm.tactics.base import F32_TOLERANCE, FIRST, LAST, TRIGGERS
from tests.support.covering import combinations, cover
from tests.support.machine_code import odd_descriptors

H200 = device.get("h200")
SMALL = (72, 512)  # N is no multiple of 16; K is 8 chunks
MS = {8: (1, 3, 7, 8), 16: (9, 16), 24: (17,), 32: (31, 32), 48: (33, 48), 64: (63, 64)}  # by token tile
ROW_TILES = (1, 2, 5, 9, 16, 72)  # of 72, 36, 14 and 15, 8, 4 and 5 rows and of one


def legal(problem, row_tiles, clusters=(1, 2, 4)):
    """Every legal tactic with those row tiles and clusters."""
    fields = itertools.product(row_tiles, clusters, range(1, 17), (64, 128), range(1, 7), MS, TRIGGERS, X_PATHS)
    tactics = itertools.starmap(BalancedSplitKTactic, fields)
    return [tactic for tactic in tactics if tactic.why_not(problem, H200) is None]


def covering(tactics, problem):
    """As many as show every two fields' values, and whether stages are used again with a cluster, trigger or ring."""

    def traits(tactic):
        again = tactic.stages < tactic.turns(problem)
        return combinations(vars(tactic), 2) | {(again, tactic.cluster > 1, tactic.trigger, tactic.x_ring)}

    return cover(tactics, traits)


TRIED = covering(legal(GemmProblem(1, *SMALL), ROW_TILES), GemmProblem(1, *SMALL))


@pytest.mark.parametrize("tactic", TRIED, ids=str)
def test_legal_tactics_of_a_small_problem(run, tolerance, tactic):
    """Those that cover all 4,760: in a cluster every second owns fewer fragments than it has CTAs."""
    for m in MS[tactic.token_tile]:
        case = run(tactic, m, *SMALL, bias=m % 2 == 1, seed=m, races=m % 2 == 0, preceding=("x",))
        assert case.error < tolerance, m
        rows = SMALL[0] + (m * tactic.row_tiles if tactic.x_ring else 0)
        assert case.result.copied_bytes == 2 * rows * SMALL[1], "each weight once, none of the next tile's; x a tile"


FULL = [  # a broad sample at real projections and odd ones: every token tile, clusters up to 16, odd heights and K
    ("66,2,1,64,1,8", 1, 1536, 128),
    ("132,1,8,64,4,8", 3, 3584, 7168),
    ("132,1,14,64,2,8,1", 7, 1536, 7168),
    ("16,1,9,64,5,8", 8, 128, 2880),
    ("66,2,8,64,3,16", 9, 2112, 7168),
    ("132,1,12,64,1,16,1", 16, 7168, 768),
    ("66,2,6,64,2,24", 17, 2304, 1536),  # 35 rows
    ("32,1,11,64,3,32", 31, 1240, 2112),  # 39 rows, N = 8 x 155
    ("132,1,4,128,2,48", 33, 3584, 1536),
    ("30,8,7,64,2,48", 48, 560, 7168),
    ("14,16,7,64,1,64", 63, 560, 7168),
    ("15,1,6,64,6,64", 64, 584, 2304),  # 39 rows, N = 8 x 73
    ("528,1,8,64,2,8,0,1", 5, 7168, 1536),
    ("16,1,8,64,3,32,1,1", 31, 560, 7168),  # 35 rows: x starts at the 36th
    ("10,4,7,64,2,64,1,1", 64, 296, 7168),
]


@pytest.mark.parametrize(("tactic", "m", "n", "k"), FULL)
def test_full_projections(run, tolerance, tactic, m, n, k):
    assert run(BalancedSplitKTactic.parse(tactic), m, n, k, seed=m).error < tolerance


#: rings that are filled again, of one CTA and of clusters, and a cluster that has fewer fragments than CTAs
PATHS = [
    "5,1,2,64,2,16",
    "5,1,1,128,3,8,1",
    "2,2,2,64,1,24,1",
    "16,4,2,64,1,8",
    "5,1,2,64,2,16,1,1",
    "16,2,2,64,1,8,0,1",
]


@pytest.mark.parametrize("tactic", PATHS)
def test_every_schedule_gives_the_same_bits_without_races(run, tactic):
    tactic = BalancedSplitKTactic.parse(tactic)
    first = run(tactic, 7, *SMALL, bias=True, races=True, preceding=("x",))
    for seed in range(3):
        schedule = interpreter.adversarial(seed)
        case = run(tactic, 7, *SMALL, bias=True, schedule=schedule, races=True, preceding=("x",))
        assert np.array_equal(case.out, first.out)


@pytest.mark.parametrize(
    ("tactic", "parts"),
    [
        ("1,1,1,64,1,8", (2.0**24, 1, -(2.0**24), 1)),  # four turns of a warp
        ("1,1,4,64,1,8", (2.0**24, 1, -(2.0**24), 1)),  # four warps
        ("1,4,1,64,1,8", (2.0**24, 1, -(2.0**24), 1)),  # four CTAs
        ("1,2,2,64,1,8", (2.0**24, 1, 1, -(2.0**24))),  # two warps of two CTAs each: in a row they would give 0
    ],
)
def test_sums_are_added_in_the_order_of_turns_warps_and_ctas(tactic, parts):
    """The four chunks of K give `parts`, of which 2^24 + 1 rounds to 2^24: only in their order their sum is 1."""
    tactic, problem = BalancedSplitKTactic.parse(tactic), GemmProblem(1, 16, 256)
    compiled = compile_kernel(tactic, problem)
    x, weight = np.zeros((1, 256), np.float32), np.zeros((16, 256), np.float32)
    x[0, ::64] = 1
    weight[:, ::64] = parts
    out = np.zeros((1, 16), np.uint16)
    interpreter.run(compiled, bind(compiled, tactic, to_bits(x), to_bits(weight), out))
    assert (from_bits(out) == 1).all()


@pytest.mark.parametrize("tactic", ["5,1,2,64,2,16", "2,2,2,64,1,16", "5,1,2,64,2,16,0,1"])
def test_fp32_results_are_what_is_rounded_to_bf16(run, tactic):
    tactic, problem = BalancedSplitKTactic.parse(tactic), GemmProblem(1, *SMALL)
    compiled = compile_kernel(tactic, problem, output="f32")
    for bias in (False, True):
        exact = run(tactic, 9, *SMALL, bias=bias, compiled=compiled, bits=np.uint32)
        assert exact.error < F32_TOLERANCE
        assert np.array_equal(to_bits(exact.values), run(tactic, 9, *SMALL, bias=bias).out)


def test_another_output_is_refused():
    with pytest.raises(ValueError, match="output is 'f16', but must be one of bf16, f32"):
        compile_kernel(BalancedSplitKTactic.parse(PATHS[0]), GemmProblem(1, *SMALL), output="f16")


@pytest.mark.parametrize("tactic", ["5,1,4,64,1,24", "5,2,2,64,2,24", "5,1,2,64,2,24,0,1"])
def test_one_binary_serves_every_m(run, tolerance, tactic):
    tactic = BalancedSplitKTactic.parse(tactic)
    compiled = compile_kernel(tactic, GemmProblem(1, *SMALL))
    assert all(run(tactic, m, *SMALL, compiled=compiled).error < tolerance for m in range(1, 25))


@pytest.mark.parametrize("tactic", ["5,1,2,64,3,8", "5,2,2,64,2,8"])
def test_shared_memory_is_exactly_what_the_footprint_says(run, tactic):
    """At the footprint's size it runs; eight bytes less and the last copy, or the barrier, is out of bounds."""
    tactic = BalancedSplitKTactic.parse(tactic)
    compiled = compile_kernel(tactic, GemmProblem(1, *SMALL))
    assert compiled.smem_bytes == tactic.footprint(GemmProblem(8, *SMALL), H200).smem_bytes
    run(tactic, 8, *SMALL, compiled=compiled)
    smaller = dataclasses.replace(compiled, smem_bytes=compiled.smem_bytes - 8)
    with pytest.raises(interpreter.InterpreterError):
        run(tactic, 8, *SMALL, compiled=smaller)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("stages", [2, 4])  # fewer than the turns of a warp, or as many
def test_pdl_is_a_switch(trigger, stages):
    tactic = BalancedSplitKTactic(5, 1, 2, 64, stages, 8, trigger)
    assert "griddepcontrol" not in compile_kernel(tactic, GemmProblem(1, *SMALL), pdl=False).ptx
    text = compile_kernel(tactic, GemmProblem(1, *SMALL), pdl=True).ptx
    assert text.count("griddepcontrol.launch_dependents") == text.count("griddepcontrol.wait") == 1


#: by the turns of a warp, all on four stages: where a warp's chunks are copied, waits for x and triggers
PLACES = {
    (4, FIRST): ["fire", *["copy"] * 4, "wait"],
    (4, LAST): [*["copy"] * 4, "wait", "fire"],
    (6, FIRST): ["fire", *["copy"] * 4, "wait", *["copy"] * 2],
    (6, LAST): [*["copy"] * 4, "wait", *["copy"] * 2, "fire"],
}


@pytest.mark.parametrize(("turns", "trigger"), PLACES)
def test_every_warp_triggers_once_before_its_first_copies_or_after_its_last(turns, trigger):
    """Tiles of 12 rows of 128 bytes: a chunk are three copies a lane."""
    tactic, problem = BalancedSplitKTactic(6, 1, 2, 64, 4, 8, trigger), GemmProblem(8, 72, 128 * turns)
    opcodes = ("griddepcontrol", "cp.async.cg", "ld.global.v4")
    table = traced(tactic, problem, schedule="adversarial(1)", opcodes=opcodes).table
    names = {"cp.async.cg": "copy", "griddepcontrol.wait": "wait", "griddepcontrol.launch_dependents": "fire"}
    for _, rows in table[table.event == "execute"].groupby("warp"):
        assert (rows.lanes == 32).all()
        kinds = rows.opcode.str.replace(".shared.global.L2::cache_hint", "").map(names).fillna("x").tolist()
        assert kinds.index("wait") < kinds.index("x") and kinds.count("x") == 2 * turns
        groups = [[kind] * (3 if kind == "copy" else 1) for kind in PLACES[turns, trigger]]
        assert [kind for kind in kinds if kind != "x"] == sum(groups, [])


@pytest.mark.parametrize(
    ("arch", "turns", "trigger"),
    [("sm_90a", *place) for place in PLACES] + [(arch, 6, LAST) for arch in device.architectures()[1:]],
)
def test_the_assembler_leaves_the_copies_the_wait_and_the_trigger_in_their_places(arch, turns, trigger):
    """And the loads of x, two for each turn, behind the wait; before it are only those of the bias."""
    tactic = BalancedSplitKTactic(6, 1, 2, 64, 4, 8, trigger)
    compiled = compile_kernel(tactic, GemmProblem(1, 72, 128 * turns), arch=arch)
    names = {"PREEXIT": "fire", "ACQBULK": "wait", "LDGSTS": "copy", "LDG": "x"}
    found = [names[opcode] for _, opcode, _, _ in sass.instructions(compiled.cubin) if opcode in names]
    groups = [[kind] * (3 if kind == "copy" else 1) for kind in PLACES[turns, trigger]]
    assert [kind for kind in found if kind != "x"] == sum(groups, [])
    wait = found.index("wait")
    assert (found[:wait].count("x"), found[wait:].count("x")) == (2, 2 * turns)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_x_in_the_ring_is_copied_after_the_wait_and_behind_its_turns_weights(trigger):
    """Tiles of 12 rows: a turn's weights are three copies a lane, its x of 16 tokens four."""
    tactic, problem = BalancedSplitKTactic(6, 1, 2, 64, 2, 16, trigger, 1), GemmProblem(16, 72, 128 * 3)
    table = traced(tactic, problem, opcodes=("griddepcontrol", "cp.async.cg", "ld.global.v4")).table
    names = {"shared.global.L2::cache_hint": "w", "shared.global": "x", "wait": "wait", "launch_dependents": "fire"}
    order = ["www", "www", "wait", "xxxx", "xxxx", "www", "xxxx"]
    order = ["fire", *order] if trigger == FIRST else [*order, "fire"]
    for _, rows in table[table.event == "execute"].groupby("warp"):
        kinds = rows.opcode.str.replace("cp.async.cg.", "").str.replace("griddepcontrol.", "").map(names)
        assert "".join(kinds) == "".join(order)


def test_the_k_loop_is_unrolled_the_ring_stays_full_and_x_is_loaded_ahead():
    tactic = BalancedSplitKTactic.parse("5,1,2,64,3,16")
    text = compile_kernel(tactic, GemmProblem(1, *SMALL)).ptx
    assert re.findall(r"cp\.async\.wait_group\s+(\d)", text) == ["2", "2", "1", "0"], "copies in flight, turn by turn"
    assert text.count("mma.sync") == 4 * 4 * 2  # turns, mma of a chunk, tokens
    assert text[: text.index("mma.sync")].count("ld.global.v4.b32") == 8 < text.count("ld.global.v4.b32") == 16


@pytest.mark.parametrize("arch", device.architectures())
def test_legal_tactics_compile_for_every_architecture(arch):
    """Those for the first that the tests above run; for the others a few.

    compile_kernel refuses a mis-encoded copy, so that compiling is the scan; the disassembler confirms one.
    """
    for i, tactic in enumerate(TRIED if arch == device.architectures()[0] else map(BalancedSplitKTactic.parse, PATHS)):
        compiled = compile_kernel(tactic, GemmProblem(1, *SMALL), arch=arch)
        assert f".target {arch}" in compiled.ptx and compiled.arch == arch
        if i == 0:
            assert odd_descriptors(compiled.cubin) == sass.misencoded_copies(compiled.cubin) == []
            assert sass.opcode_counts(compiled.cubin)["LDGSTS"] > 0


def test_the_scan_finds_the_fault_that_a_uniform_base_provokes(monkeypatch):
    """With one warp a CTA, and no vector register, the assembler emits odd descriptors: the scan sees just those."""
    from skinny_gemm.kernels import balanced_splitk

    scan, seen = sass.misencoded_copies, []
    monkeypatch.setattr(ptx, "vector_register", lambda value, lane: value)
    monkeypatch.setattr(sass, "misencoded_copies", lambda cubin: seen.append(cubin) or scan(cubin))
    built = balanced_splitk.build(GemmProblem(1, *SMALL), BalancedSplitKTactic.parse(PATHS[1]), True)
    with pytest.raises(ValueError, match="mis-encoded"):
        compile_jit("balanced-splitk", built, built.parameters, built.block, built.smem_bytes, "sm_90a", True)
    assert scan(seen[0]) == odd_descriptors(seen[0]) != []


WEIGHTS = [
    (6288, 7168), (2112, 7168), (2304, 1536), (7168, 1536), (3584, 7168), (7168, 3584), (560, 7168), (7168, 4224),
    (4096, 512), (4096, 12288), (128, 2880), (1536, 128),
]  # fmt: skip


@pytest.mark.parametrize(("n", "k"), WEIGHTS)
@pytest.mark.parametrize("m", [1, 16])
def test_the_heuristic_tactics_spill_nothing_or_four_words(m, n, k):
    problem = GemmProblem(m, n, k)
    tactic = BalancedSplitKTactic.heuristic(problem, H200)
    resources = compile_kernel(tactic, problem).resources
    assert resources.registers <= tactic.register_limit() and resources.spill_bytes <= (32 if tactic.x_ring else 0)


@pytest.mark.parametrize(("n", "k"), WEIGHTS[:3])
def test_those_of_many_tokens_spill_little(n, k):
    """The assembler loads ahead until registers run out: 115 words of 48 rows at M = 64, stored and loaded once."""
    problem = GemmProblem(64, n, k)
    tactic = BalancedSplitKTactic.heuristic(problem, H200)
    assert compile_kernel(tactic, problem).resources.spill_bytes <= 960


# Mutants: the kernel without one of its synchronisations must fail: with a wrong result, a deadlock, poison, a race.

MUTATIONS = {
    "wait for copies": (r"cp\.async\.wait_group[^;]*;", ""),
    "wait for all but one more": (
        r"cp\.async\.wait_group\s+(\d+);",
        lambda at: f"cp.async.wait_group {int(at[1]) + 1};",
    ),
    "warp sync": (r"bar\.warp\.sync[^;]*;", ""),
    "CTA barrier": (r"bar\.sync\s+0;", ""),
    "dependency wait": (r"griddepcontrol\.wait;", ""),
    "cluster arrive": (r"barrier\.cluster\.arrive[a-z.]*;", ""),
    "cluster wait": (r"barrier\.cluster\.wait[a-z.]*;", ""),
    "barrier init": (r"mbarrier\.init[^;]*;", ""),
    "init fence": (r"fence\.mbarrier_init[^;]*;", ""),
    "expected bytes": (r"mbarrier\.arrive\.expect_tx[^;]*;", ""),
    "wait for sums": (r"\{\s*\.reg \.pred done;[^}]*\}", ""),
    "scope of that wait": (r"try_wait\.parity\.acquire\.cluster", "try_wait.parity.acquire.cta"),
}
FOUND = (
    interpreter.RaceError, interpreter.PoisonError, interpreter.DependencyError, interpreter.BarrierError,
    interpreter.DeadlockError, AssertionError,
)  # fmt: skip
#: how many places each has. One CTA: four turns of a warp, three stages. A cluster: two turns, one stage, and two warp
#: syncs around what arms its barrier, the first of all, that order nothing.
ONE_CTA, CLUSTER, RING = "5,1,2,64,3,16", "2,2,2,64,1,16", "5,1,2,64,3,16,0,1"
COUNTS = {
    ONE_CTA: dict(zip(MUTATIONS, (4, 4, 6, 1, 1), strict=False)),
    RING: dict(zip(MUTATIONS, (4, 4, 6, 1, 1), strict=False)),
    CLUSTER: dict(zip(MUTATIONS, (2, 2, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1), strict=True)),
}


@pytest.mark.parametrize(("tactic", "kind"), [(tactic, kind) for tactic, counts in COUNTS.items() for kind in counts])
def test_the_kernel_without_one_of_its_synchronisations_is_caught(tactic, kind):
    text, problem, (pattern, replacement) = tactic, GemmProblem(7, *SMALL), MUTATIONS[kind]
    tactic = BalancedSplitKTactic.parse(text)
    compiled = compile_kernel(tactic, problem)

    def survives(ptx):
        mutant = dataclasses.replace(compiled, ptx=ptx)
        try:
            for schedule, races in [("in_order", True), *((interpreter.adversarial(seed), False) for seed in range(3))]:
                ran = trial(mutant, tactic, problem, schedule=schedule, races=races, preceding=("x",))
                assert all(ran.relative_error(result) < result.tolerance for result in ran.results)
        except FOUND:
            return False
        return True

    assert survives(compiled.ptx)
    places = list(re.finditer(pattern, compiled.ptx))
    assert len(places) == COUNTS[text][kind]
    harmless = {0, 1} if (text, kind) == (CLUSTER, "warp sync") else set()
    texts = [replacement(at) if callable(replacement) else replacement for at in places]
    pairs = zip(places, texts, strict=True)
    mutants = [compiled.ptx[: at.start()] + text + compiled.ptx[at.end() :] for at, text in pairs]
    assert {i for i, mutant in enumerate(mutants) if survives(mutant)} == harmless
