"""The run explorer: compiles, runs, checks, and says which run it shows."""

from dataclasses import replace

import pytest

from skinny_gemm.explore import RunExplorer
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import compile_kernel, trials
from skinny_gemm.tactics import BalancedSplitKTactic, WarpSplitKTactic
from tests.support.widgets import text


@pytest.fixture
def runner():
    explorer = RunExplorer()
    explorer.model.value = None
    explorer.n.value, explorer.k.value = 32, 512
    explorer.default_button.click()
    return explorer


def test_run_compiles_runs_and_checks(runner, tmp_path):
    with pytest.raises(ValueError, match="press Run first"):
        runner.export(tmp_path)
    runner.run_button.click()
    assert runner.trouble.value == ""
    said = text(runner.facts)
    assert "the same bits" in said and "0 B spilled" in said and "sm_90a" in said
    run = runner.outcome.run
    assert 1e-3 < run.relative_error(*run.results) < 4e-3
    (histogram,) = runner.histograms.children
    assert "HMMA" in text(runner.sass) and "error of 256 outputs" in histogram.value
    assert {p.suffix for p in runner.export(tmp_path)} == {".svg", ".pdf", ".png", ".csv", ".json"}


def test_a_front_shows_the_errors_of_both_results(runner, tmp_path):
    runner.kernel.value = "ws-gemm"
    runner.n.value, runner.k.value, runner.m.value = 288, 7168, 1
    runner.default_button.click()
    for name, value in dict(rt=1, kq=4, ks=4, staged=6, tg=8, ch=2).items():
        runner.fields[name].value = value
    assert all(f">{name} " in runner.smem.value for name in ("stages", "x", "receive", "red", "owner barriers"))
    runner.run_button.click()
    assert runner.trouble.value == ""
    run = runner.outcome.run
    latent, logits = run.results
    assert 1e-3 < run.relative_error(latent) < 4e-3 and 0 < run.relative_error(logits) < 1e-5
    assert f"{run.relative_error(logits):.2e} of logits" in text(runner.facts) and "clusters of 4" in text(runner.facts)
    one, other = (picture.value for picture in runner.histograms.children)
    assert "latent: error of 224 BF16 outputs" in one and "logits: error of 56 FP32 outputs" in other
    assert "in FP32 spacings" in other and "in BF16 spacings" in one
    assert {p.stem.rpartition("m1")[2] for p in runner.export(tmp_path)} == {
        "-errors-latent",
        "-errors-logits",
        "-smem",
    }


def test_run_refuses_an_illegal_tactic_in_words(runner):
    assert not runner.run_button.disabled
    runner.m.value = 40
    assert runner.run_button.disabled
    runner.guard(runner.run)
    assert "M is 40" in text(runner.trouble) and runner.outcome is None


def test_a_run_that_is_not_of_these_controls_is_marked(runner):
    runner.run()
    ran = runner.tactic
    assert f"last run: {ran} at 32x512, M = 8" in text(runner.heading) and "sg-stale" not in runner.last._dom_classes
    runner.m.value = 9
    assert f"last run: {ran} at 32x512, M = 8" in text(runner.heading) and "sg-stale" in runner.last._dom_classes
    runner.m.value = 8
    assert "sg-stale" not in runner.last._dom_classes


def test_wrong_bits_are_called_different(runner, monkeypatch):
    real = trials.trial

    def flaky(*arguments, schedule="in_order", **more):
        result = real(*arguments, schedule=schedule, **more)
        if schedule != "in_order":
            result.out[0, 0] ^= 1
        return result

    monkeypatch.setattr(trials, "trial", flaky)
    runner.run()
    assert "DIFFERENT bits" in text(runner.facts)


def output(tactic, problem):
    return trials.trial(compile_kernel(tactic, problem, "sm_90a"), tactic, problem).out


def test_only_how_k_is_cut_over_ctas_and_warps_changes_the_order_of_summation_of_balanced_split_k():
    """What notebook 07 says in its third answer; 64 row tiles leave each row its place among the 16 of an mma."""
    problem, base = GemmProblem(32, 1024, 1024), BalancedSplitKTactic(32, 2, 4, 64, 2, 32)
    bits = output(base, problem)
    same = replace(base, row_tiles=64, stages=1, token_tile=48, trigger=1, x_ring=1)
    assert (output(same, problem) == bits).all()
    for change in (dict(cluster=1), dict(warps=2), dict(k_chunk=128, stages=1)):
        different = output(replace(base, **change), problem) != bits
        assert 0 < different.sum() < 0.01 * bits.size, change


def test_only_k_tile_changes_the_order_of_summation_of_warp_split_k():
    """What notebook 07 says in its third answer."""
    problem, base = GemmProblem(32, 1024, 1024), WarpSplitKTactic(16, 32, 256, 2, 1)
    bits = output(base, problem)
    for change in (dict(output_tile=32), dict(token_tile=8), dict(stages=4), dict(b_loader_warps=2)):
        assert (output(replace(base, **change), problem) == bits).all(), change
    different = output(replace(base, k_tile=128), problem) != bits
    assert 0 < different.sum() < 0.01 * bits.size
