"""Pictures of the weight-stationary GEMM's operands: the K permutation, where the weights wait, and what a warp does
before and after the previous kernel has finished.

Colour is what the data are: weights held in registers, weights staged in shared memory, x, sums, published results.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis import stationary as readings
from ..layouts import fragments
from ..layouts import ws_gemm as layout
from . import style
from .panel import Panel, rectangles, tick_step
from .style import LIGHT

SHADES = (0.12, 0.26, 0.42, 0.6)  #: of the four lanes that share a row
HATCH = "///"  #: of what is staged
MOST_NAMED = 12  #: K blocks of a warp whose place is written on them


def permutation_view(table: pd.DataFrame, lane: int = 0, column: int = 0) -> Figure:
    """One K block, linked: the 16 bytes that each lane loads, and the two mma fragments that their words make.

    `table` from `analysis.stationary.fragment_table`; `column` is the first K of the block. `lane` is lit everywhere.
    """
    fig = style.figure(12, 8.2)
    strip = Panel(fig, 1.05, 5.9, 10.4, 1.2, x=(0, layout.K_BLOCK), y=(3.4, 0))
    _strip(strip, table, lane, column)
    first, second = readings.lane_sentences(table, lane, column)
    strip.sentence(first, -60, 53)
    strip.note(0, 1, second, ha="left", va="baseline", offset=(-60, 34))

    for operand, name, fragment, rows, bottom, color in (
        ("W", "16 rows of W", "A", fragments.MMA_M, 2.6, LIGHT.blue),
        ("x", "8 tokens of x", "B", fragments.MMA_N, 0.95, LIGHT.vermillion),
    ):
        of_operand, height = table[table.operand == operand], 0.165 * rows
        memory = Panel(fig, 1.05, bottom, 4.6, height, x=(0, layout.K_BLOCK), y=(rows, 0))
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
    at, positions = np.arange(0, layout.K_BLOCK, readings.CHUNK), np.arange(0, fragments.MMA_K, 2)
    panels[0].ticks("x", at, column + at, "K in memory", grid=False)
    for panel in panels[1:]:
        panel.ticks("x", positions + 1, positions, "k as the mma counts it", grid=False)
    entries = [("weights", dict(facecolor=LIGHT.blue, alpha=0.6)), ("x", dict(facecolor=LIGHT.vermillion, alpha=0.6))]
    entries += [
        (f"lane mod 4 = {p}", dict(facecolor=LIGHT.grey, alpha=shade, edgecolor=LIGHT.muted, linewidth=0.5))
        for p, shade in enumerate(SHADES)
    ]
    Panel(fig, 1.05, 0.3, 10, 0.2).key(entries, 0, 0, 1.5)
    return fig


def _strip(panel: Panel, table: pd.DataFrame, lane: int, column: int) -> None:
    """One row's 32 elements in memory order, and below them the same in the order of the two mma."""
    row = table[(table.operand == "x") & (table.row == 0)].sort_values(["mma", "k"])
    part = (row.lane & 3).to_numpy()
    above = row.element.to_numpy()
    below = (row.k + fragments.MMA_K * row.mma).to_numpy()
    lit = part == (lane & 3)
    cells = np.concatenate([[(a, 0, 2, 1), (b, 2.4, 2, 1)] for a, b in zip(above, below, strict=True)])
    for p, shade in enumerate(SHADES):
        panel.boxes(cells[np.repeat(part == p, 2)], LIGHT.grey, alpha=shade, edgecolor=LIGHT.paper, linewidth=0.8)
    ways = [[(a + 1, 1), (b + 1, 2.4)] for a, b in zip(above, below, strict=True)]
    panel.lines([way for way, on in zip(ways, lit, strict=True) if not on], LIGHT.faint, linewidths=0.9, clip=False)
    panel.lines([way for way, on in zip(ways, lit, strict=True) if on], LIGHT.ink, linewidths=1.8, clip=False)
    panel.boxes(cells[np.repeat(lit, 2)], "none", edgecolor=LIGHT.ink, linewidth=1.8, zorder=3)
    elements = np.stack([row.element, row.element + 1], axis=1).reshape(-1)
    places = np.stack([below, below + 1], axis=1).reshape(-1)
    panel.labels(np.column_stack([np.arange(32) + 0.5, np.full(32, 0.5)]), range(32), size=8)
    panel.labels(np.column_stack([places + 0.5, np.full(32, 2.9)]), elements, size=8)
    panel.lines([[(fragments.MMA_K, 2.2), (fragments.MMA_K, 3.6)]], LIGHT.ink, linewidths=2.2, clip=False)
    panel.labels([(0, 0.5), (0, 2.9)], ["memory", "mma 0 | 1"], ha="right", offset=(-8, 0))
    panel.title(f"the permutation of every row, of W and of x: element {column} + ...", raised=7)


def _cells(panel: Panel, x, y, width: float, lanes, color: str, lane: int) -> None:
    """Cells `width` wide at (x, y), shaded by lane mod 4 and numbered; those of `lane` outlined."""
    places = rectangles(x, y, width)
    lanes = np.asarray(lanes)
    for p, shade in enumerate(SHADES):
        panel.boxes(places[lanes % 4 == p], color, alpha=shade, edgecolor=LIGHT.paper, linewidth=0.5)
    panel.labels(places[:, :2] + np.array([width / 2, 0.5]), lanes, size=7)
    panel.boxes(places[lanes == lane], "none", edgecolor=LIGHT.ink, linewidth=2.2, zorder=3)


def placement_view(table: pd.DataFrame, cta: int = 0, warp: int = 0) -> Figure:
    """How K of one cluster's weights is cut over CTAs and warps, and below it the K blocks of one warp.

    `table` from `analysis.stationary.placement_table`.
    """
    rt, ctas, kb = (int(table[name].max()) + 1 for name in ("row_tile", "cta", "block"))
    blocks = len(table) // rt
    height, look = 0.3 * rt, _place_looks()
    fig = style.figure(12, height + 2.85)
    panel = Panel(fig, 1.2, 2.05, 10.4, height, x=(0, blocks), y=(rt, 0))
    column = table.column // layout.K_BLOCK
    cells = rectangles(column, table.row_tile)
    for name, kind in look.items():
        panel.boxes(cells[table.place == name], kind["facecolor"], **kind)
    panel.lines([[(at, 0), (at, rt)] for at in range(0, blocks + 1, kb)], LIGHT.paper, linewidths=2.5, clip=False)
    ends = np.linspace(0, blocks, ctas + 1)
    panel.lines([[(at, -1), (at, rt)] for at in ends], LIGHT.ink, linewidths=1.6, clip=False)
    panel.labels([(at, 0) for at in (ends[1:] + ends[:-1]) / 2], [f"CTA {c}" for c in range(ctas)], va="bottom",
                 offset=(0, 4), weight="bold")  # fmt: skip
    panel.row_names([f"row tile {i}" for i in range(rt)])
    at = np.arange(0, blocks + 1, max(1, blocks // 16))
    panel.ticks("x", at, layout.K_BLOCK * at, "K", grid=False)
    panel.title("the weights of one cluster: a cell is 16 rows x 32 K, gaps part warps", raised=25)
    of_warp = ((table.cta == cta) & (table.warp == warp)).to_numpy()
    left, top = cells[of_warp].min(axis=0)[:2]
    panel.boxes([(left, top, kb, 1)], "none", edgecolor=LIGHT.ink, linewidth=3, zorder=3)
    panel.key([(name, look[name]) for name in look], 7.55, height + 0.37, 1.3)

    zoom = Panel(fig, 1.2, 0.8, 10.4, 0.4, x=(0, kb), y=(1, 0))
    chosen = table[of_warp].sort_values("block")
    place = chosen.place.to_numpy()
    cells = rectangles(np.arange(kb), 0)
    for name, kind in look.items():
        zoom.boxes(cells[place == name], kind["facecolor"], **(kind | dict(edgecolor=LIGHT.paper, linewidth=1.5)))
    if kb <= MOST_NAMED:
        staged = int((place == readings.STAGED).sum())
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
    chains = sorted(steps[steps.kind == readings.MMA].chain.unique())
    rows = [(kind, -1) for kind in readings.KINDS if kind != readings.MMA and (steps.kind == kind).any()]
    at = next(i for i, (kind, _) in enumerate(rows) if readings.KINDS.index(kind) > readings.KINDS.index(readings.MMA))
    rows[at:at] = [(readings.MMA, chain) for chain in chains]
    count, height = len(steps), 0.27 * len(rows)
    fig = style.figure(12, height + 1.95)
    panel = Panel(fig, 2.35, 0.85, 8.1, height, x=(0, count), y=(len(rows), 0))
    border = int(steps.step[steps.exposed].min())
    panel.boxes([(0, 0, border, len(rows))], LIGHT.faint, alpha=0.25)
    panel.lines([[(border, -0.9), (border, len(rows))]], LIGHT.ink, linewidths=2.2, clip=False)
    for text, x, ha, dx in (("before griddepcontrol.wait", border, "right", -6), ("after: exposed", border, "left", 6)):
        panel.labels([(x, 0)], [text], ha=ha, va="bottom", weight="bold", offset=(dx, 5))
    looks = _kind_looks()
    for i, (kind, chain) in enumerate(rows):
        of_row = steps[(steps.kind == kind) & (steps.chain == chain)]
        boxes = rectangles(of_row.step + 0.06, i + 0.12, 0.88, 0.76)
        panel.boxes(boxes, looks[kind]["facecolor"], **looks[kind])
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


def _kind_looks() -> dict[str, dict]:
    """The look of each of `readings.KINDS`."""
    plain = dict(edgecolor=LIGHT.paper, linewidth=0)
    return {
        readings.HELD: dict(facecolor=LIGHT.blue, **plain),
        readings.COPIED: dict(facecolor=LIGHT.sky, hatch=HATCH, **plain),
        readings.WAIT: dict(facecolor=LIGHT.paper, hatch="xx", edgecolor=LIGHT.muted, linewidth=0.7),
        readings.X: dict(facecolor=LIGHT.vermillion, **plain),
        readings.BACK: dict(facecolor=LIGHT.sky, hatch=HATCH, **plain),
        readings.MMA: dict(facecolor=LIGHT.green, **plain),
        readings.SUMS: dict(facecolor=LIGHT.green, hatch="..", **plain),
        readings.PUBLISH: dict(facecolor=LIGHT.orange, **plain),
    }


def _place_looks() -> dict[str, dict]:
    """The look of weights by where they wait."""
    edge = dict(edgecolor=LIGHT.paper, linewidth=0.4)
    return {
        readings.REGISTERS: dict(facecolor=LIGHT.blue, **edge),
        readings.STAGED: dict(facecolor=LIGHT.sky, hatch=HATCH, **edge),
    }
