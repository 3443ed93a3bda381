"""cuBLASLt as a peer: what its heuristic proposes for a problem, one by one, where `torch.mm` takes one by itself.

A tactic is the number of a proposal. How many there are is known only on the GPU, with its library: one that is not
there has no launches. Row-major out `[M, N]` = x @ weight^T is, read by columns, out^T = weight^T^T @ x^T.
"""

import ctypes
import functools
import importlib.util
from collections.abc import Iterable
from contextlib import suppress
from ctypes import byref, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from math import gcd
from pathlib import Path
from typing import Any

from .graphs import Launch

PROPOSALS = 32  #: asked for
WORKSPACE_BYTES = 32 << 20
MOST_ALIGNED = 256  #: bytes, of which the heuristic knows
NAMES = "libcublasLt.so.13", "libcublasLt.so.12"
# Values of enumerations in cublasLt.h, cublas_api.h and library_types.h.
_R_32F, _R_16BF, _COMPUTE_32F, _TRANSPOSED = 0, 14, 68, 1
_DESC_TRANSA, _PREF_WORKSPACE_BYTES, _PREF_ALIGNMENTS = 3, 1, (5, 6, 7, 8)


class Proposal(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = [
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


@functools.cache
def library() -> ctypes.CDLL:
    """cuBLASLt: the one of PyTorch's wheels, else the loader's; OSError where there is none. Touches no GPU."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations or ()) if spec else ()
    wheels = [Path(root, wheel, "lib", name) for root in roots for wheel in ("cu13", "cublas") for name in NAMES]
    for name in (*(str(path) for path in wheels if path.is_file()), *NAMES):
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise OSError(f"neither {' nor '.join(NAMES)} can be loaded")


class Matmul:
    """One problem: out `[M, N]` = x `[M, K]` @ weight `[N, K]`^T, BF16 with FP32 sums, and the proposals for it.

    `lt`: the library; `handle`: of its context; `alignment`: of all pointers, in bytes.
    """

    def __init__(self, lt: Any, handle: c_void_p, m: int, n: int, k: int, alignment: int):
        self.lt, self.handle = lt, handle
        self.operation = _made(lt, "cublasLtMatmulDescCreate", c_int(_COMPUTE_32F), c_int(_R_32F))
        _set(lt, "cublasLtMatmulDescSetAttribute", self.operation, _DESC_TRANSA, c_int(_TRANSPOSED))
        self.weight, self.x, self.out = (
            _made(lt, "cublasLtMatrixLayoutCreate", c_int(_R_16BF), c_uint64(rows), c_uint64(columns), c_int64(rows))
            for rows, columns in ((k, n), (k, m), (n, m))
        )
        preference = _made(lt, "cublasLtMatmulPreferenceCreate")
        limits: dict[int, Any] = {attribute: c_uint32(alignment) for attribute in _PREF_ALIGNMENTS}
        for attribute, value in {_PREF_WORKSPACE_BYTES: c_size_t(WORKSPACE_BYTES), **limits}.items():
            _set(lt, "cublasLtMatmulPreferenceSetAttribute", preference, attribute, value)
        found, count, matrices = (Proposal * PROPOSALS)(), c_int(), (self.weight, self.x, self.out, self.out)
        asked = handle, self.operation, *matrices, preference, c_int(PROPOSALS)
        _call(lt, "cublasLtMatmulAlgoGetHeuristic", *asked, found, byref(count))
        self.proposals = [proposal for proposal in found[: count.value] if proposal.state == 0]

    def __call__(self, proposal: Proposal, x: int, weight: int, out: int, workspace: int, stream: int) -> None:
        """Enqueues one multiplication of what lies at these addresses."""
        alpha, beta, result = c_float(1), c_float(0), (c_void_p(out), self.out)
        matrices = byref(alpha), c_void_p(weight), self.weight, c_void_p(x), self.x, byref(beta), *result, *result
        how = byref(proposal.algorithm), c_void_p(workspace), c_size_t(WORKSPACE_BYTES), c_void_p(stream)
        _call(self.lt, "cublasLtMatmul", self.handle, self.operation, *matrices, *how)


def launches(tactic: str, x: Any, weights: Iterable[Any], outs: Iterable[Any]) -> list[Launch]:
    """One launch per (weight, out) pair; none if there is no such proposal."""
    import torch

    pairs = list(zip(weights, outs, strict=True))
    (n, k), m = pairs[0][0].shape, x.shape[0]
    addresses = [(weight.data_ptr(), out.data_ptr()) for weight, out in pairs]
    matmul = _matmul(m, n, k, gcd(MOST_ALIGNED, x.data_ptr(), *(address for pair in addresses for address in pair)))
    if int(tactic) >= len(matmul.proposals):
        return []
    proposal = matmul.proposals[int(tactic)]
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=x.device)

    def launch(weight: int, out: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        matmul(proposal, x.data_ptr(), weight, out, workspace.data_ptr(), stream)

    return [functools.partial(launch, *pair) for pair in addresses]


@functools.lru_cache(maxsize=1)  # the tactics of a problem come one after the other
def _matmul(m: int, n: int, k: int, alignment: int) -> Matmul:
    return Matmul(library(), _handle(library()), m, n, k, alignment)


@functools.cache
def _handle(lt: Any) -> c_void_p:
    return _made(lt, "cublasLtCreate")


def _made(lt: Any, name: str, *arguments: Any) -> c_void_p:
    made = c_void_p()
    _call(lt, name, byref(made), *arguments)
    return made


def _set(lt: Any, name: str, of: c_void_p, attribute: int, value: Any) -> None:
    _call(lt, name, of, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value)))


def _call(lt: Any, name: str, *arguments: Any) -> None:
    if status := getattr(lt, name)(*arguments):
        raise RuntimeError(f"{name} returns cuBLAS status {status}")
