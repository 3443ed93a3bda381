"""Checks the MoE front end to end: virtual ranks publish in turn, the consumer gathers, FP64 judges."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..checks import check_choice
from ..problem import FrontProblem, GemmProblem
from ..tactics import WsGemmTactic
from ..tactics.base import BF16_TOLERANCE, F32_TOLERANCE
from .mailbox import Mailbox
from .prepared import PreparedWsGemm
from .trials import random_operands, reference, relative_error
from .verify import choose_run, interpreting

TRANSPORTS = ("local", "peers", "multicast")
STEPS = 2  #: one for each buffer


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

    `backend`: "cuda", "interpreter", or "auto" (a GPU if there is one). `schedule` is the interpreter's: "in_order", or
    "adversarial", which takes another seed for every launch. `tactic` defaults to the heuristic one. `seed` fixes the
    data. `progress(fraction)` is called after each rank's launch.

    ValueError for an illegal tactic, an unknown name, "cuda" without a GPU, and "multicast" on a GPU: this package
    makes no multicast objects. `MissingPublisher` if a value never arrives.
    """
    if not isinstance(front, FrontProblem):
        raise ValueError(f"front is {front!r}, but must be a FrontProblem")
    if not isinstance(tactic, WsGemmTactic | None):
        raise ValueError(f"tactic is {tactic!r}, but must be a WsGemmTactic or None")
    check_choice("transport", transport, TRANSPORTS)
    machine, device, seed = choose_run(backend, schedule, seed)
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
            prepared[rank].run(tokens, rank, **interpreting(machine, schedule, done + rank))
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
    return FrontVerification(
        passed=latent_error < BF16_TOLERANCE and logits_error < F32_TOLERANCE and equal,
        latent_error=latent_error,
        logits_error=logits_error,
        consumers_equal=equal,
        steps=STEPS,
        ranks=front.ranks,
        transport=transport,
        backend=machine,
        schedule=schedule if machine == "interpreter" else "hardware",
        seconds=time.perf_counter() - start,
        execution_seconds=end - begin,
        kernel=tactic.kernel,
        tactic=str(tactic),
        m=front.m,
        k=front.k,
        latent=front.latent,
        experts=front.experts,
        seed=seed,
    )
