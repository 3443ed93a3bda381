"""One look for every figure: colours, text sizes, and the footer that says where the numbers come from.

The data colours are Okabe and Ito's, safe for the common kinds of colour blindness. Some have the same grey in print:
lines also differ in dash and marker, areas in hatch, cells in the number written on them.
"""

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

SMALL, TEXT, TITLE, FOOTER = 9.5, 11.0, 12.5, 9.5  #: points; at 10 inches of width they read from the back of a room
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (7, 2)), (0, (3, 1, 1, 1)), (0, (9, 1, 3, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES = ("", "///", "..", "xx", "\\\\", "++", "oo", "--")


@dataclass(frozen=True)
class Theme:
    """The colours of one theme; every field is a `#rrggbb` string, and all differ from each other."""

    ink: str  #: text and frames
    muted: str  #: tick labels, notes
    grid: str
    paper: str
    faint: str  #: marks that are there for context
    blue: str
    orange: str
    green: str
    vermillion: str
    purple: str
    sky: str
    grey: str

    @property
    def series(self) -> tuple[str, ...]:
        """Colours for lines and areas, in the order to use them."""
        return self.blue, self.vermillion, self.green, self.purple, self.orange, self.sky, self.grey


#: Figures are drawn in LIGHT alone; `export.inline_svg` has the page recolour them.
LIGHT = Theme(
    ink="#1b2430", muted="#566270", grid="#e3e7ec", paper="#ffffff", faint="#bcc5cf",
    blue="#0072b2", orange="#d98e04", green="#009e73", vermillion="#d55e00", purple="#b5609b", sky="#56b4e9",
    grey="#7b8794",
)  # fmt: skip
DARK = Theme(
    ink="#e8ecf1", muted="#a7b3bf", grid="#333c46", paper="#111111", faint="#56616d",
    blue="#4aa8e0", orange="#f0b030", green="#2bc49a", vermillion="#ff8447", purple="#e39ac6", sky="#8ad0f7",
    grey="#98a4b0",
)  # fmt: skip

#: Fills for the eight groups of four banks, light enough for `ON_FILL` text in either theme.
BANK_GROUPS = ("#9ad0f0", "#f7c66b", "#8fd6bd", "#f6ef9b", "#8fb1dc", "#f2a27a", "#e3b4d2", "#c8ced6")
ON_FILL = "#14191f"
HATCH_ON_FILL = "#fefefe"  #: of hatching on those fills: like them the same in either theme

RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": TEXT,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "skinny_gemm",  # element ids, and so the bytes, are the same every time
    "axes.unicode_minus": False,
}


def figure(width: float, height: float) -> Figure:
    """An empty figure of `width` x `height` inches that no global state knows of."""
    return Figure(figsize=(width, height), facecolor=LIGHT.paper, edgecolor="none")


def set_footer(fig: Figure, text: str) -> None:
    """Writes (or replaces) the footer `text`, of parts joined by "  |  ", in one or two lines; `""` removes it."""
    for old in [t for t in fig.texts if t.get_gid() == "footer"]:
        old.remove()
    if text:
        width, height = fig.get_size_inches()
        room = 0.96 * 72 * width / (0.55 * FOOTER)  # characters; one is 0.55 em wide on average
        lines = [text] if len(text) <= room else _halves(text)
        size = FOOTER * min(1, room / max(map(len, lines)))
        look = dict(fontsize=size, color=LIGHT.muted, ha="left", va="bottom", linespacing=1.1, gid="footer")
        fig.text(0.012, 0.06 / height, "\n".join(lines), **look)


def _halves(text: str) -> list[str]:
    """`text` broken at the "  |  " that leaves the shortest lines."""
    parts = text.split("  |  ")
    breaks = [["  |  ".join(parts[:i]), "  |  ".join(parts[i:])] for i in range(1, len(parts))]
    return min(breaks, key=lambda lines: max(map(len, lines)), default=[text])
