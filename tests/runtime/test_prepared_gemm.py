"""The warp split-K GEMM from Python: right on the CPU, compiled once, and bad input is refused in a sentence each."""

import dataclasses

import numpy as np
import pytest
import torch

from skinny_gemm import PreparedWarpSplitK, WarpSplitKTactic, matmul
from skinny_gemm.runtime import prepared as prepared_module

TACTIC = WarpSplitKTactic(16, 8, 128, 2, 1)
N, K = 64, 512


def bf16(*shape):
    return torch.randn(shape).bfloat16()


class TestPrepared:
    def test_it_computes_on_the_cpu_what_fp64_computes(self):
        x, weight, bias = bf16(9, K), bf16(N, K), bf16(N)
        out = torch.full((9, N), float("nan")).bfloat16()
        prepared = PreparedWarpSplitK(weight, {9: TACTIC, 1: TACTIC})
        assert prepared.run(x, out, bias) is out
        expected = x.double() @ weight.double().T + bias.double()
        assert (out.double() - expected).norm() / expected.norm() < 4e-3

    @pytest.mark.parametrize(
        ("weight", "tactics", "words"),
        [
            (bf16(N * K), {1: TACTIC}, r"1 dimensions .* must be \[N, K\]"),
            (torch.zeros(N, K), {1: TACTIC}, "torch.float32, but must be torch.bfloat16"),
            (bf16(K, N).T, {1: TACTIC}, "packed row-major"),
            (bf16(N, K + 8)[:, :K], {1: TACTIC}, "packed row-major"),
            (bf16(N * K + 8)[8:].view(N, K), {1: TACTIC}, "32-byte aligned"),
            (bf16(0, K), {1: TACTIC}, "must not be empty"),
            (np.zeros((N, K)), {1: TACTIC}, "is a ndarray"),
            (bf16(N, K), {}, "at least one M"),
            (bf16(N, K), [TACTIC], "must be a mapping from M to its tactic"),
            (bf16(N, K).to_sparse(), {1: TACTIC}, "torch.sparse_coo, but must be packed row-major"),
            (torch._neg_view(bf16(N, K)), {1: TACTIC}, "a lazily negated view"),
            (bf16(N, K).to("meta"), {1: TACTIC}, "is on meta, but must be on a CUDA device or the CPU"),
            (bf16(N, K), {0: TACTIC}, "M = 0, but M must be an integer from 1 to 32"),
            (bf16(N, K), {33: TACTIC}, "M = 33"),
            (bf16(N, K), {"1": TACTIC}, "M = '1'"),
            (bf16(N, K), {1: (16, 8, 128, 2, 1)}, "must be a WarpSplitKTactic"),
            (bf16(N, K), {1: dataclasses.replace(TACTIC, stages=9)}, "stages is 9, but must be 2 to 4"),
            (bf16(24, K), {1: TACTIC}, "N = 24 is not a multiple of 16"),
        ],
    )
    def test_the_constructor_rejects(self, weight, tactics, words):
        with pytest.raises(ValueError, match=words):
            PreparedWarpSplitK(weight, tactics)

    @pytest.mark.parametrize(
        ("x", "out", "bias", "words"),
        [
            (bf16(3, K), bf16(3, N), None, "x has M = 3, but the prepared Ms are 1, 8"),
            (bf16(8, K + 128), bf16(8, N), None, rf"x has shape .* must be \[M, {K}\]"),
            (bf16(8, K), bf16(N, 8).T, None, "out has strides"),
            (bf16(8, K), bf16(8, N + 16), None, rf"out has shape .* must be \[8, {N}\]"),
            (bf16(8, K), torch.zeros(8, N), None, "out is torch.float32"),
            (bf16(8, K).half(), bf16(8, N), None, "x is torch.float16"),
            (bf16(8 * K + 1)[1:].view(8, K), bf16(8, N), None, "x starts at .* 32-byte aligned"),
            (bf16(8, K), bf16(8, N), bf16(N + 1), rf"bias has shape .* must be \[{N}\]"),
            (bf16(8, K), bf16(8, N), bf16(N + 1)[1:], "bias starts at .* 8-byte aligned"),
            (bf16(8, K).to("meta"), bf16(8, N), None, "x is on meta, but must be on a CUDA device or the CPU"),
        ],
    )
    def test_run_rejects(self, x, out, bias, words):
        prepared = PreparedWarpSplitK(bf16(N, K), {1: TACTIC, 8: TACTIC})
        with pytest.raises(ValueError, match=words):
            prepared.run(x, out, bias)

    def test_run_rejects_an_output_over_its_inputs(self):
        weight = bf16(N, K)
        prepared = PreparedWarpSplitK(weight, {8: TACTIC})
        x = bf16(8, K)
        for out, name in ((x.view(-1)[: 8 * N].view(8, N), "x"), (weight.view(-1)[: 8 * N].view(8, N), "weight")):
            with pytest.raises(ValueError, match=f"overlaps {name}"):
                prepared.run(x, out)

    def test_run_never_compiles(self, monkeypatch):
        prepared = PreparedWarpSplitK(bf16(N, K), {1: TACTIC})
        monkeypatch.setattr(prepared_module, "compile_kernel", lambda *_: pytest.fail("run compiled"))
        prepared.run(bf16(1, K), bf16(1, N))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(backend="tpu"), "backend is 'tpu', but must be one of auto, interpreter, cuda"),
        (dict(backend="cuda"), "tensors are on the CPU"),
        (dict(x=bf16(33, K)), "M = 33"),
        (dict(x=bf16(8, K + 1)), "x has shape"),
        (dict(tactic=dataclasses.replace(TACTIC, token_tile=9)), "token_tile is 9"),
        (dict(weight=bf16(60, K)), "N = 60"),
        (dict(bias="x", backend="interpreter"), "bias is a str"),
    ],
)
def test_matmul_rejects(arguments, words):
    with pytest.raises(ValueError, match=words):
        matmul(**{"x": bf16(8, K), "weight": bf16(N, K), **arguments})


def test_matmul_chooses_a_tactic_and_runs_in_the_interpreter():
    x, weight = bf16(5, K), bf16(N, K)
    out, expected = matmul(x, weight), x.double() @ weight.double().T
    assert out.shape == (5, N) and (out.double() - expected).norm() / expected.norm() < 4e-3
