"""Figures leave the workbook here: SVG for the page, and SVG, PDF, PNG, data and provenance as files.

A file says where its numbers come from three times: in the footer, in the file's metadata and in the JSON beside it.
The same figure, data and provenance give the same bytes.
"""

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.provenance import one_line, provenance
from ..checks import check_choice
from ..files import write_whole
from . import style

__all__ = ["CSS", "FORMATS", "export", "inline_svg", "one_line", "provenance", "render"]

FORMATS = ("svg", "pdf", "png")
PNG_DPI = 300


def export(
    figure: Figure, data: pd.DataFrame, provenance: Mapping[str, Any], path_stem: str | os.PathLike,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:  # fmt: skip
    """Writes `path_stem`.svg, .pdf, .png (300 dpi), .csv (the plotted `data`) and .json (`provenance`).

    Returns the paths written. Each file appears whole or not at all. ValueError on an unknown format.
    """
    for format in formats:
        check_choice("format", format, FORMATS)
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
    return [write_whole(stem.with_name(f"{stem.name}.{suffix}"), content) for suffix, content in files.items()]


def render(figure: Figure, format: str, description: str = "", salt: str = "skinny_gemm") -> bytes:
    """The bytes of `figure` as svg, pdf or png; `description` goes into the file's metadata."""
    metadata = {
        "svg": {"Description": description, "Date": None, "Creator": "skinny_gemm"},
        "pdf": {"Subject": description, "CreationDate": None, "Creator": "skinny_gemm", "Producer": None},
        "png": {"Description": description, "Software": "skinny_gemm"},
    }[format]
    buffer = io.BytesIO()
    with matplotlib.rc_context(style.RC | {"svg.hashsalt": salt}):
        look = dict(dpi=PNG_DPI if format == "png" else "figure", facecolor=figure.get_facecolor())
        figure.savefig(buffer, format=format, metadata=metadata, **look)
    return buffer.getvalue()


_NAMES = {value: name for name, value in vars(style.LIGHT).items()}
_COLOR = re.compile("|".join(_NAMES))
_DARK = "".join(f"--sg-{name}:{value};" for name, value in vars(style.DARK).items() if name != "paper")
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
