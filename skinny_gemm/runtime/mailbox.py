"""Mailboxes of the MoE front: every rank publishes its shard of latent and logits, a bounded consumer gathers them.

The publishers are `PreparedWsGemm`, the consumer is `kernels.collect`; CPU tensors are served in the interpreter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np

from .. import interpreter
from ..artifact import LaunchArguments
from ..checks import check_integer, is_integer
from ..layouts import mailbox as layout
from ..problem import FrontProblem
from ..tactics import MAX_M
from . import driver, runner
from .compile import compile_collect
from .tensors import check_tensor, device_of, known_device, overlap

BUFFERS = 2  #: used in turn
ALIGNMENT = 16  #: bytes, of a mailbox: what one store publishes
MAX_PEERS = 16  #: mailboxes that are parameters of one kernel


class MissingPublisher(RuntimeError):
    """`ranks` did not publish in time; `rank` owed the first fragment missing, by `token`, then by BF16 `column`."""

    def __init__(self, sentence: str, token: int, column: int, rank: int, ranks: tuple[int, ...]):
        super().__init__(sentence)
        self.token, self.column, self.rank, self.ranks = token, column, rank, ranks


@dataclass
class _Step:
    """What this process knows of one consumer's current step."""

    number: int = 0
    m: int | None = None  #: tokens, once a rank has published
    ranks: frozenset[int] = frozenset()  #: who has published


class Mailbox:
    """Where the ranks of a front publish and from where `collect` gathers: `local`, `peers` and `multicast` make one.

    A mailbox is BF16 `[2, capacity, width]`: two buffers, used in turn, a row per token, `layouts.mailbox` for the
    columns, and the sentinel -0.0 where nobody has published. In every step each rank publishes once
    (`PreparedWsGemm.run`), then each consumer collects once, which also re-arms the buffer. Two buffers suffice: who
    publishes step s+1 has collected step s of everybody, each of whom had collected and re-armed step s-1 before.

    Everything is enqueued on PyTorch's current stream; order several streams by events: a step is published after the
    collect of the step before. A CUDA graph fixes the buffers that its steps use: capture an even number of steps, and
    let an even number of others run between a capture and its replays, and between replays, lest a replay publish into
    the buffer in use. A captured `collect` cannot raise: call `check` after a replay. Replays do not count: `step`
    stays at what was captured last, and a message names the step of the capture, whichever replay failed.

    The boxes must be empty when the `Mailbox` is made, and belong to it alone: one that holds anything is refused, but
    a second `Mailbox` over boxes that happen to be empty is not noticed, and steals steps of the first. Where several
    processes share the boxes, all make theirs before any publishes.

    After a `MissingPublisher` the fragments that did arrive have been collected and re-armed, those that did not may
    still come: the mailbox refuses everything until `reset`.
    """

    def __init__(self, front: FrontProblem, transport: str, boxes: Sequence, address: int | None = None):
        """Use `local`, `peers` or `multicast`. `boxes`: the consumers' mailboxes, None where another process has it."""
        import torch

        self.front, self.transport, self.boxes, self.address = front, transport, list(boxes), address
        own = {rank: box for rank, box in enumerate(self.boxes) if box is not None}
        self.devices = list(dict.fromkeys(box.device for box in own.values()))  #: those of this process
        first = next(iter(own.values()))
        self.capacity = first.shape[1]
        words = layout.status_words(self.capacity, front.width)
        self._status = {rank: box.new_zeros(words, dtype=torch.int32) for rank, box in own.items()}
        self._collect = compile_collect(front.latent, front.experts, device_of(first).arch)
        for rank, box in own.items():
            if (box.view(torch.int16) != _sentinels(front, box.device)).any():
                raise ValueError(
                    f"the mailbox of rank {rank} is not empty, but must be new from Mailbox.allocate, or filled from "
                    "such a tensor with copy_, and nobody may have published into it yet"
                )
            runner.load(self._collect, box.device)
        self._steps, self._broken = [_Step() for _ in self.boxes], ""  #: the latter says what was missing

    @classmethod
    def local(cls, front: FrontProblem, device: Any = "cpu", capacity: int = MAX_M) -> Self:
        """One mailbox on `device` for up to `capacity` tokens, into which all ranks publish: ranks of one GPU."""
        return cls(unshaped(front), "local", [cls.allocate(front, device, capacity)])

    @classmethod
    def peers(
        cls, front: FrontProblem, boxes: Sequence | None = None, device: Any = "cpu", capacity: int = MAX_M
    ) -> Self:
        """One mailbox per rank; every rank publishes into all of them, over P2P where they lie on several GPUs.

        `boxes`: an empty tensor from `allocate` per rank, at most 16; or None for new ones, all on `device` (virtual
        ranks). ValueError for anything else. A rank publishes from the device of its own mailbox.
        """
        front = unshaped(front)
        if front.ranks > MAX_PEERS:
            raise ValueError(
                f"front has {front.ranks} ranks, but peers are at most {MAX_PEERS}: use a multicast mailbox"
            )
        if boxes is None:
            boxes = [cls.allocate(front, device, capacity) for _ in range(front.ranks)]
        _check_boxes(front, boxes)
        driver.enable_peers({box.device.index for box in boxes if box.is_cuda})
        return cls(front, "peers", boxes)

    @classmethod
    def multicast(
        cls, front: FrontProblem, boxes: Sequence | None = None, address: int | None = None, capacity: int = MAX_M
    ) -> Self:
        """One mailbox per rank behind one multicast address: a rank's one store reaches all of them.

        On GPUs `address` is the multicast address, as an integer, of a `[2, capacity, width]` mailbox, and `boxes` has
        the ordinary view of it for each rank that collects in this process, None for the others. The caller makes the
        multicast object and fills each view from `allocate` with `copy_`. On the CPU there is no address: the
        interpreter emulates one over `boxes`, empty tensors from `allocate`, or new ones.
        """
        front = unshaped(front)
        if boxes is None:
            boxes = [cls.allocate(front, "cpu", capacity) for _ in range(front.ranks)]
        _check_boxes(front, boxes, some=address is not None)
        on_gpu = any(box is not None and box.is_cuda for box in boxes)
        if on_gpu != (address is not None):
            wanted = "an integer on GPUs" if on_gpu else "None on the CPU, where the interpreter emulates it"
            raise ValueError(f"address is {address!r}, but must be {wanted}")
        if address is not None and (not is_integer(address) or address <= 0 or address % ALIGNMENT):
            raise ValueError(f"address is {address!r}, but must be a multicast address, a multiple of {ALIGNMENT}")
        return cls(front, "multicast", boxes, address)

    @staticmethod
    def allocate(front: FrontProblem, device: Any = "cpu", capacity: int = MAX_M) -> Any:
        """An empty mailbox tensor, BF16 `[2, capacity, width]` on `device`: the sentinel everywhere."""
        import torch

        front, device = unshaped(front), known_device(device)
        check_integer("capacity", capacity, 1, MAX_M)
        bits = _sentinels(front, device).expand(BUFFERS, capacity, front.width)
        return bits.contiguous().view(torch.bfloat16)

    def home(self, rank: int) -> Any:
        """The tensor that `rank` collects from; None if another process has it."""
        return self.boxes[self._consumer(rank)]

    @property
    def options(self) -> dict[str, Any]:
        """What the publishing kernel is compiled with: nothing for a local mailbox, the same binary as without one."""
        if self.transport == "peers":
            return {"transport": "peers", "peers": len(self.boxes)}
        return {} if self.transport == "local" else {"transport": self.transport}

    def step(self, rank: int = 0) -> int:
        """The step that `rank` publishes and collects next, from 0 on; its buffer is `step % 2`."""
        return self._steps[self._consumer(rank)].number

    def targets(self, rank: int, m: int) -> dict[str, Any]:
        """Where `rank` publishes M tokens of its current step: the kernel's mailbox parameters by name.

        ValueError if it has published already, does not exist, or M is above `capacity` or not the other publishers'.
        """
        self._refuse_broken()
        consumer = self._consumer(rank)
        step = self._steps[consumer]
        if rank in step.ranks:
            raise ValueError(f"rank {rank} has published step {step.number} already: collect it before the next step")
        check_integer("M", m, 1, self.capacity)
        others = {s.m for s in self._steps if s.number == step.number and s.m is not None}
        if others - {m}:
            raise ValueError(f"M is {m}, but step {step.number} has been published with M = {others.pop()}")
        buffer = step.number % BUFFERS
        if self.transport == "peers":
            return {f"mailbox{i}": box[buffer] for i, box in enumerate(self.boxes)}
        if self.transport == "local":
            return {"mailbox": self.boxes[0][buffer]}
        if self.address is not None:
            return {"mailbox": self.address + layout.offset(buffer, 0, 0, self.capacity, self.front.width)}
        return {"mailbox": interpreter.Multicast([box[buffer] for box in self.boxes])}

    def published(self, rank: int, m: int) -> None:
        """Notes that `rank` has published (enqueued) M tokens of its current step."""
        step = self._steps[self._consumer(rank)]
        step.ranks, step.m = step.ranks | {rank}, m

    def collect(
        self, rank: int = 0, m: int | None = None, timeout_s: float = 1.0, wait: bool = True, **interpreting: Any
    ) -> tuple[Any, Any]:
        """(latent BF16 `[M, latent]`, logits FP32 `[M, experts]`) of this step, new tensors on the mailbox's device.

        `rank`: whose mailbox; a local one has a single consumer, 0. `m` defaults to the M that was published here.
        Re-arms the buffer and goes on to the next step. On a GPU it returns once the kernel is done, so as to raise
        `MissingPublisher` if a fragment did not arrive in `timeout_s` seconds; with `wait` False, and always in a CUDA
        graph capture, it only enqueues, and `check` tells. `interpreting`: options of `interpreter.run`, for the CPU.
        ValueError, before anything runs, for an M above `capacity`, unknown, or other than what was published.
        """
        import torch

        self._refuse_broken()
        consumer = self._consumer(rank, collecting=True)
        box, step = self.boxes[consumer], self._steps[consumer]
        if not isinstance(timeout_s, Real) or not 0 < timeout_s <= 60:
            raise ValueError(f"timeout_s is {timeout_s!r}, but must be a time above 0 and up to 60 seconds")
        m = step.m if m is None else m
        if m is None:
            raise ValueError(f"nobody has published step {step.number} in this process: publish it first, or say m")
        check_integer("m", m, 1, self.capacity)
        if step.m not in (None, m):
            raise ValueError(f"m is {m}, but step {step.number} has been published with M = {step.m}")
        front = self.front
        latent = torch.empty((m, front.latent), dtype=torch.bfloat16, device=box.device)
        logits = torch.empty((m, front.experts), dtype=torch.float32, device=box.device)
        buffer, status = box[step.number % BUFFERS], self._status[consumer]
        timeout_ns, number = math.ceil(timeout_s * 1e9), step.number % (2**31 - 1)
        values = buffer, latent, logits if front.experts else None, status, timeout_ns, number
        arguments = LaunchArguments(layout.collect_grid(m, front.width), values)
        # Without the interpreter's private copies: the kernel reads what it also writes.
        runner.run(self._collect, arguments, **{"checks": False, **interpreting})
        self._steps[consumer] = _Step(step.number + 1)
        if wait and not (box.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.check(rank)
        return latent, logits

    def check(self, rank: int = 0) -> None:
        """Waits for the collects of `rank` enqueued so far; raises `MissingPublisher` of the first that failed."""
        consumer = self._consumer(rank, collecting=True)
        front, status = self.front, self._status[consumer]
        header = status[: layout.status_words(0, front.width)].cpu().numpy()
        if not header[0]:
            return
        step, limit_s = int(header[0]) - 1, int(header[1:3].view(np.int64)[0]) / 1e9
        missing = status[header.size :].cpu().numpy().reshape(self.capacity, -1)
        error = _missing_publisher(front, missing, f"in step {step} within {limit_s:g} s")
        self._broken = str(error)
        raise error

    def reset(self) -> None:
        """Empties both buffers and starts again at step 0: after a `MissingPublisher`, once all publishers stopped.

        Waits for the GPUs of this process; other processes must have finished and reset theirs before anyone publishes.
        """
        import torch

        gpus = [device for device in self.devices if device.type == "cuda"]
        for device in gpus:
            torch.cuda.synchronize(device)
        for rank, status in self._status.items():
            self.boxes[rank].view(torch.int16).copy_(_sentinels(self.front, status.device))
            status.zero_()
        for device in gpus:
            torch.cuda.synchronize(device)
        self._steps, self._broken = [_Step() for _ in self.boxes], ""

    def _consumer(self, rank: int, collecting: bool = False) -> int:
        """Which mailbox `rank` collects from."""
        check_integer("rank", rank, 0, self.front.ranks - 1)
        if collecting and self.transport == "local" and rank:
            raise ValueError(f"rank is {rank}, but must be 0: a local mailbox has a single consumer")
        if collecting and self.boxes[rank] is None:
            raise ValueError(f"rank {rank} collects in another process: its mailbox is None here")
        return 0 if self.transport == "local" else rank

    def _refuse_broken(self) -> None:
        if self._broken:
            raise ValueError(f"the mailbox is out of step, {self._broken}: reset() it when all ranks have stopped")


def unshaped(front: FrontProblem) -> FrontProblem:
    """`front` whatever its M; ValueError for anything else."""
    if not isinstance(front, FrontProblem):
        raise ValueError(f"front is {front!r}, but must be a FrontProblem")
    return replace(front, m=1)


def _sentinels(front: FrontProblem, device: Any) -> Any:
    """An empty row as bits, int16 `[width]`: a conversion might lose the sign of a zero."""
    import torch

    return torch.from_numpy(layout.empty(1, front.latent, front.experts).view(np.int16)[0]).to(device)


def _check_boxes(front: FrontProblem, boxes: Sequence, some: bool = False) -> None:
    """ValueError unless `boxes` has a mailbox for every rank (with `some`: for at least one, None for others)."""
    if not isinstance(boxes, list | tuple) or len(boxes) != front.ranks:
        count = f"{len(boxes)} tensors" if isinstance(boxes, list | tuple) else f"a {type(boxes).__name__}"
        raise ValueError(f"boxes is {count}, but must be a list of {front.ranks}, one per rank")
    own = {rank: box for rank, box in enumerate(boxes) if not (some and box is None)}
    if not own:
        raise ValueError("boxes has no tensor, but some rank of this process must collect")
    capacity: int | str = "capacity"  # any, but the same of all
    for rank, box in own.items():
        name = f"the mailbox of rank {rank}"
        check_tensor(name, box, (BUFFERS, capacity, front.width), ALIGNMENT)
        capacity = check_integer(f"the capacity of {name}", box.shape[1], 1, MAX_M)
        if box.is_cuda != next(iter(own.values())).is_cuda:
            raise ValueError(f"{name} is on {box.device}, but all must be on CUDA devices or all on the CPU")
        for other, earlier in own.items():
            if other < rank and box.device == earlier.device and overlap(box, earlier):
                raise ValueError(f"{name} overlaps that of rank {other}, but must have memory of its own")


def _missing_publisher(front: FrontProblem, missing: np.ndarray, when: str) -> MissingPublisher:
    """The error that tells of `missing`, a 1 for each fragment `[tokens, fragments]` that did not arrive."""
    tokens, fragments = missing.nonzero()  # in the order of tokens, then of columns
    columns = fragments * layout.FRAGMENT_BYTES // 2
    token, column = int(tokens[0]), int(columns[0])
    ranks = sorted({layout.publisher(int(c), front.latent, front.shard, front.valid) for c in np.unique(columns)})
    rank = layout.publisher(column, front.latent, front.shard, front.valid)
    logit = (column - front.latent) // 2
    what = f"latent column {column}" if column < front.latent else f"the logit of expert {logit}"
    more = []
    if others := np.unique(tokens).size - 1:
        more.append(f"{others} other token{'s' * (others > 1)} incomplete")
    if also := [str(other) for other in ranks if other != rank]:
        more.append(f"parts of rank{'s' * (len(also) > 1)} {', '.join(also)} missing too")
    details = f" ({', '.join(more)})" if more else ""
    sentence = f"rank {rank} did not publish {what} of token {token}{details} {when}"
    return MissingPublisher(sentence, token, column, rank, tuple(ranks))
