"""Figures leave the workbook here: SVG for the page, and SVG, PDF, PNG, data and provenance as files.

A file says where its numbers come from three times: in the footer, in the file's metadata and in the JSON beside it.
The same figure, data and provenance give the same bytes.
"""

import io
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from . import style

FORMATS = ("svg", "pdf", "png")
PNG_DPI = 300
SOURCES = ("recorded", "live", "interpreter", "model")


@cache
def commit() -> str:
    """The commit of the working tree that draws, "+" appended if it has changes; "unknown" outside a repository."""
    here = Path(__file__).resolve().parent

    def git(*args):
        return subprocess.run(["git", "-C", here, *args], capture_output=True, text=True, timeout=10)

    try:
        head = git("rev-parse", "--short=8", "HEAD")
        dirty = git("status", "--porcelain", "--untracked-files=no").stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return head.stdout.strip() + ("+" if dirty else "") if head.returncode == 0 else "unknown"


def provenance(source: str, **facts: Any) -> dict[str, Any]:
    """Where a figure's numbers come from: `source` is recorded, live, interpreter or model; `facts` such as device,
    campaign, commit (of the campaign, else this working tree's), kernel, n, k, m, tactic. Facts that are None drop.
    """
    if source not in SOURCES:
        raise ValueError(f"source is {source!r}: a number is one of {', '.join(SOURCES)}")
    return {"source": source, "commit": commit()} | {k: v for k, v in facts.items() if v is not None}


def one_line(facts: Mapping[str, Any]) -> str:
    """The footer: device, source and campaign, kernel and tactic, shape, commit, as far as known."""
    source = [facts.get("source"), facts.get("launches"), facts.get("schedule")]
    if "campaign" in facts:
        others = len(facts.get("campaigns", ())) - 1
        source.append(f"campaign {facts['campaign']}" + (f" and {others} more" if others > 0 else ""))
    if facts.get("live_points") and facts["source"] != "live":
        source.append(f"{facts['live_points']} live points")
    if "model" in facts and facts["source"] != "model":
        source.append("dotted: model")
    kernel = " ".join(str(facts[name]) for name in ("kernel", "tactic") if name in facts)
    shape = " ".join(f"{name.upper()}={facts[name]}" for name in ("m", "n", "k") if name in facts)
    commit = f"commit {facts['commit']}" if "commit" in facts else None
    parts = [facts.get("device"), ", ".join(part for part in source if part), kernel, shape, commit]
    return "  |  ".join(str(part) for part in parts if part)


def export(
    figure: Figure,
    data: pd.DataFrame,
    provenance: Mapping[str, Any],
    path_stem: str | os.PathLike,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Writes `path_stem`.svg, .pdf, .png (300 dpi), .csv (the plotted `data`) and .json (`provenance`).

    Returns the paths written. Each file appears whole or not at all. ValueError on an unknown format.
    """
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise ValueError(f"format {unknown[0]!r} is not one of {', '.join(FORMATS)}")
    facts = json.dumps(dict(provenance), sort_keys=True, default=str)
    stem = Path(path_stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    style.set_footer(figure, one_line(provenance))
    try:
        files = {f: render(figure, f, facts) for f in formats}
    finally:
        style.set_footer(figure, "")
    files["csv"] = data.to_csv(index=False, lineterminator="\n").encode()
    files["json"] = (json.dumps(json.loads(facts), indent=2, sort_keys=True) + "\n").encode()
    return [_write(stem.with_name(f"{stem.name}.{suffix}"), content) for suffix, content in files.items()]


def render(figure: Figure, format: str, description: str = "", salt: str = "skinny_gemm") -> bytes:
    """The bytes of `figure` as svg, pdf or png; `description` goes into the file's metadata."""
    metadata = {
        "svg": {"Description": description, "Date": None, "Creator": "skinny_gemm"},
        "pdf": {"Subject": description, "CreationDate": None, "Creator": "skinny_gemm", "Producer": None},
        "png": {"Description": description, "Software": "skinny_gemm"},
    }[format]
    buffer = io.BytesIO()
    with matplotlib.rc_context(style.RC | {"svg.hashsalt": salt}):
        figure.savefig(
            buffer, format=format, dpi=PNG_DPI if format == "png" else "figure", metadata=metadata,
            facecolor=figure.get_facecolor(),
        )  # fmt: skip
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    """Writes beside `path` and renames, so that a reader never sees half a file."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path


_NAMES = {value: name for name, value in style.LIGHT.colors().items()}
_COLOR = re.compile("|".join(_NAMES))
_DARK = "".join(f"--sg-{name}:{value};" for name, value in style.DARK.colors().items() if name != "paper")
#: JupyterLab marks its body with the theme in use; a page that does not (an exported book) is light.
CSS = (
    "<style>.sg-figure{display:block;max-width:100%;height:auto;stroke-linejoin:round;stroke-linecap:butt;"
    "--sg-paper:var(--jp-layout-color0,#ffffff)}[data-jp-theme-light=false] .sg-figure{" + _DARK + "}</style>"
)


def inline_svg(figure: Figure, provenance: Mapping[str, Any] | None = None, salt: str = "page") -> str:
    """`figure` (drawn in the light theme) as SVG for an HTML page, in colours that follow JupyterLab's theme.

    The footer tells the `provenance`; `salt` keeps the ids inside one picture apart from those of another on the page.
    """
    style.set_footer(figure, one_line(provenance or {}))
    svg = render(figure, "svg", salt=salt).decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, count=1, flags=re.S)
    # matplotlib's own style rule would apply to the whole page.
    svg = re.sub(r'\s*<style type="text/css">.*?</style>', "", svg, count=1, flags=re.S)
    svg = svg.replace("<svg ", '<svg class="sg-figure" role="img" ', 1)
    return CSS + _COLOR.sub(lambda match: f"var(--sg-{_NAMES[match[0]]}, {match[0]})", svg)
