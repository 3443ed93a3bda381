"""Controls: sliders, rows of buttons, dropdowns, and the control of one tactic field. Nothing here knows a kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

FEW = 4  #: choices that are a row of buttons; more are a slider
_STYLE = {"description_width": "initial"}


def looks(name: str, width: str) -> dict[str, Any]:
    """What any control says in front of it, whole, and its width."""
    return dict(description=name, style=_STYLE, layout=widgets.Layout(width=width))


def in_a_row(controls: Sequence[widgets.Widget] = ()) -> widgets.HBox:
    """Controls side by side, wrapped where the page is narrow."""
    layout = widgets.Layout(flex_flow="row wrap", align_items="flex-end", grid_gap="2px 20px")
    return widgets.HBox(list(controls), layout=layout)


def slider(name: str, low: int, high: int, value: int, width: str = "300px", **more: Any) -> widgets.IntSlider:
    """A slider over integers; what takes over 150 ms waits, by `continuous_update=False`, until it is let go."""
    return widgets.IntSlider(value, low, high, **looks(name, width), **more)


def choice(name: str, options: Sequence, value: Any, width: str = "240px", **more: Any) -> widgets.SelectionSlider:
    """A slider over a few given values; it redraws as `slider` does."""
    return widgets.SelectionSlider(options=options, value=value, **looks(name, width), **more)


def dropdown(name: str, options: Sequence, value: Any, width: str = "260px") -> widgets.Dropdown:
    """A list that opens, of which one is chosen."""
    return widgets.Dropdown(options=options, value=value, **looks(name, width))


def toggles(name: str, options: Sequence, value: Any) -> widgets.ToggleButtons:
    """A row of buttons of which one is down."""
    style = {**_STYLE, "button_width": "auto"}
    layout = widgets.Layout(width="max-content", flex_flow="row nowrap")
    return widgets.ToggleButtons(options=options, value=value, description=name, style=style, layout=layout)


def button(name: str, tooltip: str, press: Callable[[], object], **more: Any) -> widgets.Button:
    """A button that calls `press`."""
    control = widgets.Button(description=name, tooltip=tooltip, **more)
    control.on_click(lambda _: press())
    return control


class Progress(widgets.FloatProgress):
    """A bar from 0 to 1 that is seen inside `with`, whose target sets it; it keeps its place while it is hidden."""

    def __init__(self) -> None:
        super().__init__(min=0, max=1, layout=widgets.Layout(width="240px", visibility="hidden"))

    def __enter__(self) -> Callable[[float], None]:
        self.value, self.layout.visibility = 0, "visible"
        return lambda fraction: setattr(self, "value", fraction)

    def __exit__(self, *_: object) -> None:
        self.layout.visibility = "hidden"


class Choice(widgets.Box):
    """One tactic field: buttons for a few values, a slider for many; `changed` is told of every change.

    `in_words` says what a value is called.
    """

    def __init__(self, name: str, changed: Callable[[object], None], in_words: Callable[[int], str] = str):
        self.name, self._changed, self._in_words = name, changed, in_words
        self.options: tuple[int, ...] = ()
        self._control: Any = None
        super().__init__()

    @property
    def value(self) -> int | None:
        """What is chosen; None before anything was on offer."""
        return self._control.value if self._control else None

    @value.setter
    def value(self, value: int) -> None:
        if value not in self.options:
            raise ValueError(f"{self.name} is {value}, but must be one of {', '.join(map(str, self.options))}")
        self._control.value = value

    def offer(self, options: Sequence[int]) -> None:
        """Offers `options`, keeping the value or taking the nearest; none leaves what was there, disabled."""
        if self._control:
            self._control.disabled = not options
        if not options or tuple(options) == self.options:
            return
        self.options, before = tuple(options), self.value
        value = options[0] if before is None else min(options, key=lambda option: abs(option - before))
        make = toggles if len(options) <= FEW else choice
        named = [(self._in_words(option), option) for option in options]
        if isinstance(self._control, widgets.ToggleButtons if make is toggles else widgets.SelectionSlider):
            self._control.unobserve(self._changed, "value")
            self._control.options, self._control.value = named, value
        else:
            self._control = make(self.name, named, value)
            self.children = [self._control]
        self._control.observe(self._changed, "value")
