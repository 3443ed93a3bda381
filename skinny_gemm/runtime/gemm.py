"""The warp split-K GEMM as Python functions: prepared for repeated use, or one call at a time for notebooks.

Tensors decide the machine: CUDA tensors run on their GPU, CPU tensors in the interpreter.
"""

from collections.abc import Mapping
from typing import Any

from ..checks import check_choice
from ..problem import GemmProblem
from ..tactics import WarpSplitKTactic
from . import runner
from .prepared import ALIGNMENT, Prepared
from .tensors import check_tensor, device_of, overlap

BIAS_ALIGNMENT = 8  #: bytes: the kernel reads four BF16 of it at a time


class PreparedWarpSplitK(Prepared):
    """`out = x @ weight^T` for one weight, compiled and loaded in advance for the Ms in `tactics`.

    `weight`: BF16 `[N, K]`, packed row-major, 32-byte aligned, on a CUDA device or the CPU (interpreter); it is not
    copied. `tactics`: M (1 to 32) to the tactic used for it. ValueError, naming the value and what is allowed, for any
    other weight, for an M outside 1 to 32 and for a tactic that is illegal for this (N, K, device).

    `run` never compiles, so it may be captured in a CUDA graph. The kernel uses programmatic dependent launch: it
    waits for the preceding kernel of the stream before it reads x and writes out, but reads `weight` and `bias` at
    once. A preceding kernel that writes *weights or bias* must therefore finish first (an event, a synchronisation, or
    any kernel without PDL in between). There is no autograd: results carry no gradient.
    """

    kind = WarpSplitKTactic

    def __init__(self, weight: Any, tactics: Mapping[int, WarpSplitKTactic]):
        check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
        super().__init__(weight, tactics, lambda m: GemmProblem(m, *weight.shape), WarpSplitKTactic.max_m)

    def run(self, x: Any, out: Any, bias: Any = None) -> Any:
        """Computes `out = x @ weight^T + bias` on the current stream and returns `out`.

        x BF16 `[M, K]`, out BF16 `[M, N]`, both packed row-major and 32-byte aligned; bias BF16 `[N]`, packed and
        8-byte aligned; all on the weight's device, out overlapping none of the inputs. ValueError otherwise, and for
        an M that was not prepared.
        """
        m, n = self.tokens_of(x), self.weight.shape[0]
        check_tensor("out", out, (m, n), ALIGNMENT, like=self.weight)
        if bias is not None:
            check_tensor("bias", bias, (n,), BIAS_ALIGNMENT, like=self.weight)
        for name, tensor in (("x", x), ("weight", self.weight), ("bias", bias)):
            if tensor is not None and overlap(out, tensor):
                raise ValueError(f"out at {out.data_ptr():#x} overlaps {name}, but must have memory of its own")
        self.launch(m, x, out, {}, bias=bias)
        return out


def matmul(x: Any, weight: Any, tactic: WarpSplitKTactic | None = None, backend: str = "auto", bias: Any = None) -> Any:
    """`x @ weight^T + bias` as a new BF16 `[M, N]` tensor, for notebooks: compiles on first use.

    x BF16 `[M, K]` (M 1 to 32), weight BF16 `[N, K]`, bias BF16 `[N]`, layout as in `PreparedWarpSplitK`. `tactic` is
    `WarpSplitKTactic.default` if absent. `backend`: "cuda" and "interpreter" insist on a machine, "auto" takes the
    tensors' own; the interpreter copies CUDA tensors to the CPU and the result back. ValueError for anything else.
    """
    check_choice("backend", backend, runner.BACKENDS)
    check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
    n, k = weight.shape
    check_tensor("x", x, ("M", k), ALIGNMENT, like=weight)
    if bias is not None:
        check_tensor("bias", bias, (n,), BIAS_ALIGNMENT, like=weight)
    if backend == "cuda" and not weight.is_cuda:
        raise ValueError("backend is 'cuda', but the tensors are on the CPU: move them there, or use 'interpreter'")
    home = x.device
    if backend == "interpreter":
        x, weight, bias = x.cpu(), weight.cpu(), None if bias is None else bias.cpu()
    m = x.shape[0]
    if m > WarpSplitKTactic.max_m:
        raise ValueError(f"x has M = {m}, but this kernel takes 1 to {WarpSplitKTactic.max_m} tokens")
    if tactic is None:
        tactic = WarpSplitKTactic.default(GemmProblem(m, n, k), device_of(weight))
    out = x.new_empty((m, n))
    return PreparedWarpSplitK(weight, {m: tactic}).run(x, out, bias).to(home)
