"""What is here and whether it works: `doctor`, `shapes`, `tactics`, `verify`, `inspect`."""

from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn

import click

from .. import device as devices
from ..catalogue import Shape, shapes
from ..problem import KIMI_K3, FrontProblem, GemmProblem
from ..tactics import KERNELS, WsGemmTactic, tactic_type
from ..tactics.base import BF16_TOLERANCE, F32_TOLERANCE
from . import options
from .progress import fraction, progress

TACTICS_SHOWN = 400  #: as text: every one of warp split-K, the first of the thousands of the weight-stationary GEMM


@click.command()
@options.json_switch
def doctor(as_json: bool) -> None:
    """Report versions, GPU, backend, tools, cache and recorded campaigns."""
    from ..runtime.doctor import doctor

    report = doctor()
    flat = {**report, **report["packages"]}
    flat["campaigns"] = "; ".join(f"{name} ({line})" for name, line in report["campaigns"].items()) or None
    del flat["packages"]
    options.show(as_json, report, options.facts(flat))


@click.command("shapes")
@options.device_name
@options.json_switch
def list_shapes(device: str, as_json: bool) -> None:
    """List the shape catalogue, and which kernels take each shape or why they do not."""
    gpu = devices.get(device)
    rows = [{**asdict(shape), "kernels": _support(shape, gpu)} for shape in shapes()]
    table = [("model", "parallel", "projection", "N", "K", "kernels")]
    for row in rows:
        *shape, kernels = row.values()
        verdicts = (f"{name}" if verdict is True else f"not {name}: {verdict}" for name, verdict in kernels.items())
        table.append((*shape, "; ".join(verdicts)))
    options.show(as_json, rows, options.columns(table))


def _support(shape: Shape, gpu: devices.Device) -> dict[str, bool | str]:
    """For each kernel True, or why it cannot take `shape`."""
    problem = GemmProblem(1, shape.n, shape.k)
    return {name: kind.unsupported(problem, gpu) or True for name, kind in KERNELS.items()}


@click.command("tactics")
@options.kernel
@options.m
@options.n
@options.k
@options.split
@options.valid
@options.device_name
@options.json_switch
@options.gathered(asked=options.Asked)
def list_tactics(asked: options.Asked, device: str, as_json: bool) -> None:
    """List the legal tactics of a problem with their footprints; the default comes first."""
    problem, gpu, kind = asked.problem(), devices.get(device), tactic_type(asked.kernel)
    default = kind.default(problem, gpu)
    legal = [default, *(tactic for tactic in kind.enumerate(problem, gpu) if tactic != default)]
    rows = []
    for tactic in legal if as_json else []:
        footprint = asdict(tactic.footprint(problem, gpu))
        del footprint["regions"]
        rows.append({"tactic": str(tactic), **asdict(tactic), "default": tactic == default, **footprint})
    names = ",".join(field.name for field in fields(kind))
    shown = [(tactic, tactic.footprint(problem, gpu)) for tactic in legal[:TACTICS_SHOWN]]
    text = f"{len(legal):,} legal tactics ({names}), the default first\n" + options.columns(
        (str(tactic), f"{footprint.smem_bytes:,} B", footprint.describe()) for tactic, footprint in shown
    )
    if len(legal) > len(shown):
        text += f"\nand {len(legal) - len(shown):,} more: --json lists all"
    options.show(as_json, rows, text)


@dataclass(frozen=True)
class Conditions:
    """How `verify` runs a kernel."""

    tactic: str | None
    backend: str
    schedule: str
    seeds: int
    seed: int | None


@dataclass(frozen=True)
class FrontOptions:
    """What `verify front` is told of all ranks; None where it is not told."""

    ranks: int | None
    transport: str | None
    latent: int | None
    experts: int | None


@click.command()
@options.kernel
@options.m
@click.option("--n", type=int, help="Outputs (rows of the weight); a front's follow from its other options.")
@click.option("--k", type=int, help="Inputs (columns of the weight); of a front, by default Kimi K3's.")
@options.split
@options.valid
@options.tactic_text
@click.option("--backend", default="auto", show_default=True, help="auto, interpreter or cuda.")
@click.option("--schedule", default="in_order", show_default=True, help="The interpreter's: in_order or adversarial.")
@click.option("--seeds", default=1, show_default=True, help="Adversarial schedules to try, or runs on a GPU.")
@click.option("--seed", type=int, help="Seed of the random data; fresh if absent.")
@click.option("--ranks", type=int, help="front: virtual ranks, 8 by default.")
@click.option("--transport", help="front: local, peers or multicast (interpreter only); local by default.")
@click.option("--latent", type=int, help="front: latent of all ranks, by default Kimi K3's.")
@click.option("--experts", type=int, help="front: experts of all ranks, by default Kimi K3's.")
@options.json_switch
@options.gathered(asked=options.Asked, under=Conditions, front=FrontOptions)
def verify(asked: options.Asked, under: Conditions, front: FrontOptions, as_json: bool) -> None:
    """Run a kernel on random data and compare with FP64.

    KERNEL is a kernel's name, or front: virtual ranks publish in turn and a consumer gathers the whole MoE front.
    """
    if asked.kernel == "front":
        _verify_front(asked, under, front, as_json)
    else:
        _verify_kernel(asked, under, front, as_json)


def _verify_kernel(asked: options.Asked, under: Conditions, front: FrontOptions, as_json: bool) -> None:
    if given := [f"--{name}" for name, value in asdict(front).items() if value is not None]:
        raise ValueError(f"{', '.join(given)} belongs to front, not to {asked.kernel}")
    if asked.n is None or asked.k is None:
        raise click.UsageError(f"Missing option '--{'n' if asked.n is None else 'k'}'.")
    from ..interpreter import InterpreterError
    from ..runtime.verify import verify

    problem = asked.problem()
    gpu = (devices.current() if under.backend != "interpreter" else None) or devices.reference()
    tactic = asked.tactic(under.tactic, gpu)
    with progress() as report:
        told = fraction(report, "interpreting")
        try:
            result = verify(tactic, problem, under.backend, under.schedule, under.seeds, under.seed, told)
        except InterpreterError as error:
            name = f"{asked.kernel} {tactic} at {asked.n}x{asked.k}, M = {asked.m}"
            _failed(as_json, {"tactic": str(tactic)}, name, error)
    # One run agrees with itself: nothing to boast of.
    agreement = f"{result.runs} runs {'' if result.bitwise_equal else 'NOT '}bitwise equal, " if result.runs > 1 else ""
    errors = ", ".join(
        f"{'of ' + name + ' ' if len(result.limit) > 1 else ''}{error:.2e} (limit {result.limit[name]:.0e})"
        for name, error in result.relative_error.items()
    )
    stray = f", {result.stray_writes} words WRITTEN outside the results" if result.stray_writes else ""
    _verdict(
        as_json,
        result,
        f"{result.kernel} {result.tactic} at {asked.n}x{asked.k}, M = {asked.m}, {result.backend} ({result.schedule})\n"
        f"relative error {errors}{stray}, "
        f"{agreement}{result.seconds:.2f} s of which {result.execution_seconds:.2f} s running",
    )


def _verify_front(asked: options.Asked, under: Conditions, front: FrontOptions, as_json: bool) -> None:
    if under.seeds != 1 or (asked.n, asked.split, asked.valid) != (None, None, None):
        others = "--m, --ranks, --k, --latent and --experts"
        raise ValueError(f"--n, --split, --valid and --seeds do not belong to front: it takes {others}")
    from ..interpreter import InterpreterError
    from ..runtime import MissingPublisher
    from ..runtime.verify_front import verify_front

    given = {"k": asked.k, "latent": front.latent, "experts": front.experts}
    sizes = KIMI_K3 | {name: value for name, value in given.items() if value is not None}
    problem = FrontProblem.sharded(asked.m, ranks=8 if front.ranks is None else front.ranks, **sizes)
    tactic = None if under.tactic is None else WsGemmTactic.parse(under.tactic)
    transport = front.transport or "local"
    with progress() as report:
        told = fraction(report, "publishing")
        try:
            result = verify_front(problem, tactic, under.backend, under.schedule, transport, under.seed, told)
        except (InterpreterError, MissingPublisher) as error:
            _failed(as_json, {}, f"front of {problem.ranks} ranks", error)
    _verdict(
        as_json,
        result,
        f"front of {result.ranks} ranks ({result.latent} latent, "
        f"{result.experts} experts, K = {result.k}) at M = {result.m}, ws-gemm {result.tactic}, {result.transport}, "
        f"{result.backend} ({result.schedule})\n"
        f"relative error of the latent {result.latent_error:.2e} (limit {BF16_TOLERANCE:.0e}), of the logits "
        f"{result.logits_error:.2e} (limit {F32_TOLERANCE:.0e}), {result.steps} steps, {result.seconds:.2f} s of which "
        f"{result.execution_seconds:.2f} s publishing and collecting",
    )


def _failed(as_json: bool, facts: dict[str, str], what: str, error: Exception) -> NoReturn:
    """Says what kept `what` from its end, and exits with 1."""
    options.show(as_json, {"passed": False, **facts, "reason": str(error)}, f"FAILED: {what}: {error}")
    raise click.exceptions.Exit(1) from error


def _verdict(as_json: bool, result: Any, text: str) -> None:
    """Says whether `result`, a dataclass, has passed, and exits with 1 if not."""
    options.show(as_json, asdict(result), f"{'passed' if result.passed else 'FAILED'}: {text}")
    if not result.passed:
        raise click.exceptions.Exit(1)


@click.command()
@options.kernel
@options.n
@options.k
@options.split
@options.valid
@options.tactic_text
@click.option("--arch", default="sm_90a", show_default=True, help="Architecture to compile for.")
@click.option("--m", default=1, show_default=True, help="Tokens: of the default tactic, and of ws-gemm's binary.")
@options.json_switch
@options.gathered(asked=options.Asked)
def inspect(asked: options.Asked, tactic: str | None, arch: str, as_json: bool) -> None:
    """Compile a kernel and report registers, spills, shared memory and SASS opcode counts."""
    from ..checks import check_choice
    from ..runtime import compile_kernel, sass

    check_choice("arch", arch, devices.architectures())
    gpu = next(gpu for gpu in map(devices.get, devices.names()) if gpu.arch == arch)
    problem, chosen = asked.problem(), asked.tactic(tactic, gpu)
    compiled = compile_kernel(chosen, problem, arch)
    report: dict[str, Any] = {
        "kernel": asked.kernel,
        "tactic": str(chosen),
        "arch": arch,
        "compiled_for": chosen.specialisation(problem),
        "registers": compiled.resources.registers,
        "spill_bytes": compiled.resources.spill_bytes,
        "smem_bytes": compiled.smem_bytes,
        "threads": compiled.block[0],
        "cluster": compiled.cluster[0],
        "cubin_bytes": len(compiled.cubin),
        "sass": sass.opcode_counts(compiled.cubin),
    }
    shown = {
        **report,
        "compiled_for": ", ".join(f"{name} {value}" for name, value in report["compiled_for"].items()),
        "sass": ", ".join(f"{count} {opcode}" for opcode, count in list(report["sass"].items())[:12]),
    }
    options.show(as_json, report, options.facts(shown))
