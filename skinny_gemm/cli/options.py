"""What the commands share: options, what they say together, and how answers are printed."""

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import click

from ..device import REFERENCE, Device
from ..problem import FrontProblem, GemmProblem
from ..tactics import Tactic, tactic_type

kernel = click.argument("kernel", metavar="KERNEL")
campaign = click.argument("campaign", metavar="CAMPAIGN")
m = click.option("--m", type=int, required=True, help="Tokens (rows of x).")
n = click.option("--n", type=int, required=True, help="Outputs (rows of the weight).")
k = click.option("--k", type=int, required=True, help="Inputs (columns of the weight).")
split = click.option("--split", type=int, help="Of a front: router rows, padding included; the latent's follow.")
valid = click.option("--valid", type=int, help="Of a front: router rows that are experts; --split by default.")
device_name = click.option("--device", default=REFERENCE, show_default=True, help="Whose limits apply.")
tactic_text = click.option("--tactic", help="Comma-separated fields; the default tactic if absent.")
json_switch = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def gathered(**groups: type) -> Callable[[Callable], Callable]:
    """Hands a command those of its options that are fields of a dataclass as one argument.

    `gathered(asked=Asked)` makes `asked` of the options that `Asked` names; put it below the options.
    """

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def call(**options: Any) -> Any:
            for name, kind in groups.items():
                options[name] = kind(**{field.name: options.pop(field.name) for field in fields(kind)})
            return command(**options)

        return call

    return decorate


@dataclass(frozen=True)
class Asked:
    """A kernel and the problem that the options describe; `split` and `valid` are of fronts only."""

    kernel: str
    m: int
    n: int
    k: int
    split: int | None
    valid: int | None

    def problem(self) -> GemmProblem:
        """The problem as the kernel sees it; ValueError if `split` or `valid` is given and it knows no fronts."""
        problem = tactic_type(self.kernel).problem(GemmProblem(self.m, self.n, self.k))
        split, valid = self.split, self.valid
        if split is None and valid is None:
            return problem
        if not isinstance(problem, FrontProblem):
            raise ValueError(f"--split and --valid describe the weight of a front, which is nothing to {self.kernel}")
        split = split if split is not None else -(-(valid or 0) // 16) * 16
        valid = valid if valid is not None else split
        if (split, valid) == (problem.split, problem.valid):
            return problem  # a known front's latent and experts are those of all its ranks
        return FrontProblem(self.m, self.n, self.k, split, valid)

    def tactic(self, text: str | None, device: Device) -> Tactic:
        """The tactic written as `text`, or the default one; ValueError if it cannot run the problem."""
        kind, problem = tactic_type(self.kernel), self.problem()
        if text is None:
            return kind.default(problem, device)
        tactic = kind.parse(text)
        tactic.check(problem, device)
        return tactic


def show(as_json: bool, value: Any, text: str) -> None:
    """Prints `value` as JSON, or else `text`."""
    print(json.dumps(value, indent=2) if as_json else text)


def columns(rows: Iterable[tuple]) -> str:
    """Rows as left-aligned columns."""
    rows = list(rows)
    widths = [max(len(str(cell)) for cell in column) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def facts(values: dict[str, Any]) -> str:
    """Named values, one a line."""
    return columns((name, "none" if value is None else value) for name, value in values.items())
