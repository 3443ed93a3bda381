"""The weight-stationary GEMM on a GPU: right for hundreds of tactics, reproducible, and honest under PDL."""

import functools
import random

import numpy as np
import pytest
import torch

from skinny_gemm import WarpSplitKTactic, WsGemmTactic, interpreter, runtime
from skinny_gemm.interpreter import Trace, shared_accesses
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.runtime import bind, compile_kernel, launch
from skinny_gemm.runtime.trials import random_operands
from skinny_gemm.runtime.verify import verify

MS = (1, 7, 8, 9, 16, 17, 32, 63, 64)
FRONTS = (560, 288)


def front(m):
    """One rank of two: 36 of 48 router rows are real, 48 latent columns; 8 K blocks."""
    return FrontProblem(m, 96, 256, split=48, valid=36, latent=96, experts=72)


def empty(tactic, problem, rows=1):
    """A fresh mailbox on the GPU, with `rows` rows behind those of the problem."""
    bits = np.concatenate([tactic.output(problem), np.repeat(tactic.output(problem)[:1], rows, axis=0)])
    return torch.from_numpy(bits.view(np.int16)).cuda().view(torch.bfloat16)


def check(tactic, problem, normal, gpu, repeat=1):
    """Publishes fresh random data: every result within its tolerance, nothing else written, all runs the same bits."""
    compiled = compile_kernel(tactic, problem, gpu.arch)
    x, weight = normal(problem.m, problem.k), normal(problem.n, problem.k)
    product = x.double() @ weight.double().T
    first = None
    for _ in range(repeat):
        box = empty(tactic, problem)
        launch(compiled, bind(compiled, tactic, x, weight, box))
        for result in tactic.results(problem):
            part, expected = box[: problem.m, result.columns], product[:, result.product]
            found = (part if result.dtype == "bf16" else part.contiguous().view(torch.float32)).double()
            error = ((found - expected).norm() / expected.norm()).item()
            assert error < result.tolerance, (tactic, problem, result.name, error)
        touched = box.view(torch.int16) != empty(tactic, problem).view(torch.int16)
        for result in tactic.results(problem):
            touched[: problem.m, result.columns] = False
        assert not touched.any(), (tactic, problem)
        first = box if first is None else first
        assert torch.equal(box.view(torch.int16), first.view(torch.int16))


@pytest.mark.parametrize("m", MS)
def test_a_sample_of_all_legal_tactics_of_a_small_front(gpu, normal, m):
    for tactic in random.sample(WsGemmTactic.enumerate(front(m), gpu), 30):
        check(tactic, front(m), normal, gpu)


@pytest.mark.parametrize("n", FRONTS)
@pytest.mark.parametrize("m", MS)
def test_the_fronts_of_kimi_k3(gpu, normal, n, m):
    """The default, repeatedly, and a sample of everything that `enumerate` calls legal: it launches and it is right."""
    problem = FrontProblem.of(GemmProblem(m, n, 7168))
    check(WsGemmTactic.default(problem, gpu), problem, normal, gpu, repeat=20)
    for tactic in random.sample(WsGemmTactic.enumerate(problem, gpu), 6):
        check(tactic, problem, normal, gpu)


@pytest.mark.parametrize("ks", (1, 2, 4, 7, 8, 14, 16))
def test_every_cluster_size_launches(gpu, normal, ks):
    problem = FrontProblem.of(GemmProblem(16, 560, 7168))
    tactics = [tactic for tactic in WsGemmTactic.enumerate(problem, gpu) if tactic.ks == ks]
    for tactic in random.sample(tactics, 4):
        check(tactic, problem, normal, gpu)


@pytest.mark.parametrize("tactic", ("7,2,8,3,8,1", "5,2,16,0,0,4", "1,16,1,12,0,4"))
def test_behind_a_kernel_that_produces_x_it_waits(gpu, normal, tactic):
    """x comes from a warp split-K launched just before, in a graph with PDL edges, many times over."""
    problem, tactic = FrontProblem.of(GemmProblem(8, 560, 7168)), WsGemmTactic.parse(tactic)
    before = WarpSplitKTactic.default(GemmProblem(8, 7168, 1536), gpu)
    producer = compile_kernel(before, GemmProblem(8, 7168, 1536), gpu.arch)
    compiled = compile_kernel(tactic, problem, gpu.arch)
    hidden, up, weight = normal(8, 1536), normal(7168, 1536) / 40, normal(560, 7168)
    x, box = torch.empty(8, 7168, dtype=torch.bfloat16, device="cuda"), empty(tactic, problem)

    def pair(pdl):
        launch(producer, bind(producer, before, hidden, up, x), pdl=pdl)
        launch(compiled, bind(compiled, tactic, x, weight, box), pdl=pdl)

    pair(False)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pair(True)
    for _ in range(50):
        hidden.copy_(normal(8, 1536))
        x.fill_(float("nan"))
        pair(False)
        torch.cuda.synchronize()
        expected = box.view(torch.int16).clone()
        x.fill_(float("nan"))
        box.copy_(empty(tactic, problem))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(box.view(torch.int16), expected)


def test_a_cluster_that_does_not_fit_is_refused_before_the_launch(gpu):
    """The occupancy query, asked for a cluster whose CTAs want more shared memory than the GPU has for 16 of them."""
    import dataclasses

    problem = FrontProblem.of(GemmProblem(8, 560, 7168))
    compiled = compile_kernel(WsGemmTactic.parse("5,2,16,0,8,1"), problem, gpu.arch)
    impossible = dataclasses.replace(compiled, cluster=(32, 1, 1))
    with pytest.raises(ValueError, match="this device allows clusters up to"):
        runtime.load(impossible)


SMALL = "verify ws-gemm --m 17 --n 96 --k 256 --split 48 --valid 36 --backend cuda"


@pytest.mark.parametrize("tool", ("memcheck", "synccheck", "initcheck", "racecheck"))
@pytest.mark.parametrize("tactic", ("2,2,2,1,0,1", "2,2,2,1,8,1"))
def test_the_sanitizer_finds_nothing(sanitize, tool, tactic):
    sanitize(tool, "ws_gemm", f"{SMALL} --tactic {tactic}")


@pytest.mark.xdist_group("ncu")  # the counters serve one profiler at a time
@pytest.mark.parametrize("tactic", ("2,4,1,0,0,1", "2,2,2,1,8,1"))
def test_shared_memory_counters_equal_the_interpreters_trace(shared_memory_counters, tactic):
    """The kernel's own accesses are free of conflicts, and take the wavefronts of the trace.

    In the settle pipeline a few stores wait for what other CTAs and the copy engine write into the same banks: the
    counters call that a conflict, and every wavefront beyond the trace's is one of those.
    """
    measured = shared_memory_counters("ws_gemm", f"{SMALL} --tactic {tactic}")
    kind, problem = WsGemmTactic.parse(tactic), FrontProblem(17, 96, 256, split=48, valid=36)
    x, weight = random_operands(problem, 0)
    recorded = Trace(opcodes=("ld.shared", "st.shared"))
    compiled = compile_kernel(kind, problem)
    interpreter.run(compiled, bind(compiled, kind, x, weight, kind.output(problem)), trace=recorded)
    accesses = shared_accesses(recorded.table())
    accesses = accesses[~accesses.opcode.str.contains("cluster")]
    for op, (wavefronts, conflicts) in measured.items():
        mine = accesses[accesses.opcode.str.startswith(f"{op}.shared")]
        print(tactic, op, "traced", mine.wavefronts.sum(), "ideal", mine.ideal.sum(), "measured", wavefronts, conflicts)
        assert mine.wavefronts.sum() == mine.ideal.sum() == wavefronts - conflicts
        assert conflicts == 0 or (op == "st" and kind.tg)


def test_both_machines_see_the_same_data():
    tactic, problem = WsGemmTactic.parse("3,2,2,1,8,1"), front(9)
    ours, theirs = (verify(tactic, problem, backend, seed=1) for backend in ("cuda", "interpreter"))
    assert ours.passed and theirs.passed
    for name in ours.relative_error:
        assert np.isclose(ours.relative_error[name], theirs.relative_error[name], rtol=0.5, atol=1e-7)


def test_launches_do_not_depend_on_torchs_allocations(gpu, normal):
    """Sixty-four launches in flight on one stream, each with weights and a mailbox of its own."""
    problem = FrontProblem.of(GemmProblem(4, 288, 7168))
    tactic = WsGemmTactic.default(problem, gpu)
    compiled = compile_kernel(tactic, problem, gpu.arch)
    x = normal(4, 7168)
    weights, boxes = [normal(288, 7168) for _ in range(64)], [empty(tactic, problem) for _ in range(64)]
    launches = [
        functools.partial(launch, compiled, bind(compiled, tactic, x, w, b))
        for w, b in zip(weights, boxes, strict=True)
    ]
    for enqueue in launches:
        enqueue()
    latent, logits = tactic.results(problem)
    for weight, box in zip(weights, boxes, strict=True):
        expected = x.double() @ weight.double().T
        found = box[:4, logits.columns].contiguous().view(torch.float32).double()
        assert ((found - expected[:, logits.product]).norm() / expected[:, logits.product].norm()).item() < 1e-5
        assert ((box[:4, latent.columns].double() - expected[:, latent.product]).norm()).item() < 4e-3 * expected[
            :, latent.product
        ].norm().item()
