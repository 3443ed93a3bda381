"""The peers: kernels of others that ours are compared with, under the same graphs, buffers and checks.

cuBLAS (`torch.mm(out=)`) and Triton have no PDL here: "isolated" and "chained" are the same launches. FlashInfer's warp
split-K is imported, or read from the file that $SKINNY_GEMM_FLASHINFER names (its
flashinfer/gemm/kernels/dense_bf16_gemm_warp_splitk.py); each (N, K, tactic, PDL) costs seconds of compilation.
"""

import functools
import importlib.util
import os
import sys
from collections.abc import Iterable
from dataclasses import astuple
from types import ModuleType
from typing import Any

from ..problem import GemmProblem
from .graphs import Launch

TRITON_TACTICS = ("16,256,5,2", "32,128,6,4", "64,128,4,4")  #: weight rows and K elements of a tile, stages, warps
FLASHINFER_MAX_M = 32
FLASHINFER_FILE = "SKINNY_GEMM_FLASHINFER"


def available() -> dict[str, str | None]:
    """For each peer None if it can run here, else why not."""
    triton = None if importlib.util.find_spec("triton") else "triton is not installed"
    try:
        _flashinfer()
        flashinfer = None
    except Exception as error:  # whatever a foreign module does while it loads, it is a peer less
        flashinfer = f"{type(error).__name__}: {error}"
    return {"cublas": None, "triton": triton, "flashinfer": flashinfer}


def tactics(peer: str, problem: GemmProblem) -> list[str]:
    """The tactics of `peer` to measure for `problem`; [""] where it chooses by itself. ValueError if it cannot."""
    if peer == "triton":
        return [text for text in TRITON_TACTICS if problem.k % int(text.split(",")[1]) == 0]
    if peer == "flashinfer":
        if problem.m > FLASHINFER_MAX_M:
            raise ValueError(f"M is {problem.m}, but it takes 1 to {FLASHINFER_MAX_M} tokens")
        return [",".join(map(str, astuple(_flashinfer().default_tactic(problem.m, problem.n, problem.k))))]
    return [""]


def launches(peer: str, tactic: str, x: Any, weights: Iterable[Any], outs: Iterable[Any], pdl: bool) -> list[Launch]:
    """One launch per (weight, out) pair: out `[M, N]` = x `[M, K]` @ weight `[N, K]`^T, all BF16 and packed."""
    pairs = zip(weights, outs, strict=True)
    if peer == "cublas":
        import torch

        return [functools.partial(torch.mm, x, weight.t(), out=out) for weight, out in pairs]
    fields = [int(field) for field in tactic.split(",")]
    if peer == "triton":
        from . import peer_triton

        return [functools.partial(peer_triton.run, x, weight, out, *fields) for weight, out in pairs]
    module = _flashinfer()
    parsed, run = module.WarpSplitKTactic(*fields), module.run_warp_splitk_dense
    return [functools.partial(run, x, weight.t(), out, pdl, parsed) for weight, out in pairs]


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
