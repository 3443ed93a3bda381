"""The harness itself, on plain widgets: what it moves moves, what it reads is there, a cell that raises is noticed."""

import json

import pytest

from tests.notebooks.canonical import canonical

SOURCES = {
    "widgets": """
import ipywidgets as w
from IPython.display import display
stages = w.IntSlider(value=2, min=1, max=8, description="stages")
tile = w.SelectionSlider(options=[16, 32, 64], value=16, description="tile")
kernel = w.Dropdown(options=["warp split-K", "WsGemm"], description="kernel")
button = w.Button(description="Export")
out = w.Output()
def show(*_):
    out.clear_output(wait=True)
    with out:
        print(f"{kernel.value}: {stages.value} stages of {tile.value}")
for control in (stages, tile, kernel):
    control.observe(show, "value")
button.on_click(lambda _: open("pressed", "w").write(kernel.value))
show()
display(stages, tile, kernel, button, out)
""",
    "broken": "x = 1\nx / 0",
}


def write(folder, name: str) -> str:
    cells = [
        {"cell_type": "markdown", "source": "# Harness"},
        {"cell_type": "code", "source": SOURCES[name]},
        {"cell_type": "code", "source": ""},
    ]
    (folder / f"{name}.ipynb").write_text(canonical(json.loads(json.dumps({"cells": cells}))))
    return f"{name}.ipynb"


def test_widgets_can_be_moved_pressed_and_read(notebook, server):
    nb = notebook(write(server.folder, "widgets"))
    nb.run_all()
    assert "warp split-K: 2 stages of 16" in nb.output(1).inner_text()
    nb.slide("stages", +3)
    assert nb.readout("stages") == "5"
    nb.slide("tile", +1)
    assert nb.readout("tile") == "32"
    nb.choose("kernel", "WsGemm")
    assert "WsGemm: 5 stages of 32" in nb.output(1).inner_text()
    nb.slide("stages", -1)
    assert "WsGemm: 4 stages of 32" in nb.output(1).inner_text()
    nb.press("Export")
    assert (nb.folder / "pressed").read_text() == "WsGemm"
    assert nb.screenshot("harness", nb.output(1)).stat().st_size > 1000
    assert nb.problems == []


def test_a_cell_that_raises_fails_the_run(notebook, server):
    nb = notebook(write(server.folder, "broken"))
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero in: x = 1"):
        nb.run_all()
