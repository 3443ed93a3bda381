"""The fit of the performance model.

- it finds the coefficients that made the times, and a few absurd times do not move it;
- of each point the newest record counts, and only with cold weights;
- a quiet and a busy process have each their own, the busy one where it has records of several shapes;
- data/model.json is the fit to the campaigns that it names, and what is printed of it is what it holds.
"""

import json
from dataclasses import asdict

import numpy as np
import pandas
import pytest

from skinny_gemm import catalogue, device, records
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import fit, model
from skinny_gemm.tactics import WarpSplitKTactic
from skinny_gemm.tactics.formula import MODES

H200 = device.get("h200")


def test_the_stored_coefficients_are_what_the_fit_gives():
    table = records.load()
    for (kernel, mode, process), stored in model.fits().items():
        anew = fit.fit(kernel, mode, table[table.campaign.isin(stored.campaigns)], process)
        assert anew.coefficients == pytest.approx(stored.coefficients, rel=2e-2), (kernel, mode)
        for name, value in asdict(anew).items():
            if name.endswith("error"):
                assert value == pytest.approx(getattr(stored, name), abs=2e-3), (kernel, mode, name)
        assert (anew.records, anew.shapes, anew.campaigns) == (stored.records, stored.shapes, stored.campaigns)


def made_up(coefficients: dict, mode: str = "isolated") -> pandas.DataFrame:
    """Records whose times are the model's with these coefficients."""
    rows, quantities = [], []
    formula = model.formulas()["warp-splitk"]
    for n, k in ((3584, 7168), (256, 6144), (7168, 1536), (2304, 1536), (8448, 7168)):
        for m in (1, 8, 16, 32):
            weight = GemmProblem(m, n, k)
            for tactic in WarpSplitKTactic.enumerate(weight, H200)[::11]:
                quantities.append(formula.quantities(tactic, weight, H200))
                rows.append({"campaign": "made up", "device": "h200", "kernel": "warp-splitk", "n": n, "k": k, "m": m,
                             "tactic": str(tactic), "mode": mode, "weights": "cold", "process": "quiet"})  # fmt: skip
    columns = {name: np.array([q[name] for q in quantities], float) for name in quantities[0]}
    return pandas.DataFrame(rows).assign(median_us=formula.terms(columns, coefficients, mode)["time"])


@pytest.mark.parametrize("mode", MODES)
def test_the_fit_finds_what_made_the_times(mode):
    made = {c.name: 1.4 * c.start for c in model.formulas()["warp-splitk"].of(mode)}
    table = made_up(made, mode)
    found = fit.fit("warp-splitk", mode, table)
    assert found.coefficients == pytest.approx(made, rel=1e-2) and found.held_out_p90_error < 1e-3
    table.loc[::40, "median_us"] *= 3  # a few absurd times
    assert fit.fit("warp-splitk", mode, table).coefficients["latency"] == pytest.approx(made["latency"], rel=0.1)


def test_the_newest_record_counts_and_only_cold_weights():
    made = {c.name: c.start for c in model.formulas()["warp-splitk"].of("isolated")}
    table = made_up(made)
    older, warm = table.assign(median_us=99.0), table.assign(median_us=0.1, weights="warm")
    found = fit.fit("warp-splitk", "isolated", pandas.concat([older, table, warm], ignore_index=True))
    assert found.records == len(table) and found.median_error < 1e-3
    with pytest.raises(ValueError, match="No record of warp-splitk, chained, with cold weights"):
        fit.fit("warp-splitk", "chained", table)


def test_a_busy_process_has_a_fit_of_its_own(tmp_path, monkeypatch):
    """Its launches take twice as long; without records of a second shape it has none."""
    (tmp_path / "devices.json").symlink_to(catalogue.data_dir() / "devices.json")
    formula = model.formulas()["warp-splitk"]
    tables = []
    for mode in MODES:
        made = {c.name: c.start for c in formula.of(mode)}
        quiet = made_up(made, mode)
        tables += [quiet, made_up({**made, "start": 2 * made["start"]}, mode).assign(process="busy")]
    table = pandas.concat(tables, ignore_index=True)
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    monkeypatch.setattr(model, "formulas", lambda: {"warp-splitk": formula})
    monkeypatch.setattr(fit, "formulas", model.formulas)
    one_shape = table[(table.process == "quiet") | (table.n == 3584)]
    for recorded, processes in ((one_shape, ["quiet"]), (table, ["quiet", "busy"])):
        monkeypatch.setattr(fit.store, "load", lambda recorded=recorded: recorded)
        model.read_fits.cache_clear()
        assert list(json.loads(fit.write_fit().read_text())["warp-splitk"]["chained"]) == processes
        assert set(model.fits()) == {("warp-splitk", mode, process) for mode in MODES for process in processes}
    for mode in MODES:
        quiet, busy = (model.fit_of("warp-splitk", mode, process) for process in ("quiet", "busy"))
        assert busy.coefficients["start"] == pytest.approx(2 * quiet.coefficients["start"], rel=0.1)
        text, problem = WarpSplitKTactic.parse("16,8,256,8,2"), GemmProblem(8, 3584, 7168)
        times = [model.times([text], [problem], H200, mode, process)[0] for process in ("quiet", "busy")]
        assert times[0] < times[1]
    model.read_fits.cache_clear()


def test_the_command_tells_coefficients_units_and_errors():
    text = "\n".join(fit.lines())
    for (kernel, mode, process), stored in model.fits().items():
        assert f"{kernel}, {mode}, {process} process: fitted to {stored.records:,} records" in text
        for c in model.formulas()[kernel].of(mode):
            assert c.meaning in text and c.unit in text and f"{stored.coefficients[c.name]:.4g}" in text
