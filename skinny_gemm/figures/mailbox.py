"""Pictures of the mailbox of the MoE front: what lies where in a token's row, and what has been published.

Colour is a rank, whose number is written on it; what nobody has published is blank.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.mailbox import STATES, row_table
from ..layouts import mailbox as layout
from ..problem import FrontProblem
from . import style
from .panel import Panel, rectangles
from .style import LIGHT

LOGITS_HATCH = "//"


def row_map(front: FrontProblem) -> Figure:
    """A token's row to scale, rank by rank, and below it one fragment of each part with the bits of the sentinel."""
    table = row_table(front)
    fig = style.figure(12, 3.7)
    total = 2 * front.width
    panel = Panel(fig, 0.25, 2.35, 11.5, 0.6, x=(0, total), y=(0, 1))
    boxes = rectangles(2 * table.column, 0, table.bytes)
    logits = (table.part == "logits").to_numpy()
    colors = np.array(style.BANK_GROUPS, dtype=object)[table["rank"] % 8]
    panel.boxes(boxes, colors, edgecolor=LIGHT.paper, linewidth=1.2)
    panel.boxes(boxes[logits], "none", hatch=LOGITS_HATCH, edgecolor=LIGHT.paper, linewidth=0)
    panel.labels(boxes[:, :2] + boxes[:, 2:] / 2, table["rank"], style.ON_FILL, size=10, weight="bold")
    panel.title(f"one token's row: {total:,} bytes, {layout.fragments(front.width)} fragments of 16, by rank")
    parts = [("latent", 0, front.latent, front.shard, "BF16")]
    if front.valid:
        parts.append(("logits", front.latent, front.experts, front.valid, "FP32"))
    for name, column, values, shard, kind in parts:
        text = f"{name}: {values:,} {kind}, {shard} of each rank, from column {column:,}"
        at, side = (0, "left") if column == 0 else (total, "right")
        panel.labels([(at, 0)], [text], ha=side, va="top", offset=(0, -5))

    for place, (name, _, _, _, kind) in enumerate(parts):
        each = 2 if kind == "BF16" else 4
        count = layout.FRAGMENT_BYTES // each
        zoom = Panel(fig, 0.25 + 5.9 * place, 0.75, 5.6, 0.5, x=(0, 16), y=(0, 1))
        zoom.boxes([(each * i, 0, each, 1) for i in range(count)], LIGHT.paper, edgecolor=LIGHT.ink, linewidth=1)
        bits = f"{layout.BF16_SENTINEL:04x}" if each == 2 else f"{layout.LOGIT_SENTINEL:08x}"
        zoom.labels([(each * (i + 0.5), 0.5) for i in range(count)], [bits] * count, size=10)
        zoom.title(f"a fragment of the {name} that nobody has published", raised=6)
        zoom.labels([(each * (i + 0.5), 0) for i in range(count)], [kind] * count, LIGHT.muted,
                    va="top", offset=(0, -4), size=9)  # fmt: skip
    return fig


def mailbox_view(
    table: pd.DataFrame, titles: tuple[str, ...], token: int | None = None, fragment: int | None = None
) -> Figure:
    """A `state_table`: every fragment of both buffers, a line per token; (`token`, `fragment`) is outlined."""
    tokens, count = table.token.max() + 1, table.fragment.max() + 1
    height = 0.42 * tokens
    step = height + 0.8
    fig = style.figure(12, len(titles) * step + 0.62)
    latents = int((table.part == "latent").sum()) // (len(titles) * tokens)
    for buffer, title in enumerate(titles):
        rows = table[table.buffer == buffer]
        panel = Panel(fig, 0.95, 0.9 + (len(titles) - 1 - buffer) * step, 10.8, height, x=(0, count), y=(tokens, 0))
        cells = rectangles(rows.fragment, rows.token)
        empty, partial, full = ((rows.state == state).to_numpy() for state in STATES)
        colors = np.array(style.BANK_GROUPS, dtype=object)[rows["rank"] % 8]
        panel.boxes(cells[empty], LIGHT.paper, edgecolor=LIGHT.faint, linewidth=0.8)
        panel.boxes(cells[full], colors[full], edgecolor=LIGHT.paper, linewidth=1.2)
        logits = (rows.part == "logits").to_numpy()
        panel.boxes(cells[full & logits], "none", hatch=LOGITS_HATCH, edgecolor=LIGHT.paper, linewidth=0)
        panel.boxes(cells[partial], colors[partial], edgecolor=LIGHT.vermillion, linewidth=2, zorder=2)
        if count <= 64:
            panel.labels(cells[full, :2] + 0.5, rows["rank"][full], style.ON_FILL, size=10, weight="bold")
            panel.labels(cells[empty, :2] + 0.5, ["-0"] * int(empty.sum()), LIGHT.muted, size=9)
            panel.labels(cells[partial, :2] + 0.5, ["part"] * int(partial.sum()), style.ON_FILL, size=9, weight="bold")
        panel.row_names([f"token {t}" for t in range(tokens)], LIGHT.muted, gap=6)
        panel.lines([[(latents, 0), (latents, tokens)]], LIGHT.ink, clip=False, linewidths=1.6, zorder=3)
        if token is not None and fragment is not None:
            panel.boxes([(fragment, token, 1, 1)], "none", edgecolor=LIGHT.ink, linewidth=2.8, zorder=3)
        panel.title(title)
        panel.labels([(0, tokens)], ["latent, BF16"], LIGHT.muted, ha="left", va="top", offset=(0, -4))
        panel.labels([(latents, tokens)], ["logits, FP32"] if latents < count else [""], LIGHT.muted, ha="left",
                     va="top", offset=(3, -4))  # fmt: skip
    entries: list[tuple[str, dict]] = [
        ("published, by rank", dict(facecolor=style.BANK_GROUPS[0])),
        ("logits", dict(facecolor=LIGHT.faint, hatch=LOGITS_HATCH, edgecolor=LIGHT.paper)),
        ("empty: the sentinel -0.0", dict(facecolor=LIGHT.paper, edgecolor=LIGHT.muted, linewidth=0.8)),
        ("partly the sentinel", dict(facecolor=LIGHT.paper, edgecolor=LIGHT.vermillion, linewidth=2)),
    ]
    panel.key(entries, 0.0, -0.55, 2.4)
    return fig
