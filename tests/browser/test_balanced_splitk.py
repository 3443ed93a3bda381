"""Notebook 10 in a real browser: controls move, and the page tells of the new cut, ring, cluster and stage."""

import re


def said(screen) -> str:
    """The text of an output, its spaces plain."""
    return re.sub(r"\s+", " ", screen.inner_text())


def test_waves_rings_the_reduce_scatter_and_a_stage(notebook):
    nb = notebook("10_balanced_splitk.ipynb")
    nb.run_all()
    waves, ring, scatter = nb.output(1), nb.output(7), nb.output(15)
    assert "144 CTAs in 2 waves, 45.5 % of the SMs' time idle" in said(waves)
    nb.slide("SMs", +16)
    assert nb.readout("SMs") == "148" and "144 CTAs in 1 wave, 2.7 % of the SMs' time idle" in said(waves)

    assert "in this schedule all keep step" in said(ring) and "stage 2" not in said(ring)
    nb.slide("stages", +2)
    assert nb.readout("stages") == "4" and "stage 3" in said(ring) and "to registers" in said(ring)
    assert "4,1,4,64,4,8" in said(ring).replace(" ", ""), "the footer names the tactic on screen"

    assert "CTA 0, 4,096 B" in said(scatter)
    nb.press("owners and pushes")
    assert "fragment 3 → rows 16 to 31" in said(scatter) and "9,216 B cross between CTAs" in said(scatter)
    nb.slide("fragment", +1)
    assert "fragment 4 → rows 32 to 47" in said(scatter)
    assert "has not started" in said(nb.output(19)), "the interpreter misses the cluster barrier"

    stage = nb.output(22)
    assert "row 27 of A (its sums are dropped) and row 3 of B" in said(stage)
    nb.slide("k16", +2)
    assert "its k16 3 → chunk 6 at place 5, chunk 7 at place 4" in said(stage)
    assert nb.problems == []
