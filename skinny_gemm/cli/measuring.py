"""Campaigns and decode steps: `bench` records them, others read them; `defaults` and `fit` make files from records."""

import re
from dataclasses import asdict
from pathlib import Path

import click
from click.core import ParameterSource

from .. import device as devices
from .. import records
from ..catalogue import shapes
from ..checks import check_choice
from ..problem import GemmProblem
from .options import CAMPAIGN, DEVICE, KERNEL, PROCESS, SPLIT, VALID, Answer, Given, command, option
from .progress import progress


@command(
    "bench", KERNEL,
    option("--n", type=int, help="Outputs of the one shape to measure."),
    option("--k", type=int, help="Inputs of the one shape to measure."),
    option("--shapes", help="Shapes to measure as NxK, comma-separated."),
    option("--parallel", help="Measure the catalogue's shapes of this split, such as TP8."),
    option("--model", help="Only the catalogue's shapes of this model."),
    SPLIT, VALID,
    option("--m", default="1,2,4,8,16,32,64", help="Comma-separated Ms."),
    option("--also", default="", help="More kernels to measure like KERNEL, comma-separated."),
    option("--tactics", default="default",
           help="default, coarse, full, recorded (the fastest so far, of peers too), or some between spaces."),
    option("--modes", default="isolated,chained",
           help="Comma-separated; also exposed. With :default behind it a mode is of the default tactic only."),
    option("--processes", default="quiet", help="quiet, busy (has used many streams, as a server has), or both."),
    option("--out", type=click.Path(path_type=Path), help="Campaign folder; by default under data/campaigns."),
    option("--peers", default="all", help=f"all, none, or names: {','.join(records.PEERS)}."),
    option("--bounds/--no-bounds", default=True, help="Measure streaming bounds and ceilings."),
    option("--most", type=int, help="Time all tactics of a kernel briefly and only this many of them in full."),
    option("--resume", is_flag=True, help="Continue the campaign in --out."),
    option("--seconds", type=float, help="Stop after this long; --resume continues."),
    option("--limit", type=float, help="Seconds for one tactic, 120 by default; then it has failed."),
    option("--compile-only", metavar="DEVICE",
           help="Measure nothing: fill the cache with all binaries for this GPU, such as h200. Needs none."),
)  # fmt: skip
def bench(given: Given) -> Answer:
    """Measure on the GPU and record a campaign under data/campaigns.

    What is compiled is measured while the rest compiles. With --compile-only nothing is measured, on any machine: a
    cache ($SKINNY_GEMM_CACHE) filled so serves the same command on a host with the GPU.

    KERNEL is a kernel's name, or decode: whole decode steps of a model, Dense 8B or Kimi K3, with our kernels and with
    PyTorch's linear, recorded under data/decode. It takes --model, --m (1,8,16,32 by default) and --out, a file.
    """
    return _bench_decode(given) if given.kernel == "decode" else _bench_kernel(given)


def _bench_decode(given: Given) -> Answer:
    context = click.get_current_context()
    said = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if foreign := [f"--{name}" for name in said if name not in ("kernel", "model", "m", "out", "json")]:
        raise ValueError(f"{', '.join(foreign)} belongs to kernels, not to decode")
    if given.model is None:
        raise click.UsageError("Missing option '--model'.")
    from ..bench import decode
    from ..records.decode import lines, read

    with progress(log=True) as report:
        path = decode.bench(given.model, _ms(given) if "m" in said else decode.MS, given.out, report)
    recorded, steps = read(path)
    return Answer({"file": str(path)}, "\n".join([*lines(recorded, steps), f"recorded in {path}"]))


def _bench_kernel(given: Given) -> Answer:
    from ..bench import campaign, plan
    from ..runtime.cache import cache_dir

    problems, modes = _problems(given), given.modes.split(",")
    tactics = given.tactics if given.tactics in plan.CHOICES else given.tactics.split()
    peers = {"all": records.PEERS, "none": ()}.get(given.peers, given.peers.split(","))
    more = dict(processes=given.processes.split(","), most=given.most, also=[k for k in given.also.split(",") if k])
    request = plan.Request(given.kernel, problems, _ms(given), tactics, modes, peers, given.bounds, **more)
    limit_s = campaign.LIMIT_S if given.limit is None else given.limit
    if given.compile_only is not None:
        with progress(log=True) as report:
            wrong, left_out = campaign.compile_only(request, devices.get(given.compile_only), report)
        failed = [f"{point}: {reason}" for point, reason in wrong.items()]
        found = {"cache": str(cache_dir()), "failed": failed, "left_out": left_out}
        return Answer(
            found, "\n".join([f"compiled into {cache_dir()}", *failed, *(f"left out: {s}" for s in left_out)])
        )
    with progress(log=True) as report:
        folder = campaign.bench(request, given.out, given.resume, given.seconds, limit_s, report)
    complete = records.load_campaign(folder).complete
    text = f"recorded in {folder}" if complete else f"incomplete: continue with --resume --out {folder}"
    return Answer({"campaign": folder.name, "folder": str(folder), "complete": complete}, text)


def _ms(given: Given) -> list[int]:
    try:
        return [int(part) for part in given.m.split(",")]
    except ValueError:
        raise ValueError(f"--m is {given.m!r}, but must be comma-separated integers") from None


def _problems(given: Given) -> list[GemmProblem]:
    """Each weight as a problem of one token; ValueError if the options contradict each other."""
    if (given.n is None) != (given.k is None):
        raise ValueError("--n and --k belong together: give both or neither")
    is_front = (given.split, given.valid) != (None, None)
    if given.n is not None:
        return [Given(**vars(given) | {"m": 1}).problem() if is_front else GemmProblem(1, given.n, given.k)]
    if given.shapes is not None:
        texts = given.shapes.split(",")
        if wrong := [text for text in texts if not re.fullmatch(r"\d+x\d+", text)]:
            raise ValueError(f"shape {wrong[0]!r} is not written NxK, such as 3584x7168")
        weights = [(int(n), int(k)) for n, k in (text.split("x") for text in texts)]
    else:
        weights = _catalogued(given.model, given.parallel)
    if is_front:
        raise ValueError("--split and --valid describe one weight: give its --n and --k")
    return [GemmProblem(1, n, k) for n, k in weights]


def _catalogued(model: str | None, parallel: str | None) -> list[tuple[int, int]]:
    weights = [(s.n, s.k) for s in shapes() if parallel in (None, s.parallel) and model in (None, s.model)]
    if not weights:
        known = sorted({f"{s.model} {s.parallel}" for s in shapes()})
        asked = f"{model or 'any model'} {parallel or ''}".strip()
        raise ValueError(f"no shape of the catalogue is of {asked}: known are {', '.join(known)}")
    return weights


@command(
    "compare", click.Argument(["first"], metavar="CAMPAIGN"), click.Argument(["second"], metavar="CAMPAIGN"),
    option("--tolerance", default=0.01, help="Fraction up to which two times are the SAME."),
)  # fmt: skip
def compare(given: Given) -> Answer:
    """Compare the second campaign with the first, point by point: FASTER, SLOWER, SAME or UNDECIDED.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from ..records.comparison import compare

    comparison = compare(given.first, given.second, given.tolerance)
    return Answer(comparison.report(), "\n".join(comparison.lines()))


@command("summary", CAMPAIGN, option("--process", help="Only what this process measured, quiet or busy."))
def summary(given: Given) -> Answer:
    """Show a campaign in one table: our best tactics, the streaming bound and the peers, problem by problem.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from ..records.best import measured_in
    from ..records.standing import summary

    if given.process is not None:
        check_choice("process", given.process, records.PROCESSES)
    described, rows = records.read_campaign(records.store.campaign_folder(given.campaign))
    lines = summary(described, rows if given.process is None else measured_in(given.process, rows))
    return Answer({"campaign": asdict(described), "lines": lines}, "\n".join(lines))


@command("decode", click.Argument(["run"], metavar="RUN"))
def decode(given: Given) -> Answer:
    """Show a recorded decode step: microseconds with PyTorch's linear and with ours, the speed-up, and the errors.

    RUN is an id under data/decode, or a file.
    """
    from ..records.decode import find, lines, read

    recorded, steps = read(find(given.run))
    plain = [asdict(step) | {"interval": asdict(step.interval)} for step in steps]
    return Answer({"campaign": asdict(recorded), "steps": plain}, "\n".join(lines(recorded, steps)))


@command("pruning", CAMPAIGN)
def pruning(given: Given) -> Answer:
    """Show what the coarse grid of tactics costs, by a campaign of full sweeps.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from ..records.pruning import costs_of, lines

    swept = costs_of(*records.read_campaign(records.store.campaign_folder(given.campaign)))
    plain = [asdict(cost) | {"cost": cost.cost, "verdict": str(cost.verdict)} for cost in swept]
    return Answer(plain, "\n".join(lines(swept)))


@command("standing", PROCESS, DEVICE)
def standing(given: Given) -> Answer:
    """Show how our best compares with the peers' best, over all records of a device."""
    from ..records.standing import standing

    name = devices.get(given.device).name
    lines = standing((row for row in records.rows() if row.device == name), given.process)
    return Answer({"device": name, "lines": lines}, "\n".join(lines))


@command("defaults")
def defaults(given: Given) -> Answer:
    """Write data/best.csv, the default tactics, anew from the records."""
    from ..records.best import write_defaults

    path = write_defaults()
    return Answer({"file": str(path)}, f"wrote {path}")


@command("fit", option("--show", is_flag=True, help="Print the model that is there instead, and its error."))
def fit(given: Given) -> Answer:
    """Fit the performance model to the records and write it to data/model.json."""
    from ..records import fit, model

    if given.show:
        fits = [
            {"kernel": kernel, "mode": mode, "process": process, **asdict(fitted)}
            for (kernel, mode, process), fitted in model.fits().items()
        ]
        return Answer(fits, "\n".join(fit.lines()))
    path = fit.write_fit()
    return Answer({"file": str(path)}, f"wrote {path}")
