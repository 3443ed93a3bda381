"""The MoE front of one tensor-parallel rank, prepared for repeated use: a weight-stationary GEMM that publishes."""

from collections.abc import Mapping
from dataclasses import replace

from ..artifact import CompiledKernel
from ..problem import FrontProblem
from ..tactics import WsGemmTactic
from .compile import compile_kernel
from .gemm import ALIGNMENT, _check_tensor, _device_of, _overlap, bind
from .mailbox import Mailbox, execute, is_integer, load, unshaped


class PreparedWsGemm:
    """Publishes `x @ weight^T` of one rank into `mailbox`, compiled and loaded in advance for the Ms in `tactics`.

    `weight`: BF16 `[N, K]` of `front`, this rank's `[router shard, padded; latent-down shard]` as `pack` makes it;
    packed row-major, 32-byte aligned, on a CUDA device or the CPU (interpreter); it is not copied. `tactics`: M (1 to
    the mailbox's capacity) to the tactic used for it. `mailbox`: a `Mailbox` of the same front, on the same device
    (`peers` and `multicast`: that of the rank that runs). ValueError, naming the value and what is allowed, for
    anything else and for a tactic that is illegal for this (M, N, K, device).

    `run` never compiles, so it may be captured in a CUDA graph; what that means for the mailbox's buffers, `Mailbox`
    says. The kernel uses programmatic dependent launch: it waits for the preceding kernel of the stream before it reads
    x and publishes, but reads `weight` at once. A preceding kernel that writes *weights* must therefore finish first
    (an event, a synchronisation, or any kernel without PDL in between). There is no autograd.
    """

    def __init__(self, weight, front: FrontProblem, tactics: Mapping[int, WsGemmTactic], mailbox: Mailbox):
        front = unshaped(front)
        if not isinstance(mailbox, Mailbox):
            raise ValueError(f"mailbox is {mailbox!r}, but must be a Mailbox")
        if mailbox.front != front:
            raise ValueError(f"mailbox is of {mailbox.front}, but must be of {front}")
        _check_tensor("weight", weight, (front.n, front.k), ALIGNMENT)
        if weight.device not in mailbox.devices:
            allowed = " or ".join(map(str, mailbox.devices))
            raise ValueError(f"weight is on {weight.device}, but must be on {allowed} with the mailbox")
        if not isinstance(tactics, Mapping):
            raise ValueError(f"tactics is {tactics!r}, but must be a mapping from M to its tactic")
        if not tactics:
            raise ValueError(f"tactics is empty, but must map at least one M (1 to {mailbox.capacity}) to its tactic")
        self.weight, self.front, self.tactics, self.mailbox = weight, front, dict(tactics), mailbox
        gpu = _device_of(weight)
        self._compiled: dict[int, CompiledKernel] = {}
        for m, tactic in self.tactics.items():
            if not is_integer(m) or not 1 <= m <= mailbox.capacity:
                raise ValueError(f"tactics has M = {m!r}, but M must be an integer from 1 to {mailbox.capacity}")
            if not isinstance(tactic, WsGemmTactic):
                raise ValueError(f"the tactic for M = {m} is {tactic!r}, but must be a WsGemmTactic")
            tactic.check(replace(front, m=m), gpu)
        for m, tactic in self.tactics.items():
            self._compiled[m] = compile_kernel(tactic, replace(front, m=m), gpu.arch, **mailbox.options)
            load(self._compiled[m], weight.device)

    @staticmethod
    def pack(router, down, front: FrontProblem, rank: int):
        """The weight of `rank`: BF16 `[N, K]`, from the unsharded router `[experts, K]` and down `[latent, K]`.

        Rows 0 to valid-1 are its experts, rows up to split are zero, the rest is its shard of the latent. `router` is
        None for a front without experts. ValueError for any other shape, and for a rank that does not exist.
        """
        front = unshaped(front)
        if not is_integer(rank) or not 0 <= rank < front.ranks:
            raise ValueError(f"rank is {rank!r}, but must be an integer from 0 to {front.ranks - 1}")
        _check_tensor("down", down, (front.latent, front.k), 1)
        weight = down.new_zeros((front.n, front.k))
        if front.experts:
            _check_tensor("router", router, (front.experts, front.k), 1, like=down)
            weight[: front.valid] = router[rank * front.valid : (rank + 1) * front.valid]
        elif router is not None:
            raise ValueError("router is given, but must be None: this front has no experts")
        weight[front.split :] = down[rank * front.shard : (rank + 1) * front.shard]
        return weight

    def run(self, x, rank: int, **interpreting) -> None:
        """Publishes this rank's part of the mailbox's current step, for x, on the current stream.

        x BF16 `[M, K]`, packed row-major and 32-byte aligned, on the weight's device, not overlapping the mailbox.
        ValueError otherwise; for an M that was not prepared or that differs from the other ranks'; for a rank that does
        not exist or has published this step. `interpreting`: options of `interpreter.run`, for CPU tensors.
        """
        _check_tensor("x", x, ("M", self.front.k), ALIGNMENT, like=self.weight)
        m = x.shape[0]
        if m not in self._compiled:
            raise ValueError(f"x has M = {m}, but the prepared Ms are {', '.join(map(str, sorted(self._compiled)))}")
        targets = self.mailbox.targets(rank, m)
        home = self.mailbox.home(rank)
        if home is not None and home.device != x.device:
            raise ValueError(f"rank {rank} runs on {x.device}, but must run on {home.device} with its mailbox")
        for name, tensor in (("x", x), ("weight", self.weight)):
            if any(box is not None and _overlap(tensor, box) for box in self.mailbox.boxes):
                raise ValueError(f"{name} at {tensor.data_ptr():#x} overlaps a mailbox: it must have its own memory")
        compiled, tactic = self._compiled[m], self.tactics[m]
        arguments = bind(compiled, tactic, x, self.weight, None, rank=int(rank), **targets)
        execute(compiled, arguments, x.device, **interpreting)
        self.mailbox.published(rank, m)
