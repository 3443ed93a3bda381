"""A design review: candidates for one problem, compared by what was recorded of them, of the peers and of the bounds.

review = design_review(GemmProblem(8, 3584, 7168), device.get("h200"))
pack.write(review, Path("build/review"))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from .. import records
from ..artifact import Resources
from ..catalogue import shapes
from ..device import Device
from ..figures import performance
from ..figures.export import commit, provenance
from ..figures.views import TacticView, commit_of, used
from ..problem import GemmProblem
from ..records import BOUNDS, PEERS, Record
from ..records import best as tables
from ..records import sentences as answers
from ..records.statistics import Verdict, verdict
from ..tactics import KERNELS, Tactic, tactic_type

LETTERS = "ABCDEF"  #: a review compares at most this many candidates: more can no longer be told apart in a chart
COLUMNS = ("name", "kernel", "tactic", "note", "median_us", "low_us", "high_us", "samples", "over_bound")


@dataclass(frozen=True)
class Candidate:
    """One tactic under review; `letter` names it on every page."""

    letter: str
    tactic: Tactic
    note: str  #: why it is here, such as "fastest recorded"

    @property
    def kernel(self) -> str:
        return self.tactic.kernel

    @property
    def text(self) -> str:
        return f"{self.kernel} {self.tactic}"

    def __str__(self) -> str:
        """As the command line takes it."""
        return f"{self.kernel}:{self.tactic}"


@dataclass(frozen=True)
class Review:
    """`candidates`, the first of which the others are compared with, and every record of the weight in `rows`."""

    problem: GemmProblem
    device: Device
    mode: str
    candidates: tuple[Candidate, ...]
    rows: tuple[Record, ...]  #: from `tables.weight_rows`
    recorded: Mapping[str, records.Campaign]  #: all campaigns by id
    resources: Mapping[str, Resources] = field(default_factory=dict)  #: by letter, from `compiled`

    def of(self, candidate: Candidate) -> GemmProblem:
        """The problem as the candidate's kernel sees it."""
        return candidate.tactic.problem(self.problem)

    @cached_property
    def here(self) -> tuple[Record, ...]:
        """The records of the M in question."""
        return tuple(row for row in self.rows if row.m == self.problem.m)

    @cached_property
    def measured(self) -> dict[str, Record]:
        """The record at the M in question of each candidate that has one, by letter."""
        found = {(row.kernel, row.tactic): row for row in self.here}
        keys = {candidate.letter: (candidate.kernel, str(candidate.tactic)) for candidate in self.candidates}
        return {letter: found[key] for letter, key in keys.items() if key in found}

    @cached_property
    def peers(self) -> dict[str, Record]:
        """Each peer's fastest record at the M in question."""
        return answers.best_peers(self.here)

    @cached_property
    def bound(self) -> float | None:
        """Microseconds; None if none was recorded of this weight and mode."""
        return tables.bound_of(self.rows)

    @cached_property
    def table(self) -> pd.DataFrame:
        """What the charts plot: records of the candidates' kernels, the peers and the bounds, at every M."""
        shown = {*PEERS, *BOUNDS, *(candidate.kernel for candidate in self.candidates)}
        frame = pd.DataFrame([vars(row) for row in self.rows if row.kernel in shown], columns=records.COLUMNS)
        return performance.measured(frame.assign(live=False), self.problem.n, self.problem.k)

    @cached_property
    def view(self) -> TacticView:
        """The view of the first candidate: its campaign's ceilings, and where the numbers come from."""
        first, campaigns = self.candidates[0], used(self.table, self.recorded)
        return TacticView(first.kernel, first.tactic, self.of(first), self.device, self.mode, self.table, campaigns)

    @property
    def campaigns(self) -> tuple[records.Campaign, ...]:
        """Those the charts draw on, the first candidate's first."""
        main = self.view.campaign
        return tuple(sorted(self.view.campaigns, key=lambda campaign: campaign is not main))

    def run_of(self, row: Record) -> int:
        """The number of the row's campaign on the provenance pages."""
        return [campaign.id for campaign in self.campaigns].index(row.campaign) + 1

    def runs(self) -> str:
        """One line for people: which campaigns the run numbers mean."""
        runs = enumerate(self.campaigns, 1)
        named = [f"run {number}: {each.gpu}, campaign {each.id}, commit {commit_of(each)}" for number, each in runs]
        return "  |  ".join(named) or "no recorded data"

    def comparison(self) -> pd.DataFrame:
        """A row for each candidate, peer and bound; the last columns hold the verdict of the row against the column.

        What was not recorded is empty.
        """
        rivals = {name: row for name, row in self.compared_with().items()}
        lines = [(c.letter, c.kernel, str(c.tactic), c.note, self.measured.get(c.letter)) for c in self.candidates]
        lines += [(name, name, row.tactic, "peer", row) for name, row in self.peers.items()]
        table = []
        for name, kernel, tactic, note, row in lines:
            times = (row.median_us, row.low_us, row.high_us, row.samples) if row else (None,) * 4
            over = row.median_us / self.bound if row and self.bound else None
            verdicts = [str(verdict(row, rival)) if row and row is not rival else None for rival in rivals.values()]
            source = (row.campaign, self.recorded[row.campaign].commit) if row else (None, None)
            table.append((name, kernel, tactic, note, *times, over, *verdicts, *source))
        if self.bound:
            table.append(("bound", "", "", "bound", self.bound, *[None] * (len(COLUMNS) - 5 + len(rivals) + 2)))
        columns = [*COLUMNS, *(f"against_{name}" for name in rivals), "campaign", "commit"]
        return pd.DataFrame(table, columns=columns).astype({"samples": "Int64"})

    def compared_with(self) -> dict[str, Record]:
        """What every candidate is compared with: the first candidate, if it was recorded, and the peers."""
        first = {letter: row for letter, row in self.measured.items() if letter == LETTERS[0]}
        return first | self.peers

    @property
    def winner(self) -> Candidate | None:
        """The candidate with the lowest median; None if none was recorded."""
        timed = [candidate for candidate in self.candidates if candidate.letter in self.measured]
        return min(timed, key=lambda candidate: self.measured[candidate.letter].median_us, default=None)

    def stem(self) -> str:
        """A name for files of this review."""
        p = self.problem
        return f"review-{p.n}x{p.k}-m{p.m}-{self.mode}-{self.device.name}"

    def headline(self) -> str:
        """The answer in one line."""
        best = self.winner
        if best is None:
            return "No recorded answer."
        return f"{best.letter}  {best.text}: {answers.time_of(self.measured[best.letter])}."

    def question(self) -> str:
        p = self.problem
        return f"Which tactic for {p.n}x{p.k} at M = {p.m}?"

    def setting(self) -> list[str]:
        """What the question is about, in sentences."""
        p = self.problem
        names = [f"{s.model} {s.parallel} {s.projection}" for s in shapes() if (s.n, s.k) == (p.n, p.k)]
        known = f"{', '.join(names[:4])}{' and others' if len(names) > 4 else ''}. " if names else ""
        return [
            f"{known}BF16, {p.weight_bytes * 1e-6:.1f} MB of weights, {p.intensity:.2f} FLOP per byte. "
            f"{self.device.title}, {self.mode} launches, cold weights."
        ]

    def answer(self) -> list[str]:
        """The answer in sentences: how sure it is, how far from the bound, against the other candidates and peers."""
        best = self.winner
        if best is None:
            return ["None of the candidates was recorded at this M in this mode: there is nothing to decide on."]
        row = self.measured[best.letter]
        mine = [other for other in self.here if other.kernel not in PEERS + BOUNDS and other is not row]
        sentences = [answers.how_far(row, self.bound), answers.how_sure(row, mine)]
        others = {c.letter: self.measured[c.letter] for c in self.candidates if c.letter in self.measured and c != best}
        if others:
            sentences.append(f"Of the candidates, {best.letter} is {answers.against(row, others)}.")
        if self.peers:
            sentences.append(f"Of the peers' best, {best.letter} is {answers.against(row, self.peers)}.")
        quicker = min(mine, key=lambda other: other.median_us, default=None)
        if quicker and verdict(quicker, row) is Verdict.FASTER:
            name = f"{quicker.kernel} {quicker.tactic}"
            sentences.append(f"A tactic that is no candidate is FASTER: {name} at {quicker.median_us:.3f} us.")
        missing = [c.letter for c in self.candidates if c.letter not in self.measured]
        if missing:
            sentences.append(f"Not recorded at this M: {', '.join(missing)}.")
        return sentences

    def command(self) -> str:
        """Makes the same pack again."""
        p, names = self.problem, " ".join(map(str, self.candidates))
        asked = f"--n {p.n} --k {p.k} --m {p.m} --mode {self.mode} --device {self.device.name}"
        return f"python -m skinny_gemm review {asked} --candidates {names} --out review"

    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from; of every page the same."""
        p, main = self.problem, self.view.campaign
        facts: dict[str, Any] = dict(
            n=p.n, k=p.k, m=p.m, launches=self.mode, reproduce=self.command(), drawn_at=commit()
        )
        facts["candidates"] = [str(candidate) for candidate in self.candidates]
        if main is None:
            return provenance("model", device=self.device.title, **facts)
        facts |= dict(campaign=main.id, date=main.date, driver=main.driver, measured_by=main.command)
        facts["campaigns"] = {campaign.id: commit_of(campaign) for campaign in self.campaigns}
        return provenance("recorded", device=main.gpu, commit=commit_of(main), **facts)

    def compiled(self, report: Callable[[float], None] = lambda fraction: None) -> "Review":
        """This review with the registers and spills of every candidate; compiles what is not in the cache."""
        from ..runtime import compile_kernel

        found = {}
        for done, candidate in enumerate(self.candidates):
            report(done / len(self.candidates))
            kernel = compile_kernel(candidate.tactic, self.of(candidate), self.device.arch)
            found[candidate.letter] = kernel.resources
        report(1.0)
        return replace(self, resources=found)


def design_review(
    problem: GemmProblem,
    device: Device,
    mode: str = "chained",
    candidates: Sequence[str | Tactic] = (),
    data_dir: Path | None = None,
) -> Review:
    """The review of `candidates` (tactics, or texts such as "ws-gemm:7,2,8,3,8,1"), `suggested` ones if there are none.

    ValueError in words for a candidate that is malformed, cannot run, or is there twice, and where no kernel takes the
    problem.
    """
    if mode not in records.MODES:
        raise ValueError(f"mode is {mode!r}, but must be one of {', '.join(records.MODES)}")
    rows = tables.weight_rows(problem.n, problem.k, mode, device.name, data_dir)
    proposed = suggested(problem, device, rows, defaults(problem, device))
    if candidates:
        notes = dict(proposed)
        tactics = [parse(each) if isinstance(each, str) else each for each in candidates]
        proposed = [(tactic, notes.get(tactic, "")) for tactic in tactics]
    return review_of(problem, device, mode, proposed, rows, records.campaigns(data_dir))


def review_of(
    problem: GemmProblem,
    device: Device,
    mode: str,
    proposed: Sequence[tuple[Tactic, str]],
    rows: Sequence[Record],
    campaigns: Mapping[str, records.Campaign],
) -> Review:
    """The review of tactics, each with why it is `proposed`, from records that were read already."""
    problem = GemmProblem(problem.m, problem.n, problem.k)
    if not proposed:
        reasons = (f"{name}: {kind.unsupported(problem, device)}" for name, kind in KERNELS.items())
        raise ValueError(f"No kernel takes {problem.n}x{problem.k} at M = {problem.m}: {'; '.join(reasons)}")
    if len(proposed) > len(LETTERS):
        raise ValueError(f"{len(proposed)} candidates are too many: a review compares at most {len(LETTERS)}.")
    for i, (tactic, _) in enumerate(proposed):
        tactic.check(tactic.problem(problem), device)
        if tactic in [other for other, _ in proposed[:i]]:
            raise ValueError(f"candidate {tactic.kernel}:{tactic} is there twice.")
    lettered = tuple(Candidate(letter, *each) for letter, each in zip(LETTERS, proposed, strict=False))
    return Review(problem, device, mode, lettered, tuple(rows), campaigns)


def parse(text: str) -> Tactic:
    """The tactic written `KERNEL:TACTIC`."""
    kernel, colon, fields = text.partition(":")
    if not colon:
        raise ValueError(f"candidate {text!r} is not written KERNEL:TACTIC, such as warp-splitk:16,8,256,8,2")
    return tactic_type(kernel).parse(fields)


def defaults(problem: GemmProblem, device: Device) -> dict[str, Tactic]:
    """The default tactic of each kernel that takes the problem, by its name."""
    found = {}
    for name, kind in KERNELS.items():
        seen = kind.problem(problem)
        if kind.unsupported(seen, device) is None:
            found[name] = kind.default(seen, device)
    return found


def suggested(
    problem: GemmProblem, device: Device, rows: Sequence[Record], standing: Mapping[str, Tactic]
) -> list[tuple[Tactic, str]]:
    """Candidates worth a look, each with why, the fastest first: of each kernel the fastest recorded and the `standing`
    tactic, its default, and the runner-up of all. Where nothing was recorded at this M the defaults.
    """
    times: dict[Tactic, float] = {}
    reasons: dict[Tactic, list[str]] = {}
    for name, default in standing.items():
        kind = KERNELS[name]
        recorded = ranked(kind, kind.problem(problem), device, rows)
        times |= recorded
        for tactic in list(recorded)[:1]:
            reasons[tactic] = ["fastest"]
        reasons.setdefault(default, []).append("default")
    order = sorted(times, key=times.__getitem__)
    for tactic in order[1:2]:
        reasons.setdefault(tactic, []).append("runner-up")
    names = {tactic: ", ".join(reason) for tactic, reason in reasons.items()}
    return [(tactic, names[tactic]) for tactic in order if tactic in names] or list(names.items())


def ranked(kind: type[Tactic], problem: GemmProblem, device: Device, rows: Sequence[Record]) -> dict[Tactic, float]:
    """The recorded tactics of one kernel that can run `problem`, the fastest first, with their median microseconds."""
    mine = sorted((r for r in rows if r.kernel == kind.kernel and r.m == problem.m), key=lambda row: row.median_us)
    found = {kind.parse(row.tactic): row.median_us for row in mine}
    return {tactic: time for tactic, time in found.items() if tactic.why_not(problem, device) is None}
