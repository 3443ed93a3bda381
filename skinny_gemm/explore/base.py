"""What all explorers share: one redraw per change of a control, errors in words, and export."""

import html
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..figures.export import export
from . import markup
from .controls import button, in_a_row
from .pictures import Picture, static_page
from .places import export_dir, relative

Shown = tuple[Figure, pd.DataFrame, dict[str, Any]]  #: figure, plotted data, provenance: what `show` and `export` take
Figures = dict[str, Shown]  #: by file stem
_latest: dict[type["Explorer"], "Explorer"] = {}


def shown(kind: type["Explorer"]) -> Any:
    """The latest explorer of this kind; ValueError, saying which cell to run, if there is none yet."""
    if kind not in _latest:
        raise ValueError(f"There is no {kind.__name__} yet: run the cell above that shows it, then this one again.")
    return _latest[kind]


class _ExplorerType(ABCMeta, type(widgets.VBox)):  # type: ignore[misc]
    """Lets a widget class have abstract methods."""


class Explorer(widgets.VBox, metaclass=_ExplorerType):
    """A column of rows of controls, a verdict, pictures and an Export button.

    A subclass builds its controls, then calls `super().__init__`, and defines `draw` (read the controls, set pictures
    and verdict) and `figures` (what Export writes). `draw` runs once per change of any of the controls `watched` (all
    in `rows`, if not given); if it raises, the sentence appears above the pictures, with the traceback folded below it,
    and the pictures stay as they were.
    """

    quiet = False  #: changes of controls cause no redraw

    def __init__(
        self,
        rows: Sequence[Sequence[widgets.Widget]],
        pictures: Sequence[widgets.Widget],
        watched: Sequence[widgets.Widget] | None = None,
    ):
        self.trouble = widgets.HTML()
        self.exported = widgets.HTML()
        self.export_button = self.guarded_button(
            "Export", "SVG, PDF, PNG, CSV and provenance JSON", self._export_and_tell
        )
        super().__init__([*map(in_a_row, rows), self.trouble, *pictures, in_a_row([self.export_button, self.exported])])
        self.controls = watched or [control for row in rows for control in row if hasattr(control, "value")]
        for control in self.controls:
            control.observe(self.changed, "value")
        _latest[type(self)] = self
        self.redraw()

    def _ipython_display_(self) -> None:
        """Shows the widget, and behind it the pictures for a page without a kernel (an exported book)."""
        from IPython.display import HTML, display

        display(self._repr_mimebundle_(), raw=True)
        display(HTML(static_page(self)))

    @abstractmethod
    def draw(self) -> None:
        """Reads the controls and sets the pictures."""

    @abstractmethod
    def figures(self) -> Figures:
        """What Export writes."""

    def redraw(self) -> None:
        """Draws now, with errors told in words."""
        self.guard(self.draw)

    def changed(self, _change: object) -> None:
        """Redraws, as the observer of a control."""
        if not self.quiet:
            self.redraw()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Controls that change inside do not cause a redraw."""
        self.quiet, before = True, self.quiet
        try:
            yield
        finally:
            self.quiet = before

    def guard(self, action: Callable[[], object]) -> None:
        """Runs `action`; tells in words what it raised, and hides nothing."""
        try:
            action()
        except Exception as error:
            self.trouble.value = markup.trouble(error)
        else:
            self.trouble.value = ""

    def guarded_button(self, name: str, tooltip: str, press: Callable[[], object], **more: Any) -> widgets.Button:
        """A button that calls `press`, with errors told in words."""
        return button(name, tooltip, lambda: self.guard(press), **more)

    def export(self, folder: Path | None = None) -> list[Path]:
        """Writes SVG, PDF, PNG, CSV and JSON of every figure as it stands; returns the paths."""
        folder = Path(folder) if folder else export_dir()
        return [path for stem, parts in self.figures().items() for path in export(*parts, folder / stem)]

    def tell_exported(self, paths: Sequence[Path]) -> str:
        """HTML that says what `export` wrote."""
        stems = dict.fromkeys(relative(path.with_suffix("")) for path in paths)
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
    data: pd.DataFrame | Callable[[], pd.DataFrame]  #: that is plotted, or how to make it
    facts: dict[str, Any]  #: provenance; with `stem` it says all that figure and data depend on


class ViewExplorer(Explorer):
    """An explorer whose figures are always the same ones; a subclass lists them in `views`."""

    @abstractmethod
    def views(self) -> list[View]:
        """Every figure, for what the controls say."""

    def draw(self) -> None:
        """Shows the figures whose picture is displayed."""
        for view in self.views():
            if view.picture.layout.display != "none":
                view.picture.show((view.stem, view.facts), view.figure, view.facts)

    def figures(self) -> Figures:
        views = self.views()
        return {v.stem: (v.figure(), v.data() if callable(v.data) else v.data, v.facts) for v in views}
