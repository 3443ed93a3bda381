"""Figures on a page: pictures that do not flicker, and what a reader without a kernel sees of them."""

import itertools
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from ..figures.export import inline_svg

_numbers = itertools.count()
_ARROW = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E%3Cpath fill='%23bbb' "
#: JupyterLab shows the widget instead; a page that only holds what was drawn has no #main. The dark theme's dropdown
#: gets an arrow that is not dark, and what an earlier run left is pale.
_STATIC = (
    "<style>#main .sg-static{display:none}.sg-stale{opacity:.4}[data-jp-theme-light=false] .widget-dropdown>select"
    f"{{background-image:url(\"{_ARROW}d='M5 7l4 4 4-4z'/%3E%3C/svg%3E\")!important}}</style>"
    '<p class="sg-static"><i>The controls need a kernel: open this notebook with <code>make lab</code>.</i></p>'
)


def show(figure: Figure, data: pd.DataFrame | None = None, provenance: dict[str, Any] | None = None) -> Any:
    """`figure` for a notebook's output: SVG in the page's theme, its `provenance` in the footer.

    Takes an item of `Explorer.figures`, whose plotted `data` it does not need.
    """
    from IPython.display import HTML

    return HTML(inline_svg(figure, provenance, salt=f"figure-{next(_numbers)}"))


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


def static_page(widget: widgets.Widget) -> str:
    """HTML of the pictures inside `widget`, for a page without a kernel (an exported book)."""
    pictures = "".join(picture.value for picture in pictures_in(widget) if not picture.hidden)
    return f'{_STATIC}<div class="sg-static">{pictures}</div>'
