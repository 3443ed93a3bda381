"""Bank conflicts of the kernels: what the layouts' model says, and what a trace of the kernel shows.

Both are tables of mean wavefronts per warp-wide access: access, source, wavefronts, ideal.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts import banks, ws_gemm
from ..layouts import warp_splitk as layout
from ..layouts.swizzle import ELEMENT_BYTES, plain_offset, tile_offset
from ..problem import GemmProblem
from ..tactics import Tactic, WarpSplitKTactic, WsGemmTactic
from . import style
from .panel import Panel

COLUMNS = ["access", "source", "wavefronts", "ideal"]
PLAIN, SHIPPED, TRACED = "model, row-major", "model, as shipped", "trace of the kernel"
SOURCES = PLAIN, SHIPPED, TRACED
FP32 = 4  #: bytes


def modelled(tactic: Tactic, problem: GemmProblem) -> pd.DataFrame:
    """What the bank model says of every kind of access, for row-major data and for the kernel's layouts."""
    if isinstance(tactic, WsGemmTactic):
        return _weight_stationary(tactic, problem)
    return _warp_splitk(tactic)


def _warp_splitk(tactic: WarpSplitKTactic) -> pd.DataFrame:
    lane, t = np.arange(banks.LANES), tactic
    warps, steps_a, steps_b = range(layout.COMPUTE_WARPS), range(t.output_tile // 16), range(t.token_tile // 8)

    def tiles(rows, threads):
        """Rows and columns that the loader warps write: (accesses, 32)."""
        thread = np.arange(threads).reshape(-1, 32)
        chunks = range(layout.loader_chunks(rows, threads, t.k_tile))
        pairs = [layout.loader_chunk(thread, i, threads, t.k_tile) for i in chunks]
        return tuple(np.concatenate(part) for part in zip(*pairs, strict=True))

    def stacked(places):
        return tuple(np.stack(part) for part in zip(*places, strict=True))

    a = [layout.a_ldmatrix(w, i, p, lane, t.k_tile) for w in warps for i in steps_a for p in range(t.k_tile // 64)]
    b = [layout.b_ldmatrix(w, j, q, lane, t.k_tile) for w in warps for j in steps_b for q in range(t.k_tile // 128)]
    tiled = {
        "A, ldmatrix": stacked(a),
        "B, ldmatrix": stacked(b),
        "A, cp.async": tiles(t.output_tile, layout.WEIGHT_LOADER_WARPS * layout.WARP),
        "B, cp.async": tiles(t.token_tile, t.b_loader_warps * layout.WARP),
    }
    stores = stacked([layout.accumulator_element(i, j, lane, w) for i in steps_a for j in steps_b for w in (0, 2)])
    units = [layout.reduce_unit(u + lane, t.output_tile) for u in range(0, layout.reduce_units(*_tile(t)), 32)]
    loads = stacked([(feature + f, token) for feature, token in units for f in range(layout.FEATURES_PER_UNIT)])

    rows = []
    for source, place in ((PLAIN, plain_offset), (SHIPPED, tile_offset)):
        rows += [_row(access, source, ELEMENT_BYTES * place(*at, t.k_tile), 16) for access, at in tiled.items()]
    for access, (feature, token), width in (("partials, st", stores, 2 * FP32), ("partials, ld", loads, FP32)):
        rows.append(_row(access, PLAIN, FP32 * (feature * t.token_tile + token), width))
        rows.append(_row(access, SHIPPED, FP32 * layout.partial_word(feature, token, t.output_tile), width))
    return pd.DataFrame(rows, columns=COLUMNS)


def _weight_stationary(tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    lane, t = np.arange(banks.LANES), tactic
    kb, k_slice, width = t.blocks(problem), problem.k // t.ks, t.staged * ws_gemm.K_BLOCK
    row, column = ws_gemm.load_row(lane), ws_gemm.k_column(0, 0, lane, kb)
    warps, parts = range(t.rt * t.kq), t.ks * t.kq if t.tg else t.kq
    rows = []

    def add(access, source, addresses, width):
        rows.append(_row(access, source, np.stack(addresses), width))

    if t.staged:
        places = [(w, j, half) for w in warps for j in range(t.staged) for half in (0, 1)]
        plain = [ELEMENT_BYTES * ((row + 8 * h) * width + column + ws_gemm.K_BLOCK * j) for _, j, h in places]
        shipped = [ws_gemm.stage_offset(w, j, half, lane, t.staged) for w, j, half in places]
        for access in ("stages, cp.async", "stages, ld"):
            add(access, PLAIN, plain, 16)
            add(access, SHIPPED, shipped, 16)
    if t.tg:
        blocks = [ws_gemm.k_column(part, j, lane, kb) for part in range(t.kq) for j in range(kb)]
        add("x, ld", PLAIN, [ELEMENT_BYTES * (row * k_slice + at) for at in blocks], 16)
        add("x, ld", SHIPPED, [ws_gemm.x_offset(row, at, k_slice) for at in blocks], 16)
    name = "receive" if t.tg else "parts"
    for access in (f"{name}, st", f"{name}, ld"):
        add(access, SHIPPED, [ws_gemm.part_offset(0, part, lane, parts) for part in range(parts)], 16)
    stores = [ws_gemm.accumulator_element(lane, word) for word in (0, 2)]
    first, token = ws_gemm.publish_unit(lane)
    loads = [(first + i, token) for i in range(4)]
    for access, places, size in (("red, st", stores, 2 * FP32), ("red, ld", loads, FP32)):
        add(access, PLAIN, [FP32 * (feature * ws_gemm.MMA_N + token) for feature, token in places], size)
        add(access, SHIPPED, [ws_gemm.red_offset(*place) for place in places], size)
    return pd.DataFrame(rows, columns=COLUMNS)


def traced(accesses: pd.DataFrame, regions) -> pd.DataFrame:
    """The same from `accesses`, a table of `interpreter.shared_accesses`; `regions` as in a footprint."""
    first = np.array([addresses.min() for addresses in accesses.addresses])
    names = np.full(len(accesses), "", dtype=object)
    for name, offset, size in regions:
        names[(first >= offset) & (first < offset + size)] = name
    kinds = [_kind(opcode) for opcode in accesses.opcode]
    labels = [f"{name}, {kind}" for name, kind in zip(names, kinds, strict=True)]
    means = accesses[["wavefronts", "ideal"]].groupby(np.array(labels, dtype=object), sort=False).mean()
    return pd.DataFrame([(access, TRACED, *row) for access, row in zip(means.index, means.values, strict=True)],
                        columns=COLUMNS)  # fmt: skip


def conflict_bars(data: pd.DataFrame, theme: style.Theme = style.LIGHT) -> Figure:
    """Wavefronts per access, as columns `access`, `source`, `wavefronts`, `ideal` give them: one bar per row.

    Bars of one `access` stand together, one grey and hatch (colour means banks) per `source`, `SOURCES` first; a mark
    shows the ideal.
    """
    seen = [*SOURCES, *dict.fromkeys(data.source)]
    sources = [source for source in dict.fromkeys(seen) if source in set(data.source)]
    groups = {access: rows.set_index("source") for access, rows in data.groupby("access", sort=False)}
    lines = len(data) + len(groups)
    height = 0.27 * lines
    fig = style.figure(10, height + 1.6, theme)
    limit = max(float(data.wavefronts.max()), 1.0) * 1.12
    panel = Panel(fig, 2.6, 0.95, 6.9, height, theme, x=(0, limit), y=(lines, 0))
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 1000) if limit / s <= 9)
    panel.ticks("x", np.arange(0, limit, step), range(0, int(limit) + 1, step), "wavefronts per warp-wide access")
    panel.frame("l")
    fills = theme.grey, theme.faint, theme.muted
    look = {
        source: dict(facecolor=fills[j % 3], hatch=style.HATCHES[j % 8], edgecolor=theme.paper)
        for j, source in enumerate(sources)
    }
    y = 0.5
    for access, rows in groups.items():
        panel.labels([(0, y + len(rows) / 2)], [access], ha="right", offset=(-8, 0))
        for source in (source for source in sources if source in rows.index):
            wavefronts, ideal = rows.wavefronts[source], rows.ideal[source]
            panel.boxes([(0, y + 0.1, wavefronts, 0.8)], look[source]["facecolor"], **look[source])
            panel.lines([[(ideal, y), (ideal, y + 1)]], theme.ink, linewidths=2.2, zorder=3)
            text = f"{wavefronts:.2f}".rstrip("0").rstrip(".")
            panel.labels([(wavefronts, y + 0.5)], [text], ha="left", offset=(5, 0))
            y += 1
        y += 1
    panel.key(list(look.items()), 0, height + 0.15, 1.75)
    panel.note(1, 1, "|  without conflicts", ha="right", weight="bold", offset=(0, 15.5))
    return fig


def _kind(opcode: str) -> str:
    return "cp.async" if opcode.startswith("cp.async") else opcode.split(".")[0]


def _tile(tactic: WarpSplitKTactic) -> tuple[int, int]:
    return tactic.output_tile, tactic.token_tile


def _row(access: str, source: str, addresses, width: int) -> tuple[str, str, float, float]:
    return access, source, float(banks.wavefronts(addresses, width).mean()), float(banks.ideal_wavefronts(width))
