"""Bandwidth, roofline, shared memory and errors: the numbers drawn are the numbers recorded.

Drawn from the synthetic campaign in tests/fixtures, whose times follow a formula.
"""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from skinny_gemm import device, records, tactics
from skinny_gemm.figures import errors, performance, resources, style
from skinny_gemm.problem import GemmProblem
from tests.support.drawings import texts

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)
KIND = tactics.KERNELS["warp-splitk"]


@pytest.fixture(scope="module")
def table():
    recorded = records.load(Path(__file__).parents[1] / "fixtures")
    recorded = recorded[recorded["mode"] == "chained"].assign(live=False)
    return performance.measured(recorded, PROBLEM.n, PROBLEM.k)


def draw(table, tactic, m=8, **more):
    return performance.bandwidth(table, "warp-splitk", records.PEERS, str(tactic), m, {"HBM read 4.6": 4.6}, **more)


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
    assert {"selected", "best tactic", "cublas", "HBM read 4.6"} <= set(texts(draw(table, tactic)))


def test_the_envelope_is_the_fastest_of_each_m(table):
    ours = table[table.kernel == "warp-splitk"]
    fastest = ours.groupby("m").tbs.max()
    dashed = [line for line in lines_of(draw(table, "none"), style.LIGHT.ink) if len(line) == len(fastest)]
    assert any(np.allclose(line[:, 1], fastest) for line in dashed)
    assert "the selected tactic was not recorded" in texts(draw(table, "none"))


def test_live_points_are_told_apart_and_never_in_a_recorded_line(table):
    tactic = str(KIND.default(PROBLEM, H200))
    fresh = table[(table.tactic == tactic) & (table.m == 8)].assign(live=True, tbs=1.0)
    import pandas

    fig = draw(pandas.concat([table, fresh]), tactic)
    assert "hollow: measured live" in texts(fig)
    assert all((line[:, 1] != 1.0).all() for line in lines_of(fig, style.LIGHT.blue))


def test_no_data_is_said_plainly(table):
    assert "no recorded data: x" in texts(draw(table[:0], "none", missing="no recorded data: x"))
    fig = performance.roofline(table[:0], "warp-splitk", records.PEERS, "none", PROBLEM, {"HBM read": 4.6}, {})
    assert "M = 8" in texts(fig)


def test_the_roofline_names_its_ceilings_and_marks_the_selection(table):
    tactic = str(KIND.default(PROBLEM, H200))
    memory, compute = {"HBM read": 4.58, "L2 read": 7.0}, {"BF16 mma": 788.0}
    fig = performance.roofline(table, "warp-splitk", records.PEERS, tactic, PROBLEM, memory, compute)
    assert {"HBM read 4.58 TB/s", "L2 read 7 TB/s", "BF16 mma 788", "selected", "M = 8"} <= set(texts(fig))
    row = table[(table.tactic == tactic) & (table.m == 8)].iloc[0]
    points = np.concatenate(lines_of(fig, style.LIGHT.blue))
    assert np.isclose(points, np.log10([row.intensity, row.tflops])).all(axis=1).any()


@pytest.mark.parametrize("text", ["16,8,128,2,1", "32,32,256,2,2"])
def test_the_shared_memory_map_adds_up(text):
    tactic = KIND.parse(text)
    footprint = tactic.footprint(PROBLEM, H200)
    table = resources.smem_table(footprint, H200)
    used = table[table.cta >= 0]
    assert used.groupby("cta")["bytes"].sum().unique().tolist() == [
        sum(size for _, _, size in footprint.regions) + H200.smem_reserved_per_cta
    ]
    assert used.cta.nunique() == footprint.ctas_per_sm
    ends = (used.start + used["bytes"]).to_numpy()
    assert (ends[:-1] <= used.start.to_numpy()[1:]).all() and ends[-1] <= H200.smem_per_sm
    said = texts(resources.smem_map(footprint, H200))
    assert any(t.endswith(f"{footprint.ctas_per_sm} CTAs fit") or "1 CTA fits" in t for t in said)
    assert "A 8 KB" in said or "A 32 KB" in said


def test_regions_that_hold_nothing_are_not_named():
    tactic = tactics.KERNELS["ws-gemm"].parse("1,4,4,0,8,1")
    footprint = tactic.footprint(GemmProblem(8, 560, 7168), H200)
    said = texts(resources.smem_map(footprint, H200))
    assert dict((name, size) for name, _, size in footprint.regions)["stages"] == 0
    assert not any(t.startswith("stages") for t in said) and any(t.startswith("receive ") for t in said)


def test_errors_of_fp32_are_counted_in_its_own_spacings():
    reference = np.full(1000, 3.0)
    distance = np.linspace(-11, 11, 1000)
    table = errors.error_table(reference + distance * 2.0**-22, reference, "f32")
    assert table.high.iloc[-1] == 16 and table["count"].sum() == 1000
    assert table["count"][table.low < -11.5].sum() == 0
    said = texts(errors.error_histogram(table, 2e-7, "f32", "logits"))
    assert "logits: error of 1,000 FP32 outputs against FP64; relative Frobenius error 2.00e-07" in said
    assert "shaded: rounding alone" in said, "a share of it would be a guess"
    assert "≤ -16" in said and any("in FP32 spacings" in t for t in said)


def test_errors_are_counted_in_spacings_of_bf16():
    reference = np.array([1.0, -4.0, 3.0, 100.0])
    spacing = np.array([1, 4, 2, 64]) / 128
    table = errors.error_table(reference + spacing * np.array([0.0, 0.4, -0.4, 50]), reference)
    assert table["count"].sum() == 4 and table["count"].iloc[-1] == 1  # far off: counted in the last bin
    assert table["count"][(table.low < 0.4) & (table.high > 0.4)].sum() == 1
    assert any("3.00e-02" in t for t in texts(errors.error_histogram(table, 0.03)))
    with pytest.raises(ValueError, match="1 outputs are NaN"):
        errors.error_table(np.array([1.0, np.nan]), np.array([1.0, 1.0]))
