"""Pictures of one cluster of the weight-stationary GEMM: who owns which block, bytes from CTA to CTA, warps over time.

Of single passes (the DSMEM gather) colour is a CTA: of a block, the one that owns it (sums and publishes it); of a
warp, the one it runs in. Of token groups (the settle pipeline) it is the group. Time is the trace's logical time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.cluster import WAITS, block_sentence
from ..layouts.fragments import MMA_M, MMA_N
from . import style
from .marks import COLORS, draw_blocks, draw_lanes, lane_key, looks_of
from .panel import Panel, rectangles
from .style import LIGHT

GATHER_HATCHES = {"multiply": "", "store": "///", "gather": "..", "settle": "xx"}
SETTLE_HATCHES = {"stage x": "xx", "multiply": "", "push": "///", "settle": ".."}
WORDS = {"settle": "settle, publish", "store": "store parts"}  #: in a key, where a span's own name does not do
SETTLE_TEXTS = {"multiply": "{group}", "wait x": "{group}", "settle": "b{block}", "wait slot": "b{block}",
                "wait cluster": "cluster", "stage x": "x"}  # fmt: skip


def traffic_view(matrices: Mapping[str, pd.DataFrame]) -> Figure:
    """Up to two tables of `traffic` as matrices, by title; darker is more bytes, what is hatched stays home."""
    ks = max(int(data.source.max()) for data in matrices.values()) + 1
    most = max(int(data.bytes.max()) for data in matrices.values())
    cell = min(0.62, 3.6 / ks)
    fig = style.figure(12, cell * ks + 1.65)
    for i, (title, data) in enumerate(matrices.items()):
        panel = Panel(fig, 1.0 + 5.9 * i, 0.55, 4.1, cell * ks, (0, ks), (ks, 0))
        panel.title(title, raised=34)
        boxes = rectangles(data.target, data.source)
        for value in sorted(data.bytes.unique()):
            some = (data.bytes == value).to_numpy()
            panel.boxes(boxes[some], LIGHT.grey, alpha=0.05 + 0.55 * value / max(most, 1))
        home = (data.source == data.target).to_numpy()
        panel.boxes(boxes[home], "none", hatch="//", edgecolor=LIGHT.faint, linewidth=0)
        panel.boxes(boxes, "none", edgecolor=LIGHT.paper, linewidth=1.5)
        panel.labels(boxes[:, :2] + 0.5, [f"{value:,}" for value in data.bytes], size=9, weight="bold")
        panel.labels([(c + 0.5, 0) for c in range(ks)], range(ks), LIGHT.muted, va="bottom", offset=(0, 4))
        panel.row_names([f"CTA {c}" for c in range(ks)], LIGHT.muted, gap=6)
        panel.note(0, 1, "to CTA", LIGHT.muted, ha="left", offset=(0, 22))
        total = int(data.bytes[~home].sum())
        panel.note(0, 0, f"{total:,} B cross between CTAs, {int(data.bytes[home].sum()):,} B stay; most into one: "
                   f"{int(data.bytes.groupby(data.target).sum().max()):,} B", ha="left", offset=(0, -13))  # fmt: skip
    return fig


def gather_view(parts: pd.DataFrame, block: int = 0) -> Figure:
    """The blocks of a cluster by owner, the `parts` of each in every CTA (`owners`), and the sum of `block`, lit."""
    ks, kq = parts.cta.max() + 1, parts.part.max() + 1
    blocks, rt, tiles = (parts[name].max() + 1 for name in ("block", "row_tile", "token_tile"))
    height = 0.25 * max(blocks, 6)
    fig = style.figure(12, height + 3.2)

    each = parts.drop_duplicates("block")
    tall = min(height, 0.62 * tiles)
    owned = Panel(fig, 1.15, 2.2 + height - tall, min(2.6, 1.0 * rt), tall, (0, rt), (tiles, 0))
    cells = rectangles(each.row_tile, each.token_tile)
    draw_blocks(owned, cells, COLORS[each.owner], [f"block {b}" for b in each.block], each.block == block, outline=3)
    owned.column_names([f"rows {MMA_M * i} +" for i in range(rt)], LIGHT.muted)
    owned.row_names([f"tokens {MMA_N * i} +" for i in range(tiles)], LIGHT.muted, gap=6)
    owned.title("the blocks, by owner")

    memory = Panel(fig, 5.0, 2.2, 6.6, height, (0, ks), (blocks, 0))
    width = 0.88 / kq
    places = rectangles(parts.cta + 0.06 + width * parts.part, parts.block + 0.06, width, 0.88)
    memory.boxes(places, COLORS[parts.owner], edgecolor=LIGHT.paper, linewidth=1.0)
    home = (parts.cta == parts.owner).to_numpy()
    memory.boxes(places[home], "none", hatch="//", edgecolor=style.HATCH_ON_FILL, linewidth=0)
    lit = (parts.block == block).to_numpy()
    memory.boxes(places[lit], "none", edgecolor=LIGHT.vermillion, linewidth=2.4, zorder=3)
    if width * 6.6 / ks > 0.16:
        memory.labels(places[lit][:, :2] + [width / 2, 0.44], parts.order[lit], style.ON_FILL, size=8.5)
    memory.row_names([f"block {b}" for b in range(blocks)], LIGHT.muted, gap=4, size=8.5)
    memory.column_names([f"CTA {c}" for c in range(ks)])
    memory.title(f"parts in each CTA's shared memory: {kq} of each block")

    summed = parts[lit].sort_values("order")
    total = len(summed)
    chain = Panel(fig, 1.15, 0.95, 10.45, 0.42, (0, total + 1.6), (1, 0))
    chain.boxes(rectangles(range(total), 0.1, 0.86, 0.8), COLORS[summed.cta], edgecolor=LIGHT.paper, linewidth=1)
    if total <= 16:
        names = [f"{cta}.{part}" for cta, part in zip(summed.cta, summed.part, strict=True)]
        chain.labels([(i + 0.43, 0.5) for i in range(total)], names, style.ON_FILL, size=9)
    chain.labels([(i - 0.07, 0.5) for i in range(1, total)], ["+"] * (total - 1), size=10, weight="bold")
    chain.labels([(total + 0.1, 0.5)], ["="], size=12, weight="bold")
    sum_color = COLORS[summed.owner.iloc[0]]
    chain.boxes([(total + 0.35, 0.0, 1.25, 1.0)], sum_color, edgecolor=LIGHT.vermillion, linewidth=2.4)
    chain.labels([(total + 0.975, 0.5)], ["sum"], style.ON_FILL, size=9)
    chain.title(f"the sum of block {block}, always in this order: CTA.part, from the first of K to the last", raised=6)
    chain.key([(f"CTA {c}", dict(facecolor=COLORS[c])) for c in range(ks)], 0, -0.42, 0.92)
    own = dict(facecolor=LIGHT.faint, hatch="//", edgecolor=LIGHT.paper)
    chain.key([("the owner's own", own)], 0.92 * ks + 0.25, -0.42, 1)
    owned.sentence(block_sentence(parts, block), -66, 34)
    return fig


def gather_timeline(spans: pd.DataFrame) -> Figure:
    """One lane per warp of the cluster over logical time; `spans` from `analysis.cluster.cluster_spans`."""
    low, high = int(spans.start.min()), int(spans.end.max())
    names = sorted({*zip(spans.cta, spans.warp, strict=True)})
    height = min(0.3, 6.4 / len(names)) * len(names)
    fig = style.figure(12, height + 1.5)
    panel = Panel(fig, 1.6, 0.8, 10.0, height, (low, high), (len(names), 0))
    panel.row_names([f"CTA {cta}, warp {warp}" for cta, warp in names], size=8.5)
    texts = [
        str(s.block) if s.what in ("gather", "settle") else f"barrier {s.number}" if s.what == "wait cluster" else ""
        for s in spans.itertuples()
    ]
    draw_lanes(panel, spans, names, COLORS[spans.cta], looks_of(GATHER_HATCHES, WAITS), texts)
    edges = [i for i in range(1, len(names)) if names[i][0] != names[i - 1][0]]
    panel.lines([[(low, i), (high, i)] for i in edges], LIGHT.faint, linewidths=0.8, clip=False)
    panel.key(lane_key(GATHER_HATCHES, WORDS), 0, height + 0.12, 1.55)
    panel.note(1, 1, "numbers: blocks", LIGHT.muted, ha="right", offset=(0, 13))
    panel.time_ticks()
    return fig


def settle_timeline(
    spans: pd.DataFrame, landings: pd.DataFrame, cta: int, time: int | None = None,
    window: tuple[int, int] | None = None,
) -> Figure:  # fmt: skip
    """The warps of one CTA (`cluster_spans`), and below them what lands in it (`arrivals`): x by group, parts by slot.

    `time` draws a cursor; `window` limits the time.
    """
    low, high = window or (int(spans.start.min()), int(spans.end.max()))
    of_cta, inside = spans[spans.cta == cta], landings[landings.cta == cta]
    warps = sorted(of_cta.warp.unique())
    tracks = [(kind, int(n)) for kind in ("x", "parts") for n in sorted(inside.number[inside.kind == kind].unique())]
    lanes, below = 0.34 * len(warps), 0.24 * len(tracks)
    fig = style.figure(12, lanes + below + 1.95)

    top = Panel(fig, 2.0, 1.15 + below, 9.7, lanes, (low, high), (len(warps), 0))
    top.row_names([f"CTA {cta}, warp {warp}" for warp in warps])
    looks = looks_of(SETTLE_HATCHES, WAITS)
    looks["stage x"] |= dict(facecolor=LIGHT.faint, edgecolor=LIGHT.paper)
    texts = [SETTLE_TEXTS.get(s.what, "").format(group=s.group, block=s.block) for s in of_cta.itertuples()]
    draw_lanes(top, of_cta, [(cta, w) for w in warps], _of_groups(of_cta.group), looks, texts)
    top.key(lane_key(SETTLE_HATCHES, WORDS), 0, lanes + 0.12, 1.3)
    top.key(_group_key(sorted(set(spans.group[spans.what == "multiply"])), ""), 7.35, lanes + 0.12, 0.58)
    top.labels([(low + 7.25 / 9.7 * (high - low), 0)], ["group"], ha="right", offset=(0, 13))

    bottom = Panel(fig, 2.0, 0.8, 9.7, below, (low, high), (len(tracks), 0))
    for i, (kind, number) in enumerate(tracks):
        events = inside[(inside.kind == kind) & (inside.number == number)]
        first, full = events.iloc[0], events.time.iloc[-1]
        ends = np.clip([*events.time[1:], high], low, high)
        starts, share = np.clip(events.time, low, high), events.landed / events.expected
        boxes = rectangles(starts, i + 0.92 - 0.84 * share, ends - starts, 0.84 * share)
        bottom.boxes(boxes[ends > starts], _of_groups([first.group])[0])
        if low <= full < high:
            bottom.lines([[(full, i + 0.05), (full, i + 0.95)]], LIGHT.ink, linewidths=1.8)
        name = f"x of group {number}" if kind == "x" else f"slot {number}: block {first.block}"
        bottom.labels([(low, i + 0.5)], [f"{name}, {first.expected:,} B"], ha="right", offset=(-8, 0), size=8.5)
    bottom.lines([[(low, i), (high, i)] for i in range(len(tracks) + 1)], LIGHT.grid, linewidths=0.7, clip=False)
    bottom.note(0, 1, "landed in this CTA's shared memory, as a share of what the barrier expects; a line: complete",
                LIGHT.muted, ha="left", offset=(0, 7), size=8.5)  # fmt: skip
    bottom.time_ticks()
    for panel in (top, bottom):
        panel.cursor(time, zorder=5)
    return fig


def owner_view(parts: pd.DataFrame, warps: int, cta: int = 0) -> Figure:
    """The blocks of a cluster (`owners`), and the slots in which each CTA owns some; warp slot mod `warps` settles."""
    each = parts.drop_duplicates("block")
    ks, rt, tiles = (int(parts[name].max()) + 1 for name in ("cta", "row_tile", "token_tile"))
    slots, height = int(each.slot.max()) + 1, 0.4 * max(tiles, ks)
    fig = style.figure(12, height + 1.55)
    fills, lit = _of_groups(each.group), (each.owner == cta).to_numpy()

    left = Panel(fig, 1.25, 0.75 + height - 0.4 * tiles, 1.15 * rt, 0.4 * tiles, (0, rt), (tiles, 0))
    cells = rectangles(each.row_tile, each.token_tile)
    draw_blocks(left, cells, fills, [f"{b}: CTA {o}" for b, o in zip(each.block, each.owner, strict=True)], lit)
    left.row_names([f"tokens {MMA_N * i} +" for i in range(tiles)], LIGHT.muted, gap=6)
    left.column_names([f"rows {MMA_M * i} +" for i in range(rt)], LIGHT.muted)
    left.title(f"block: its owner, block mod {ks}")

    width = min(1.15, 4.8 / slots)
    right = Panel(fig, 6.6, 0.75 + height - 0.4 * ks, width * slots, 0.4 * ks, (0, slots), (ks, 0))
    cells = rectangles(each.slot, each.owner)
    draw_blocks(right, cells, fills, [f"block {b}" if width > 0.7 else b for b in each.block], lit)
    right.row_names([f"CTA {c} owns" for c in range(ks)], LIGHT.muted, gap=6)
    right.column_names([f"slot {s}, w {s % warps}" if width > 0.9 else s for s in range(slots)], LIGHT.muted)
    right.title("each CTA's slots" + (", and the warp that settles" if width > 0.9 else ""))
    Panel(fig, 1.25, 0.32, 10, 0.2).key(_group_key(sorted(each.group.unique()), "group "), 0, 0, 1.0)
    return fig


def _of_groups(groups: Any) -> np.ndarray:
    return COLORS[np.asarray(groups) % len(COLORS)]


def _group_key(groups: Sequence[int], prefix: str) -> list[tuple[str, dict]]:
    return [(f"{prefix}{g}", dict(facecolor=_of_groups(g))) for g in groups[: len(COLORS)]]
