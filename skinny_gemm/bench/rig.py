"""The GPU and the buffers of a campaign: times a task and checks its result.

Launch i of a graph multiplies the same x with copy i of the weight and writes output i, which holds NaN or an empty
mailbox before. Afterwards every result is compared with an FP64 reference, and the rest must be untouched. "isolated"
launches without the PDL attribute, without which `griddepcontrol` does nothing, "chained" with it. "exposed" is what a
launch adds to a chain: a graph in which a producer writes x before every launch, and one of the producers alone.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any

import numpy as np
import torch

from ..artifact import CompiledKernel, LaunchArguments
from ..device import Device
from ..kernels.probes import DependencyFloor, MmaRate, Producer, Ring, Stream
from ..problem import BF16_BYTES
from ..records import BOUNDS, PEERS, ExposedSamples, Point, Samples, interval_of
from ..records.statistics import median_interval
from ..runtime import compile_probe, launch
from ..runtime.trials import stray_writes
from ..tactics import KERNELS, MAX_M, Result, Tactic
from . import bounds, clocks, graphs, peers
from . import process as processes
from .graphs import Launch
from .task import Measurement, Task, arguments_of, compile_task, sentence

PEER_ERROR_LIMIT = 1e-2  #: of a peer: cuBLAS may add the parts of a split K in BF16
PRODUCER_US = 3.0  #: about what the producer of an exposed launch takes, launch included

Run = Callable[[CompiledKernel, LaunchArguments, bool], None]  #: (kernel, arguments, pdl attribute) enqueues a launch
Probe = Stream | DependencyFloor | Producer | MmaRate


@dataclass
class Buffers:
    """What the points of one (N, K) share: x `[M, K]` and the FP64 reference `[copies, M, N]` of every cold copy."""

    shape: tuple[int, int]
    x: torch.Tensor
    reference: torch.Tensor

    def error(self, outs: torch.Tensor, result: Result) -> float:
        """The worst copy's relative Frobenius error of `result` in `outs` `[copies, M, columns]`; NaN if any is NaN."""
        expected = self.reference[: len(outs), : outs.shape[1], result.product]
        values = outs[..., result.columns]
        if result.dtype == "f32":
            values = values.contiguous().view(torch.float32)
        difference = (values.double() - expected).flatten(1).norm(dim=1)
        return (difference / expected.flatten(1).norm(dim=1)).max().item()


class Rig:
    """Measures on `device` the (N, K) of `shapes` in a `quiet` or `busy` process, as it makes this one.

    ValueError if this one can no longer be quiet. Tests replace `timer`, `run` and `torch_device`.
    """

    def __init__(
        self, device: Device, shapes: Iterable[tuple[int, int]], seed: int, process: str = "quiet",
        timer: graphs.CudaGraphs | None = None, run: Run | None = None, torch_device: str = "cuda",
    ):  # fmt: skip
        if torch_device == "cuda":
            processes.enter(process)
        self.device, self.process, self.torch_device = device, process, torch_device
        self.timer = timer or graphs.CudaGraphs()
        self.run = run or (lambda compiled, arguments, pdl: launch(compiled, arguments, pdl=pdl))
        self._probes: dict[tuple, CompiledKernel] = {}
        self.clock_samples: list[dict] = []
        self._sampled: tuple[int, int, int] | None = None  # (N, K, M) of the latest clock sample
        self._latest: Buffers | None = None  # those of one shape are kept, since tasks come shape by shape
        self._nvml = self._open_nvml() if torch_device == "cuda" else None
        self._random = torch.Generator(torch_device).manual_seed(seed)
        largest = max(graphs.copies_for(b, device.l2_bytes) * b for b in (BF16_BYTES * n * k for n, k in shapes))
        if torch_device == "cuda":
            largest = max(largest, bounds.ASYMPTOTE_BYTES)
        self.pool = self._normal(largest // BF16_BYTES + bounds.SLACK_BYTES)

    def describe(self) -> dict[str, Any]:
        """GPU name and versions, as `Campaign` names them."""
        return clocks.describe(self._nvml)

    def screen(self, task: Task) -> float | None:
        """A brief look at a task: about how many us a launch takes, its result unchecked; None as `measure`."""
        samples = self._time_task(task, self._outputs(task)[0], brief=True)
        return None if samples is None else interval_of(samples).median

    def measure(self, task: Task) -> Measurement | None:
        """Times one task and checks its result; None if there is no such tactic here.

        ValueError for a wrong result, and for the point of another process.
        """
        point, problem = task.point, task.problem
        if point.process != self.process:
            raise ValueError(f"the point is of a {point.process} process, but this one is {self.process}")
        if point.kernel in BOUNDS:
            return self._measure_bound(point)
        buffers, (outs, empty) = self._buffers(point), self._outputs(task)
        results = KERNELS.get(point.kernel, Tactic).results(problem)
        if point.kernel in PEERS:
            results = tuple(replace(result, tolerance=PEER_ERROR_LIMIT) for result in results)
        samples = self._time_task(task, outs)
        if samples is None:
            return None
        errors = []
        for result in results:
            errors.append(buffers.error(outs, result))
            if not errors[-1] < result.tolerance:
                name, limit = "" if len(results) == 1 else f" {result.name}", f"the limit is {result.tolerance:.0e}"
                raise ValueError(f"wrong result{name}: relative error {errors[-1]:.2e}, {limit}")
        if stray := stray_writes(outs.view(torch.int16), empty.view(torch.int16), results):
            raise ValueError(f"wrong result: {stray} words outside the results were written")
        return Measurement(samples, max(errors), problem.bytes)

    def ceilings(self) -> dict[str, float]:
        """The device's ceilings, by the names that `device.Device` uses; nothing here is chained."""

        def median_us(launch: Launch, rounds: int = 8) -> float:
            return median_interval(self.timer.time([launch], rounds, width=graphs.WIDTH)).median

        def read_us(ring: Ring) -> float:
            chunks = bounds.ASYMPTOTE_BYTES // ring.chunk_bytes
            return median_us(self._probing(Stream(ring), ring.ctas, (self.pool, chunks, 1), False))

        source = self.pool[: bounds.ASYMPTOTE_BYTES // BF16_BYTES]
        target = source.new_empty(source.shape)
        # An elementwise kernel that reads and writes as much as a copy: captured, `copy_` becomes a memcpy node, which
        # reached 2.8 TB/s on H200 where kernels reach 4.2.
        copy_us = median_us(lambda: torch.neg(source, out=target), 4)

        ring = bounds.L2_RING
        l2 = (self.pool, bounds.L2_BYTES // ring.chunk_bytes, bounds.L2_ROUNDS)
        l2_us = median_us(self._probing(Stream(ring, repeat=True), ring.ctas, l2, False))

        sums = self.pool.new_empty(2 * MmaRate.CTAS * MmaRate.THREADS)
        mma_us = median_us(self._probing(MmaRate(), MmaRate.CTAS, (self.pool, sums, bounds.MMA_REPEATS), False))
        return {
            "hbm_read_tbs": round(bounds.ASYMPTOTE_BYTES / min(map(read_us, bounds.RINGS)) / 1e6, 3),
            "copy_tbs": round(2 * bounds.ASYMPTOTE_BYTES / copy_us / 1e6, 3),
            "l2_read_tbs": round(bounds.L2_BYTES * bounds.L2_ROUNDS / l2_us / 1e6, 3),
            "bf16_tflops": round(MmaRate.flops(bounds.MMA_REPEATS) / mma_us / 1e6, 1),
        }

    def sample_clocks(self, when: str, point: Point | None = None) -> None:
        """Notes clocks, power and temperature, as far as NVML tells them."""
        if self._nvml:
            names = () if point is None else ("n", "k", "m", "process")
            where = {name: getattr(point, name) for name in names}
            try:
                self.clock_samples.append({"when": when, **where, **self._nvml.sample()})
            except Exception as error:  # never a reason to lose a measurement; the records say what is missing
                self._without_nvml(error)

    def lost(self) -> bool:
        """Whether the GPU context died: after some errors nothing more can run in this process."""
        try:
            if self.torch_device == "cuda":
                torch.cuda.synchronize()
        except Exception:
            return True
        return False

    def _outputs(self, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs `[copies, M, columns]` that nobody has written, and one such output."""
        output = KERNELS.get(task.point.kernel, Tactic).output(task.problem)  # a peer writes plain [M, N]
        empty = torch.from_numpy(output.view(np.int16)).view(torch.bfloat16).to(self.torch_device)
        return empty.expand(len(self._weights(task.point)), *empty.shape).clone(), empty

    def _launches(self, task: Task, x: torch.Tensor, weights: torch.Tensor, outs: torch.Tensor) -> list[Launch]:
        """One launch a copy of the weight; none if there is no such tactic here."""
        point, pdl = task.point, task.point.mode != "isolated"
        if point.kernel in PEERS and point.kernel not in peers.ADAPTED:
            return peers.launches(point.kernel, point.tactic, x, weights, outs)
        compiled = compile_task(task, self.device.arch)
        bound = [arguments_of(task, compiled, x, weight, out) for weight, out in zip(weights, outs, strict=True)]
        return [functools.partial(self.run, compiled, arguments, pdl) for arguments in bound]

    def _time_task(self, task: Task, outs: torch.Tensor, brief: bool = False) -> Samples | None:
        point = task.point
        x, weights = self._buffers(point).x[: point.m], self._weights(point)
        if point.mode != "exposed":
            launches = self._launches(task, x, weights, outs)
            return self._time(point, launches, brief=brief) if launches else None
        made, sums = x.new_empty(x.shape), x.new_empty(2 * point.m)  # a 32-bit word a token
        producer = self._probing(Producer(), point.m, (x, made, sums, point.k * BF16_BYTES // 16), True)
        launches = self._launches(task, made, weights, outs)
        if not launches:
            return None
        launches[0]()  # loads what a capture must not load; the timer does so for the producer
        alone = self._time(point, [producer] * len(launches), brief=brief)
        pairs = [launch for behind in launches for launch in (producer, behind)]
        return ExposedSamples(self._time(point, pairs, parts=2, brief=brief), alone)

    def _measure_bound(self, point: Point) -> Measurement:
        pdl = point.mode == "chained"
        if point.kernel == "stream":
            ring = Ring.parse(point.tactic)
            size = BF16_BYTES * point.n * point.k
            chunks = -(-size // ring.chunk_bytes)  # the last may read `bounds.SLACK_BYTES` past the weight
            copies = [(weight, chunks, 1) for weight in self._weights(point)]
            launches = [self._probing(Stream(ring), ring.ctas, values, pdl) for values in copies]
            return Measurement(self._time(point, launches), nan, size)
        x, ctas = self.pool[: point.m * point.k], int(point.tactic)
        out, size = x.new_empty(2 * ctas), BF16_BYTES * x.numel()  # one 32-bit word a CTA
        floor = self._probing(DependencyFloor(), ctas, (x, out, size // 16), pdl)
        samples = self.timer.time([floor], graphs.rounds_for(1, expected_us=2.0), width=graphs.WIDTH)
        return Measurement(samples, nan, size)

    def _time(self, point: Point, launches: Sequence[Launch], parts: int = 1, brief: bool = False) -> list[float]:
        """Microseconds per `parts` consecutive launches, which go through one copy of the weight."""
        weight_bytes, units = BF16_BYTES * point.n * point.k, len(launches) // parts
        expected_us = 1.5 + weight_bytes / 4.5e6 + (PRODUCER_US if point.mode == "exposed" else 0)
        rounds = graphs.rounds_for(units, expected_us)
        if point.weights == "cold":
            copies = graphs.copies_for(weight_bytes, self.device.l2_bytes)
            graphs.check_rotation(rounds * units, copies, weight_bytes, self.device.l2_bytes)
        if brief:
            return [parts * sample for sample in self.timer.time(launches, rounds, graphs.BRIEF_REPLAYS)]
        during, earlier = None, self._sampled
        self._sampled = (point.n, point.k, point.m)
        if self._sampled != earlier:  # once for each problem is enough, and keeps the file small
            during = functools.partial(self.sample_clocks, "during", point)
        if point.mode == "exposed":  # two graphs, of which as many samples are kept
            samples = self.timer.time(launches, rounds, graphs.EXPOSED_REPLAYS, during)
        else:
            samples = self.timer.time(launches, rounds, during=during, width=graphs.WIDTH)
        return [parts * sample for sample in samples]

    def _weights(self, point: Point) -> torch.Tensor:
        """`[copies, N, K]`, views of the pool: as many as a graph rotates through."""
        size = point.n * point.k
        copies = graphs.copies_for(BF16_BYTES * size, self.device.l2_bytes, point.weights)
        return self.pool[: copies * size].view(copies, point.n, point.k)

    def _buffers(self, point: Point) -> Buffers:
        if self._latest is None or self._latest.shape != (point.n, point.k):
            self._latest = None  # frees the previous reference first
            x = self._normal(MAX_M * point.k).view(MAX_M, point.k)
            weights = self._weights(replace(point, weights="cold"))
            reference = torch.stack([x.double() @ weight.double().t() for weight in weights])
            self._latest = Buffers((point.n, point.k), x, reference)
        return self._latest

    def _normal(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.bfloat16, device=self.torch_device).normal_(generator=self._random)

    def _probing(self, probe: Probe, ctas: int, values: tuple, pdl: bool) -> Launch:
        return functools.partial(self.run, self._probe(probe), LaunchArguments((ctas, 1, 1), values), pdl)

    def _probe(self, probe: Probe) -> CompiledKernel:
        key = (type(probe).__name__, *map(str, vars(probe).values()))
        if key not in self._probes:
            self._probes[key] = compile_probe(probe, self.device.arch)
        return self._probes[key]

    def _open_nvml(self) -> clocks.Nvml | None:
        try:
            return clocks.Nvml.of_first_gpu()
        except Exception as error:  # a container without NVML can still measure; the records say so
            self._without_nvml(error)
            return None

    def _without_nvml(self, error: Exception) -> None:
        self.clock_samples.append({"when": "never", "throttle": [], "error": sentence(error)})
        self._nvml = None
