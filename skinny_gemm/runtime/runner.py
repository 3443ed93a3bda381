"""The one way to run a compiled kernel: on the GPU that holds its tensors, or in the interpreter."""

import time
from dataclasses import dataclass
from typing import Any

from .. import device as devices
from .. import interpreter
from ..artifact import CompiledKernel, LaunchArguments
from ..checks import check_choice
from ..problem import GemmProblem
from ..tactics import Tactic
from . import driver

BACKENDS = ("auto", "interpreter", "cuda")


@dataclass(frozen=True)
class Execution:
    """What ran; the outputs are in the caller's arrays."""

    seconds: float  #: of execution; on a GPU of a launch with everything around it, of CUDA tensors of enqueuing
    result: interpreter.Result | None = None  #: the interpreter's; None of a GPU


def bind(compiled: CompiledKernel, tactic: Tactic, x: Any, weight: Any, out: Any, **others: Any) -> LaunchArguments:
    """The launch of `compiled` that multiplies x `[M, K]` with weight `[N, K]` into `out`, shaped as `tactic.output`.

    `others` are parameters by name: a bias (absent by default), the rank (0), mailboxes of peers. Takes torch tensors,
    or BF16 bits as uint16 NumPy arrays. Checks nothing.
    """
    m, k = x.shape
    named = {"x": x, "weight": weight, "out": out, "mailbox": out, "bias": None, "rank": 0, "m": m, **others}
    values = tuple(named[parameter.name] for parameter in compiled.parameters)
    return LaunchArguments(tactic.grid(GemmProblem(m, weight.shape[0], k)), values)


def choose(backend: str) -> tuple[str, devices.Device]:
    """The machine ("cuda" or "interpreter") that `backend` means here, and the device whose limits apply."""
    check_choice("backend", backend, BACKENDS)
    gpu = devices.current()
    if backend == "cuda" and gpu is None:
        raise ValueError("backend is 'cuda', but no GPU is visible: use 'interpreter'")
    if gpu is None or backend == "interpreter":
        return "interpreter", devices.reference()
    return "cuda", gpu


def load(compiled: CompiledKernel, device: Any) -> None:
    """Loads `compiled` where the torch `device` is a GPU; PyTorch's current device stays what it is."""
    if device.type == "cuda":
        import torch

        with torch.cuda.device(device):
            driver.load(compiled, device.index)


def run(compiled: CompiledKernel, arguments: LaunchArguments, backend: str = "auto", **interpreting: Any) -> Execution:
    """Runs one launch of `compiled` where its arguments lie: CUDA tensors on their GPU, others in the interpreter.

    CUDA tensors: enqueues on the current stream of the first one's GPU (mailboxes of peers lie elsewhere), waits for
    nothing, and may be captured in a graph. NumPy arrays: with `backend` "cuda" they are copied to the first GPU and
    back. `interpreting`: options of `interpreter.run` (schedule, trace, races ...); a GPU ignores them.
    """
    gpu = next((value.device for value in arguments.values if getattr(value, "is_cuda", False)), None)
    if gpu is None and backend != "cuda":
        result = interpreter.run(compiled, arguments, **interpreting)
        return Execution(result.seconds, result)
    if gpu is None:
        driver.load(compiled)
        begin = time.perf_counter()
        driver.run_on_host_arrays(compiled, arguments)
    else:
        import torch

        begin = time.perf_counter()
        with torch.cuda.device(gpu):
            driver.launch(compiled, arguments, ordinal=gpu.index)
    return Execution(time.perf_counter() - begin)
