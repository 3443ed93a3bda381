"""Errors are counted in the spacings of the result's own format, and drawn with what rounding alone would give.

All peers, with all kernels of ours beside one, are told apart by dash and marker.
"""

import numpy as np
import pytest

from skinny_gemm.analysis.performance import error_table
from skinny_gemm.figures.charts import best_of_peers, error_histogram
from skinny_gemm.figures.style import LIGHT
from skinny_gemm.records import PEERS
from skinny_gemm.tactics import KERNELS
from tests.support.drawings import texts


def test_errors_of_fp32_are_counted_in_its_own_spacings():
    reference = np.full(1000, 3.0)
    distance = np.linspace(-11, 11, 1000)
    table = error_table(reference + distance * 2.0**-22, reference, "f32")
    assert table.high.iloc[-1] == 16 and table["count"].sum() == 1000
    assert table["count"][table.low < -11.5].sum() == 0
    said = texts(error_histogram(table, 2e-7, "f32", "logits"))
    assert "logits: error of 1,000 FP32 outputs against FP64; relative Frobenius error 2.00e-07" in said
    assert "shaded: rounding alone" in said, "a share of it would be a guess"
    assert "≤ -16" in said and any("in FP32 spacings" in t for t in said)


def test_errors_are_counted_in_spacings_of_bf16():
    reference = np.array([1.0, -4.0, 3.0, 100.0])
    spacing = np.array([1, 4, 2, 64]) / 128
    table = error_table(reference + spacing * np.array([0.0, 0.4, -0.4, 50]), reference)
    assert table["count"].sum() == 4 and table["count"].iloc[-1] == 1  # far off: counted in the last bin
    assert table["count"][(table.low < 0.4) & (table.high > 0.4)].sum() == 1
    assert any("3.00e-02" in t for t in texts(error_histogram(table, 0.03)))
    with pytest.raises(ValueError, match="1 outputs are NaN"):
        error_table(np.array([1.0, np.nan]), np.array([1.0, 1.0]))


def test_everything_that_may_stand_beside_a_kernel_looks_different():
    rivals = dict.fromkeys([*PEERS, *list(KERNELS)[1:]], ())
    looks = [series.look for series in best_of_peers(rivals, list, LIGHT.series[1:])]
    for name in ("linestyle", "marker"):
        assert len({str(look[name]) for look in looks}) == len(rivals), name
