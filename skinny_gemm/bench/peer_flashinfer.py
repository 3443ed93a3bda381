"""FlashInfer's warp split-K as a peer, for M up to 32: its own kernel object, behind pointers and integers.

Like ours it is compiled with PDL and for any M; a launch without the PDL attribute makes the instructions do nothing.
"""

from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import cutlass.cute as cute

from ..artifact import LaunchArguments, Parameter
from ..device import Device
from ..problem import GemmProblem
from .foreign import ForeignFile

FILE = ForeignFile("SKINNY_GEMM_FLASHINFER", "flashinfer/gemm/kernels/dense_bf16_gemm_warp_splitk.py")
MAX_M = 32
LEAST = 8  #: tactics of a problem, if it has as many
RESIDENT = (1, 2, 3)  #: CTAs an SM whose deepest rings are tried
_M = Parameter("m", "i32", joined=True)


class Adaptor:
    """The kernel for one (N, K, tactic) and any M, with the parameters that its tensors become."""

    parameters = Parameter("weight", "pointer"), Parameter("x", "pointer"), _M, Parameter("out", "pointer", True), _M
    cluster = (1, 1, 1)

    def __init__(self, problem: GemmProblem, tactic: str, pdl: bool):
        self.n, self.k = problem.n, problem.k
        self.peer = _kernel(_parse(tactic), pdl)
        self.block, self.smem_bytes = (self.peer.threads, 1, 1), self.peer.smem_bytes

    @cute.experimental.jit
    def __call__(self, weight, x, x_rows, out, out_rows):
        bias = cute.make_tensor(out, cute.make_layout((self.n,)))  # never read, so that the binary does not have it
        self.peer(
            cute.make_tensor(weight, cute.make_layout((self.n, self.k), stride=(self.k, 1))),
            cute.make_tensor(x, cute.make_layout((x_rows, self.k), stride=(self.k, 1))),
            bias,
            cute.make_tensor(out, cute.make_layout((out_rows, self.n), stride=(self.n, 1))),
            [],  # the default stream: only traced
        )


build = Adaptor


def specialisation(problem: GemmProblem, tactic: str) -> dict[str, int]:
    """What of `problem` a binary is compiled for."""
    return {"n": problem.n, "k": problem.k}


def arguments(tactic: str, x: Any, weight: Any, out: Any) -> LaunchArguments:
    """One launch for x `[M, K]`, weight `[N, K]` and out `[M, N]`."""
    m, parsed = x.shape[0], _parse(tactic)
    grid = -(-weight.shape[0] // parsed.output_tile), -(-m // parsed.token_tile), 1
    return LaunchArguments(grid, (weight, x, m, out, m))


def tactics(problem: GemmProblem, device: Device) -> list[str]:
    """Its default, and of those that it takes for legal a grid around; ValueError if there is none.

    Every output tile and K tile, with each token tile that passes over the weights at most twice, and rings as deep as
    they can be with one, two and three CTAs on an SM; the default also with the other number of loader warps.
    """
    if problem.m > MAX_M:
        raise ValueError(f"M is {problem.m}, but it takes 1 to {MAX_M} tokens")
    module = FILE.load()
    # It asks PyTorch for the SMs of the GPU that it runs on: planning must not need one.
    properties = SimpleNamespace(multi_processor_count=device.sms)
    cuda = SimpleNamespace(current_device=lambda: 0, get_device_properties=lambda _: properties)
    vars(module).update(_torch=SimpleNamespace(cuda=cuda))
    legal = module.autotune_tactics(problem.m, problem.n, problem.k)
    if not legal:
        raise ValueError(f"it has no tactic for {problem.n}x{problem.k} at M = {problem.m}")
    default, *others = legal
    deepest: dict[tuple, Any] = {}
    for tactic in sorted(others, key=lambda tactic: tactic.stages):
        passes = -(-problem.m // tactic.token_tile)
        if passes > 2 or tactic.b_loader_warps != default.b_loader_warps:
            continue
        charged = _kernel(tactic, True).smem_bytes + device.smem_reserved_per_cta
        for resident in RESIDENT:
            if resident * charged <= device.smem_per_sm:
                deepest[tactic.output_tile, tactic.token_tile, tactic.k_tile, resident] = tactic
    same = ("output_tile", "token_tile", "k_tile", "stages")
    flipped = [t for t in others if all(getattr(t, name) == getattr(default, name) for name in same)]
    chosen = dict.fromkeys([default, *flipped, *deepest.values()])
    filled = list(dict.fromkeys([*chosen, *others]))[: max(LEAST, len(chosen))]
    return [",".join(map(str, astuple(tactic))) for tactic in filled]


def _kernel(tactic: Any, pdl: bool) -> Any:
    return FILE.load().CpAsyncWarpSplitKKernel(tactic, pdl, False)


def _parse(tactic: str) -> Any:
    return FILE.load().WarpSplitKTactic(*map(int, tactic.split(",")))
