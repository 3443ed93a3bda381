"""The design review without a browser: choices become candidates, and what is exported is what is on screen.

- the lists hold the recorded tactics, the suggested ones chosen; another problem starts again;
- the chosen one leads, the others follow by their time; too many, none, and no kernel are told in words;
- Export writes the pack of the candidates on screen, with progress; trouble is told and leaves the explorer usable.
"""

import json
from pathlib import Path

import pytest

from skinny_gemm import records
from skinny_gemm.analysis.review import design_review
from skinny_gemm.explore import ReviewExplorer, shown
from skinny_gemm.figures import export
from skinny_gemm.report import pack
from tests.support.widgets import text

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.fixture
def explorer():
    return ReviewExplorer(FIXTURES)


def candidates(explorer) -> list[str]:
    return [str(candidate) for candidate in explorer.review.candidates]


def test_starts_with_the_suggested_of_the_recorded(explorer):
    table = records.load(FIXTURES)
    table = table[(table.kernel == "warp-splitk") & (table.n == 3584) & (table.m == 8) & (table["mode"] == "chained")]
    ranked = table.sort_values("median_us")
    offered = explorer.lists["warp-splitk"].options
    assert [label for label, _ in offered[: len(ranked)]] == [
        f"{row.tactic}   {row.median_us:.3f} us" for row in ranked.itertuples()
    ]
    assert candidates(explorer)[0] == f"warp-splitk:{ranked.tactic.iloc[0]}" and len(candidates(explorer)) > 1
    assert f"warp-splitk {ranked.tactic.iloc[0]}: {ranked.median_us.iloc[0]:.3f} us" in text(explorer.answer)
    assert "FASTER" in explorer.pictures[0].value and "campaign synthetic" in explorer.pictures[0].value
    assert "SYNTHETIC, not a measurement  |  recorded, chained, campaign synthetic" in explorer.pictures[0].value
    assert text(explorer.status) == "run 1: SYNTHETIC, not a measurement, campaign synthetic, commit 00000000"
    ((label, other),) = explorer.lists["ws-gemm"].options
    assert label == f"{other}   not recorded" and explorer.lists["ws-gemm"].value == (), "its default is on offer"
    assert explorer.review == design_review(explorer.problem, explorer.gpu, data_dir=FIXTURES), "a script sees the same"


def test_the_one_to_compare_with_leads(explorer):
    box = explorer.lists["warp-splitk"]
    tactics = [tactic for _, tactic in box.options[:3]]
    box.value = tactics
    assert candidates(explorer) == [f"warp-splitk:{tactic}" for tactic in tactics]
    explorer.first.value = tactics[2]
    assert candidates(explorer) == [f"warp-splitk:{tactics[i]}" for i in (2, 0, 1)]
    box.value = tactics[1:]
    assert candidates(explorer) == [f"warp-splitk:{tactics[i]}" for i in (2, 1)], "the choice is kept while it can be"
    box.value = tactics[:2]
    assert candidates(explorer) == [f"warp-splitk:{tactics[i]}" for i in (0, 1)]


def test_another_problem_starts_again(explorer):
    explorer.lists["warp-splitk"].value = [explorer.lists["warp-splitk"].options[-1][1]]
    explorer.suggest_button.click()
    at_8 = candidates(explorer)
    assert len(at_8) > 1
    explorer.m.value = 16
    assert explorer.trouble.value == "" and candidates(explorer) != at_8
    explorer.mode.value = "isolated"
    assert set(explorer.review.lead.table["mode"]) == {"isolated"}
    explorer.m.value = 7
    assert "No recorded answer" in text(explorer.answer) and candidates(explorer)


def test_too_many_none_and_no_kernel_are_told(explorer):
    box = explorer.lists["warp-splitk"]
    box.value = [tactic for _, tactic in box.options]
    assert f"{len(box.options)} candidates are too many" in text(explorer.trouble)
    for each in explorer.lists.values():
        each.value = []
    assert "No candidate is chosen" in text(explorer.trouble)
    assert explorer.pictures[0].hidden and not explorer.answer.value  # of another choice: never left on screen
    explorer.export_button.click()
    assert "nothing written: No candidate is chosen" in text(explorer.exported)
    explorer.suggest_button.click()
    assert explorer.trouble.value == ""
    explorer.model.value = None
    explorer.n.value, explorer.k.value = 24, 100
    assert "N = 24 is not a multiple of 16" in text(explorer.trouble)
    assert all(each.disabled for each in explorer.lists.values())


@pytest.mark.parametrize(
    ("page", "words"), [("bandwidth", "TB/s"), ("roofline", "FLOP per byte"), ("resources", "registers")]
)
def test_each_page_is_that_of_the_pack(explorer, page, words):
    explorer.page.value = page
    assert explorer.trouble.value == "" and words in explorer.pictures[0].value
    assert explorer.pictures[0].value.count("<svg") == 1 and not explorer.pictures[1].value


def test_many_candidates_fill_two_pages_of_resources(explorer):
    box = explorer.lists["warp-splitk"]
    box.value = [tactic for _, tactic in box.options[:6]]
    explorer.page.value = "resources"
    assert explorer.pictures[1].value.count("<svg") == 1
    explorer.page.value = "roofline"
    assert explorer.pictures[1].value == ""


def test_export_writes_the_pack_on_screen(explorer, tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_EXPORTS", str(tmp_path))
    monkeypatch.setattr(export, "render", lambda *_: b"picture")
    monkeypatch.setattr(pack, "pdf", lambda *_: b"%PDF")
    seen = []
    explorer.progress.observe(lambda change: seen.append((change["new"], explorer.progress.layout.visibility)), "value")
    explorer.export_button.click()
    assert explorer.trouble.value == "" and "review-3584x7168-m8-chained-h200/review.pdf" in explorer.exported.value
    manifest = json.loads((tmp_path / "review-3584x7168-m8-chained-h200" / "review.json").read_text())
    assert list(manifest["candidates"].values()) == candidates(explorer)
    assert seen[-1] == (1.0, "visible") and explorer.progress.layout.visibility == "hidden" and len(seen) > 5
    assert shown(ReviewExplorer).export()[0].name == "review.pdf"

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(pack, "manifest", fail)
    explorer.export_button.click()
    assert "nothing written: disk full" in text(explorer.exported) and "disk full" in text(explorer.trouble)
    assert explorer.progress.layout.visibility == "hidden"
