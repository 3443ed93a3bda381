"""The mailbox of the MoE front: what lies where in a token's row, and what has been published, read from its bits.

Colour is a rank, whose number is written on it; what nobody has published is blank.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts import mailbox as layout
from ..problem import FrontProblem
from ..runtime.bfloat16 import from_bits
from . import style
from .panel import Panel

FRAGMENT_COLUMNS = layout.FRAGMENT_BYTES // 2
LOGITS_HATCH = "//"
STATES = ("empty", "partial", "published")


def row_table(front: FrontProblem) -> pd.DataFrame:
    """What a row holds, a line per part (latent, logits) and rank: part, rank, column (first, BF16), values, bytes."""
    rows = []
    for rank in range(front.ranks):
        first = layout.latent_column(rank, front.shard, 0)
        rows.append(("latent", rank, first, front.shard, 2 * front.shard))
    for rank in range(front.ranks if front.valid else 0):
        first = layout.logit_column(rank, front.valid, 0, front.latent)
        rows.append(("logits", rank, first, front.valid, 4 * front.valid))
    return pd.DataFrame(rows, columns=["part", "rank", "column", "values", "bytes"])


def state_table(bits: np.ndarray, front: FrontProblem) -> pd.DataFrame:
    """Every fragment of a mailbox, read from its `bits` (uint16 `[buffers, tokens, width]`).

    Columns: buffer, token, fragment, column (its first, BF16), part, rank (its publisher), state (of `STATES`), words
    (its four 32-bit words).
    """
    buffers, tokens, width = bits.shape
    words = np.ascontiguousarray(bits).view(np.uint32).reshape(buffers, tokens, -1, 4)
    column = np.arange(layout.fragments(width)) * FRAGMENT_COLUMNS
    latent = column < front.latent
    sentinel = np.where(latent, layout.LATENT_SENTINEL, layout.LOGIT_SENTINEL).astype(np.uint32)
    missing = (words == sentinel[:, None]).sum(-1)
    rank = [layout.publisher(int(c), front.latent, front.shard, front.valid) for c in column]
    index = np.stack(np.indices(missing.shape), -1).reshape(-1, 3)
    fragment = index[:, 2]
    return pd.DataFrame(
        {
            "buffer": index[:, 0],
            "token": index[:, 1],
            "fragment": fragment,
            "column": column[fragment],
            "part": np.where(latent, "latent", "logits")[fragment],
            "rank": np.array(rank)[fragment],
            "state": np.array(STATES)[np.select([missing == 0, missing == 4], [2, 0], 1)].reshape(-1),
            "words": list(words.reshape(-1, 4)),
        }
    )


def fragment_sentence(fragment) -> str:
    """One line of `state_table` in words: where it lies, who publishes it, the bits and what they mean."""
    words = " ".join(f"{int(word):08x}" for word in fragment.words)
    if fragment.part == "latent":
        values, unit = from_bits(np.ascontiguousarray(fragment.words).view(np.uint16)), "8 BF16"
        first = f"latent columns {fragment.column} to {fragment.column + 7}"
    else:
        values, unit = np.ascontiguousarray(fragment.words).view(np.float32), "4 FP32"
        first = f"columns {fragment.column} to {fragment.column + 7}"
    meaning = "the sentinel: nothing yet" if fragment.state == "empty" else " ".join(f"{v:.3g}" for v in values)
    return (
        f"buffer {fragment.buffer}, token {fragment.token}, fragment {fragment.fragment}  →  {first} of the row  →  "
        f"rank {fragment.rank} publishes {unit}  →  {words}  →  {meaning}"
    )


def row_map(front: FrontProblem, theme: style.Theme = style.LIGHT) -> Figure:
    """A token's row to scale, rank by rank, and below it one fragment of each part with the bits of the sentinel."""
    table = row_table(front)
    fig = style.figure(12, 3.7, theme)
    total = 2 * front.width
    panel = Panel(fig, 0.25, 2.35, 11.5, 0.6, theme, x=(0, total), y=(0, 1))
    boxes = np.column_stack([2 * table.column, np.zeros(len(table)), table.bytes, np.ones(len(table))])
    logits = (table.part == "logits").to_numpy()
    colors = np.array(style.BANK_GROUPS, dtype=object)[table["rank"] % 8]
    panel.boxes(boxes, colors, edgecolor=theme.paper, linewidth=1.2)
    panel.boxes(boxes[logits], "none", hatch=LOGITS_HATCH, edgecolor=theme.paper, linewidth=0)
    panel.labels(boxes[:, :2] + np.column_stack([table.bytes / 2, 0.5 * np.ones(len(table))]), table["rank"],
                 style.ON_FILL, size=10, weight="bold")  # fmt: skip
    panel.title(f"one token's row: {total:,} bytes, {layout.fragments(front.width)} fragments of 16, by rank")
    parts = [
        ("latent", 0, front.latent, front.shard, "BF16"),
        ("logits", front.latent, front.experts, front.valid, "FP32"),
    ]
    for name, column, values, shard, kind in parts[: 2 if front.valid else 1]:
        text = f"{name}: {values:,} {kind}, {shard} of each rank, from column {column:,}"
        at, side = (0, "left") if column == 0 else (total, "right")
        panel.labels([(at, 0)], [text], ha=side, va="top", offset=(0, -5))

    for place, (name, _, _, _, kind) in enumerate(parts[: 2 if front.valid else 1]):
        each = 2 if kind == "BF16" else 4
        count = layout.FRAGMENT_BYTES // each
        zoom = Panel(fig, 0.25 + 5.9 * place, 0.75, 5.6, 0.5, theme, x=(0, 16), y=(0, 1))
        zoom.boxes([(each * i, 0, each, 1) for i in range(count)], theme.paper, edgecolor=theme.ink, linewidth=1)
        bits = f"{layout.BF16_SENTINEL:04x}" if each == 2 else f"{layout.LOGIT_SENTINEL:08x}"
        zoom.labels([(each * (i + 0.5), 0.5) for i in range(count)], [bits] * count, size=10)
        zoom.title(f"a fragment of the {name} that nobody has published", raised=6)
        zoom.labels([(each * (i + 0.5), 0) for i in range(count)], [f"{kind}" for _ in range(count)], theme.muted,
                    va="top", offset=(0, -4), size=9)  # fmt: skip
    return fig


def mailbox_view(
    table: pd.DataFrame,
    titles: tuple[str, ...],
    token: int | None = None,
    fragment: int | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """Every fragment of both buffers, a line per token; `table` from `state_table`, a title per buffer.

    The fragment (`token`, `fragment`) is outlined in both.
    """
    tokens, count = table.token.max() + 1, table.fragment.max() + 1
    height = 0.42 * tokens
    step = height + 0.8
    fig = style.figure(12, len(titles) * step + 0.62, theme)
    latents = int((table.part == "latent").sum()) // (len(titles) * tokens)
    for buffer, title in enumerate(titles):
        rows = table[table.buffer == buffer]
        panel = Panel(
            fig, 0.95, 0.9 + (len(titles) - 1 - buffer) * step, 10.8, height, theme, x=(0, count), y=(tokens, 0)
        )
        ones = np.ones(len(rows))
        cells = np.column_stack([rows.fragment, rows.token, ones, ones])
        full, partial = ((rows.state == state).to_numpy() for state in ("published", "partial"))
        empty = ~(full | partial)
        colors = np.array(style.BANK_GROUPS, dtype=object)[rows["rank"] % 8]
        panel.boxes(cells[empty], theme.paper, edgecolor=theme.faint, linewidth=0.8)
        panel.boxes(cells[full], colors[full], edgecolor=theme.paper, linewidth=1.2)
        logits = (rows.part == "logits").to_numpy()
        panel.boxes(cells[full & logits], "none", hatch=LOGITS_HATCH, edgecolor=theme.paper, linewidth=0)
        panel.boxes(cells[partial], colors[partial], edgecolor=theme.vermillion, linewidth=2, zorder=2)
        if count <= 64:
            panel.labels(cells[full, :2] + 0.5, rows["rank"][full], style.ON_FILL, size=10, weight="bold")
            panel.labels(cells[empty, :2] + 0.5, ["-0"] * int(empty.sum()), theme.muted, size=9)
            panel.labels(cells[partial, :2] + 0.5, ["part"] * int(partial.sum()), style.ON_FILL, size=9, weight="bold")
        names = [f"token {t}" for t in range(tokens)]
        panel.labels([(0, t + 0.5) for t in range(tokens)], names, theme.muted, ha="right", offset=(-6, 0))
        panel.lines([[(latents, 0), (latents, tokens)]], theme.ink, clip=False, linewidths=1.6, zorder=3)
        if token is not None and fragment is not None:
            panel.boxes([(fragment, token, 1, 1)], "none", edgecolor=theme.ink, linewidth=2.8, zorder=3)
        panel.title(title)
        panel.labels([(0, tokens)], ["latent, BF16"], theme.muted, ha="left", va="top", offset=(0, -4))
        panel.labels([(latents, tokens)], ["logits, FP32"] if latents < count else [""], theme.muted, ha="left",
                     va="top", offset=(3, -4))  # fmt: skip
    panel.key(
        [
            ("published, by rank", dict(facecolor=style.BANK_GROUPS[0])),
            ("logits", dict(facecolor=theme.faint, hatch=LOGITS_HATCH, edgecolor=theme.paper)),
            ("empty: the sentinel -0.0", dict(facecolor=theme.paper, edgecolor=theme.muted, linewidth=0.8)),
            ("partly the sentinel", dict(facecolor=theme.paper, edgecolor=theme.vermillion, linewidth=2)),
        ],
        0.0, -0.55, 2.4,
    )  # fmt: skip
    return fig
