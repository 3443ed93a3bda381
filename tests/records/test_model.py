"""The performance model: its stored coefficients are what the fit gives, its error is as stated, its terms add up.

- the fit finds the coefficients that made the times, and a few absurd times do not move it;
- data/model.json is the fit to the campaigns that it names, and states that fit's error;
- time falls with what buys bandwidth and grows with what costs it; another device scales by its ceilings;
- where there is no model, a sentence says so.
"""

import json
from dataclasses import asdict, replace

import numpy as np
import pandas
import pytest

from skinny_gemm import catalogue, device, records
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import fit, model
from skinny_gemm.tactics import KERNELS

H200 = device.get("h200")
SPLIT = KERNELS["warp-splitk"]
CASES = [(kernel, mode) for kernel in model.FORMULAS for mode in model.MODES]


def test_every_kernel_and_mode_has_a_fit_with_its_coefficients():
    assert set(model.fits()) == set(CASES)
    for (kernel, mode), stored in model.fits().items():
        assert set(stored.coefficients) == {c.name for c in model.FORMULAS[kernel].of(mode)}
        assert all(value > 0 for value in stored.coefficients.values())
        assert all(c.meaning for c in model.FORMULAS[kernel].coefficients)


def test_the_stored_coefficients_are_what_the_fit_gives():
    table = records.load()
    for (kernel, mode), stored in model.fits().items():
        anew = model.fit(kernel, mode, table[table.campaign.isin(stored.campaigns)])
        assert anew.coefficients == pytest.approx(stored.coefficients, rel=2e-2), (kernel, mode)
        for name, value in asdict(anew).items():
            if name.endswith("error"):
                assert value == pytest.approx(getattr(stored, name), abs=2e-3), (kernel, mode, name)
        assert (anew.records, anew.shapes, anew.campaigns) == (stored.records, stored.shapes, stored.campaigns)


@pytest.mark.parametrize(("kernel", "mode"), CASES)
def test_the_stated_error_is_that_of_the_predictions(kernel, mode):
    stored, table = model.fits()[kernel, mode], records.load()
    rows = table[(table.kernel == kernel) & (table["mode"] == mode) & table.campaign.isin(stored.campaigns)]
    rows = rows.drop_duplicates(["n", "k", "m", "tactic"], keep="last")
    kind = KERNELS[kernel]
    problems = [kind.problem(GemmProblem(row.m, row.n, row.k)) for row in rows.itertuples()]
    predicted = model.times([kind.parse(text) for text in rows.tactic], problems, H200, mode)
    error = np.abs(predicted / rows.median_us - 1)
    assert np.median(error) == pytest.approx(stored.median_error, abs=2e-3)
    assert np.quantile(error, 0.9) == pytest.approx(stored.p90_error, abs=2e-3)
    assert stored.median_error <= stored.held_out_median_error * 1.1, "what was not seen is not predicted better"
    assert f"90 % within {100 * stored.held_out_p90_error:.0f} %" in stored.describe()


def made_up(coefficients: dict, mode: str = "isolated") -> pandas.DataFrame:
    """Records whose times are the model's with these coefficients."""
    rows, quantities = [], []
    formula = model.FORMULAS["warp-splitk"]
    for n, k in ((3584, 7168), (256, 6144), (7168, 1536), (2304, 1536), (8448, 7168)):
        for m in (1, 8, 16, 32):
            weight = GemmProblem(m, n, k)
            for tactic in SPLIT.enumerate(weight, H200)[::11]:
                quantities.append(formula.quantities(tactic, weight, H200))
                rows.append({"campaign": "made up", "device": "h200", "kernel": "warp-splitk", "n": n, "k": k, "m": m,
                             "tactic": str(tactic), "mode": mode, "weights": "cold"})  # fmt: skip
    columns = {name: np.array([q[name] for q in quantities], float) for name in quantities[0]}
    return pandas.DataFrame(rows).assign(median_us=formula.terms(columns, coefficients, mode)["time"])


@pytest.mark.parametrize("mode", model.MODES)
def test_the_fit_finds_what_made_the_times(mode):
    made = {c.name: 1.4 * c.start for c in model.FORMULAS["warp-splitk"].of(mode)}
    table = made_up(made, mode)
    found = model.fit("warp-splitk", mode, table)
    assert found.coefficients == pytest.approx(made, rel=1e-2) and found.held_out_p90_error < 1e-3
    table.loc[::40, "median_us"] *= 3  # a few absurd times
    assert model.fit("warp-splitk", mode, table).coefficients["latency"] == pytest.approx(made["latency"], rel=0.1)


def test_the_newest_record_counts_and_only_cold_weights():
    made = {c.name: c.start for c in model.FORMULAS["warp-splitk"].of("isolated")}
    table = made_up(made)
    older, warm = table.assign(median_us=99.0), table.assign(median_us=0.1, weights="warm")
    found = model.fit("warp-splitk", "isolated", pandas.concat([older, table, warm], ignore_index=True))
    assert found.records == len(table) and found.median_error < 1e-3
    with pytest.raises(ValueError, match="No record of warp-splitk, chained, with cold weights"):
        model.fit("warp-splitk", "chained", table)


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
        ('{"warp-splitk": {"chained": {}}}', "'devices'"),
        ('{"other": {"chained": 3}}', "not a fit"),
    ],
)
def test_a_broken_file_is_named(tmp_path, content, says):
    path = tmp_path / "model.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=says) as error:
        model._read(path)
    assert str(path) in str(error.value) and "bench.fit" in str(error.value)


def test_a_file_of_other_coefficients_is_refused(tmp_path):
    content = json.loads((catalogue.data_dir() / "model.json").read_text())
    del content["warp-splitk"]["chained"]["coefficients"]["crowd"]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="warp-splitk, chained: coefficients"):
        model._read(path)


def test_without_a_file_there_is_no_model(monkeypatch):
    monkeypatch.setattr(model, "fits", dict)
    assert "was not fitted: run python -m skinny_gemm.bench.fit" in model.why_not("warp-splitk", "chained", H200)


def test_the_command_tells_coefficients_units_and_errors():
    text = "\n".join(fit.lines())
    for (kernel, mode), stored in model.fits().items():
        assert f"{kernel}, {mode}: fitted to {stored.records:,} records" in text
        for c in model.FORMULAS[kernel].of(mode):
            assert c.meaning in text and c.unit in text and f"{stored.coefficients[c.name]:.4g}" in text
