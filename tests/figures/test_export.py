"""Export: provenance in every format, text that stays text, the same bytes again, whole files or none.

- the footer, the metadata and the JSON all carry the provenance;
- another process writes the same bytes;
- a failure half-way leaves the earlier file untouched and no litter;
- the page's SVG follows the theme and carries no style rule for the rest of the page.
"""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from skinny_gemm.figures import export as exporting
from skinny_gemm.figures import style
from skinny_gemm.figures.panel import Panel
from tests.support.drawings import pdf_streams

FACTS = {"source": "recorded", "device": "NVIDIA H200", "campaign": "2026-12-01", "commit": "1a2b3c4d",
         "kernel": "warp-splitk", "n": 3584, "k": 7168, "m": 8, "tactic": "16,8,256,8,2"}  # fmt: skip
FOOTER = (
    "NVIDIA H200  |  recorded, campaign 2026-12-01  |  warp-splitk 16,8,256,8,2  |  M=8 N=3584 K=7168"
    "  |  commit 1a2b3c4d"
)


def figure() -> Figure:
    fig = style.figure(6, 3)
    panel = Panel(fig, 1, 0.8, 4, 1.6, (1, 2), (3, 4))
    panel.line([1, 2], [3, 4], style.LIGHT.blue)
    panel.title("a title that stays text")
    panel.ticks("x", [1, 2], ["one", "two"], "the x name")
    return fig


DATA = pd.DataFrame({"m": [1, 2], "tbs": [0.5, 0.25]})


def test_provenance_is_in_every_file_and_text_stays_text(tmp_path):
    paths = {p.suffix: p for p in exporting.export(figure(), DATA, FACTS, tmp_path / "a" / "b")}
    assert set(paths) == {".svg", ".pdf", ".png", ".csv", ".json"}
    assert json.loads(paths[".json"].read_text()) == FACTS
    pd.testing.assert_frame_equal(pd.read_csv(paths[".csv"]), DATA)
    svg = paths[".svg"].read_text()
    above, below = FOOTER.split("  |  warp-splitk")
    assert f">{above}</text>" in svg and f">warp-splitk{below}</text>" in svg, "two lines where one is too long"
    assert ">a title that stays text</text>" in svg
    assert "2026-12-01" in svg.split("</metadata>")[0]
    image = Image.open(paths[".png"])
    assert json.loads(image.info["Description"]) == FACTS
    assert image.size == (1800, 900)
    pdf = pdf_streams(paths[".pdf"])
    assert "CreationDate" not in pdf
    assert "campaign" in pdf and "1a2b3c4d" in pdf.split("/Subject")[1]
    assert "/FontFile2" in pdf or "/TrueType" in pdf  # fonts, not outlines
    assert "Tj" in pdf or "TJ" in pdf


def test_the_same_figure_gives_the_same_bytes_in_another_process(tmp_path):
    here = exporting.export(figure(), DATA, FACTS, tmp_path / "here")
    root = str(Path(__file__).parents[2])
    script = (
        f"import sys; sys.path[:0] = [{root!r}, {root!r} + '/tests/figures']\n"
        "from test_export import *\n"
        f"exporting.export(figure(), DATA, FACTS, {str(tmp_path / 'there')!r})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    for path in here:
        other = path.with_name(path.name.replace("here", "there"))
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest(), path.suffix


def test_export_leaves_the_figure_as_it_was(tmp_path):
    fig = figure()
    first = exporting.render(fig, "svg")
    exporting.export(fig, DATA, FACTS, tmp_path / "x", formats=["svg"])
    assert exporting.render(fig, "svg") == first
    assert FOOTER not in first.decode()


def test_a_failed_write_keeps_the_old_file_and_leaves_no_litter(tmp_path, monkeypatch):
    exporting.export(figure(), DATA, FACTS, tmp_path / "x", formats=["svg"])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("skinny_gemm.files.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        exporting.export(figure(), DATA * 2, FACTS | {"m": 9}, tmp_path / "x", formats=["svg"])
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_bad_input_is_named(tmp_path):
    with pytest.raises(ValueError, match="'gif'"):
        exporting.export(figure(), DATA, FACTS, tmp_path / "x", formats=["svg", "gif"])


def test_inline_svg_follows_the_theme_and_keeps_to_itself():
    svg = exporting.inline_svg(figure(), salt="one")
    assert f"var(--sg-blue, {style.LIGHT.blue})" in svg
    assert "*{stroke-linejoin" not in svg and "<metadata" not in svg and "<?xml" not in svg
    ids = {salt: set(re.findall(r'clipPath id="(\w+)"', exporting.inline_svg(figure(), salt=salt))) for salt in "ab"}
    assert ids["a"] and not ids["a"] & ids["b"]


def test_themes_can_be_told_apart_on_their_paper():
    def luminance(color):
        channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    def contrast(a, b):
        high, low = sorted([luminance(a), luminance(b)], reverse=True)
        return (high + 0.05) / (low + 0.05)

    for theme in (style.LIGHT, style.DARK):
        assert len(set(vars(theme).values())) == len(vars(theme))
        assert contrast(theme.ink, theme.paper) > 12 and contrast(theme.muted, theme.paper) > 5
        for color in theme.series:
            assert contrast(color, theme.paper) > 2.3, color
    for fill in style.BANK_GROUPS:
        assert contrast(style.ON_FILL, fill) > 7
