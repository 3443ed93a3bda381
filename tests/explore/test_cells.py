"""What single cells show: the environment, a result beside FP64, and the interpreter missing what orders a cluster."""

import re

import pytest
import torch

import skinny_gemm
from skinny_gemm import explore
from skinny_gemm.explore import broken_ring, broken_settle, show_verdicts, without_barriers
from skinny_gemm.problem import GemmProblem
from skinny_gemm.tactics import BalancedSplitKTactic, WsGemmTactic


def test_the_environment_report_is_a_table():
    report = re.sub(r"<[^>]+>", " ", explore.environment().data)
    for name in ("backend", "nvidia-cutlass-dsl", "recorded data", "python"):
        assert name in report


def test_the_comparison_counts_every_output():
    x, weight = torch.randn(3, 256).bfloat16(), torch.randn(32, 256).bfloat16()
    figure, data, facts = explore.compare_with_fp64(skinny_gemm.matmul(x, weight), x, weight)
    assert data["count"].sum() == 96 and (facts["m"], facts["n"], facts["k"]) == (3, 32, 256)
    assert facts["source"] == "interpreter"


def verdicts(table) -> dict:
    return {kernel: list(rows.verdict) for kernel, rows in table.groupby("kernel")}


def test_the_interpreter_misses_each_cluster_barrier():
    table = without_barriers(WsGemmTactic(2, 1, 2, 0, 0, 2), GemmProblem(16, 64, 1024))
    said = verdicts(table)
    assert said["as compiled"] == ["the same bits"] * 3
    assert "RaceError" in said["barrier 1 relaxed"][1] and "nothing orders the two" in said["barrier 1 relaxed"][1]
    assert said["barrier 1 relaxed"][2] == "the same bits"
    assert "has not started" in said["without barrier 1"][2] and "has exited" in said["without barrier 2"][2]
    page = show_verdicts(table).data
    assert page.count("as compiled") == 1 and "has exited" in page


def test_the_interpreter_misses_what_orders_token_groups():
    said = verdicts(broken_settle(WsGemmTactic(1, 1, 2, 0, 8, 2), GemmProblem(16, 32, 512)))
    assert said["as compiled"] == ["the same bits"] * 3
    assert "has not started" in said["without the cluster barrier"][2]
    assert "RaceError" in said["owners wait at CTA scope"][1] and said["owners wait at CTA scope"][2] == "the same bits"
    assert all("Error" in verdict for verdict in said["owners do not wait"])


def test_the_interpreter_misses_each_wait_of_balanced_split_k():
    """What notebook 10 says: in order all but one may look well."""
    said = verdicts(broken_ring(BalancedSplitKTactic(2, 2, 2, 64, 2, 8), GemmProblem(8, 32, 1024)))
    assert said.pop("as compiled") == ["the same bits"] * 3
    assert "RaceError" in said["lanes of a warp do not meet"][1]
    assert all("RaceError" in watched for _, watched, _ in said.values())
    assert sum(in_order == "the same bits" for in_order, _, _ in said.values()) == 3
    assert "has not started" in said["without the cluster barrier"][2]


def test_an_illegal_tactic_is_refused_in_words():
    with pytest.raises(ValueError, match="ks is 17"):
        without_barriers(WsGemmTactic(1, 1, 17, 0, 0, 1), GemmProblem(8, 16, 17 * 32))
