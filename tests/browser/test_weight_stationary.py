"""Notebooks 03 to 05 in a real browser: a control moves, and the numbers on the page are those of the new tactic."""

import re


def said(screen) -> str:
    """The text of an output, its spaces plain."""
    return re.sub(r"\s+", " ", screen.inner_text())


def test_the_k_permutation_and_what_is_exposed(notebook):
    nb = notebook("03_weight_stationary.ipynb")
    nb.run_all()
    layout, exposure = nb.output(1), nb.output(5)
    assert "lane 13 → 16 bytes each of weight rows 3 and 11 and of token 3" in said(layout)
    nb.slide("lane", +1)
    assert "lane 14 → 16 bytes each of weight rows 3 and 11 and of token 3" in said(layout)
    assert "16 mma in 2 chains (the longest 8)" in said(exposure)
    nb.slide("ch", +2)
    assert "16 mma in 4 chains (the longest 4)" in said(exposure)
    assert nb.problems == []


def test_the_gather(notebook):
    nb = notebook("04_dsmem_gather.ipynb")
    nb.run_all()
    screen = nb.output(1)
    assert "18,432 B cross between CTAs" in said(screen), "6 blocks, 8 parts each, 6 of them from peers"
    nb.slide("M", +1)
    assert nb.readout("M") == "32" and "24,576 B cross between CTAs" in said(screen)
    assert "has exited" in said(nb.output(5)), "the interpreter misses barrier 2"
    assert nb.problems == []


def test_the_settle_pipeline_steps(notebook):
    nb = notebook("05_token_group_settle.ipynb")
    nb.run_all()
    screen = nb.output(1)
    nb.press("Forward ▶")
    first = said(screen)
    nb.press("Forward ▶")
    assert said(screen) != first and f"at time {nb.readout('time')}" in said(screen)
    nb.press("◀ Back")
    assert said(screen) == first
    assert "x of group 3" in first
    nb.slide("M", -1)
    assert nb.readout("M") == "24" and "x of group 3" not in said(screen) and "x of group 2" in said(screen)
    assert nb.problems == []
