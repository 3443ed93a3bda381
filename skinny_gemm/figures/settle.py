"""Token groups and the settle pipeline: which group each warp works on, which parts have landed, who owns what.

Colour is the token group, everywhere but in the picture of the banks.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.loads import x_load_table
from ..layouts import banks
from ..layouts import ws_gemm as layout
from ..layouts.swizzle import ELEMENT_BYTES
from . import style
from .cluster import draw_blocks, row_tiles, token_tiles
from .lanes import cursor, draw_lanes, lane_key, lane_looks, time_ticks
from .panel import Panel, rectangles

HATCHES = {"stage x": "xx", "multiply": "", "push": "///", "settle": ".."}
GROUPS = len(style.BANK_GROUPS)  #: colours; more groups than that repeat them


def color(group: int) -> str:
    """The colour of a token group."""
    return style.BANK_GROUPS[group % GROUPS]


def settle_timeline(
    frame: pd.DataFrame,
    landings: pd.DataFrame,
    cta: int,
    time: int | None = None,
    window: tuple[int, int] | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """The warps of one CTA over logical time, and below them what lands in it: x by group, pushed parts by slot.

    `frame` and `landings` from `cluster_spans` and `arrivals` of `analysis.cluster`. `time` draws a cursor; `window`
    limits the time.
    """
    low, high = window or (int(frame.start.min()), int(frame.end.max()))
    of_cta, inside = frame[frame.cta == cta], landings[landings.cta == cta]
    warps = sorted(of_cta.warp.unique())
    tracks = [(kind, int(n)) for kind in ("x", "parts") for n in sorted(inside.number[inside.kind == kind].unique())]
    lanes, below = 0.34 * len(warps), 0.24 * len(tracks)
    fig = style.figure(12, lanes + below + 1.95, theme)

    top = Panel(fig, 2.0, 1.15 + below, 9.7, lanes, theme, x=(low, high), y=(len(warps), 0))
    top.row_names([f"CTA {cta}, warp {warp}" for warp in warps])
    looks = lane_looks(HATCHES, theme)
    looks["stage x"] |= dict(facecolor=theme.faint, edgecolor=theme.paper)
    texts = [_text(span) for span in of_cta.itertuples()]
    draw_lanes(top, of_cta, [(cta, w) for w in warps], [color(g) for g in of_cta.group], looks, texts)
    groups = sorted(set(frame.group[frame.what == "multiply"]))
    words = {"stage x": "stage x", "multiply": "multiply", "push": "push", "settle": "settle, publish"}
    top.key(lane_key(words, HATCHES, theme), 0, lanes + 0.12, 1.3)
    top.key([(f"{g}", dict(facecolor=color(g))) for g in groups[:GROUPS]], 7.35, lanes + 0.12, 0.58)
    top.labels([(low + 7.25 / 9.7 * (high - low), 0)], ["group"], ha="right", offset=(0, 13))

    low_panel = Panel(fig, 2.0, 0.8, 9.7, below, theme, x=(low, high), y=(len(tracks), 0))
    for i, (kind, number) in enumerate(tracks):
        events = inside[(inside.kind == kind) & (inside.number == number)]
        group = int(events.group.iloc[0])
        ends = np.clip([*events.time[1:], high], low, high)
        starts, share = np.clip(events.time, low, high), events.landed / events.expected
        boxes = rectangles(starts, i + 0.92 - 0.84 * share, ends - starts, 0.84 * share)
        low_panel.boxes(boxes[ends > starts], color(group))
        if len(events) and low <= events.time.iloc[-1] < high:
            full = events.time.iloc[-1]
            low_panel.lines([[(full, i + 0.05), (full, i + 0.95)]], theme.ink, linewidths=1.8)
        name = f"x of group {number}" if kind == "x" else f"slot {number}: block {int(events.block.iloc[0])}"
        name += f", {int(events.expected.iloc[0]):,} B"
        low_panel.labels([(low, i + 0.5)], [name], ha="right", offset=(-8, 0), size=8.5)
    edges = np.arange(len(tracks) + 1)
    low_panel.lines([[(low, e), (high, e)] for e in edges], theme.grid, linewidths=0.7, clip=False)
    low_panel.note(0, 1, "landed in this CTA's shared memory, as a share of what the barrier expects; a line: complete",
                   theme.muted, ha="left", offset=(0, 7), size=8.5)  # fmt: skip
    time_ticks(low_panel)
    cursor([top, low_panel], time, zorder=5)
    return fig


def _text(span) -> str:
    if span.what in ("multiply", "wait x"):
        return str(span.group)
    if span.what in ("settle", "wait slot"):
        return f"b{span.block}"
    return {"wait cluster": "cluster", "stage x": "x"}.get(span.what, "")


def owner_view(parts: pd.DataFrame, warps: int, cta: int = 0, theme: style.Theme = style.LIGHT) -> Figure:
    """The blocks of a cluster, and the slots in which each CTA owns some of them, by group.

    `parts` from `analysis.cluster.owners`; slot s is settled by warp s mod `warps`. `cta` is lit.
    """
    each = parts.drop_duplicates("block")
    ks, rt, tiles = (int(parts[name].max()) + 1 for name in ("cta", "row_tile", "token_tile"))
    slots, height = int(each.slot.max()) + 1, 0.4 * max(tiles, ks)
    fig = style.figure(12, height + 1.55, theme)
    fills = np.array([color(g) for g in each.group], dtype=object)
    lit = (each.owner == cta).to_numpy()

    left = Panel(fig, 1.25, 0.75 + height - 0.4 * tiles, 1.15 * rt, 0.4 * tiles, theme, x=(0, rt), y=(tiles, 0))
    cells = rectangles(each.row_tile, each.token_tile)
    draw_blocks(left, cells, fills, [f"{b}: CTA {o}" for b, o in zip(each.block, each.owner, strict=True)], lit)
    left.row_names(token_tiles(tiles), theme.muted, gap=6)
    left.column_names(row_tiles(rt), theme.muted)
    left.title(f"block: its owner, block mod {ks}")

    width = min(1.15, 4.8 / slots)
    right = Panel(fig, 6.6, 0.75 + height - 0.4 * ks, width * slots, 0.4 * ks, theme, x=(0, slots), y=(ks, 0))
    cells = rectangles(each.slot, each.owner)
    draw_blocks(right, cells, fills, [f"block {b}" if width > 0.7 else b for b in each.block], lit)
    right.row_names([f"CTA {c} owns" for c in range(ks)], theme.muted, gap=6)
    right.column_names([f"slot {s}, w {s % warps}" if width > 0.9 else s for s in range(slots)], theme.muted)
    right.title("each CTA's slots" + (", and the warp that settles" if width > 0.9 else ""))
    groups = sorted(each.group.unique())
    key = Panel(fig, 1.25, 0.32, 10, 0.2, theme)
    key.key([(f"group {g}", dict(facecolor=color(g))) for g in groups[:GROUPS]], 0, 0, 1.0)
    return fig


def x_bank_view(k_slice: int, theme: style.Theme = style.LIGHT) -> Figure:
    """The banks that serve one load of x, for rows end to end and for the kernel's pitch: a line per wavefront."""
    fig = style.figure(12, 4.0, theme)
    pitches = {False: ELEMENT_BYTES * k_slice, True: layout.x_pitch(k_slice)}
    for i, (padded, name) in enumerate([(False, "rows end to end"), (True, "as in the kernel")]):
        table = x_load_table(k_slice, padded)
        total = int(table.wavefront.max()) + 1
        panel = Panel(fig, 1.15 + 5.6 * i, 0.95, 4.9, 2.3, theme, x=(0, banks.BANKS), y=(8, 0))
        panel.title(f"{name}, {pitches[padded]:,} B apart: {total} wavefronts")
        panel.ticks("x", np.arange(0, 33, 8), range(0, 33, 8), "bank", grid=False)
        panel.ticks("y", np.arange(8) + 0.5, range(8), "wavefront" if i == 0 else "", grid=False)
        panel.frame()
        served = rectangles(table.bank, table.wavefront, 4)
        odd = (table.token % 2 == 1).to_numpy()
        for some, fill in ((~odd, theme.faint), (odd, theme.grey)):
            panel.boxes(served[some], fill, edgecolor=theme.paper, linewidth=0.8)
        texts = np.array([f"{t}.{p}" for t, p in zip(table.token, table.lane % 4, strict=True)], dtype=object)
        for some, ink in ((~odd, theme.ink), (odd, theme.paper)):
            panel.labels(served[some][:, :2] + [2, 0.5], texts[some], ink, size=9)
    look = dict(edgecolor=theme.muted, linewidth=0.5)
    key = Panel(fig, 1.15, 0.36, 10, 0.2, theme)
    fills = {"even token": theme.faint, "odd token": theme.grey}
    key.key([(name, look | dict(facecolor=fill)) for name, fill in fills.items()], 0, 0, 1.4)
    key.note(0.3, 0.3, "in a cell: token.16-byte chunk", theme.muted, ha="left")
    return fig
