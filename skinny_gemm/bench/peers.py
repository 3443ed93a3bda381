"""The peers: kernels of others that ours are compared with, under the same graphs, buffers and checks.

- `cublas`: `torch.mm(out=)`.
- `triton`: a skinny GEMM in Triton, written here, in a few tile shapes; no PDL and no split over K.
- `flashinfer`: FlashInfer's warp split-K where it can be imported, or from the single file that
  $SKINNY_GEMM_FLASHINFER names (flashinfer/gemm/kernels/dense_bf16_gemm_warp_splitk.py). Each (N, K, tactic, PDL) of it
  costs seconds of compilation inside the campaign.

cuBLAS and Triton have no PDL here: "isolated" and "chained" are the same launches, back to back in one graph.
"""

import functools
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import astuple
from types import ModuleType
from typing import Any

from ..checks import check_choice
from ..problem import GemmProblem
from ..records import PEERS
from .graphs import Launch

#: Triton: weight rows and K elements of a tile, stages, warps.
TRITON_TACTICS = ("16,256,5,2", "32,128,6,4", "64,128,4,4")
FLASHINFER_MAX_M = 32
FLASHINFER_FILE = "SKINNY_GEMM_FLASHINFER"


def available() -> dict[str, str | None]:
    """For each peer None if it can run here, else why not."""
    return {
        "cublas": None,
        "triton": None if importlib.util.find_spec("triton") else "triton is not installed",
        "flashinfer": _reason(_flashinfer),
    }


def tactics(peer: str, problem: GemmProblem) -> list[str]:
    """The tactics of `peer` to measure for `problem`; [""] where it chooses by itself. ValueError if it cannot."""
    if peer == "triton":
        return [text for text in TRITON_TACTICS if problem.k % int(text.split(",")[1]) == 0]
    if peer == "flashinfer":
        m, n, k = problem.m, problem.n, problem.k
        if m > FLASHINFER_MAX_M:
            raise ValueError(f"M is {m}, but it takes 1 to {FLASHINFER_MAX_M} tokens")
        return [",".join(map(str, astuple(_flashinfer().default_tactic(m, n, k))))]
    return [""]


def launches(peer: str, tactic: str, x: Any, weights: Iterable[Any], outs: Iterable[Any], pdl: bool) -> list[Launch]:
    """One launch per (weight, out) pair: out `[M, N]` = x `[M, K]` @ weight `[N, K]`^T, all BF16 and packed."""
    check_choice("peer", peer, PEERS)
    pairs = zip(weights, outs, strict=True)
    if peer == "cublas":
        return [functools.partial(_cublas, x, weight.t(), out) for weight, out in pairs]
    if peer == "triton":
        return [functools.partial(_triton, x, weight, out, tactic) for weight, out in pairs]
    module = _flashinfer()
    parsed = module.WarpSplitKTactic(*map(int, tactic.split(",")))
    run = module.run_warp_splitk_dense
    return [functools.partial(run, x, weight.t(), out, pdl, parsed) for weight, out in pairs]


def _cublas(x: Any, weight_t: Any, out: Any) -> None:
    import torch

    torch.mm(x, weight_t, out=out)


def _triton(x: Any, weight: Any, out: Any, tactic: str) -> None:
    from .peer_triton import run

    run(x, weight, out, *map(int, tactic.split(",")))


@functools.cache
def _flashinfer() -> ModuleType:
    """FlashInfer's module; ImportError where there is none."""
    if path := os.environ.get(FLASHINFER_FILE):
        spec = importlib.util.spec_from_file_location("flashinfer_warp_splitk", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is no Python file")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # its dataclasses look it up there
        spec.loader.exec_module(module)
        return module
    return importlib.import_module("flashinfer.gemm.kernels.dense_bf16_gemm_warp_splitk")


def _reason(load: Callable[[], object]) -> str | None:
    try:
        load()
    except Exception as error:  # whatever a foreign module does while it loads, it is a peer less
        return f"{type(error).__name__}: {error}"
    return None
