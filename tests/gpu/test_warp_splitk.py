"""The warp split-K kernel on a GPU: right, reproducible, confined to its outputs, capturable, and honest under PDL."""

import numpy as np
import pytest
import torch

from skinny_gemm import PreparedGemm, WarpSplitKTactic, interpreter, matmul
from skinny_gemm.catalogue import shapes
from skinny_gemm.interpreter import Trace, shared_accesses
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_kernel
from skinny_gemm.runtime import prepared as prepared_module
from skinny_gemm.runtime.trials import random_operands
from skinny_gemm.runtime.verify import verify
from skinny_gemm.tactics.base import BF16_TOLERANCE, TRIGGERS
from tests.support.launches import check_pdl_chain, error, guarded

SMALL = (64, 512)
MS = (1, 3, 7, 8, 9, 17, 31, 32)


@pytest.mark.parametrize("bias", (False, True))
def test_every_legal_tactic_of_a_small_problem(gpu, normal, bias):
    n, k = SMALL
    weight, added = normal(n, k), normal(n) if bias else None
    for tactic in WarpSplitKTactic.enumerate(GemmProblem(1, n, k), gpu):
        prepared = PreparedGemm(weight, dict.fromkeys(MS, tactic))
        for m in MS:
            x, (out, touched) = normal(m, k), guarded(m, n)
            prepared.run(x, out, added)
            assert error(out, x, weight, added) < BF16_TOLERANCE and not touched(), (tactic, m)


TP8 = {(shape.n, shape.k): shape for shape in shapes() if shape.parallel == "TP8"}.values()


@pytest.mark.parametrize("shape", TP8, ids=lambda shape: shape.label)
def test_every_tp8_shape_at_its_default_tactic(gpu, normal, shape):
    weight = normal(shape.n, shape.k)
    for m in (1, 3, 8, 32):
        try:
            tactic = WarpSplitKTactic.default(GemmProblem(m, shape.n, shape.k), gpu)
        except ValueError as reason:
            pytest.skip(str(reason))
        x, (out, touched) = normal(m, shape.k), guarded(m, shape.n)
        PreparedGemm(weight, {m: tactic}).run(x, out)
        assert error(out, x, weight) < BF16_TOLERANCE and not touched(), m


def test_repeated_runs_are_bitwise_equal(normal):
    x, weight = normal(8, 7168), normal(3584, 7168)
    first = matmul(x, weight)
    for _ in range(50):
        assert torch.equal(matmul(x, weight), first)


def test_the_interpreter_agrees_with_the_gpu(normal):
    """Not bitwise: the hardware's order of additions inside one mma is its own."""
    x, weight = normal(9, 512), normal(64, 512)
    ours, theirs = matmul(x, weight, backend="cuda"), matmul(x, weight, backend="interpreter")
    assert ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item() < 1e-3


def test_run_is_captured_in_a_graph_and_never_compiles(gpu, normal, monkeypatch):
    weight = normal(2112, 7168)
    tactics = {m: WarpSplitKTactic.default(GemmProblem(m, 2112, 7168), gpu) for m in (1, 8)}
    prepared = PreparedGemm(weight, tactics)
    monkeypatch.setattr(prepared_module, "compile_kernel", lambda *_: pytest.fail("run must not compile"))
    x = {m: normal(m, 7168) for m in tactics}
    out = {m: torch.full((m, 2112), float("nan"), dtype=torch.bfloat16, device="cuda") for m in tactics}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for m in tactics:
            prepared.run(x[m], out[m])
    for _ in range(3):
        for m in tactics:
            x[m].copy_(normal(m, 7168))
            out[m].fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert all(error(out[m], x[m], weight) < BF16_TOLERANCE for m in tactics)


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_a_pdl_chain_of_dependent_layers_gives_what_separate_launches_give(normal, trigger):
    check_pdl_chain(WarpSplitKTactic(16, 8, 256, 4, 2, trigger), normal)


def test_bad_tensors_are_rejected_before_anything_runs(gpu, normal):
    weight = normal(64, 512)
    tactic = WarpSplitKTactic(16, 8, 128, 2, 1)
    prepared = PreparedGemm(weight, {8: tactic})
    x, out = normal(8, 512), torch.zeros(8, 64, dtype=torch.bfloat16, device="cuda")
    shifted = normal(8 * 512 + 1)[1:].view(8, 512)
    for bad_x, bad_out, words in (
        (normal(512, 8).T, out, "packed row-major"),
        (shifted, out, "32-byte aligned"),
        (x.float(), out, "torch.bfloat16"),
        (x.cpu(), out, "on cpu"),
        (normal(7, 512), out, "prepared Ms are 8"),
        (x, normal(64, 8).T, "packed row-major"),
        (x, x.view(-1)[: 8 * 64].view(8, 64), "overlaps x"),
    ):
        with pytest.raises(ValueError, match=words):
            prepared.run(bad_x, bad_out)
    torch.cuda.synchronize()
    assert not out.any()


SANITIZERS = [("memcheck", 2048), ("synccheck", 2048), ("initcheck", 2048), ("racecheck", 1024)]


@pytest.mark.parametrize(("tool", "k"), SANITIZERS)
def test_the_sanitizer_finds_nothing(sanitize, tool, k):
    """racecheck gets a ring that is filled once. It orders only threads that arrive on an mbarrier themselves: reads of
    31 lanes, ordered by `bar.warp.sync` before the elected lane's arrival, it reports when the stage is reused (on a
    minimal program too, and no longer once every lane arrives). The interpreter's vector clocks watch the reuse.
    """
    sanitize(tool, "warp_splitk", f"verify warp-splitk --m 9 --n 64 --k {k} --tactic 16,8,256,4,2 --backend cuda")


@pytest.mark.xdist_group("ncu")  # the counters serve one profiler at a time
@pytest.mark.parametrize("tactic", ("16,8,256,4,2", "32,32,128,4,2", "16,16,256,3,1"))
def test_shared_memory_counters_equal_the_interpreters_trace(shared_memory_counters, tactic):
    """Bank conflicts and wavefronts of shared loads and stores: hardware counters against the trace of the same run."""
    command = f"verify warp-splitk --m 8 --n 64 --k 1024 --tactic {tactic} --backend cuda"
    measured = shared_memory_counters("warp_splitk", command)
    kind, problem = WarpSplitKTactic.parse(tactic), GemmProblem(8, 64, 1024)
    x, weight = random_operands(problem, 0)
    recorded = Trace(opcodes=("ldmatrix", "ld.shared", "st.shared"))
    compiled = compile_kernel(kind, problem)
    out = np.zeros((8, 64), np.uint16)
    interpreter.run(compiled, bind(compiled, kind, x, weight, out), trace=recorded)
    accesses = shared_accesses(recorded.table())
    for op, opcodes in (("ld", ("ldmatrix", "ld.shared")), ("st", ("st.shared",))):
        mine = accesses[accesses.opcode.str.startswith(opcodes)]
        wavefronts, conflicts = measured[op]
        print(op, "traced", mine.wavefronts.sum(), "ideal", mine.ideal.sum(), "measured", wavefronts, conflicts)
        assert wavefronts == mine.wavefronts.sum()
        assert conflicts == (mine.wavefronts - mine.ideal).sum() == 0


def test_verify_on_both_machines_sees_the_same_data():
    tactic, problem = WarpSplitKTactic(16, 8, 128, 2, 1), GemmProblem(9, 64, 512)
    ours, theirs = (verify(tactic, problem, backend, seed=1) for backend in ("cuda", "interpreter"))
    assert ours.passed and theirs.passed
    assert np.isclose(ours.relative_error["out"], theirs.relative_error["out"], rtol=1e-2)
