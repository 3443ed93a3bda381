"""The GPU that a campaign runs on: prepares buffers, times a point and checks its result; `compile_all` goes before.

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
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from math import nan
from multiprocessing import get_context

import numpy as np

from ..artifact import CompiledKernel, LaunchArguments
from ..device import Device
from ..problem import BF16_BYTES, GemmProblem
from ..records import BOUNDS, Point
from ..tactics import KERNELS, Result, Tactic
from . import bounds, clocks, graphs, peers
from .graphs import Launch

PEER_ERROR_LIMIT = 1e-2  #: of a peer: cuBLAS may add the parts of a split K in BF16
PRODUCER_US = 3.0  #: about what the producer of an exposed launch takes, launch included
MAX_M = 64  #: rows of x that the buffers of a shape hold
Progress = Callable[[str, int, int], None]  #: (what, done, of how many)


@dataclass(frozen=True)
class Measurement:
    """Samples in microseconds per launch (see `records` for exposed ones) and the bytes that a launch must move.

    `relative_error` is the largest of the kernel's results, NaN for a bound.
    """

    samples_us: list[float]
    relative_error: float
    bytes: int


@dataclass
class Buffers:
    """The tensors of one shape; `copies` weights `[copies, N, K]`, x `[M, K]`, FP64 reference `[copies, M, N]`."""

    weights: object
    x: object
    reference: object = field(repr=False)

    def error(self, outs, result: Result) -> float:
        """The worst copy's relative Frobenius error of `result` in `outs` `[copies, M, columns]`; NaN if any is NaN."""
        import torch

        expected = self.reference[: len(outs), : outs.shape[1], result.product]
        values = outs[..., result.columns]
        if result.dtype == "f32":
            values = values.contiguous().view(torch.float32)
        difference = (values.double() - expected).flatten(1).norm(dim=1)
        return (difference / expected.flatten(1).norm(dim=1)).max().item()


class Machine:
    """Measures points on `device`. `timer` and `run` are replaced in tests; so is `torch_device`.

    `run(compiled, arguments, pdl)` enqueues one launch on PyTorch's current stream. `fronts` maps (N, K) to the problem
    a weight is, where that does not follow from its shape.
    """

    def __init__(
        self, device: Device, shapes: Iterable[tuple[int, int]], seed: int, replays: int = graphs.REPLAYS,
        timer=None, run=None, torch_device: str = "cuda", fronts: Mapping[tuple[int, int], GemmProblem] | None = None,
    ):  # fmt: skip
        import torch

        from ..runtime import launch

        self.fronts = dict(fronts or {})
        self.device, self.replays, self.torch_device = device, replays, torch_device
        self.timer = timer or graphs.CudaGraphs()
        self.run = run or (lambda compiled, arguments, pdl: launch(compiled, arguments, pdl=pdl))
        self.compiled: dict[tuple, CompiledKernel] = {}
        self.clock_samples: list[dict] = []
        self._sampled = self._shape = self._latest = None
        self._nvml = self._open_nvml() if torch_device == "cuda" else None
        self._random = torch.Generator(torch_device).manual_seed(seed)
        largest = max(graphs.copies_for(b, device.l2_bytes) * b for b in (BF16_BYTES * n * k for n, k in shapes))
        if torch_device == "cuda":
            largest = max(largest, bounds.ASYMPTOTE_BYTES)
        self.pool = self._normal(largest // BF16_BYTES + bounds.SLACK_BYTES)

    def describe(self) -> dict[str, str]:
        """GPU name and versions, as `Campaign` names them."""
        import torch

        from ..runtime.compile import dsl_version

        return {
            "gpu": torch.cuda.get_device_name(0),
            "board": self._nvml.uuid() if self._nvml else "",
            "driver": self._nvml.driver() if self._nvml else "unknown",
            "cuda": str(torch.version.cuda),
            "torch": torch.__version__,
            "dsl": dsl_version(),
        }

    def measure(self, point: Point) -> Measurement:
        """Times one point and checks its result. ValueError if the result is wrong."""
        if point.kernel in BOUNDS:
            return self._measure_bound(point)
        problem = problem_of(point, self.fronts)
        buffers = self._buffers(point.n, point.k)
        copies = graphs.copies_for(problem.weight_bytes, self.device.l2_bytes, point.weights)
        empty, results = self._output(point, problem)
        outs = empty.expand(copies, *empty.shape).clone()
        x = buffers.x[: point.m]
        if point.mode == "exposed":
            samples = self._time_exposed(point, problem, x, buffers.weights[:copies], outs)
        else:
            launches = self._launches(point, problem, x, buffers.weights[:copies], outs)
            samples = self._time(point, launches, problem.weight_bytes)
        errors = []
        for result in results:
            errors.append(buffers.error(outs, result))
            if not errors[-1] < result.tolerance:
                name = "" if len(results) == 1 else f" {result.name}"
                limit = f"the limit is {result.tolerance:.0e}"
                raise ValueError(f"wrong result{name}: relative error {errors[-1]:.2e}, {limit}")
        if stray := _stray_writes(outs, empty, results):
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
        import torch

        try:
            if self.torch_device == "cuda":
                torch.cuda.synchronize()
        except Exception:
            return True
        return False

    def _output(self, point: Point, problem: GemmProblem) -> tuple[object, tuple[Result, ...]]:
        """A fresh output of a point, BF16, and where its results lie; a peer writes plain `[M, N]`."""
        import torch

        kind = KERNELS.get(point.kernel, Tactic)
        bits, results = kind.output(problem), kind.results(problem)
        if kind is Tactic:
            results = tuple(replace(result, tolerance=PEER_ERROR_LIMIT) for result in results)
        return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).to(self.torch_device), results

    def _launches(self, point: Point, problem: GemmProblem, x, weights, outs) -> list[Launch]:
        from ..runtime import bind

        pdl = point.mode != "isolated"
        if point.kernel in peers.PEERS:
            return peers.launches(point.kernel, point.tactic, x, weights, outs, pdl)
        tactic = KERNELS[point.kernel].parse(point.tactic)
        compiled = self._compiled(point)
        bound = [bind(compiled, tactic, x, weight, out) for weight, out in zip(weights, outs, strict=True)]
        return [functools.partial(self.run, compiled, arguments, pdl) for arguments in bound]

    def _time_exposed(self, point: Point, problem: GemmProblem, x, weights, outs) -> list[float]:
        """Samples of a producer of x and the kernel behind it, then as many of the producer alone."""
        from ..kernels.probes import Producer

        made = x.new_empty(x.shape)
        sums = x.new_empty(2 * point.m)  # a 32-bit word a token
        words = problem.k * BF16_BYTES // 16
        arguments = LaunchArguments((point.m, 1, 1), (x, made, sums, words))
        producer = functools.partial(self.run, self._probe(Producer()), arguments, True)
        launches = self._launches(point, problem, made, weights, outs)
        launches[0]()  # loads what a capture must not load; the timer does so for the producer
        alone = self._time(point, [producer] * len(launches), problem.weight_bytes)
        pairs = [launch for behind in launches for launch in (producer, behind)]
        both = self._time(point, pairs, problem.weight_bytes, parts=2)
        return [*both, *alone]

    def _measure_bound(self, point: Point) -> Measurement:
        from ..kernels.probes import DependencyFloor, Ring, Stream

        pdl = point.mode == "chained"
        if point.kernel == "stream":
            ring = Ring.parse(point.tactic)
            size = BF16_BYTES * point.n * point.k
            copies = graphs.copies_for(size, self.device.l2_bytes, point.weights)
            weights = self._weights(point.n, point.k)[:copies]
            launches = bounds.stream(self.run, self._probe(Stream(ring)), ring, weights, size, pdl)
            return Measurement(self._time(point, launches, size), nan, size)
        x = self.pool[: point.m * point.k]
        launches = bounds.dependency_floor(self.run, self._probe(DependencyFloor()), int(point.tactic), x, pdl)
        rounds = graphs.rounds_for(1, expected_us=2.0)
        samples = self.timer.time(launches, rounds, self.replays, width=graphs.WIDTH)
        return Measurement(samples, nan, BF16_BYTES * x.numel())

    def _time(self, point: Point, launches: list[Launch], weight_bytes: int, parts: int = 1) -> list[float]:
        """Microseconds per `parts` consecutive launches, which go through one copy of the weight."""
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

    def _weights(self, n: int, k: int):
        copies = graphs.copies_for(BF16_BYTES * n * k, self.device.l2_bytes)
        return self.pool[: copies * n * k].view(copies, n, k)

    def _buffers(self, n: int, k: int) -> Buffers:
        """The buffers of a shape; those of the latest one are kept, since points come shape by shape."""
        import torch

        if self._shape != (n, k):
            self._shape, self._latest = (n, k), None  # frees the previous reference first
            weights = self._weights(n, k)
            x = self._normal(MAX_M * k).view(MAX_M, k)
            reference = torch.stack([x.double() @ weight.double().t() for weight in weights])
            self._latest = Buffers(weights, x, reference)
        return self._latest

    def _normal(self, count: int):
        import torch

        return torch.empty(count, dtype=torch.bfloat16, device=self.torch_device).normal_(generator=self._random)

    def _compiled(self, point: Point) -> CompiledKernel:
        """The binary of a point: from the cache, unless `compile_all` could not."""
        problem = problem_of(point, self.fronts)
        key = _binary(point, problem)
        if key not in self.compiled:
            self.compiled[key] = _compile(point.kernel, point.tactic, problem, self.device.arch)
        return self.compiled[key]

    def _probe(self, probe) -> CompiledKernel:
        from ..runtime import compile_probe

        key = (type(probe).__name__, *map(str, vars(probe).values()))
        if key not in self.compiled:
            self.compiled[key] = compile_probe(probe, self.device.arch)
        return self.compiled[key]

    def _open_nvml(self):
        from cuda.bindings import driver

        from ..runtime.driver import check

        bus_id = check(driver.cuDeviceGetPCIBusId(32, check(driver.cuDeviceGet(0))))
        try:
            return clocks.Nvml(bus_id.split(b"\0")[0].decode())
        except Exception as error:  # a container without NVML can still measure; the records say so
            return self._without_nvml(error)

    def _without_nvml(self, error: Exception) -> None:
        self.clock_samples.append({"when": "never", "throttle": [], "error": sentence(error)})
        self._nvml = None


def compile_all(
    arch: str, fronts: Mapping[tuple[int, int], GemmProblem] | None, points: Sequence[Point], progress: Progress
) -> dict[Point, str]:
    """Compiles what `points` need into the cache, on every core; returns why, for each point that does not compile."""
    jobs: dict[tuple, list[Point]] = {}
    for point in points:
        if point.kernel in KERNELS:
            jobs.setdefault(_binary(point, problem_of(point, fronts)), []).append(point)
    if not jobs:
        return {}
    wrong = {}
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, len(jobs)), mp_context=get_context("spawn"))
    try:
        futures = {
            pool.submit(_compile_only, *job[:2], problem_of(same[0], fronts), arch): same for job, same in jobs.items()
        }
        for done, future in enumerate(as_completed(futures), 1):
            try:
                future.result()
            except BrokenExecutor:
                pass  # the compiler died on one of them: each is compiled again, alone, where it is measured
            except Exception as error:
                wrong |= dict.fromkeys(futures[future], f"does not compile: {sentence(error)}")
            progress("compile", done, len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt does not wait for what has not begun
    return wrong


def problem_of(point: Point, fronts: Mapping[tuple[int, int], GemmProblem] | None = None) -> GemmProblem:
    """The problem of a point as its kernel sees it; `fronts` as of `Machine`."""
    problem = GemmProblem(point.m, point.n, point.k)
    if point.kernel not in KERNELS:
        return problem
    seen, known = KERNELS[point.kernel].problem(problem), (fronts or {}).get((point.n, point.k))
    return replace(known, m=point.m) if known and type(seen) is type(known) else seen


def sentence(error: BaseException) -> str:
    """An exception in one line of words."""
    text = " ".join(str(error).split())[:400]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def _stray_writes(outs, empty, results: Sequence[Result]) -> int:
    """How many BF16 words of `outs` that belong to no result differ from the fresh output `empty`."""
    import torch

    changed = outs.view(torch.int16) != empty.view(torch.int16)
    for result in results:
        changed[..., result.columns] = False
    return int(changed.sum())


def _binary(point: Point, problem: GemmProblem) -> tuple:
    """What names the binary of a point: kernel, tactic and what it is compiled for, as pairs."""
    return point.kernel, point.tactic, *KERNELS[point.kernel].parse(point.tactic).specialisation(problem).items()


def _compile_only(kernel: str, tactic: str, problem: GemmProblem, arch: str) -> None:
    _compile(kernel, tactic, problem, arch)  # into the cache: binaries need not travel


def _compile(kernel: str, tactic: str, problem: GemmProblem, arch: str) -> CompiledKernel:
    from ..runtime import compile_kernel

    return compile_kernel(KERNELS[kernel].parse(tactic), problem, arch, pdl=True)
