"""What all explorers share: pictures that do not flicker, errors in words, one redraw per change, and export."""

import html
import inspect
import itertools
import os
import traceback
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..figures.export import export, inline_svg

_REPOSITORY = Path(__file__).resolve().parents[2]
_latest: dict[type, "Explorer"] = {}
_numbers = itertools.count()


def export_dir() -> Path:
    """Where exports go: $SKINNY_GEMM_EXPORTS, or build/exports of the repository."""
    override = os.environ.get("SKINNY_GEMM_EXPORTS")
    return Path(override) if override else _REPOSITORY / "build" / "exports"


def show(figure: Figure, data: pd.DataFrame | None = None, provenance: dict | None = None):
    """`figure` for a notebook's output: SVG in the page's theme, its `provenance` in the footer.

    Takes an item of `Explorer.figures`, whose plotted `data` it does not need.
    """
    from IPython.display import HTML

    return HTML(inline_svg(figure, provenance, salt=f"figure-{next(_numbers)}"))


def shown(kind: type["Explorer"]) -> "Explorer":
    """The latest explorer of this kind; ValueError, saying which cell to run, if there is none yet."""
    if kind not in _latest:
        raise ValueError(f"There is no {kind.__name__} yet: run the cell above that shows it, then this one again.")
    return _latest[kind]


def relative(path: Path) -> str:
    """`path` as seen from the repository, where it is inside."""
    return str(path.relative_to(_REPOSITORY)) if path.is_relative_to(_REPOSITORY) else str(path)


def source_of(*functions: Callable) -> str:
    """HTML that names functions, links to their files, and holds their source folded."""
    parts = []
    for function in functions:
        code, line = inspect.getsourcelines(function)
        path = relative(Path(inspect.getsourcefile(function)))
        name = f"{function.__module__.removeprefix('skinny_gemm.')}.{function.__name__}"
        parts.append(
            f'<details><summary><code>{name}</code> in <a href="../{path}" target="_blank">{path}:{line}</a></summary>'
            f"<pre>{html.escape(''.join(code))}</pre></details>"
        )
    return "This view draws" + "".join(parts)


class _ExplorerType(ABCMeta, type(widgets.VBox)):
    """Lets a widget class have abstract methods."""


class Explorer(widgets.VBox, metaclass=_ExplorerType):
    """A column of rows of controls, a verdict, pictures and an Export button.

    A subclass builds its controls, then calls `super().__init__`, and defines `draw` (read the controls, set pictures
    and verdict) and `figures` (what Export writes). `draw` runs once per change of any control; if it raises, the
    sentence appears above the pictures, with the traceback folded below it, and the pictures stay as they were.
    """

    _held = False

    def __init__(self, rows: Sequence[Sequence[widgets.Widget]], pictures: Sequence[widgets.Widget], watch=None):
        self.trouble = widgets.HTML()
        self.exported = widgets.HTML()
        self.export_button = widgets.Button(description="Export", tooltip="SVG, PDF, PNG, CSV and provenance JSON")
        self.export_button.on_click(lambda _: self.guard(self._export_and_tell))
        lines = [widgets.HBox(list(row), layout=rows_layout()) for row in rows]
        foot = widgets.HBox([self.export_button, self.exported], layout=rows_layout())
        super().__init__([*lines, self.trouble, *pictures, foot])
        self.controls = watch or [control for row in rows for control in row if hasattr(control, "value")]
        for control in self.controls:
            control.observe(self._changed, "value")
        _latest[type(self)] = self
        self.redraw()

    def _ipython_display_(self) -> None:
        """Shows the widget, and behind it the pictures for a page without a kernel (an exported book)."""
        from IPython.display import HTML, display

        display(self._repr_mimebundle_(), raw=True)
        pictures = "".join(picture.value for picture in _pictures(self) if not picture.hidden)
        display(HTML(f'{_STATIC}<div class="sg-static">{pictures}</div>'))

    @abstractmethod
    def draw(self) -> None:
        """Reads the controls and sets the pictures."""

    @abstractmethod
    def figures(self) -> dict[str, tuple[Figure, pd.DataFrame, dict]]:
        """What Export writes: file stem to (figure, plotted data, provenance)."""

    def redraw(self) -> None:
        """Draws now, with errors told in words."""
        self.guard(self.draw)

    @contextmanager
    def quietly(self):
        """Controls that change inside do not cause a redraw."""
        self._held, before = True, self._held
        try:
            yield
        finally:
            self._held = before

    def guard(self, action: Callable[[], object]) -> None:
        """Runs `action`; tells in words what it raised, and hides nothing."""
        try:
            action()
        except Exception as error:
            sentence = html.escape(str(error) or type(error).__name__)
            trace = html.escape("".join(traceback.format_exception(error)))
            self.trouble.value = (
                '<div class="sg-trouble" style="border-left:4px solid #d55e00;padding:4px 10px;line-height:1.5">'
                f"<b>{sentence}</b><details><summary>{type(error).__name__}: where it was raised</summary>"
                f"<pre>{trace}</pre></details></div>"
            )
        else:
            self.trouble.value = ""

    def export(self, folder: Path | None = None) -> list[Path]:
        """Writes SVG, PDF, PNG, CSV and JSON of every figure as it stands; returns the paths."""
        folder = Path(folder) if folder else export_dir()
        return [path for stem, parts in self.figures().items() for path in export(*parts, folder / stem)]

    def _export_and_tell(self) -> None:
        try:
            paths = self.export()
        except Exception as error:
            self.exported.value = f"nothing written: {html.escape(str(error) or type(error).__name__)}"
            raise
        stems = dict.fromkeys(relative(path.with_suffix("")) for path in paths)
        kinds = ", ".join(dict.fromkeys(path.suffix for path in paths))
        self.exported.value = f"wrote {kinds} of " + ", ".join(f"<code>{html.escape(s)}</code>" for s in stems)

    def _changed(self, _) -> None:
        if not self._held:
            self.redraw()


_ARROW = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath fill='%23bbb' "
#: JupyterLab shows the widget instead; a page that only holds what was drawn has no #main. The dark theme's dropdown
#: gets an arrow that is not dark, and what an earlier run left is pale.
_STATIC = (
    "<style>#main .sg-static{display:none}.sg-stale{opacity:.4}[data-jp-theme-light=false] .widget-dropdown>select"
    f"{{background-image:url(\"{_ARROW}d='M5 7l4 4 4-4z'/%3E%3C/svg%3E\")!important}}</style>"
    '<p class="sg-static"><i>The controls need a kernel: open this notebook with <code>make lab</code>.</i></p>'
)


def _pictures(widget: widgets.Widget) -> list["Picture"]:
    """All pictures inside `widget`, in order."""
    if isinstance(widget, Picture):
        return [widget]
    return [picture for child in getattr(widget, "children", ()) for picture in _pictures(child)]


class Picture(widgets.HTML):
    """A figure on the page; showing another swaps the picture in place, without a flicker."""

    _key = None

    def show(self, key: object, draw: Callable[[], Figure], provenance: dict) -> None:
        """Shows what `draw` returns, unless it and `provenance` depend on `key` alone and that is what it was."""
        self.layout.visibility = "visible"
        if self._key is None or key != self._key:
            self.value = inline_svg(draw(), provenance, salt=self.model_id)
            self._key = key

    def clear(self) -> None:
        self.value, self._key = "", None

    @property
    def hidden(self) -> bool:
        return self.layout.visibility == "hidden"

    def hide(self) -> None:
        """Takes the picture away and keeps its place, so that what is below stays where it is, until `show`."""
        self.layout.visibility = "hidden"


def left_out(data_dir: Path | None) -> str:
    """HTML: for each recorded campaign that cannot be read a line that says why; nothing if there is none."""
    from .. import records

    return "".join(f"<br><b>left out: {html.escape(said)}</b>" for said in records.problems(data_dir).values())


def rows_layout() -> widgets.Layout:
    """Controls side by side, wrapped where the page is narrow."""
    return widgets.Layout(flex_flow="row wrap", align_items="flex-end", grid_gap="2px 20px")


_STYLE = {"description_width": "initial"}


def slider(name: str, low: int, high: int, value: int, width: str = "300px", **more) -> widgets.IntSlider:
    """A slider over integers. It redraws while it moves: it has few steps, and a step takes under 150 ms."""
    layout = widgets.Layout(width=width)
    return widgets.IntSlider(value, low, high, description=name, style=_STYLE, layout=layout, **more)


def choice(name: str, options: Sequence, value, width: str = "240px") -> widgets.SelectionSlider:
    """A slider over a few given values."""
    layout = widgets.Layout(width=width)
    return widgets.SelectionSlider(options=options, value=value, description=name, style=_STYLE, layout=layout)


def dropdown(name: str, options: Sequence, value, width: str = "260px") -> widgets.Dropdown:
    layout = widgets.Layout(width=width)
    return widgets.Dropdown(options=options, value=value, description=name, style=_STYLE, layout=layout)


def toggles(name: str, options: Sequence, value) -> widgets.ToggleButtons:
    """A row of buttons of which one is down."""
    style = {"description_width": "initial", "button_width": "auto"}
    layout = widgets.Layout(width="max-content", flex_flow="row nowrap")
    return widgets.ToggleButtons(options=options, value=value, description=name, style=style, layout=layout)
