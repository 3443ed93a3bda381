"""What all explorers share: one redraw per change of a control, pictures, errors in words, a cursor, and export."""

import html
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..figures.export import export, inline_svg, provenance
from ..problem import GemmProblem
from ..tactics import Tactic
from . import markup
from .controls import button, in_a_row, looks

Shown = tuple[Figure, pd.DataFrame, dict[str, Any]]  #: figure, plotted data, provenance: what `show` and `export` take
Widgets = Sequence[widgets.Widget]
Moments = Callable[[], Iterable[int]]
Figures = dict[str, Shown]  #: by file stem
_latest: dict[type["Explorer"], "Explorer"] = {}
_ARROW = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath fill='%23bbb' "
#: JupyterLab shows the widget instead; a page that only holds what was drawn has no #main. The dark theme's dropdown
#: gets an arrow that is not dark, and what an earlier run left is pale.
_STATIC = (
    "<style>#main .sg-static{display:none}.sg-stale{opacity:.4}[data-jp-theme-light=false] .widget-dropdown>select"
    f"{{background-image:url(\"{_ARROW}d='M5 7l4 4 4-4z'/%3E%3C/svg%3E\")!important}}</style>"
    '<p class="sg-static"><i>The controls need a kernel: open this notebook with <code>make lab</code>.</i></p>'
)


def export_dir() -> Path:
    """Where exports go: $SKINNY_GEMM_EXPORTS, or build/exports of the repository."""
    return Path(os.environ.get("SKINNY_GEMM_EXPORTS") or markup.REPOSITORY / "build" / "exports")


def facts_of(source: str, tactic: Tactic, problem: GemmProblem, **more: Any) -> dict[str, Any]:
    """The provenance of a figure of `tactic` on `problem`; `more` goes into it."""
    shape = dict(n=problem.n, k=problem.k, m=problem.m)
    return provenance(source, kernel=tactic.kernel, tactic=str(tactic), **shape, **more)


def shown(kind: type["Explorer"]) -> Any:
    """The latest explorer of this kind; ValueError, saying which cell to run, if there is none yet."""
    if kind not in _latest:
        raise ValueError(f"There is no {kind.__name__} yet: run the cell above that shows it, then this one again.")
    return _latest[kind]


class Picture(widgets.HTML):
    """A figure on the page; showing another swaps the picture in place, without a flicker."""

    _key: object = None

    def show(self, key: object, draw: Callable[[], Figure], provenance: dict[str, Any]) -> None:
        """Shows what `draw` returns, unless it and `provenance` depend on `key` alone and that is what it was."""
        self.layout.visibility = "visible"
        if self._key is None or key != self._key:
            self.value = inline_svg(draw(), provenance, salt=self.model_id)
            self._key = key

    def clear(self) -> None:
        """Takes the picture and its place away."""
        self.value, self._key = "", None

    @property
    def hidden(self) -> bool:
        """Whether `hide` was the last call."""
        return self.layout.visibility == "hidden"

    def hide(self) -> None:
        """Takes the picture away and keeps its place, so that what is below stays where it is, until `show`."""
        self.layout.visibility = "hidden"


def pictures_in(widget: widgets.Widget) -> list[Picture]:
    """All pictures inside `widget`, in order."""
    if isinstance(widget, Picture):
        return [widget]
    return [picture for child in getattr(widget, "children", ()) for picture in pictures_in(child)]


class Explorer(widgets.VBox):
    """Rows of controls, pictures and an Export button; `draw` runs once per change of a control that is `watched`."""

    draw: Callable[[], None]  #: of a subclass: reads the controls and sets pictures and verdict
    figures: Callable[[], Figures]  #: of a subclass: what Export writes
    quiet = False  #: changes of controls cause no redraw

    def __init__(self, rows: Sequence[Widgets], pictures: Widgets, watched: Widgets | None = None):
        self.trouble, self.exported = widgets.HTML(), widgets.HTML()
        written = "SVG, PDF, PNG, CSV and provenance JSON"
        self.export_button = self.guarded_button("Export", written, self._export_and_tell)
        super().__init__([*map(in_a_row, rows), self.trouble, *pictures, in_a_row([self.export_button, self.exported])])
        for control in watched or [control for row in rows for control in row if hasattr(control, "value")]:
            control.observe(self.redraw, "value")
        _latest[type(self)] = self
        self.redraw()

    def _ipython_display_(self) -> None:
        """Shows the widget, and behind it the pictures for a page without a kernel (an exported book)."""
        from IPython.display import HTML, display

        pictures = "".join(picture.value for picture in pictures_in(self) if not picture.hidden)
        display(self._repr_mimebundle_(), raw=True)
        display(HTML(f'{_STATIC}<div class="sg-static">{pictures}</div>'))

    def redraw(self, _change: object = None) -> None:
        """Draws, with errors told in words; as the observer of a control too."""
        if not self.quiet:
            self.guard(self.draw)

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Controls that change inside do not cause a redraw."""
        self.quiet, before = True, self.quiet
        try:
            yield
        finally:
            self.quiet = before

    def guard(self, action: Callable[[], object]) -> None:
        """Runs `action`; tells in words what it raised, with the traceback folded below."""
        try:
            action()
            self.trouble.value = ""
        except Exception as error:
            self.trouble.value = markup.trouble(error)

    def guarded_button(self, name: str, tooltip: str, press: Callable[[], object], **more: Any) -> widgets.Button:
        """A button that calls `press`, with errors told in words."""
        return button(name, tooltip, lambda: self.guard(press), **more)

    def export(self, folder: Path | None = None) -> list[Path]:
        """Writes SVG, PDF, PNG, CSV and JSON of every figure as it stands; returns the paths."""
        folder = Path(folder or export_dir())
        return [path for stem, parts in self.figures().items() for path in export(*parts, folder / stem)]

    def tell_exported(self, paths: Sequence[Path]) -> str:
        """HTML that says what `export` wrote."""
        stems = dict.fromkeys(markup.relative(path.with_suffix("")) for path in paths)
        kinds = ", ".join(dict.fromkeys(path.suffix for path in paths))
        return f"wrote {kinds} of " + ", ".join(f"<code>{html.escape(stem)}</code>" for stem in stems)

    def _export_and_tell(self) -> None:
        self.exported.value = "writing ..."
        try:
            self.exported.value = self.tell_exported(self.export())
        except Exception as error:
            self.exported.value = f"nothing written: {markup.sentence(error)}"
            raise


class View(NamedTuple):
    """One figure of an explorer: where it is on screen, the file stem of its export, and how to make it."""

    picture: Picture
    stem: str
    figure: Callable[[], Figure]
    data: pd.DataFrame  #: that is plotted
    facts: dict[str, Any]  #: provenance; with `stem` it says all that figure and data depend on


class ViewExplorer(Explorer):
    """An explorer whose figures are always the same ones."""

    views: Callable[[], list[View]]  #: of a subclass: every figure, for what the controls say

    def draw(self) -> None:
        for view in self.views():
            if view.picture.layout.display != "none":
                view.picture.show((view.stem, view.facts), view.figure, view.facts)

    def figures(self) -> Figures:
        return {view.stem: (view.figure(), view.data, view.facts) for view in self.views()}


class Cursor(widgets.IntSlider):
    """A slider from 0 up; `row` is it and two buttons that move it to the next and the previous of `moments()`."""

    value: int

    def __init__(self, explorer: Explorer, name: str, value: int, moments: Moments, width: str = "460px"):
        super().__init__(value, 0, max(value, 1), **looks(name, width))
        self.back = explorer.guarded_button("◀ Back", "to the event before", lambda: self.go(-1))
        self.forward = explorer.guarded_button("Forward ▶", "to the next event", lambda: self.go(+1))
        self.row: tuple[widgets.Widget, ...] = (self, self.back, self.forward)
        self._moments = moments

    def go(self, direction: int) -> None:
        """Moves to the next (+1) or the previous (-1) moment, if there is one."""
        ahead = [moment for moment in self._moments() if direction * (moment - self.value) > 0]
        self.value = min(ahead, key=lambda moment: abs(moment - self.value), default=self.value)
