"""Bank conflicts of the kernels: what the layouts' model says, and what a trace of the kernel shows.

Both are tables of mean wavefronts per warp-wide access: access, source, wavefronts, ideal.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..layouts import banks
from ..problem import GemmProblem
from ..tactics import Tactic
from . import style
from .panel import Panel

COLUMNS = ["access", "source", "wavefronts", "ideal"]
PLAIN, SHIPPED, TRACED = "model, row-major", "model, as shipped", "trace of the kernel"
SOURCES = PLAIN, SHIPPED, TRACED


def modelled(tactic: Tactic, problem: GemmProblem) -> pd.DataFrame:
    """What the bank model says of every kind of access, for row-major data and for the kernel's layouts.

    ValueError in words if the kernel describes no accesses.
    """
    rows = []
    for access in tactic.shared_accesses(problem):
        for source, addresses in ((PLAIN, access.plain), (SHIPPED, access.shipped)):
            if addresses is not None:
                wavefronts = float(banks.wavefronts(addresses, access.bytes_per_lane).mean())
                rows.append((access.name, source, wavefronts, float(banks.ideal_wavefronts(access.bytes_per_lane))))
    if not rows:
        raise ValueError(f"{tactic.kernel} describes no accesses to shared memory: there are no conflicts to count")
    return pd.DataFrame(rows, columns=COLUMNS)


def traced(accesses: pd.DataFrame, regions) -> pd.DataFrame:
    """The same from `accesses`, a table of `interpreter.trace.shared_accesses`; `regions` as in a footprint."""
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
