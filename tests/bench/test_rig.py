"""The measuring rig, run on the CPU with a fake timer and a fake launcher.

Properties: a cold graph goes equally often through copies that exceed 5x L2; a result that is wrong or not fully
written, and a word written outside the results, is refused, whatever the time; bounds, peers and our kernels all pass
through the same path; an exposed launch follows a producer of the x it reads; a rig measures in its process only.
"""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm import device
from skinny_gemm.bench import graphs, peers
from skinny_gemm.bench.rig import Rig
from skinny_gemm.bench.task import Task
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.records import MODES, ExposedSamples, Point, interval_of
from skinny_gemm.tactics import WsGemmTactic

N, K = 64, 256
TINY = dataclasses.replace(device.get("h200"), l2_bytes=20_000)  # 5x L2 is a few copies of the weight
TACTIC = "16,8,128,2,1"
FRONT = FrontProblem(1, N, K, split=16, valid=12, latent=2 * (N - 16), experts=24)  # one of two ranks
FRONT_TACTIC = "1,2,2,0,0,1"
SIMT_PARAMETERS = "x k k_stride weight n k k_stride residual n n_stride out n n_stride k atom atom atom"


class FakeTimer:
    def __init__(self):
        self.calls = []

    def time(self, launches, rounds=1, replays=graphs.REPLAYS, during=None, width=None):
        self.calls.append((len(launches), rounds, replays))
        for launch in launches:
            launch()
        if during:
            during()
        return [2.0] * replays


def named(compiled, arguments):
    return dict(zip((p.name for p in compiled.parameters), arguments.values, strict=True))


def gemm(compiled, arguments, pdl):
    """What the kernels and the producer compute, in PyTorch."""
    values = named(compiled, arguments)
    if "source" in values:
        values["x"].copy_(values["source"])
        return
    product = values["x"].float() @ values["weight"].float().t()
    if "out" in values:
        values["out"].copy_(product.bfloat16())
    else:  # rank 0 of FRONT
        mailbox = values["mailbox"]
        mailbox[:, : FRONT.shard] = product[:, FRONT.split :].bfloat16()
        logits = product[:, : FRONT.valid].contiguous().view(torch.bfloat16)
        mailbox[:, FRONT.latent : FRONT.latent + 2 * FRONT.valid] = logits


def task(kernel, m, tactic="", mode="chained", weights="cold"):
    problem = dataclasses.replace(FRONT, m=m) if kernel == "ws-gemm" else GemmProblem(m, N, K)
    return Task.of(kernel, problem, tactic, mode, weights)


@pytest.fixture
def rig(monkeypatch):
    """`rig(run)`: a rig that compiles nothing."""
    from skinny_gemm.bench import rig as module
    from skinny_gemm.kernels.probes import Producer
    from skinny_gemm.kernels.warp_splitk import WarpSplitK
    from skinny_gemm.kernels.ws_gemm import WsGemm

    def compiled(task, arch):
        if task.point.kernel == "warp-splitk":
            return SimpleNamespace(parameters=WarpSplitK.parameters)
        if task.point.kernel == "simt":
            return SimpleNamespace(parameters=[SimpleNamespace(name=name) for name in SIMT_PARAMETERS.split()])
        assert isinstance(task.problem, FrontProblem)
        return WsGemm(task.problem, WsGemmTactic.parse(task.point.tactic), True, "local", 1)

    def build(run=gemm):
        rig = Rig(TINY, [(N, K)], 1, timer=FakeTimer(), run=run, torch_device="cpu")
        rig._probe = lambda probe: SimpleNamespace(parameters=Producer.parameters)
        return rig

    monkeypatch.setattr(module, "compile_task", compiled)
    return build


@pytest.mark.parametrize("m", [1, 7, 32])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", ["warp-splitk", "cublas"])
def test_a_right_result_is_measured(rig, kernel, mode, m):
    rig = rig()
    result = rig.measure(task(kernel, m, TACTIC if kernel == "warp-splitk" else "", mode))
    replays = 2 * graphs.EXPOSED_REPLAYS if mode == "exposed" else graphs.REPLAYS
    assert result.relative_error < 4e-3 and len(result.samples_us) == replays
    assert result.bytes == 2 * (N * K + m * K + m * N)
    launches, rounds, _ = rig.timer.calls[0]
    assert launches * 2 * N * K > 5 * TINY.l2_bytes and rounds >= 1


@pytest.mark.parametrize("mode", MODES)
def test_a_brief_look_takes_few_replays_and_checks_nothing(rig, mode):
    rig = rig(lambda compiled, arguments, pdl: None)  # writes no result
    assert rig.screen(task("warp-splitk", 8, TACTIC, mode)) == 2.0
    assert {replays for _, _, replays in rig.timer.calls} == {graphs.BRIEF_REPLAYS}
    with pytest.raises(ValueError, match="wrong result"):
        rig.measure(task("warp-splitk", 8, TACTIC, mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_tactic_that_this_machine_has_not_is_none_and_no_error(rig, mode, monkeypatch):
    monkeypatch.setattr(peers, "launches", lambda *_: [])
    rig, missing = rig(), task("cublaslt", 8, "31", mode)
    assert rig.measure(missing) is None is rig.screen(missing)
    assert not rig.timer.calls


@pytest.mark.parametrize("mode", ["isolated", "chained"])
def test_an_adapted_peer_is_launched_as_our_kernels_are(rig, mode):
    seen = []

    def run(compiled, arguments, pdl):
        seen.append((arguments.grid, pdl))
        gemm(compiled, arguments, pdl)

    result = rig(run).measure(task("simt", 4, "32,2,1,8,0", mode))
    assert set(seen) == {((N // 2, 1, 1), mode == "chained")} and result.relative_error < 4e-3


@pytest.mark.parametrize("m", [1, 9, 64])
@pytest.mark.parametrize("mode", MODES)
def test_a_right_mailbox_is_measured(rig, mode, m):
    rig = rig()
    result = rig.measure(task("ws-gemm", m, FRONT_TACTIC, mode))
    assert 1e-3 < result.relative_error < 4e-3, "the larger error, of the BF16 latent"
    assert result.bytes == 2 * (N * K + m * K) + m * (2 * FRONT.shard + 4 * FRONT.valid)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (5, "wrong result latent: relative error"),
        (2 * FRONT.shard, "wrong result logits: relative error"),
        (FRONT.shard + 3, "wrong result: [0-9]+ words outside"),
        (2 * FRONT.shard + 24, "wrong result: [0-9]+ words outside"),
    ],
)
def test_every_result_of_a_mailbox_is_checked_and_the_rest_is_left_alone(rig, column, words):
    def sloppy(compiled, arguments, pdl):
        gemm(compiled, arguments, pdl)
        arguments.values[-1][6, column : column + 2] = 77.0

    with pytest.raises(ValueError, match=words):
        rig(sloppy).measure(task("ws-gemm", 7, FRONT_TACTIC))


@pytest.mark.parametrize(("kernel", "tactic"), [("warp-splitk", TACTIC), ("ws-gemm", FRONT_TACTIC), ("cublas", "")])
def test_an_exposed_launch_follows_a_producer_of_its_x(rig, kernel, tactic):
    """Graph by graph: producers alone, then pairs; the kernel reads what the producer wrote, not the rig's x."""
    order = []

    def run(compiled, arguments, pdl):
        values = named(compiled, arguments)
        order.append("source" in values)
        assert pdl, "everything is chained"
        if "source" in values:
            assert arguments.grid == (8, 1, 1) and values["words"] == K // 8
            gemm(compiled, arguments, pdl)
            values["source"].add_(0)
        else:
            assert values["x"].data_ptr() != rig._latest.x.data_ptr()
            gemm(compiled, arguments, pdl)

    rig = rig(run)
    result = rig.measure(task(kernel, 8, tactic, "exposed"))
    (alone, *_), (pairs, *_) = rig.timer.calls
    assert pairs == 2 * alone
    if kernel != "cublas":  # which is not launched by `run`
        assert order == [False, *[True] * alone, *[True, False] * alone]
    assert result.samples_us == ExposedSamples([4.0] * graphs.EXPOSED_REPLAYS, [2.0] * graphs.EXPOSED_REPLAYS)
    assert interval_of(result.samples_us).median == 2.0


@pytest.mark.parametrize("mode", ["isolated", "chained"])
def test_the_mode_sets_the_pdl_attribute_of_every_launch(rig, mode):
    seen = []

    def run(compiled, arguments, pdl):
        seen.append(pdl)
        gemm(compiled, arguments, pdl)

    rig(run).measure(task("warp-splitk", 8, TACTIC, mode))
    assert seen and set(seen) == {mode == "chained"}


def test_every_copy_of_the_weight_is_different_and_checked(rig):
    calls = []

    def wrong_once(compiled, arguments, pdl):
        gemm(compiled, arguments, pdl)
        calls.append(arguments.values[0].data_ptr())
        if len(calls) == 3:
            arguments.values[2].mul_(1.01)

    with pytest.raises(ValueError, match="wrong result: relative error 1"):
        rig(wrong_once).measure(task("warp-splitk", 8, TACTIC))
    assert len(set(calls)) == len(calls)


@pytest.mark.parametrize("row", [0, 6])
def test_an_element_that_nobody_writes_is_a_wrong_result(rig, row):
    def forgetful(compiled, arguments, pdl):
        kept = arguments.values[2][row, 5].clone()
        gemm(compiled, arguments, pdl)
        arguments.values[2][row, 5] = kept

    with pytest.raises(ValueError, match="wrong result: relative error nan"):
        rig(forgetful).measure(task("warp-splitk", 7, TACTIC))


def test_warm_weights_are_one_copy(rig):
    rig = rig()
    rig.measure(task("warp-splitk", 1, TACTIC, "isolated", "warm"))
    assert rig.timer.calls[0][0] == 1


@pytest.mark.parametrize("ring", ["528x3x8192", "132x12x16384"])
def test_the_stream_bound_reads_every_copy_to_its_end(rig, ring):
    spans = []

    def run(compiled, arguments, pdl):
        source, chunks, rounds = arguments.values
        spans.append((source.data_ptr(), chunks * compiled.ring.chunk_bytes, rounds, arguments.grid))

    rig = rig(run)
    rig._probe = lambda probe: probe
    result = rig.measure(Task(Point("stream", N, K, 0, ring, "chained"), GemmProblem(1, N, K)))
    assert result.bytes == 2 * N * K and result.relative_error != result.relative_error
    end = rig.pool.data_ptr() + 2 * rig.pool.numel()
    for start, size, rounds, grid in spans:
        assert size >= 2 * N * K and start + size <= end and rounds == 1
        assert grid == (int(ring.split("x")[0]), 1, 1)


def test_the_dependency_floor_launches_the_grid_it_names(rig):
    grids = []
    rig = rig(lambda compiled, arguments, pdl: grids.append((arguments.grid, arguments.values[2], pdl)))
    rig._probe = lambda probe: probe
    rig.measure(Task(Point("dependency-floor", N, K, 1, "4", "chained"), GemmProblem(1, N, K)))
    assert grids == [((4, 1, 1), K * 2 // 16, True)]


def test_ceilings_have_the_names_that_devices_use(rig, monkeypatch):
    from skinny_gemm.bench import bounds

    monkeypatch.setattr(bounds, "ASYMPTOTE_BYTES", 1 << 16)
    rig = rig(lambda compiled, arguments, pdl: None)
    rig._probe = lambda probe: probe
    found = rig.ceilings()
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


def test_a_point_of_another_process_is_refused():
    rig = Rig(TINY, [(N, K)], 1, "busy", timer=FakeTimer(), run=gemm, torch_device="cpu")
    rig._probe = lambda probe: probe
    floor = Task(Point("dependency-floor", N, K, 1, "4", "chained", process="quiet"), GemmProblem(1, N, K))
    with pytest.raises(ValueError, match="the point is of a quiet process, but this one is busy"):
        rig.measure(floor)
    assert rig.timer.calls == []


def test_a_clock_is_noted_with_its_process(rig):
    rig = rig()
    rig._nvml = SimpleNamespace(sample=lambda: {"sm_mhz": 1980})
    rig.measure(task("cublas", 8))
    assert rig.clock_samples == [{"when": "during", "n": N, "k": K, "m": 8, "process": "quiet", "sm_mhz": 1980}]


def test_buffers_are_fresh_for_each_seed():
    def pool(seed):
        return Rig(TINY, [(N, K)], seed, timer=FakeTimer(), run=gemm, torch_device="cpu").pool

    assert torch.equal(pool(1), pool(1)) and not torch.equal(pool(1), pool(2))
