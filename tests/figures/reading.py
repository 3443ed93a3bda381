"""Reads figures back: their texts, and the artists of one colour."""

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
