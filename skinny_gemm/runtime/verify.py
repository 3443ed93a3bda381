"""Checks a kernel, or the whole MoE front, on random data against FP64: on a GPU, or in the interpreter."""

import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import interpreter
from ..checks import check_choice, check_integer
from ..device import Device
from ..problem import FrontProblem, GemmProblem
from ..tactics import Tactic, WsGemmTactic
from ..tactics.base import BF16_TOLERANCE, F32_TOLERANCE
from .compile import compile_kernel
from .mailbox import Mailbox
from .prepared import PreparedWsGemm
from .runner import choose
from .trials import Operands, random_operands, reference, relative_error, trial

SCHEDULES = ("in_order", "adversarial")
TRANSPORTS = ("local", "peers", "multicast")
STEPS = 2  #: of a front: one for each buffer of its mailbox


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`; `passed`: every result within its limit, no stray write, and all runs bitwise equal."""

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


@dataclass(frozen=True)
class FrontVerification:
    """The outcome of `verify_front`; `passed` is: errors within tolerance and all consumers' results bitwise equal."""

    passed: bool
    latent_error: float  #: relative Frobenius error of the BF16 latent against FP64, the worst of all steps
    logits_error: float  #: the same of the FP32 logits
    consumers_equal: bool
    steps: int
    ranks: int
    transport: str
    backend: str
    schedule: str
    seconds: float  #: everything but imports
    execution_seconds: float  #: publishing and collecting alone
    kernel: str
    tactic: str
    m: int
    k: int
    latent: int
    experts: int
    seed: int  #: of the random data


def verify(
    tactic: Tactic,
    problem: GemmProblem,
    backend: str = "auto",
    schedule: str = "in_order",
    seeds: int = 1,
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Verification:
    """Runs `tactic` on random data of `problem` (or of what it is to the kernel) and compares with FP64.

    `backend`: "cuda", "interpreter", or "auto" (a GPU if there is one). `schedule` is the interpreter's: "adversarial"
    makes one run per seed 0 to `seeds` - 1, all of which must agree bitwise; on a GPU `seeds` is the number of runs.
    `seed` fixes the data. ValueError for an illegal tactic, an unknown name, or "cuda" without a GPU.
    """
    check_integer("seeds", seeds, 1)
    machine, device, seed = _choose_run(backend, schedule, seed)
    problem = tactic.problem(problem)
    tactic.check(problem, device)

    start = time.perf_counter()
    with ThreadPoolExecutor(1) as pool:  # NumPy and the compiler each keep a core busy
        data = pool.submit(Operands.random, problem, seed)
        compiled = compile_kernel(tactic, problem, device.arch)
        operands = data.result()
    once = machine == "interpreter" and schedule == "in_order"  # deterministic: a second run proves nothing
    runs = [
        trial(
            compiled, tactic, problem, operands, machine, progress=progress, **_interpreting(machine, schedule, index)
        )
        for index in range(1 if once else seeds)
    ]
    errors = {r.name: max(run.relative_error(r) for run in runs) for r in runs[0].results}
    limits = {r.name: r.tolerance for r in runs[0].results}
    stray = max(run.stray_writes for run in runs)
    equal = all(np.array_equal(run.out, runs[0].out) for run in runs)
    passed = all(error < limits[name] for name, error in errors.items()) and not stray and equal
    order = schedule if machine == "interpreter" else "hardware"
    total, running = time.perf_counter() - start, sum(run.seconds for run in runs)
    what = tactic.kernel, str(tactic), problem.m, problem.n, problem.k, seed
    return Verification(passed, errors, limits, stray, equal, len(runs), machine, order, total, running, *what)


def verify_front(
    front: FrontProblem,
    tactic: WsGemmTactic | None = None,
    backend: str = "auto",
    schedule: str = "in_order",
    transport: str = "local",
    seed: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> FrontVerification:
    """Runs all ranks of `front` on one machine, in turn, for two steps; compares with the unsharded product.

    Arguments as of `verify`; `tactic` defaults to the heuristic one, "adversarial" takes another seed for every launch,
    `progress(fraction)` is called after each rank's. ValueError too for "multicast" on a GPU: this package makes no
    multicast objects. `MissingPublisher` if a value never arrives.
    """
    if not isinstance(front, FrontProblem):
        raise ValueError(f"front is {front!r}, but must be a FrontProblem")
    if not isinstance(tactic, WsGemmTactic | None):
        raise ValueError(f"tactic is {tactic!r}, but must be a WsGemmTactic or None")
    check_choice("transport", transport, TRANSPORTS)
    machine, device, seed = _choose_run(backend, schedule, seed)
    if machine == "cuda" and transport == "multicast":
        raise ValueError("transport is 'multicast', which is checked in the interpreter only: use local or peers")
    tactic = tactic or WsGemmTactic.default(front, device)
    tactic.check(front, device)
    import torch

    start = time.perf_counter()
    home = "cuda" if machine == "cuda" else "cpu"
    if transport == "multicast":
        mailbox = Mailbox.multicast(front, capacity=front.m)
    else:
        mailbox = (Mailbox.local if transport == "local" else Mailbox.peers)(front, device=home, capacity=front.m)
    operands = random_operands(GemmProblem(STEPS * front.m, front.experts + front.latent, front.k), seed)
    x, weight = (  # in memory that PyTorch aligns
        torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).to(home, copy=True) for bits in operands
    )
    with ThreadPoolExecutor(1) as pool:  # NumPy and the compiler each keep a core busy
        product = pool.submit(reference, *operands)
        router, down = weight[: front.experts] if front.experts else None, weight[front.experts :]
        packed = [PreparedWsGemm.pack(router, down, front, rank) for rank in range(front.ranks)]
        prepared = [PreparedWsGemm(shard, front, {front.m: tactic}, mailbox) for shard in packed]
        expected = product.result()
    consumers = range(len(mailbox.boxes))
    launches = STEPS * (front.ranks + len(consumers))

    begin = time.perf_counter()
    latents, logits, equal = [], [], True
    for step in range(STEPS):
        tokens = x[step * front.m : (step + 1) * front.m]
        done = step * launches // STEPS
        for rank in range(front.ranks):
            prepared[rank].run(tokens, rank, **_interpreting(machine, schedule, done + rank))
            if progress:
                progress((done + rank + 1) / launches)
        first, *others = [mailbox.collect(rank) for rank in consumers]  # in order: no thread waits for another
        latents.append(first[0].double().cpu().numpy())
        logits.append(first[1].double().cpu().numpy())
        pairs = [pair for other in others for pair in zip(first, other, strict=True)]
        equal &= all(torch.equal(one.view(torch.uint8), other.view(torch.uint8)) for one, other in pairs)
    end = time.perf_counter()

    latent_error = relative_error(np.concatenate(latents), expected[:, front.experts :])
    logits_error = relative_error(np.concatenate(logits), expected[:, : front.experts]) if front.experts else 0.0
    passed = latent_error < BF16_TOLERANCE and logits_error < F32_TOLERANCE and equal
    order = schedule if machine == "interpreter" else "hardware"
    total, running = time.perf_counter() - start, end - begin
    what = tactic.kernel, str(tactic), front.m, front.k, front.latent, front.experts, seed
    return FrontVerification(
        passed, latent_error, logits_error, equal, STEPS, front.ranks, transport, machine, order, total, running, *what
    )


def _choose_run(backend: str, schedule: str, seed: int | None) -> tuple[str, Device, int]:
    """The machine and device (`runner.choose`) and the seed of the data, a fresh one for None; checks all three."""
    if seed is not None:
        check_integer("seed", seed, 0)
    machine, device = choose(backend)
    check_choice("schedule", schedule, SCHEDULES)
    return machine, device, secrets.randbits(32) if seed is None else seed


def _interpreting(machine: str, schedule: str, launch: int) -> dict[str, Any]:
    """Options of the interpreter for launch number `launch`; a GPU has none. A preceding kernel would write x."""
    if machine == "cuda":
        return {}
    order = interpreter.adversarial(launch) if schedule == "adversarial" else schedule
    # Races of one CTA or cluster, once: all run alike, and vector clocks need no luck.
    return {"schedule": order, "races": [0] if launch == 0 else False, "preceding": ("x",)}
