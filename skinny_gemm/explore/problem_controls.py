"""What explorers of one problem, and of one tactic on it, share: their controls. Nothing here knows a kernel."""

from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from typing import Any

import ipywidgets as widgets

from .. import catalogue
from .. import device as devices
from ..problem import GemmProblem
from ..records import PROCESSES
from ..records.best import answering
from ..tactics import KERNELS, MAX_M, Tactic, tactic_type
from . import markup
from .base import Explorer
from .controls import Choice, dropdown, in_a_row, slider, toggles


class ProblemControls(Explorer):
    """Device, model and projection (or N, K), and M; a subclass calls `build`, adds to it, then calls `__init__`.

    One that shows records also has `process`, which it puts into a row, and asks with `offer_process`.
    """

    def build(self, device: str, projection: str) -> None:
        """Makes the controls for `projection` of the first model."""
        self.shapes = catalogue.shapes()
        models = list(dict.fromkeys((shape.model, shape.parallel) for shape in self.shapes))
        self.device = dropdown("device", [(devices.get(name).title, name) for name in devices.names()], device)
        self.model = dropdown("model", [(" ".join(m), m) for m in models] + [("custom N, K", None)], models[0])
        self.projection = dropdown("projection", [("", None)], None, "330px")
        typed = dict(min=1, max=1 << 24, layout=widgets.Layout(width="170px"))
        self.n = widgets.BoundedIntText(value=16, description="N", **typed)
        self.k = widgets.BoundedIntText(value=128, description="K", **typed)
        self.m = slider("M", 1, MAX_M, 8, "420px")
        self.process = toggles("process", list(PROCESSES), "quiet")
        self._asked: object = None
        self._offer_projections(projection)
        self.model.observe(lambda _: self._offer_projections(), "value")
        self.projection.observe(lambda _: self._take_projection(), "value")
        self.rows = [[self.device], [self.model, self.projection, self.n, self.k], [self.m]]
        self.watched = [self.device, self.n, self.k, self.m]

    @property
    def gpu(self) -> devices.Device:
        """The GPU on screen; not the one here."""
        return devices.get(self.device.value)

    @property
    def problem(self) -> GemmProblem:
        """M, N and K on screen."""
        return GemmProblem(self.m.value, self.n.value, self.k.value)

    def offer_process(self, question: object, ours: Iterable[Any]) -> None:
        """Offers the choice of the process where `ours`, the rows of our kernels that are recorded, hold both states.

        Each new `question` starts at what is `answering`.
        """
        if question != self._asked:
            self._asked, ours = question, list(ours)
            with self.quietly():
                self.process.value = answering(ours)
            self.process.layout.display = "" if {row.process for row in ours} == {*PROCESSES} else "none"

    def _offer_projections(self, preferred: str | None = None) -> None:
        self.projection.disabled = custom = self.model.value is None
        self.n.disabled = self.k.disabled = not custom
        if not custom:
            shapes = [shape for shape in self.shapes if (shape.model, shape.parallel) == self.model.value]
            with self.quietly():
                self.projection.options = [(f"{shape.projection} {shape.n}x{shape.k}", shape) for shape in shapes]
                self.projection.value = next((s for s in shapes if s.projection == preferred), shapes[0])
            self._take_projection()

    def _take_projection(self) -> None:
        """Sets N and K to those of the projection; one redraw, if this is not part of a larger change."""
        if self.quiet or self.projection.value is None:
            return
        with self.quietly():
            self.n.value, self.k.value = self.projection.value.n, self.projection.value.k
        if self.children:
            self.redraw()


class TacticControls(ProblemControls):
    """An explorer of one tactic on one problem: kernel and every field besides; a subclass's `draw` calls `judge`."""

    def build(self, device: str, projection: str) -> None:
        """Makes the controls; they start at the first kernel's default tactic for `projection` of the first model."""
        self.kernel = toggles("kernel", list(KERNELS), next(iter(KERNELS)))
        self.default_button = self.guarded_button("Default", "the tactic the heuristics choose", self.take_default)
        self.tactic_row = in_a_row()
        self.fields: dict[str, Choice] = {}
        self.verdict = widgets.HTML()
        self._built: str | None = None  # the kernel whose fields these are
        super().build(device, projection)
        self.rows[0].insert(0, self.kernel)
        self.rows[2].append(self.default_button)
        self.rows += [[self.tactic_row], [self.verdict]]
        self.watched.insert(0, self.kernel)

    @property
    def kind(self) -> type[Tactic]:
        """The tactic type of the chosen kernel."""
        return tactic_type(self.kernel.value)

    @property
    def problem(self) -> GemmProblem:
        return self.kind.problem(super().problem)

    @property
    def tactic(self) -> Tactic | None:
        """The tactic that the controls describe; None before there is a legal choice of every field."""
        values = {name: control.value for name, control in self.fields.items()}
        return None if None in values.values() else self.kind(**values)

    def take_default(self) -> None:
        """Sets the controls to the heuristics' tactic; ValueError in words if there is none."""
        self.take(self.kind.default(self.problem, self.gpu))
        self.draw()

    def checked(self) -> Tactic:
        """The tactic on screen; ValueError in words if it cannot run the problem."""
        if self.tactic is None:
            raise ValueError(self.kind.unsupported(self.problem, self.gpu))
        self.tactic.check(self.problem, self.gpu)
        return self.tactic

    def judge(self) -> Tactic | None:
        """Offers the legal values, says whether the tactic can run, and returns it if so."""
        self._offer_fields()
        tactic, problem, gpu = self.tactic, self.problem, self.gpu
        reason = tactic.why_not(problem, gpu) if tactic else self.kind.unsupported(problem, gpu)
        if tactic is None or reason:
            self.verdict.value = markup.verdict(reason or "")
            return None
        self.verdict.value = markup.verdict(None, tactic.footprint(problem, gpu).describe())
        return tactic

    def take(self, tactic: Tactic) -> None:
        """Sets the controls to `tactic`; ValueError if a field's value is not on offer."""
        with self.quietly():
            self._offer_fields()
            for name, control in self.fields.items():
                control.value = getattr(tactic, name)

    def _offer_fields(self) -> None:
        """A control for each field of the tactic type, with its legal values; a fresh kernel starts at its default."""
        with self.quietly():
            try:
                choices = self.kind.choices(self.problem, self.gpu)
            except ValueError:  # no legal tactic; `why_not` says why
                choices = {}
            if fresh := self._built != self.kernel.value:
                names = [field.name for field in fields(self.kind)]
                self.fields = {n: Choice(n, self.redraw, partial(self.kind.in_words, n)) for n in names}
                self.tactic_row.children = list(self.fields.values())
                self._built = self.kernel.value
            for name, control in self.fields.items():
                control.offer(choices.get(name, ()))
            if fresh and self.kind.unsupported(self.problem, self.gpu) is None:
                self.take(self.kind.default(self.problem, self.gpu))
