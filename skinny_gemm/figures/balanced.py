"""Pictures of the balanced kernels: the rows that SMs stream, the rings of one CTA and the sums of a cluster over time,
and what `wgmma` reads and where its sums are.

Colour is the wave of an SM's rows, the stage of a ring, the CTA of a cluster: of a fragment its owner, of a warp its
own; of a chunk in shared memory the four banks that serve it. Time is the trace's logical time: the order of events,
not cycles.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis import balanced as readings
from ..layouts.fragments import MMA_M, MMA_N, WARPGROUP, WGMMA_M
from ..layouts.swizzle import ELEMENT_BYTES
from ..layouts.wgmma_splitk import ROW_STEP
from . import style
from .marks import COLORS, draw_blocks, draw_lanes, lane_key, looks_of
from .panel import Panel, rectangles, tick_step
from .style import LIGHT

IDLE = dict(facecolor=LIGHT.paper, hatch="xx", edgecolor=LIGHT.faint, linewidth=0)
HATCHES = {"copy": "///", "copy x": "\\\\", "load x": "++", "hold": "--", "multiply": "", "store": "..", "push": "||",
           "finish": "xx"}  # fmt: skip
WORDS = {"copy": "copy", "load x": "load x", "hold": "to registers", "store": "leave sums", "push": "add, send",
         "finish": "add, store"}  # fmt: skip
TEXTS = {"copy": "{number}", "multiply": "{number}", "push": "f{number}", "finish": "f{number}", "wait CTA": "CTA",
         "wait cluster": "cluster", "wait sums": "sums"}  # fmt: skip
TRACK = 0.075  #: inches: how high the copies in flight into one stage are drawn


def shares_view(table: pd.DataFrame, sms: int, k: int) -> Figure:
    """The rows of `cuts` that each of `sms` SMs streams, above in equal tiles, below balanced; hatched: idle."""
    found, n = readings.shares(table, sms), int(table.rows[table.cut == readings.BALANCED].sum())
    high = 1.08 * found.most.max()
    fig = style.figure(12, 6.3)
    for i, share in enumerate(found.itertuples()):
        ctas = table[table.cut == share.Index]
        panel = Panel(fig, 0.75, 3.95 - 2.9 * i, 10.9, 1.75, (0, sms), (0, high))
        base = ctas.groupby("sm").rows.cumsum() - ctas.rows
        boxes = rectangles(ctas.sm, base, 1, ctas.rows)
        panel.boxes(boxes, COLORS[ctas.wave % len(COLORS)], edgecolor=LIGHT.paper, linewidth=0.4)
        streamed = ctas.groupby("sm").rows.sum().reindex(range(sms), fill_value=0).to_numpy()
        idle = rectangles(np.arange(sms), streamed, 1, share.most - streamed)
        panel.boxes(idle[streamed < share.most], IDLE["facecolor"], **IDLE)
        panel.lines([[(0, n / sms), (sms, n / sms)]], LIGHT.ink, linewidths=1.2, linestyles=[(0, (4, 2))])
        step = int(tick_step(high, 5))
        panel.ticks("y", range(0, int(high) + 1, step), range(0, int(high) + 1, step), "rows", grid=False)
        panel.ticks("x", np.arange(0, sms, 10) + 0.5, range(0, sms, 10), "SM" if i else "", grid=False)
        panel.frame()
        waves = "1 wave" if share.waves == 1 else f"{share.waves} waves"
        tall, idle_share = _span(share.lowest, share.highest), f"{100 * share.idle:.1f} % of the SMs' time idle"
        panel.title(f"{share.Index} of {tall} rows: {share.ctas} CTAs in {waves}, {idle_share}", raised=24)
        most = f"the busiest SM streams {ELEMENT_BYTES * k * share.most:,} B, and all wait for it"
        panel.note(0, 1, f"{_span(share.least, share.most)} rows an SM; {most}", LIGHT.muted, ha="left", offset=(0, 12))
    entries = [
        (f"wave {wave}", dict(facecolor=fill)) for wave, fill in zip(range(found.waves.max()), COLORS, strict=False)
    ]
    key = Panel(fig, 0.75, 0.36, 10.9, 0.2)
    key.key([*entries, ("idle", IDLE | dict(edgecolor=LIGHT.muted))], 0, 0, 1.0)
    key.note(1, 0.4, f"dashed: N / SMs = {n / sms:.1f} rows", ha="right")
    return fig


def ring_timeline(
    spans: pd.DataFrame, stages: int, time: int | None = None, window: tuple[int, int] | None = None
) -> Figure:
    """The warps of one CTA (`warp_spans`), and below each the copies in flight into the stages of its own ring.

    Numbers are turns, arrows the trigger. `time` draws a cursor; `window` limits the time.
    """
    low, high = window or (int(spans.start.min()), int(spans.end.max()))
    warps = sorted(spans.warp.unique())
    lane = 0.3 + TRACK * stages + 0.07
    height = lane * len(warps)
    fig = style.figure(12, height + 1.95)
    panel = Panel(fig, 1.0, 0.8, 10.7, height, (low, high), (len(warps), 0))
    middle = 0.08 + 0.15 / lane  # of what a warp does, in its lane
    panel.labels(
        [(low, i + middle) for i in range(len(warps))], [f"warp {w}" for w in warps], ha="right", offset=(-8, 0)
    )
    looks = looks_of(HATCHES, readings.WAITS)
    looks |= {what: looks[what] | dict(facecolor=LIGHT.faint) for what in ("load x", "store", "finish")}
    texts = [TEXTS.get(s.what, "").format(number=s.number) for s in spans.itertuples()]
    names = [(int(spans.cta.iloc[0]), warp) for warp in warps]
    draw_lanes(panel, spans, names, COLORS[spans.stage % len(COLORS)], looks, texts, 0.3 / lane)
    _trigger(panel, spans, np.searchsorted(warps, spans.warp) + middle)

    flying = readings.flights(spans)
    seen = flying[(flying.end > low) & (flying.start < high)]
    start, end = seen.start.clip(lower=low).to_numpy(), seen.end.clip(upper=high).to_numpy()
    top = np.searchsorted(warps, seen.warp) + 0.08 + (0.33 + TRACK * seen.stage) / lane
    tracks = rectangles(start, top, end - start, 0.8 * TRACK / lane)
    panel.boxes(tracks, COLORS[seen.stage % len(COLORS)])
    panel.lines([[(low, i), (high, i)] for i in range(len(warps) + 1)], LIGHT.grid, linewidths=0.7, clip=False)
    panel.time_ticks()
    panel.cursor(time, zorder=5)

    turns, ahead, behind = readings.turns_apart(spans)
    apart = f"once warp {ahead} was {turns} turns ahead of warp {behind}" if turns else "in this schedule all keep step"
    panel.note(0, 1, f"{apart}; numbers: turns of the warp; arrow: lets the next grid start", LIGHT.muted, ha="left",
               offset=(0, 35))  # fmt: skip
    panel.title("what each warp does, and below it its copies in flight, a line for each stage", raised=47)
    _kinds(panel, spans)
    fills = [(f"stage {stage}", dict(facecolor=COLORS[stage % len(COLORS)])) for stage in range(min(stages, 4))]
    panel.key(fills, 7.4, height + 0.43, 0.84)
    return fig


def owner_view(parts: pd.DataFrame, fragment: int = 0) -> Figure:
    """The fragments of a row tile by owner, the sums of each in the rings of every CTA (`owners`), the slots in which
    they arrive, and the order in which those of `fragment`, lit, are added.
    """
    ctas, warps, slots = (int(parts[name].max()) + 1 for name in ("cta", "warp", "slot"))
    each = parts.drop_duplicates("fragment")
    rows, tokens = (int(parts[name].max()) + 1 for name in ("row_part", "token_part"))
    count, height = len(each), 0.23 * max(len(each), 7)
    fig = style.figure(12, height + 3.4)
    tall = min(0.45 * rows, height)
    tile = Panel(fig, 1.0, 2.15 + height - tall, 0.5 * tokens, tall, (0, tokens), (rows, 0))
    lit = (each.fragment == fragment).to_numpy()
    draw_blocks(tile, rectangles(each.token_part, each.row_part), COLORS[each.owner], each.fragment, lit)
    tile.row_names([f"rows {MMA_M * i} +" for i in range(rows)], LIGHT.muted, gap=6)
    tile.column_names([MMA_N * i for i in range(tokens)], LIGHT.muted)
    tile.note(0.5, 0, "token", LIGHT.muted, va="top", offset=(0, -17))
    tile.title("fragments, by owner")

    rings = Panel(fig, 4.2, 2.15, 4.1, height, (0, ctas), (count, 0))
    width = 0.9 / warps
    places = rectangles(parts.cta + 0.05 + width * parts.warp, parts.fragment + 0.06, width, 0.88)
    rings.boxes(places, COLORS[parts.owner], edgecolor=LIGHT.paper, linewidth=1)
    chosen = (parts.fragment == fragment).to_numpy()
    rings.boxes(places[chosen], "none", edgecolor=LIGHT.vermillion, linewidth=2, zorder=3)
    rings.row_names([f"fragment {i}" for i in range(count)], LIGHT.muted, gap=4, size=8)
    rings.column_names([f"CTA {cta}" for cta in range(ctas)])
    rings.title(f"in the rings: sums of {warps} warps")

    sent = parts[parts.warp == 0]
    tall = min(0.4 * ctas, height)
    receive = Panel(fig, 9.5, 2.15 + height - tall, 2.2, tall, (0, slots), (ctas, 0))
    width = 0.9 / ctas
    places = rectangles(sent.slot + 0.05 + width * sent.cta, sent.owner + 0.1, width, 0.8)
    receive.boxes(places, COLORS[sent.owner], edgecolor=LIGHT.paper, linewidth=1)
    chosen = (sent.fragment == fragment).to_numpy()
    receive.boxes(places[chosen], "none", edgecolor=LIGHT.vermillion, linewidth=2, zorder=3)
    receive.row_names([f"CTA {cta}" for cta in range(ctas)], LIGHT.muted, gap=6)
    receive.column_names([f"slot {slot}" if slots < 5 else slot for slot in range(slots)], LIGHT.muted)
    receive.title(f"received: {ctas} a slot")

    at = np.arange(ctas * warps)
    place = at + 0.5 * (at // warps)  # a gap parts CTAs
    end = place[-1] + 1
    chain = Panel(fig, 1.0, 0.95, min(10.7, 0.66 * (end + 2)), 0.42, (0, end + 2), (1, 0))
    chain.boxes(rectangles(place + 0.14, 0.1, 0.72, 0.8), COLORS[at // warps], edgecolor=LIGHT.paper, linewidth=1)
    names = [f"{i // warps}.{i % warps}" for i in at]
    chain.labels(np.column_stack([place + 0.5, 0 * at + 0.5]), names, style.ON_FILL, size=9 if end < 20 else 7)
    signs = [") + (" if i % warps == 0 else "+" for i in at[1:]] + [")  =", "("]
    middles = [*(place[1:] + place[:-1] + 1) / 2, end + 0.3, 0]
    chain.labels([(x, 0.5) for x in middles], signs, size=9, weight="bold")
    chain.boxes(
        [(end + 0.75, 0.0, 1.2, 1.0)], COLORS[each.owner[lit].iloc[0]], edgecolor=LIGHT.vermillion, linewidth=2.4
    )
    chain.labels([(end + 1.35, 0.5)], ["sum"], style.ON_FILL, size=9)
    chain.title(f"fragment {fragment} is always added in this order: CTA.warp; what is in brackets is sent", raised=6)
    chain.key([(f"CTA {cta}", dict(facecolor=COLORS[cta])) for cta in range(ctas)], 0, -0.42, 0.92)
    first, second = readings.fragment_sentences(parts, fragment)
    tile.sentence(first, -54, 53)
    tile.note(0, 1, second, ha="left", va="baseline", offset=(-54, 34))
    return fig


def cluster_timeline(
    spans: pd.DataFrame, landings: pd.DataFrame, time: int | None = None, window: tuple[int, int] | None = None
) -> Figure:
    """Every warp of a cluster (`warp_spans`), and below how much of the expected sums is in each CTA (`arrivals`).

    `time` draws a cursor; `window` limits the time.
    """
    low, high = window or (int(spans.start.min()), int(spans.end.max()))
    names, ctas = sorted({*zip(spans.cta, spans.warp, strict=True)}), int(spans.cta.max()) + 1
    lanes, below = min(0.3, 4.8 / len(names)) * len(names), 0.24 * ctas
    fig = style.figure(12, lanes + below + 2.0)
    panel = Panel(fig, 1.6, 1.15 + below, 10.1, lanes, (low, high), (len(names), 0))
    panel.row_names([f"CTA {cta}, warp {warp}" for cta, warp in names], size=8.5)
    texts = [TEXTS.get(s.what, "").format(number=s.number) for s in spans.itertuples()]
    draw_lanes(panel, spans, names, COLORS[spans.cta], looks_of(HATCHES, readings.WAITS), texts)
    lane = np.array([names.index(pair) for pair in zip(spans.cta, spans.warp, strict=True)])
    _trigger(panel, spans, lane + 0.5)
    arrived = (spans.what == "arrive").to_numpy()
    panel.line(spans.end[arrived], lane[arrived] + 0.5, LIGHT.vermillion, linestyle="", marker="|", markersize=13,
               markeredgewidth=2.4, zorder=3)  # fmt: skip
    edges = [i for i in range(1, len(names)) if names[i][0] != names[i - 1][0]]
    panel.lines([[(low, i), (high, i)] for i in edges], LIGHT.faint, linewidths=0.8, clip=False)
    _kinds(panel, spans)
    said = "bar: arrives at the cluster barrier; arrow: lets the next grid start; numbers: turns, f: fragments"
    panel.note(0, 1, said, LIGHT.muted, ha="left", offset=(0, 31))

    bottom = Panel(fig, 1.6, 0.8, 10.1, below, (low, high), (ctas, 0))
    for cta, events in landings.groupby("cta"):
        ends = np.clip([*events.time[1:], high], low, high)
        starts, share = np.clip(events.time, low, high), events.landed / events.expected
        boxes = rectangles(starts, cta + 0.92 - 0.84 * share, ends - starts, 0.84 * share)
        bottom.boxes(boxes[ends > starts], COLORS[cta])
        full = events.time.iloc[-1]
        if low <= full < high:
            bottom.lines([[(full, cta + 0.05), (full, cta + 0.95)]], LIGHT.ink, linewidths=1.8)
        text = f"CTA {cta}, {events.expected.iloc[0]:,} B"
        bottom.labels([(low, cta + 0.5)], [text], ha="right", offset=(-8, 0), size=8.5)
    bottom.lines([[(low, i), (high, i)] for i in range(ctas + 1)], LIGHT.grid, linewidths=0.7, clip=False)
    bottom.note(0, 1, "sums that have arrived, as a share of what the CTA's mbarrier expects; a line: complete",
                LIGHT.muted, ha="left", offset=(0, 7), size=8.5)  # fmt: skip
    bottom.time_ticks()
    for each in (panel, bottom):
        each.cursor(time, zorder=5)
    return fig


def wgmma_view(chunks: pd.DataFrame, sums: pd.DataFrame, row: int = 0, step: int = 0, thread: int = 0) -> Figure:
    """A stage of wgmma split-K (`stage_chunks`), eight rows of it as they lie in memory, and the sums (`wgmma_sums`).

    Lit: `row` of the stage and the chunks of k16 `step`; dots: what `thread` copies, and the results that it has.
    """
    fig = style.figure(12, 7.3)
    _draw_stage(fig, chunks, row, thread)
    _draw_pattern(fig, chunks[chunks.row // ROW_STEP == row // ROW_STEP], row, step)
    _draw_sums(fig, sums, chunks[chunks.row == row].iloc[0], thread)
    words = Panel(fig, 0.35, 6.3, 11, 0.1)
    for i, sentence in enumerate(readings.stage_sentences(chunks, sums, row, step, thread)):
        words.sentence(sentence, 0, 38 - 20 * i, "normal" if i else "bold")
    return fig


def _draw_stage(fig: Figure, chunks: pd.DataFrame, row: int, thread: int) -> None:
    """All rows of a stage by K chunk, what they are, and which of them `wgmma` reads as A and as B."""
    each, per_row = chunks[chunks.chunk == 0], int(chunks.chunk.max()) + 1
    panel = Panel(fig, 1.5, 0.9, 2.1, 4.8, (0, per_row), (max(len(each), WGMMA_M), 0))
    _draw_chunks(panel, rectangles(chunks.chunk, chunks.row), chunks, min(0.3, 20 / len(each)))
    panel.boxes([(0, row, per_row, 1)], "none", edgecolor=LIGHT.vermillion, linewidth=2, zorder=3)
    copied = chunks[chunks.thread == thread]
    panel.line(copied.chunk + 0.5, copied.row + 0.5, style.ON_FILL, linestyle="", marker="o", markersize=3.2, zorder=4)
    for what, rows in each.groupby("what", sort=False).row:
        many = f"{len(rows)} " + ("tokens" if what == readings.TOKENS else "row" if len(rows) == 1 else "rows")
        name = what if what == readings.PAST else f"{what}, {many}"
        panel.labels([(0, (rows.min() + rows.max() + 1) / 2)], [name], ha="right", offset=(-8, 0))
    for i, (name, start, end) in enumerate([("A", 0, WGMMA_M), ("B", int(each.row[each.b == 0].iloc[0]), len(each))]):
        x = per_row * (1.08 + 0.16 * i)
        edges = [[(x - 0.15, y), (x, y)] for y in (start, end)]
        panel.lines([[(x, start), (x, end)], *edges], LIGHT.ink, clip=False, linewidths=1.8)
        panel.labels([(x, (start + end) / 2)], [name], ha="left", offset=(5, 0), weight="bold")
    panel.column_names(range(per_row), LIGHT.muted)
    panel.note(0.5, 0, "16-byte chunk of 64 K elements", va="top", offset=(0, -19))
    panel.title("a stage, by row and K")


def _draw_pattern(fig: Figure, chunks: pd.DataFrame, row: int, step: int) -> None:
    """Eight rows as they lie in memory, 128 bytes a line, with the chunk that is in each place."""
    first, places = int(chunks.row.min()), readings.places_of(chunks)
    panel = Panel(fig, 5.05, 2.7, 2.7, 3.0, (0, int(places.max()) + 1), (first + ROW_STEP, first))
    cells, taken = rectangles(places, chunks.row), (chunks.chunk // readings.STEP_CHUNKS == step).to_numpy()
    _draw_chunks(panel, cells, chunks, 1)
    there = (chunks.what != readings.PAST).to_numpy()
    for some, look in ((taken, dict(size=11, weight="bold")), (~taken, dict(size=9))):
        panel.labels(cells[some & there, :2] + 0.5, chunks.chunk[some & there], style.ON_FILL, **look)
    inner = cells[taken] + [0.07, 0.07, -0.14, -0.14]
    panel.boxes(inner[there[taken]], "none", edgecolor=style.ON_FILL, linewidth=1.4)
    panel.boxes([(0, row, panel.x[1], 1)], "none", edgecolor=LIGHT.vermillion, linewidth=2.4, zorder=3)
    rows = first + np.arange(ROW_STEP)
    panel.labels([(0, i + 0.5) for i in rows], rows, LIGHT.muted, ha="right", offset=(-6, 0))
    panel.column_names(range(0, 4 * panel.x[1], 4), LIGHT.muted)
    panel.note(0.5, 0, "first of four banks", va="top", offset=(0, -19))
    panel.title("eight rows in memory")
    said = (
        "number: the chunk of its row that is there",
        "outlined: what one wgmma takes of them",
        "dots: what the thread copies, its results",
        "hatched: never copied, or never stored",
        "number of a sum's block: its fragment",
    )
    for i, text in enumerate(said):
        panel.note(0, 0, text, LIGHT.muted, ha="left", va="top", offset=(-24, -46 - 15 * i))


def _draw_chunks(panel: Panel, cells: np.ndarray, chunks: pd.DataFrame, edge: float) -> None:
    """The chunks at `cells`, filled by the banks that serve them; hatched where nothing is copied."""
    past, banks = (chunks.what == readings.PAST).to_numpy(), COLORS[readings.places_of(chunks)]
    panel.boxes(cells[~past], banks[~past], edgecolor=LIGHT.paper, linewidth=edge)
    panel.boxes(cells[past], IDLE["facecolor"], **IDLE)


def _draw_sums(fig: Figure, sums: pd.DataFrame, at: Any, thread: int) -> None:
    """The accumulator by rows of A and B: fragments, hatched what is no result, and a dot for each one of `thread`.

    `at` has the rows of A and of B that are lit, -1 for none.
    """
    columns = int(sums.b.max()) + 1
    panel = Panel(fig, 8.75, 0.9, 2.95, 4.8, (0, columns), (WGMMA_M, 0))
    results, stored = sums[sums.result], sums[sums.fragment >= 0].drop_duplicates("fragment")
    tokens, rows = int(results.a.max()) + 1, int(results.b.max()) + 1
    blocks = rectangles(stored.b // MMA_N * MMA_N, stored.a // MMA_M * MMA_M, MMA_N, MMA_M)
    panel.boxes(blocks, LIGHT.faint, edgecolor=LIGHT.paper, linewidth=1)
    for hatched in ((0, tokens, columns, WGMMA_M - tokens), (rows, 0, columns - rows, tokens)):
        panel.boxes([hatched], IDLE["facecolor"], **IDLE)
    middles = (blocks[:, :2] + np.minimum(blocks[:, :2] + blocks[:, 2:], (rows, tokens))) / 2  # of the results
    panel.labels(middles, stored.fragment, size=9 if len(blocks) < 36 else 7.5)
    mine = results[results.thread == thread]
    panel.line(mine.b + 0.5, mine.a + 0.5, LIGHT.ink, linestyle="", marker="o", markersize=3.2, zorder=4)
    panel.lines([[(0, MMA_M * w), (columns, MMA_M * w)] for w in range(WARPGROUP + 1)], LIGHT.muted, linewidths=0.9,
                clip=False)  # fmt: skip
    strips = np.array([(0, at.a, columns, 1), (at.b, 0, 1, WGMMA_M)])[[at.a >= 0, at.b >= 0]]
    panel.boxes(strips, "none", edgecolor=LIGHT.vermillion, linewidth=1.6, zorder=3)
    for warp in range(WARPGROUP):
        at_warp = [(0, MMA_M * (warp + 0.5))]
        panel.labels(at_warp, [f"warp {warp}"], ha="right", offset=(-8, 7))
        panel.labels(
            at_warp, [f"A {MMA_M * warp} to {MMA_M * warp + MMA_M - 1}"], LIGHT.muted, ha="right", offset=(-8, -7)
        )
    step = int(tick_step(columns, 8, least=8))
    panel.labels([(b + 0.5, WGMMA_M) for b in range(0, columns, step)], range(0, columns, step), LIGHT.muted, va="top",
                 offset=(0, -4))  # fmt: skip
    panel.note(0.5, 0, "row of B", va="top", offset=(0, -19))
    panel.title("sums, by row of A and B")


def _span(low: int, high: int) -> str:
    """Both in words, or one if they are the same."""
    return str(high) if low == high else f"{low} or {high}" if high == low + 1 else f"{low} to {high}"


def _kinds(panel: Panel, spans: pd.DataFrame) -> None:
    """The key of what the warps of `spans` do, above the panel."""
    seen = {what: hatch for what, hatch in HATCHES.items() if what in set(spans.what)}
    panel.key(lane_key(seen, WORDS), 0, panel.height + 0.13, 1.15)


def _trigger(panel: Panel, spans: pd.DataFrame, y: np.ndarray) -> None:
    """An arrow at every trigger that is shown, at the heights `y` of its spans."""
    low, high = panel.x
    fired = ((spans.what == "trigger") & (spans.end > low) & (spans.start < high)).to_numpy()
    at = (spans.start + spans.end).to_numpy() / 2
    panel.line(at[fired], y[fired], LIGHT.ink, linestyle="", marker=">", markersize=7, zorder=3, clip=False)
