"""The design review in a real browser: choose candidates, export the pack, open it and read where it comes from."""

import html
import json
import re
from pathlib import Path

from tests.support.drawings import pdf_streams


def test_a_pack_is_chosen_exported_and_opened(notebook):
    nb = notebook("09_design_review.ipynb")
    nb.run(1)  # the cell that exports makes another pack
    screen = nb.output(1)
    assert "Verdicts: the row against the column" in screen.inner_text()

    tactics = nb.control("warp-splitk").locator("select")
    labels = [label.split()[0] for label in tactics.locator("option").all_inner_texts()]
    tactics.select_option(index=[0, 1, len(labels) - 1])
    for other in ("balanced-splitk", "wgmma-splitk"):
        nb.control(other).locator("select").select_option(index=[])
    nb.wait_idle()
    chosen = [labels[0], labels[1], labels[-1]]
    assert all(f"warp-splitk {tactic}" in screen.inner_text() for tactic in chosen)
    nb.choose("compare with", f"warp-splitk {chosen[2]}")
    verdicts = screen.inner_text().split("Verdicts: the row against the column")[1]
    assert "FASTER" in verdicts and "SLOWER" not in verdicts.split("against")[1], "the slowest leads"
    nb.press("resources")
    assert "shared memory" in screen.inner_text().lower() and "KB in flight per SM" in screen.inner_text()

    nb.press("Export pack")
    nb.page.wait_for_function("() => document.body.innerText.includes('files beside it')", timeout=90_000)
    pdf = Path(re.search(r"\S+/review-3584x7168-m8-chained-h200/review\.pdf", screen.inner_text())[0])
    manifest = json.loads((pdf.parent / "review.json").read_text())
    assert list(manifest["candidates"].values()) == [f"warp-splitk:{chosen[i]}" for i in (2, 0, 1)]
    facts = manifest["provenance"]
    assert facts["source"] == "recorded" and facts["device"] == "NVIDIA H200" and facts["campaign"]
    assert facts["campaign"] in pdf_streams(pdf).split("/Subject")[1]

    svg = next((pdf.parent / "pages").glob("*-comparison.svg"))
    described = re.search(r"<dc:description>(.*?)</dc:description>", svg.read_text(), flags=re.S)[1]
    assert json.loads(html.unescape(described)).items() >= facts.items()
    page = nb.page.context.new_page()
    page.goto(svg.as_uri())
    seen = page.locator("svg").text_content()
    assert f"campaign {facts['campaign']}" in seen and all(f"warp-splitk {tactic}" in seen for tactic in chosen)
    assert nb.problems == []
