"""The wgmma split-K kernel on a GPU: right, reproducible, confined to its outputs, capturable, honest under PDL."""

import random

import numpy as np
import pytest
import torch

from skinny_gemm import PreparedGemm, interpreter
from skinny_gemm.catalogue import shapes
from skinny_gemm.interpreter import Trace, shared_accesses
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_kernel, launch
from skinny_gemm.runtime.trials import random_operands
from skinny_gemm.runtime.verify import verify
from skinny_gemm.tactics import WgmmaSplitKTactic
from skinny_gemm.tactics.base import BF16_TOLERANCE, F32_TOLERANCE, TRIGGERS
from tests.support.covering import combinations, cover
from tests.support.launches import check_pdl_chain, error, guarded

SMALL = (560, 1024)
MS = {8: (1, 3, 7, 8), 16: (9, 16), 24: (17, 24), 32: (31, 32), 48: (33, 48), 64: (63, 64)}  # by token tile
CLUSTERS = (1, 2, 4, 8, 16)


@pytest.fixture(autouse=True, scope="module")
def wgmma(gpu):
    if reason := WgmmaSplitKTactic.lacking(gpu):
        pytest.skip(reason)


def check(tactic, weight, m, normal, bias=None):
    """Multiplies fresh random tokens: within tolerance, and nothing else written."""
    n, k = weight.shape
    x, (out, touched) = normal(m, k), guarded(m, n)
    PreparedGemm(weight, {m: tactic}).run(x, out, bias)
    assert error(out, x, weight, bias) < BF16_TOLERANCE and not touched(), (tactic, m)


@pytest.mark.parametrize("token_tile", MS)
def test_legal_tactics_of_a_small_problem(gpu, normal, token_tile):
    """As many as show every two fields' values: K loops unrolled and rolled, heights of 8 to 187 rows."""
    weight, added = normal(*SMALL), normal(SMALL[0])
    legal = WgmmaSplitKTactic.enumerate(GemmProblem(token_tile, *SMALL), gpu)
    for tactic in cover(legal, lambda tactic: combinations(vars(tactic), 2)):
        for m in MS[token_tile]:
            check(tactic, weight, m, normal, added if m % 2 else None)


TP8 = {(shape.n, shape.k): shape for shape in shapes() if shape.parallel == "TP8"}.values()


@pytest.mark.parametrize("shape", TP8, ids=lambda shape: shape.label)
def test_every_tp8_shape_at_its_default_tactic(gpu, normal, shape):
    weight = normal(shape.n, shape.k)
    for m in (1, 3, 8, 17, 32, 64):
        problem = GemmProblem(m, shape.n, shape.k)
        if WgmmaSplitKTactic.unsupported(problem, gpu) is None:
            check(WgmmaSplitKTactic.default(problem, gpu), weight, m, normal)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_every_cluster_size_launches(gpu, normal, cluster):
    """A sample of all legal tactics of the front, heights of 38 and 63 rows among them."""
    if cluster > gpu.max_cluster:
        pytest.skip(f"this GPU allows clusters up to {gpu.max_cluster}")
    weight = normal(560, 7168)
    for m in (7, 64):
        legal = WgmmaSplitKTactic.enumerate(GemmProblem(m, 560, 7168), gpu)
        tactics = [tactic for tactic in legal if tactic.cluster == cluster]
        for tactic in random.sample(tactics, min(4, len(tactics))):
            check(tactic, weight, m, normal)


@pytest.mark.parametrize("tactic", ["16,1,4,64,4,16", "16,4,2,64,2,16"])
def test_fp32_results(gpu, normal, tactic):
    tactic, (n, k) = WgmmaSplitKTactic.parse(tactic), (1048, 4096)
    compiled = compile_kernel(tactic, GemmProblem(1, n, k), gpu.arch, output="f32")
    x, weight, bias, (out, touched) = normal(9, k), normal(n, k), normal(n), guarded(9, n, torch.float32)
    launch(compiled, bind(compiled, tactic, x, weight, out, bias=bias))
    assert error(out, x, weight, bias) < F32_TOLERANCE and not touched()


@pytest.mark.parametrize("tactic", ["132,1,2,64,6,32", "66,2,1,128,3,32"])
def test_repeated_runs_are_bitwise_equal(normal, tactic):
    x, weight, out = normal(32, 7168), normal(3584, 7168), torch.empty(32, 3584, dtype=torch.bfloat16, device="cuda")
    prepared = PreparedGemm(weight, {32: WgmmaSplitKTactic.parse(tactic)})
    first = prepared.run(x, out).clone()
    for _ in range(50):
        assert torch.equal(prepared.run(x, out.fill_(float("nan"))), first)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("tactic", ["32,1,2,64,6,24", "32,1,1,128,2,24", "32,4,2,64,4,24"])
def test_a_pdl_chain_of_dependent_layers_gives_what_separate_launches_give(normal, tactic, trigger):
    """Unrolled, rolled, and a cluster whose rings hold all of K."""
    check_pdl_chain(WgmmaSplitKTactic.parse(f"{tactic},{trigger}"), normal)


@pytest.mark.parametrize("tool", ["memcheck", "synccheck", "initcheck", "racecheck"])
@pytest.mark.parametrize("tactic", ["2,1,2,64,3,32", "2,2,1,64,2,32"])
def test_the_sanitizer_finds_nothing(sanitize, tool, tactic):
    sanitize(tool, "wgmma_splitk", f"verify wgmma-splitk --m 17 --n 72 --k 1024 --tactic {tactic} --backend cuda")


@pytest.mark.xdist_group("ncu")  # the counters serve one profiler at a time
@pytest.mark.parametrize("tactic", ["2,1,2,64,3,32", "1,1,1,128,2,8", "5,1,4,64,2,64"])
def test_shared_memory_counters_equal_the_interpreters_trace(shared_memory_counters, tactic):
    """Bank conflicts and wavefronts of shared loads and stores: hardware counters against the trace of the same run."""
    kind = WgmmaSplitKTactic.parse(tactic)
    problem = GemmProblem(kind.token_tile - 1, 72, 1024)
    command = f"verify wgmma-splitk --m {problem.m} --n 72 --k 1024 --tactic {tactic} --backend cuda"
    measured = shared_memory_counters("wgmma_splitk", command)
    x, weight = random_operands(problem, 0)
    recorded = Trace(opcodes=("ld.shared", "st.shared"))
    compiled = compile_kernel(kind, problem)
    interpreter.run(compiled, bind(compiled, kind, x, weight, kind.output(problem)), trace=recorded)
    accesses = shared_accesses(recorded.table())
    for op, (wavefronts, conflicts) in measured.items():
        mine = accesses[accesses.opcode.str.startswith(f"{op}.shared")]
        print(op, "traced", mine.wavefronts.sum(), "ideal", mine.ideal.sum(), "measured", wavefronts, conflicts)
        assert wavefronts == mine.wavefronts.sum()
        assert conflicts == (mine.wavefronts - mine.ideal).sum() == 0


@pytest.mark.parametrize("tactic", ["2,1,2,64,3,32", "2,2,1,64,2,32"])
def test_verify_on_both_machines_sees_the_same_data(tactic):
    tactic, problem = WgmmaSplitKTactic.parse(tactic), GemmProblem(17, 72, 1024)
    ours, theirs = (verify(tactic, problem, backend, seed=1) for backend in ("cuda", "interpreter"))
    assert ours.passed and theirs.passed
    assert np.isclose(ours.relative_error["out"], theirs.relative_error["out"], rtol=1e-2)
