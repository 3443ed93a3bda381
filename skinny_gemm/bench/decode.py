"""A decode step as a whole: the layers of a model in one CUDA graph, with our kernels and with PyTorch's linear.

Every layer has weights of its own, so they come cold from HBM. Ours are launched as `prepare` gives them, chained by
programmatic dependent launch wherever one stands behind another kernel. What a layer is, and what of it is left out:
`bench.layers`.
"""

import secrets
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import device as devices
from ..checks import check_choice, check_integer
from ..commit import commit
from ..device import Device
from ..problem import FrontProblem, GemmProblem
from ..records import Campaign
from ..records.choice import choose
from ..records.decode import VARIANTS, Step, folder, write
from ..runtime import Mailbox, PreparedGemm, PreparedWsGemm
from ..runtime.trials import values
from ..tactics import MAX_M, Tactic, WsGemmTactic
from . import clocks, graphs, process
from .layers import FRONT, MODELS, Model
from .task import Progress, Task, compile_all

MS = (1, 8, 16, 32)
ERROR_RATIO = 1.5  #: of ours over PyTorch's, against FP64: both round to BF16 at the same places, so it is about 1

Weights = Sequence[Mapping[str, torch.Tensor]]  #: of each layer, by projection


class TorchLinear:
    """PyTorch's linear, in the weights' BF16, or in FP64 for what is exact."""

    tactics: Mapping[str, str] = {}

    def __init__(self, weights: Weights, dtype: torch.dtype = torch.bfloat16):
        self.weights, self.dtype = weights, dtype
        self.front: torch.Tensor | None = None  #: the latest front's product `[M, N]`

    def __call__(self, layer: int, projection: str, x: torch.Tensor) -> torch.Tensor:
        product = torch.nn.functional.linear(x, self.weights[layer][projection].to(self.dtype))
        if projection == FRONT:
            self.front = product
        return product


class SkinnyLinear:
    """Our kernels, prepared for M tokens with one tactic for each projection.

    Fronts publish as rank 0 into one local mailbox. Nobody collects: every layer publishes into the same buffer, past
    the mailbox's account of steps.
    """

    def __init__(self, weights: Weights, problems: Mapping[str, GemmProblem], tactics: Mapping[str, Any], m: int):
        self.m, front = m, problems.get(FRONT)
        self.tactics = {name: f"{tactic.kernel} {tactic}" for name, tactic in tactics.items()}
        self.mailbox = Mailbox.local(front, weights[0][FRONT].device) if isinstance(front, FrontProblem) else None

        def prepared(name: str, weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor | None]:
            if name == FRONT and self.mailbox:
                return partial(_publish, PreparedWsGemm(weight, self.mailbox.front, {m: tactics[name]}, self.mailbox))
            return partial(_multiply, PreparedGemm(weight, {m: tactics[name]}))

        self.layers = [{name: prepared(name, weight) for name, weight in layer.items()} for layer in weights]

    def __call__(self, layer: int, projection: str, x: torch.Tensor) -> torch.Tensor | None:
        return self.layers[layer][projection](x)

    @property
    def front(self) -> torch.Tensor | None:
        """The latest front's product `[M, N]`, from the mailbox, in FP64 on the CPU; where rows are padding, zero."""
        if self.mailbox is None:
            return None
        problem = replace(self.mailbox.front, m=self.m)
        bits = self.mailbox.targets(0, self.m)["mailbox"][: self.m].view(torch.int16).cpu().numpy().view(np.uint16)
        product = np.zeros((problem.m, problem.n))
        for result in WsGemmTactic.results(problem):
            product[:, result.product] = values(bits, result)
        return torch.from_numpy(product)


Linear = TorchLinear | SkinnyLinear


def _multiply(prepared: PreparedGemm, x: torch.Tensor) -> torch.Tensor:
    return prepared.run(x, x.new_empty((x.shape[0], prepared.weight.shape[0])))


def _publish(prepared: PreparedWsGemm, x: torch.Tensor) -> None:
    m = x.shape[0]
    prepared.launch(m, x, None, {}, rank=0, **prepared.mailbox.targets(0, m))


def chosen(model: Model, m: int, device: Device) -> dict[str, Tactic]:
    """The tactic of each projection for M tokens; ValueError where no kernel takes one."""
    problems = {name: replace(problem, m=m) for name, problem in model.problems.items()}
    return {
        name: WsGemmTactic.default(problem, device) if name == FRONT else choose(problem, device).tactic
        for name, problem in problems.items()
    }


def random_weights(model: Model, generator: torch.Generator) -> Weights:
    """Normal BF16 weights of every layer, where the generator is, scaled so that products are as large as x."""

    def normal(problem: GemmProblem) -> torch.Tensor:
        weight = torch.empty((problem.n, problem.k), dtype=torch.bfloat16, device=generator.device)
        weight.normal_(std=problem.k**-0.5, generator=generator)
        if isinstance(problem, FrontProblem):
            weight[problem.valid : problem.split] = 0  # the padding of the router
        return weight

    return [{name: normal(model.problems[name]) for name in layer.projections} for layer in model.layers]


def measure(
    model: Model, tactics: Mapping[int, Mapping[str, Tactic]], generator: torch.Generator, timer: graphs.CudaGraphs,
    during: Callable[[int, str], None] = lambda m, variant: None, progress: Progress = lambda what, done, total: None,
) -> list[Step]:  # fmt: skip
    """Times and checks a step of both variants for each M of `tactics`, on the generator's device and random data.

    `during` is called once while a variant is replayed. ValueError if the results of ours are further from FP64 than
    rounding to BF16 explains.
    """
    weights, steps = random_weights(model, generator), []
    for m, of_m in tactics.items():
        start = torch.empty((m, model.hidden), dtype=torch.bfloat16, device=generator.device)
        start.normal_(generator=generator)
        exact = TorchLinear(weights, torch.float64)
        expected = [model.step(exact, start.double()), exact.front]
        results: list[list[torch.Tensor | None]] = []
        linears: Sequence[Linear] = (TorchLinear(weights), SkinnyLinear(weights, model.problems, of_m, m))
        for variant, linear in zip(VARIANTS, linears, strict=True):
            hidden = torch.empty_like(start)
            launch = partial(_run, model, linear, start, hidden)
            samples = timer.time([launch], during=partial(during, m, variant), width=graphs.WIDTH)
            results.append([hidden, linear.front])
            error, difference = (_distance(results[-1], others) for others in (expected, results[0]))
            steps.append(Step(m, variant, [round(us, 3) for us in samples], error, difference, linear.tactics))
            progress(model.name, len(steps), len(VARIANTS) * len(tactics))
        theirs, ours = steps[-2:]
        if not ours.relative_error < ERROR_RATIO * theirs.relative_error:
            errors = f"relative error {ours.relative_error:.2e}, PyTorch's is {theirs.relative_error:.2e}"
            raise ValueError(f"wrong result of {model.name} at M = {m}: {errors}")
    return steps


def bench(
    name: str, ms: Sequence[int] = MS, out: Path | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Path:  # fmt: skip
    """Records a step of the model of that name (`MODELS`) on the visible GPU, for each M; returns the file.

    By default data/decode/<date>-<device>-<commit>-<model>.json. ValueError for an unknown model, an M that is not from
    1 to 64 or that no kernel takes, a file that exists, no GPU, and a wrong result.
    """
    check_choice("model", name, MODELS)
    ms = [check_integer("m", m, 1, MAX_M) for m in dict.fromkeys(ms)]
    model, gpu = MODELS[name](), devices.current()
    # Chosen even without a GPU, so that what is wrong with the arguments is said first.
    tactics = {m: chosen(model, m, gpu or devices.reference()) for m in ms}
    if gpu is None:
        raise ValueError("bench measures on a GPU, and no CUDA GPU is visible here.")
    (source, dirty), date, seed = commit(), datetime.now(UTC), secrets.randbits(32)
    path = out or folder() / f"{date:%Y-%m-%d}-{gpu.name}-{source[:7]}-{name.lower().replace(' ', '-')}.json"
    if path.exists():
        raise ValueError(f"{path} exists; records are never overwritten: choose another file.")
    wanted = [(t, replace(model.problems[p], m=m)) for m, of_m in tactics.items() for p, t in of_m.items()]
    compile_all(gpu.arch, [Task.of(tactic.kernel, problem, tactic) for tactic, problem in wanted], progress)
    nvml, samples = None, []
    with suppress(Exception):  # a container without NVML can still measure; the record then says nothing of clocks
        nvml = clocks.Nvml.of_first_gpu()

    def during(m: int, variant: str) -> None:
        with suppress(Exception):  # nor do clocks cost a measurement later
            if nvml:
                samples.append({"when": "during", "variant": variant, "m": m, **nvml.sample()})

    generator = torch.Generator("cuda").manual_seed(seed)
    steps = measure(model, tactics, generator, graphs.CudaGraphs(), during, progress)
    method = dict(
        model=model.name, parallel=model.parallel, layers=len(model.layers), weight_bytes=model.weight_bytes,
        l2_bytes=gpu.l2_bytes, replays=graphs.REPLAYS, interval_width=graphs.WIDTH, seeds=[seed],
        processes={"quiet": process.MEANINGS["quiet"]},
    )  # fmt: skip
    command = shlex.join(["python", "-m", "skinny_gemm", *sys.argv[1:]])
    campaign = Campaign(
        id=path.stem, device=gpu.name, **clocks.describe(nvml), commit=source, dirty=dirty, method=method,
        date=date.isoformat(timespec="seconds"), command=command, clocks=clocks.summary(samples), complete=True,
    )  # fmt: skip
    return write(path, campaign, steps)


def _run(model: Model, linear: Linear, start: torch.Tensor, hidden: torch.Tensor) -> None:
    hidden.copy_(model.step(linear, start))


def _distance(results: Sequence[torch.Tensor | None], expected: Sequence[torch.Tensor | None]) -> float:
    """The largest relative Frobenius error of the results that there are; NaN if anything is NaN."""
    pairs = zip(results, expected, strict=True)
    wide = [(r.double().cpu(), e.double().cpu()) for r, e in pairs if r is not None and e is not None]
    return float(f"{np.max([((r - e).norm() / e.norm()).item() for r, e in wide]):.3g}")
