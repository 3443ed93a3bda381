"""The MoE front of one tensor-parallel rank, prepared for repeated use: a weight-stationary GEMM that publishes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..checks import check_integer
from ..problem import FrontProblem
from ..tactics import WsGemmTactic
from .mailbox import Mailbox, unshaped
from .prepared import ALIGNMENT, Prepared
from .tensors import check_tensor, overlap


class PreparedWsGemm(Prepared):
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

    kind = WsGemmTactic

    def __init__(self, weight: Any, front: FrontProblem, tactics: Mapping[int, WsGemmTactic], mailbox: Mailbox):
        front = unshaped(front)
        if not isinstance(mailbox, Mailbox):
            raise ValueError(f"mailbox is {mailbox!r}, but must be a Mailbox")
        if mailbox.front != front:
            raise ValueError(f"mailbox is of {mailbox.front}, but must be of {front}")
        check_tensor("weight", weight, (front.n, front.k), ALIGNMENT)
        if weight.device not in mailbox.devices:
            allowed = " or ".join(map(str, mailbox.devices))
            raise ValueError(f"weight is on {weight.device}, but must be on {allowed} with the mailbox")
        self.front, self.mailbox = front, mailbox
        super().__init__(weight, tactics, lambda m: replace(front, m=m), mailbox.capacity, **mailbox.options)

    @staticmethod
    def pack(router: Any, down: Any, front: FrontProblem, rank: int) -> Any:
        """The weight of `rank`: BF16 `[N, K]`, from the unsharded router `[experts, K]` and down `[latent, K]`.

        Rows 0 to valid-1 are its experts, rows up to split are zero, the rest is its shard of the latent. `router` is
        None for a front without experts. ValueError for any other shape, and for a rank that does not exist.
        """
        front = unshaped(front)
        check_integer("rank", rank, 0, front.ranks - 1)
        check_tensor("down", down, (front.latent, front.k), 1)
        weight = down.new_zeros((front.n, front.k))
        if front.experts:
            check_tensor("router", router, (front.experts, front.k), 1, like=down)
            weight[: front.valid] = router[rank * front.valid : (rank + 1) * front.valid]
        elif router is not None:
            raise ValueError("router is given, but must be None: this front has no experts")
        weight[front.split :] = down[rank * front.shard : (rank + 1) * front.shard]
        return weight

    def run(self, x: Any, rank: int, **interpreting: Any) -> None:
        """Publishes this rank's part of the mailbox's current step, for x, on the current stream.

        x BF16 `[M, K]`, packed row-major and 32-byte aligned, on the weight's device, not overlapping the mailbox.
        ValueError otherwise; for an M that was not prepared or that differs from the other ranks'; for a rank that does
        not exist or has published this step. `interpreting`: options of `interpreter.run`, for CPU tensors.
        """
        m = self.tokens_of(x)
        targets = self.mailbox.targets(rank, m)
        home = self.mailbox.home(rank)
        if home is not None and home.device != x.device:
            raise ValueError(f"rank {rank} runs on {x.device}, but must run on {home.device} with its mailbox")
        for name, tensor in (("x", x), ("weight", self.weight)):
            if any(box is not None and overlap(tensor, box) for box in self.mailbox.boxes):
                raise ValueError(f"{name} at {tensor.data_ptr():#x} overlaps a mailbox: it must have its own memory")
        self.launch(m, x, None, interpreting, rank=int(rank), **targets)
        self.mailbox.published(rank, m)
