"""cuBLASLt through ctypes, with a stand-in for the library that multiplies by columns, as the real one reads matrices.

Properties: operands, layouts and the transposition are such that the row-major product comes out; proposals that the
library has not are no launches; the alignment that it may count on is that of every pointer; a failing call is named.
"""

import ctypes

import numpy as np
import pytest
import torch

from skinny_gemm.bench import peer_cublaslt
from skinny_gemm.bench.peer_cublaslt import WORKSPACE_BYTES, Matmul

M, N, K = 3, 40, 24


class Library:
    """The calls that are made, on float32 sums of BF16; `offered` proposals of which the second does not work."""

    def __init__(self, offered=3):
        self.offered, self.made, self.attributes, self.ran = offered, [], {}, []

    def _make(self, target, *facts):
        self.made.append([getattr(fact, "value", fact) for fact in facts])
        target._obj.value = len(self.made)
        return 0

    cublasLtCreate = cublasLtMatmulDescCreate = cublasLtMatrixLayoutCreate = cublasLtMatmulPreferenceCreate = _make

    def _set(self, of, attribute, value, size):
        assert size.value == ctypes.sizeof(value._obj)
        self.attributes[of.value, attribute.value] = value._obj.value
        return 0

    cublasLtMatmulDescSetAttribute = cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(self, handle, operation, a, b, c, d, preference, asked, found, count):
        self.preference = {key: value for (of, key), value in self.attributes.items() if of == preference.value}
        for i in range(self.offered):
            found[i].algorithm[0], found[i].state = 100 + i, 15 if i == 1 else 0
        count._obj.value = self.offered
        return 0

    def matrix(self, address, layout):
        kind, rows, columns, stride = self.made[layout.value - 1]
        assert kind == 14, "BF16"
        words = (ctypes.c_uint16 * (stride * columns)).from_address(address.value)
        return np.frombuffer(words, np.uint16).reshape(columns, stride)[:, :rows].T

    def cublasLtMatmul(self, handle, operation, alpha, a, a_of, b, b_of, beta, c, c_of, d, d_of, algorithm, *workspace):
        assert self.made[operation.value - 1] == [68, 0], "FP32 sums and scale"
        assert (alpha._obj.value, beta._obj.value, c.value, workspace[1].value) == (1, 0, d.value, WORKSPACE_BYTES)
        left, right = ((self.matrix(*each).astype(np.uint32) << 16).view(np.float32) for each in ((a, a_of), (b, b_of)))
        left = left.T if self.attributes[operation.value, 3] == 1 else left
        self.matrix(d, d_of)[:] = torch.from_numpy(left @ right).bfloat16().view(torch.uint16).numpy()
        self.ran.append((algorithm._obj[0], workspace[2].value))
        return 0


def operands(copies=2):
    x, weights = torch.randn(M, K).bfloat16(), torch.randn(copies, N, K).bfloat16()
    return x, weights, torch.full((copies, M, N), float("nan")).bfloat16()


@pytest.fixture
def library(monkeypatch):
    fake = Library()
    monkeypatch.setattr(peer_cublaslt, "library", lambda: fake)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: type("Stream", (), {"cuda_stream": 7}))
    peer_cublaslt._matmul.cache_clear()
    return fake


def test_every_copy_is_multiplied_by_the_proposal_that_the_tactic_names(library):
    x, weights, outs = operands()
    for launch in peer_cublaslt.launches("1", x, weights, outs):
        launch()
    torch.testing.assert_close(outs.float(), x.float() @ weights.float().mT, rtol=1e-2, atol=1e-2)
    assert library.ran == [(102, 7)] * 2, "the second that works, on the current stream"


def test_a_proposal_that_is_not_there_has_no_launches(library):
    assert len(peer_cublaslt.launches("1", *operands())) == 2
    assert peer_cublaslt.launches("2", *operands()) == [] == peer_cublaslt.launches("31", *operands())


def test_the_library_may_count_on_the_alignment_of_every_pointer(library):
    x = torch.empty(4096, dtype=torch.bfloat16)
    x = x[-x.data_ptr() % 256 // 2 :][: M * K].view(M, K)
    weights = torch.empty(2 * N * K + 256, dtype=torch.bfloat16)
    weights = weights[-weights.data_ptr() % 256 // 2 :][: 2 * N * K].view(2, N, K)  # the second is 1,920 B further
    outs = torch.empty(8192, dtype=torch.bfloat16)
    outs = outs[-outs.data_ptr() % 256 // 2 :][: 2 * M * N].view(2, M, N)  # the second is 240 B further
    peer_cublaslt.launches("0", x, weights, outs)
    assert library.preference == {1: WORKSPACE_BYTES, 5: 16, 6: 16, 7: 16, 8: 16}
    peer_cublaslt.launches("0", x, weights[:1], outs[:1])
    assert library.preference == {1: WORKSPACE_BYTES, 5: 256, 6: 256, 7: 256, 8: 256}


def test_a_call_that_fails_is_named():
    library = Library()
    library.cublasLtMatmulAlgoGetHeuristic = lambda *_: 15
    with pytest.raises(RuntimeError, match="cublasLtMatmulAlgoGetHeuristic returns cuBLAS status 15"):
        Matmul(library, ctypes.c_void_p(1), M, N, K, 16)


def test_a_library_that_is_nowhere_is_one_sentence(monkeypatch):
    monkeypatch.setattr(peer_cublaslt, "NAMES", ("libnone.so.13", "libnone.so.12"))
    with pytest.raises(OSError, match=r"neither libnone.so.13 nor libnone.so.12 can be loaded"):
        peer_cublaslt.library.__wrapped__()
