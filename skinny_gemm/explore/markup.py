"""The HTML that explorers show beside their pictures: tables, verdicts, errors, and the source of what is drawn."""

import html
import inspect
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from .. import records

REPOSITORY = Path(__file__).resolve().parents[2]


def relative(path: Path) -> str:
    """`path` as seen from the repository, where it is inside."""
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else str(path)


def sentence(error: Exception) -> str:
    """What an error says; its type if it says nothing."""
    return html.escape(str(error) or type(error).__name__)


def marked(content: str) -> str:
    """`content`, HTML, beside a red bar."""
    return f'<div style="border-left:4px solid #d55e00;padding:4px 10px;line-height:1.5">{content}</div>'


def trouble(error: Exception) -> str:
    """What an error says, with its traceback folded below."""
    trace = html.escape("".join(traceback.format_exception(error)))
    where = f"<details><summary>{type(error).__name__}: where it was raised</summary><pre>{trace}</pre></details>"
    return marked(f"<b>{sentence(error)}</b>{where}")


def verdict(why_not: str | None, what: str = "") -> str:
    """That something cannot run, and why not; or that it can, and `what` there is to say of it."""
    if why_not is None:
        return f"<b>OK:</b> {html.escape(what)}"
    return f'<b style="color:var(--jp-error-color1, #d55e00)">Not possible:</b> {html.escape(why_not)}'


def table(frame: pd.DataFrame) -> str:
    """`frame` as a table: texts at the left, only those of the last column broken into lines."""
    left = "text-align:left;vertical-align:top;padding-right:24px"
    styles = [*[f"{left};white-space:nowrap"] * (frame.shape[1] - 1), left]
    head = "".join(f"<th style='{left}'>{name}</th>" for name in frame.columns)
    rows = (
        "".join(f"<td style='{s}'>{html.escape(str(value))}</td>" for s, value in zip(styles, row, strict=True))
        for row in frame.itertuples(index=False)
    )
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def facts(values: Mapping[str, str]) -> str:
    """A table of named values, a row each."""
    rows = (
        f"<tr><td style='padding-right:24px'>{html.escape(name)}</td>"
        f"<td style='text-align:left'><b>{html.escape(value)}</b></td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>"


def source_of(*functions: Callable) -> str:
    """Names functions, links to their files, and holds their source folded."""
    parts = []
    for function in functions:
        code, line = inspect.getsourcelines(function)
        path = relative(Path(inspect.getfile(function)))
        name = f"{function.__module__.removeprefix('skinny_gemm.')}.{function.__name__}"
        parts.append(
            f'<details><summary><code>{name}</code> in <a href="../{path}" target="_blank">{path}:{line}</a></summary>'
            f"<pre>{html.escape(''.join(code))}</pre></details>"
        )
    return "This view draws" + "".join(parts)


def left_out(data_dir: Path | None) -> str:
    """For each recorded campaign that cannot be read a line that says why; nothing if there is none."""
    return "".join(f"<br><b>left out: {html.escape(why)}</b>" for why in records.problems(data_dir).values())
