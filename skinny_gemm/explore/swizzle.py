"""One `ldmatrix.x4` of the warp split-K kernel, lane by lane: address, bank, register; with and without the swizzle."""

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.bank_conflicts import ADDRESSES, ldmatrix_table
from ..figures.export import provenance
from ..figures.layout import ldmatrix_view
from ..layouts import swizzle
from ..layouts import warp_splitk as layout
from ..tactics import WarpSplitKTactic
from .base import View, ViewExplorer
from .controls import choice, slider, toggles
from .markup import source_of
from .pictures import Picture

TILE_ROWS = {"A": 16, "B": 8}  #: rows that one `ldmatrix.x4` covers


class SwizzleExplorer(ViewExplorer):
    """Linked views of one load: choose operand, k_tile, warp and phase; light a lane or a bank; switch the swizzle."""

    def __init__(self) -> None:
        self.operand = toggles("operand", [("A, weight", "A"), ("B, tokens", "B")], "A")
        self.swizzled = toggles("swizzle", [("on", True), ("off", False)], True)
        self.k_tile = choice("k_tile", [128, 256], 256, "200px")
        self.warp = slider("warp", 0, layout.COMPUTE_WARPS - 1, 1, "220px")
        self.phase = slider("phase", 0, 3, 0, "220px")
        self.lane = slider("lane", 0, 31, 5, "340px")
        self.bank = choice("bank", [("none", -1), *[(str(b), b) for b in range(32)]], -1, "340px")
        self.picture, self.source = Picture(), widgets.HTML()
        rows = [(self.operand, self.swizzled, self.k_tile), (self.warp, self.phase), (self.lane, self.bank)]
        super().__init__(rows, [self.picture, self.source])

    def table(self) -> pd.DataFrame:
        """One row per lane (`ldmatrix_table`) for what the controls say."""
        return ldmatrix_table(
            self.operand.value, self.warp.value, 0, self.phase.value, self.k_tile.value, self.swizzled.value
        )

    def draw(self) -> None:
        per_load = 16 if self.operand.value == "A" else 32  # K elements: one k16 phase of A, two of B
        phases = self.k_tile.value // layout.COMPUTE_WARPS // per_load
        with self.quietly():
            self.phase.max = max(phases - 1, 1)
            self.phase.value = min(self.phase.value, phases - 1)
        self.phase.layout.display = "none" if phases == 1 else ""
        super().draw()
        address = ADDRESSES[self.operand.value]
        self.source.value = source_of(address, swizzle.tile_offset if self.swizzled.value else swizzle.plain_offset)

    def views(self) -> list[View]:
        names = ("operand", "swizzled", "k_tile", "warp", "phase", "lane")
        chosen = {name: getattr(self, name).value for name in names}
        facts = provenance("model", kernel=WarpSplitKTactic.kernel, **chosen, bank=self._bank())
        order = "swizzled" if facts["swizzled"] else "rowmajor"
        where = "-".join(f"{name}{facts[name]}" for name in ("warp", "phase", "lane", "bank") if name in facts)
        stem = f"ldmatrix-{facts['operand']}-{order}-{facts['k_tile']}-{where}"
        return [View(self.picture, stem, self._figure, self.table, facts)]

    def _bank(self) -> int | None:
        return None if self.bank.value < 0 else self.bank.value

    def _figure(self) -> Figure:
        rows = TILE_ROWS[self.operand.value]
        return ldmatrix_view(self.table(), self.k_tile.value, rows, self.lane.value, self._bank())
