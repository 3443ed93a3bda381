"""Checks a kernel on fresh random data against FP64: on a GPU, or in the interpreter under any schedule."""

import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np

from .. import device as devices
from ..problem import GemmProblem
from ..tactics import Result, Tactic
from .bfloat16 import from_bits
from .compile import compile_kernel
from .gemm import bind

BACKENDS = ("auto", "interpreter", "cuda")
SCHEDULES = ("in_order", "adversarial")


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`.

    `passed` is: every result within its limit, no stray write, and every run bitwise equal to the first.
    """

    passed: bool
    relative_error: dict[str, float]  #: of each result: ||out - reference|| / ||reference||, Frobenius, against FP64
    limit: dict[str, float]  #: what `relative_error` must stay under
    stray_writes: int  #: BF16 words outside all results that changed
    bitwise_equal: bool  #: all runs gave the same bits
    runs: int
    backend: str
    schedule: str
    seconds: float  #: everything but imports: data, reference, compilation, runs
    execution_seconds: float  #: of the runs alone: PTX read, or module loaded, before
    kernel: str
    tactic: str
    m: int
    n: int
    k: int
    seed: int  #: of the random data


def random_operands(problem: GemmProblem, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """x `[M, K]` and weight `[N, K]` as BF16 bits (uint16): random sign and mantissa, magnitudes from 2^-13 to 8.

    So wide that FP32 sums of the products round, and therefore tell in which order they were added. They do so gently:
    at K = 7168 FP32 sums of 1 to 224 parts are 1e-7 to 4e-7 off, and 3e-6 in 4 parts if every step rounds to zero.
    """
    generator = np.random.default_rng(seed)
    operands = []
    for rows in (problem.m, problem.n):
        bits = generator.integers(0, 1 << 16, (rows, problem.k), np.uint16)
        bits &= 0x87FF  # sign, four bits of exponent, mantissa
        bits += 0x3900  # 2^-13
        operands.append(bits)
    return operands[0], operands[1]


def reference(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x @ weight^T in FP64 from BF16 bits, a slice of weight rows at a time: FP64 copies of all would be large."""
    wide = from_bits(x).astype(np.float64)
    return np.concatenate([wide @ from_bits(rows).astype(np.float64).T for rows in np.array_split(weight, 16)], axis=1)


def values(out: np.ndarray, result: Result) -> np.ndarray:
    """The values of `result` in FP64, from an output's BF16 bits."""
    bits = np.ascontiguousarray(out[:, result.columns])
    return (from_bits(bits) if result.dtype == "bf16" else bits.view(np.float32)).astype(np.float64)


def relative_error(values: np.ndarray, expected: np.ndarray) -> float:
    """Relative Frobenius error; NaN if anything in `values` is NaN."""
    return float(np.linalg.norm(values - expected) / np.linalg.norm(expected))


def stray_writes(out: np.ndarray, tactic: Tactic, problem: GemmProblem) -> int:
    """How many BF16 words of an output that belong to no result differ from what `tactic.output` put there."""
    changed = out != tactic.output(problem)
    for result in tactic.results(problem):
        changed[:, result.columns] = False
    return int(changed.sum())


def verify(
    tactic: Tactic,
    problem: GemmProblem,
    backend: str = "auto",
    schedule: str = "in_order",
    seeds: int = 1,
    seed: int | None = None,
    progress=None,
) -> Verification:
    """Runs `tactic` on random data of `problem` (or of what it is to the kernel) and compares with FP64.

    `backend`: "cuda", "interpreter", or "auto" (a GPU if there is one). `schedule` is the interpreter's: "adversarial"
    makes one run per seed 0 to `seeds` - 1, all of which must agree bitwise; on a GPU `seeds` is the number of runs.
    `seed` fixes the data. ValueError for an illegal tactic, an unknown name, or "cuda" without a GPU.
    """
    for name, value, allowed in (("backend", backend, BACKENDS), ("schedule", schedule, SCHEDULES)):
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(allowed)}")
    _check_integer("seeds", seeds, 1)
    if seed is not None:
        _check_integer("seed", seed, 0)
    gpu = devices.current()
    if backend == "auto":
        backend = "cuda" if gpu else "interpreter"
    if backend == "cuda" and gpu is None:
        raise ValueError("backend is 'cuda', but no GPU is visible: use 'interpreter'")
    target = gpu if backend == "cuda" else devices.get("h200")
    problem = tactic.problem(problem)
    tactic.check(problem, target)
    seed = secrets.randbits(32) if seed is None else seed

    start = time.perf_counter()

    def prepare():
        x, weight = random_operands(problem, seed)
        return x, weight, reference(x, weight)

    with ThreadPoolExecutor(1) as pool:  # NumPy and the compiler each keep a core busy
        data = pool.submit(prepare)
        compiled = compile_kernel(tactic, problem, target.arch)
        x, weight, expected = data.result()

    run = partial(_run_cuda if backend == "cuda" else _run_interpreter, compiled, tactic, problem, x, weight)
    runs = [run(schedule, index, progress) for index in range(1 if _runs_once(backend, schedule) else seeds)]
    outputs = [out for out, _ in runs]
    results = tactic.results(problem)
    errors = {r.name: max(relative_error(values(out, r), expected[:, r.product]) for out in outputs) for r in results}
    stray = max(stray_writes(out, tactic, problem) for out in outputs)
    equal = all(np.array_equal(out, outputs[0]) for out in outputs)
    return Verification(
        passed=all(errors[r.name] < r.tolerance for r in results) and not stray and equal,
        relative_error=errors,
        limit={r.name: r.tolerance for r in results},
        stray_writes=stray,
        bitwise_equal=equal,
        runs=len(outputs),
        backend=backend,
        schedule=schedule if backend == "interpreter" else "hardware",
        seconds=time.perf_counter() - start,
        execution_seconds=sum(spent for _, spent in runs),
        kernel=tactic.kernel,
        tactic=str(tactic),
        m=problem.m,
        n=problem.n,
        k=problem.k,
        seed=seed,
    )


def _check_integer(name: str, value, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}, but must be an integer of at least {least}")


def _runs_once(backend: str, schedule: str) -> bool:
    return backend == "interpreter" and schedule == "in_order"  # deterministic: a second run proves nothing


def _run_interpreter(compiled, tactic, problem, x, weight, schedule, index, progress) -> tuple[np.ndarray, float]:
    from .. import interpreter

    out = tactic.output(problem)
    order = interpreter.adversarial(index) if schedule == "adversarial" else schedule
    result = interpreter.run(
        compiled,
        bind(compiled, tactic, x, weight, out),
        order,
        progress=progress,
        races=[0] if index == 0 else False,  # one CTA or cluster, once: all run alike; vector clocks need no luck
        preceding=("x",),  # what the preceding kernel of a chain writes
    )
    return out, result.seconds


def _run_cuda(compiled, tactic, problem, x, weight, schedule, index, progress) -> tuple[np.ndarray, float]:
    from .driver import load, run_on_host_arrays

    out = tactic.output(problem)
    load(compiled)
    begin = time.perf_counter()
    run_on_host_arrays(compiled, bind(compiled, tactic, x, weight, out))
    return out, time.perf_counter() - begin
