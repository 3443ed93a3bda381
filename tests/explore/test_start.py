"""The helpers of the first notebook: the environment, and a result beside FP64."""

import re

import torch

import skinny_gemm
from skinny_gemm import explore


def test_the_environment_report_is_a_table():
    report = re.sub(r"<[^>]+>", " ", explore.environment().data)
    for name in ("backend", "nvidia-cutlass-dsl", "recorded data", "python"):
        assert name in report


def test_the_comparison_counts_every_output():
    x, weight = torch.randn(3, 256).bfloat16(), torch.randn(32, 256).bfloat16()
    figure, data, facts = explore.compare_with_fp64(skinny_gemm.matmul(x, weight), x, weight)
    assert data["count"].sum() == 96 and (facts["m"], facts["n"], facts["k"]) == (3, 32, 256)
    assert facts["source"] == "interpreter"
