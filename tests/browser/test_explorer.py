"""The workbook in a real browser: sliders moved by keyboard, numbers that change, exports with provenance."""

import html
import json
import re
from pathlib import Path


def description(svg: Path) -> dict:
    """The provenance inside an SVG's metadata."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", svg.read_text(), flags=re.S)
    return json.loads(html.unescape(found[1]))


#: Notes the height of a cell's output at every frame that the browser draws.
WATCH_HEIGHT = """() => {
    const output = document.querySelectorAll('.jp-Cell')[1].querySelector('.jp-Cell-outputArea');
    window.heights = [];
    const look = () => { window.heights.push(output.getBoundingClientRect().height); requestAnimationFrame(look); };
    look();
}"""


def test_the_tactic_explorer(notebook):
    nb = notebook("08_bandwidth_roofline.ipynb")
    nb.run_all()
    screen = nb.output(1)
    before = screen.inner_text()
    assert "KB in flight per SM" in before and "shared memory of an SM" in before

    nb.page.evaluate(WATCH_HEIGHT)
    stages = int(nb.readout("stages"))
    nb.slide("stages", -3)
    heights = nb.page.evaluate("() => window.heights")
    assert len(heights) > 10 and max(heights) - min(heights) < 2, "a picture that is swapped in place never collapses"
    assert nb.readout("stages") == str(stages - 3)
    after = screen.inner_text()
    in_flight = [int(re.search(r"(\d+) KB in flight", text)[1]) for text in (before, after)]
    assert in_flight[1] < in_flight[0]
    assert f",{stages - 3}," in after.replace(" ", ""), "the footer names the tactic on screen"

    nb.slide("stages", +10)
    assert "of shared memory needed" in screen.inner_text()
    nb.press("Default")
    assert "Not possible" not in screen.inner_text()
    nb.slide("M", +1)
    assert nb.readout("M") == "9" and "M = 9" in screen.inner_text()

    assert "model, 90 % ±" in screen.inner_text() and "HBM ridge" in screen.inner_text()
    nb.press("Default")
    nb.press("sensitivity")
    assert "M 9 → 10" in screen.inner_text() and "HBM ridge" not in screen.inner_text(), "only what is shown"
    nb.press("against each field")
    before = nb.readout("stages")
    assert f"stages = {before}" in screen.inner_text()
    nb.slide("stages", -1)
    assert f"stages = {int(before) - 1}" in screen.inner_text() and "model and its 90 % error" in screen.inner_text()

    nb.press("Export")
    stem = Path(re.search(r"\S+/warp-splitk-3584x7168-m9-bandwidth", screen.inner_text())[0])
    facts = description(stem.with_suffix(".svg"))
    assert facts == json.loads(stem.with_suffix(".json").read_text())
    assert (facts["m"], facts["n"], facts["k"], facts["kernel"]) == (9, 3584, 7168, "warp-splitk")
    assert facts["source"] in ("recorded", "model") and facts["commit"]
    sensitivity = description(stem.with_name(stem.name.replace("bandwidth", "sensitivity.svg")))
    assert sensitivity["model"].startswith("fitted to") and sensitivity["m"] == 9
    assert nb.problems == []


def test_the_linked_views(notebook):
    nb = notebook("01_swizzled_ldmatrix.ipynb")
    nb.run_all()
    screen = nb.output(1)
    assert "4 wavefronts, no conflict" in screen.inner_text()
    nb.slide("lane", +4)
    lane = nb.readout("lane")
    assert f"lane {lane}  →" in screen.inner_text().replace("\xa0", " ") or f"lane {lane} →" in screen.inner_text()
    nb.press("off")
    assert "32 wavefronts, 8-way conflict" in screen.inner_text()
    nb.slide("bank", +1)
    assert "bank 0 serves" in screen.inner_text()
    assert nb.problems == []


def test_the_pipeline_steps(notebook):
    nb = notebook("02_warp_splitk_pipeline.ipynb")
    nb.run_all()
    screen = nb.output(1)
    nb.press("Forward ▶")
    first = screen.inner_text()
    nb.press("Forward ▶")
    assert screen.inner_text() != first and f"at time {nb.readout('time')}" in screen.inner_text()
    nb.press("◀ Back")
    assert screen.inner_text() == first
    nb.slide("stages", -2)
    assert nb.readout("stages") == "2" and "but must be" not in screen.inner_text()
    assert nb.problems == []


def test_run_live(notebook):
    nb = notebook("07_run_live.ipynb")
    nb.run_all()
    screen = nb.output(1)
    assert "the same bits" in screen.inner_text() and "HMMA" in screen.inner_text()
    nb.slide("M", -3)
    nb.press("Run")
    nb.wait_idle()
    assert "M = 5" in screen.inner_text()
    assert nb.problems == []


def test_figures_follow_the_theme(notebook):
    nb = notebook("00_start_here.ipynb")
    nb.run_all()
    ink = "() => getComputedStyle(document.querySelector('svg.sg-figure text')).fill"
    light = nb.page.evaluate(ink)
    nb.page.evaluate("() => document.body.setAttribute('data-jp-theme-light', 'false')")
    assert nb.page.evaluate(ink) != light
