"""The peers: kernels of others that ours are compared with at their best, under the same graphs, buffers and checks.

cuBLAS (`torch.mm(out=)`), cuBLASLt and Triton have no PDL here: "isolated" and "chained" are the same launches. Those
in `ADAPTED` are written in the CuTe DSL: a thin adaptor around each, `peer_<name>.py`, has their kernels compiled,
cached and launched like ours, on a host without a GPU too. Their files are read where they lie (`foreign.ForeignFile`).
"""

import functools
import importlib
from collections.abc import Iterable
from typing import Any

from ..artifact import CompiledKernel, LaunchArguments
from ..device import Device
from ..problem import GemmProblem
from ..records import PEERS
from ..runtime.compile import compile_built
from . import peer_cublaslt
from .graphs import Launch

ADAPTED = ("flashinfer", "simt")
TRITON_TACTICS = ("16,256,5,2", "32,128,6,4", "64,128,4,4")  #: weight rows and K elements of a tile, stages, warps


def available() -> dict[str, str | None]:
    """For each peer None if it can run here, else why not."""
    return {peer: _why_not(peer) for peer in PEERS}


def tactics(peer: str, problem: GemmProblem, device: Device) -> list[str]:
    """The tactics of `peer` to measure for `problem`; [""] where it chooses by itself. ValueError if it cannot."""
    if peer == "triton":
        return [text for text in TRITON_TACTICS if problem.k % int(text.split(",")[1]) == 0]
    if peer == "cublaslt":
        return [str(number) for number in range(peer_cublaslt.PROPOSALS)]
    return _adaptor(peer).tactics(problem, device) if peer in ADAPTED else [""]


def launches(peer: str, tactic: str, x: Any, weights: Iterable[Any], outs: Iterable[Any]) -> list[Launch]:
    """One launch per (weight, out) pair: out `[M, N]` = x `[M, K]` @ weight `[N, K]`^T, all BF16 and packed.

    Of peers that are not adapted. None at all if this machine has no such tactic.
    """
    if peer == "cublaslt":
        return peer_cublaslt.launches(tactic, x, weights, outs)
    pairs = zip(weights, outs, strict=True)
    if peer == "cublas":
        import torch

        return [functools.partial(torch.mm, x, weight.t(), out=out) for weight, out in pairs]
    from . import peer_triton

    fields = [int(field) for field in tactic.split(",")]
    return [functools.partial(peer_triton.run, x, weight, out, *fields) for weight, out in pairs]


def specialisation(peer: str, tactic: str, problem: GemmProblem) -> dict[str, Any]:
    """What a binary of an adapted peer is compiled for: what of `problem`, and of which file."""
    adaptor = _adaptor(peer)
    return {**adaptor.specialisation(problem, tactic), "file": adaptor.FILE.digest()}


def compile_peer(peer: str, tactic: str, problem: GemmProblem, arch: str) -> CompiledKernel:
    """The binary of an adapted peer, with PDL: from the caches, or compiled."""
    built_by, special = _adaptor(peer).__name__, specialisation(peer, tactic, problem)
    # The GPU is to say what of a peer runs: flashinfer's default for 2304x1536 has a copy that is illegal by its
    # encoding, but multiplies right on H200 in 2026-11-29-h200-fc8fc55-peers.
    return compile_built(peer, built_by, tactic, special, arch, True, (problem, tactic), check_copies=False)


def arguments(peer: str, tactic: str, x: Any, weight: Any, out: Any) -> LaunchArguments:
    """One launch of an adapted peer's binary: out `[M, N]` = x `[M, K]` @ weight `[N, K]`^T."""
    return _adaptor(peer).arguments(tactic, x, weight, out)


def _why_not(peer: str) -> str | None:
    try:
        if peer == "triton":
            importlib.import_module("triton")
        elif peer == "cublaslt":
            peer_cublaslt.library()
        elif peer in ADAPTED:
            _adaptor(peer).FILE.load()
    except Exception as error:  # whatever a foreign module does while it loads, it is a peer less
        return f"{type(error).__name__}: {error}"
    return None


def _adaptor(peer: str) -> Any:
    """The module of an adapted peer: it loads the CuTe DSL."""
    return importlib.import_module(f".peer_{peer}", __package__)
