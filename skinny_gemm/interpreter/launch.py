"""`run`: one launch of a compiled kernel, from the caller's arrays to a `Result`."""

import gc
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from . import codegen, flow, parser
from .clusters import LARGEST
from .errors import InterpreterError
from .machine import FILLS, Machine
from .memory import GlobalMemory, as_bytes
from .schedules import named

SPIN_DOUBLINGS = 17  #: of the clock's step, up to 0.13 s a read
CHUNK_BYTES = 48 << 20  #: shared memory of one chunk of CTAs, twins included
CHUNK_ROWS = 128  #: CTAs of one chunk, twins included
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
    trace: Any = None


@dataclass(frozen=True)
class Multicast:
    """The value of a pointer parameter that is a multicast address: a store by `multimem` reaches all `arrays`.

    The arrays have one size and one alignment. Ordinary loads and stores to the address are errors.
    """

    arrays: tuple

    def __init__(self, arrays):
        object.__setattr__(self, "arrays", tuple(arrays))


class Clock:
    """`%globaltimer` (ns), and `%clock` at 1 GHz: it moves by 1 us per read and by what `nanosleep` asks for.

    Where only the clock is read and nothing else happens, as in a loop that polls until a time limit, the step doubles
    from read to read, so that the limit comes soon.
    """

    def __init__(self):
        self.now, self.idle, self.seen = 0, 0, None

    def read(self, name: str, version) -> np.ndarray:
        """The time; `version` tells whether anything has happened since the last read."""
        self.idle = self.idle + 1 if version == self.seen else 0
        self.seen = version
        self.now += 1000 << min(self.idle, SPIN_DOUBLINGS)
        return np.full((1, 1, 1), self.now & 0xFFFFFFFF if name in ("clock", "globaltimer_lo") else self.now, np.uint64)

    def sleep(self, nanoseconds: int):
        self.now += nanoseconds


class Launch:
    """All that the chunks of one launch share."""

    def __init__(self, program, compiled, grid, fills, memory, parameters):
        threads = int(np.prod(compiled.block))
        if threads % 32:
            raise ValueError(f"block {compiled.block} has {threads} threads; it must be a multiple of 32.")
        self.program, self.grid, self.block, self.warps = program, grid, compiled.block, threads // 32
        self.cluster = cluster_size(compiled.cluster, grid)  #: CTAs, along x
        self.fills = fills  #: fill patterns, each run by a twin of every CTA
        self.memory, self.parameters = memory, parameters
        self.shared_end = program.flow.kernel.dynamic_base + compiled.smem_bytes
        self.scratch = {}
        self.clock = Clock()
        self.trace = None
        self.tick = None  #: called with the machine before every choice of the schedule
        self.watched: set[int] = set()  #: numbers of the clusters (of one CTA where there are none) watched for races
        self.preceding = []  #: buffers that the preceding kernel writes

    def watches(self, cta) -> bool:
        x, y, z = cta
        return bool(self.watched) and (x + self.grid[0] * (y + self.grid[1] * z)) // self.cluster in self.watched


def cluster_size(cluster, grid) -> int:
    """CTAs of a cluster, after checking that the grid consists of whole ones."""
    size, *rest = (int(c) for c in cluster)
    if rest != [1, 1] or not 1 <= size <= LARGEST:
        raise ValueError(f"cluster {tuple(cluster)} must be (x, 1, 1) with x from 1 to {LARGEST}.")
    if grid[0] % size:
        raise ValueError(f"grid {grid} has {grid[0]} CTAs along x, which is no multiple of the cluster's {size}.")
    return size


def run(
    compiled,
    arguments,
    schedule="in_order",
    trace=None,
    checks: bool = True,
    progress: Callable[[float], None] | None = None,
    races=False,
    preceding: tuple[str, ...] = (),
) -> Result:
    """Executes the PTX of `compiled` (a `CompiledKernel`) with `arguments` (`LaunchArguments`) on the CPU.

    Pointers are packed NumPy arrays or CPU torch tensors, read and written in place, `Multicast([array, ...])`, or None
    where optional.
    `schedule` is "in_order" or `adversarial(seed)`. With `checks`, every CTA runs twice with different bytes in
    whatever is uninitialised, and an output changes only if the whole run is clean. `trace` is a `Trace` to fill.
    `races` looks for accesses of shared memory that nothing orders: True in the first cluster, or without clusters in
    the first and the last CTA; or the linear numbers (x fastest) of the CTAs whose clusters to watch.
    `preceding` names the parameters that the preceding kernel of a chain of dependent launches writes: reading them
    before `griddepcontrol.wait` is an error.
    `progress(fraction)` is called now and then once a run has taken two seconds.

    Raises ValueError for arguments that do not fit, an `InterpreterError` for what the kernel does wrong.
    """
    schedule = named(schedule)
    start = time.perf_counter()
    program = program_of(compiled.ptx, compiled.entry, trace)
    memory, parameters, outputs = bind(compiled, arguments, program.flow.kernel, checks)
    grid = grid_of(arguments.grid)
    ctas = np.stack(np.meshgrid(*(np.arange(g) for g in grid), indexing="ij"), -1).transpose(2, 1, 0, 3).reshape(-1, 3)
    launch = Launch(program, compiled, grid, len(FILLS) if checks else 1, memory, parameters)
    launch.trace = trace
    launch.watched = watched(races, len(ctas), launch.cluster)
    launch.preceding = named_buffers(preceding, compiled, memory)
    launch.tick = reporter = _Reporter(progress, len(ctas))
    begin = time.perf_counter()
    executed = copied = 0
    with np.errstate(all="ignore"):
        for number, chunk in enumerate(chunks(ctas, launch, launch.cluster)):
            machine = Machine(launch, chunk, schedule.start(number))
            machine.run()
            executed += machine.executed
            copied += machine.copied // launch.fills
            reporter.done += len(chunk)
    written = commit(outputs)
    end = time.perf_counter()
    return Result(executed, end - begin, begin - start, len(ctas), schedule.name, checks, written, copied, trace)


def integral(value) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def grid_of(grid) -> tuple[int, int, int]:
    if not isinstance(grid, tuple | list) or len(grid) != 3 or not all(integral(g) and g > 0 for g in grid):
        raise ValueError(f"grid {grid!r} must be three positive integers.")
    return tuple(int(g) for g in grid)


def watched(races, ctas: int, cluster: int) -> set[int]:
    """Numbers of the clusters whose shared memory is watched for races."""
    if races is True:
        return {0, ctas - 1} if cluster == 1 else {0}
    if races is False or races is None:
        return set()
    numbers = list(races) if isinstance(races, Iterable) else [races]
    if not all(integral(n) and 0 <= n < ctas for n in numbers):
        raise ValueError(f"races {races!r} must be True or numbers of CTAs from 0 to {ctas - 1}.")
    return {int(n) // cluster for n in numbers}


def named_buffers(names, compiled, memory):
    """The buffers of pointer parameters given by name."""
    unknown = set(names) - {p.name for p in compiled.parameters if p.kind == "pointer"}
    if unknown:
        raise ValueError(f"preceding names {', '.join(sorted(unknown))}, which is no pointer parameter.")
    return [buffer for buffer in memory.buffers if buffer.name in names]


def chunks(ctas, launch, cluster):
    """Consecutive parts of the grid that fit the chunk limits; a cluster's CTAs stay together."""
    shared = max(launch.shared_end, 1024) * launch.fills
    limit = min(CHUNK_BYTES // shared, CHUNK_ROWS // launch.fills)
    limit = max(limit // cluster, 1) * cluster
    count = -(-len(ctas) // limit)
    size = -(-len(ctas) // (count * cluster)) * cluster
    return [ctas[i : i + size] for i in range(0, len(ctas), size)]


class _Reporter:
    """Calls `progress` with the finished fraction, at most four times a second, after two seconds."""

    def __init__(self, progress, ctas):
        self.progress, self.ctas, self.done, self.latest = progress, ctas, 0, 0.0
        self.next = time.perf_counter() + PROGRESS_AFTER

    def __call__(self, machine):
        if self.progress and time.perf_counter() > self.next:
            self.next = time.perf_counter() + PROGRESS_EVERY
            self.latest = max(self.latest, (self.done + machine.fraction() * len(machine.ctas)) / self.ctas)
            self.progress(self.latest)


@contextmanager
def _collector_off():
    """No garbage collection meanwhile: with torch loaded, collections double the time to read a PTX text."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@lru_cache(maxsize=64)
def _flow_of(ptx: str, entry: str):
    kernels = parser.parse(ptx)
    if entry not in kernels and len(kernels) > 1:
        raise ValueError(f"entry {entry!r} is not in the PTX, which has {', '.join(kernels)}.")
    return flow.analyse(kernels.get(entry) or next(iter(kernels.values())))  # the text may shorten a mangled name


@lru_cache(maxsize=64)
def _plain_program(ptx: str, entry: str):
    return codegen.generate(_flow_of(ptx, entry))


def program_of(ptx: str, entry: str, trace=None):
    """The generated program of an entry, cached; one that reports to `trace` is made for each trace."""
    with _collector_off():
        if trace is None:
            return _plain_program(ptx, entry)
        return codegen.generate(_flow_of(ptx, entry), trace.wants)


def bind(compiled, arguments, kernel, checks):
    """(global memory, parameter values by (offset, size), outputs as (name, user's bytes, buffers))."""
    if len(arguments.values) != len(compiled.parameters):
        raise ValueError(f"{len(arguments.values)} values are given for {len(compiled.parameters)} parameters.")
    if len(kernel.parameters) != len(compiled.parameters):
        raise ValueError(f"the PTX has {len(kernel.parameters)} parameters, the artifact {len(compiled.parameters)}.")
    memory, parameters, outputs = GlobalMemory(), {}, []
    fills = FILLS if checks else FILLS[:1]
    for declared, spec, value in zip(kernel.parameters, compiled.parameters, arguments.values, strict=True):
        if spec.kind != "pointer":
            bits = 8 * declared.size
            if not integral(value) or not -(1 << bits - 1) <= value < 1 << bits - 1:
                raise ValueError(f"{spec.name} is {value!r}; it must be a signed integer of {bits} bits.")
            numbers = [int(value) & (1 << bits) - 1]
        elif value is None:
            if not spec.optional:
                raise ValueError(f"{spec.name} is None, but the parameter is not optional.")
            numbers = [0]
        else:
            several = isinstance(value, Multicast)
            sets = []
            for array in multicast_arrays(value, spec.name) if several else [as_bytes(value, spec.name)]:
                if not spec.written:
                    buffers = [memory.add(spec.name, array, False)]
                elif checks:
                    copies = [np.full(array.size, fill, np.uint8) for fill in fills]
                    buffers = [memory.add(spec.name, copy, True, like=array) for copy in copies]
                else:
                    buffers = [memory.add(spec.name, array, True)]
                if spec.written:
                    outputs.append((spec.name, array, buffers, checks))
                sets.append(buffers)
            if several:
                buffers = [memory.add_multicast(spec.name, members) for members in zip(*sets, strict=True)]
            numbers = [buffer.base for buffer in buffers]
        dtype = np.uint32 if declared.size == 4 else np.uint64
        parameters[declared.offset, declared.size] = np.array(numbers, dtype).reshape(-1, 1, 1)
    return memory, parameters, outputs


def multicast_arrays(value, name):
    """The flat arrays of a `Multicast`, which must be alike."""
    arrays = [as_bytes(array, name) for array in value.arrays]
    kinds = {(a.size, a.__array_interface__["data"][0] & 15) for a in arrays}
    if len(kinds) != 1:
        raise ValueError(f"{name} is a Multicast of {len(arrays)} arrays; at least one, all of one size and alignment.")
    return arrays


def commit(outputs) -> dict[str, np.ndarray]:
    """Copies what the kernel stored from the private copies to the caller's arrays; which bytes those are."""
    written = {}
    for name, array, buffers, private in outputs:
        mask = buffers[0].written != 0
        if private:
            for other in buffers[1:]:
                if not (mask == (other.written != 0)).all():
                    raise InterpreterError(f"What is stored to {name} depends on uninitialised memory.")
            np.copyto(array, buffers[0].bytes, where=mask)
        written[name] = mask
    return written
