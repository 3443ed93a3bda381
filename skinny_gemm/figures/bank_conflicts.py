"""Bars of bank conflicts: how many wavefronts each kind of shared-memory access of a kernel takes."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.bank_conflicts import SOURCES
from . import style
from .panel import Panel, tick_step


def conflict_bars(data: pd.DataFrame, theme: style.Theme = style.LIGHT) -> Figure:
    """Wavefronts per access, as columns `access`, `source`, `wavefronts`, `ideal` give them: one bar per row.

    Bars of one `access` stand together, one grey and hatch (colour means banks) per `source`, `SOURCES` first; a mark
    shows the ideal.
    """
    order = dict.fromkeys([*SOURCES, *data.source])
    sources = [source for source in order if source in set(data.source)]
    groups = {access: rows.set_index("source") for access, rows in data.groupby("access", sort=False)}
    lines = len(data) + len(groups)
    height = 0.27 * lines
    fig = style.figure(10, height + 1.6, theme)
    limit = max(float(data.wavefronts.max()), 1.0) * 1.12
    panel = Panel(fig, 2.6, 0.95, 6.9, height, theme, x=(0, limit), y=(lines, 0))
    step = int(tick_step(limit, 9))
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
