"""Reads widgets and their exports back."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import ipywidgets


def text(widget: ipywidgets.HTML) -> str:
    """What an HTML widget says, without the tags."""
    return re.sub(r"<[^>]+>", " ", widget.value)


def facts_of(paths: Iterable[Path], stem: str = "") -> dict:
    """The provenance that was exported under a name that begins with `stem`."""
    return json.loads(next(p for p in paths if p.suffix == ".json" and p.name.startswith(stem)).read_text())
