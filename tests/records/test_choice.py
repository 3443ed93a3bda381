"""The choice of a kernel and a tactic.

Properties: of kernels recorded the fastest is chosen, at the least M above that all have, and by one campaign where one
has them all; without records the model's fastest of all coarse grids; without a model the heuristic of the first that
takes the problem; the reason names times and campaigns; kernels that write anything but a plain product never compete.
"""

import dataclasses
import json
from unittest.mock import patch

import pytest

from skinny_gemm import device
from skinny_gemm.catalogue import data_dir
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.records import Point, model
from skinny_gemm.records.best import write_defaults
from skinny_gemm.records.choice import choose
from skinny_gemm.tactics import KERNELS, WarpSplitKTactic, plain_kernels
from skinny_gemm.tactics.defaults import best_recorded
from tests.support.records import write

H200 = device.get("h200")
N, K = 64, 1024
SHIPPED = dict(KERNELS)
OURS, THEIRS = "16,8,256,2,1", "16,8,256,4,2"


class Other(WarpSplitKTactic):
    """A second plain kernel, for more tokens, without a model."""

    kernel = "other"
    max_m = 48
    formula = None


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """A data folder without records, and a registry whose plain kernels are warp split-K and, behind it, another."""
    others = {name: kind for name, kind in SHIPPED.items() if name in ("warp-splitk", "ws-gemm")}
    fits = json.loads((data_dir() / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps({name: fits[name] for name in others}))
    (tmp_path / "devices.json").write_bytes((data_dir() / "devices.json").read_bytes())
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    with patch.dict(KERNELS, others | {"other": Other}, clear=True):  # and puts back their order
        yield tmp_path


@pytest.fixture
def record(data):
    """`record("2026-01-01", {("other", 8): 3.0})` writes a campaign and data/best.csv."""

    def record(name, times, **point):
        tactics = {"warp-splitk": OURS, "other": THEIRS, "ws-gemm": "1,1,2,0,8,1"}
        write(data, name, {Point(kernel, N, K, m, tactics[kernel], **point): us for (kernel, m), us in times.items()})
        write_defaults()
        best_recorded.cache_clear()

    yield record
    best_recorded.cache_clear()


def chosen(m, n=N, k=K, gpu=H200):
    choice = choose(GemmProblem(m, n, k), gpu)
    return choice.tactic.kernel, str(choice.tactic), choice.why


def test_only_kernels_of_plain_products_compete(record):
    assert {"warp-splitk", "other"} <= plain_kernels().keys()
    assert "ws-gemm" not in plain_kernels()  # it writes a mailbox, of any weight
    record("2026-01-01", {("warp-splitk", 8): 3.0, ("ws-gemm", 8): 2.0})
    assert chosen(8)[0] == "warp-splitk"
    assert choose(FrontProblem(8, N, K, 16, 16), H200) == choose(GemmProblem(8, N, K), H200)


@pytest.mark.parametrize(("ours", "theirs", "winner"), [(3.0, 2.0, "other"), (2.0, 3.0, "warp-splitk")])
def test_the_fastest_recorded_kernel_is_chosen(record, ours, theirs, winner):
    record("2026-01-01", {("warp-splitk", 8): ours, ("other", 8): theirs})
    kernel, tactic, why = chosen(8)
    assert (kernel, tactic) == (winner, {"warp-splitk": OURS, "other": THEIRS}[winner])
    assert why == (
        f"recorded: warp-splitk {ours:.2f} us at M = 8 in 2026-01-01, other {theirs:.2f} us at M = 8 in 2026-01-01"
    )


def test_a_kernel_that_the_device_lacks_instructions_for_is_never_chosen(record):
    problem, rtx, wgmma = GemmProblem(32, N, K), device.get("rtx5090"), {"wgmma-splitk": SHIPPED["wgmma-splitk"]}
    with patch("skinny_gemm.records.choice.plain_kernels", lambda output: wgmma):
        assert choose(problem, H200).why == "neither recorded nor modelled; the heuristic of wgmma-splitk"
        with pytest.raises(ValueError, match="not wgmma-splitk, 64x1024 at M = 32: .* is sm_120a, but only sm_90a has"):
            choose(problem, rtx)
    with patch("skinny_gemm.records.choice.plain_kernels", lambda output: wgmma | {"other": Other}):
        assert choose(problem, rtx).tactic.kernel == "other"
        assert chosen(32)[0] == "wgmma-splitk"
        record("2026-01-01", {("other", 32): 9.0})
        assert chosen(32)[0] == "other", "a kernel that nothing is recorded of does not compete"


def test_equal_times_go_to_the_first_kernel(record):
    record("2026-01-01", {("other", 8): 2.0, ("warp-splitk", 8): 2.0})
    assert chosen(8)[0] == "warp-splitk"


def test_they_compete_at_the_least_m_that_all_have(record):
    times = {("warp-splitk", 8): 1.0, ("warp-splitk", 16): 4.0, ("warp-splitk", 32): 5.0}
    record("2026-01-01", times | {("other", 16): 3.0, ("other", 32): 9.0})
    kernel, _, why = chosen(5)
    assert kernel == "other" and "warp-splitk 4.00 us at M = 16" in why and "other 3.00 us at M = 16" in why
    assert chosen(17)[0] == "warp-splitk"


def test_without_such_an_m_each_counts_where_it_is_recorded(record):
    record("2026-01-01", {("warp-splitk", 8): 3.0, ("other", 16): 2.0})
    assert chosen(8)[0] == "other"
    assert chosen(12)[0] == "other"


def test_one_campaign_with_both_outweighs_medians_of_two(record):
    record("2026-01-01", {("warp-splitk", 8): 2.5, ("other", 8): 2.0})
    assert chosen(8)[0] == "other"
    record("2026-01-02", {("warp-splitk", 8): 2.0, ("other", 8): 2.1})
    assert chosen(8)[0] == "warp-splitk"
    record("2026-01-03", {("other", 8): 1.0})  # on a faster board, perhaps
    kernel, _, why = chosen(8)
    assert kernel == "warp-splitk"
    assert why == "recorded: warp-splitk 2.00 us at M = 8 in 2026-01-02, other 2.10 us at M = 8 in 2026-01-02"


def test_of_two_campaigns_with_one_kernel_each_the_medians_count(record):
    record("2026-01-01", {("warp-splitk", 8): 2.5})
    record("2026-01-02", {("other", 8): 2.0})
    kernel, _, why = chosen(8)
    assert kernel == "other" and "in 2026-01-01" in why and "in 2026-01-02" in why


def test_kernels_compete_in_one_process_the_busy_one_if_it_ran_both(record):
    record("2026-01-01", {("warp-splitk", 8): 2.0, ("other", 8): 2.5})
    record("2026-01-02", {("warp-splitk", 8): 3.0}, process="busy")
    kernel, _, why = chosen(8)
    assert kernel == "warp-splitk" and "warp-splitk 2.00 us at M = 8 in 2026-01-01" in why
    record("2026-01-03", {("other", 8): 2.8}, process="busy")
    kernel, _, why = chosen(8)
    assert kernel == "other" and "warp-splitk 3.00 us" in why and "other 2.80 us" in why
    record("2026-01-04", {("warp-splitk", 8): 2.0, ("other", 8): 2.5})  # newer, but quiet
    assert chosen(8)[0] == "other" and "2026-01-04" not in chosen(8)[2]


def test_other_modes_and_devices_are_no_comparison(record):
    record("2026-01-01", {("warp-splitk", 8): 2.5})
    record("2026-01-02", {("other", 8): 2.0})
    record("2026-01-03", {("warp-splitk", 8): 1.0, ("other", 8): 9.0}, mode="isolated")
    record("2026-01-04", {("warp-splitk", 8): 1.0, ("other", 8): 9.0}, weights="warm")
    assert chosen(8)[0] == "other"
    assert "by the model" in chosen(8, gpu=device.get("b200"))[2]


def test_a_recorded_tactic_that_is_illegal_here_does_not_compete(record):
    record("2026-01-01", {("warp-splitk", 8): 3.0, ("other", 8): 2.0})
    small = dataclasses.replace(H200, smem_per_cta=100_000)
    assert Other.parse(THEIRS).why_not(GemmProblem(8, N, K), small) is None
    smaller = dataclasses.replace(H200, smem_per_cta=50_000)
    assert Other.parse(THEIRS).why_not(GemmProblem(8, N, K), smaller)
    assert chosen(8, gpu=small)[0] == "other" and chosen(8, gpu=smaller)[0] == "warp-splitk"


def test_without_records_the_model_chooses_from_the_coarse_grid():
    problem = GemmProblem(8, 6144, 4096)
    choice = choose(problem, H200)
    grid = WarpSplitKTactic.coarse(problem, H200)
    times = dict(zip(grid, model.times(grid, [problem] * len(grid), H200, "chained"), strict=True))
    assert choice.tactic == min(times, key=times.get) and len(set(times.values())) > 3
    assert choice.why == f"not recorded; by the model warp-splitk {min(times.values()):.2f} us"


@pytest.mark.parametrize(("start", "winner"), [(0.5, "other"), (5.0, "warp-splitk")])
def test_of_two_models_the_faster_prediction_wins(data, monkeypatch, start, winner):
    fits = json.loads((data / "model.json").read_text())
    (data / "model.json").write_text(json.dumps({**fits, "other": with_start(fits["warp-splitk"], start)}))
    monkeypatch.setattr(Other, "formula", WarpSplitKTactic.formula)
    kernel, _, why = chosen(8, 6144, 4096)
    assert kernel == winner and "warp-splitk" in why and "other" in why


def with_start(fits, microseconds):
    """The fits of a kernel, in a quiet process, with another time to start a launch."""
    quiet = {mode: processes["quiet"] for mode, processes in fits.items()}
    changed = {mode: fit["coefficients"] | {"start": microseconds} for mode, fit in quiet.items()}
    return {mode: {"quiet": fit | {"coefficients": changed[mode]}} for mode, fit in quiet.items()}


def test_without_a_model_the_first_kernel_that_takes_it_has_its_heuristic(data):
    (data / "model.json").write_text("{}")
    model.read_fits.cache_clear()
    problem = GemmProblem(8, N, K)
    choice = choose(problem, H200)
    assert choice.tactic == WarpSplitKTactic.heuristic(problem, H200)
    assert choice.why == "neither recorded nor modelled; the heuristic of warp-splitk"
    model.read_fits.cache_clear()


def test_what_one_kernel_refuses_another_takes():
    assert chosen(40)[::2] == ("other", "neither recorded nor modelled; the heuristic of other")


def test_what_no_kernel_takes_is_refused_with_every_reason():
    with pytest.raises(ValueError) as raised:
        choose(GemmProblem(60, N, K), H200)
    assert str(raised.value) == (
        "no kernel takes it: not warp-splitk, 64x1024 at M = 60: M is 60, but this kernel takes 1 to 32 tokens; "
        "not other, 64x1024 at M = 60: M is 60, but this kernel takes 1 to 48 tokens"
    )


def test_the_repository_s_records_decide_wherever_they_hold_a_problem(monkeypatch):
    monkeypatch.delenv("SKINNY_GEMM_DATA")
    best_recorded.cache_clear()
    recorded: dict[GemmProblem, set] = {}  # what is recorded at this M or above
    with patch.dict(KERNELS, SHIPPED, clear=True):
        for (name, kernel, n, k), rows in best_recorded(data_dir() / "best.csv").items():
            for m, row in rows.items() if name == "h200" and kernel in plain_kernels() else ():
                for below in range(1, m + 1):
                    recorded.setdefault(GemmProblem(below, n, k), set()).add((kernel, row.tactic))
        assert len(recorded) > 3000
        for problem in list(recorded)[::41]:
            choice = choose(problem, H200)
            assert (choice.tactic.kernel, str(choice.tactic)) in recorded[problem]
            assert choice.why.startswith("recorded: ")
