"""Reads figures back: their texts and the artists of one colour, and the text inside a PDF."""

import re
import zlib
from pathlib import Path

from matplotlib.figure import Figure

from skinny_gemm.figures.panel import Labels


def texts(figure: Figure) -> list[str]:
    """Every text of the figure."""
    labels = [text for artist in figure.artists if isinstance(artist, Labels) for text in artist.texts]
    return labels + [text.get_text() for text in figure.texts]


def rectangles(figure: Figure, color: str) -> int:
    """How many rectangles are filled with `color` ("#rrggbb")."""
    from matplotlib.colors import to_hex
    from matplotlib.patches import PathPatch

    patches = [a for a in [*figure.artists, *figure.patches] if isinstance(a, PathPatch)]
    return sum(len(p.get_path().vertices) // 5 for p in patches if to_hex(p.get_facecolor()) == color)


def pdf_streams(path: Path) -> str:
    """Every stream of a PDF that can be unpacked, after the file itself, as text."""
    content = path.read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, flags=re.S)
    decoded = []
    for stream in streams:
        try:
            decoded.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return b"\n".join([content, *decoded]).decode("latin-1")
