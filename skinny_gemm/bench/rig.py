"""The GPU and the buffers of a campaign: times a task and checks its result.

Per shape one set of buffers, filled with fresh random numbers: enough copies of the weight to exceed 5x L2, x for the
largest M (a smaller M uses its first rows), and an FP64 reference of every copy. Launch i of a graph multiplies the
same x with copy i and writes output i. Before a point is timed outputs are what the kernel's tactic type says (NaN, or
an empty mailbox); afterwards every result is compared with the reference, and the rest must be untouched.

"isolated" launches without the PDL attribute, "chained" with it. Both launch the same binary, compiled with PDL:
without the attribute `griddepcontrol` does nothing. In a chain x is the same buffer for every launch; the wait for the
previous kernel is the same as if that one had written it. "exposed" is what a launch adds to a chain: a graph in which
a producer writes x before every launch, and one of the producers alone.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

import numpy as np
import torch
from cuda.bindings import driver

from ..artifact import CompiledKernel, LaunchArguments
from ..device import Device
from ..kernels.probes import DependencyFloor, MmaRate, Producer, Ring, Stream
from ..problem import BF16_BYTES, GemmProblem
from ..records import BOUNDS, PEERS, ExposedSamples, Point
from ..runtime import bind, compile_probe, launch
from ..runtime.compile import dsl_version
from ..runtime.driver import check
from ..runtime.trials import stray_writes
from ..tactics import KERNELS, MAX_M, Result, Tactic
from . import bounds, clocks, graphs, peers
from .compiling import binary, compile_task
from .graphs import Launch
from .task import Measurement, Task, sentence

PEER_ERROR_LIMIT = 1e-2  #: of a peer: cuBLAS may add the parts of a split K in BF16
PRODUCER_US = 3.0  #: about what the producer of an exposed launch takes, launch included


@dataclass
class Buffers:
    """The tensors of one shape; `copies` weights `[copies, N, K]`, x `[M, K]`, FP64 reference `[copies, M, N]`."""

    weights: torch.Tensor
    x: torch.Tensor
    reference: torch.Tensor = field(repr=False)

    def error(self, outs: torch.Tensor, result: Result) -> float:
        """The worst copy's relative Frobenius error of `result` in `outs` `[copies, M, columns]`; NaN if any is NaN."""
        expected = self.reference[: len(outs), : outs.shape[1], result.product]
        values = outs[..., result.columns]
        if result.dtype == "f32":
            values = values.contiguous().view(torch.float32)
        difference = (values.double() - expected).flatten(1).norm(dim=1)
        return (difference / expected.flatten(1).norm(dim=1)).max().item()


class Rig:
    """Measures on `device`. `timer` and `run` are replaced in tests; so is `torch_device`.

    `shapes` are the (N, K) to come, `seed` that of the random buffers, `run(compiled, arguments, pdl)` enqueues one
    launch on PyTorch's current stream.
    """

    def __init__(
        self, device: Device, shapes: Iterable[tuple[int, int]], seed: int, replays: int = graphs.REPLAYS,
        timer: graphs.CudaGraphs | None = None, run: bounds.Run | None = None, torch_device: str = "cuda",
    ):  # fmt: skip
        self.device, self.replays, self.torch_device = device, replays, torch_device
        self.timer = timer or graphs.CudaGraphs()
        self.run = run or (lambda compiled, arguments, pdl: launch(compiled, arguments, pdl=pdl))
        self.compiled: dict[tuple, CompiledKernel] = {}
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
        return {
            "gpu": torch.cuda.get_device_name(0),
            "board": self._nvml.uuid() if self._nvml else "",
            "driver": self._nvml.driver() if self._nvml else "unknown",
            "cuda": str(torch.version.cuda),
            "torch": torch.__version__,
            "dsl": dsl_version(),
        }

    def measure(self, task: Task) -> Measurement:
        """Times one task and checks its result. ValueError if the result is wrong."""
        point, problem = task.point, task.problem
        if point.kernel in BOUNDS:
            return self._measure_bound(point)
        buffers = self._buffers(point.n, point.k)
        copies = graphs.copies_for(problem.weight_bytes, self.device.l2_bytes, point.weights)
        empty, results = self._output(point.kernel, problem)
        outs = empty.expand(copies, *empty.shape).clone()
        x, weights = buffers.x[: point.m], buffers.weights[:copies]
        measure = self._time_exposed if point.mode == "exposed" else self._time_alone
        samples = measure(task, x, weights, outs)
        errors = []
        for result in results:
            errors.append(buffers.error(outs, result))
            if not errors[-1] < result.tolerance:
                name = "" if len(results) == 1 else f" {result.name}"
                limit = f"the limit is {result.tolerance:.0e}"
                raise ValueError(f"wrong result{name}: relative error {errors[-1]:.2e}, {limit}")
        if stray := stray_writes(outs.view(torch.int16), empty.view(torch.int16), results):
            raise ValueError(f"wrong result: {stray} words outside the results were written")
        return Measurement(samples, max(errors), problem.bytes)

    def ceilings(self) -> dict[str, float]:
        """The device's ceilings, see `bounds.ceilings`."""
        return bounds.ceilings(
            lambda launches, rounds: self.timer.time(launches, rounds, self.replays, width=graphs.WIDTH),
            self.run,
            self._probe,
            self.pool,
        )

    def sample_clocks(self, when: str, point: Point | None = None) -> None:
        """Notes clocks, power and temperature, as far as NVML tells them."""
        if self._nvml:
            where = {} if point is None else {"n": point.n, "k": point.k, "m": point.m}
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

    def _output(self, kernel: str, problem: GemmProblem) -> tuple[torch.Tensor, tuple[Result, ...]]:
        """A fresh output of `kernel`, BF16, and where its results lie; a peer writes plain `[M, N]`."""
        kind = KERNELS.get(kernel, Tactic)
        bits, results = kind.output(problem), kind.results(problem)
        if kernel in PEERS:
            results = tuple(replace(result, tolerance=PEER_ERROR_LIMIT) for result in results)
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).to(self.torch_device), results

    def _launches(self, task: Task, x: torch.Tensor, weights: torch.Tensor, outs: torch.Tensor) -> list[Launch]:
        point = task.point
        pdl = point.mode != "isolated"
        if point.kernel in PEERS:
            return peers.launches(point.kernel, point.tactic, x, weights, outs, pdl)
        tactic, compiled = KERNELS[point.kernel].parse(point.tactic), self._compiled(task)
        bound = [bind(compiled, tactic, x, weight, out) for weight, out in zip(weights, outs, strict=True)]
        return [functools.partial(self.run, compiled, arguments, pdl) for arguments in bound]

    def _time_alone(self, task: Task, x: torch.Tensor, weights: torch.Tensor, outs: torch.Tensor) -> list[float]:
        return self._time(task.point, self._launches(task, x, weights, outs))

    def _time_exposed(self, task: Task, x: torch.Tensor, weights: torch.Tensor, outs: torch.Tensor) -> ExposedSamples:
        point = task.point
        made = x.new_empty(x.shape)
        sums = x.new_empty(2 * point.m)  # a 32-bit word a token
        words = point.k * BF16_BYTES // 16
        arguments = LaunchArguments((point.m, 1, 1), (x, made, sums, words))
        producer = functools.partial(self.run, self._probe(Producer()), arguments, True)
        launches = self._launches(task, made, weights, outs)
        launches[0]()  # loads what a capture must not load; the timer does so for the producer
        alone = self._time(point, [producer] * len(launches))
        pairs = [launch for behind in launches for launch in (producer, behind)]
        return ExposedSamples(self._time(point, pairs, parts=2), alone)

    def _measure_bound(self, point: Point) -> Measurement:
        pdl = point.mode == "chained"
        if point.kernel == "stream":
            ring = Ring.parse(point.tactic)
            size = BF16_BYTES * point.n * point.k
            copies = graphs.copies_for(size, self.device.l2_bytes, point.weights)
            weights = self._weights(point.n, point.k)[:copies]
            launches = bounds.stream(self.run, self._probe(Stream(ring)), ring, weights, size, pdl)
            return Measurement(self._time(point, launches), nan, size)
        x = self.pool[: point.m * point.k]
        launches = bounds.dependency_floor(self.run, self._probe(DependencyFloor()), int(point.tactic), x, pdl)
        rounds = graphs.rounds_for(1, expected_us=2.0)
        samples = self.timer.time(launches, rounds, self.replays, width=graphs.WIDTH)
        return Measurement(samples, nan, BF16_BYTES * x.numel())

    def _time(self, point: Point, launches: Sequence[Launch], parts: int = 1) -> list[float]:
        """Microseconds per `parts` consecutive launches, which go through one copy of the weight."""
        weight_bytes = BF16_BYTES * point.n * point.k
        units = len(launches) // parts
        expected = 1.5 + weight_bytes / 4.5e6 + (PRODUCER_US if point.mode == "exposed" else 0)
        rounds = graphs.rounds_for(units, expected)
        if point.weights == "cold":
            copies = graphs.copies_for(weight_bytes, self.device.l2_bytes)
            graphs.check_rotation(rounds * units, copies, weight_bytes, self.device.l2_bytes)
        group = (point.n, point.k, point.m)
        during = None
        if group != self._sampled:  # once for each problem is enough, and keeps the file small
            self._sampled = group
            during = functools.partial(self.sample_clocks, "during", point)
        if point.mode == "exposed":  # two graphs, of which as many samples are kept
            samples = self.timer.time(launches, rounds, min(self.replays, graphs.EXPOSED_REPLAYS), during)
        else:
            samples = self.timer.time(launches, rounds, self.replays, during, graphs.WIDTH)
        return [parts * sample for sample in samples]

    def _weights(self, n: int, k: int) -> torch.Tensor:
        copies = graphs.copies_for(BF16_BYTES * n * k, self.device.l2_bytes)
        return self.pool[: copies * n * k].view(copies, n, k)

    def _buffers(self, n: int, k: int) -> Buffers:
        if self._latest is None or self._latest.weights.shape[1:] != (n, k):
            self._latest = None  # frees the previous reference first
            weights = self._weights(n, k)
            x = self._normal(MAX_M * k).view(MAX_M, k)
            reference = torch.stack([x.double() @ weight.double().t() for weight in weights])
            self._latest = Buffers(weights, x, reference)
        return self._latest

    def _normal(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.bfloat16, device=self.torch_device).normal_(generator=self._random)

    def _compiled(self, task: Task) -> CompiledKernel:
        """The binary of a task: from the cache, unless `compile_all` could not."""
        if (key := binary(task)) not in self.compiled:
            self.compiled[key] = compile_task(task, self.device.arch)
        return self.compiled[key]

    def _probe(self, probe: Stream | DependencyFloor | Producer | MmaRate) -> CompiledKernel:
        key = (type(probe).__name__, *map(str, vars(probe).values()))
        if key not in self.compiled:
            self.compiled[key] = compile_probe(probe, self.device.arch)
        return self.compiled[key]

    def _open_nvml(self) -> clocks.Nvml | None:
        bus_id = check(driver.cuDeviceGetPCIBusId(32, check(driver.cuDeviceGet(0))))
        try:
            return clocks.Nvml(bus_id.split(b"\0")[0].decode())
        except Exception as error:  # a container without NVML can still measure; the records say so
            self._without_nvml(error)
            return None

    def _without_nvml(self, error: Exception) -> None:
        self.clock_samples.append({"when": "never", "throttle": [], "error": sentence(error)})
        self._nvml = None
