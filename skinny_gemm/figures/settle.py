"""Token groups and the settle pipeline: which group each warp works on, which parts have landed, who owns what.

Colour is the token group, everywhere but in the picture of the banks.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts import banks
from ..layouts import ws_gemm as layout
from ..layouts.fragments import MMA_M, MMA_N
from ..layouts.swizzle import ELEMENT_BYTES
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from . import cluster, style
from .panel import Panel

HATCHES = {"stage x": "xx", "multiply": "", "push": "///", "settle": ".."}
GROUPS = len(style.BANK_GROUPS)  #: colours; more groups than that repeat them


def color(group: int) -> str:
    return style.BANK_GROUPS[group % GROUPS]


def arrivals(table: pd.DataFrame, tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What landed in the cluster's shared memory when: a row per landing of bulk copies and of pushes, by time.

    `table` from `Trace.table` of the cluster's CTAs 0..ks-1, recorded with `figures.cluster.OPCODES`. Columns: time,
    cta (that receives), kind ("x" or "parts"), number (the barrier's: group of x, slot of parts), group, block (of
    parts; else -1), source (CTA that sent), bytes, expected (bytes of the barrier's phase), landed (of them so far).
    """
    t, p = tactic, problem
    starts = {name: start for name, start, _ in t.smem_regions(p)}
    group_blocks = layout.tiles_per_group(p.m, t.tg) * t.rt
    parts, slice_bytes = t.ks * t.kq, ELEMENT_BYTES * p.k // t.ks
    sent, rows = {}, []
    for r in table[table.opcode.str.startswith("st.async") & (table.event == "execute")].itertuples():
        slot = int(r.addresses[0] - starts["receive"]) // (parts * layout.FRAGMENT_BYTES)
        sent[r.cta, r.warp, r.line] = int(r.peer[0]), slot
    for r in table[table.event == "land"].itertuples():
        if r.opcode.startswith("st.async"):
            cta, slot = sent[r.cta, r.warp, r.line]
            if r.barrier != starts["owner barriers"] + 8 * slot:  # of another warp that pushed at the same time
                continue
            block = layout.owned_block(cta, slot, t.ks)
            expected = parts * layout.FRAGMENT_BYTES
            rows.append((r.time, cta, "parts", slot, block // group_blocks, block, r.cta, r.lanes * r.bytes, expected))
        else:
            group = (r.barrier - starts["group barriers"]) // 8
            expected = layout.group_tokens(group, p.m, t.tg) * slice_bytes
            before = sum(row[7] for row in rows if row[1:4] == (r.cta, "x", group))
            landed = expected if r.phase else expected - r.pending_bytes
            rows.append((r.time, r.cta, "x", group, group, -1, r.cta, landed - before, expected))
    names = ["time", "cta", "kind", "number", "group", "block", "source", "bytes", "expected"]
    frame = pd.DataFrame(rows, columns=names).sort_values("time", kind="stable", ignore_index=True)
    frame = frame[frame.bytes > 0].reset_index(drop=True)  # x of other groups may land with the same copies
    return frame.assign(landed=frame.groupby(["cta", "kind", "number"]).bytes.cumsum())


def span_sentence(span) -> str:
    """A span of `figures.cluster.spans` of the settle pipeline, in words."""
    return {
        "wait grid": "waits for the previous grid (griddepcontrol.wait)",
        "wait CTA": "waits until the barriers of its CTA are initialised (bar.sync)",
        "wait cluster": "waits until the barriers of every owner are armed (barrier.cluster.wait)",
        "wait x": f"waits until x of group {span.group} has landed",
        "wait slot": f"waits until all parts of block {span.block} of group {span.group} are in slot {span.number}",
        "stage x": "arms the group barriers and sends for x, one bulk copy per token",
        "multiply": f"multiplies group {span.group}",
        "push": f"pushes its parts of group {span.group} to their owners",
        "settle": f"adds, turns round and publishes block {span.block} of group {span.group}",
    }[span.what]


def settle_timeline(
    frame: pd.DataFrame,
    landings: pd.DataFrame,
    cta: int,
    time: int | None = None,
    window: tuple[int, int] | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """The warps of one CTA over logical time, and below them what lands in it: x by group, pushed parts by slot.

    `frame` from `figures.cluster.spans`, `landings` from `arrivals`. `time` draws a cursor; `window` limits the time.
    """
    low, high = window or (int(frame.start.min()), int(frame.end.max()))
    mine, inside = frame[frame.cta == cta], landings[landings.cta == cta]
    warps = sorted(mine.warp.unique())
    tracks = [(kind, int(n)) for kind in ("x", "parts") for n in sorted(inside.number[inside.kind == kind].unique())]
    lanes, below = 0.34 * len(warps), 0.24 * len(tracks)
    fig = style.figure(12, lanes + below + 1.95, theme)

    top = Panel(fig, 2.0, 1.15 + below, 9.7, lanes, theme, x=(low, high), y=(len(warps), 0))
    top.labels([(low, i + 0.5) for i in range(len(warps))], [f"CTA {cta}, warp {w}" for w in warps], ha="right",
               offset=(-8, 0))  # fmt: skip
    looks = {what: dict(hatch=hatch, edgecolor=style.HATCH_ON_FILL, linewidth=0.4) for what, hatch in HATCHES.items()}
    looks |= {what: dict(facecolor=theme.paper, edgecolor=theme.faint, linewidth=0.8) for what in cluster.WAITS}
    looks["stage x"] |= dict(facecolor=theme.faint, edgecolor=theme.paper)
    texts = [_text(span) for span in mine.itertuples()]
    cluster.draw_lanes(top, mine, [(cta, w) for w in warps], [color(g) for g in mine.group], looks, texts)
    groups = sorted(set(frame.group[frame.what == "multiply"]))
    neutral = dict(facecolor=theme.faint, edgecolor=theme.paper, linewidth=0.4)
    words = {"stage x": "stage x", "multiply": "multiply", "push": "push", "settle": "settle, publish"}
    entries = [(text, neutral | dict(hatch=HATCHES[what])) for what, text in words.items()]
    entries.append(("wait", looks["wait x"] | dict(edgecolor=theme.muted)))
    top.key(entries, 0, lanes + 0.12, 1.3)
    top.key([(f"{g}", dict(facecolor=color(g))) for g in groups[:GROUPS]], 7.35, lanes + 0.12, 0.58)
    top.labels([(low + 7.25 / 9.7 * (high - low), 0)], ["group"], ha="right", offset=(0, 13))

    low_panel = Panel(fig, 2.0, 0.8, 9.7, below, theme, x=(low, high), y=(len(tracks), 0))
    for i, (kind, number) in enumerate(tracks):
        events = inside[(inside.kind == kind) & (inside.number == number)]
        group = int(events.group.iloc[0])
        ends = np.clip([*events.time[1:], high], low, high)
        starts, share = np.clip(events.time, low, high), events.landed / events.expected
        boxes = np.column_stack([starts, i + 0.92 - 0.84 * share, ends - starts, 0.84 * share])
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
    cluster.time_ticks(low_panel)
    cluster.cursor([top, low_panel], time)
    return fig


def _text(span) -> str:
    if span.what in ("multiply", "wait x"):
        return str(span.group)
    if span.what in ("settle", "wait slot"):
        return f"b{span.block}"
    return {"wait cluster": "cluster", "stage x": "x"}.get(span.what, "")


def owner_view(parts: pd.DataFrame, warps: int, cta: int = 0, theme: style.Theme = style.LIGHT) -> Figure:
    """The blocks of a cluster, and the slots in which each CTA owns some of them, by group.

    `parts` from `figures.cluster.owners`; slot s is settled by warp s mod `warps`. `cta` is lit.
    """
    each = parts.drop_duplicates("block")
    ks, rt, tiles = (int(parts[name].max()) + 1 for name in ("cta", "row_tile", "token_tile"))
    slots, height = int(each.slot.max()) + 1, 0.4 * max(tiles, ks)
    fig = style.figure(12, height + 1.55, theme)
    fills = np.array([color(g) for g in each.group], dtype=object)
    mine = (each.owner == cta).to_numpy()

    left = Panel(fig, 1.25, 0.75 + height - 0.4 * tiles, 1.15 * rt, 0.4 * tiles, theme, x=(0, rt), y=(tiles, 0))
    cells = np.column_stack([each.row_tile, each.token_tile, np.ones((len(each), 2))])
    _blocks(left, cells, fills, [f"{b}: CTA {o}" for b, o in zip(each.block, each.owner, strict=True)], mine)
    left.labels([(0, i + 0.5) for i in range(tiles)], [f"tokens {MMA_N * i} +" for i in range(tiles)], theme.muted,
                ha="right", offset=(-6, 0))  # fmt: skip
    left.labels([(i + 0.5, tiles) for i in range(rt)], [f"rows {MMA_M * i} +" for i in range(rt)], theme.muted,
                va="top", offset=(0, -4))  # fmt: skip
    left.title(f"block: its owner, block mod {ks}")

    width = min(1.15, 4.8 / slots)
    right = Panel(fig, 6.6, 0.75 + height - 0.4 * ks, width * slots, 0.4 * ks, theme, x=(0, slots), y=(ks, 0))
    cells = np.column_stack([each.slot, each.owner, np.ones((len(each), 2))])
    _blocks(right, cells, fills, [f"block {b}" if width > 0.7 else b for b in each.block], mine)
    right.labels([(0, c + 0.5) for c in range(ks)], [f"CTA {c} owns" for c in range(ks)], theme.muted, ha="right",
                 offset=(-6, 0))  # fmt: skip
    names = [f"slot {s}, w {s % warps}" if width > 0.9 else s for s in range(slots)]
    right.labels([(s + 0.5, ks) for s in range(slots)], names, theme.muted, va="top", offset=(0, -4))
    right.title("each CTA's slots" + (", and the warp that settles" if width > 0.9 else ""))
    groups = sorted(each.group.unique())
    key = Panel(fig, 1.25, 0.32, 10, 0.2, theme)
    key.key([(f"group {g}", dict(facecolor=color(g))) for g in groups[:GROUPS]], 0, 0, 1.0)
    return fig


def _blocks(panel: Panel, cells, fills, texts, lit) -> None:
    panel.boxes(cells, fills, edgecolor=panel.theme.paper, linewidth=1.5)
    panel.labels(cells[:, :2] + 0.5, texts, style.ON_FILL, size=9)
    panel.boxes(cells[lit], "none", edgecolor=panel.theme.vermillion, linewidth=2.4, zorder=3)


def x_load_table(k_slice: int, padded: bool = True, block: int = 0) -> pd.DataFrame:
    """One 16-byte load of a fragment of x by a warp: lane, token, address, bank (the first of four), phase, wavefront.

    `k_slice`: K elements of a row of the tile. `padded`: with the pitch of the kernel, else rows end to end.
    """
    lane = np.arange(banks.WARP)
    token, column = layout.load_row(lane), layout.k_column(0, block, lane, block + 1)
    address = layout.x_offset(token, column, k_slice) if padded else ELEMENT_BYTES * (token * k_slice + column)
    phase = lane // (banks.WARP // banks.phases(16))
    bank = banks.bank(address)
    same = (phase[:, None] == phase) & (bank[:, None] == bank) & (lane[:, None] > lane)
    turn = same.sum(axis=1)
    rounds = np.array([turn[phase == p].max() + 1 for p in range(banks.phases(16))])
    table = {"lane": lane, "token": token, "address": address, "bank": bank, "phase": phase}
    return pd.DataFrame(table | {"wavefront": (np.cumsum(rounds) - rounds)[phase] + turn})


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
        served = np.column_stack([table.bank, table.wavefront, np.full(32, 4), np.ones(32)])
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
