"""Timing by device events around the replays of a CUDA graph.

A graph of many launches hides what the host needs to submit one, as decode does. Replays are enqueued back to back, an
event between each two; they take about `TARGET_US`, which makes the few microseconds between two graphs vanish.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import ceil
from typing import Any

from ..checks import check_choice
from ..records import WEIGHTS
from ..records.statistics import median_interval

TARGET_US = 800.0
REPLAYS = 192  #: at the most, see `CudaGraphs.time`; a tenth of the chained tactics scatter by 1.5 % and need as many
EXPOSED_REPLAYS = 25  #: of each of the two graphs of an exposed launch
BRIEF_REPLAYS = 6  #: of a brief look, as few as an interval can be had of
BATCH = 12  #: of 12 samples the third from either end bounds the median at 95 %, which was enough for 84 % of points
WIDTH = 0.005  #: of the 95 % interval over the median: narrow enough to stop; half of what still counts as the same
WARM_UP = 3
ROTATION = 5  #: times the L2 that the weights of a cold rotation exceed at the very least
COLD_ROTATION = 64  #: times the L2 that a cold rotation aims for
COLD_LAUNCHES = 512  #: at most this many copies for that aim, so that small weights keep graphs small

Launch = Callable[[], object]  #: enqueues one launch on PyTorch's current stream


def copies_for(weight_bytes: int, l2_bytes: int, weights: str = "cold") -> int:
    """How many copies of a weight a graph rotates through: one when warm; when cold about 64x L2, always over 5x.

    5x L2 is not cold for kernels that load weights evict-first: such lines evict each other, so part of a cyclic
    rotation survives in L2. On H200 the warp split-K 6288x7168 took 19.8 us rotating over 5x, 20.6 us over 64x.
    """
    check_choice("weights", weights, WEIGHTS)
    if weights == "warm":
        return 1
    aim = min(COLD_ROTATION * l2_bytes // weight_bytes + 1, COLD_LAUNCHES)
    return max(ROTATION * l2_bytes // weight_bytes + 1, aim)


def check_rotation(launches: int, copies: int, weight_bytes: int, l2_bytes: int) -> None:
    """AssertionError unless a graph of `launches` goes through all `copies` equally often and they exceed 5x L2."""
    if copies * weight_bytes <= ROTATION * l2_bytes:
        raise AssertionError(f"{copies} copies of {weight_bytes} B do not exceed {ROTATION}x the L2 of {l2_bytes} B.")
    if launches < copies or launches % copies:
        raise AssertionError(f"{launches} launches do not go equally often through {copies} copies.")


def rounds_for(launches: int, expected_us: float) -> int:
    """How often a graph repeats its launches, of about `expected_us` each, to last `TARGET_US`."""
    return max(1, ceil(TARGET_US / (launches * expected_us)))


def settled(samples: Sequence[float], width: float) -> bool:
    """Whether the median's 95 % interval is no wider than the fraction `width` of it."""
    interval = median_interval(samples)
    return interval.high - interval.low <= width * interval.median


@cache
def timing_stream() -> Any:
    """The stream of all timers of this process: with one each, the third would make it a busy one (`process`)."""
    import torch

    return torch.cuda.Stream()


class CudaGraphs:
    """The real timer. Needs PyTorch with a GPU; every driver call is checked."""

    def __init__(self):
        import torch
        from cuda.bindings import driver

        from ..runtime.driver import check

        self.torch, self.driver, self.check = torch, driver, check
        self.stream = timing_stream()
        self.handle = driver.CUstream(self.stream.cuda_stream)

    def time(
        self, launches: Sequence[Launch], rounds: int = 1, replays: int = REPLAYS,
        during: Launch | None = None, width: float | None = None,
    ) -> list[float]:  # fmt: skip
        """Microseconds per launch, one sample a replay, of a graph that holds `rounds` times `launches`.

        `replays` in all; with `width` in batches, until the median's 95 % interval is no wider than this fraction of
        it. `during` is called once while replays run.
        """
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(self.stream):
            launches[0]()  # loads modules, creates handles, compiles: none of it belongs into a capture
            self.torch.cuda.synchronize()
            graph = self._instantiate(launches, rounds)
            try:
                first = min(BATCH, replays) if width else replays
                scale = 1000 / (rounds * len(launches))
                samples = [scale * ms for ms in self._replay(graph, WARM_UP, first, during)]
                while width and len(samples) < replays and not settled(samples, width):
                    samples += [scale * ms for ms in self._replay(graph, 1, min(BATCH, replays - len(samples)))]
            except BaseException:
                self.driver.cuGraphExecDestroy(graph)  # unchecked: the first error is the one to report
                raise
            self.check(self.driver.cuGraphExecDestroy(graph))
        return samples

    def _replay(self, graph, warm_up: int, replays: int, during: Launch | None = None) -> list[float]:
        """Milliseconds of each of `replays`, enqueued behind those that warm up, so that the GPU never waits."""
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(replays + 1)]
        for _ in range(warm_up):
            self.check(self.driver.cuGraphLaunch(graph, self.handle))
        events[0].record(self.stream)
        for event in events[1:]:
            self.check(self.driver.cuGraphLaunch(graph, self.handle))
            event.record(self.stream)
        if during:
            during()
        self.torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in zip(events, events[1:], strict=False)]

    def _instantiate(self, launches: Sequence[Launch], rounds: int):
        driver, check, modes = self.driver, self.check, self.driver.CUstreamCaptureMode
        check(driver.cuStreamBeginCapture(self.handle, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
        try:
            for _ in range(rounds):
                for launch in launches:
                    launch()
        except BaseException:
            driver.cuStreamEndCapture(self.handle)  # give the stream back; the launch's own error is the one to report
            raise
        graph = check(driver.cuStreamEndCapture(self.handle))
        try:
            _, nodes = check(driver.cuGraphGetNodes(graph))
            if nodes < rounds * len(launches):  # a library may split one call over several kernels
                raise AssertionError(f"the graph has {nodes} nodes for {rounds * len(launches)} launches.")
            return check(driver.cuGraphInstantiate(graph, 0))
        finally:
            check(driver.cuGraphDestroy(graph))
