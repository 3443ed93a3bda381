"""The GEMMs as Python functions: CUDA tensors run on their GPU, CPU tensors in the interpreter."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from ..artifact import CompiledKernel
from ..checks import check_choice, check_integer, is_integer
from ..problem import FrontProblem, GemmProblem
from ..records.choice import choose
from ..tactics import MAX_M, Tactic, WsGemmTactic, plain_kernels
from . import runner
from .compile import compile_kernel
from .mailbox import Mailbox, unshaped
from .tensors import check_tensor, device_of, overlap

ALIGNMENT = 32  #: bytes, of weight, x and out
BIAS_ALIGNMENT = 8  #: bytes: the kernel reads four BF16 of it at a time
OUTPUTS = {"bf16": "bfloat16", "f32": "float32"}  #: what results are stored as: PyTorch's names


class Prepared:
    """A GEMM with one weight, compiled and loaded in advance for the Ms in `tactics`; base of those below.

    `weight`: BF16 `[N, K]`, packed row-major, 32-byte aligned, on a CUDA device or the CPU (interpreter); it is not
    copied. `tactics`: M to the tactic used for it; `compiled` maps M to the kernel that runs. ValueError, naming the
    value and what is allowed, for anything else and for a tactic that is illegal for this (M, N, K, device).

    `run` never compiles, so it may be captured in a CUDA graph. The kernel uses programmatic dependent launch: it
    waits for the preceding kernel of the stream before it reads x and writes results, but reads `weight` and `bias` at
    once. A preceding kernel that writes *weights or bias* must therefore finish first (an event, a synchronisation, or
    any kernel without PDL in between). There is no autograd: results carry no gradient.
    """

    def __init__(
        self, weight: Any, tactics: Mapping[int, Tactic], kinds: tuple[type[Tactic], ...], problem: GemmProblem,
        max_m: int, **options: Any,
    ):  # fmt: skip
        """`kinds`: of the tactics; `problem`: that of any M; `options`: those of `compile_kernel`."""
        if not isinstance(tactics, Mapping):
            raise ValueError(f"tactics is {tactics!r}, but must be a mapping from M to its tactic")
        if not tactics:
            raise ValueError(f"tactics is empty, but must map at least one M (1 to {max_m}) to its tactic")
        self.weight, self.tactics = weight, dict(tactics)
        gpu = device_of(weight)
        for m, tactic in self.tactics.items():
            if not is_integer(m) or not 1 <= m <= max_m:
                raise ValueError(f"tactics has M = {m!r}, but M must be an integer from 1 to {max_m}")
            if not isinstance(tactic, kinds):
                allowed = " or ".join(kind.__name__ for kind in kinds)
                raise ValueError(f"the tactic for M = {m} is {tactic!r}, but must be a {allowed}")
            tactic.check(replace(problem, m=m), gpu)
        self.compiled: dict[int, CompiledKernel] = {}
        for m, tactic in self.tactics.items():
            self.compiled[m] = compile_kernel(tactic, replace(problem, m=m), gpu.arch, **options)
            runner.load(self.compiled[m], weight.device)

    def edited(self, edit: Callable[[CompiledKernel], CompiledKernel]) -> Self:
        """The same with `edit(kernel)` in place of each compiled kernel: a mutant, to see what catches it."""
        other = copy.copy(self)
        other.compiled = {m: edit(compiled) for m, compiled in self.compiled.items()}
        return other

    def tokens_of(self, x: Any) -> int:
        """M of x; ValueError unless it is BF16 `[M, K]`, beside the weight, and of a prepared M."""
        check_tensor("x", x, ("M", self.weight.shape[1]), ALIGNMENT, like=self.weight)
        m = x.shape[0]
        if m not in self.compiled:
            raise ValueError(f"x has M = {m}, but the prepared Ms are {', '.join(map(str, sorted(self.compiled)))}")
        return m

    def launch(self, m: int, x: Any, out: Any, interpreting: Mapping[str, Any], **others: Any) -> None:
        """Runs the kernel for M on x; `others` are parameters by name, as of `runner.bind`."""
        arguments = runner.bind(self.compiled[m], self.tactics[m], x, self.weight, out, **others)
        runner.run(self.compiled[m], arguments, **interpreting)


class PreparedGemm(Prepared):
    """`out = x @ weight^T`; what `weight` and `tactics` must be and what runs when: `Prepared`.

    The tactics are of any plain kernel (`Tactic.is_plain`), for each M (1 to 64) of another if need be: `prepare` finds
    the fastest. `output`: "bf16", or "f32" for sums that are not rounded, such as a router's logits, which not every
    kernel can store (`Tactic.outputs`).
    """

    def __init__(self, weight: Any, tactics: Mapping[int, Tactic], output: str = "bf16"):
        check_choice("output", output, OUTPUTS)
        check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
        kinds, problem = tuple(plain_kernels(output).values()), GemmProblem(1, *weight.shape)
        options = {} if output == "bf16" else {"output": output}
        super().__init__(weight, tactics, kinds, problem, MAX_M, **options)
        self.output = output

    def run(self, x: Any, out: Any, bias: Any = None) -> Any:
        """Computes `out = x @ weight^T + bias` on the current stream and returns `out`.

        x BF16 `[M, K]`, out `[M, N]`, BF16 or FP32 as prepared, both packed row-major and 32-byte aligned; bias BF16
        `[N]`, packed and 8-byte aligned; all on the weight's device, out overlapping none of the inputs. ValueError
        otherwise, and for an M that was not prepared.
        """
        m, n = self.tokens_of(x), self.weight.shape[0]
        check_tensor("out", out, (m, n), ALIGNMENT, like=self.weight, dtype=OUTPUTS[self.output])
        if bias is not None:
            check_tensor("bias", bias, (n,), BIAS_ALIGNMENT, like=self.weight)
            if all(parameter.name != "bias" for parameter in self.compiled[m].parameters):
                raise ValueError(f"bias is given, but must be None: {self.compiled[m].kernel} adds none")
        for name, tensor in (("x", x), ("weight", self.weight), ("bias", bias)):
            if tensor is not None and overlap(out, tensor):
                raise ValueError(f"out at {out.data_ptr():#x} overlaps {name}, but must have memory of its own")
        self.launch(m, x, out, {}, bias=bias)
        return out


def prepare(weight: Any, ms: Iterable[int], output: str = "bf16") -> PreparedGemm:
    """`weight`, BF16 `[N, K]`, prepared for each M of `ms` (1 to 64) with the kernel and tactic of `choose`.

    These are the fastest recorded on the weight's GPU, else what the performance model or reasoning chooses. `output`:
    "bf16", or "f32" for results that are not rounded. ValueError for a weight that `Prepared` would refuse, for any
    other M or output, and where no kernel takes an M.
    """
    check_choice("output", output, OUTPUTS)
    check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
    if not isinstance(ms, Iterable) or not (ms := list(ms)):
        raise ValueError(f"ms is {ms!r}, but must be at least one M from 1 to {MAX_M}, as a list")
    gpu, problems = device_of(weight), {m: GemmProblem(check_integer("m", m, 1, MAX_M), *weight.shape) for m in ms}
    tactics = {m: choose(problem, gpu, output).tactic for m, problem in problems.items()}
    return PreparedGemm(weight, tactics, output)


def matmul(
    x: Any, weight: Any, tactic: Tactic | None = None, backend: str = "auto", bias: Any = None, output: str = "bf16"
) -> Any:
    """`x @ weight^T + bias` as a new `[M, N]` tensor, for notebooks: compiles on first use.

    x BF16 `[M, K]` (M 1 to 64), weight BF16 `[N, K]`, bias BF16 `[N]`, layout as in `PreparedGemm.run`. `tactic`, of
    any plain kernel, is the fastest (`choose`) if absent. `backend`: "cuda" and "interpreter" insist on a machine,
    "auto" takes the tensors' own; the interpreter copies CUDA tensors to the CPU and the result back. `output`: "bf16",
    or "f32" for results that are not rounded. ValueError for anything else.
    """
    import torch

    check_choice("backend", backend, runner.BACKENDS)
    check_choice("output", output, OUTPUTS)
    check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
    n, k = weight.shape
    check_tensor("x", x, ("M", k), ALIGNMENT, like=weight)
    if bias is not None:
        check_tensor("bias", bias, (n,), BIAS_ALIGNMENT, like=weight)
    if backend == "cuda" and not weight.is_cuda:
        raise ValueError("backend is 'cuda', but the tensors are on the CPU: move them there, or use 'interpreter'")
    home = x.device
    if backend == "interpreter":
        x, weight, bias = x.cpu(), weight.cpu(), None if bias is None else bias.cpu()
    m = x.shape[0]
    if m > MAX_M:
        raise ValueError(f"x has M = {m}, but the kernels take 1 to {MAX_M} tokens")
    if tactic is None:
        tactic = choose(GemmProblem(m, n, k), device_of(weight), output).tactic
    out = x.new_empty((m, n), dtype=getattr(torch, OUTPUTS[output]))
    return PreparedGemm(weight, {m: tactic}, output).run(x, out, bias).to(home)


class PreparedWsGemm(Prepared):
    """Publishes `x @ weight^T`, one rank's part of the MoE front, into `mailbox`; for what runs when see `Prepared`.

    `weight`: BF16 `[N, K]` of `front`, this rank's `[router shard, padded; latent-down shard]` as `pack` makes it.
    `tactics`: M (1 to the mailbox's capacity) to the tactic used for it. `mailbox`: a `Mailbox` of the same front, on
    the same device (`peers` and `multicast`: that of the rank that runs); what a CUDA graph means for its buffers,
    `Mailbox` says. ValueError, naming the value and what is allowed, for anything else.
    """

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
        super().__init__(weight, tactics, (WsGemmTactic,), front, mailbox.capacity, **mailbox.options)

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
