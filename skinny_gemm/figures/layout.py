"""Pictures of shared memory: its map, the swizzle, single loads lane by lane, and the bank conflicts of a kernel.

Where a load or a tile is drawn, colour is the group of four banks that serves a 16-byte chunk.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.bank_conflicts import SOURCES, bank_sentence, group, lane_sentence, stage_load_table, x_load_table
from ..analysis.tactic import smem_table
from ..device import Device
from ..layouts import balanced_splitk, banks
from ..layouts import ws_gemm as layout
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES, plain_offset, tile_offset
from ..tactics import Footprint
from . import style
from .panel import Panel, rectangles, tick_step
from .style import LIGHT

KB = 1024


def smem_map(footprint: Footprint, device: Device) -> Figure:
    """The shared memory of one SM with every CTA that fits, region by region."""
    fig = style.figure(12, 1.75)
    ctas = footprint.ctas_per_sm
    many = f"{ctas} CTAs fit" if ctas != 1 else "1 CTA fits"
    panel = draw_smem(fig, 0.25, 0.95, 11.4, footprint, device)
    panel.title(f"shared memory of an SM: {device.smem_per_sm // KB} KB, {many}" if ctas else "no CTA fits on an SM", 6)
    return fig


def draw_smem(fig: Figure, left: float, bottom: float, width: float, footprint: Footprint, device: Device) -> Panel:
    """The map in `fig`, `left`, `bottom` and `width` in inches; the key takes half an inch below. Returns the panel."""
    table = smem_table(footprint, device)
    panel = Panel(fig, left, bottom, width, 0.42, (0, device.smem_per_sm / KB), (0, 1))
    look = {
        name: dict(facecolor=LIGHT.series[i % 7], hatch=style.HATCHES[i % 8], edgecolor=LIGHT.paper, linewidth=0.6)
        for i, (name, _, _) in enumerate(footprint.regions)
    }
    look["reserved"] = dict(facecolor=LIGHT.ink, edgecolor=LIGHT.paper, linewidth=0.4)
    for name, rows in table[table.region.isin(look) & (table.bytes > 0)].groupby("region", sort=False):
        panel.boxes(rectangles(rows.start / KB, 0, rows.bytes / KB), look[name]["facecolor"], **look[name])
    panel.frame("lrbt")
    marks = range(0, device.smem_per_sm // KB + 1, 16 if device.smem_per_sm > 128 * KB else 8)
    panel.ticks("x", marks, [f"{kb} KB" if kb else "0" for kb in marks], grid=False)
    sizes = {name: size for name, _, size in footprint.regions if size} | {"reserved": device.smem_reserved_per_cta}
    at = 0.0
    for name, size in sizes.items():
        text = f"{name} {size / KB:.4g} KB" if size >= KB else f"{name} {size} B"
        panel.key([(text, look[name])], at, -0.52, 0)
        at += 0.55 + 0.077 * len(text)  # inches: the box, a gap, and what a character is wide on average
    return panel


def swizzle_map(k_tile: int, rows: int = 16) -> Figure:
    """A `[rows, k_tile]` tile without and with the swizzle: which four banks serve each 16-byte chunk.

    A column of eight rows is one matrix of an `ldmatrix`: it should meet eight different groups.
    """
    columns, height = k_tile // CHUNK, 0.23 * rows
    fig = style.figure(11, height + 1.6)
    for i, (offset, name) in enumerate([(plain_offset, "row-major"), (tile_offset, "swizzled")]):
        panel = Panel(fig, 0.6 + 5.35 * i, 1.05, 4.9, height, (0, columns), (rows, 0))
        chunks, groups = _tile(panel, offset, k_tile)
        panel.labels(chunks[:, :2] + 0.5, groups, style.ON_FILL, size=7.5)
        matrices = ELEMENT_BYTES * offset(np.arange(32) % 8, CHUNK * (np.arange(32) // 8), k_tile)
        panel.title(f"{name}: {banks.wavefronts(matrices, 16)} wavefronts per load")
        panel.boxes([(0, 0, 1, 8)], "none", edgecolor=LIGHT.ink, linewidth=2.2)
        if i == 0:
            _group_key(panel)
    return fig


def ldmatrix_view(table: pd.DataFrame, k_tile: int, rows: int, lane: int = 0, bank: int | None = None) -> Figure:
    """An `ldmatrix_table`, linked: the chunks its lanes address, the banks that serve them, the registers they fill.

    `rows` of the tile are drawn. `lane` is lit in every panel; so is each lane that hits `bank`, if given.
    """
    fig = style.figure(12, 6.9)
    columns = k_tile // CHUNK
    colors = [style.BANK_GROUPS[g] for g in group(table.address)]
    swizzled = bool((table.address != ELEMENT_BYTES * plain_offset(table.row, table.col, k_tile)).any())

    tile = Panel(fig, 0.65, 1.1, 5.2, 4.75, (0, columns), (rows, 0))
    _tile(tile, tile_offset if swizzled else plain_offset, k_tile, alpha=0.3)
    tile.title("tile: the chunk each lane addresses")
    _group_key(tile)
    chunks = rectangles(table.col // CHUNK, table.row)
    tile.boxes(chunks, colors, edgecolor=LIGHT.ink, linewidth=0.6)
    tile.labels(chunks[:, :2] + 0.5, table.lane, style.ON_FILL, size=7.5 if columns > 16 else 9)

    rounds = table.groupby("matrix").turn.max().to_numpy() + 1  # wavefronts of each matrix
    total, ways = int(rounds.sum()), int(rounds.max())
    height = max(total, 8)
    serve = Panel(fig, 6.6, 2.8, 5.1, 3.05, (0, banks.BANKS), (height, 0))
    serve.title(f"banks: {total} wavefronts, " + ("no conflict" if ways == 1 else f"{ways}-way conflict"))
    serve.ticks("x", range(0, 33, 4), range(0, 33, 4), "bank", grid=False)
    serve.ticks("y", range(0, height + 1, height // 8), range(0, height + 1, height // 8), "wavefront")
    serve.frame()
    if bank is not None:
        serve.boxes([(bank, 0, 1, height)], LIGHT.faint, alpha=0.6)
    served = rectangles(table.bank, (np.cumsum(rounds) - rounds)[table.matrix] + table.turn, 4)
    serve.boxes(served, colors, edgecolor=LIGHT.paper, linewidth=0.4)
    serve.labels(served[:, :2] + [2, 0.5], table.lane, style.ON_FILL, size=min(9, 200 / height))

    registers = Panel(fig, 6.6, 1.1, 5.1, 0.92, (0, banks.WARP), (4, 0))
    registers.title("registers: the lane whose bytes fill them")
    registers.ticks("x", np.arange(0, 32, 4) + 0.5, range(0, 32, 4), "lane that receives", grid=False)
    registers.ticks("y", np.arange(4) + 0.5, [f"R{r}" for r in range(4)], grid=False)
    filled = rectangles(table.first_lane, table.register, 4)
    registers.boxes(filled, colors, edgecolor=LIGHT.paper, linewidth=0.8)
    registers.labels(filled[:, :2] + [2, 0.5], table.lane, style.ON_FILL, size=8.5)

    hits = (table.bank == (-1 if bank is None else bank // 4 * 4)).to_numpy()
    for panel, places in ((tile, chunks), (serve, served), (registers, filled)):
        panel.boxes(places[hits], "none", edgecolor=style.ON_FILL, linewidth=1.8, zorder=3)
        panel.boxes(places[[lane]], "none", edgecolor=LIGHT.vermillion, linewidth=3.5, zorder=3.5)
    tile.sentence(lane_sentence(table, lane), 0, 52)
    if bank is not None:
        tile.sentence(bank_sentence(table, bank), 0, 33, weight="normal")
    return fig


def x_bank_view(k_slice: int) -> Figure:
    """The banks that serve one load of x, for rows end to end and for the kernel's pitch: a line per wavefront."""
    fig = style.figure(12, 4.0)
    choices = [(False, "rows end to end", ELEMENT_BYTES * k_slice), (True, "as in the kernel", layout.x_pitch(k_slice))]
    for i, (padded, name, pitch) in enumerate(choices):
        table = x_load_table(k_slice, padded)
        panel = Panel(fig, 1.15 + 5.6 * i, 0.95, 4.9, 2.3, (0, banks.BANKS), (8, 0))
        panel.title(f"{name}, {pitch:,} B apart: {table.wavefront.max() + 1} wavefronts")
        panel.ticks("x", range(0, 33, 8), range(0, 33, 8), "bank", grid=False)
        panel.ticks("y", np.arange(8) + 0.5, range(8), "wavefront" if i == 0 else "", grid=False)
        panel.frame()
        served = rectangles(table.bank, table.wavefront, 4)
        odd = (table.token % 2 == 1).to_numpy()
        texts = np.array([f"{t}.{p}" for t, p in zip(table.token, table.lane % 4, strict=True)])
        for some, fill, ink in ((~odd, LIGHT.faint, LIGHT.ink), (odd, LIGHT.grey, LIGHT.paper)):
            panel.boxes(served[some], fill, edgecolor=LIGHT.paper, linewidth=0.8)
            panel.labels(served[some][:, :2] + [2, 0.5], texts[some], ink, size=9)
    key = Panel(fig, 1.15, 0.36, 10, 0.2)
    fills = {"even token": LIGHT.faint, "odd token": LIGHT.grey}
    entries = [(name, dict(facecolor=fill, edgecolor=LIGHT.muted, linewidth=0.5)) for name, fill in fills.items()]
    key.key(entries, 0, 0, 1.4)
    key.note(0.3, 0.3, "in a cell: token.16-byte chunk", LIGHT.muted, ha="left")
    return fig


def stage_view(k_chunk: int, half: int = 0, block: int = 0) -> Figure:
    """Two half tiles of a stage of balanced split-K, row-major and as in the kernel: which four banks serve a chunk.

    The load of `half` tile and K `block` is lit, with the lane of each chunk; below are its wavefronts.
    """
    rows, columns = 2 * balanced_splitk.HALF_TILE, k_chunk // CHUNK
    fig = style.figure(12, 6.6)
    choices = (plain_offset, "row-major"), (_staged_offset, "halves of odd rows swapped, as in the kernel")
    for i, (offset, name) in enumerate(choices):
        table = stage_load_table(k_chunk, offset is _staged_offset, half, block)
        colors = np.array([style.BANK_GROUPS[g] for g in group(table.address)], dtype=object)
        tile = Panel(fig, 0.75 + 5.8 * i, 3.15, 4.9, 2.9, (0, columns), (rows, 0))
        _tile(tile, offset, k_chunk, alpha=0.35)
        tile.title(name)
        serve = Panel(fig, 0.75 + 5.8 * i, 0.95, 4.9, 1.2, (0, banks.BANKS), (8, 0))
        serve.note(0, 1, f"{table.wavefront.max() + 1} wavefronts a load", ha="left", va="baseline", offset=(0, 6))
        serve.ticks("x", range(0, 33, 8), range(0, 33, 8), "bank", grid=False)
        serve.ticks("y", np.arange(0, 8, 2) + 0.5, range(0, 8, 2), grid=False)
        serve.frame()
        chunks, served = rectangles(table.chunk, table.row), rectangles(table.bank, table.wavefront, 4)
        for panel, places, edge in ((tile, chunks, LIGHT.ink), (serve, served, LIGHT.paper)):
            panel.boxes(places, colors, edgecolor=edge, linewidth=0.6)
            panel.labels(places[:, :2] + places[:, 2:] / 2, table.lane, style.ON_FILL, size=8)
    return fig


def conflict_bars(data: pd.DataFrame) -> Figure:
    """Wavefronts per access, a bar per row of `modelled` and `observed`: bars of one access stand together, each source
    has a grey and a hatch (colour means banks), a mark shows the ideal.
    """
    sources = [source for source in dict.fromkeys([*SOURCES, *data.source]) if source in set(data.source)]
    groups = {access: rows.set_index("source") for access, rows in data.groupby("access", sort=False)}
    lines = len(data) + len(groups)
    height = 0.27 * lines
    fig = style.figure(10, height + 1.6)
    limit = max(float(data.wavefronts.max()), 1.0) * 1.12
    panel = Panel(fig, 2.6, 0.95, 6.9, height, (0, limit), (lines, 0))
    step = int(tick_step(limit, 9))
    panel.ticks("x", np.arange(0, limit, step), range(0, int(limit) + 1, step), "wavefronts per warp-wide access")
    panel.frame("l")
    fills = LIGHT.grey, LIGHT.faint, LIGHT.muted
    look = {
        source: dict(facecolor=fills[j % 3], hatch=style.HATCHES[j % 8], edgecolor=LIGHT.paper)
        for j, source in enumerate(sources)
    }
    y = 0.5
    for access, rows in groups.items():
        panel.labels([(0, y + len(rows) / 2)], [access], ha="right", offset=(-8, 0))
        for source in (source for source in sources if source in rows.index):
            wavefronts, ideal = rows.wavefronts[source], rows.ideal[source]
            panel.boxes([(0, y + 0.1, wavefronts, 0.8)], look[source]["facecolor"], **look[source])
            panel.lines([[(ideal, y), (ideal, y + 1)]], LIGHT.ink, linewidths=2.2, zorder=3)
            text = f"{wavefronts:.2f}".rstrip("0").rstrip(".")
            panel.labels([(wavefronts, y + 0.5)], [text], ha="left", offset=(5, 0))
            y += 1
        y += 1
    panel.key(list(look.items()), 0, height + 0.15, 1.75)
    panel.note(1, 1, "|  without conflicts", ha="right", weight="bold", offset=(0, 15.5))
    return fig


def _tile(panel: Panel, offset: Callable, k_tile: int, alpha: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Draws all chunks of the tile that `panel` spans, with its rows and columns named; their places and groups."""
    columns, rows = k_tile // CHUNK, panel.y[0]
    row, chunk = np.divmod(np.arange(rows * columns), columns)
    places, groups = rectangles(chunk, row), group(ELEMENT_BYTES * offset(row, CHUNK * chunk, k_tile))
    colors = [style.BANK_GROUPS[g] for g in groups]
    panel.boxes(places, colors, edgecolor=LIGHT.paper, linewidth=0.5, alpha=alpha)
    at = np.arange(0, columns, columns // 8)
    panel.ticks("x", at + 0.5, CHUNK * at, "k of the chunk's first element", grid=False)
    panel.ticks("y", np.arange(0, rows, 2) + 0.5, range(0, rows, 2), "row", grid=False)
    return places, groups


def _staged_offset(row: np.ndarray, column: np.ndarray, k_chunk: int) -> np.ndarray:
    """`balanced_splitk.stage_offset` of the chunk that starts at K element `column`, in elements."""
    return balanced_splitk.stage_offset(row, column // CHUNK, k_chunk) // ELEMENT_BYTES


def _group_key(panel: Panel) -> None:
    """Which colour is which four banks, below the panel."""
    edge = dict(edgecolor=LIGHT.muted, linewidth=0.5)
    entries = [(f"{4 * g}-{4 * g + 3}", edge | dict(facecolor=fill)) for g, fill in enumerate(style.BANK_GROUPS)]
    panel.note(0, 0, "banks", ha="left", offset=(0, -40))
    panel.key(entries, 0.5, -0.62, 0.72)
