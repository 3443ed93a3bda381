"""Pictures of the tables of `analysis.stationary`: the K permutation, where weights wait, one warp over its steps.

Colour is what the data are: weights held in registers, weights staged in shared memory, x, sums, published results.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ..analysis import stationary as readings
from ..layouts import fragments
from . import style
from .panel import Panel, rectangles, tick_step
from .style import LIGHT

SHADES = (0.12, 0.26, 0.42, 0.6)  #: of the four lanes that share a row
MOST_NAMED = 12  #: K blocks of a warp whose place is written on them
_HELD, _STAGED = dict(facecolor=LIGHT.blue), dict(facecolor=LIGHT.sky, hatch="///")
PLACE_LOOKS: dict[str, dict] = {  #: of weights by where they wait
    readings.REGISTERS: _HELD | dict(edgecolor=LIGHT.paper, linewidth=0.4),
    readings.STAGED: _STAGED | dict(edgecolor=LIGHT.paper, linewidth=0.4),
}
KIND_LOOKS: dict[str, dict] = {  #: of `readings.KINDS`, without an edge where nothing else is said
    readings.HELD: _HELD,
    readings.COPIED: _STAGED,
    readings.WAIT: dict(facecolor=LIGHT.paper, hatch="xx", edgecolor=LIGHT.muted, linewidth=0.7),
    readings.X: dict(facecolor=LIGHT.vermillion),
    readings.BACK: _STAGED,
    readings.MMA: dict(facecolor=LIGHT.green),
    readings.SUMS: dict(facecolor=LIGHT.green, hatch=".."),
    readings.PUBLISH: dict(facecolor=LIGHT.orange),
}


def permutation_view(table: pd.DataFrame, lane: int = 0, column: int = 0) -> Figure:
    """The `fragment_table` of the K block from `column` on, linked: the 16 bytes that each lane loads, and the two mma
    fragments that their words make; `lane` is lit everywhere.
    """
    fig = style.figure(12, 8.2)
    strip = Panel(fig, 1.05, 5.9, 10.4, 1.2, (0, fragments.K_BLOCK), (3.4, 0))
    _strip(strip, table, lane, column)
    first, second = readings.lane_sentences(table, lane, column)
    strip.sentence(first, -60, 53)
    strip.note(0, 1, second, ha="left", va="baseline", offset=(-60, 34))

    for operand, name, fragment, rows, bottom, color in (
        ("W", "16 rows of W", "A", fragments.MMA_M, 2.6, LIGHT.blue),
        ("x", "8 tokens of x", "B", fragments.MMA_N, 0.95, LIGHT.vermillion),
    ):
        of_operand, height = table[table.operand == operand], 0.165 * rows
        memory = Panel(fig, 1.05, bottom, 4.6, height, (0, fragments.K_BLOCK), (rows, 0))
        loads = of_operand[of_operand.word == 0]
        _cells(memory, loads.element, loads.row, readings.CHUNK, loads.lane, color, lane)
        memory.ticks("y", np.arange(0, rows, 4) + 0.5, range(0, rows, 4), grid=False)
        memory.title(f"{name} in memory, by the lane that loads", raised=6)
        panels = [memory]
        for mma in range(readings.MMAS):
            some = of_operand[of_operand.mma == mma]
            panels.append(Panel(fig, 6.2 + 2.7 * mma, bottom, 2.55, height, (0, fragments.MMA_K), (rows, 0)))
            _cells(panels[-1], some.k, some.row, 2, some.lane, color, lane)
            panels[-1].title(f"{fragment} of mma {mma}, by lane", raised=6)
    at, positions = np.arange(0, fragments.K_BLOCK, readings.CHUNK), np.arange(0, fragments.MMA_K, 2)
    panels[0].ticks("x", at, column + at, "K in memory", grid=False)
    for panel in panels[1:]:
        panel.ticks("x", positions + 1, positions, "k as the mma counts it", grid=False)
    entries = [("weights", dict(facecolor=LIGHT.blue, alpha=0.6)), ("x", dict(facecolor=LIGHT.vermillion, alpha=0.6))]
    grey = dict(facecolor=LIGHT.grey, edgecolor=LIGHT.muted, linewidth=0.5)
    entries += [(f"lane mod 4 = {p}", grey | dict(alpha=shade)) for p, shade in enumerate(SHADES)]
    Panel(fig, 1.05, 0.3, 10, 0.2).key(entries, 0, 0, 1.5)
    return fig


def _strip(panel: Panel, table: pd.DataFrame, lane: int, column: int) -> None:
    """One row's 32 elements in memory order, and below them the same in the order of the two mma."""
    row = table[(table.operand == "x") & (table.row == 0)].sort_values(["mma", "k"])
    part, above = (row.lane & 3).to_numpy(), row.element.to_numpy()
    below = (row.k + fragments.MMA_K * row.mma).to_numpy()
    lit = part == (lane & 3)
    cells = np.stack([rectangles(above, 0, 2), rectangles(below, 2.4, 2)], axis=1)
    for p, shade in enumerate(SHADES):
        panel.boxes(cells[part == p], LIGHT.grey, alpha=shade, edgecolor=LIGHT.paper, linewidth=0.8)
    ways = np.array([[(a + 1, 1), (b + 1, 2.4)] for a, b in zip(above, below, strict=True)])
    panel.lines(ways[~lit], LIGHT.faint, linewidths=0.9, clip=False)
    panel.lines(ways[lit], LIGHT.ink, linewidths=1.8, clip=False)
    panel.boxes(cells[lit], "none", edgecolor=LIGHT.ink, linewidth=1.8, zorder=3)
    panel.labels([(i + 0.5, 0.5) for i in range(32)], range(32), size=8)
    places, elements = (np.add.outer(first, [0, 1]).reshape(-1) for first in (below, above))  # two of each word
    panel.labels([(place + 0.5, 2.9) for place in places], elements, size=8)
    panel.lines([[(fragments.MMA_K, 2.2), (fragments.MMA_K, 3.6)]], LIGHT.ink, linewidths=2.2, clip=False)
    panel.labels([(0, 0.5), (0, 2.9)], ["memory", "mma 0 | 1"], ha="right", offset=(-8, 0))
    panel.title(f"the permutation of every row, of W and of x: element {column} + ...", raised=7)


def _cells(panel: Panel, x: ArrayLike, y: ArrayLike, width: float, lanes: pd.Series, color: str, lane: int) -> None:
    """Cells `width` wide at (x, y), shaded by lane mod 4 and numbered; those of `lane` outlined."""
    places = rectangles(x, y, width)
    for p, shade in enumerate(SHADES):
        panel.boxes(places[lanes % 4 == p], color, alpha=shade, edgecolor=LIGHT.paper, linewidth=0.5)
    panel.labels(places[:, :2] + [width / 2, 0.5], lanes, size=7)
    panel.boxes(places[lanes == lane], "none", edgecolor=LIGHT.ink, linewidth=2.2, zorder=3)


def placement_view(table: pd.DataFrame, cta: int = 0, warp: int = 0) -> Figure:
    """How K of a cluster's weights is cut over CTAs and warps (`placement_table`), and below it one warp's K blocks."""
    rt, ctas, kb = (int(table[name].max()) + 1 for name in ("row_tile", "cta", "block"))
    blocks = len(table) // rt
    height = 0.3 * rt
    fig = style.figure(12, height + 2.85)
    panel = Panel(fig, 1.2, 2.05, 10.4, height, (0, blocks), (rt, 0))
    cells = rectangles(table.column // fragments.K_BLOCK, table.row_tile)
    for name, kind in PLACE_LOOKS.items():
        panel.boxes(cells[table.place == name], kind["facecolor"], **kind)
    panel.lines([[(at, 0), (at, rt)] for at in range(0, blocks + 1, kb)], LIGHT.paper, linewidths=2.5, clip=False)
    ends = np.linspace(0, blocks, ctas + 1)
    panel.lines([[(at, -1), (at, rt)] for at in ends], LIGHT.ink, linewidths=1.6, clip=False)
    panel.labels([(at, 0) for at in (ends[1:] + ends[:-1]) / 2], [f"CTA {c}" for c in range(ctas)], va="bottom",
                 offset=(0, 4), weight="bold")  # fmt: skip
    panel.row_names([f"row tile {i}" for i in range(rt)])
    at = np.arange(0, blocks + 1, max(1, blocks // 16))
    panel.ticks("x", at, fragments.K_BLOCK * at, "K", grid=False)
    panel.title("the weights of one cluster: a cell is 16 rows x 32 K, gaps part warps", raised=25)
    of_warp = ((table.cta == cta) & (table.warp == warp)).to_numpy()
    left, top = cells[of_warp].min(axis=0)[:2]
    panel.boxes([(left, top, kb, 1)], "none", edgecolor=LIGHT.ink, linewidth=3, zorder=3)
    panel.key(list(PLACE_LOOKS.items()), 7.55, height + 0.37, 1.3)

    zoom = Panel(fig, 1.2, 0.8, 10.4, 0.4, (0, kb), (1, 0))
    chosen = table[of_warp].sort_values("block")
    cells = rectangles(np.arange(kb), 0)
    for name, kind in PLACE_LOOKS.items():
        zoom.boxes(
            cells[chosen.place == name], kind["facecolor"], **(kind | dict(edgecolor=LIGHT.paper, linewidth=1.5))
        )
    if kb <= MOST_NAMED:
        staged = int((chosen.place == readings.STAGED).sum())
        names = [f"byte {offset:,}" if offset >= 0 else f"{8 * (block - staged)} to {8 * (block - staged) + 7}"
                 for block, offset in zip(chosen.block, chosen.offset, strict=True)]  # fmt: skip
        zoom.boxes(cells + [0.1, 0.22, -0.2, -0.44], LIGHT.paper)
        zoom.labels(cells[:, :2] + 0.5, names, size=8)
    step = -(-kb // 32)
    name = "K block of the warp; in it the registers of each lane, or the place in shared memory"
    zoom.ticks("x", np.arange(0, kb, step) + 0.5, range(0, kb, step), name, grid=False)
    zoom.sentence(readings.placement_sentence(table, cta, warp), 0, 7)
    return fig


def exposure_view(steps: pd.DataFrame) -> Figure:
    """One warp, instruction by instruction, from `warp_steps`: a row per kind and per accumulator chain."""
    rows = sorted({*zip(steps.kind, steps.chain, strict=True)}, key=lambda row: (readings.KINDS.index(row[0]), row[1]))
    count, height = len(steps), 0.27 * len(rows)
    fig = style.figure(12, height + 1.95)
    panel = Panel(fig, 2.35, 0.85, 8.1, height, (0, count), (len(rows), 0))
    border = int(steps.step[steps.exposed].min())
    panel.boxes([(0, 0, border, len(rows))], LIGHT.faint, alpha=0.25)
    panel.lines([[(border, -0.9), (border, len(rows))]], LIGHT.ink, linewidths=2.2, clip=False)
    for text, x, ha, dx in (("before griddepcontrol.wait", border, "right", -6), ("after: exposed", border, "left", 6)):
        panel.labels([(x, 0)], [text], ha=ha, va="bottom", weight="bold", offset=(dx, 5))
    for i, (kind, chain) in enumerate(rows):
        of_row = steps[(steps.kind == kind) & (steps.chain == chain)]
        boxes, look = rectangles(of_row.step + 0.06, i + 0.12, 0.88, 0.76), KIND_LOOKS[kind]
        panel.boxes(boxes, look["facecolor"], **(dict(edgecolor=LIGHT.paper, linewidth=0) | look))
        name = f"{kind}, chain {chain}" if kind == readings.MMA else kind
        panel.labels([(0, i + 0.5)], [name], ha="right", offset=(-8, 0))
        late = int(of_row.exposed.sum())
        text = f"{len(of_row) - late} before, {late} after"
        panel.labels([(count, i + 0.5)], [text], LIGHT.muted, ha="left", offset=(8, 0), size=9)
        panel.lines([[(0, i + 1), (count, i + 1)]], LIGHT.grid, linewidths=0.6, clip=False)
    marks = range(0, count + 1, int(tick_step(count, 12, least=5)))
    panel.ticks("x", marks, marks, "instructions of this warp, in its own order (not cycles)", grid=False)
    first, second = readings.exposure_sentences(steps)
    panel.sentence(first, -158, 48)
    panel.sentence(second, -158, 30, weight="normal")
    return fig
