"""Drives a notebook in JupyterLab as a reader does: run it, move a slider, press a button, read what changed."""

from pathlib import Path

from playwright.sync_api import Locator, Page, expect

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"

# Sends a question to JupyterLab's own model: every code cell's execution state and errors, whatever is in view.
_CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === 'code' && cell.model.sharedModel.source.trim())
    .map(cell => ({
        source: cell.model.sharedModel.source,
        count: cell.model.executionCount,
        errors: cell.model.outputs.toJSON().filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`),
    }))"""
_RAN = f"() => {{ const all = ({_CELLS})(); return all.some(c => c.errors.length) || all.every(c => c.count); }}"
_RUN = """number => {
    window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
    window.jupyterapp.commands.execute('notebook:run-cell');
}"""
# True at the sixth animation frame in a row at which the kernel has answered all it was asked: what it said is drawn.
# JupyterLab holds a future for each request, on whichever subshell, and sets bit 4 of its status at the last answer; a
# widget that was moved meanwhile asks again from within that answer.
_IDLE = """() => {
    const kernel = window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel;
    const idle = kernel?.status === 'idle' && [...kernel._futures.values()].every(future => future._status & 4);
    window.idleFrames = idle ? (window.idleFrames ?? 0) + 1 : 0;
    return window.idleFrames >= 6;
}"""


class Notebook:
    """A notebook open in JupyterLab. Cells are numbered from 0, Markdown included."""

    def __init__(self, page: Page, name: str, folder: Path):
        self.page = page
        self.name = name
        self.folder = folder  #: where the server keeps it, and where relative paths of its code end up
        self.problems: list[str] = []  #: errors on the browser's console
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def run_all(self, timeout_s: float = 120) -> None:
        """Runs every cell; AssertionError with the first error if one raised."""
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
        self.page.wait_for_function(_RAN, timeout=timeout_s * 1000)
        if errors := self.errors():
            raise AssertionError(errors[0])
        self.wait_idle(timeout_s)

    def run(self, number: int, timeout_s: float = 120) -> None:
        """Runs one cell; AssertionError with the first error if it raised."""
        self.page.evaluate(_RUN, number)
        ran = f"() => ({_CELLS})().some(cell => cell.errors.length || cell.count)"
        self.page.wait_for_function(ran, timeout=timeout_s * 1000)
        if errors := self.errors():
            raise AssertionError(errors[0])
        self.wait_idle(timeout_s)

    def wait_idle(self, timeout_s: float = 60) -> None:
        """Returns when the kernel has answered all that it was asked, and the page shows it."""
        self.page.evaluate("() => { window.idleFrames = 0; }")
        self.page.wait_for_function(_IDLE, timeout=timeout_s * 1000)

    def errors(self) -> list[str]:
        return [f"{error} in: {cell['source']}" for cell in self.page.evaluate(_CELLS) for error in cell["errors"]]

    def cell(self, number: int) -> Locator:
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def output(self, number: int) -> Locator:
        """What a cell shows; `.inner_text()` reads it, widgets included."""
        return self.cell(number).locator(".jp-Cell-outputArea")

    def control(self, label: str) -> Locator:
        """The widget with that label: a slider, dropdown, toggle row or text field."""
        return self.page.locator(".widget-label").get_by_text(label, exact=True).locator("xpath=..")

    def slide(self, label: str, steps: int) -> None:
        """Moves a slider by arrow keys, to the right if `steps` is positive, and waits for the kernel."""
        handle = self.control(label).locator(".noUi-handle")
        handle.focus()
        for _ in range(abs(steps)):
            handle.press("ArrowRight" if steps > 0 else "ArrowLeft")
        self.wait_idle()

    def readout(self, label: str) -> str:
        """The value that a slider shows beside itself."""
        return self.control(label).locator(".widget-readout").inner_text().strip()

    def choose(self, label: str, option: str) -> None:
        """Picks an option of a dropdown by its text and waits for the kernel."""
        self.control(label).locator("select").select_option(label=option)
        self.wait_idle()

    def press(self, button: str) -> None:
        """Presses a widget button by its text and waits for the kernel."""
        self.page.locator("button.jupyter-button").get_by_text(button, exact=True).click()
        self.wait_idle()

    def screenshot(self, name: str, element: Locator | None = None) -> Path:
        """Saves build/screenshots/`name`.png of the window or of one element."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        (element or self.page).screenshot(path=path)
        return path

    def close(self) -> None:
        """Shuts the kernel down and closes the window."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.page.close()


def open_notebook(page: Page, url: str, token: str, name: str, folder: Path) -> Notebook:
    notebook = Notebook(page, name, folder)
    page.goto(f"{url}/lab/tree/notebooks/{name}?token={token}&reset")
    expect(page.locator(".jp-Notebook .jp-Cell").first).to_be_visible(timeout=60_000)
    page.wait_for_function("() => window.jupyterapp !== undefined")
    notebook.wait_idle()
    return notebook
