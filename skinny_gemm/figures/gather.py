"""The DSMEM gather: who holds which parts of which block, who sums them, and what the cluster does meanwhile.

Colour is a CTA of the cluster: of a block, the one that owns it (sums and publishes it); of a warp, the one it runs in.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts.fragments import MMA_M, MMA_N
from . import cluster, style
from .panel import Panel

HATCHES = {"multiply": "", "store": "///", "gather": "..", "settle": "xx"}


def block_sentence(parts: pd.DataFrame, block: int) -> str:
    """Where one block's parts are and who sums them."""
    mine = parts[parts.block == block]
    r = mine.iloc[0]
    away = int((mine.cta != r.owner).sum())
    ks = parts.cta.max() + 1
    return (
        f"block {block}  →  tokens {MMA_N * r.token_tile} to {MMA_N * r.token_tile + MMA_N - 1}, row tile {r.row_tile}"
        f"  →  owner CTA {r.owner} = {block} mod {ks}, slot {r.slot}  →  it adds {len(mine)} parts of {r.bytes} B, "
        f"{away} of them from other CTAs"
    )


def gather_view(parts: pd.DataFrame, block: int = 0, theme: style.Theme = style.LIGHT) -> Figure:
    """The blocks of a cluster by owner, the parts of each in every CTA's shared memory, and one block's sum.

    `parts` from `figures.cluster.owners`; `block` is lit.
    """
    ks, kq = parts.cta.max() + 1, parts.part.max() + 1
    blocks, rt, tiles = (parts[name].max() + 1 for name in ("block", "row_tile", "token_tile"))
    height = 0.25 * max(blocks, 6)
    fig = style.figure(12, height + 3.2, theme)
    colors = np.array(style.BANK_GROUPS, dtype=object)

    each = parts.drop_duplicates("block")
    tall = min(height, 0.62 * tiles)
    blocks_panel = Panel(fig, 1.15, 2.2 + height - tall, min(2.6, 1.0 * rt), tall, theme, x=(0, rt), y=(tiles, 0))
    cells = np.column_stack([each.row_tile, each.token_tile, np.ones((len(each), 2))])
    blocks_panel.boxes(cells, colors[each.owner], edgecolor=theme.paper, linewidth=1.5)
    blocks_panel.labels(cells[:, :2] + 0.5, [f"block {b}" for b in each.block], style.ON_FILL, size=9)
    blocks_panel.boxes(cells[each.block == block], "none", edgecolor=theme.vermillion, linewidth=3, zorder=3)
    at = np.arange(rt) + 0.5
    blocks_panel.labels(np.column_stack([at, 0 * at + tiles]), [f"rows {MMA_M * i} +" for i in range(rt)], theme.muted,
                        va="top", offset=(0, -4))  # fmt: skip
    blocks_panel.labels([(0, i + 0.5) for i in range(tiles)], [f"tokens {MMA_N * i} +" for i in range(tiles)],
                        theme.muted, ha="right", offset=(-6, 0))  # fmt: skip
    blocks_panel.title("the blocks, by owner")

    left = 5.0
    memory = Panel(fig, left, 2.2, 6.6, height, theme, x=(0, ks), y=(blocks, 0))
    width = 0.88 / kq
    places = np.column_stack(
        [parts.cta + 0.06 + width * parts.part, parts.block + 0.06, 0 * parts.block + width, 0 * parts.block + 0.88]
    )
    memory.boxes(places, colors[parts.owner], edgecolor=theme.paper, linewidth=1.0)
    home = (parts.cta == parts.owner).to_numpy()
    memory.boxes(places[home], "none", hatch="//", edgecolor=style.HATCH_ON_FILL, linewidth=0)
    mine = (parts.block == block).to_numpy()
    memory.boxes(places[mine], "none", edgecolor=theme.vermillion, linewidth=2.4, zorder=3)
    if width * 6.6 / ks > 0.16:
        memory.labels(places[mine][:, :2] + [width / 2, 0.44], parts.order[mine], style.ON_FILL, size=8.5)
    memory.labels([(0, b + 0.5) for b in range(blocks)], [f"block {b}" for b in range(blocks)], theme.muted, ha="right",
                  offset=(-4, 0), size=8.5)  # fmt: skip
    memory.labels([(c + 0.5, blocks) for c in range(ks)], [f"CTA {c}" for c in range(ks)], va="top", offset=(0, -4))
    memory.title(f"parts in each CTA's shared memory: {kq} of each block")

    parts_of = parts[mine].sort_values("order")
    total = len(parts_of)
    chain = Panel(fig, 1.15, 0.95, 10.45, 0.42, theme, x=(0, total + 1.6), y=(1, 0))
    boxes = [(i, 0.1, 0.86, 0.8) for i in range(total)]
    chain.boxes(boxes, colors[parts_of.cta], edgecolor=theme.paper, linewidth=1)
    if total <= 16:
        names = [f"{cta}.{part}" for cta, part in zip(parts_of.cta, parts_of.part, strict=True)]
        chain.labels([(i + 0.43, 0.5) for i in range(total)], names, style.ON_FILL, size=9)
    chain.labels([(i - 0.07, 0.5) for i in range(1, total)], ["+"] * (total - 1), size=10, weight="bold")
    chain.labels([(total + 0.1, 0.5)], ["="], size=12, weight="bold")
    chain.boxes(
        [(total + 0.35, 0.0, 1.25, 1.0)], [colors[parts_of.owner.iloc[0]]], edgecolor=theme.vermillion, linewidth=2.4
    )
    chain.labels([(total + 0.975, 0.5)], ["sum"], style.ON_FILL, size=9)
    chain.title(f"the sum of block {block}, always in this order: CTA.part, from the first of K to the last", raised=6)
    _cta_key(chain, ks, -0.42)
    blocks_panel.note(0, 1, block_sentence(parts, block), ha="left", va="baseline", size=style.TEXT, weight="bold",
                      offset=(-66, 34))  # fmt: skip
    return fig


def span_sentence(span) -> str:
    """A span of `figures.cluster.spans` of a single pass, in words."""
    return {
        "wait grid": "waits for the previous grid (griddepcontrol.wait)",
        "wait CTA": "waits for the other warps (bar.sync)",
        "wait cluster": f"waits at cluster barrier {span.number} for all warps of all CTAs",
        "multiply": "loads x and multiplies",
        "store": "leaves its sums in its own shared memory",
        "gather": f"reads the parts of block {span.block} from every CTA and adds them",
        "settle": f"turns block {span.block} round and publishes it",
    }[span.what]


def gather_timeline(
    frame: pd.DataFrame,
    time: int | None = None,
    window: tuple[int, int] | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """One lane per warp of the cluster over logical time; `frame` from `figures.cluster.spans`, `time` a cursor."""
    low, high = window or (int(frame.start.min()), int(frame.end.max()))
    names = sorted({*zip(frame.cta, frame.warp, strict=True)})
    height = min(0.3, 6.4 / len(names)) * len(names)
    fig = style.figure(12, height + 1.5, theme)
    panel = Panel(fig, 1.6, 0.8, 10.0, height, theme, x=(low, high), y=(len(names), 0))
    panel.labels([(low, i + 0.5) for i in range(len(names))], [f"CTA {c}, warp {w}" for c, w in names], ha="right",
                 offset=(-8, 0), size=8.5)  # fmt: skip
    looks = {what: dict(hatch=hatch, edgecolor=style.HATCH_ON_FILL, linewidth=0.4) for what, hatch in HATCHES.items()}
    looks |= {what: dict(facecolor=theme.paper, edgecolor=theme.faint, linewidth=0.8) for what in cluster.WAITS}
    colors = np.array(style.BANK_GROUPS, dtype=object)
    texts = [
        str(s.block) if s.what in ("gather", "settle") else f"barrier {s.number}" if s.what == "wait cluster" else ""
        for s in frame.itertuples()
    ]
    cluster.draw_lanes(panel, frame, names, colors[frame.cta], looks, texts)
    edges = [i for i in range(1, len(names)) if names[i][0] != names[i - 1][0]]
    panel.lines([[(low, i), (high, i)] for i in edges], theme.faint, linewidths=0.8, clip=False)
    neutral = dict(facecolor=theme.faint, edgecolor=theme.paper, linewidth=0.4)
    words = {"multiply": "multiply", "store": "store parts", "gather": "gather", "settle": "settle, publish"}
    entries = [(text, neutral | dict(hatch=HATCHES[what])) for what, text in words.items()]
    entries.append(("wait", looks["wait cluster"] | dict(edgecolor=theme.muted)))
    panel.key(entries, 0, height + 0.12, 1.55)
    panel.note(1, 1, "numbers: blocks", theme.muted, ha="right", offset=(0, 13))
    cluster.time_ticks(panel)
    cluster.cursor([panel], time)
    return fig


def _cta_key(panel: Panel, ks: int, y: float) -> None:
    """Which colour is which CTA, and what the hatching says."""
    entries = [(f"CTA {c}", dict(facecolor=style.BANK_GROUPS[c])) for c in range(ks)]
    panel.key(entries, 0, y, 0.92)
    panel.key([("the owner's own", dict(facecolor=panel.theme.faint, hatch="//", edgecolor=panel.theme.paper))],
              0.92 * ks + 0.25, y, 1)  # fmt: skip
