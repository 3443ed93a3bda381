"""What launches on a GPU are checked with."""

import torch

from skinny_gemm import runtime
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import bind, compile_kernel, launch
from skinny_gemm.runtime.tensors import device_of


def error(out, x, weight, bias=None):
    """Relative Frobenius error of `out` against FP64."""
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    return ((out.double() - expected).norm() / expected.norm()).item()


def guarded(m, n, dtype=torch.bfloat16):
    """out `[m, n]` full of NaN inside a larger buffer, and a function that tells whether anything else was touched.

    16 rows before and behind it, so that it is 32-byte aligned whatever n is.
    """
    buffer = torch.full((m + 32, n), float("nan"), dtype=dtype, device="cuda")
    return buffer[16 : m + 16], lambda: not (buffer[:16].isnan().all() and buffer[m + 16 :].isnan().all())


def check_pdl_chain(tactic, normal):
    """y = W x, x = y, forty times in one graph with PDL edges: every link must wait for its predecessor's writes."""
    n = k = 2048
    weight = normal(n, k) / k**0.5
    compiled = compile_kernel(tactic, GemmProblem(1, n, k), device_of(weight).arch)
    runtime.load(compiled)
    start = normal(8, k)
    ring = [start.clone(), torch.empty_like(start)]

    def chain(pdl, between):
        for step in range(40):
            source, target = ring[step % 2], ring[(step + 1) % 2]
            launch(compiled, bind(compiled, tactic, source, weight, target), pdl=pdl)
            between()

    chain(False, torch.cuda.synchronize)
    expected = ring[0].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain(True, lambda: None)
    for _ in range(20):
        ring[0].copy_(start)
        ring[1].fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(ring[0], expected)
