"""The design review: choose a problem and candidates, see them compared, export the pack."""

import html
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from .. import device as devices
from .. import records
from ..analysis.review import Review, defaults, ranked, review_of, suggested
from ..records import best as tables
from ..report import pack, pages
from ..tactics import KERNELS, Tactic
from . import markup
from .base import Figures, Picture, export_dir
from .controls import Progress, dropdown, looks, toggles
from .problem_controls import ProblemControls


class ReviewExplorer(ProblemControls):
    """A problem, lists of tactics, pages of their review; Export writes the pack. `data_dir`: of `records.load`."""

    def __init__(self, data_dir: Path | None = None, device: str = devices.REFERENCE, projection: str = "latent_down"):
        self._all, self.campaigns = records.rows(data_dir), records.campaigns(data_dir)
        self._of_weight = lru_cache(maxsize=16)(self._weight_rows)
        self._offered: tuple = ()  # problem, mode, device and process that the lists are for
        self._notes: dict[Tactic, str] = {}  # why a tactic is suggested
        self.mode = toggles("launches", list(records.MODES), "chained")
        self.lists = {name: widgets.SelectMultiple(options=[], **looks(name, "360px")) for name in KERNELS}
        self.first = dropdown("compare with", [], None, "330px")
        self.page = toggles("page", ["comparison", "bandwidth", "roofline", "resources"], "comparison")
        self.suggest_button = self.guarded_button("Suggested", "the candidates worth a look", self.take_suggested)
        self.answer, self.status, self._left_out = widgets.HTML(), widgets.HTML(), markup.left_out(data_dir)
        self.pictures, self.progress = [Picture(), Picture()], Progress()
        self.build(device, projection)
        self.rows[0] += [self.mode, self.process]
        self.rows[2].append(self.suggest_button)
        self.rows += [[*self.lists.values()], [self.first, self.page]]
        self.watched += [self.mode, self.process, *self.lists.values(), self.first, self.page]
        super().__init__(self.rows, [self.answer, *self.pictures, self.status, self.progress], self.watched)
        self.export_button.description = "Export pack"
        self.export_button.tooltip = "one PDF, every page as SVG and PNG, CSV, provenance, the command to reproduce"

    @property
    def recorded(self) -> tuple[records.Record, ...]:
        """The records of the weight and the process on screen."""
        return tuple(tables.measured_in(self.process.value, self._of_either()))

    @property
    def chosen(self) -> list[Tactic]:
        """The tactics chosen in the lists, the fastest first."""
        times = {(row.kernel, row.tactic): row.median_us for row in self.recorded if row.m == self.m.value}
        tactics = [tactic for box in self.lists.values() for tactic in box.value]
        return sorted(tactics, key=lambda tactic: times.get((tactic.kernel, str(tactic)), float("inf")))

    @property
    def review(self) -> Review:
        """All that is on screen, as data; ValueError in words without candidates, or with too many."""
        tactics = sorted(self.chosen, key=lambda tactic: tactic != self.first.value)  # which leads
        if not tactics and any(box.options for box in self.lists.values()):
            raise ValueError("No candidate is chosen: choose some tactics in the lists.")
        proposed = [(tactic, self._notes.get(tactic, "")) for tactic in tactics]
        launches = self.mode.value, self.process.value
        return review_of(self.problem, self.gpu, *launches, proposed, self.recorded, self.campaigns)

    def take_suggested(self) -> None:
        """Chooses what is worth a look: of each kernel the fastest and the default tactic, and the runner-up."""
        self._offered = ()
        self.draw()

    def draw(self) -> None:
        self._offer()
        try:
            review = self.review
        except ValueError:  # what was on screen answers another question
            self.answer.value = self.status.value = ""
            for picture in self.pictures:
                picture.hide()
            raise
        facts, launches = review.provenance(), (review.mode, review.process)
        key = review.candidates, review.problem, *launches, review.device.name
        sheets = getattr(pages, self.page.value)(review)
        for picture, sheet in zip(self.pictures, sheets, strict=False):
            picture.show((self.page.value, *key), partial(getattr, sheet, "figure"), facts)
        for picture in self.pictures[len(sheets) :]:
            picture.clear()
        self.status.value = html.escape(review.runs()) + self._left_out
        self.answer.value = f"<b>{html.escape(review.headline())}</b> {html.escape(' '.join(review.answer()))}"

    def figures(self) -> Figures:
        review = self.review
        return {page.name: (page.figure, page.data, review.provenance()) for page in pages.pages(review)}

    def export(self, folder: Path | None = None) -> list[Path]:
        """Writes the pack, by default under `export_dir`; returns the paths, the PDF first."""
        review = self.review
        with self.progress as report:
            return pack.files(pack.write(review, folder or export_dir() / review.stem(), report))

    def tell_exported(self, paths: Sequence[Path]) -> str:
        return f"wrote <code>{html.escape(markup.relative(paths[0]))}</code> and {len(paths) - 1} files beside it"

    def _offer(self) -> None:
        """Lists the tactics of the problem on screen, the suggested ones chosen if it is another than before."""
        question = self.problem, self.mode.value, self.device.value
        of_problem = (row for row in self._of_either() if row.m == self.m.value)
        self.offer_process(question, tables.competing(of_problem))
        key = *question, self.process.value
        fresh, self._offered = key != self._offered, key
        with self.quietly():
            if fresh:
                standing = defaults(self.problem, self.gpu)
                self._notes = dict(suggested(self.problem, self.gpu, self.recorded, standing))
                for name, box in self.lists.items():
                    times, kind = {}, KERNELS[name]
                    if name in standing:  # else no tactic is legal
                        times = ranked(kind, kind.problem(self.problem), self.gpu, self.recorded)
                    offered = dict.fromkeys([*times, *([standing[name]] if name in standing else [])])
                    timed = {tactic: f"{us:.3f} us" for tactic, us in times.items()}
                    box.options = [(f"{tactic}   {timed.get(tactic, 'not recorded')}", tactic) for tactic in offered]
                    box.value = [tactic for tactic in offered if tactic in self._notes]
                    box.disabled = not offered
            chosen, before = self.chosen, self.first.value
            self.first.options = [(f"{tactic.kernel} {tactic}", tactic) for tactic in chosen]
            self.first.value = before if before in chosen and not fresh else next(iter(chosen), None)

    def _of_either(self) -> tuple[records.Record, ...]:
        """The records of the weight on screen, of either process."""
        return self._of_weight(self.n.value, self.k.value, self.mode.value, self.device.value)

    def _weight_rows(self, *wanted: Any) -> tuple[records.Record, ...]:
        """The newest records, cold, of (N, K, mode, device), of either process."""
        rows = (r for r in self._all if (r.n, r.k, r.mode, r.device) == wanted and r.weights == "cold")
        return tuple(tables.newest(rows))
