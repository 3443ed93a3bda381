"""The CUDA-graph timer, against a stand-in for the driver and for torch.cuda that keeps a log and a virtual clock.

Properties: warm-up and captured launches are separate; a graph holds every launch of every round; time is divided by
the launches; an error inside a capture ends the capture and is the error reported; everything made is destroyed.
"""

import math
import random
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from skinny_gemm.bench import graphs
from skinny_gemm.records.statistics import median_interval


class FakeGpu:
    """A launch costs 2 us, inside a graph or outside; events read the clock."""

    def __init__(self, drops=0, noise=lambda replay: 0.0):
        self.log, self.clock_us, self.captured, self.drops, self.noise = [], 0.0, None, drops, noise

    def launch(self):
        if self.captured is None:
            self.clock_us += 2.0
            self.log.append("eager")
        else:
            self.captured += 1

    # torch.cuda
    def Event(self, enable_timing):
        assert enable_timing
        gpu = self

        class Event:
            def record(self, stream):
                self.at_us = gpu.clock_us

            def elapsed_time(self, end):
                return (end.at_us - self.at_us) / 1000

        return Event()

    def synchronize(self):
        assert self.captured is None, "a capture must not synchronise"

    def stream(self, _):
        return nullcontext()

    # cuda.bindings.driver
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL="thread-local")

    def cuStreamBeginCapture(self, stream, mode):
        self.captured = 0
        return (0,)

    def cuStreamEndCapture(self, stream):
        graph = SimpleNamespace(nodes=self.captured - self.drops)
        self.captured = None
        self.log.append("end capture")
        return 0, graph

    def cuGraphGetNodes(self, graph):
        return 0, [], graph.nodes

    def cuGraphInstantiate(self, graph, flags):
        return 0, graph

    def cuGraphLaunch(self, graph, stream):
        self.clock_us += (2.0 + self.noise(self.log.count("replay"))) * graph.nodes
        self.log.append("replay")
        return (0,)

    def cuGraphDestroy(self, graph):
        self.log.append("destroy graph")
        return (0,)

    def cuGraphExecDestroy(self, graph):
        self.log.append("destroy exec")
        return (0,)


def timer(gpu):
    def check(result):
        status, *values = result
        assert status == 0
        return values[0] if len(values) == 1 else values

    made = graphs.CudaGraphs.__new__(graphs.CudaGraphs)
    made.torch, made.driver, made.check = SimpleNamespace(cuda=gpu), gpu, check
    made.stream = made.handle = "stream"
    return made


def test_time_per_launch_and_the_order_of_things():
    gpu, during = FakeGpu(), []
    samples = timer(gpu).time([gpu.launch] * 5, rounds=3, replays=7, during=lambda: during.append(len(gpu.log)))
    assert samples == pytest.approx([2.0] * 7) and during == [3 + graphs.WARM_UP + 7]
    assert gpu.log == ["eager", "end capture", "destroy graph", *["replay"] * (graphs.WARM_UP + 7), "destroy exec"]


def test_an_error_in_a_capture_ends_it_and_is_the_one_reported():
    gpu = FakeGpu()

    def broken():
        if gpu.captured is not None:
            raise RuntimeError("cannot launch")

    with pytest.raises(RuntimeError, match="cannot launch"):
        timer(gpu).time([broken])
    assert gpu.captured is None and gpu.log == ["end capture"]


def test_an_error_while_replaying_destroys_the_graph():
    gpu = FakeGpu()

    def failing():
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        timer(gpu).time([gpu.launch], during=failing)
    assert gpu.log[-1] == "destroy exec"


def test_a_graph_that_lost_launches_is_refused():
    gpu = FakeGpu(drops=1)
    with pytest.raises(AssertionError, match="5 nodes for 6 launches"):
        timer(gpu).time([gpu.launch] * 3, rounds=2)
    assert gpu.log[-1] == "destroy graph"


class TestStopping:
    """With a width, replays end once the interval is that narrow."""

    def test_steady_times_take_one_batch(self):
        gpu = FakeGpu()
        samples = timer(gpu).time([gpu.launch] * 5, rounds=3, width=0.005)
        assert samples == pytest.approx([2.0] * graphs.BATCH)
        assert gpu.log.count("replay") == graphs.WARM_UP + graphs.BATCH

    def test_noisy_times_take_all_replays_and_warm_up_before_each_batch(self):
        gpu, during = FakeGpu(noise=lambda replay: 0.2 * (replay % 7)), []
        samples = timer(gpu).time([gpu.launch], replays=40, width=0.005, during=lambda: during.append(1))
        assert len(samples) == 40 and during == [1]
        assert gpu.log.count("replay") == graphs.WARM_UP + 40 + 3 and gpu.log[-1] == "destroy exec"

    def test_times_that_settle_take_as_much_as_they_need(self):
        gpu = FakeGpu(noise=lambda replay: 0.5 if replay < graphs.WARM_UP + 4 else 0.0)
        samples = timer(gpu).time([gpu.launch], width=0.005)
        assert len(samples) == 2 * graphs.BATCH

    def test_without_a_width_there_are_exactly_as_many_as_asked_for(self):
        gpu = FakeGpu()
        assert len(timer(gpu).time([gpu.launch], replays=30)) == 30

    @pytest.mark.parametrize("spread", [0.001, 0.004, 0.02])
    def test_stopping_early_hardly_costs_coverage(self, spread):
        """The interval still covers the true median as often as promised, or nearly, also of skewed times."""
        rng, covered, runs = random.Random(0), 0, 600
        true = 10 * (1 + spread * math.log(2))
        for _ in range(runs):
            samples = []
            while len(samples) < graphs.REPLAYS and not (samples and graphs.settled(samples, graphs.WIDTH)):
                samples += [10 * (1 + rng.expovariate(1 / spread)) for _ in range(graphs.BATCH)]
            interval = median_interval(samples)
            covered += interval.low <= true <= interval.high
        assert covered / runs > 0.92
