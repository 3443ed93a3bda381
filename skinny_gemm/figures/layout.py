"""Pictures of shared memory: the swizzle, and the linked view of one `ldmatrix`.

In both of them colour is the group of four banks that serves a 16-byte chunk.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.loads import bank_sentence, group, lane_sentence
from ..layouts import banks
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES, plain_offset, tile_offset
from . import style
from .panel import Panel, rectangles


def swizzle_map(k_tile: int, rows: int = 16, theme: style.Theme = style.LIGHT) -> Figure:
    """A `[rows, k_tile]` tile without and with the swizzle: which four banks serve each 16-byte chunk.

    A column of eight rows is one matrix of an `ldmatrix`: it should meet eight different groups.
    """
    columns, height = k_tile // CHUNK, 0.23 * rows
    fig = style.figure(11, height + 1.6, theme)
    for i, (offset, name) in enumerate([(plain_offset, "row-major"), (tile_offset, "swizzled")]):
        panel = Panel(fig, 0.6 + 5.35 * i, 1.05, 4.9, height, theme, x=(0, columns), y=(rows, 0))
        _tile(panel, offset, k_tile)
        row, chunk = np.divmod(np.arange(rows * columns), columns)
        groups = group(ELEMENT_BYTES * offset(row, CHUNK * chunk, k_tile))
        panel.labels(np.column_stack([chunk, row]) + 0.5, groups, style.ON_FILL, size=7.5)
        matrices = ELEMENT_BYTES * offset(np.arange(32) % 8, CHUNK * (np.arange(32) // 8), k_tile)
        panel.title(f"{name}: {banks.wavefronts(matrices, 16)} wavefronts per load")
        panel.boxes([(0, 0, 1, 8)], "none", edgecolor=theme.ink, linewidth=2.2)
        if i == 0:
            _group_key(panel)
    return fig


def ldmatrix_view(
    table: pd.DataFrame,
    k_tile: int,
    rows: int,
    lane: int = 0,
    bank: int | None = None,
    theme: style.Theme = style.LIGHT,
) -> Figure:
    """One `ldmatrix.x4`, linked: the chunks its lanes address, the banks that serve them, the registers they fill.

    `table` from `analysis.loads.ldmatrix_table`; `rows` of the tile drawn. `lane` is lit in every panel; so is each
    lane that hits `bank`, if given.
    """
    fig = style.figure(12, 6.9, theme)
    columns = k_tile // CHUNK
    colors = [style.BANK_GROUPS[g] for g in group(table.address)]
    swizzled = bool((table.address != ELEMENT_BYTES * plain_offset(table.row, table.col, k_tile)).any())

    tile = Panel(fig, 0.65, 1.1, 5.2, 4.75, theme, x=(0, columns), y=(rows, 0))
    _tile(tile, tile_offset if swizzled else plain_offset, k_tile, alpha=0.3)
    tile.title("tile: the chunk each lane addresses")
    _group_key(tile)
    chunks = rectangles(table.col // CHUNK, table.row)
    tile.boxes(chunks, colors, edgecolor=theme.ink, linewidth=0.6)
    tile.labels(chunks[:, :2] + 0.5, table.lane, style.ON_FILL, size=7.5 if columns > 16 else 9)

    rounds = table.groupby("matrix").turn.max().to_numpy() + 1  # wavefronts of each matrix
    total, ways = int(rounds.sum()), int(rounds.max())
    height = max(total, 8)
    serve = Panel(fig, 6.6, 2.8, 5.1, 3.05, theme, x=(0, banks.BANKS), y=(height, 0))
    verdict = "no conflict" if ways == 1 else f"{ways}-way conflict"
    serve.title(f"banks: {total} wavefronts, {verdict}")
    serve.ticks("x", np.arange(0, 33, 4), range(0, 33, 4), "bank", grid=False)
    serve.ticks("y", np.arange(0, height + 1, height // 8), range(0, height + 1, height // 8), "wavefront")
    serve.frame()
    if bank is not None:
        serve.boxes([(bank, 0, 1, height)], theme.faint, alpha=0.6)
    wavefront = (np.cumsum(rounds) - rounds)[table.matrix] + table.turn
    served = rectangles(table.bank, wavefront, 4)
    serve.boxes(served, colors, edgecolor=theme.paper, linewidth=0.4)
    serve.labels(served[:, :2] + [2, 0.5], table.lane, style.ON_FILL, size=min(9, 200 / height))

    registers = Panel(fig, 6.6, 1.1, 5.1, 0.92, theme, x=(0, banks.WARP), y=(4, 0))
    registers.title("registers: the lane whose bytes fill them")
    registers.ticks("x", np.arange(0, 32, 4) + 0.5, range(0, 32, 4), "lane that receives", grid=False)
    registers.ticks("y", np.arange(4) + 0.5, [f"R{r}" for r in range(4)], grid=False)
    filled = rectangles(table.first_lane, table.register, 4)
    registers.boxes(filled, colors, edgecolor=theme.paper, linewidth=0.8)
    registers.labels(filled[:, :2] + [2, 0.5], table.lane, style.ON_FILL, size=8.5)

    hits = (table.bank == (-1 if bank is None else bank // 4 * 4)).to_numpy()
    for panel, places in ((tile, chunks), (serve, served), (registers, filled)):
        panel.boxes(places[hits], "none", edgecolor=style.ON_FILL, linewidth=1.8, zorder=3)
        panel.boxes(places[[lane]], "none", edgecolor=theme.vermillion, linewidth=3.5, zorder=3.5)
    tile.sentence(lane_sentence(table, lane), 0, 52)
    if bank is not None:
        tile.sentence(bank_sentence(table, bank), 0, 33, weight="normal")
    return fig


def _tile(panel: Panel, offset, k_tile: int, alpha: float = 1.0) -> None:
    """All chunks of the tile that `panel` spans, coloured by the group of banks, with its rows and columns named."""
    columns, rows = k_tile // CHUNK, panel.y[0]
    row, chunk = np.divmod(np.arange(rows * columns), columns)
    colors = [style.BANK_GROUPS[g] for g in group(ELEMENT_BYTES * offset(row, CHUNK * chunk, k_tile))]
    panel.boxes(rectangles(chunk, row), colors, edgecolor=panel.theme.paper, linewidth=0.5, alpha=alpha)
    at = np.arange(0, columns, columns // 8)
    panel.ticks("x", at + 0.5, CHUNK * at, "k of the chunk's first element", grid=False)
    panel.ticks("y", np.arange(0, rows, 2) + 0.5, range(0, rows, 2), "row", grid=False)


def _group_key(panel: Panel) -> None:
    """Which colour is which four banks, below the panel."""
    entries = [
        (f"{4 * g}-{4 * g + 3}", dict(facecolor=color, edgecolor=panel.theme.muted, linewidth=0.5))
        for g, color in enumerate(style.BANK_GROUPS)
    ]
    panel.note(0, 0, "banks", ha="left", offset=(0, -40))
    panel.key(entries, 0.5, -0.62, 0.72)
