"""The command line: `python -m skinny_gemm COMMAND`, every command with `--json` for machines.

Bad input is one line on stderr and exit status 2; a check that fails is exit status 1.
"""

import dataclasses
import json
import os
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import click

from . import device as devices
from .catalogue import Shape, shapes
from .problem import FrontProblem, GemmProblem
from .tactics import KERNELS, Tactic, tactic_type
from .tactics.base import BF16_TOLERANCE, F32_TOLERANCE

kernel = click.argument("kernel", metavar="KERNEL")
m = click.option("--m", type=int, required=True, help="Tokens (rows of x).")
n = click.option("--n", type=int, required=True, help="Outputs (rows of the weight).")
k = click.option("--k", type=int, required=True, help="Inputs (columns of the weight).")
device_name = click.option("--device", default="h200", show_default=True, help="Whose limits apply.")
tactic_text = click.option("--tactic", help="Comma-separated fields; the default tactic if absent.")
split = click.option("--split", type=int, help="Of a front: router rows, padding included; the latent's follow.")
valid = click.option("--valid", type=int, help="Of a front: router rows that are experts; --split by default.")
TACTICS_SHOWN = 400  #: as text: every one of warp split-K, the first of the thousands of the weight-stationary GEMM
json_switch = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def cli() -> None:
    """Skinny GEMM kernels for LLM decode: look at them, check them, measure them."""


def _show(as_json: bool, value: Any, text: str) -> None:
    print(json.dumps(value, indent=2) if as_json else text)


def _columns(rows: list[tuple]) -> str:
    """Rows as left-aligned columns."""
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _lines(facts: dict[str, Any]) -> str:
    return _columns([(name, "none" if value is None else value) for name, value in facts.items()])


def _tactic(kernel: str, text: str | None, problem: GemmProblem, device: devices.Device) -> Tactic:
    """The tactic written as `text`, or the default one; ValueError if it cannot run `problem`."""
    kind = tactic_type(kernel)
    if text is None:
        return kind.default(problem, device)
    tactic = kind.parse(text)
    tactic.check(problem, device)
    return tactic


def _problem(kernel: str, m: int, n: int, k: int, split: int | None = None, valid: int | None = None) -> GemmProblem:
    """The problem as `kernel` sees it; ValueError if `split` or `valid` is given and it knows no fronts."""
    problem = tactic_type(kernel).problem(GemmProblem(m, n, k))
    if split is None and valid is None:
        return problem
    if not isinstance(problem, FrontProblem):
        raise ValueError(f"--split and --valid describe the weight of a front, which is nothing to {kernel}")
    if split is None:
        split = -(-valid // 16) * 16
    if valid is None:
        valid = split
    if (split, valid) == (problem.split, problem.valid):
        return problem  # a known front's latent and experts are those of all its ranks
    return FrontProblem(m, n, k, split, valid)


def _shape(text: str) -> tuple[int, int]:
    """(N, K) of a shape written `3584x7168`."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"shape {text!r} is not written NxK, such as 3584x7168")
    return int(parts[0]), int(parts[1])


def _integers(text: str, name: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} is {text!r}, but must be comma-separated integers") from None


@cli.command()
@json_switch
def doctor(as_json: bool) -> None:
    """Report versions, GPU, backend, tools, cache and recorded campaigns."""
    from .cli.doctor import doctor

    report = doctor()
    flat = {**report, **report["packages"]}
    flat["campaigns"] = "; ".join(f"{name} ({line})" for name, line in report["campaigns"].items()) or None
    del flat["packages"]
    _show(as_json, report, _lines(flat))


@cli.command("shapes")
@device_name
@json_switch
def list_shapes(device: str, as_json: bool) -> None:
    """List the shape catalogue, and which kernels take each shape or why they do not."""
    gpu = devices.get(device)
    rows = [{**dataclasses.asdict(shape), "kernels": _support(shape, gpu)} for shape in shapes()]
    table = [("model", "parallel", "projection", "N", "K", "kernels")]
    for row in rows:
        *shape, kernels = row.values()
        said = "; ".join(kind if verdict is True else f"not {kind}: {verdict}" for kind, verdict in kernels.items())
        table.append((*shape, said))
    _show(as_json, rows, _columns(table))


def _support(shape: Shape, gpu: devices.Device) -> dict[str, bool | str]:
    """For each kernel True, or why it cannot take `shape`."""
    problem = GemmProblem(1, shape.n, shape.k)
    return {name: kind.unsupported(problem, gpu) or True for name, kind in KERNELS.items()}


@cli.command()
@kernel
@m
@n
@k
@split
@valid
@device_name
@json_switch
def tactics(kernel: str, m: int, n: int, k: int, split, valid, device: str, as_json: bool) -> None:
    """List the legal tactics of a problem with their footprints; the default comes first."""
    problem, gpu, kind = _problem(kernel, m, n, k, split, valid), devices.get(device), tactic_type(kernel)
    default = kind.default(problem, gpu)
    legal = [default, *(tactic for tactic in kind.enumerate(problem, gpu) if tactic != default)]
    rows = []
    for tactic in legal if as_json else []:
        footprint = dataclasses.asdict(tactic.footprint(problem, gpu))
        del footprint["regions"]
        fields = dataclasses.asdict(tactic)
        rows.append({"tactic": str(tactic), **fields, "default": tactic == default, **footprint})
    fields = ",".join(field.name for field in dataclasses.fields(kind))
    shown = [(tactic, tactic.footprint(problem, gpu)) for tactic in legal[:TACTICS_SHOWN]]
    text = f"{len(legal):,} legal tactics ({fields}), the default first\n" + _columns(
        [(str(tactic), f"{footprint.smem_bytes:,} B", footprint.describe()) for tactic, footprint in shown]
    )
    if len(legal) > len(shown):
        text += f"\nand {len(legal) - len(shown):,} more: --json lists all"
    _show(as_json, rows, text)


@cli.command()
@kernel
@m
@click.option("--n", type=int, help="Outputs (rows of the weight); a front's follow from its other options.")
@click.option("--k", type=int, help="Inputs (columns of the weight); of a front, by default Kimi K3's.")
@split
@valid
@tactic_text
@click.option("--backend", default="auto", show_default=True, help="auto, interpreter or cuda.")
@click.option("--schedule", default="in_order", show_default=True, help="The interpreter's: in_order or adversarial.")
@click.option("--seeds", default=1, show_default=True, help="Adversarial schedules to try, or runs on a GPU.")
@click.option("--seed", type=int, help="Seed of the random data; fresh if absent.")
@click.option("--ranks", type=int, help="front: virtual ranks, 8 by default.")
@click.option("--transport", help="front: local, peers or multicast (interpreter only); local by default.")
@click.option("--latent", type=int, help="front: latent of all ranks, by default Kimi K3's.")
@click.option("--experts", type=int, help="front: experts of all ranks, by default Kimi K3's.")
@json_switch
def verify(
    kernel, m, n, k, split, valid, tactic, backend, schedule, seeds, seed, ranks, transport, latent, experts, as_json
) -> None:
    """Run a kernel on random data and compare with FP64.

    KERNEL is a kernel's name, or front: virtual ranks publish in turn and a consumer gathers the whole MoE front.
    """
    if kernel == "front":
        if seeds != 1 or (n, split, valid) != (None, None, None):
            others = "--m, --ranks, --k, --latent and --experts"
            raise ValueError(f"--n, --split, --valid and --seeds do not belong to front: it takes {others}")
        _verify_front(m, k, latent, experts, ranks, tactic, backend, schedule, transport or "local", seed, as_json)
        return
    of_front = {"--ranks": ranks, "--transport": transport, "--latent": latent, "--experts": experts}
    if given := [option for option, value in of_front.items() if value is not None]:
        raise ValueError(f"{', '.join(given)} belongs to front, not to {kernel}")
    if n is None or k is None:
        raise click.UsageError(f"Missing option '--{'n' if n is None else 'k'}'.")
    from .interpreter import InterpreterError
    from .runtime import verify as checking

    problem = _problem(kernel, m, n, k, split, valid)
    gpu = (devices.current() if backend != "interpreter" else None) or devices.get("h200")
    chosen = _tactic(kernel, tactic, problem, gpu)
    with _progress("interpreting") as report:
        try:
            result = checking.verify(chosen, problem, backend, schedule, seeds, seed, report)
        except InterpreterError as error:
            failure = {"passed": False, "tactic": str(chosen), "reason": str(error)}
            _show(as_json, failure, f"FAILED: {kernel} {chosen} at {n}x{k}, M = {m}: {error}")
            raise click.exceptions.Exit(1) from error
    verdict = "passed" if result.passed else "FAILED"
    # One run agrees with itself: nothing to boast of.
    agreement = f"{result.runs} runs {'' if result.bitwise_equal else 'NOT '}bitwise equal, " if result.runs > 1 else ""
    errors = ", ".join(
        f"{'of ' + name + ' ' if len(result.limit) > 1 else ''}{error:.2e} (limit {result.limit[name]:.0e})"
        for name, error in result.relative_error.items()
    )
    stray = f", {result.stray_writes} words WRITTEN outside the results" if result.stray_writes else ""
    text = (
        f"{verdict}: {result.kernel} {result.tactic} at {n}x{k}, M = {m}, {result.backend} ({result.schedule})\n"
        f"relative error {errors}{stray}, "
        f"{agreement}{result.seconds:.2f} s of which {result.execution_seconds:.2f} s running"
    )
    _show(as_json, dataclasses.asdict(result), text)
    if not result.passed:
        raise click.exceptions.Exit(1)


def _verify_front(m, k, latent, experts, ranks, tactic, backend, schedule, transport, seed, as_json) -> None:
    from .interpreter import InterpreterError
    from .problem import KIMI_K3, FrontProblem
    from .runtime.mailbox import MissingPublisher
    from .runtime.verify_front import verify_front

    asked = {"k": k, "latent": latent, "experts": experts}
    sizes = {name: KIMI_K3[name] if value is None else value for name, value in asked.items()}
    front = FrontProblem.sharded(m, ranks=8 if ranks is None else ranks, **sizes)
    chosen = None if tactic is None else tactic_type("ws-gemm").parse(tactic)
    with _progress("publishing") as report:
        try:
            result = verify_front(front, chosen, backend, schedule, transport, seed, report)
        except (InterpreterError, MissingPublisher) as error:
            _show(as_json, {"passed": False, "reason": str(error)}, f"FAILED: front of {front.ranks} ranks: {error}")
            raise click.exceptions.Exit(1) from error
    text = (
        f"{'passed' if result.passed else 'FAILED'}: front of {result.ranks} ranks ({result.latent} latent, "
        f"{result.experts} experts, K = {result.k}) at M = {result.m}, ws-gemm {result.tactic}, {result.transport}, "
        f"{result.backend} ({result.schedule})\n"
        f"relative error of the latent {result.latent_error:.2e} (limit {BF16_TOLERANCE:.0e}), of the logits "
        f"{result.logits_error:.2e} (limit {F32_TOLERANCE:.0e}), {result.steps} steps, {result.seconds:.2f} s of which "
        f"{result.execution_seconds:.2f} s publishing and collecting"
    )
    _show(as_json, dataclasses.asdict(result), text)
    if not result.passed:
        raise click.exceptions.Exit(1)


class _progress:
    """A progress bar on stderr for what takes over two seconds; silent where stderr is no terminal."""

    def __init__(self, what: str):
        self.what, self.bar = what, None

    def __enter__(self):
        return self.update

    def update(self, fraction: float) -> None:
        if not sys.stderr.isatty():
            return
        if self.bar is None:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task(self.what, total=1.0)
            self.bar.start()
        self.bar.update(self.task, completed=fraction)

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.stop()


@cli.command()
@kernel
@n
@k
@split
@valid
@tactic_text
@click.option("--arch", default="sm_90a", show_default=True, help="Architecture to compile for.")
@click.option("--m", default=1, show_default=True, help="Tokens: of the default tactic, and of ws-gemm's binary.")
@json_switch
def inspect(kernel, n, k, split, valid, tactic, arch, m, as_json) -> None:
    """Compile a kernel and report registers, spills, shared memory and SASS opcode counts."""
    from .runtime import ARCHITECTURES, compile_kernel, sass

    if arch not in ARCHITECTURES:
        raise ValueError(f"arch is {arch!r}, but must be one of {', '.join(ARCHITECTURES)}")
    gpu = next(gpu for gpu in map(devices.get, devices.names()) if gpu.arch == arch)
    problem = _problem(kernel, m, n, k, split, valid)
    chosen = _tactic(kernel, tactic, problem, gpu)
    compiled = compile_kernel(chosen, problem, arch)
    report = {
        "kernel": kernel,
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
    _show(as_json, report, _lines(shown))


@cli.command()
@kernel
@click.option("--n", type=int, help="Outputs of the one shape to measure.")
@click.option("--k", type=int, help="Inputs of the one shape to measure.")
@click.option("--shapes", "listed", help="Shapes to measure as NxK, comma-separated.")
@click.option("--parallel", help="Measure the catalogue's shapes of this split, such as TP8.")
@click.option("--model", help="Only the catalogue's shapes of this model.")
@split
@valid
@click.option("--m", default="1,2,4,8,16,32,64", show_default=True, help="Comma-separated Ms.")
@click.option("--tactics", default="default", show_default=True, help="default, coarse, full, or some between spaces.")
@click.option(
    "--modes",
    default="isolated,chained",
    show_default=True,
    help="Comma-separated; also exposed. With :default behind it a mode is of the default tactic only.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Campaign folder; by default under data/campaigns.")
@click.option("--peers", default="all", show_default=True, help="all, none, or names: cublas,triton,flashinfer.")
@click.option("--bounds/--no-bounds", default=True, show_default=True, help="Measure streaming bounds and ceilings.")
@click.option("--resume", is_flag=True, help="Continue the campaign in --out.")
@click.option("--seconds", type=float, help="Stop after this long; --resume continues.")
@click.option("--limit", type=float, help="Seconds for one tactic, 120 by default; then it has failed.")
@json_switch
def bench(
    kernel,
    n,
    k,
    listed,
    parallel,
    model,
    split,
    valid,
    m,
    tactics,
    modes,
    out,
    peers,
    bounds,
    resume,
    seconds,
    limit,
    as_json,
) -> None:
    """Measure on the GPU and record a campaign under data/campaigns."""
    from .bench.campaign import bench as measure
    from .bench.worker import LIMIT_S
    from .records import load_campaign
    from .tactics.sweep import CHOICES

    if (n is None) != (k is None):
        raise ValueError("--n and --k belong together: give both or neither")
    if n is not None:
        wanted = [(n, k)]
    elif listed is not None:
        wanted = [_shape(text) for text in listed.split(",")]
    else:
        wanted = [(s.n, s.k) for s in shapes() if parallel in (None, s.parallel) and model in (None, s.model)]
        if not wanted:
            known = sorted({f"{s.model} {s.parallel}" for s in shapes()})
            asked = f"{model or 'any model'} {parallel or ''}".strip()
            raise ValueError(f"no shape of the catalogue is of {asked}: known are {', '.join(known)}")
    fronts = {}
    if (split, valid) != (None, None):
        if n is None:
            raise ValueError("--split and --valid describe one weight: give its --n and --k")
        fronts[n, k] = _problem(kernel, 1, n, k, split, valid)
    folder = measure(
        kernel,
        wanted,
        _integers(m, "--m"),
        tactics if tactics in CHOICES else tactics.split(),
        modes.split(","),
        out=out,
        peers=peers == "all" if peers in ("all", "none") else peers.split(","),
        bounds=bounds,
        resume=resume,
        seconds_budget=seconds,
        limit_s=LIMIT_S if limit is None else limit,
        fronts=fronts,
    )
    complete = load_campaign(folder).complete
    text = f"recorded in {folder}" if complete else f"incomplete: continue with --resume --out {folder}"
    _show(as_json, {"campaign": folder.name, "folder": str(folder), "complete": complete}, text)


@cli.command()
@click.argument("first", metavar="CAMPAIGN")
@click.argument("second", metavar="CAMPAIGN")
@click.option("--tolerance", default=0.01, show_default=True, help="Fraction up to which two times are the SAME.")
@json_switch
def compare(first, second, tolerance, as_json) -> None:
    """Compare the second campaign with the first, point by point: FASTER, SLOWER, SAME or UNDECIDED.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from .records.comparison import compare

    found = compare(first, second, tolerance)
    _show(as_json, found.report(), "\n".join(found.lines()))


@cli.command()
@click.argument("name", metavar="NAME")
@kernel
@m
@n
@k
@split
@valid
@tactic_text
@device_name
@click.option("--mode", default="chained", show_default=True, help="Recorded launches: isolated, chained or exposed.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/figures"), show_default=True)
@json_switch
def figure(name, kernel, m, n, k, split, valid, tactic, device, mode, out, as_json) -> None:
    """Write a figure as SVG, PDF and PNG with its data and provenance.

    NAME is bandwidth (against M), roofline, tactic-fields (bandwidth against each field), sensitivity (what one step of
    each control does), smem (shared-memory map), or all. Every file says what of it is recorded and what the model's.
    """
    from .figures.export import export
    from .figures.views import tactic_view

    problem, gpu = _problem(kernel, m, n, k, split, valid), devices.get(device)
    view = tactic_view(kernel, _tactic(kernel, tactic, problem, gpu), problem, gpu, mode)
    figures = {stem.removeprefix(f"{view.stem}-"): (stem, parts) for stem, parts in view.figures().items()}
    if name != "all" and name not in figures:
        raise ValueError(f"figure {name!r} is unknown: known are {', '.join(figures)} and all")
    wanted = figures.values() if name == "all" else [figures[name]]
    paths = [str(path) for stem, parts in wanted for path in export(*parts, out / stem)]
    _show(as_json, {"files": paths}, "\n".join(paths))


@cli.command("best")
@n
@k
@m
@click.option("--mode", default="chained", show_default=True, help="Launches: isolated, chained or exposed.")
@device_name
@click.option("--kernel", help="Only this kernel; by default all compete.")
@json_switch
def best_tactic(n, k, m, mode, device, kernel, as_json) -> None:
    """Answer from the records which tactic is best, how sure, and how far from its bound and the peers."""
    from .records.sentences import answer

    problem, gpu = GemmProblem(m, n, k), devices.get(device)
    if kernel is not None:
        tactic_type(kernel)
    found, text = answer(problem.n, problem.k, problem.m, mode, gpu.name, kernel)
    _show(as_json, dataclasses.asdict(found), textwrap.fill(text, 100, break_on_hyphens=False))


@cli.command()
@n
@k
@m
@click.option("--candidates", multiple=True, help="KERNEL:TACTIC ...; by default those worth a look.")
@click.argument("more", nargs=-1, metavar="[KERNEL:TACTIC]...")
@click.option("--mode", default="chained", show_default=True, help="Launches: isolated, chained or exposed.")
@device_name
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The pack's folder; an earlier pack goes.")
@json_switch
def review(n, k, m, candidates, more, mode, device, out, as_json) -> None:
    """Write a design review pack: one PDF, every page as SVG and PNG, data, provenance, the command that repeats it.

    The candidates are compared with the first of them and with the peers, from the records.
    """
    from .analysis.review import design_review
    from .report import pack

    texts = [text for given in (*candidates, *more) for text in given.split()]
    found = design_review(GemmProblem(m, n, k), devices.get(device), mode, texts)
    with _progress("writing") as report:
        folder = pack.write(found, out, report)
    paths = [str(path) for path in pack.files(folder)]
    recommended = found.winner and str(found.winner)
    text = "\n".join([f"wrote {paths[0]} and {len(paths) - 1} files beside it", found.headline(), *found.answer()])
    _show(as_json, {"folder": str(folder), "recommended": recommended, "files": paths}, text)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
        return _run(arguments)


def _run(arguments: list[str] | None) -> int:
    try:
        status = cli.main(arguments, prog_name="python -m skinny_gemm", standalone_mode=False) or 0
        if sys.stdout:  # None where it is closed
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except click.exceptions.NoArgsIsHelpError as request:
        print(request.format_message())
        return 2
    except click.ClickException as error:
        message = error.format_message()
        if message.startswith("No such command"):
            message += f" Known are {', '.join(cli.commands)}."
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except (ValueError, MemoryError, OverflowError) as error:
        message = str(error)
    except (KeyboardInterrupt, click.Abort):
        print("interrupted", file=sys.stderr)
        return 130
    except RuntimeError as error:  # the CUDA driver's, such as a lost context
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # tearing down the compiler's modules would take 0.7 s
