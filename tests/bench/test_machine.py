"""The measuring machine, run on the CPU with a fake timer and a fake launcher.

Properties: a cold graph goes equally often through copies that exceed 5x L2; a result that is wrong or not fully
written is refused, whatever the time; bounds, peers and our kernels all pass through the same path.
"""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.bench import graphs
from skinny_gemm.bench.machine import Machine
from skinny_gemm.bench.records import Point

N, K = 64, 256
TINY = dataclasses.replace(device.get("h200"), l2_bytes=20_000)  # 5x L2 is a few copies of the weight
TACTIC = "16,8,128,2,1"


class FakeTimer:
    def __init__(self):
        self.calls = []

    def time(self, launches, rounds=1, replays=graphs.REPLAYS, during=None):
        self.calls.append((len(launches), rounds, replays))
        for launch in launches:
            launch()
        if during:
            during()
        return [2.0] * replays


def gemm(compiled, arguments, pdl):
    values = dict(zip((p.name for p in compiled.parameters), arguments.values, strict=True))
    values["out"].copy_((values["x"].float() @ values["weight"].float().t()).bfloat16())


@pytest.fixture
def machine():
    from skinny_gemm.kernels.warp_splitk import PARAMETERS

    def build(run=gemm):
        machine = Machine(TINY, [(N, K)], seed=1, timer=FakeTimer(), run=run, torch_device="cpu")
        machine.compiled["warp-splitk", TACTIC, N, K] = SimpleNamespace(parameters=PARAMETERS)
        return machine

    return build


@pytest.mark.parametrize("m", [1, 7, 32])
@pytest.mark.parametrize("mode", ["isolated", "chained"])
@pytest.mark.parametrize("kernel", ["warp-splitk", "cublas"])
def test_a_right_result_is_measured(machine, kernel, mode, m):
    machine = machine()
    result = machine.measure(Point(kernel, N, K, m, TACTIC if kernel == "warp-splitk" else "", mode))
    assert result.relative_error < 4e-3 and len(result.samples_us) == graphs.REPLAYS
    assert result.bytes == 2 * (N * K + m * K + m * N)
    launches, rounds, _ = machine.timer.calls[0]
    assert launches * 2 * N * K > 5 * TINY.l2_bytes and rounds >= 1


@pytest.mark.parametrize("mode", ["isolated", "chained"])
def test_the_mode_sets_the_pdl_attribute_of_every_launch(machine, mode):
    seen = []

    def run(compiled, arguments, pdl):
        seen.append(pdl)
        gemm(compiled, arguments, pdl)

    machine(run).measure(Point("warp-splitk", N, K, 8, TACTIC, mode))
    assert seen and set(seen) == {mode == "chained"}


def test_every_copy_of_the_weight_is_different_and_checked(machine):
    calls = []

    def wrong_once(compiled, arguments, pdl):
        gemm(compiled, arguments, pdl)
        calls.append(arguments.values[0].data_ptr())
        if len(calls) == 3:
            arguments.values[2].mul_(1.01)

    with pytest.raises(ValueError, match="wrong result: relative error 1"):
        machine(wrong_once).measure(Point("warp-splitk", N, K, 8, TACTIC))
    assert len(set(calls)) == len(calls)


@pytest.mark.parametrize("row", [0, 6])
def test_an_element_that_nobody_writes_is_a_wrong_result(machine, row):
    def forgetful(compiled, arguments, pdl):
        kept = arguments.values[2][row, 5].clone()
        gemm(compiled, arguments, pdl)
        arguments.values[2][row, 5] = kept

    with pytest.raises(ValueError, match="wrong result: relative error nan"):
        machine(forgetful).measure(Point("warp-splitk", N, K, 7, TACTIC))


def test_warm_weights_are_one_copy(machine):
    machine = machine()
    machine.measure(Point("warp-splitk", N, K, 1, TACTIC, "isolated", "warm"))
    assert machine.timer.calls[0][0] == 1


@pytest.mark.parametrize("ring", ["528x3x8192", "132x12x16384"])
def test_the_stream_bound_reads_every_copy_to_its_end(machine, ring):
    spans = []

    def run(compiled, arguments, pdl):
        source, chunks, rounds = arguments.values
        spans.append((source.data_ptr(), chunks * compiled.ring.chunk_bytes, rounds, arguments.grid))

    machine = machine(run)
    machine._probe = lambda probe: probe
    result = machine.measure(Point("stream", N, K, 0, ring, "chained"))
    assert result.bytes == 2 * N * K and result.relative_error != result.relative_error
    end = machine.pool.data_ptr() + 2 * machine.pool.numel()
    for start, size, rounds, grid in spans:
        assert size >= 2 * N * K and start + size <= end and rounds == 1
        assert grid == (int(ring.split("x")[0]), 1, 1)


def test_the_dependency_floor_launches_the_grid_it_names(machine):
    grids = []
    machine = machine(lambda compiled, arguments, pdl: grids.append((arguments.grid, arguments.values[2], pdl)))
    machine._probe = lambda probe: probe
    machine.measure(Point("dependency-floor", N, K, 1, "4", "chained"))
    assert grids == [((4, 1, 1), K * 2 // 16, True)]


def test_ceilings_have_the_names_that_devices_use(machine, monkeypatch):
    from skinny_gemm.bench import bounds

    monkeypatch.setattr(bounds, "ASYMPTOTE_BYTES", 1 << 16)
    machine = machine(lambda compiled, arguments, pdl: None)
    machine._probe = lambda probe: probe
    found = machine.ceilings()
    assert set(found) == {"hbm_read_tbs", "copy_tbs", "l2_read_tbs", "bf16_tflops"} and min(found.values()) > 0


@given(st.integers(1, 10**9), st.integers(1, 10**8), st.integers(1, 5))
def test_a_cold_rotation_exceeds_five_times_the_l2(weight_bytes, l2_bytes, rounds):
    copies = graphs.copies_for(weight_bytes, l2_bytes)
    graphs.check_rotation(rounds * copies, copies, weight_bytes, l2_bytes)
    if copies > 1:
        few = graphs.ROTATION * l2_bytes // weight_bytes
        with pytest.raises(AssertionError, match="do not exceed"):
            graphs.check_rotation(few, few, weight_bytes, l2_bytes)
        with pytest.raises(AssertionError, match="equally often"):
            graphs.check_rotation(rounds * copies + 1, copies, weight_bytes, l2_bytes)


@given(st.integers(1, 1000), st.floats(0.5, 1000))
def test_a_graph_lasts_long_enough_to_hide_its_start(launches, expected_us):
    rounds = graphs.rounds_for(launches, expected_us)
    assert rounds * launches * expected_us >= graphs.TARGET_US * (1 - 1e-9)
    assert rounds == 1 or (rounds - 1) * launches * expected_us < graphs.TARGET_US


def test_buffers_are_fresh_for_each_seed():
    def pool(seed):
        return Machine(TINY, [(N, K)], seed, timer=FakeTimer(), run=gemm, torch_device="cpu").pool

    assert torch.equal(pool(1), pool(1)) and not torch.equal(pool(1), pool(2))


def test_compilation_is_shared_by_ms_and_modes_and_its_failure_reaches_every_point(machine, monkeypatch):
    from skinny_gemm.bench import machine as module

    class InProcess:
        def __init__(self, workers, mp_context):
            pass

        def submit(self, function, *arguments):
            from concurrent.futures import Future

            future = Future()
            try:
                future.set_result(function(*arguments))
            except ValueError as error:
                future.set_exception(error)
            return future

        def shutdown(self, **_):
            pass

    compiled = []

    def compile_one(kernel, tactic, n, k, arch):
        compiled.append((tactic, n, k, arch))
        if tactic != TACTIC:
            raise ValueError("the assembler refused")
        return "binary"

    monkeypatch.setattr(module, "ProcessPoolExecutor", InProcess)
    monkeypatch.setattr(module, "_compile", compile_one)
    good = [Point("warp-splitk", N, K, m, TACTIC, mode) for m in (1, 8) for mode in ("isolated", "chained")]
    bad = [dataclasses.replace(point, tactic="32,8,128,2,1") for point in good]
    progress = []
    wrong = machine().prepare([*good, *bad, Point("cublas", N, K, 1)], lambda *args: progress.append(args))
    assert sorted(compiled) == [(TACTIC, N, K, "sm_90a"), ("32,8,128,2,1", N, K, "sm_90a")]
    assert wrong == dict.fromkeys(bad, "does not compile: the assembler refused")
    assert progress == [("compile", 1, 2), ("compile", 2, 2)]
