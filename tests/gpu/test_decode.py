"""Decode steps on a GPU: a few layers of every kind at their real shapes, timed in a graph and right."""

from dataclasses import replace

import pytest
import torch

from skinny_gemm import records
from skinny_gemm.bench import decode, graphs
from skinny_gemm.bench.layers import MODELS


@pytest.mark.parametrize(("name", "layers"), [("Dense 8B", slice(2)), ("Kimi K3", slice(2, 4))])
def test_a_few_layers(gpu, name, layers):
    model = MODELS[name]()
    model = replace(model, layers=model.layers[layers])
    tactics, timer = {m: decode.chosen(model, m, gpu) for m in (1, 8, 32)}, graphs.CudaGraphs()
    steps = decode.measure(model, tactics, torch.Generator("cuda").manual_seed(0), timer)
    assert [step.m for step in steps] == [1, 1, 8, 8, 32, 32]
    for step in steps:
        assert 1e-3 < step.relative_error < 2e-2 and step.difference < 2e-2
        assert step.interval.median > model.weight_bytes / 8e6  # microseconds, at 8 TB/s: faster is not a cold read


def test_a_run_names_the_machine(gpu, tmp_path, monkeypatch):
    model = MODELS["Kimi K3"]()
    monkeypatch.setitem(MODELS, "few", lambda: replace(model, layers=model.layers[2:4]))
    campaign, steps = records.decode.read(decode.bench("few", (4,), tmp_path / "few.json"))
    assert campaign.device == gpu.name and torch.cuda.get_device_name(0) == campaign.gpu
    assert {sample["variant"] for sample in campaign.clocks["samples"]} == {step.variant for step in steps}
