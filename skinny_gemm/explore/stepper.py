"""A cursor that steps from moment to moment, forward and back: a slider with a button each way."""

from collections.abc import Callable, Iterable

import ipywidgets as widgets

from .base import Explorer
from .controls import slider

WINDOW = 120  #: logical time on screen around the cursor


class Stepper:
    """A slider from 0 up, and buttons that move it to the next and the previous of `moments()`, now or later.

    `row` is the three, to be shown by `explorer`, which tells what goes wrong.
    """

    def __init__(
        self, explorer: Explorer, name: str, value: int, moments: Callable[[], Iterable[int]], width: str = "460px"
    ):
        self.slider = slider(name, 0, max(value, 1), value, width)
        self.back = explorer.guarded_button("◀ Back", "to the event before", lambda: self.step(-1))
        self.forward = explorer.guarded_button("Forward ▶", "to the next event", lambda: self.step(+1))
        self.row: tuple[widgets.Widget, ...] = (self.slider, self.back, self.forward)
        self._moments = moments

    @property
    def value(self) -> int:
        return self.slider.value

    @value.setter
    def value(self, value: int) -> None:
        self.slider.value = value

    def step(self, direction: int) -> None:
        """Moves to the next (+1) or the previous (-1) moment, if there is one."""
        moments = self._moments()
        if direction > 0:
            self.value = min((moment for moment in moments if moment > self.value), default=self.value)
        else:
            self.value = max((moment for moment in moments if moment < self.value), default=self.value)

    def window(self) -> tuple[int, int]:
        """The `WINDOW` around the cursor: from when until when."""
        low = max(0, self.value - WINDOW // 2)
        return low, low + WINDOW
