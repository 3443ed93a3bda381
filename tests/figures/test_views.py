"""Bandwidth and roofline: the numbers drawn are the numbers recorded.

Drawn from the synthetic campaign in tests/fixtures, whose times follow a formula.
"""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from skinny_gemm import device, records, tactics
from skinny_gemm.analysis.performance import measured
from skinny_gemm.figures import charts, style
from skinny_gemm.figures.panel import Labels, Panel
from skinny_gemm.figures.views import TacticView
from skinny_gemm.problem import GemmProblem
from tests.support.drawings import texts

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)
KIND = tactics.KERNELS["warp-splitk"]


@pytest.fixture(scope="module")
def table():
    recorded = records.load(Path(__file__).parents[1] / "fixtures")
    recorded = recorded[recorded["mode"] == "chained"].assign(live=False)
    return measured(recorded, PROBLEM.n, PROBLEM.k)


def view(table, tactic=None) -> TacticView:
    """Of no campaign, in a mode without a model."""
    return TacticView("warp-splitk", tactic, PROBLEM, H200, "exposed", table, ())


def draw(table, tactic=None):
    return view(table, tactic).bandwidth()


def lines_of(figure, color) -> list[np.ndarray]:
    found = [a for a in [*figure.artists, *figure.lines] if isinstance(a, Line2D) and a.get_color() == color]
    return [np.column_stack(line.get_data()) for line in found]


def test_bandwidth_is_bytes_over_time(table):
    row = table[(table.kernel == "warp-splitk") & (table.m == 8)].iloc[0]
    assert row.tbs == pytest.approx(PROBLEM.bytes / row.median_us / 1e6)
    assert row.low_tbs <= row.tbs <= row.high_tbs
    assert row.tflops == pytest.approx(row.tbs * PROBLEM.intensity)


def test_the_selection_is_bold_and_its_points_are_the_records(table):
    tactic = KIND.default(PROBLEM, H200)
    chosen = table[(table.kernel == "warp-splitk") & (table.tactic == str(tactic))]
    (line,) = [line for line in lines_of(draw(table, tactic), style.LIGHT.blue) if len(line) > 1]
    np.testing.assert_allclose(line, np.column_stack([np.log2(chosen.m), chosen.tbs]))
    (ceiling,) = (name for name in view(table, tactic).limits() if name.startswith("HBM"))
    assert {"selected", "best tactic", "cublas", ceiling} <= set(texts(draw(table, tactic)))


def test_the_envelope_is_the_fastest_of_each_m(table):
    ours = table[table.kernel == "warp-splitk"]
    fastest = ours.groupby("m").tbs.max()
    dashed = [line for line in lines_of(draw(table), style.LIGHT.ink) if len(line) == len(fastest)]
    assert any(np.allclose(line[:, 1], fastest) for line in dashed)
    assert "the selected tactic was not recorded" in texts(draw(table))


def test_live_points_are_told_apart_and_never_in_a_recorded_line(table):
    tactic = KIND.default(PROBLEM, H200)
    fresh = table[(table.tactic == str(tactic)) & (table.m == 8)].assign(live=True, tbs=1.0)
    import pandas

    fig = draw(pandas.concat([table, fresh]), tactic)
    assert "hollow: measured live" in texts(fig)
    assert all((line[:, 1] != 1.0).all() for line in lines_of(fig, style.LIGHT.blue))


def test_no_data_is_said_plainly(table):
    assert "no recorded data: warp-splitk, 3584x7168" in texts(draw(table[:0]))
    assert "M = 8" in texts(view(table[:0]).roofline())


def test_the_roofline_names_its_ceilings_and_marks_the_selection(table):
    tactic = KIND.default(PROBLEM, H200)
    memory, compute = view(table, tactic).roofs()
    fig = view(table, tactic).roofline()
    ceilings = [f"{name} {tbs:.3g} TB/s" for name, tbs in memory.items()]
    ceilings += [f"{name} {tflops:.4g}" for name, tflops in compute.items()]
    assert len(ceilings) >= 2 and {*ceilings, "selected", "M = 8"} <= set(texts(fig))
    row = table[(table.tactic == str(tactic)) & (table.m == 8)].iloc[0]
    points = np.concatenate(lines_of(fig, style.LIGHT.blue))
    assert np.isclose(points, np.log10([row.intensity, row.tflops])).all(axis=1).any()


@pytest.mark.parametrize("values", [[1.53, 1.46, 1.37, 1.36, 1.33, 1.27], [1, 1, 1, 1], [3, 2, 1], [1.0, 1.01, 5.0]])
def test_labels_of_line_ends_never_overlap(values):
    fig = style.figure(11, 8)
    panel = Panel(fig, 1, 1, 7, 5.75, (0, 1), (0, 5))
    charts.end_labels(panel, [(1, y, str(i), "#000000") for i, y in enumerate(values)])
    labels = [artist for artist in fig.artists if isinstance(artist, Labels)]
    at = np.array([label.points[0][1] for label in labels])
    gaps = np.diff(at) / 5 * 5.75
    assert (gaps > 0.16).all(), "inches"
    assert [label.texts[0] for label in labels] == [str(i) for i in np.argsort(values, kind="stable")]
    if np.diff(sorted(values)).min() > 0.5:
        np.testing.assert_allclose(at, sorted(values), err_msg="what does not touch stays")
