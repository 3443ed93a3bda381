"""Answers from the records: `figure`, `best`, `review`."""

import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from .. import device as devices
from ..problem import GemmProblem
from ..tactics import tactic_type
from .options import DEVICE, KERNEL, MODE, PROCESS, SPLIT, TACTIC, VALID, Answer, Given, K, M, N, command, option
from .progress import progress

FOLDER = click.Path(path_type=Path)


@command(
    "figure", click.Argument(["name"], metavar="NAME"), KERNEL, M, N, K, SPLIT, VALID, TACTIC, DEVICE,
    option("--mode", default="chained", help="Recorded launches: isolated, chained or exposed."), PROCESS,
    option("--out", type=FOLDER, default=Path("build/figures")),
)  # fmt: skip
def figure(given: Given) -> Answer:
    """Write a figure as SVG, PDF and PNG with its data and provenance.

    NAME is bandwidth (against M), roofline, tactic-fields (bandwidth against each field), sensitivity (what one step of
    each control does), smem (shared-memory map), or all. Every file says what of it is recorded and what the model's.
    """
    from ..figures.export import export
    from ..figures.views import tactic_view

    problem, gpu, name = given.problem(), devices.get(given.device), given.name
    view = tactic_view(given.kernel, given.chosen(gpu), problem, gpu, given.mode, process=given.process)
    figures = {stem.removeprefix(f"{view.stem}-"): (stem, parts) for stem, parts in view.figures().items()}
    if name != "all" and name not in figures:
        raise ValueError(f"figure {name!r} is unknown: known are {', '.join(figures)} and all")
    wanted = figures.values() if name == "all" else [figures[name]]
    paths = [str(path) for stem, parts in wanted for path in export(*parts, given.out / stem)]
    return Answer({"files": paths}, "\n".join(paths))


@command("best", N, K, M, MODE, PROCESS, DEVICE, option("--kernel", help="Only this kernel; by default all compete."))
def best(given: Given) -> Answer:
    """Answer from the records which tactic is best, how sure, and how far from its bound and the peers."""
    from ..records.sentences import answer

    problem, gpu = GemmProblem(given.m, given.n, given.k), devices.get(given.device)
    if given.kernel is not None:
        tactic_type(given.kernel)
    fastest, text = answer(problem.n, problem.k, problem.m, given.mode, gpu.name, given.kernel, given.process)
    return Answer(asdict(fastest), textwrap.fill(text, 100, break_on_hyphens=False))


@command(
    "review", N, K, M, option("--candidates", multiple=True, help="KERNEL:TACTIC ...; by default those worth a look."),
    click.Argument(["more"], nargs=-1, metavar="[KERNEL:TACTIC]..."), MODE, PROCESS, DEVICE,
    option("--out", type=FOLDER, required=True, help="The pack's folder; an earlier pack goes."),
)  # fmt: skip
def review(given: Given) -> Answer:
    """Write a design review pack: one PDF, every page as SVG and PNG, data, provenance, the command that repeats it.

    The candidates are compared with the first of them and with the peers, from the records.
    """
    from ..analysis.review import design_review
    from ..report import pack

    candidates = " ".join([*given.candidates, *given.more]).split()
    problem, gpu = GemmProblem(given.m, given.n, given.k), devices.get(given.device)
    reviewed = design_review(problem, gpu, given.mode, candidates, process=given.process)
    with progress() as report:
        folder = pack.write(reviewed, given.out, partial(report, "writing"))
    paths, recommended = [str(path) for path in pack.files(folder)], reviewed.winner and str(reviewed.winner)
    wrote = f"wrote {paths[0]} and {len(paths) - 1} files beside it"
    text = "\n".join([wrote, reviewed.headline(), *reviewed.answer()])
    return Answer({"folder": str(folder), "recommended": recommended, "files": paths}, text)
