"""GEMMs from Python: right on the CPU, compiled once, bad input is refused in a sentence each.

`prepare` and `matmul` run the fastest of the plain kernels, whichever that is for an M.
"""

import dataclasses

import numpy as np
import pytest
import torch

from skinny_gemm import BalancedSplitKTactic, PreparedGemm, WarpSplitKTactic, WsGemmTactic, device, matmul, prepare
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records.choice import Choice, choose
from skinny_gemm.runtime import prepared as prepared_module
from skinny_gemm.tactics import KERNELS

TACTIC = WarpSplitKTactic(16, 8, 128, 2, 1)
N, K = 64, 512


def bf16(*shape):
    return torch.randn(shape).bfloat16()


class TestPrepared:
    def test_it_computes_on_the_cpu_what_fp64_computes(self):
        x, weight, bias = bf16(9, K), bf16(N, K), bf16(N)
        out = torch.full((9, N), float("nan")).bfloat16()
        prepared = PreparedGemm(weight, {9: TACTIC, 1: TACTIC})
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
            (bf16(N, K), {0: TACTIC}, "M = 0, but M must be an integer from 1 to 64"),
            (bf16(N, K), {65: TACTIC}, "M = 65, but M must be an integer from 1 to 64"),
            (bf16(N, K), {33: TACTIC}, "at M = 33: M is 33, but this kernel takes 1 to 32 tokens"),
            (bf16(N, K), {"1": TACTIC}, "M = '1'"),
            (bf16(N, K), {1: (16, 8, 128, 2, 1)}, "must be a WarpSplitKTactic"),
            (bf16(N, K), {1: WsGemmTactic(1, 1, 2, 0, 8, 1)}, "must be a WarpSplitKTactic"),
            (bf16(N, K), {1: dataclasses.replace(TACTIC, stages=9)}, "stages is 9, but must be 2 to 4"),
            (bf16(24, K), {1: TACTIC}, "N = 24 is not a multiple of 16"),
        ],
    )
    def test_the_constructor_rejects(self, weight, tactics, words):
        with pytest.raises(ValueError, match=words):
            PreparedGemm(weight, tactics)

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
        prepared = PreparedGemm(bf16(N, K), {1: TACTIC, 8: TACTIC})
        with pytest.raises(ValueError, match=words):
            prepared.run(x, out, bias)

    def test_run_rejects_an_output_over_its_inputs(self):
        weight = bf16(N, K)
        prepared = PreparedGemm(weight, {8: TACTIC})
        x = bf16(8, K)
        for out, name in ((x.view(-1)[: 8 * N].view(8, N), "x"), (weight.view(-1)[: 8 * N].view(8, N), "weight")):
            with pytest.raises(ValueError, match=f"overlaps {name}"):
                prepared.run(x, out)

    def test_run_never_compiles(self, monkeypatch):
        prepared = PreparedGemm(bf16(N, K), {1: TACTIC})
        monkeypatch.setattr(prepared_module, "compile_kernel", lambda *_: pytest.fail("run compiled"))
        prepared.run(bf16(1, K), bf16(1, N))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(backend="tpu"), "backend is 'tpu', but must be one of auto, interpreter, cuda"),
        (dict(backend="cuda"), "tensors are on the CPU"),
        (dict(x=bf16(65, K)), "x has M = 65, but the kernels take 1 to 64 tokens"),
        (dict(tactic=(16, 8, 128, 2, 1)), "must be a WarpSplitKTactic"),
        (dict(x=bf16(8, K + 1)), "x has shape"),
        (dict(tactic=dataclasses.replace(TACTIC, token_tile=9)), "token_tile is 9"),
        (dict(weight=bf16(60, K)), "N = 60"),
        (dict(bias="x", backend="interpreter"), "bias is a str"),
    ],
)
def test_matmul_rejects(arguments, words):
    with pytest.raises(ValueError, match=words):
        matmul(**{"x": bf16(8, K), "weight": bf16(N, K), **arguments})


class Other(WarpSplitKTactic):
    """A second plain kernel, which is the first under another name, and for more tokens."""

    kernel = "other"
    max_m = 48


@pytest.fixture
def chosen(monkeypatch):
    """A registry of two plain kernels, and the choices made: the other kernel from M = 5 on."""
    made = []

    def choose_by_m(problem, gpu, output="bf16"):
        made.append((problem, gpu))
        return Choice(TACTIC if problem.m < 5 else Other(16, 16, 256, 2, 2), "because")

    monkeypatch.setitem(KERNELS, "other", Other)
    monkeypatch.setattr(prepared_module, "choose", choose_by_m)
    return made


def error(out, x, weight, bias=0):
    expected = x.double() @ weight.double().T + bias
    return ((out.double() - expected).norm() / expected.norm()).item()


def test_prepare_takes_for_each_m_the_kernel_and_tactic_that_were_chosen(chosen):
    weight = bf16(N, K)
    prepared = prepare(weight, (1, np.int64(33)))
    assert chosen == [(GemmProblem(m, N, K), device.get("h200")) for m in (1, 33)]
    assert {m: compiled.kernel for m, compiled in prepared.compiled.items()} == {1: "warp-splitk", 33: "other"}
    assert str(prepared.tactics[33]) == "16,16,256,2,2"
    for m in (1, 33):
        x = bf16(m, K)
        assert error(prepared.run(x, torch.full((m, N), float("nan")).bfloat16()), x, weight) < 4e-3


def test_prepare_is_the_real_choice():
    assert prepare(bf16(N, K), [5]).tactics == {5: choose(GemmProblem(5, N, K), device.get("h200")).tactic}


@pytest.mark.parametrize(
    ("weight", "ms", "words"),
    [
        (bf16(N, K), [], r"ms is \[\], but must be at least one M from 1 to 64, as a list"),
        (bf16(N, K), 8, "ms is 8, but must be at least one M"),
        (bf16(N, K), (8, 65), "m is 65, but must be an integer from 1 to 64"),
        (bf16(N, K), "8", "m is '8', but must be an integer from 1 to 64"),
        (bf16(60, K), [1], "no kernel takes it: not warp-splitk, 60x512 at M = 1: N = 60 is not a multiple of 16"),
        (torch.zeros(N, K), [1], "weight is torch.float32"),
    ],
)
def test_prepare_rejects(weight, ms, words):
    with pytest.raises(ValueError, match=words):
        prepare(weight, ms)


def test_matmul_chooses_and_runs_in_the_interpreter(chosen):
    x, weight, bias = bf16(5, K), bf16(N, K), bf16(N)
    out = matmul(x, weight, bias=bias)
    assert out.shape == (5, N) and error(out, x, weight, bias.double()) < 4e-3
    assert chosen == [(GemmProblem(5, N, K), device.get("h200"))]


def test_matmul_takes_a_tactic_of_any_plain_kernel(chosen):
    x, weight = bf16(40, K), bf16(N, K)
    assert error(matmul(x, weight, Other(32, 16, 128, 2, 1)), x, weight) < 4e-3
    assert chosen == []


class TestOutput:
    """Results as FP32: by the kernels that can store them, in a tensor of that dtype."""

    BALANCED = BalancedSplitKTactic(4, 1, 2, 64, 2, 16)

    def test_fp32_results_are_not_rounded(self):
        x, weight, bias = bf16(9, K), bf16(N, K), bf16(N)
        expected = x.double() @ weight.double().T + bias.double()
        for out in (
            matmul(x, weight, self.BALANCED, bias=bias, output="f32"),
            matmul(x, weight, bias=bias, output="f32"),
            prepare(weight, [9], output="f32").run(x, torch.full((9, N), float("nan")), bias),
        ):
            assert out.dtype == torch.float32
            assert (out.double() - expected).norm() / expected.norm() < 1e-5
        assert matmul(x, weight, self.BALANCED, bias=bias).dtype == torch.bfloat16

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda x, weight: matmul(x, weight, output="f16"), "output is 'f16', but must be one of bf16, f32"),
            (lambda x, weight: prepare(weight, [9], output=16), "output is 16, but must be one of bf16, f32"),
            (lambda x, weight: PreparedGemm(weight, {9: TestOutput.BALANCED}, "f64"), "output is 'f64'"),
            (lambda x, weight: matmul(x, weight, TACTIC, output="f32"), "but must be a BalancedSplitKTactic"),
            (
                lambda x, weight: prepare(weight, [9], output="f32").run(x, bf16(9, N)),
                "out is torch.bfloat16, but must be torch.float32",
            ),
            (
                lambda x, weight: prepare(weight, [9]).run(x, torch.zeros(9, N)),
                "out is torch.float32, but must be torch.bfloat16",
            ),
            (
                lambda x, weight: prepare(bf16(20, K), [9], output="f32"),
                "no kernel takes it: not balanced-splitk, 20x512 at M = 9: N = 20 is not a multiple of 8; not wgmma",
            ),
        ],
    )
    def test_what_cannot_be_stored_is_refused(self, call, words):
        with pytest.raises(ValueError, match=words):
            call(bf16(9, K), bf16(N, K))
