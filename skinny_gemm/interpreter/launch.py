"""`run`: one launch of a compiled kernel, from the caller's arrays to a `Result`."""

import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ..artifact import CompiledKernel, LaunchArguments, Parameter, arguments_of
from ..checks import is_integer
from ..layouts import WARP
from . import codegen, flow, parser
from .machine import FILLS, Context, Machine, Triple
from .memory import Buffer, GlobalMemory, as_bytes
from .observers import Observer
from .observers.poison import Dependency, Poison
from .observers.races import Races
from .observers.trace import Trace
from .schedules import Adversarial, InOrder, named

CHUNK_BYTES = 48 << 20  #: shared memory of one chunk of CTAs, twins included
CHUNK_ROWS = 128  #: CTAs of one chunk, twins included
LARGEST = 16  #: CTAs of a cluster, non-portable sizes included
PROGRESS_AFTER = 2.0  #: seconds after which `progress` is called
PROGRESS_EVERY = 0.25


@dataclass
class Result:
    """What a run did. The outputs are in the caller's arrays."""

    instructions: int  #: warp instructions executed
    seconds: float  #: of execution, without parsing and code generation
    prepare_seconds: float  #: of parsing and code generation; next to nothing when the PTX is known
    ctas: int
    schedule: str
    checks: bool
    written: dict[str, np.ndarray] = field(repr=False)  #: per written parameter, a bool per byte
    copied_bytes: int = 0  #: bytes of global memory read by asynchronous copies
    trace: Trace | None = None


@dataclass(frozen=True)
class Multicast:
    """The value of a pointer parameter that is a multicast address: a store by `multimem` reaches all `arrays`.

    The arrays have one size and one alignment. Ordinary loads and stores to the address are errors.
    """

    arrays: tuple[Any, ...]

    def __init__(self, arrays: Iterable[Any]):
        object.__setattr__(self, "arrays", tuple(arrays))


def run(
    compiled: CompiledKernel,
    arguments: LaunchArguments,
    schedule: str | InOrder | Adversarial = "in_order",
    trace: Trace | None = None,
    checks: bool = True,
    progress: Callable[[float], None] | None = None,
    races: bool | int | Iterable[int] | None = False,
    preceding: Sequence[str] = (),
) -> Result:
    """Executes the PTX of `compiled` (a `CompiledKernel`) with `arguments` (`LaunchArguments`) on the CPU.

    Pointers are packed NumPy arrays or CPU torch tensors, read and written in place, `Multicast([array, ...])`, or None
    where optional. `schedule` is "in_order" or `adversarial(seed)`. With `checks`, every CTA runs twice with different
    bytes in whatever is uninitialised, and an output changes only if the whole run is clean. `trace`: one to fill.
    `races` looks for accesses of shared memory that nothing orders: True in the first cluster, or without clusters in
    the first and the last CTA; or the linear numbers (x fastest) of the CTAs whose clusters to watch.
    `preceding` names the parameters that the preceding kernel of a chain of dependent launches writes: reading them
    before `griddepcontrol.wait` is an error. `progress(fraction)` is called now and then after the first two seconds.

    Raises ValueError for arguments that do not fit, an `InterpreterError` for what the kernel does wrong.
    """
    order = named(schedule)
    start = time.perf_counter()
    program = program_of(compiled.ptx, compiled.entry, trace)
    memory, parameters, outputs = bound_parameters(compiled, arguments, program.flow.kernel, checks)
    grid, warps, cluster = geometry(compiled, arguments.grid)
    ctas = np.ascontiguousarray(np.indices(grid[::-1])[::-1].reshape(3, -1).T)  # x fastest
    observers: list[Observer] = [Poison()] if checks else []
    if preceding:
        unknown = set(preceding) - {p.name for p in compiled.parameters if p.kind == "pointer"}
        if unknown:
            raise ValueError(f"preceding names {', '.join(sorted(unknown))}, which is no pointer parameter.")
        observers.append(Dependency([buffer for buffer in memory.buffers if buffer.name in preceding]))
    if clusters := watched(races, len(ctas), cluster):
        observers.append(Races(clusters))
    observers += [trace] if trace else []
    context = Context(
        program, grid, compiled.block, warps, cluster, len(FILLS) if checks else 1, memory, parameters,
        program.flow.kernel.dynamic_base + compiled.smem_bytes, observers, reporter := _Reporter(progress, len(ctas)),
    )  # fmt: skip
    begin = time.perf_counter()
    executed = copied = 0
    with np.errstate(all="ignore"):
        for number, chunk in enumerate(chunks(ctas, context)):
            machine = Machine(context, chunk, order.start(number))
            machine.run()
            executed += machine.executed
            copied += machine.copied // context.fills
            reporter.done += len(chunk)
    for _, buffers in outputs:
        for observer in observers:
            observer.output(buffers[0].name, buffers)
    written = {}
    for array, (buffer, *_) in outputs:
        written[buffer.name] = buffer.written != 0
        if checks:
            np.copyto(array, buffer.bytes, where=written[buffer.name])
    end = time.perf_counter()
    return Result(executed, end - begin, begin - start, len(ctas), order.name, checks, written, copied, trace)


def geometry(compiled: CompiledKernel, grid: Any) -> tuple[Triple, int, int]:
    """(the grid, warps of a CTA, CTAs of a cluster), after checking that they fit."""
    if not isinstance(grid, tuple | list) or len(grid) != 3 or not all(is_integer(g) and g > 0 for g in grid):
        raise ValueError(f"grid {grid!r} must be three positive integers.")
    threads = math.prod(compiled.block)
    if threads % WARP:
        raise ValueError(f"block {compiled.block} has {threads} threads; it must be a multiple of {WARP}.")
    x, y, z = map(int, grid)
    size, *rest = compiled.cluster
    if rest != [1, 1] or not 1 <= size <= LARGEST:
        raise ValueError(f"cluster {tuple(compiled.cluster)} must be (x, 1, 1) with x from 1 to {LARGEST}.")
    if x % size:
        raise ValueError(f"grid {(x, y, z)} has {x} CTAs along x, which is no multiple of the cluster's {size}.")
    return (x, y, z), threads // WARP, size


def watched(races: bool | int | Iterable[int] | None, ctas: int, cluster: int) -> set[int]:
    """Numbers of the clusters whose shared memory is watched for races."""
    if races is True:
        return {0, ctas - 1} if cluster == 1 else {0}
    if races is False or races is None:
        return set()
    numbers = list(races) if isinstance(races, Iterable) else [races]
    if not all(is_integer(n) and 0 <= n < ctas for n in numbers):
        raise ValueError(f"races {races!r} must be True or numbers of CTAs from 0 to {ctas - 1}.")
    return {int(n) // cluster for n in numbers}


def chunks(ctas: np.ndarray, context: Context) -> list[np.ndarray]:
    """Consecutive parts of the grid that fit the chunk limits; a cluster's CTAs stay together."""
    shared, cluster = max(context.shared_end, 1024) * context.fills, context.cluster
    most = min(CHUNK_BYTES // shared, CHUNK_ROWS // context.fills)
    clusters = len(ctas) // cluster
    count = -(-clusters // max(most // cluster, 1))
    size = -(-clusters // count) * cluster
    return [ctas[i : i + size] for i in range(0, len(ctas), size)]


class _Reporter:
    """Calls `progress` with the finished fraction now and then."""

    def __init__(self, progress, ctas):
        self.progress, self.ctas, self.done, self.latest = progress, ctas, 0, 0.0
        self.next = time.perf_counter() + PROGRESS_AFTER

    def __call__(self, machine):
        if self.progress and time.perf_counter() > self.next:
            self.next = time.perf_counter() + PROGRESS_EVERY
            # Of a chunk roughly, by how far its warps have come in the program text.
            left = sum(g.count * (1 - g.block / len(machine.blocks)) for g in machine.groups if g.block != flow.EXIT)
            done = self.done + len(machine.ctas) - left / machine.context.warps
            self.latest = max(self.latest, done / self.ctas)
            self.progress(self.latest)


@lru_cache(maxsize=64)
def _flow_of(ptx: str, entry: str):
    kernels = parser.parse(ptx)
    if entry not in kernels and len(kernels) > 1:
        raise ValueError(f"entry {entry!r} is not in the PTX, which has {', '.join(kernels)}.")
    return flow.analyse(kernels.get(entry) or next(iter(kernels.values())))  # the text may shorten a mangled name


@lru_cache(maxsize=64)
def _plain_program(ptx: str, entry: str):
    return codegen.generate(_flow_of(ptx, entry))


def program_of(ptx: str, entry: str, trace: Trace | None = None) -> codegen.Program:
    """The generated program of an entry, cached; one that reports to `trace` is made for each trace."""
    enabled = gc.isenabled()
    gc.disable()  # with torch loaded, collections double the time to read a PTX text
    try:
        return codegen.generate(_flow_of(ptx, entry), trace.wants) if trace else _plain_program(ptx, entry)
    finally:
        if enabled:
            gc.enable()


def bound_parameters(
    compiled: CompiledKernel, arguments: LaunchArguments, kernel: parser.Kernel, checks: bool
) -> tuple[GlobalMemory, dict[tuple[int, int], np.ndarray], list[tuple[np.ndarray, list[Buffer]]]]:
    """(global memory, parameter values by (offset, size), outputs). ValueError for values that do not fit.

    An output is the caller's bytes and the buffers that stand for them: with `checks` private copies, else themselves.
    """
    if len(arguments.values) != len(compiled.parameters):
        raise ValueError(f"{len(arguments.values)} values are given for {len(compiled.parameters)} parameters.")
    placed = places_of(kernel.parameters, compiled.parameters)
    memory, parameters, outputs = GlobalMemory(), {}, []

    def buffers_of(spec: Parameter, array: np.ndarray) -> list[Buffer]:
        copies = [np.full(array.size, fill, np.uint8) for fill in FILLS] if checks and spec.written else [array]
        buffers = [memory.add(spec.name, copy, spec.written, like=array) for copy in copies]
        if spec.written:
            outputs.append((array, buffers))
        return buffers

    for (offset, size), spec, value in zip(placed, compiled.parameters, arguments.values, strict=True):
        if spec.kind != "pointer":
            bits = 8 * size
            if not is_integer(value) or not -(1 << bits - 1) <= value < 1 << bits - 1:
                raise ValueError(f"{spec.name} is {value!r}; it must be a signed integer of {bits} bits.")
            numbers = [int(value) & (1 << bits) - 1]
        elif value is None:
            if not spec.optional:
                raise ValueError(f"{spec.name} is None, but the parameter is not optional.")
            numbers = [0]
        elif isinstance(value, Multicast):
            arrays = [as_bytes(array, spec.name) for array in value.arrays]
            if len({(a.size, a.__array_interface__["data"][0] & 15) for a in arrays}) != 1:
                raise ValueError(f"{spec.name} is a Multicast of {len(arrays)} arrays; at least one, all of one size "
                                 "and alignment.")  # fmt: skip
            twins = zip(*(buffers_of(spec, array) for array in arrays), strict=True)
            numbers = [memory.add(spec.name, members[0].bytes, False, arrays[0], members).base for members in twins]
        else:
            numbers = [buffer.base for buffer in buffers_of(spec, as_bytes(value, spec.name))]
        parameters[offset, size] = np.array(numbers, np.uint32 if size == 4 else np.uint64).reshape(-1, 1, 1)
    return memory, parameters, outputs


def places_of(declared: Sequence[parser.Parameter], specs: Sequence[Parameter]) -> list[tuple[int, int]]:
    """(offset, size) of each of `specs`; ValueError unless they fill the parameters that the PTX declares."""
    arguments = arguments_of(specs)
    if len(declared) != len(arguments):
        raise ValueError(f"the PTX has {len(declared)} parameters, the artifact {len(arguments)}.")
    places = []
    for whole, members in zip(declared, arguments, strict=True):
        sizes = [4 if member.kind == "i32" else 8 for member in members]
        end = whole.offset
        for size in sizes:
            places.append((-(-end // size) * size, size))
            end = sum(places[-1])
        if -(-end // max(sizes)) * max(sizes) != whole.offset + whole.size:
            names, held = ", ".join(member.name for member in members), end - whole.offset
            raise ValueError(f"{names}: {held} bytes, but the PTX has a parameter of {whole.size} for them.")
    return places
