"""The explorers on a GPU: what they run there is live, and says so."""

import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("matplotlib")

from skinny_gemm import device  # noqa: E402
from skinny_gemm.explore import RunExplorer, TacticExplorer  # noqa: E402


def test_run_live(gpu):
    explorer = RunExplorer()
    assert explorer.backend.value == "cuda"
    explorer.run()
    run = explorer.outcome.run
    assert run.backend == "cuda" and run.relative_error(*run.results) < 4e-3
    assert "the same bits" in explorer.facts.value
    assert explorer.outcome.source["source"] == "live" and explorer.outcome.source["device"]


def test_measure_live(gpu):
    if gpu.name not in device.names():
        pytest.skip(f"{gpu.title} is not in the catalogue")
    explorer = TacticExplorer(device=gpu.name)
    explorer.measure().join(240)
    assert explorer.trouble.value == ""
    assert set(explorer.live.m) >= {1, 2, 4, 8} and (explorer.live.median_us > 0).all()
    assert "measured live" in explorer.status.value
