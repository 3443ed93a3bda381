"""The DSMEM gather: who holds which parts of which block, who sums them, and what the cluster does meanwhile.

Colour is a CTA of the cluster: of a block, the one that owns it (sums and publishes it); of a warp, the one it runs in.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.cluster import block_sentence
from . import style
from .cluster import draw_blocks, row_tiles, token_tiles
from .lanes import cursor, draw_lanes, lane_key, lane_looks, time_ticks
from .panel import Panel, rectangles

HATCHES = {"multiply": "", "store": "///", "gather": "..", "settle": "xx"}


def gather_view(parts: pd.DataFrame, block: int = 0, theme: style.Theme = style.LIGHT) -> Figure:
    """The blocks of a cluster by owner, the parts of each in every CTA's shared memory, and one block's sum.

    `parts` from `analysis.cluster.owners`; `block` is lit.
    """
    ks, kq = parts.cta.max() + 1, parts.part.max() + 1
    blocks, rt, tiles = (parts[name].max() + 1 for name in ("block", "row_tile", "token_tile"))
    height = 0.25 * max(blocks, 6)
    fig = style.figure(12, height + 3.2, theme)
    colors = np.array(style.BANK_GROUPS, dtype=object)

    each = parts.drop_duplicates("block")
    tall = min(height, 0.62 * tiles)
    blocks_panel = Panel(fig, 1.15, 2.2 + height - tall, min(2.6, 1.0 * rt), tall, theme, x=(0, rt), y=(tiles, 0))
    cells = rectangles(each.row_tile, each.token_tile)
    names = [f"block {b}" for b in each.block]
    draw_blocks(blocks_panel, cells, colors[each.owner], names, each.block == block, outline=3)
    blocks_panel.column_names(row_tiles(rt), theme.muted)
    blocks_panel.row_names(token_tiles(tiles), theme.muted, gap=6)
    blocks_panel.title("the blocks, by owner")

    memory = Panel(fig, 5.0, 2.2, 6.6, height, theme, x=(0, ks), y=(blocks, 0))
    width = 0.88 / kq
    places = rectangles(parts.cta + 0.06 + width * parts.part, parts.block + 0.06, width, 0.88)
    memory.boxes(places, colors[parts.owner], edgecolor=theme.paper, linewidth=1.0)
    home = (parts.cta == parts.owner).to_numpy()
    memory.boxes(places[home], "none", hatch="//", edgecolor=style.HATCH_ON_FILL, linewidth=0)
    lit = (parts.block == block).to_numpy()
    memory.boxes(places[lit], "none", edgecolor=theme.vermillion, linewidth=2.4, zorder=3)
    if width * 6.6 / ks > 0.16:
        memory.labels(places[lit][:, :2] + [width / 2, 0.44], parts.order[lit], style.ON_FILL, size=8.5)
    memory.row_names([f"block {b}" for b in range(blocks)], theme.muted, gap=4, size=8.5)
    memory.column_names([f"CTA {c}" for c in range(ks)])
    memory.title(f"parts in each CTA's shared memory: {kq} of each block")

    parts_of = parts[lit].sort_values("order")
    total = len(parts_of)
    chain = Panel(fig, 1.15, 0.95, 10.45, 0.42, theme, x=(0, total + 1.6), y=(1, 0))
    chain.boxes([(i, 0.1, 0.86, 0.8) for i in range(total)], colors[parts_of.cta], edgecolor=theme.paper, linewidth=1)
    if total <= 16:
        names = [f"{cta}.{part}" for cta, part in zip(parts_of.cta, parts_of.part, strict=True)]
        chain.labels([(i + 0.43, 0.5) for i in range(total)], names, style.ON_FILL, size=9)
    chain.labels([(i - 0.07, 0.5) for i in range(1, total)], ["+"] * (total - 1), size=10, weight="bold")
    chain.labels([(total + 0.1, 0.5)], ["="], size=12, weight="bold")
    sum_color = colors[parts_of.owner.iloc[0]]
    chain.boxes([(total + 0.35, 0.0, 1.25, 1.0)], sum_color, edgecolor=theme.vermillion, linewidth=2.4)
    chain.labels([(total + 0.975, 0.5)], ["sum"], style.ON_FILL, size=9)
    chain.title(f"the sum of block {block}, always in this order: CTA.part, from the first of K to the last", raised=6)
    chain.key([(f"CTA {c}", dict(facecolor=style.BANK_GROUPS[c])) for c in range(ks)], 0, -0.42, 0.92)
    own = dict(facecolor=theme.faint, hatch="//", edgecolor=theme.paper)
    chain.key([("the owner's own", own)], 0.92 * ks + 0.25, -0.42, 1)
    blocks_panel.sentence(block_sentence(parts, block), -66, 34)
    return fig


def gather_timeline(
    frame: pd.DataFrame,
    time: int | None = None,
    window: tuple[int, int] | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """One lane per warp of the cluster over logical time, `time` a cursor; `frame` from `cluster.cluster_spans`."""
    low, high = window or (int(frame.start.min()), int(frame.end.max()))
    names = sorted({*zip(frame.cta, frame.warp, strict=True)})
    height = min(0.3, 6.4 / len(names)) * len(names)
    fig = style.figure(12, height + 1.5, theme)
    panel = Panel(fig, 1.6, 0.8, 10.0, height, theme, x=(low, high), y=(len(names), 0))
    panel.row_names([f"CTA {cta}, warp {warp}" for cta, warp in names], size=8.5)
    colors = np.array(style.BANK_GROUPS, dtype=object)
    texts = [
        str(s.block) if s.what in ("gather", "settle") else f"barrier {s.number}" if s.what == "wait cluster" else ""
        for s in frame.itertuples()
    ]
    draw_lanes(panel, frame, names, colors[frame.cta], lane_looks(HATCHES, theme), texts)
    edges = [i for i in range(1, len(names)) if names[i][0] != names[i - 1][0]]
    panel.lines([[(low, i), (high, i)] for i in edges], theme.faint, linewidths=0.8, clip=False)
    words = {"multiply": "multiply", "store": "store parts", "gather": "gather", "settle": "settle, publish"}
    panel.key(lane_key(words, HATCHES, theme), 0, height + 0.12, 1.55)
    panel.note(1, 1, "numbers: blocks", theme.muted, ha="right", offset=(0, 13))
    time_ticks(panel)
    cursor([panel], time, zorder=5)
    return fig
