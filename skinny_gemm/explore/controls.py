"""Controls for a problem and a tactic: the fields and choices of a tactic type. Nothing here knows a kernel."""

import html
from collections.abc import Sequence
from dataclasses import fields

import ipywidgets as widgets

from .. import catalogue
from .. import device as devices
from ..problem import GemmProblem
from ..tactics import KERNELS, MAX_M, Tactic, tactic_type
from .base import Explorer, choice, dropdown, rows_layout, slider, toggles

CUSTOM = "custom N, K"
FEW = 4  #: choices that are a row of buttons; more are a slider
_WARNING = "var(--jp-error-color1, #d55e00)"


class Choice(widgets.Box):
    """One tactic field: buttons for a few values, a slider for many. `value` is one of `options`."""

    def __init__(self, name: str, changed):
        self.name, self._changed, self._control = name, changed, None
        super().__init__()

    @property
    def value(self) -> int | None:
        return self._control.value if self._control else None

    @value.setter
    def value(self, value: int) -> None:
        if value not in self.options:
            raise ValueError(f"{self.name} is {value}, but must be one of {', '.join(map(str, self.options))}")
        self._control.value = value

    @property
    def options(self) -> tuple[int, ...]:
        return tuple(self._control.options) if self._control else ()

    def offer(self, options: Sequence[int]) -> None:
        """Offers `options`, keeping the value or taking the nearest; none leaves what was there, disabled."""
        if self._control:
            self._control.disabled = not options
        if not options or tuple(options) == self.options:
            return
        value = options[0] if self.value is None else min(options, key=lambda option: abs(option - self.value))
        make = toggles if len(options) <= FEW else choice
        if isinstance(self._control, widgets.ToggleButtons if make is toggles else widgets.SelectionSlider):
            self._control.unobserve(self._changed, "value")
            self._control.options, self._control.value = options, value
        else:
            self._control = make(self.name, options, value)
            self.children = [self._control]
        self._control.observe(self._changed, "value")


class ProblemControls(Explorer):
    """An explorer of one problem: device, model and projection (or N, K), and M.

    A subclass calls `build_problem`, then `super().__init__` with `self.problem_rows` and more.
    """

    def build_problem(self, device: str, projection: str, before=(), after=(), beside_m=()) -> None:
        """Makes the controls for `projection` of the first model; others join the first row, or stand beside M."""
        self.shapes = catalogue.shapes()
        models = list(dict.fromkeys((shape.model, shape.parallel) for shape in self.shapes))
        self.device = dropdown("device", [(devices.get(name).title, name) for name in devices.names()], device)
        self.model = dropdown("model", [(" ".join(m), m) for m in models] + [(CUSTOM, None)], models[0])
        self.projection = dropdown("projection", [("", None)], None, "330px")
        self.n = widgets.BoundedIntText(value=16, min=1, max=1 << 24, description="N", layout=_narrow())
        self.k = widgets.BoundedIntText(value=128, min=1, max=1 << 24, description="K", layout=_narrow())
        self.m = slider("M", 1, MAX_M, 8, "420px")
        self._offer_projections(projection)
        self.model.observe(lambda _: self._offer_projections(), "value")
        self.projection.observe(lambda _: self._take_projection(), "value")
        self.problem_rows = [
            (*before, self.device, *after),
            (self.model, self.projection, self.n, self.k),
            (self.m, *beside_m),
        ]

    @property
    def gpu(self) -> devices.Device:
        return devices.get(self.device.value)

    @property
    def problem(self) -> GemmProblem:
        """M, N and K on screen."""
        return GemmProblem(self.m.value, self.n.value, self.k.value)

    def _offer_projections(self, preferred: str | None = None) -> None:
        """Offers the projections of the chosen model, or N and K to type in."""
        custom = self.model.value is None
        self.projection.disabled = custom
        self.n.disabled = self.k.disabled = not custom
        if not custom:
            mine = [shape for shape in self.shapes if (shape.model, shape.parallel) == self.model.value]
            with self.quietly():
                self.projection.options = [(f"{shape.projection} {shape.n}x{shape.k}", shape) for shape in mine]
                self.projection.value = next((s for s in mine if s.projection == preferred), mine[0])
            self._take_projection()

    def _take_projection(self) -> None:
        """Sets N and K to those of the projection; one redraw, if this is not part of a larger change."""
        if self._held or self.projection.value is None:
            return
        with self.quietly():
            self.n.value, self.k.value = self.projection.value.n, self.projection.value.k
        if self.children:
            self.redraw()


class TacticControls(ProblemControls):
    """An explorer of one tactic on one problem: kernel, device, model and projection (or N, K), M, and every field.

    A subclass calls `build`, then `super().__init__` with `self.rows` (and more), and `legality` when it draws.
    """

    def build(self, device: str, projection: str, more: Sequence[widgets.Widget] = ()) -> None:
        """Makes the controls; `more` join the first row. They start at the kernel's default tactic for `projection`."""
        self.kernel = toggles("kernel", list(KERNELS), next(iter(KERNELS)))
        self.default_button = widgets.Button(description="Default", tooltip="the tactic the heuristics choose")
        self.default_button.on_click(lambda _: self.guard(self.take_default))
        self.tactic_row = widgets.HBox(layout=rows_layout())
        self.fields: dict[str, Choice] = {}
        self.verdict = widgets.HTML()
        self._built = None
        self.build_problem(device, projection, [self.kernel], more, [self.default_button])
        self._offer_fields()
        self._set(self.kind.default(self.problem, self.gpu))
        self.rows = [*self.problem_rows, (self.tactic_row,), (self.verdict,)]
        self.watched = [self.kernel, self.device, self.n, self.k, self.m]

    @property
    def kind(self) -> type[Tactic]:
        return tactic_type(self.kernel.value)

    @property
    def problem(self) -> GemmProblem:
        """M, N and K on screen, as the kernel sees them."""
        return self.kind.problem(super().problem)

    @property
    def tactic(self) -> Tactic | None:
        """The tactic that the controls describe; None before there is a legal choice of every field."""
        values = {name: control.value for name, control in self.fields.items()}
        return None if None in values.values() else self.kind(**values)

    def take_default(self) -> None:
        """Sets the controls to the heuristics' tactic; ValueError in words if there is none."""
        self._set(self.kind.default(self.problem, self.gpu))
        self.draw()

    def why_not(self) -> str | None:
        """Why the tactic cannot run the problem, or None."""
        if self.tactic is not None:
            return self.tactic.why_not(self.problem, self.gpu)
        return self.kind.unsupported(self.problem, self.gpu)

    def legality(self) -> bool:
        """Offers the legal values, says whether the tactic can run, and returns that."""
        self._offer_fields()
        reason = self.why_not()
        if reason:
            self.verdict.value = f'<b style="color:{_WARNING}">Not possible:</b> {html.escape(reason)}'
        else:
            self.verdict.value = f"<b>OK:</b> {self.tactic.footprint(self.problem, self.gpu).describe()}"
        return reason is None

    def _set(self, tactic: Tactic) -> None:
        with self.quietly():
            self._offer_fields()
            for name, control in self.fields.items():
                control.value = getattr(tactic, name)

    def _offer_fields(self) -> None:
        """One control for each field of the kernel's tactic type, with the values that are legal for this problem.

        Those of another kernel than before start at its default tactic, where there is one.
        """
        with self.quietly():
            names = [field.name for field in fields(self.kind)]
            try:
                choices = self.kind.choices(self.problem, self.gpu)
            except ValueError:  # no legal tactic; `why_not` says why
                choices = {name: () for name in names}
            fresh = self._built != self.kernel.value
            if fresh:
                self.fields = {name: Choice(name, self._changed) for name in names}
                self.tactic_row.children = list(self.fields.values())
                self._built = self.kernel.value
            for name, control in self.fields.items():
                control.offer(choices[name])
            if fresh and self.kind.unsupported(self.problem, self.gpu) is None:
                self._set(self.kind.default(self.problem, self.gpu))


def _narrow() -> widgets.Layout:
    return widgets.Layout(width="170px")
