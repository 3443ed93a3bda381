"""The shipped warp split-K kernel, compiled here and run in the interpreter, against FP64.

Properties: right for every legal tactic and every kind of M; bitwise the same under any schedule; never reads x past M
nor writes out past M (guards in the fixture); one binary for all M; PDL is a compile-time switch; every activation
loader triggers the next launch once, where its tactic says, in the run and in the machine code; no illegal encoding on
any architecture.
"""

import dataclasses
import re

import numpy as np
import pytest

from skinny_gemm import device, interpreter
from skinny_gemm.kernels import ptx
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_jit, compile_kernel, sass
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from skinny_gemm.runtime.trials import traced
from skinny_gemm.tactics import WarpSplitKTactic
from skinny_gemm.tactics.base import FIRST, LAST, TRIGGERS
from tests.support.covering import combinations, cover
from tests.support.machine_code import odd_descriptors

SMALL = (64, 512)
ODD_MS = (1, 3, 7, 9, 17, 31, 32)
EVERY = WarpSplitKTactic.enumerate(GemmProblem(1, *SMALL), device.get("h200"))


def covering(tactics):
    """As many as show every two fields' values."""
    return cover(tactics, lambda tactic: combinations(vars(tactic), 2))


LATE = [tactic for tactic in EVERY if tactic.trigger == LAST]
TRIED = [*(tactic for tactic in EVERY if tactic not in LATE), *covering(LATE)]  # the trigger has no part in the sums
FULL = [  # a broad sample of tactics at real projections, every token tile, depth, loader count and trigger among them
    ("16,8,256,8,2", 1, 3584, 7168),
    ("32,8,256,11,2", 8, 3584, 7168),
    ("16,16,256,6,1", 9, 2112, 7168),
    ("32,32,256,4,2,1", 31, 896, 7168),
    ("16,8,256,6,1", 17, 2304, 1536),
    ("32,16,128,12,2", 32, 2304, 1536),
    ("16,32,128,1,1", 7, 1536, 128),
    ("16,8,256,3,2,1", 3, 7168, 768),
]


@pytest.mark.parametrize("tactic", TRIED, ids=str)
def test_legal_tactics_of_a_small_problem(run, tolerance, tactic):
    for m in ODD_MS:
        case = run(tactic, m, *SMALL, bias=m % 2 == 1, seed=m)
        assert case.error < tolerance, m


@pytest.mark.parametrize(("tactic", "m", "n", "k"), FULL)
def test_full_projections(run, tolerance, tactic, m, n, k):
    assert run(WarpSplitKTactic.parse(tactic), m, n, k, seed=m).error < tolerance


@pytest.mark.parametrize("tactic", ["16,8,128,2,1", "16,8,128,2,1,1", "32,16,128,3,2", "16,32,256,2,2"])
def test_every_schedule_gives_the_same_bits(run, tactic):
    tactic = WarpSplitKTactic.parse(tactic)
    first = run(tactic, 9, *SMALL)
    for seed in range(5):
        assert np.array_equal(run(tactic, 9, *SMALL, schedule=interpreter.adversarial(seed)).out, first.out)


def test_the_partials_are_added_in_warp_order(run):
    """Warps 0 to 3 hold K quarters of each tile: with partials 2^24, 1, -2^24, 1 only the order 0, 1, 2, 3 gives 1."""
    tactic = WarpSplitKTactic(16, 8, 128, 1, 1)
    compiled = compile_kernel(tactic, GemmProblem(1, 16, 128))
    x, weight = np.zeros((1, 128), np.float32), np.zeros((16, 128), np.float32)
    x[0, [0, 32, 64, 96]] = 1
    weight[:, [0, 32, 64, 96]] = 2.0**24, 1, -(2.0**24), 1
    out = np.zeros((1, 16), np.uint16)
    interpreter.run(compiled, bind(compiled, tactic, to_bits(x), to_bits(weight), out))
    assert (from_bits(out) == 1).all()


def test_one_binary_serves_every_m(run, tolerance):
    tactic = WarpSplitKTactic(16, 8, 128, 4, 1)
    compiled = compile_kernel(tactic, GemmProblem(1, *SMALL))
    assert all(run(tactic, m, *SMALL, compiled=compiled).error < tolerance for m in range(1, 33))


def test_shared_memory_is_exactly_what_the_footprint_says(run):
    """At the footprint's size it runs; eight bytes less and the last barrier is out of bounds."""
    tactic = WarpSplitKTactic(16, 8, 128, 2, 1)
    compiled = compile_kernel(tactic, GemmProblem(1, *SMALL))
    assert compiled.smem_bytes == tactic.footprint(GemmProblem(8, *SMALL), device.get("h200")).smem_bytes
    run(tactic, 8, *SMALL, compiled=compiled)
    smaller = dataclasses.replace(compiled, smem_bytes=compiled.smem_bytes - 8)
    with pytest.raises(interpreter.InterpreterError):
        run(tactic, 8, *SMALL, compiled=smaller)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_pdl_is_a_switch(trigger):
    tactic = WarpSplitKTactic(16, 8, 128, 2, 1, trigger)
    assert "griddepcontrol" not in compile_kernel(tactic, GemmProblem(1, *SMALL), pdl=False).ptx
    text = compile_kernel(tactic, GemmProblem(1, *SMALL), pdl=True).ptx
    assert text.count("griddepcontrol.launch_dependents") == 1


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_every_activation_loader_triggers_once_before_its_first_copy_or_after_its_last(trigger):
    tactic, problem = WarpSplitKTactic(16, 8, 128, 2, 2, trigger), GemmProblem(8, *SMALL)  # 8 rows: no copy is idle
    table = traced(tactic, problem, schedule="adversarial(1)", opcodes=("griddepcontrol", "cp.async.cg")).table
    copies = ["cp.async.cg.shared.global"] * 8
    wait, fire = ["griddepcontrol.wait"], ["griddepcontrol.launch_dependents"]
    for warp, rows in table[table.event == "execute"].groupby("warp"):
        if warp in (6, 7):
            assert rows.opcode.tolist() == (wait + copies + fire if trigger == LAST else fire + wait + copies)
            assert (rows.lanes == 32).all()
        else:
            assert not rows.opcode.str.startswith("griddepcontrol").any()


@pytest.mark.parametrize("arch", device.architectures())
@pytest.mark.parametrize(("trigger", "order"), [(FIRST, "fire wait" + 16 * " x"), (LAST, "wait" + 16 * " x" + " fire")])
def test_the_assembler_leaves_the_trigger_in_its_place(arch, trigger, order):
    """An activation loader's four tiles of four copies each; the weight loaders' copies stand apart."""
    compiled = compile_kernel(WarpSplitKTactic(16, 8, 256, 2, 2, trigger), GemmProblem(1, 64, 1024), arch=arch)
    names = {"PREEXIT": "fire", "ACQBULK": "wait", "LDGSTS": "x", "EXIT": "exit"}
    found = " ".join(names[opcode] for _, opcode, _, _ in sass.instructions(compiled.cubin) if opcode in names)
    assert found.count("fire") == found.count("wait") == 1 and f"exit {order} exit" in found


def test_only_after_the_dependency_wait_is_x_read_and_weights_before_it():
    """In program order: weight tile 0, barrier set-up, the wait, and only then the unhinted copies, which are x's."""
    text = compile_kernel(WarpSplitKTactic(16, 8, 128, 2, 1), GemmProblem(1, *SMALL)).ptx
    wait = text.index("griddepcontrol.wait")
    hinted = [match.start() for match in re.finditer(r"cp\.async\.cg\S*cache_hint", text)]
    plain = [match.start() for match in re.finditer(r"cp\.async\.cg\.shared\.global \[", text)]
    assert plain and min(plain) > wait
    assert min(hinted) < text.index("mbarrier.init") < text.index("bar.sync") < wait


def test_the_k_loop_is_unrolled():
    """Rolled, K = 7168 ran 3-16 % slower: one mma per k16 phase of a warp's quarter of each tile stands in the PTX."""
    text = compile_kernel(WarpSplitKTactic(16, 8, 256, 4, 1), GemmProblem(1, 64, 2048)).ptx
    assert text.count("mma.sync") == 2048 // 256 * 4


@pytest.mark.parametrize("arch", device.architectures())
def test_legal_tactics_compile_for_every_architecture(arch):
    """Those for the first that the tests above run; for the others as many as show every two fields' values.

    compile_kernel refuses a mis-encoded copy, so that compiling is the scan; the disassembler confirms a few.
    """
    for i, tactic in enumerate(TRIED if arch == device.architectures()[0] else covering(EVERY)):
        compiled = compile_kernel(tactic, GemmProblem(1, *SMALL), arch=arch)
        assert f".target {arch}" in compiled.ptx and compiled.arch == arch
        assert compiled.resources.spill_bytes == 0 and compiled.resources.registers <= 128
        if i % 8 == 0:
            assert odd_descriptors(compiled.cubin) == sass.misencoded_copies(compiled.cubin) == []
            assert sass.opcode_counts(compiled.cubin)["LDGSTS"] > 0


@pytest.mark.parametrize("arch", device.architectures())
def test_the_scan_finds_the_fault_that_a_uniform_base_provokes(monkeypatch, arch):
    """Without the vector register the assembler really does emit odd descriptors, and the scan sees just those."""
    from skinny_gemm.kernels import warp_splitk

    scan, seen = sass.misencoded_copies, []
    monkeypatch.setattr(ptx, "vector_register", lambda value, lane: value)
    monkeypatch.setattr(sass, "misencoded_copies", lambda cubin: seen.append(cubin) or scan(cubin))
    built = warp_splitk.build(GemmProblem(1, *SMALL), WarpSplitKTactic(16, 8, 128, 2, 1), True)
    with pytest.raises(ValueError, match="mis-encoded"):
        compile_jit("warp-splitk", built, built.parameters, built.block, built.smem_bytes, arch, True)
    assert scan(seen[0]) == odd_descriptors(seen[0]) != []
