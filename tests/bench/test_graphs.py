"""The CUDA-graph timer, against a stand-in for the driver and for torch.cuda that keeps a log and a virtual clock.

Properties: warm-up and captured launches are separate; a graph holds every launch of every round; time is divided by
the launches; an error inside a capture ends the capture and is the error reported; everything made is destroyed.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from skinny_gemm.bench import graphs


class FakeGpu:
    """A launch costs 2 us, inside a graph or outside; events read the clock."""

    def __init__(self, drops=0):
        self.log, self.clock_us, self.captured, self.drops = [], 0.0, None, drops

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
        self.clock_us += 2.0 * graph.nodes
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
