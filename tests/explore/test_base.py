"""What all explorers do: show pictures to a reader without a kernel, be found by a later cell, step with a cursor."""

import IPython.display
import pytest

from skinny_gemm.explore import SwizzleExplorer, base, shown
from skinny_gemm.explore.base import Cursor


def test_a_reader_without_a_kernel_sees_the_pictures(monkeypatch):
    seen = []
    monkeypatch.setattr(IPython.display, "display", lambda thing, **_: seen.append(thing))
    SwizzleExplorer()._ipython_display_()
    widget, static = seen
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert "The controls need a kernel" in static.data and "<svg" in static.data


def test_a_missing_explorer_says_which_cell_to_run(monkeypatch):
    monkeypatch.setattr(base, "_latest", {})
    with pytest.raises(ValueError, match="There is no SwizzleExplorer yet: run the cell above"):
        shown(SwizzleExplorer)
    explorer = SwizzleExplorer()
    assert shown(SwizzleExplorer) is explorer


def test_the_cursor_steps_from_moment_to_moment():
    cursor = Cursor(SwizzleExplorer(), "time", 500, lambda: [300, 40, 900, 300])
    cursor.max = 1000
    seen = []
    for button in (cursor.back, cursor.back, cursor.back, cursor.forward, cursor.forward, cursor.forward):
        button.click()
        seen.append(cursor.value)
    assert seen == [300, 40, 40, 300, 900, 900]


def test_what_a_step_raises_is_told_by_the_explorer():
    explorer = SwizzleExplorer()
    cursor = Cursor(explorer, "time", 0, lambda: 1 / 0)
    cursor.forward.click()
    assert "division by zero" in explorer.trouble.value and cursor.value == 0
