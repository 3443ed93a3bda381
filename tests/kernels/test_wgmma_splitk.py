"""The shipped wgmma split-K kernel, compiled here and run in the interpreter, against FP64.

Properties: right for tactics that cover every two fields' legal values, with K loops unrolled and rolled, for every
kind of M, odd heights of tiles and full projections; free of races; bitwise the same under any schedule; sums are added
in the order of turns, groups and CTAs; FP32 results are what is rounded to BF16; one binary serves all M that its token
tile holds; never reads x past M or weights past N, nor writes anything else (guards in the fixture); every warp
triggers the next launch once, where its tactic says, and copies x only after it waited for the preceding one, in the
run and in the machine code; each of its barriers, waits and fences is needed.
"""

import dataclasses
import itertools
import re

import numpy as np
import pytest

from skinny_gemm import device, interpreter
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_kernel, sass
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from skinny_gemm.runtime.trials import traced, trial
from skinny_gemm.tactics import WgmmaSplitKTactic
from skinny_gemm.tactics.base import F32_TOLERANCE, FIRST, LAST, TRIGGERS, register_limit
from tests.support.covering import combinations, cover
from tests.support.machine_code import odd_descriptors

H200 = device.get("h200")
SMALL = (72, 512)  # N is no multiple of 16; K is 8 chunks
MS = {8: (1, 3, 7, 8), 16: (9, 16), 24: (17, 24), 32: (31, 32), 48: (33, 48), 64: (63, 64)}  # by token tile
ROW_TILES = (1, 2, 5, 72)  # of 72 and 36 rows, of 14 and 15, of one
STAGES = (1, 2, 4)


def covering(problem):
    """As many as show every two fields' values, and with each trigger, and in clusters, what becomes of the K loop:
    whether it is rolled, which takes three times as many turns as stages, and whether the last copies are in it."""

    def traits(tactic):
        rest = tactic.turns(problem) - tactic.stages
        loop = rest >= 2 * tactic.stages, rest % tactic.stages == 0, rest == 0
        return combinations(vars(tactic), 2) | {(*loop, tactic.trigger), (*loop, tactic.cluster > 1)}

    fields = itertools.product(ROW_TILES, (1, 2, 4), (1, 2, 4), (64, 128), STAGES, MS, TRIGGERS)
    legal = [tactic for tactic in itertools.starmap(WgmmaSplitKTactic, fields) if not tactic.why_not(problem, H200)]
    return cover(legal, traits)


TRIED = covering(GemmProblem(1, *SMALL))
TOKENS = {tile: itertools.cycle(ms) for tile, ms in MS.items()}


@pytest.mark.parametrize(("tactic", "m"), [(tactic, next(TOKENS[tactic.token_tile])) for tactic in TRIED], ids=str)
def test_legal_tactics_of_a_small_problem(run, tolerance, tactic, m):
    case = run(tactic, m, *SMALL, bias=m % 2 == 1, seed=m, races=True, preceding=("x",))
    assert case.error < tolerance
    rows = SMALL[0] + m * tactic.row_tiles
    assert case.result.copied_bytes == 2 * rows * SMALL[1], "each weight once, none of the next tile's; x a tile"


FULL = [  # real projections and odd ones: clusters up to 16, odd heights, the most rows
    ("9,2,1,64,1,8", 1, 512, 128),  # 56 and 57 rows
    ("10,16,1,64,3,8", 7, 560, 7168),
    ("33,1,3,64,4,24", 17, 1384, 2112),  # 41 and 42 rows, N = 8 x 173
    ("16,8,2,64,2,32", 31, 560, 7168),
    ("3,1,1,64,5,64", 63, 128, 2880),  # 42 and 43 rows, 45 turns
    ("2,1,2,64,1,64", 64, 512, 128),  # 256 rows, whose sums need more room than the ring
]


@pytest.mark.parametrize(("tactic", "m", "n", "k"), FULL)
def test_full_projections(run, tolerance, tactic, m, n, k):
    assert run(WgmmaSplitKTactic.parse(tactic), m, n, k, seed=m).error < tolerance


#: rings that are filled again, of one CTA and of clusters, with K loops unrolled and rolled
PATHS = ["2,1,2,64,2,32", "2,1,1,64,2,32", "2,2,1,64,2,32,1"]
SHORT = (72, 384)


@pytest.mark.parametrize("tactic", PATHS)
def test_every_schedule_gives_the_same_bits_without_races(run, tactic):
    tactic = WgmmaSplitKTactic.parse(tactic)
    first = run(tactic, 7, *SHORT, bias=True, races=True, preceding=("x",))
    for seed in range(3):
        schedule = interpreter.adversarial(seed)
        case = run(tactic, 7, *SHORT, bias=True, schedule=schedule, races=True, preceding=("x",))
        assert np.array_equal(case.out, first.out)


@pytest.mark.parametrize(
    ("tactic", "parts"),
    [
        ("1,1,1,64,2,48", (2.0**24, 1, -(2.0**24), 1)),  # four turns of a group
        ("1,1,4,64,1,48", (2.0**24, 1, -(2.0**24), 1)),  # four groups
        ("1,4,1,64,1,48", (2.0**24, 1, -(2.0**24), 1)),  # four CTAs
        ("1,2,2,64,1,48", (2.0**24, 1, 1, -(2.0**24))),  # two groups of two CTAs each: in a row they would give 0
    ],
)
def test_sums_are_added_in_the_order_of_turns_groups_and_ctas(tactic, parts):
    """The four chunks of K give `parts`, of which 2^24 + 1 rounds to 2^24: only in their order their sum is 1."""
    tactic, problem = WgmmaSplitKTactic.parse(tactic), GemmProblem(1, 16, 256)
    compiled = compile_kernel(tactic, problem)
    x, weight = np.zeros((1, 256), np.float32), np.zeros((16, 256), np.float32)
    x[0, ::64] = 1
    weight[:, ::64] = parts
    out = np.zeros((1, 16), np.uint16)
    interpreter.run(compiled, bind(compiled, tactic, to_bits(x), to_bits(weight), out))
    assert (from_bits(out) == 1).all()


@pytest.mark.parametrize("tactic", PATHS[1:])
def test_fp32_results_are_what_is_rounded_to_bf16(run, tactic):
    tactic, problem = WgmmaSplitKTactic.parse(tactic), GemmProblem(1, *SHORT)
    compiled = compile_kernel(tactic, problem, output="f32")
    for bias in (False, True):
        exact = run(tactic, 9, *SHORT, bias=bias, compiled=compiled, bits=np.uint32)
        assert exact.error < F32_TOLERANCE
        assert np.array_equal(to_bits(exact.values), run(tactic, 9, *SHORT, bias=bias).out)


def test_another_output_is_refused():
    with pytest.raises(ValueError, match="output is 'f16', but must be one of bf16, f32"):
        compile_kernel(WgmmaSplitKTactic.parse(PATHS[0]), GemmProblem(1, *SHORT), output="f16")


@pytest.mark.parametrize("tactic", ["1,1,2,64,3,24", "1,2,2,64,2,24"])
def test_one_binary_serves_every_m(run, tolerance, tactic):
    tactic = WgmmaSplitKTactic.parse(tactic)
    compiled = compile_kernel(tactic, GemmProblem(1, *SMALL))
    assert all(run(tactic, m, *SMALL, compiled=compiled).error < tolerance for m in range(1, 25))


@pytest.mark.parametrize("tactic", ["1,1,2,64,3,8", "1,2,2,64,2,8"])
def test_shared_memory_is_exactly_what_the_footprint_says(run, tactic):
    """At the footprint's size it runs; eight bytes less and the last copy, or the barrier, is out of bounds."""
    tactic = WgmmaSplitKTactic.parse(tactic)
    compiled = compile_kernel(tactic, GemmProblem(1, *SMALL))
    assert compiled.smem_bytes == tactic.footprint(GemmProblem(8, *SMALL), H200).smem_bytes
    run(tactic, 8, *SMALL, compiled=compiled)
    smaller = dataclasses.replace(compiled, smem_bytes=compiled.smem_bytes - 8)
    with pytest.raises(interpreter.InterpreterError):
        run(tactic, 8, *SMALL, compiled=smaller)


@pytest.mark.parametrize(("stages", "trigger"), [(2, FIRST), (2, LAST), (4, LAST)])  # an unrolled loop, a ring of all
def test_pdl_is_a_switch(stages, trigger):
    tactic = WgmmaSplitKTactic(1, 1, 2, 64, stages, 8, trigger)
    assert "griddepcontrol" not in compile_kernel(tactic, GemmProblem(1, *SMALL), pdl=False).ptx
    text = compile_kernel(tactic, GemmProblem(1, *SMALL), pdl=True).ptx
    assert text.count("griddepcontrol.launch_dependents") == text.count("griddepcontrol.wait") == 1


#: by the turns of a group, all on two stages, and the trigger: where a warp copies a chunk of weights (w) and of x (x),
#: multiplies one (m), waits for the preceding kernel (|) and triggers the next (f). From six turns on the K loop is
#: rolled; what it repeats is in brackets. With six turns the last copies are in it.
PLACES = {
    (2, FIRST): "f ww | xx mm",
    (2, LAST): "ww | xx f mm",
    (4, LAST): "ww | xx m wxm wxm f m",
    (6, FIRST): "f ww | xx m [wxm wxm] m",
    (6, LAST): "ww | xx m [wxm wxm] f m",
    (7, LAST): "ww | xx m [wxm wxm] wxm f m",
}
EACH = {"w": 1, "x": 4, "m": 4}  #: instructions of a chunk where tiles are of 16 rows, with room for 64 tokens


def placed(turns, trigger):
    """A tactic and its problem; the places in the machine code, and in a run, which goes through the loop twice."""
    tactic, problem = WgmmaSplitKTactic(6, 1, 2, 64, 2, 64, trigger), GemmProblem(64, 96, 128 * turns)
    places = PLACES[turns, trigger].replace(" ", "")
    written, run = re.sub(r"[][]", "", places), re.sub(r"\[(.*)]", r"\1\1", places)
    return tactic, problem, *("".join(place * EACH.get(place, 1) for place in text) for text in (written, run))


@pytest.mark.parametrize(("turns", "trigger"), PLACES)
def test_every_warp_triggers_once_in_its_place_and_copies_x_after_it_has_waited(turns, trigger):
    tactic, problem, _, expected = placed(turns, trigger)
    table = traced(
        tactic, problem, schedule="adversarial(1)", opcodes=("griddepcontrol", "cp.async.cg", "wgmma.mma_async")
    ).table
    executed = table[table.event == "execute"]
    assert (executed.lanes == 32).all() and executed.warp.nunique() == 8
    letters = {"launch_dependents": "f", "wait": "|", "cache_hint": "w", "global": "x", "bf16": "m"}
    for _, rows in executed.groupby("warp"):
        assert "".join(letters[re.split(r"[.:]", opcode)[-1]] for opcode in rows.opcode) == expected


@pytest.mark.parametrize(("turns", "trigger"), PLACES)
def test_the_assembler_leaves_the_copies_the_wait_and_the_trigger_in_their_places(turns, trigger):
    tactic, problem, expected, _ = placed(turns, trigger)
    letters = {"PREEXIT": "f", "ACQBULK": "|", "LDGSTS": "c", "HGMMA": "m"}
    code = sass.instructions(compile_kernel(tactic, problem).cubin)
    assert "".join(letters.get(opcode, "") for _, opcode, _, _ in code) == re.sub("[wx]", "c", expected)


def test_the_ring_stays_full():
    """Groups of copies that may be in flight: of x in the turns of the first fill, of weights and x in those behind."""
    waits = r"cp\.async\.wait_group\s+(\d)"
    text = compile_kernel(WgmmaSplitKTactic.parse("1,1,2,64,3,8"), GemmProblem(1, *SMALL)).ptx
    assert re.findall(waits, text) == ["2", "1", "1", "0"]
    rolled = compile_kernel(WgmmaSplitKTactic.parse("1,1,1,64,3,8"), GemmProblem(1, 72, 11 * 64)).ptx
    assert re.findall(waits, rolled) == ["2", *["1"] * 3, *["1"] * 3, "0"], "turn 0, a round of the ring, the last four"


def test_no_copy_is_misencoded():
    """compile_kernel refuses one, so that compiling is the scan; the disassembler confirms it."""
    cubin = compile_kernel(TRIED[0], GemmProblem(1, *SMALL)).cubin
    assert odd_descriptors(cubin) == sass.misencoded_copies(cubin) == []
    assert sass.opcode_counts(cubin)["LDGSTS"] > 0


WEIGHTS = [(6288, 7168), (2304, 1536), (560, 7168)]


@pytest.mark.parametrize(("n", "k"), WEIGHTS)
def test_the_heuristic_tactics_spill_nothing(n, k):
    problem = GemmProblem(64, n, k)
    tactic = WgmmaSplitKTactic.heuristic(problem, H200)
    resources = compile_kernel(tactic, problem).resources
    assert resources.registers <= register_limit(tactic.threads) and resources.spill_bytes == 0


# Mutants: the kernel without one of its synchronisations must fail: with a wrong result, a deadlock, poison, a race.

MUTATIONS = {
    "wait for copies": (r"cp\.async\.wait_group[^;]*;", ""),
    "wait for all but one more": (
        r"cp\.async\.wait_group\s+(\d+);",
        lambda at: f"cp.async.wait_group {int(at[1]) + 1};",
    ),
    "proxy fence": (r"fence\.proxy\.async[^;]*;", ""),
    "group barrier": (r"bar\.sync\s+%r\d+, 128;", ""),
    "register fence": (r"wgmma\.fence[^;]*;", ""),
    "commit": (r"wgmma\.commit_group[^;]*;", ""),
    "wait for products": (r"wgmma\.wait_group[^;]*;", ""),
    "CTA barrier": (r"bar\.sync\s+0;", ""),
    "dependency wait": (r"griddepcontrol\.wait;", ""),
    "warp sync": (r"bar\.warp\.sync[^;]*;", ""),
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
    interpreter.WarpgroupError, interpreter.DeadlockError, AssertionError,
)  # fmt: skip
#: a tactic and K by the form of its K loop, and how many places each mutation has, one a turn. The last turn is of the
#: first stage, where the sums will lie. In a cluster two warp syncs are around what arms its barrier.
UNROLLED, ROLLED, CLUSTER = ("1,1,2,64,3,24", 512), ("1,1,1,64,2,24", 448), ("1,2,1,64,2,24", 384)
COALESCED = ("1,1,1,64,2,32", 256)  # barriers: sums are there, have been read, and results are there
COUNTS = {
    UNROLLED: dict(zip(MUTATIONS, (4, 4, 4, 5, 4, 4, 4, 1, 1), strict=False)),  # four turns
    ROLLED: dict.fromkeys(list(MUTATIONS)[:3], 5)
    | {"group barrier": 6, "wait for products": 5},  # 0, two of the loop, 5, 6
    COALESCED: {"CTA barrier": 3},
    CLUSTER: dict(zip(list(MUTATIONS)[7:], (1, 1, 2, 1, 1, 1, 1, 1, 1, 1), strict=True)),
}
#: Behind the first turn nothing but wgmma touches accumulators. A stage that nobody fills again may be in use until the
#: last turn's wait, which is for all. The two warp syncs order nothing.
HARMLESS = {
    (UNROLLED, "register fence"): {1, 2, 3}, (UNROLLED, "commit"): {1, 2}, (UNROLLED, "wait for products"): {1, 2},
    (ROLLED, "wait for products"): {3}, (CLUSTER, "warp sync"): {0, 1},
}  # fmt: skip


def survives(form, mutate=lambda ptx: ptx):
    """Whether the kernel of `form` is right and without faults after its PTX has gone through `mutate`."""
    text, k = form
    tactic, problem = WgmmaSplitKTactic.parse(text), GemmProblem(17, SMALL[0], k)
    compiled = compile_kernel(tactic, problem)
    mutant = dataclasses.replace(compiled, ptx=mutate(compiled.ptx))
    try:
        for schedule, races in [("in_order", True), *((interpreter.adversarial(seed), False) for seed in range(3))]:
            ran = trial(mutant, tactic, problem, schedule=schedule, races=races, preceding=("x",))
            assert all(ran.relative_error(result) < result.tolerance for result in ran.results)
    except FOUND:
        return False
    return True


@pytest.mark.parametrize("form", COUNTS)
def test_the_kernel_as_it_is_has_no_fault(form):
    assert survives(form)


@pytest.mark.parametrize(("form", "kind"), [(form, kind) for form, counts in COUNTS.items() for kind in counts])
def test_the_kernel_without_one_of_its_synchronisations_is_caught(form, kind):
    pattern, replacement = MUTATIONS[kind]

    def without(number):
        def mutate(ptx):
            places = list(re.finditer(pattern, ptx))
            assert len(places) == COUNTS[form][kind]
            at = places[number]
            return ptx[: at.start()] + (replacement(at) if callable(replacement) else replacement) + ptx[at.end() :]

        return mutate

    alive = {number for number in range(COUNTS[form][kind]) if survives(form, without(number))}
    assert alive == HARMLESS.get((form, kind), set())
