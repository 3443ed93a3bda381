"""Explorers of traced runs: they compile and run when the kernel has changed, and some step through time."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd

from .. import device as devices
from ..figures.export import provenance
from ..problem import GemmProblem
from ..runtime import trials
from ..tactics import Tactic
from . import markup
from .base import Figures, ViewExplorer
from .controls import choice, toggles
from .pictures import Picture, pictures_in
from .stepper import Stepper

GPU = devices.reference()  #: whose limits hold, and whose code is run
SCHEDULES = ("in_order", *(f"adversarial({seed})" for seed in range(9)))
AROUND = "around the cursor"
traced = lru_cache(maxsize=32)(trials.traced)  #: a control that is moved back shows its run at once


def schedules(value: str, width: str = "420px") -> widgets.SelectionSlider:
    """The control of `SCHEDULES`."""
    return choice("schedule", SCHEDULES, value, width, continuous_update=False)  # each value is a run


class TracedExplorer(ViewExplorer):
    """An explorer of one run in the interpreter: it says so while it compiles and runs, and when that failed.

    A subclass has controls `m` and maybe `schedule`, the property `tactic`, and defines `read` and `views`.
    """

    N, K = 64, 1024
    m: widgets.SelectionSlider
    opcodes: tuple[str, ...] | None = None  #: to trace; None: all
    schedule: widgets.SelectionSlider | None = None

    def __init__(self, rows: Sequence[Sequence[widgets.Widget]], pictures: Sequence[widgets.Widget]):
        self.busy = widgets.HTML()
        self.ran: tuple = ()  #: problem, tactic and schedule of the run that was read last
        watched = [control for row in rows for control in row if hasattr(control, "value")]
        super().__init__([*rows[:-1], (*rows[-1], self.busy)], pictures, watched)

    @property
    def problem(self) -> GemmProblem:
        """What is multiplied."""
        return GemmProblem(self.m.value, self.N, self.K)

    @property
    @abstractmethod
    def tactic(self) -> Tactic:
        """The tactic that the controls describe, legal or not."""

    @property
    def schedule_name(self) -> str:
        """The order in which the interpreter runs the warps."""
        return self.schedule.value if self.schedule else SCHEDULES[0]

    @property
    def stem(self) -> str:
        """Tactic and M, as part of a file's name."""
        return f"{str(self.tactic).replace(',', 'x')}-m{self.problem.m}"

    @property
    def schedule_stem(self) -> str:
        """The schedule, as part of a file's name."""
        return self.schedule_name.replace("(", "-").rstrip(")")

    @abstractmethod
    def read(self, run: trials.Trial) -> None:
        """Takes from a new run what the figures need, and fits the controls to it."""

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
        wanted = self.problem, self.tactic, self.schedule_name
        if wanted == self.ran:
            return
        self.ran = ()
        self.tactic.check(self.problem, GPU)
        self.busy.value = f"compiling and running {self.tactic} ..."
        try:
            with self.quietly():
                self.read(self._traced(self.schedule_name))
        finally:
            self.busy.value = ""
        self.ran = wanted

    def output(self, schedule: str) -> np.ndarray:
        """The output (BF16 bits as uint16, as `tactic.output`) of what is on screen, run in the order `schedule`."""
        return self._traced(schedule).out

    def _traced(self, schedule: str) -> trials.Trial:
        return traced(self.tactic, self.problem, GPU.arch, schedule, self.opcodes)

    def facts(self, source: str = "interpreter", **more: Any) -> dict[str, Any]:
        """The provenance of what is shown; `more` goes into it."""
        problem, tactic = self.problem, self.tactic
        if source == "interpreter":
            more["schedule"] = self.schedule_name
        more |= dict(n=problem.n, k=problem.k, m=problem.m)
        return provenance(source, kernel=tactic.kernel, tactic=str(tactic), **more)


class SteppedExplorer(TracedExplorer):
    """A traced run with a cursor in logical time: a timeline, whole or around the cursor, and what each warp does then.

    A subclass calls `build`, then `super().__init__` with the rows, sets `spans` when it reads a run, and has `state`.
    """

    spans: pd.DataFrame  #: of logical time; a row has at least `start` and `end`

    def build(self, views: Sequence[str], width: str = "460px") -> None:
        """Makes the cursor, the choice of `views`, the timeline and the place for words."""
        self.view = toggles("show", views, views[0])
        self.cursor = Stepper(self, "time", 0, self.moments, width)
        self.timeline, self.doing = Picture(), widgets.HTML()

    def moments(self) -> Iterable[int]:
        """When a warp begins something."""
        return self.spans.start

    @abstractmethod
    def state(self) -> pd.DataFrame:
        """What every warp does at the cursor, a row for each."""

    def window(self) -> tuple[int, int] | None:
        """The logical time on screen, from when until when; None: all."""
        return self.cursor.window() if self.view.value == AROUND else None

    def clear(self) -> None:
        super().clear()
        self.doing.value = ""

    def draw(self) -> None:
        super().draw()
        if self.doing.layout.display != "none":
            title = f"<b>at time {self.cursor.value}</b> (line: of the PTX)"
            self.doing.value = title + markup.table(self.state())
