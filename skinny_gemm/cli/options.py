"""What the commands share: how one is made, its options, the problem that those describe, and tables of text."""

import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple

import click

from ..device import REFERENCE, Device
from ..problem import FrontProblem, GemmProblem
from ..tactics import Tactic, tactic_type


def option(name: str, **details: Any) -> click.Option:
    """An option of a command; `details` are those of `click.Option`."""
    return click.Option([name], **details)


KERNEL = click.Argument(["kernel"], metavar="KERNEL")
CAMPAIGN = click.Argument(["campaign"], metavar="CAMPAIGN")
M = option("--m", type=int, required=True, help="Tokens (rows of x).")
N = option("--n", type=int, required=True, help="Outputs (rows of the weight).")
K = option("--k", type=int, required=True, help="Inputs (columns of the weight).")
SPLIT = option("--split", type=int, help="Of a front: router rows, padding included; the latent's follow.")
VALID = option("--valid", type=int, help="Of a front: router rows that are experts; --split by default.")
TACTIC = option("--tactic", help="Comma-separated fields; the default tactic if absent.")
MODE = option("--mode", default="chained", help="Launches: isolated, chained or exposed.")
PROCESS = option("--process", help="Process that measured: quiet or busy; by default busy where that is recorded.")
DEVICE = option("--device", default=REFERENCE, help="Whose limits apply.")
JSON = option("--json", is_flag=True, help="Print JSON.")


class Given(SimpleNamespace):
    """The arguments and options of a command, by name."""

    def problem(self) -> GemmProblem:
        """The problem as the kernel sees it; ValueError if `split` or `valid` is given and it knows no fronts."""
        problem, split, valid = GemmProblem(self.m, self.n, self.k), self.split, self.valid
        problem = tactic_type(self.kernel).problem(problem)
        if split is None and valid is None:
            return problem
        if not isinstance(problem, FrontProblem):
            raise ValueError(f"--split and --valid describe the weight of a front, which is nothing to {self.kernel}")
        split = split if split is not None else -(-valid // 16) * 16
        valid = valid if valid is not None else split
        if (split, valid) == (problem.split, problem.valid):
            return problem  # a known front's latent and experts are those of all its ranks
        return FrontProblem(self.m, self.n, self.k, split, valid)

    def chosen(self, device: Device) -> Tactic:
        """The tactic written as `tactic`, or the default one; ValueError if it cannot run the problem."""
        kind, problem = tactic_type(self.kernel), self.problem()
        if self.tactic is None:
            return kind.default(problem, device)
        tactic = kind.parse(self.tactic)
        tactic.check(problem, device)
        return tactic


class Answer(NamedTuple):
    """What a command says, as JSON or as text, and its exit status."""

    value: Any
    text: str
    status: int = 0


def command(name: str, *parameters: click.Parameter) -> Callable[[Callable[[Given], Answer]], click.Command]:
    """Makes a command of a function, whose docstring is its help; `--json` comes behind the `parameters`."""

    def decorate(function: Callable[[Given], Answer]) -> click.Command:
        def call(**given: Any) -> None:
            answer = function(Given(**given))
            click.echo(json.dumps(answer.value, indent=2) if given["json"] else answer.text)
            if answer.status:
                raise click.exceptions.Exit(answer.status)

        return click.Command(name, params=[*parameters, JSON], callback=call, help=function.__doc__)

    return decorate


def columns(rows: Iterable[Iterable[object]]) -> str:
    """Rows as left-aligned columns."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)


def facts(values: dict[str, Any]) -> str:
    """Named values, one a line."""
    return columns((name, "none" if value is None else value) for name, value in values.items())
