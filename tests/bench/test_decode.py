"""Decode steps on the CPU: tiny layers, our kernels in the interpreter.

Properties: our variant and PyTorch's agree but for rounding to BF16, for layers of every kind; a wrong product is
refused, and so is a front that did not arrive; the real models multiply every weight of every layer once, by an x that
fits and is packed; a run is written with what it ran on, and read again; wrong arguments are refused before anything.
"""

import dataclasses

import pytest
import torch

from skinny_gemm import device
from skinny_gemm.bench import decode, graphs
from skinny_gemm.bench.layers import DENSE, FRONT, LATENT, LINEAR, MODELS, Model
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.records.decode import read
from skinny_gemm.tactics import WarpSplitKTactic, plain_kernels

H200 = device.get("h200")
M = 3


def model(*layers, front=None, **shapes):
    problems = {name: GemmProblem(1, *shape) for name, shape in shapes.items()}
    return Model("tiny", "TP1", layers, problems | ({FRONT: front} if front else {}))


TINY = {
    "dense": model(DENSE, DENSE, qkv=(512, 256), o_proj=(256, 256), gate_up=(1024, 256), down=(256, 512)),
    "mixture": model(
        LINEAR, LATENT, in_proj_qkvgfab=(656, 256), f_b=(128, 128), o_proj=(256, 128), shared_gate_up=(256, 256),
        shared_down=(256, 128), fused_qkv_a=(192, 256), q_b=(192, 128), mla_g=(128, 256),
        front=FrontProblem(1, 64, 256, split=16, valid=12, latent=2 * 48, experts=24),  # of two ranks, with padding
    ),
}  # fmt: skip


class FakeTimer:
    """Runs what is timed once; of each pair of steps the second is twice as fast."""

    def __init__(self):
        self.us = 2000.0

    def time(self, launches, rounds=1, replays=graphs.REPLAYS, during=None, width=None):
        for launch in launches:
            launch()
        if during:
            during()
        self.us = 6000.0 - self.us
        return [self.us + i for i in range(12)]


def measured(model, **others):
    tactics = {M: decode.chosen(model, M, H200)}
    return decode.measure(model, tactics, torch.Generator().manual_seed(0), FakeTimer(), **others)


@pytest.mark.parametrize("tiny", TINY)
def test_both_variants_agree_but_for_rounding(tiny):
    seen = []
    theirs, ours = measured(TINY[tiny], during=lambda m, variant: seen.append((m, variant)))
    assert seen == [(step.m, step.variant) for step in (theirs, ours)] == [(M, "torch"), (M, "skinny_gemm")]
    assert 1e-3 < theirs.relative_error < 1e-2 and theirs.difference == 0 and theirs.tactics == {}
    assert 1e-3 < ours.relative_error < 1e-2 and 0 < ours.difference < 1e-2
    assert ours.tactics.keys() == TINY[tiny].problems.keys()
    assert ours.tactics["o_proj"].split()[0] in plain_kernels()
    assert ours.tactics.get(FRONT, "ws-gemm ").startswith("ws-gemm ")


@pytest.mark.parametrize("function", ["_multiply", "_publish"])
def test_a_wrong_product_is_refused(monkeypatch, function):
    """By 2 % in every projection, or in none but the front: what is published reaches no hidden state."""
    right = getattr(decode, function)
    monkeypatch.setattr(decode, function, lambda prepared, x: right(prepared, 1.02 * x))
    with pytest.raises(ValueError, match=r"wrong result of tiny at M = 3: relative error .*, PyTorch's is \d"):
        measured(TINY["mixture"])


def test_a_front_that_is_not_published_is_refused(monkeypatch):
    monkeypatch.setattr(decode, "_publish", lambda prepared, x: None)
    with pytest.raises(ValueError, match=r"relative error 1.00e\+00"):
        measured(TINY["mixture"])


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_real_models_multiply_by_every_weight_once(name, m):
    model, calls = MODELS[name](), []

    def multiply(layer, projection, x):
        problem = model.problems[projection]
        assert x.shape == (m, problem.k) and x.is_contiguous() and x.storage_offset() * 2 % 32 == 0, projection
        calls.append((layer, projection))
        return torch.empty((m, problem.n), dtype=torch.bfloat16, device="meta")

    hidden = model.step(multiply, torch.empty((m, model.hidden), dtype=torch.bfloat16, device="meta"))
    assert hidden.shape == (m, model.hidden)
    assert sorted(calls) == sorted((i, p) for i, layer in enumerate(model.layers) for p in layer.projections)


def test_the_real_models_are_those_of_the_catalogue():
    dense, mixture = MODELS["Dense 8B"](), MODELS["Kimi K3"]()
    assert len(dense.layers) == 36 and dense.weight_bytes == 36 * 2 * 4096 * (6144 + 4096 + 24576 + 12288)
    assert mixture.problems[FRONT] == FrontProblem.sharded(1, 7168, 3584, 896, 8)
    assert mixture.weight_bytes > graphs.COLD_ROTATION * H200.l2_bytes
    assert {p for layer in mixture.layers for p in layer.projections} == {
        "in_proj_qkvgfab", "f_b", "fused_qkv_a", "q_b", "o_proj", "shared_gate_up", "mla_g", "shared_down", FRONT,
    }  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have a GPU, on which the CPU does the work; a model that is known as tiny."""
    versions = {"gpu": "NVIDIA H200", "driver": "580", "board": "GPU-1", "cuda": "13.0", "torch": "2", "dsl": "4"}
    cpu = torch.Generator
    monkeypatch.setattr(device, "current", lambda: H200)
    monkeypatch.setattr(decode.torch, "Generator", lambda device: cpu())
    monkeypatch.setattr(decode.graphs, "CudaGraphs", FakeTimer)
    monkeypatch.setattr(decode, "compile_all", lambda arch, tasks, progress: tasks_seen.extend(tasks))
    monkeypatch.setattr(decode.clocks, "describe", lambda nvml: versions)
    monkeypatch.setitem(MODELS, "tiny", lambda: TINY["mixture"])
    tasks_seen: list = []
    return tasks_seen


def test_a_run_is_written_with_what_it_ran_on(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["skinny_gemm", "bench", "decode", "--model", "tiny"])
    path = decode.bench("tiny", (1, M), tmp_path / "runs" / "a.json")
    campaign, steps = read(path)
    assert (campaign.id, campaign.device, campaign.gpu, campaign.board) == ("a", "h200", "NVIDIA H200", "GPU-1")
    assert campaign.command == "python -m skinny_gemm bench decode --model tiny" and campaign.complete
    assert campaign.method["layers"] == 2 and campaign.method["weight_bytes"] == TINY["mixture"].weight_bytes
    assert [(step.m, step.variant) for step in steps] == [(m, v) for m in (1, M) for v in ("torch", "skinny_gemm")]
    assert [step.interval.median for step in steps] == [4005.5, 2005.5] * 2
    assert {(task.problem.m, task.point.kernel, task.point.tactic) for task in gpu} == {
        (step.m, *text.split()) for step in steps for text in step.tactics.values()
    }
    with pytest.raises(ValueError, match="a.json exists; records are never overwritten"):
        decode.bench("tiny", (1, M), path)


@pytest.mark.parametrize(
    ("name", "ms", "words"),
    [
        ("Dense 9B", [1], "model is 'Dense 9B', but must be one of Dense 8B, Kimi K3"),
        ("Dense 8B", [8, 65], "m is 65, but must be an integer from 1 to 64"),
        ("Dense 8B", [8], "bench measures on a GPU, and no CUDA GPU is visible here"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(monkeypatch, name, ms, words):
    monkeypatch.setattr(device, "current", lambda: None)
    with pytest.raises(ValueError, match=words):
        decode.bench(name, ms)


def test_an_m_that_no_kernel_takes_is_refused_even_without_a_gpu(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: None)
    monkeypatch.setattr(WarpSplitKTactic, "max_m", 4)
    monkeypatch.setitem(MODELS, "narrow", lambda: dataclasses.replace(TINY["dense"], layers=(DENSE,)))
    monkeypatch.setattr("skinny_gemm.records.choice.plain_kernels", lambda output: {"warp-splitk": WarpSplitKTactic})
    with pytest.raises(ValueError, match="no kernel takes it: not warp-splitk, 512x256 at M = 8: M is 8"):
        decode.bench("narrow", [8])
