"""The warp split-K GEMM as Python functions: prepared for repeated use, or one call at a time for notebooks.

Tensors decide the machine: CUDA tensors run on their GPU, CPU tensors in the interpreter.
"""

from collections.abc import Mapping

from .. import device as devices
from ..artifact import CompiledKernel, LaunchArguments
from ..problem import GemmProblem
from ..tactics import Tactic, WarpSplitKTactic
from . import driver
from .compile import compile_kernel

ALIGNMENT = 32  #: bytes, of weight, x and out
BIAS_ALIGNMENT = 8  #: the kernel reads four BF16 of it at a time


def bind(compiled: CompiledKernel, tactic: Tactic, x, weight, out, **others) -> LaunchArguments:
    """The launch of `compiled` that multiplies x `[M, K]` with weight `[N, K]` into `out`, shaped as `tactic.output`.

    `others` are parameters by name: a bias (absent by default), the rank (0), mailboxes of peers. Takes torch tensors,
    or BF16 bits as uint16 NumPy arrays for the interpreter. Checks nothing.
    """
    m, k = x.shape
    named = {"x": x, "weight": weight, "out": out, "mailbox": out, "bias": None, "rank": 0, "m": m, **others}
    return LaunchArguments(
        grid=tactic.grid(GemmProblem(m, weight.shape[0], k)),
        values=tuple(named[parameter.name] for parameter in compiled.parameters),
    )


class PreparedWarpSplitK:
    """`out = x @ weight^T` for one weight, compiled and loaded in advance for the Ms in `tactics`.

    `weight`: BF16 `[N, K]`, packed row-major, 32-byte aligned, on a CUDA device or the CPU (interpreter); it is not
    copied. `tactics`: M (1 to 32) to the tactic used for it. ValueError, naming the value and what is allowed, for any
    other weight, for an M outside 1 to 32 and for a tactic that is illegal for this (N, K, device).

    `run` never compiles, so it may be captured in a CUDA graph. The kernel uses programmatic dependent launch: it
    waits for the preceding kernel of the stream before it reads x and writes out, but reads `weight` and `bias` at
    once. A preceding kernel that writes *weights or bias* must therefore finish first (an event, a synchronisation, or
    any kernel without PDL in between). There is no autograd: results carry no gradient.
    """

    def __init__(self, weight, tactics: Mapping[int, WarpSplitKTactic]):
        _check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
        if not isinstance(tactics, Mapping):
            raise ValueError(f"tactics is {tactics!r}, but must be a mapping from M to its tactic")
        if not tactics:
            raise ValueError("tactics is empty, but must map at least one M (1 to 32) to its tactic")
        self.weight, self.tactics = weight, dict(tactics)
        n, k = weight.shape
        gpu = _device_of(weight)
        self._compiled: dict[int, CompiledKernel] = {}
        for m, tactic in self.tactics.items():
            if not isinstance(m, int) or isinstance(m, bool) or not 1 <= m <= WarpSplitKTactic.max_m:
                raise ValueError(f"tactics has M = {m!r}, but M must be an integer from 1 to {WarpSplitKTactic.max_m}")
            if not isinstance(tactic, WarpSplitKTactic):
                raise ValueError(f"the tactic for M = {m} is {tactic!r}, but must be a WarpSplitKTactic")
            tactic.check(GemmProblem(m, n, k), gpu)
        for m, tactic in self.tactics.items():
            self._compiled[m] = compile_kernel(tactic, GemmProblem(m, n, k), gpu.arch)
            if weight.is_cuda:
                driver.load(self._compiled[m], weight.device.index)

    def run(self, x, out, bias=None):
        """Computes `out = x @ weight^T + bias` on the current stream and returns `out`.

        x BF16 `[M, K]`, out BF16 `[M, N]`, both packed row-major and 32-byte aligned; bias BF16 `[N]`, packed and
        8-byte aligned; all on the weight's device, out overlapping none of the inputs. ValueError otherwise, and for
        an M that was not prepared.
        """
        n, k = self.weight.shape
        _check_tensor("x", x, ("M", k), ALIGNMENT, like=self.weight)
        m = x.shape[0]
        if m not in self._compiled:
            raise ValueError(f"x has M = {m}, but the prepared Ms are {', '.join(map(str, sorted(self._compiled)))}")
        _check_tensor("out", out, (m, n), ALIGNMENT, like=self.weight)
        if bias is not None:
            _check_tensor("bias", bias, (n,), BIAS_ALIGNMENT, like=self.weight)
        for name, tensor in (("x", x), ("weight", self.weight), ("bias", bias)):
            if tensor is not None and _overlap(out, tensor):
                raise ValueError(f"out at {out.data_ptr():#x} overlaps {name}, but must have memory of its own")
        compiled = self._compiled[m]
        arguments = bind(compiled, self.tactics[m], x, self.weight, out, bias=bias)
        if out.is_cuda:
            driver.launch(compiled, arguments, ordinal=out.device.index)
        else:
            from .. import interpreter

            interpreter.run(compiled, arguments)
        return out


def matmul(x, weight, tactic: WarpSplitKTactic | None = None, backend: str = "auto", bias=None):
    """`x @ weight^T + bias` as a new BF16 `[M, N]` tensor, for notebooks: compiles on first use.

    x BF16 `[M, K]` (M 1 to 32), weight BF16 `[N, K]`, bias BF16 `[N]`, layout as in `PreparedWarpSplitK`. `tactic` is
    `WarpSplitKTactic.default` if absent. `backend`: "cuda" and "interpreter" insist on a machine, "auto" takes the
    tensors' own; the interpreter copies CUDA tensors to the CPU and the result back. ValueError for anything else.
    """
    if backend not in ("auto", "cuda", "interpreter"):
        raise ValueError(f"backend is {backend!r}, but must be 'auto', 'cuda' or 'interpreter'")
    _check_tensor("weight", weight, ("N", "K"), ALIGNMENT)
    n, k = weight.shape
    _check_tensor("x", x, ("M", k), ALIGNMENT, like=weight)
    if bias is not None:
        _check_tensor("bias", bias, (n,), BIAS_ALIGNMENT, like=weight)
    if backend == "cuda" and not weight.is_cuda:
        raise ValueError("backend is 'cuda', but the tensors are on the CPU: move them there, or use 'interpreter'")
    home = x.device
    if backend == "interpreter":
        x, weight, bias = x.cpu(), weight.cpu(), None if bias is None else bias.cpu()
    m = x.shape[0]
    if m > WarpSplitKTactic.max_m:
        raise ValueError(f"x has M = {m}, but this kernel takes 1 to {WarpSplitKTactic.max_m} tokens")
    if tactic is None:
        tactic = WarpSplitKTactic.default(GemmProblem(m, n, k), _device_of(weight))
    out = x.new_empty((m, n))
    return PreparedWarpSplitK(weight, {m: tactic}).run(x, out, bias).to(home)


def _device_of(tensor) -> devices.Device:
    """The GPU whose limits apply: the tensor's own, or an H200 for CPU tensors (whose kernels the interpreter runs)."""
    if not tensor.is_cuda:
        return devices.get("h200")
    gpu = devices.current()
    if gpu is None:
        raise ValueError("the tensors are on a GPU that the CUDA driver API does not show")
    return gpu


def _check_tensor(name: str, tensor, shape: tuple, alignment: int, like=None) -> None:
    """ValueError unless `tensor` is BF16, packed row-major, aligned, of `shape` (strings: any size), beside `like`."""
    import torch

    wanted = f"[{', '.join(map(str, shape))}]"
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}, but must be a BF16 torch tensor {wanted}")
    if tensor.ndim != len(shape):
        raise ValueError(f"{name} has {tensor.ndim} dimensions {tuple(tensor.shape)}, but must be {wanted}")
    if tensor.dtype != torch.bfloat16:
        raise ValueError(f"{name} is {tensor.dtype}, but must be torch.bfloat16")
    if tensor.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must not be empty")
    if any(isinstance(want, int) and want != got for want, got in zip(shape, tensor.shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must be {wanted}")
    if tensor.device.type not in ("cuda", "cpu"):
        raise ValueError(f"{name} is on {tensor.device}, but must be on a CUDA device or the CPU")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device}, but must be on {like.device} with weight")
    if tensor.layout != torch.strided or tensor.is_neg():
        kind = "a lazily negated view" if tensor.is_neg() else tensor.layout
        raise ValueError(f"{name} is {kind}, but must be packed row-major")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}, but must be packed row-major (call .contiguous())")
    if tensor.data_ptr() % alignment:
        raise ValueError(f"{name} starts at {tensor.data_ptr():#x}, but must be {alignment}-byte aligned")


def _overlap(a, b) -> bool:
    a_start, b_start = a.data_ptr(), b.data_ptr()
    return a_start < b_start + b.numel() * b.element_size() and b_start < a_start + a.numel() * a.element_size()
