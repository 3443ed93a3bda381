"""Answers from the records: `figure`, `best`, `review`."""

import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from .. import device as devices
from ..problem import GemmProblem
from ..tactics import tactic_type
from . import options
from .progress import fraction, progress


@click.command()
@click.argument("name", metavar="NAME")
@options.kernel
@options.m
@options.n
@options.k
@options.split
@options.valid
@options.tactic_text
@options.device_name
@click.option("--mode", default="chained", show_default=True, help="Recorded launches: isolated, chained or exposed.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/figures"), show_default=True)
@options.json_switch
@options.gathered(asked=options.Asked)
def figure(
    name: str, asked: options.Asked, tactic: str | None, device: str, mode: str, out: Path, as_json: bool
) -> None:
    """Write a figure as SVG, PDF and PNG with its data and provenance.

    NAME is bandwidth (against M), roofline, tactic-fields (bandwidth against each field), sensitivity (what one step of
    each control does), smem (shared-memory map), or all. Every file says what of it is recorded and what the model's.
    """
    from ..figures.export import export
    from ..figures.views import tactic_view

    problem, gpu = asked.problem(), devices.get(device)
    view = tactic_view(asked.kernel, asked.tactic(tactic, gpu), problem, gpu, mode)
    figures = {stem.removeprefix(f"{view.stem}-"): (stem, parts) for stem, parts in view.figures().items()}
    if name != "all" and name not in figures:
        raise ValueError(f"figure {name!r} is unknown: known are {', '.join(figures)} and all")
    wanted = figures.values() if name == "all" else [figures[name]]
    paths = [str(path) for stem, parts in wanted for path in export(*parts, out / stem)]
    options.show(as_json, {"files": paths}, "\n".join(paths))


@dataclass(frozen=True)
class Question:
    """A problem whose answer is looked up, whatever kernel gives it."""

    n: int
    k: int
    m: int
    mode: str
    device: str

    def problem(self) -> GemmProblem:
        return GemmProblem(self.m, self.n, self.k)


@click.command()
@options.n
@options.k
@options.m
@click.option("--mode", default="chained", show_default=True, help="Launches: isolated, chained or exposed.")
@options.device_name
@click.option("--kernel", help="Only this kernel; by default all compete.")
@options.json_switch
@options.gathered(question=Question)
def best(question: Question, kernel: str | None, as_json: bool) -> None:
    """Answer from the records which tactic is best, how sure, and how far from its bound and the peers."""
    from ..records.sentences import answer

    problem, gpu = question.problem(), devices.get(question.device)
    if kernel is not None:
        tactic_type(kernel)
    fastest, text = answer(problem.n, problem.k, problem.m, question.mode, gpu.name, kernel)
    options.show(as_json, asdict(fastest), textwrap.fill(text, 100, break_on_hyphens=False))


@click.command()
@options.n
@options.k
@options.m
@click.option("--candidates", multiple=True, help="KERNEL:TACTIC ...; by default those worth a look.")
@click.argument("more", nargs=-1, metavar="[KERNEL:TACTIC]...")
@click.option("--mode", default="chained", show_default=True, help="Launches: isolated, chained or exposed.")
@options.device_name
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The pack's folder; an earlier pack goes.")
@options.json_switch
@options.gathered(question=Question)
def review(question: Question, candidates: tuple[str, ...], more: tuple[str, ...], out: Path, as_json: bool) -> None:
    """Write a design review pack: one PDF, every page as SVG and PNG, data, provenance, the command that repeats it.

    The candidates are compared with the first of them and with the peers, from the records.
    """
    from ..analysis.review import design_review
    from ..report import pack

    texts = [text for given in (*candidates, *more) for text in given.split()]
    reviewed = design_review(question.problem(), devices.get(question.device), question.mode, texts)
    with progress() as report:
        folder = pack.write(reviewed, out, fraction(report, "writing"))
    paths = [str(path) for path in pack.files(folder)]
    recommended = reviewed.winner and str(reviewed.winner)
    wrote = f"wrote {paths[0]} and {len(paths) - 1} files beside it"
    text = "\n".join([wrote, reviewed.headline(), *reviewed.answer()])
    options.show(as_json, {"folder": str(folder), "recommended": recommended, "files": paths}, text)
