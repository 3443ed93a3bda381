"""Campaigns: `bench` records one; `compare`, `summary`, `pruning` and `standing` read them."""

from dataclasses import asdict, dataclass
from pathlib import Path

import click

from .. import device as devices
from .. import records
from ..catalogue import shapes
from ..problem import GemmProblem
from . import options
from .progress import progress


@dataclass(frozen=True)
class Shapes:
    """The options that say which weights to measure."""

    kernel: str
    n: int | None
    k: int | None
    listed: str | None
    parallel: str | None
    model: str | None
    split: int | None
    valid: int | None

    def problems(self) -> list[GemmProblem]:
        """Each weight as a problem of one token; ValueError if the options contradict each other."""
        if (self.n is None) != (self.k is None):
            raise ValueError("--n and --k belong together: give both or neither")
        fronts = (self.split, self.valid) != (None, None)
        if self.n is not None and self.k is not None:
            asked = options.Asked(self.kernel, 1, self.n, self.k, self.split, self.valid)
            return [asked.problem() if fronts else GemmProblem(1, self.n, self.k)]
        if self.listed is not None:
            wanted = [_shape(text) for text in self.listed.split(",")]
        else:
            wanted = self._catalogued()
        if fronts:
            raise ValueError("--split and --valid describe one weight: give its --n and --k")
        return [GemmProblem(1, n, k) for n, k in wanted]

    def _catalogued(self) -> list[tuple[int, int]]:
        parallel, model = self.parallel, self.model
        wanted = [(s.n, s.k) for s in shapes() if parallel in (None, s.parallel) and model in (None, s.model)]
        if not wanted:
            known = sorted({f"{s.model} {s.parallel}" for s in shapes()})
            asked = f"{model or 'any model'} {parallel or ''}".strip()
            raise ValueError(f"no shape of the catalogue is of {asked}: known are {', '.join(known)}")
        return wanted


@dataclass(frozen=True)
class Sweep:
    """The options that say what to measure of each weight."""

    m: str
    tactics: str
    modes: str
    peers: str
    bounds: bool


@dataclass(frozen=True)
class Recording:
    """The options that say where a campaign goes and when it stops."""

    out: Path | None
    resume: bool
    seconds: float | None
    limit: float | None


@click.command()
@options.kernel
@click.option("--n", type=int, help="Outputs of the one shape to measure.")
@click.option("--k", type=int, help="Inputs of the one shape to measure.")
@click.option("--shapes", "listed", help="Shapes to measure as NxK, comma-separated.")
@click.option("--parallel", help="Measure the catalogue's shapes of this split, such as TP8.")
@click.option("--model", help="Only the catalogue's shapes of this model.")
@options.split
@options.valid
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
@options.json_switch
@options.gathered(wanted=Shapes, sweep=Sweep, recording=Recording)
def bench(wanted: Shapes, sweep: Sweep, recording: Recording, as_json: bool) -> None:
    """Measure on the GPU and record a campaign under data/campaigns."""
    from ..bench.campaign import LIMIT_S
    from ..bench.campaign import bench as measure
    from ..bench.plan import Request
    from ..tactics.sweep import CHOICES

    request = Request(
        wanted.kernel,
        wanted.problems(),
        _integers(sweep.m, "--m"),
        sweep.tactics if sweep.tactics in CHOICES else sweep.tactics.split(),
        sweep.modes.split(","),
        {"all": records.PEERS, "none": ()}.get(sweep.peers, sweep.peers.split(",")),
        sweep.bounds,
    )
    limit_s = LIMIT_S if recording.limit is None else recording.limit
    with progress(log=True) as report:
        folder = measure(request, recording.out, recording.resume, recording.seconds, limit_s=limit_s, progress=report)
    complete = records.load_campaign(folder).complete
    text = f"recorded in {folder}" if complete else f"incomplete: continue with --resume --out {folder}"
    options.show(as_json, {"campaign": folder.name, "folder": str(folder), "complete": complete}, text)


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


@click.command()
@click.argument("first", metavar="CAMPAIGN")
@click.argument("second", metavar="CAMPAIGN")
@click.option("--tolerance", default=0.01, show_default=True, help="Fraction up to which two times are the SAME.")
@options.json_switch
def compare(first: str, second: str, tolerance: float, as_json: bool) -> None:
    """Compare the second campaign with the first, point by point: FASTER, SLOWER, SAME or UNDECIDED.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from ..records.comparison import compare

    comparison = compare(first, second, tolerance)
    options.show(as_json, comparison.report(), "\n".join(comparison.lines()))


@click.command()
@options.campaign
@options.json_switch
def summary(campaign: str, as_json: bool) -> None:
    """Show a campaign in one table: our best tactics, the streaming bound and the peers, problem by problem.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from ..records.standing import summary

    described, rows = records.read_campaign(records.campaign_folder(campaign))
    lines = summary(described, rows)
    options.show(as_json, {"campaign": asdict(described), "lines": lines}, "\n".join(lines))


@click.command()
@options.campaign
@options.json_switch
def pruning(campaign: str, as_json: bool) -> None:
    """Show what the coarse grid of tactics costs, by a campaign of full sweeps.

    CAMPAIGN is an id under data/campaigns, or a folder.
    """
    from ..records.pruning import costs_of, lines

    swept = costs_of(*records.read_campaign(records.campaign_folder(campaign)))
    plain = [asdict(cost) | {"cost": cost.cost, "verdict": str(cost.verdict)} for cost in swept]
    options.show(as_json, plain, "\n".join(lines(swept)))


@click.command()
@options.device_name
@options.json_switch
def standing(device: str, as_json: bool) -> None:
    """Show how our best compares with the peers' best, over all records of a device."""
    from ..records.standing import standing

    name = devices.get(device).name
    lines = standing(row for row in records.rows() if row.device == name)
    options.show(as_json, {"device": name, "lines": lines}, "\n".join(lines))
