"""A broken campaign: explorers of records say which file, line and why, and show what the others hold."""

import html
import shutil
from pathlib import Path

import pytest

from skinny_gemm import records
from skinny_gemm.explore import ReviewExplorer, TacticExplorer

SYNTHETIC = Path(__file__).parents[1] / "fixtures" / "campaigns" / "synthetic"


@pytest.fixture
def torn(tmp_path):
    """A data folder with a good campaign and one that was cut off; the path of its records."""
    for name in ("synthetic", "torn"):
        shutil.copytree(SYNTHETIC, tmp_path / "campaigns" / name)
    for name in ("campaign.json", "records.csv"):
        path = tmp_path / "campaigns" / "torn" / name
        path.write_text(path.read_text().replace('"synthetic"', '"torn"').replace("synthetic,h200", "torn,h200"))
    assert records.problems(tmp_path) == {}
    path.write_text(path.read_text()[:-20])
    return path


@pytest.mark.filterwarnings("ignore::skinny_gemm.records.BrokenCampaign")
@pytest.mark.parametrize("kind", [TacticExplorer, ReviewExplorer])
def test_the_sentence_is_shown_beside_what_the_others_hold(torn, kind):
    explorer = kind(torn.parents[2])
    (sentence,) = records.problems(torn.parents[2]).values()
    lines = len(torn.read_text().splitlines())
    assert sentence.startswith(f"{torn}, line {lines}: ")
    assert html.escape(sentence) in explorer.status.value and "synthetic" in explorer.status.value
    explorer.m.value = 4
    assert html.escape(sentence) in explorer.status.value


@pytest.mark.parametrize("kind", [TacticExplorer, ReviewExplorer])
def test_nothing_is_said_where_all_is_well(kind):
    assert "left out" not in kind(SYNTHETIC.parents[1]).status.value
