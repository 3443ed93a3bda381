"""Pictures of the weight-stationary GEMM's operands: the K permutation, where the weights wait, and what a warp does
before and after the previous kernel has finished.

Colour is what the data are: weights held in registers, weights staged in shared memory, x, sums, published results.
Offsets are those of `layouts.ws_gemm`; the steps of a warp are read off a trace.
"""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts import fragments
from ..layouts import ws_gemm as layout
from . import style
from .panel import Panel

MMAS = layout.K_BLOCK // fragments.MMA_K  #: of a K block
CHUNK = 8  #: K elements of a lane's 16 bytes
SHADES = (0.12, 0.26, 0.42, 0.6)  #: of the four lanes that share a row
REGISTERS, STAGED = "registers", "shared memory"
#: Opcodes to trace for `warp_steps`.
OPCODES = (
    "cp.async", "ld.global", "ld.shared", "st.", "multimem", "add.f32", "add.rn.f32", "mma", "mbarrier", "bar.",
    "barrier", "griddepcontrol",
)  # fmt: skip
HELD, COPIED, WAIT, X = "weights to registers", "weights to shared memory", "wait", "x"
BACK, MMA, SUMS, PUBLISH = "staged weights back", "mma", "sums: add, exchange", "publish"
KINDS = (HELD, COPIED, WAIT, X, BACK, MMA, SUMS, PUBLISH)
HATCH = "///"  #: of what is staged
MOST_NAMED = 12  #: K blocks of a warp whose place is written on them


def fragment_table() -> pd.DataFrame:
    """One row per 32-bit word (two K elements) that a lane loads of a K block, of 16 weight rows and 8 tokens.

    Columns: operand ("W" or "x"), lane, row (of the weight tile, or token), word (0..3 of the 16 bytes), element (the
    first of its two K elements 0..31 in memory), mma (0, 1), register (of that operand's fragment), k (the first of
    the two K positions 0..15 that the mma takes it for).
    """
    lane = np.arange(layout.WARP)
    words = [(half, word) for half in (0, 1) for word in range(4)]
    low, high = words[:4], words[4:]  # of weight rows g and g + 8
    rows = []

    def add(operand, mma, register, half, word, k):
        element = layout.k_column(0, 0, lane, 1) + 2 * word
        row = layout.load_row(lane) + 8 * half
        for at in zip(lane, row, element, k, strict=True):
            rows.append((operand, at[0], at[1], word, at[2], mma, register, at[3]))

    for mma in range(MMAS):
        for register, (half, word) in enumerate(layout.a_words(mma, low, high)):
            add("W", mma, register, half, word, fragments.a_element(lane, register, 0)[1])
        for register, (half, word) in enumerate(layout.b_words(mma, low)):
            add("x", mma, register, half, word, fragments.b_element(lane, register, 0)[0])
    return pd.DataFrame(rows, columns=["operand", "lane", "row", "word", "element", "mma", "register", "k"])


def lane_sentences(table: pd.DataFrame, lane: int, column: int) -> list[str]:
    """What `lane` loads of the K block that starts at `column`, and where its words go: two lines."""
    mine = table[table.lane == lane]
    rows, first = sorted(mine[mine.operand == "W"].row.unique()), column + int(mine.element.min())
    tokens = mine[mine.operand == "x"].sort_values("word")
    load = (
        f"lane {lane}  →  16 bytes each of weight rows {rows[0]} and {rows[1]} and of token {tokens.row.iloc[0]}: "
        f"K {first} to {first + CHUNK - 1}"
    )
    ways = [
        f"word {r.word} is k {r.k}, {r.k + 1} of mma {r.mma} (B register {r.register})" for r in tokens.itertuples()
    ]
    return [load, ";  ".join(ways)]


def permutation_view(table: pd.DataFrame, lane: int = 0, column: int = 0, theme: style.Theme = style.LIGHT) -> Figure:
    """One K block, linked: the 16 bytes that each lane loads, and the two mma fragments that their words make.

    `table` from `fragment_table`; `column` is the first K of the block. `lane` is lit everywhere.
    """
    fig = style.figure(12, 8.2, theme)
    strip = Panel(fig, 1.05, 5.9, 10.4, 1.2, theme, x=(0, layout.K_BLOCK), y=(3.4, 0))
    _strip(strip, table, lane, column)
    first, second = lane_sentences(table, lane, column)
    strip.note(0, 1, first, ha="left", va="baseline", size=style.TEXT, weight="bold", offset=(-60, 53))
    strip.note(0, 1, second, ha="left", va="baseline", offset=(-60, 34))

    for operand, name, fragment, rows, bottom, color in (
        ("W", "16 rows of W", "A", fragments.MMA_M, 2.6, theme.blue),
        ("x", "8 tokens of x", "B", fragments.MMA_N, 0.95, theme.vermillion),
    ):
        mine, height = table[table.operand == operand], 0.165 * rows
        memory = Panel(fig, 1.05, bottom, 4.6, height, theme, x=(0, layout.K_BLOCK), y=(rows, 0))
        loads = mine[mine.word == 0]
        _cells(memory, loads.element, loads.row, CHUNK, loads.lane, color, lane)
        memory.ticks("y", np.arange(0, rows, 4) + 0.5, range(0, rows, 4), grid=False)
        memory.title(f"{name} in memory, by the lane that loads", raised=6)
        panels = [memory]
        for mma in range(MMAS):
            some = mine[mine.mma == mma]
            panels.append(Panel(fig, 6.2 + 2.7 * mma, bottom, 2.55, height, theme, (0, fragments.MMA_K), (rows, 0)))
            _cells(panels[-1], some.k, some.row, 2, some.lane, color, lane)
            panels[-1].title(f"{fragment} of mma {mma}, by lane", raised=6)
    at, positions = np.arange(0, layout.K_BLOCK, CHUNK), np.arange(0, fragments.MMA_K, 2)
    panels[0].ticks("x", at, column + at, "K in memory", grid=False)
    for panel in panels[1:]:
        panel.ticks("x", positions + 1, positions, "k as the mma counts it", grid=False)
    entries = [("weights", dict(facecolor=theme.blue, alpha=0.6)), ("x", dict(facecolor=theme.vermillion, alpha=0.6))]
    entries += [
        (f"lane mod 4 = {p}", dict(facecolor=theme.grey, alpha=shade, edgecolor=theme.muted, linewidth=0.5))
        for p, shade in enumerate(SHADES)
    ]
    Panel(fig, 1.05, 0.3, 10, 0.2, theme).key(entries, 0, 0, 1.5)
    return fig


def _strip(panel: Panel, table: pd.DataFrame, lane: int, column: int) -> None:
    """One row's 32 elements in memory order, and below them the same in the order of the two mma."""
    theme = panel.theme
    row = table[(table.operand == "x") & (table.row == 0)].sort_values(["mma", "k"])
    part = (row.lane & 3).to_numpy()
    above = row.element.to_numpy()
    below = (row.k + fragments.MMA_K * row.mma).to_numpy()
    lit = part == (lane & 3)
    cells = np.concatenate([[(a, 0, 2, 1), (b, 2.4, 2, 1)] for a, b in zip(above, below, strict=True)])
    for p, shade in enumerate(SHADES):
        panel.boxes(cells[np.repeat(part == p, 2)], theme.grey, alpha=shade, edgecolor=theme.paper, linewidth=0.8)
    ways = [[(a + 1, 1), (b + 1, 2.4)] for a, b in zip(above, below, strict=True)]
    panel.lines([way for way, on in zip(ways, lit, strict=True) if not on], theme.faint, linewidths=0.9, clip=False)
    panel.lines([way for way, on in zip(ways, lit, strict=True) if on], theme.ink, linewidths=1.8, clip=False)
    panel.boxes(cells[np.repeat(lit, 2)], "none", edgecolor=theme.ink, linewidth=1.8, zorder=3)
    elements = np.stack([row.element, row.element + 1], axis=1).reshape(-1)
    places = np.stack([below, below + 1], axis=1).reshape(-1)
    panel.labels(np.column_stack([np.arange(32) + 0.5, np.full(32, 0.5)]), range(32), size=8)
    panel.labels(np.column_stack([places + 0.5, np.full(32, 2.9)]), elements, size=8)
    panel.lines([[(fragments.MMA_K, 2.2), (fragments.MMA_K, 3.6)]], theme.ink, linewidths=2.2, clip=False)
    panel.labels([(0, 0.5), (0, 2.9)], ["memory", "mma 0 | 1"], ha="right", offset=(-8, 0))
    panel.title(f"the permutation of every row, of W and of x: element {column} + ...", raised=7)


def _cells(panel: Panel, x, y, width, lanes, color: str, lane: int) -> None:
    """Cells `width` wide at (x, y), shaded by lane mod 4 and numbered; those of `lane` outlined."""
    places = np.column_stack([x, y, np.full(len(x), width), np.ones(len(x))])
    lanes = np.asarray(lanes)
    for p, shade in enumerate(SHADES):
        panel.boxes(places[lanes % 4 == p], color, alpha=shade, edgecolor=panel.theme.paper, linewidth=0.5)
    panel.labels(places[:, :2] + np.array([width / 2, 0.5]), lanes, size=7)
    panel.boxes(places[lanes == lane], "none", edgecolor=panel.theme.ink, linewidth=2.2, zorder=3)


def placement_table(rt: int, kq: int, ks: int, kb: int, staged: int) -> pd.DataFrame:
    """Where the weights of one cluster wait: one row per (row tile, K block of 32).

    Columns: row_tile, part (0..ks*kq-1), block (0..kb-1 of the part), column (its first K), cta, warp, place
    (`REGISTERS` or `STAGED`), offset (of the staged block in shared memory, lane 0; else -1).
    """
    row_tile, part, block = (a.reshape(-1) for a in np.mgrid[0:rt, 0 : ks * kq, 0:kb])
    warp = row_tile * kq + part % kq
    through = block < staged
    return pd.DataFrame(
        {
            "row_tile": row_tile,
            "part": part,
            "block": block,
            "column": layout.k_column(part, block, 0, kb),
            "cta": part // kq,
            "warp": warp,
            "place": np.where(through, STAGED, REGISTERS),
            "offset": np.where(through, layout.stage_offset(warp, block, 0, 0, staged), -1),
        }
    )


def placement_sentence(table: pd.DataFrame, cta: int, warp: int) -> str:
    """What one warp holds of the weights."""
    mine = table[(table.cta == cta) & (table.warp == warp)]
    held, staged = (int((mine.place == place).sum()) for place in (REGISTERS, STAGED))
    low, high = mine.column.min(), mine.column.max() + layout.K_BLOCK - 1
    registers = f"{held} K blocks in {8 * held} registers of each lane" if held else "none in registers"
    shared = f"{staged} in {2 * staged * layout.FRAGMENT_BYTES:,} B of shared memory" if staged else "none staged"
    return f"warp {warp} of CTA {cta}  →  row tile {mine.row_tile.iloc[0]}, K {low} to {high}: {registers}, {shared}"


def placement_view(table: pd.DataFrame, cta: int = 0, warp: int = 0, theme: style.Theme = style.LIGHT) -> Figure:
    """How K of one cluster's weights is cut over CTAs and warps, and below it the K blocks of one warp.

    `table` from `placement_table`.
    """
    rt, ctas, kb = (int(table[name].max()) + 1 for name in ("row_tile", "cta", "block"))
    blocks = len(table) // rt
    height, look = 0.3 * rt, _looks(theme)
    fig = style.figure(12, height + 2.85, theme)
    panel = Panel(fig, 1.2, 2.05, 10.4, height, theme, x=(0, blocks), y=(rt, 0))
    column = table.column // layout.K_BLOCK
    cells = np.column_stack([column, table.row_tile, np.ones(len(table)), np.ones(len(table))])
    for name, kind in look.items():
        panel.boxes(cells[table.place == name], kind["facecolor"], **kind)
    panel.lines([[(at, 0), (at, rt)] for at in range(0, blocks + 1, kb)], theme.paper, linewidths=2.5, clip=False)
    ends = np.linspace(0, blocks, ctas + 1)
    panel.lines([[(at, -1), (at, rt)] for at in ends], theme.ink, linewidths=1.6, clip=False)
    panel.labels([(at, 0) for at in (ends[1:] + ends[:-1]) / 2], [f"CTA {c}" for c in range(ctas)], va="bottom",
                 offset=(0, 4), weight="bold")  # fmt: skip
    panel.labels([(0, i + 0.5) for i in range(rt)], [f"row tile {i}" for i in range(rt)], ha="right", offset=(-8, 0))
    at = np.arange(0, blocks + 1, max(1, blocks // 16))
    panel.ticks("x", at, layout.K_BLOCK * at, "K", grid=False)
    panel.title("the weights of one cluster: a cell is 16 rows x 32 K, gaps part warps", raised=25)
    mine = ((table.cta == cta) & (table.warp == warp)).to_numpy()
    left, top = cells[mine].min(axis=0)[:2]
    panel.boxes([(left, top, kb, 1)], "none", edgecolor=theme.ink, linewidth=3, zorder=3)
    panel.key([(name, look[name]) for name in look], 7.55, height + 0.37, 1.3)

    zoom = Panel(fig, 1.2, 0.8, 10.4, 0.4, theme, x=(0, kb), y=(1, 0))
    chosen = table[mine].sort_values("block")
    place = chosen.place.to_numpy()
    cells = np.column_stack([np.arange(kb), np.zeros(kb), np.ones(kb), np.ones(kb)])
    for name, kind in look.items():
        zoom.boxes(cells[place == name], kind["facecolor"], **(kind | dict(edgecolor=theme.paper, linewidth=1.5)))
    if kb <= MOST_NAMED:
        staged = int((place == STAGED).sum())
        names = [f"byte {offset:,}" if offset >= 0 else f"{8 * (block - staged)} to {8 * (block - staged) + 7}"
                 for block, offset in zip(chosen.block, chosen.offset, strict=True)]  # fmt: skip
        zoom.boxes(cells + [0.1, 0.22, -0.2, -0.44], theme.paper)
        zoom.labels(cells[:, :2] + 0.5, names, size=8)
    step = -(-kb // 32)
    name = "K block of the warp; in it the registers of each lane, or the place in shared memory"
    zoom.ticks("x", np.arange(0, kb, step) + 0.5, range(0, kb, step), name, grid=False)
    zoom.note(0, 1, placement_sentence(table, cta, warp), ha="left", va="baseline", size=style.TEXT, weight="bold",
              offset=(0, 7))  # fmt: skip
    return fig


def warp_steps(table: pd.DataFrame, ptx: str, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """What one warp did, in its own order: one row per instruction that moves, multiplies, adds or waits.

    `table` is the trace of that warp, recorded with `OPCODES`; `ptx` the kernel's text, which tells the chains;
    `regions` as in a footprint. Columns: step, kind (of `KINDS`), chain (of an mma: accumulators in the order of their
    first use; else -1), bytes (moved by the whole warp), exposed (after griddepcontrol.wait), line (of the PTX).
    """
    lines, chain_of, steps, exposed = ptx.split("\n"), {}, [], False
    for row in table[table.event != "wait"].sort_values("time").itertuples():
        if row.opcode.startswith("griddepcontrol.wait"):
            exposed = True
        kind, chain = _kind(row, regions), -1
        if kind is None:
            continue
        if kind == MMA:  # whose result its accumulator was
            operands = re.findall(r"{([^}]*)}", lines[row.line - 1])
            chain = chain_of.get(operands[3], len(set(chain_of.values())))
            chain_of[operands[0]] = chain
        steps.append((len(steps), kind, chain, row.bytes * row.lanes, exposed, row.line))
    return pd.DataFrame(steps, columns=["step", "kind", "chain", "bytes", "exposed", "line"])


def chain_table(steps: pd.DataFrame) -> pd.DataFrame:
    """The accumulator chains of `warp_steps`: chain and mma, how many depend on each other one after the other."""
    mma = steps[steps.kind == MMA].groupby("chain").size()
    return pd.DataFrame({"chain": mma.index, "mma": mma.to_numpy()})


def exposure_sentences(steps: pd.DataFrame) -> list[str]:
    """What lies before and after the wait for the previous kernel, in two lines."""
    before, after = steps[~steps.exposed], steps[steps.exposed]
    weights = before[before.kind.isin([HELD, COPIED])]
    chains, late = chain_table(steps), int(after.kind.isin([HELD, COPIED]).sum())
    return [
        f"before the wait: {len(weights)} loads of {weights.bytes.sum():,} B of weights, all that the warp needs",
        f"after it: {int((after.kind == X).sum())} loads of x, {int(chains.mma.sum())} mma in {len(chains)} chains "
        f"(the longest {chains.mma.max()}), then the sums; {late or 'no'} loads of weights",
    ]


def exposure_view(steps: pd.DataFrame, theme: style.Theme = style.LIGHT) -> Figure:
    """One warp, instruction by instruction, from `warp_steps`: a row per kind and per accumulator chain."""
    chains = sorted(steps[steps.kind == MMA].chain.unique())
    rows = [(kind, -1) for kind in KINDS if kind != MMA and (steps.kind == kind).any()]
    at = next(i for i, (kind, _) in enumerate(rows) if KINDS.index(kind) > KINDS.index(MMA))
    rows[at:at] = [(MMA, chain) for chain in chains]
    count, height = len(steps), 0.27 * len(rows)
    fig = style.figure(12, height + 1.95, theme)
    panel = Panel(fig, 2.35, 0.85, 8.1, height, theme, x=(0, count), y=(len(rows), 0))
    border = int(steps.step[steps.exposed].min())
    panel.boxes([(0, 0, border, len(rows))], theme.faint, alpha=0.25)
    panel.lines([[(border, -0.9), (border, len(rows))]], theme.ink, linewidths=2.2, clip=False)
    for text, x, ha, dx in (("before griddepcontrol.wait", border, "right", -6), ("after: exposed", border, "left", 6)):
        panel.labels([(x, 0)], [text], ha=ha, va="bottom", weight="bold", offset=(dx, 5))
    looks = kind_looks(theme)
    for i, (kind, chain) in enumerate(rows):
        mine = steps[(steps.kind == kind) & (steps.chain == chain)]
        ones = np.ones(len(mine))
        panel.boxes(np.column_stack([mine.step + 0.06, (i + 0.12) * ones, 0.88 * ones, 0.76 * ones]),
                    looks[kind]["facecolor"], **looks[kind])  # fmt: skip
        name = f"{kind}, chain {chain}" if kind == MMA else kind
        panel.labels([(0, i + 0.5)], [name], ha="right", offset=(-8, 0))
        late = int(mine.exposed.sum())
        panel.labels([(count, i + 0.5)], [f"{len(mine) - late} before, {late} after"], theme.muted, ha="left",
                     offset=(8, 0), size=9)  # fmt: skip
        panel.lines([[(0, i + 1), (count, i + 1)]], theme.grid, linewidths=0.6, clip=False)
    step = next(s for s in (5, 10, 20, 50, 100, 200, 500, 10**9) if count / s <= 12)
    marks = range(0, count + 1, step)
    panel.ticks("x", marks, marks, "instructions of this warp, in its own order (not cycles)", grid=False)
    first, second = exposure_sentences(steps)
    panel.note(0, 1, first, ha="left", va="baseline", size=style.TEXT, weight="bold", offset=(-158, 48))
    panel.note(0, 1, second, ha="left", va="baseline", size=style.TEXT, offset=(-158, 30))
    return fig


def _kind(row, regions: Sequence[tuple[str, int, int]]) -> str | None:
    """Which of `KINDS` an instruction is; None for what only synchronises without waiting."""
    op = row.opcode
    if op.startswith("mma"):
        return MMA
    if op.startswith("cp.async.bulk"):
        return X if row.event == "execute" else None
    if op.startswith("cp.async") and row.bytes:
        return COPIED
    if op.startswith("ld.global"):
        return HELD if "cache_hint" in op else X
    if op.startswith("ld.shared.") and row.addresses is not None:
        region = next((name for name, start, size in regions if start <= row.addresses[0] < start + size), "")
        return {"stages": BACK, "x": X}.get(region, SUMS)
    if op.startswith(("st.shared", "ld.shared", "add")) or (op.startswith("st.async") and row.event == "execute"):
        return SUMS
    if op.startswith(("st.relaxed", "multimem")):
        return PUBLISH
    if op.startswith(("griddepcontrol.wait", "cp.async.wait", "bar.sync", "barrier.cluster.wait", "mbarrier.try")):
        return WAIT
    return None


def kind_looks(theme: style.Theme) -> dict[str, dict]:
    """The look of each of `KINDS`."""
    plain = dict(edgecolor=theme.paper, linewidth=0)
    return {
        HELD: dict(facecolor=theme.blue, **plain),
        COPIED: dict(facecolor=theme.sky, hatch=HATCH, **plain),
        WAIT: dict(facecolor=theme.paper, hatch="xx", edgecolor=theme.muted, linewidth=0.7),
        X: dict(facecolor=theme.vermillion, **plain),
        BACK: dict(facecolor=theme.sky, hatch=HATCH, **plain),
        MMA: dict(facecolor=theme.green, **plain),
        SUMS: dict(facecolor=theme.green, hatch="..", **plain),
        PUBLISH: dict(facecolor=theme.orange, **plain),
    }


def _looks(theme: style.Theme) -> dict[str, dict]:
    edge = dict(edgecolor=theme.paper, linewidth=0.4)
    return {REGISTERS: dict(facecolor=theme.blue, **edge), STAGED: dict(facecolor=theme.sky, hatch=HATCH, **edge)}
