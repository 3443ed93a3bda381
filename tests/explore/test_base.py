"""What all explorers do: show their pictures to a reader without a kernel, and be found by a later cell."""

import IPython.display
import pytest

from skinny_gemm.explore import SwizzleExplorer, base, shown


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
