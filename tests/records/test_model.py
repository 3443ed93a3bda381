"""The performance model: its error is as stated, its terms add up.

- data/model.json has every coefficient, and states the error of its predictions;
- time falls with what buys bandwidth and grows with what costs it; another device scales by its ceilings;
- where there is no model, a sentence says so.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from skinny_gemm import catalogue, device, records
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import model
from skinny_gemm.tactics import KERNELS

H200 = device.get("h200")
SPLIT = KERNELS["warp-splitk"]
CASES = [(kernel, mode) for kernel, mode, process in model.fits() if process == "quiet"]


def test_every_kernel_has_a_fit_with_its_coefficients():
    assert {kernel for kernel, mode in CASES if mode == "chained"} == set(model.formulas()), "what `choose` asks for"
    for (kernel, mode, _), stored in model.fits().items():
        assert set(stored.coefficients) == {c.name for c in model.formulas()[kernel].of(mode)}
        assert all(value > 0 for value in stored.coefficients.values())
        assert all(c.meaning for c in model.formulas()[kernel].coefficients)


@pytest.mark.parametrize(("kernel", "mode"), CASES)
def test_the_stated_error_is_that_of_the_predictions(kernel, mode):
    stored, table = model.fits()[kernel, mode, "quiet"], records.load()
    table = table[table.campaign.isin(stored.campaigns) & (table.process == "quiet")]
    rows = table[(table.kernel == kernel) & (table["mode"] == mode)]
    rows = rows.drop_duplicates(["n", "k", "m", "tactic"], keep="last")
    kind = KERNELS[kernel]
    problems = [kind.problem(GemmProblem(row.m, row.n, row.k)) for row in rows.itertuples()]
    predicted = model.times([kind.parse(text) for text in rows.tactic], problems, H200, mode)
    error = np.abs(predicted / rows.median_us - 1)
    assert np.median(error) == pytest.approx(stored.median_error, abs=2e-3)
    assert np.quantile(error, 0.9) == pytest.approx(stored.p90_error, abs=2e-3)
    assert stored.median_error <= stored.held_out_median_error * 1.1, "what was not seen is not predicted better"
    assert f"90 % within {100 * stored.held_out_p90_error:.0f} %" in stored.describe()


def time(text: str, m: int = 8, n: int = 3584, k: int = 7168, gpu=H200, mode: str = "chained") -> float:
    weight, kind = GemmProblem(m, n, k), SPLIT
    return float(model.times([kind.parse(text)], [weight], gpu, mode)[0])


def test_the_time_moves_as_the_kernel_does():
    assert time("32,8,256,2,2") > time("32,8,256,4,2") > time("32,8,256,11,2"), "bytes in flight"
    assert time("32,8,256,11,2") > GemmProblem(8, 3584, 7168).weight_bytes / 4.7e6, "not faster than memory"
    assert time("32,8,256,11,2", m=16) > 1.3 * time("32,16,256,9,2", m=16), (
        "a second token tile reads the weights again"
    )
    assert time("16,32,256,8,2", m=32, k=14336, n=7168) > time("32,32,256,6,2", m=32, k=14336, n=7168), "x is re-read"
    assert time("32,8,256,11,2", mode="isolated") > time("32,8,256,11,2") + 1, "a chain hides the launch"


def test_the_terms_are_those_of_the_time():
    problem_8, tactic = GemmProblem(8, 3584, 7168), SPLIT.parse("32,8,256,11,2")
    terms = model.explain(tactic, problem_8, H200, "isolated")
    assert list(terms) == ["fixed", "HBM", "path", "port", "time"]
    assert terms["time"] == time("32,8,256,11,2", mode="isolated")
    assert terms["HBM"] == pytest.approx(problem_8.weight_bytes / (H200.ceilings["hbm_read_tbs"] * 1e6))
    largest = max(terms["HBM"], terms["path"], terms["port"])
    assert largest < terms["time"] - terms["fixed"] < terms["HBM"] + terms["path"] + terms["port"]
    front = KERNELS["ws-gemm"].problem(GemmProblem(8, 560, 7168))
    groups = [
        model.explain(KERNELS["ws-gemm"].parse(text), front, H200, "chained") for text in ("5,2,8,0,8,1", "5,2,8,0,0,1")
    ]
    assert groups[0]["exchange"] < groups[1]["exchange"] and "port" not in groups[0]


def test_another_device_scales_by_its_ceilings():
    b200 = device.get("b200")
    assert model.is_scaled("warp-splitk", "chained", b200) and not model.is_scaled("warp-splitk", "chained", H200)
    assert time("32,8,256,6,2", n=16160, gpu=b200) < 0.75 * time("32,8,256,6,2", n=16160)
    half = replace(H200, ceilings={**H200.ceilings, "hbm_read_tbs": H200.ceilings["hbm_read_tbs"] / 2})
    assert time("32,8,256,6,2", n=16160, gpu=half) == pytest.approx(2 * time("32,8,256,6,2", n=16160), rel=0.05)


def test_no_model_is_said_in_words():
    assert "no model of exposed launches" in model.why_not("ws-gemm", "exposed", H200)
    assert "no model of cublas" in model.why_not("cublas", "chained", H200)
    unknown = replace(H200, name="x", title="Some GPU", ceilings={})
    assert "no model of Some GPU" in model.why_not("warp-splitk", "chained", unknown)
    with pytest.raises(ValueError, match="nobody measured or stated its HBM bandwidth"):
        time("32,8,256,6,2", gpu=unknown)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not a fit"),
        ('{"warp-splitk": {"chained": {"quiet": {}}}}', "'devices'"),
        ('{"other": {"chained": 3}}', "not a fit"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, says):
    path = tmp_path / "model.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=says) as error:
        model.read_fits(path)
    assert str(path) in str(error.value) and "skinny_gemm fit" in str(error.value)


def test_a_file_of_other_coefficients_is_refused(tmp_path):
    content = json.loads((catalogue.data_dir() / "model.json").read_text())
    del content["warp-splitk"]["chained"]["quiet"]["coefficients"]["crowd"]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="warp-splitk, chained: coefficients"):
        model.read_fits(path)


def test_without_a_file_there_is_no_model(monkeypatch):
    monkeypatch.setattr(model, "fits", dict)
    for process in records.PROCESSES:
        said = f"of warp-splitk, chained, in a {process} process was not fitted: run python -m skinny_gemm fit"
        assert said in model.why_not("warp-splitk", "chained", H200, process)


def test_a_quiet_model_never_answers_for_a_busy_process(monkeypatch):
    quiet = {key: fit for key, fit in model.fits().items() if key[2] == "quiet"}
    monkeypatch.setattr(model, "fits", lambda: quiet)
    assert model.why_not("warp-splitk", "chained", H200) is None
    with pytest.raises(ValueError, match="in a busy process was not fitted"):
        model.times([SPLIT.parse("32,8,256,11,2")], [GemmProblem(8, 3584, 7168)], H200, "chained", "busy")
