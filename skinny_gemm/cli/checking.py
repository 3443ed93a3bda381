"""What is here and whether it works: `doctor`, `shapes`, `tactics`, `verify`, `inspect`."""

from dataclasses import asdict
from functools import partial
from typing import Any

import click

from .. import device as devices
from ..catalogue import shapes
from ..checks import check_choice
from ..problem import KIMI_K3, FrontProblem, GemmProblem
from ..tactics import KERNELS, WsGemmTactic, tactic_type
from ..tactics.base import BF16_TOLERANCE, F32_TOLERANCE
from .options import DEVICE, KERNEL, SPLIT, TACTIC, VALID, Answer, Given, K, M, N, columns, command, facts, option
from .progress import progress

TACTICS_SHOWN = 600  #: as text: every one of warp split-K, the first of the thousands of the weight-stationary GEMM
FRONT_OPTIONS = ("ranks", "transport", "latent", "experts")  #: of `verify front` only


@command("doctor")
def doctor(given: Given) -> Answer:
    """Report versions, GPU, backend, tools, cache and recorded campaigns."""
    from ..runtime.doctor import doctor

    report = doctor()
    campaigns = "; ".join(f"{name} ({line})" for name, line in report["campaigns"].items()) or None
    flat = report | report["packages"] | {"campaigns": campaigns}
    del flat["packages"]
    return Answer(report, facts(flat))


@command("shapes", DEVICE)
def list_shapes(given: Given) -> Answer:
    """List the shape catalogue, and which kernels take each shape or why they do not."""
    gpu = devices.get(given.device)
    rows: list[dict] = []
    table: list[tuple] = [("model", "parallel", "projection", "N", "K", "kernels")]
    for shape in shapes():
        problem = GemmProblem(1, shape.n, shape.k)
        reasons = {name: kind.unsupported(problem, gpu) for name, kind in KERNELS.items()}
        verdicts = "; ".join(f"not {name}: {reason}" if reason else name for name, reason in reasons.items())
        table.append((*asdict(shape).values(), verdicts))
        rows.append({**asdict(shape), "kernels": {name: reason or True for name, reason in reasons.items()}})
    return Answer(rows, columns(table))


@command("tactics", KERNEL, M, N, K, SPLIT, VALID, DEVICE)
def list_tactics(given: Given) -> Answer:
    """List the legal tactics of a problem with their footprints; the default comes first."""
    problem, gpu, kind = given.problem(), devices.get(given.device), tactic_type(given.kernel)
    default = kind.default(problem, gpu)
    legal = [default, *(tactic for tactic in kind.enumerate(problem, gpu) if tactic != default)]
    rows = []
    for tactic in legal if given.json else []:
        footprint = asdict(tactic.footprint(problem, gpu))
        del footprint["regions"]
        rows.append({"tactic": str(tactic), **asdict(tactic), "default": tactic == default, **footprint})
    shown = [(tactic, tactic.footprint(problem, gpu)) for tactic in legal[:TACTICS_SHOWN]]
    text = f"{len(legal):,} legal tactics ({kind.syntax()}), the default first\n" + columns(
        (tactic, f"{footprint.smem_bytes:,} B", footprint.describe()) for tactic, footprint in shown
    )
    if len(legal) > len(shown):
        text += f"\nand {len(legal) - len(shown):,} more: --json lists all"
    return Answer(rows, text)


@command(
    "verify", KERNEL, M,
    option("--n", type=int, help="Outputs (rows of the weight); a front's follow from its other options."),
    option("--k", type=int, help="Inputs (columns of the weight); of a front, by default Kimi K3's."),
    SPLIT, VALID, TACTIC,
    option("--backend", default="auto", help="auto, interpreter or cuda."),
    option("--schedule", default="in_order", help="The interpreter's: in_order or adversarial."),
    option("--seeds", default=1, help="Adversarial schedules to try, or runs on a GPU."),
    option("--seed", type=int, help="Seed of the random data; fresh if absent."),
    option("--ranks", type=int, help="front: virtual ranks, 8 by default."),
    option("--transport", help="front: local, peers or multicast (interpreter only); local by default."),
    option("--latent", type=int, help="front: latent of all ranks, by default Kimi K3's."),
    option("--experts", type=int, help="front: experts of all ranks, by default Kimi K3's."),
)  # fmt: skip
def verify(given: Given) -> Answer:
    """Run a kernel on random data and compare with FP64.

    KERNEL is a kernel's name, or front: virtual ranks publish in turn and a consumer gathers the whole MoE front.
    """
    return _verify_front(given) if given.kernel == "front" else _verify_kernel(given)


def _verify_kernel(given: Given) -> Answer:
    if foreign := [f"--{name}" for name in FRONT_OPTIONS if getattr(given, name) is not None]:
        raise ValueError(f"{', '.join(foreign)} belongs to front, not to {given.kernel}")
    if given.n is None or given.k is None:
        raise click.UsageError(f"Missing option '--{'n' if given.n is None else 'k'}'.")
    from ..interpreter import InterpreterError
    from ..runtime.verify import verify

    problem, backend = given.problem(), given.backend
    gpu = (devices.current() if backend != "interpreter" else None) or devices.reference()
    tactic = given.chosen(gpu)
    name = f"{given.kernel} {tactic} at {given.n}x{given.k}, M = {given.m}"
    with progress() as report:
        done = partial(report, "interpreting")
        try:
            result = verify(tactic, problem, backend, given.schedule, given.seeds, given.seed, done)
        except InterpreterError as error:
            return _failed(name, error, tactic=str(tactic))
    # One run agrees with itself: nothing to boast of.
    agreement = f"{result.runs} runs {'' if result.bitwise_equal else 'NOT '}bitwise equal, " if result.runs > 1 else ""
    errors = ", ".join(
        f"{f'of {output} ' if len(result.limit) > 1 else ''}{error:.2e} (limit {result.limit[output]:.0e})"
        for output, error in result.relative_error.items()
    )
    stray = f", {result.stray_writes} words WRITTEN outside the results" if result.stray_writes else ""
    return _verdict(
        result,
        f"{name}, {result.backend} ({result.schedule})\nrelative error {errors}{stray}, "
        f"{agreement}{result.seconds:.2f} s of which {result.execution_seconds:.2f} s running",
    )


def _verify_front(given: Given) -> Answer:
    if given.seeds != 1 or (given.n, given.split, given.valid) != (None, None, None):
        others = "--m, --ranks, --k, --latent and --experts"
        raise ValueError(f"--n, --split, --valid and --seeds do not belong to front: it takes {others}")
    from ..interpreter import InterpreterError
    from ..runtime import MissingPublisher
    from ..runtime.verify import verify_front

    sizes = {name: size if getattr(given, name) is None else getattr(given, name) for name, size in KIMI_K3.items()}
    problem = FrontProblem.sharded(given.m, ranks=8 if given.ranks is None else given.ranks, **sizes)
    tactic = None if given.tactic is None else WsGemmTactic.parse(given.tactic)
    transport = given.transport or "local"
    with progress() as report:
        done = partial(report, "publishing")
        try:
            result = verify_front(problem, tactic, given.backend, given.schedule, transport, given.seed, done)
        except (InterpreterError, MissingPublisher) as error:
            return _failed(f"front of {problem.ranks} ranks", error)
    return _verdict(
        result,
        f"front of {result.ranks} ranks ({result.latent} latent, {result.experts} experts, K = {result.k}) at "
        f"M = {result.m}, ws-gemm {result.tactic}, {result.transport}, {result.backend} ({result.schedule})\n"
        f"relative error of the latent {result.latent_error:.2e} (limit {BF16_TOLERANCE:.0e}), of the logits "
        f"{result.logits_error:.2e} (limit {F32_TOLERANCE:.0e}), {result.steps} steps, {result.seconds:.2f} s of which "
        f"{result.execution_seconds:.2f} s publishing and collecting",
    )


def _failed(name: str, error: Exception, **known: str) -> Answer:
    return Answer({"passed": False, **known, "reason": str(error)}, f"FAILED: {name}: {error}", 1)


def _verdict(result: Any, text: str) -> Answer:
    return Answer(asdict(result), f"{'passed' if result.passed else 'FAILED'}: {text}", 0 if result.passed else 1)


@command(
    "inspect", KERNEL, N, K, SPLIT, VALID, TACTIC,
    option("--arch", default="sm_90a", help="Architecture to compile for."),
    option("--m", default=1, help="Tokens: of the default tactic, and of ws-gemm's binary."),
)  # fmt: skip
def inspect(given: Given) -> Answer:
    """Compile a kernel and report registers, spills, shared memory and SASS opcode counts."""
    from ..runtime import compile_kernel, sass

    check_choice("arch", given.arch, devices.architectures())
    gpu = next(gpu for gpu in map(devices.get, devices.names()) if gpu.arch == given.arch)
    problem, tactic = given.problem(), given.chosen(gpu)
    compiled = compile_kernel(tactic, problem, given.arch)
    compiled_for, opcodes = tactic.specialisation(problem), sass.opcode_counts(compiled.cubin)
    report = dict(
        kernel=given.kernel, tactic=str(tactic), arch=given.arch, compiled_for=compiled_for,
        registers=compiled.resources.registers, spill_bytes=compiled.resources.spill_bytes,
        smem_bytes=compiled.smem_bytes, threads=compiled.block[0], cluster=compiled.cluster[0],
        cubin_bytes=len(compiled.cubin), sass=opcodes,
    )  # fmt: skip
    constants = ", ".join(f"{name} {value}" for name, value in compiled_for.items())
    frequent = ", ".join(f"{count} {opcode}" for opcode, count in list(opcodes.items())[:12])
    return Answer(report, facts(report | {"compiled_for": constants, "sass": frequent}))
