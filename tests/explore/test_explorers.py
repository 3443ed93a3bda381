"""The layout, pipeline and run explorers without a browser, and the helpers of the first notebook."""

import json
import re
from dataclasses import replace

import pytest

from skinny_gemm import explore
from skinny_gemm.explore import PipelineExplorer, RunExplorer, SwizzleExplorer
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import compile_kernel, trials
from skinny_gemm.tactics import WarpSplitKTactic


def text(widget) -> str:
    return re.sub(r"<[^>]+>", " ", widget.value)


def test_choosing_a_lane_and_a_bank_changes_the_linked_view():
    explorer = SwizzleExplorer()
    explorer.lane.value = 13
    assert ">lane 13  →  row 13, k 64 to 71" in explorer.picture.value
    explorer.bank.value = 7
    assert ">bank 7 serves" in explorer.picture.value
    explorer.swizzled.value = False
    assert "32 wavefronts, 8-way conflict" in explorer.picture.value and "plain_offset" in explorer.source.value


@pytest.mark.parametrize(("operand", "k_tile", "phases"), [("A", 256, 4), ("A", 128, 2), ("B", 256, 2), ("B", 128, 1)])
def test_the_phase_slider_spans_the_phases_there_are(operand, k_tile, phases):
    explorer = SwizzleExplorer()
    explorer.phase.value = 3
    explorer.operand.value, explorer.k_tile.value = operand, k_tile
    assert explorer.trouble.value == ""
    shown = explorer.phase.layout.display != "none"
    assert (explorer.phase.max + 1 if shown else 1) == phases
    assert explorer.table().col.max() < k_tile


def test_the_pipeline_steps_from_event_to_event_and_back():
    explorer = PipelineExplorer()
    assert explorer.cursor.value == 0
    for _ in range(3):
        explorer.cursor.forward.click()
    later = explorer.cursor.value
    assert later in set(explorer.spans.start) and f"at time {later}" in text(explorer.doing)
    for _ in range(3):
        explorer.cursor.back.click()
    assert explorer.cursor.value == 0
    explorer.cursor.back.click()
    assert explorer.cursor.value == 0 and explorer.trouble.value == ""


def test_the_pipeline_follows_its_sliders_and_says_what_cannot_be(tmp_path):
    explorer = PipelineExplorer()
    explorer.stages.min = 1  # the slider itself offers nothing that cannot be
    explorer.stages.value = 1
    assert "stages is 1, but must be 2 to 8" in text(explorer.trouble)
    assert explorer.timeline.value == explorer.doing.value == "", "another run would pass for this one"
    with pytest.raises(ValueError, match="stages is 1"):
        explorer.export(tmp_path)
    explorer.export_button.click()
    assert "nothing written: " in text(explorer.exported) and "stages is 1" in text(explorer.exported)
    explorer.stages.value = 8
    assert explorer.trouble.value == "" and "empty" not in set(explorer.phases.barrier)
    explorer.loaders.value = 2
    assert explorer.roles[7] == "load x"
    explorer.view.value = "around the cursor"
    explorer.schedule.value = "adversarial(4)"
    paths = explorer.export(tmp_path)
    facts = json.loads(next(p for p in paths if p.suffix == ".json").read_text())
    assert facts["schedule"] == "adversarial(4)" and facts["source"] == "interpreter"


def test_every_stage_on_offer_can_run():
    explorer = PipelineExplorer()
    assert (explorer.stages.min, explorer.stages.max) == (2, 8)
    explorer.stages.value = 8
    explorer.k.value = 1024
    assert explorer.stages.max == explorer.stages.value == 4 and explorer.trouble.value == ""
    explorer.k_tile.value = 128
    assert explorer.stages.max == 8 and explorer.trouble.value == ""


def test_an_export_says_which_load_it_is(tmp_path):
    explorer = SwizzleExplorer()
    paths = explorer.export(tmp_path)
    explorer.lane.value, explorer.bank.value = 13, 7
    others = explorer.export(tmp_path)
    assert not set(paths) & set(others)
    facts = json.loads(next(p for p in others if p.suffix == ".json").read_text())
    assert (facts["warp"], facts["phase"], facts["lane"], facts["bank"]) == (1, 0, 13, 7)


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


def test_only_k_tile_changes_the_order_of_summation():
    """What notebook 07 says in its third answer."""
    problem, base = GemmProblem(32, 1024, 1024), WarpSplitKTactic(16, 32, 256, 2, 1)

    def output(tactic):
        return trials.trial(compile_kernel(tactic, problem, "sm_90a"), tactic, problem).out

    bits = output(base)
    for change in (dict(output_tile=32), dict(token_tile=8), dict(stages=4), dict(b_loader_warps=2)):
        assert (output(replace(base, **change)) == bits).all(), change
    different = output(replace(base, k_tile=128)) != bits
    assert 0 < different.sum() < 0.01 * bits.size


def test_the_environment_report_is_a_table():
    report = re.sub(r"<[^>]+>", " ", explore.environment().data)
    for name in ("backend", "nvidia-cutlass-dsl", "recorded data", "python"):
        assert name in report


def test_the_comparison_counts_every_output():
    import torch

    import skinny_gemm

    x, weight = torch.randn(3, 256).bfloat16(), torch.randn(32, 256).bfloat16()
    figure, data, facts = explore.compare_with_fp64(skinny_gemm.matmul(x, weight), x, weight)
    assert data["count"].sum() == 96 and (facts["m"], facts["n"], facts["k"]) == (3, 32, 256)
    assert facts["source"] == "interpreter"


def test_a_reader_without_a_kernel_sees_the_pictures(monkeypatch):
    import IPython.display

    seen = []
    monkeypatch.setattr(IPython.display, "display", lambda thing, **_: seen.append(thing))
    SwizzleExplorer()._ipython_display_()
    widget, static = seen
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "The controls need a kernel" in static.data and "<svg" in static.data
