"""Explorers of traced runs: they compile and run when the kernel has changed, and some step through time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd

from .. import device as devices
from ..problem import GemmProblem
from ..runtime import trials
from ..tactics import Tactic, WsGemmTactic
from . import markup
from .base import Cursor, Figures, Picture, ViewExplorer, Widgets, facts_of, pictures_in
from .controls import choice, toggles

GPU = devices.reference()  #: whose limits hold, and whose code is run
SCHEDULES = ("in_order", *(f"adversarial({seed})" for seed in range(9)))
AROUND = "around the cursor"
WINDOW = 120  #: logical time on screen around the cursor
traced = lru_cache(maxsize=32)(trials.traced)  #: a control that is moved back shows its run at once


def schedules(value: str, width: str = "420px") -> widgets.SelectionSlider:
    """The control of `SCHEDULES`."""
    return choice("schedule", SCHEDULES, value, width, continuous_update=False)  # each value is a run


class TracedExplorer(ViewExplorer):
    """One run in the interpreter; a subclass has controls `m`, `schedule` and each field that is not `fixed`."""

    N, K = 64, 1024
    kind: type[Tactic] = WsGemmTactic
    fixed: Mapping[str, int] = {}
    m: widgets.SelectionSlider
    opcodes: tuple[str, ...] | None = None  #: to trace; None: all
    schedule: widgets.SelectionSlider
    read: Callable[[trials.Trial], None]  #: of a subclass: takes what it needs of a new run, fits controls to it

    def __init__(self, rows: Sequence[Widgets], pictures: Widgets):
        self.busy = widgets.HTML()
        self.ran: tuple = ()  #: what the run that was read last was of
        watched = [control for row in rows for control in row if hasattr(control, "value")]
        super().__init__([*rows[:-1], (*rows[-1], self.busy)], pictures, watched)

    @property
    def problem(self) -> GemmProblem:
        return GemmProblem(self.m.value, self.N, self.K)

    @property
    def tactic(self) -> Any:
        """The tactic that the controls describe, legal or not; a field with neither has its default."""
        names = [field.name for field in fields(self.kind) if field.name not in self.fixed]
        moved = {name: getattr(self, name).value for name in names if hasattr(self, name)}
        return self.kind(**self.fixed, **moved)

    @property
    def stem(self) -> str:
        """Tactic and M, as part of a file's name."""
        return f"{str(self.tactic).replace(',', 'x')}-m{self.problem.m}"

    @property
    def schedule_stem(self) -> str:
        """The schedule, as part of a file's name."""
        return self.schedule.value.replace("(", "-").rstrip(")")

    def clear(self) -> None:
        """Takes away what was shown of an earlier run."""
        for picture in pictures_in(self):
            picture.clear()

    def draw(self) -> None:
        try:
            self.run()
        except Exception:
            self.clear()  # it would pass for the run that failed
            raise
        super().draw()

    def figures(self) -> Figures:
        self.run()
        return super().figures()

    def run(self) -> None:
        """Compiles, runs and reads, if what to run has changed; ValueError in words if it cannot run."""
        wanted = self._run_in(self.schedule.value)
        if wanted == self.ran:
            return
        self.ran = ()
        self.tactic.check(self.problem, GPU)
        self.busy.value = f"compiling and running {self.tactic} ..."
        try:
            with self.quietly():
                self.read(traced(*wanted))
        finally:
            self.busy.value = ""
        self.ran = wanted

    def output(self, schedule: str) -> np.ndarray:
        """The output (BF16 bits as uint16, as `tactic.output`) of what is on screen, run in the order `schedule`."""
        return traced(*self._run_in(schedule)).out

    def _run_in(self, schedule: str) -> tuple:
        return self.tactic, self.problem, GPU.arch, schedule, self.opcodes

    def facts(self, source: str = "interpreter", **more: Any) -> dict[str, Any]:
        """The provenance of what is shown; `more` goes into it."""
        schedule = self.schedule.value if source == "interpreter" else None
        return facts_of(source, self.tactic, self.problem, schedule=schedule, **more)


class SteppedExplorer(TracedExplorer):
    """A traced run with a cursor in logical time; a subclass calls `build`, then `__init__`; `read` sets `spans`."""

    spans: pd.DataFrame  #: of logical time; a row has at least `start` and `end`
    state: Callable[[], pd.DataFrame]  #: of a subclass: what every warp does at the cursor, a row for each

    def build(self, views: Sequence[str], width: str = "460px") -> None:
        """Makes the cursor, the choice of `views`, the timeline and the place for words."""
        self.view = toggles("show", views, views[0])
        self.cursor = Cursor(self, "time", 0, lambda: self.stepped().start, width)
        self.timeline, self.doing = Picture(), widgets.HTML()

    def stepped(self) -> pd.DataFrame:
        """The spans whose starts the cursor steps through."""
        return self.spans

    def window(self) -> tuple[int, int] | None:
        """The logical time on screen, from when until when; None: all."""
        low = max(0, self.cursor.value - WINDOW // 2)
        return (low, low + WINDOW) if self.view.value == AROUND else None

    @property
    def moment_stem(self) -> str:
        """The time at the cursor, and whether only what is around it is shown, as part of a file's name."""
        return f"t{self.cursor.value}" + "-around" * (self.view.value == AROUND)

    def clear(self) -> None:
        super().clear()
        self.doing.value = ""

    def draw(self) -> None:
        super().draw()
        if self.doing.layout.display != "none":
            title = f"<b>at time {self.cursor.value}</b> (line: of the PTX)"
            self.doing.value = title + markup.table(self.state())
