"""A design review: candidates for one problem, compared by what was recorded of them, of the peers and of the bounds.

review = design_review(GemmProblem(8, 3584, 7168), device.get("h200"))
pack.write(review, Path("build/review"))
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from .. import records
from ..artifact import Resources
from ..catalogue import shapes
from ..checks import check_choice
from ..device import Device
from ..problem import GemmProblem
from ..records import Campaign, Record, fastest, sentences
from ..records.best import answering, bound_of, competing, measured_in, weight_rows
from ..records.statistics import Verdict, verdict
from ..tactics import KERNELS, Footprint, Tactic, tactic_type
from .performance import measured, used
from .provenance import commit_of, drawn_at, provenance, state_named
from .tactic import TacticData

LETTERS = "ABCDEF"  #: a review compares at most this many candidates: more can no longer be told apart in a chart
AGAINST = "against_"  #: what the columns of verdicts begin with
COLUMNS = ("name", "kernel", "tactic", "note", "median_us", "low_us", "high_us", "samples", "over_bound")


@dataclass(frozen=True)
class Candidate:
    """One tactic under review; `letter` names it on every page."""

    letter: str
    tactic: Tactic
    note: str  #: why it is here, such as "fastest recorded"
    footprint: Footprint
    record: Record | None = None  #: at the M in question
    resources: Resources | None = None  #: from `Review.compiled`

    @property
    def kernel(self) -> str:
        """The registry name of its kernel."""
        return self.tactic.kernel

    @property
    def text(self) -> str:
        """Kernel and tactic, for people."""
        return f"{self.kernel} {self.tactic}"

    @property
    def name(self) -> str:
        """As charts and headlines name it."""
        return f"{self.letter}  {self.text}"

    def __str__(self) -> str:
        """As the command line takes it."""
        return f"{self.kernel}:{self.tactic}"


@dataclass(frozen=True)
class Review:
    """All that was found out about `candidates`, the first of which the others are compared with; from `review_of`."""

    problem: GemmProblem
    device: Device
    mode: str
    process: str  #: that measured all of it, quiet or busy
    candidates: tuple[Candidate, ...]
    others: tuple[Record, ...]  #: of the M in question, of our tactics that are no candidates
    peers: Mapping[str, Record]  #: each peer's fastest at the M in question, the fastest peer first
    bound: float | None  #: microseconds; None if none was recorded of this weight and mode
    #: The first candidate's, with what charts plot: records of all candidates' kernels, peers and bounds, at every M.
    lead: TacticData = field(compare=False)
    campaigns: tuple[Campaign, ...]  #: those the charts draw on, the first candidate's first

    @property
    def timed(self) -> dict[str, Record]:
        """The record of each candidate that has one, by letter."""
        return {candidate.letter: candidate.record for candidate in self.candidates if candidate.record}

    @property
    def winner(self) -> Candidate | None:
        """The candidate with the lowest median; None if none was recorded."""
        recorded = [candidate for candidate in self.candidates if candidate.record]
        return min(recorded, key=lambda candidate: self.timed[candidate.letter].median_us, default=None)

    def comparison(self) -> pd.DataFrame:
        """A row for each candidate, peer and bound, at last with the verdicts of the row against the column."""
        rivals = {letter: row for letter, row in self.timed.items() if letter == LETTERS[0]} | dict(self.peers)
        commits = {campaign.id: campaign.commit for campaign in self.campaigns}
        lines = [(c.letter, c.kernel, str(c.tactic), c.note, c.record) for c in self.candidates]
        lines += [(name, name, row.tactic, "peer", row) for name, row in self.peers.items()]
        table = []
        for name, kernel, tactic, note, row in lines:
            times = (row.median_us, row.low_us, row.high_us, row.samples) if row else (None,) * 4
            over = row.median_us / self.bound if row and self.bound else None
            verdicts = [str(verdict(row, rival)) if row and row is not rival else None for rival in rivals.values()]
            source = (row.campaign, commits[row.campaign]) if row else (None, None)
            table.append((name, kernel, tactic, note, *times, over, *verdicts, *source))
        if self.bound:
            table.append(("bound", "", "", "bound", self.bound, *[None] * (len(COLUMNS) - 5 + len(rivals) + 2)))
        columns = [*COLUMNS, *(f"{AGAINST}{name}" for name in rivals), "campaign", "commit"]
        return pd.DataFrame(table, columns=columns).astype({"samples": "Int64"})

    def stem(self) -> str:
        """A name for files of this review."""
        launches = self.mode + "-busy" * (self.process == "busy")
        return f"review-{self.problem.n}x{self.problem.k}-m{self.problem.m}-{launches}-{self.device.name}"

    def question(self) -> str:
        """What is asked, in one sentence."""
        return f"Which tactic for {self.problem.n}x{self.problem.k} at M = {self.problem.m}?"

    def setting(self) -> str:
        """What the question is about, in sentences."""
        p = self.problem
        names = [f"{s.model} {s.parallel} {s.projection}" for s in shapes() if (s.n, s.k) == (p.n, p.k)]
        known = f"{', '.join(names[:4])}{' and others' if len(names) > 4 else ''}. " if names else ""
        return (
            f"{known}BF16, {p.weight_bytes * 1e-6:.1f} MB of weights, {p.intensity:.2f} FLOP per byte. "
            f"{self.device.title}, {self.mode} launches, cold weights, {self.process} process."
        )

    def headline(self) -> str:
        """The answer in one line."""
        best = self.winner
        return f"{best.name}: {sentences.time_of(self.timed[best.letter])}." if best else "No recorded answer."

    def answer(self) -> list[str]:
        """The answer in sentences: how sure it is, how far from the bound, against the other candidates and peers."""
        best, timed = self.winner, self.timed
        if best is None:
            return ["None of the candidates was recorded at this M in this mode: there is nothing to decide on."]
        row = timed.pop(best.letter)
        rest = [*self.others, *timed.values()]
        answers = [sentences.how_far(row, self.bound), sentences.how_sure(row, rest)]
        if timed:
            answers.append(f"Of the candidates, {best.letter} is {sentences.against(row, timed)}.")
        if self.peers:
            answers.append(f"Of the peers' best, {best.letter} is {sentences.against(row, self.peers)}.")
        quickest = fastest(self.others)
        if quickest and verdict(quickest, row) is Verdict.FASTER:
            name = f"{quickest.kernel} {quickest.tactic}"
            answers.append(f"A tactic that is no candidate is FASTER: {name} at {quickest.median_us:.3f} us.")
        missing = [candidate.letter for candidate in self.candidates if not candidate.record]
        if missing:
            answers.append(f"Not recorded at this M: {', '.join(missing)}.")
        return answers

    def runs(self) -> str:
        """One line for people: which campaigns the run numbers mean."""
        named = (f"{each.gpu}, campaign {each.id}, commit {commit_of(each)}" for each in self.campaigns)
        return "  |  ".join(f"run {i}: {name}" for i, name in enumerate(named, 1)) or "no recorded data"

    def command(self) -> str:
        """Makes the same pack again."""
        p, names = self.problem, " ".join(map(str, self.candidates))
        asked = f"--n {p.n} --k {p.k} --m {p.m} --mode {self.mode} --process {self.process} --device {self.device.name}"
        return f"python -m skinny_gemm review {asked} --candidates {names} --out review"

    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from; of every page the same."""
        p = self.problem
        facts: dict[str, Any] = dict(n=p.n, k=p.k, m=p.m, launches=self.mode, process=state_named(self.process))
        facts |= dict(
            reproduce=self.command(), drawn_at=drawn_at(), candidates=[str(candidate) for candidate in self.candidates]
        )
        if not self.campaigns:
            return provenance("model", device=self.device.title, **facts)
        main = self.campaigns[0]
        facts |= dict(campaign=main.id, date=main.date, driver=main.driver, measured_by=main.command)
        facts["campaigns"] = {campaign.id: commit_of(campaign) for campaign in self.campaigns}
        return provenance("recorded", device=main.gpu, commit=commit_of(main), **facts)

    def compiled(self, report: Callable[[float], None] = lambda fraction: None) -> "Review":
        """This review with the registers and spills of every candidate; compiles what is not in the cache."""
        from ..runtime import compile_kernel

        candidates = []
        for done, candidate in enumerate(self.candidates):
            report(done / len(self.candidates))
            kernel = compile_kernel(candidate.tactic, candidate.tactic.problem(self.problem), self.device.arch)
            candidates.append(replace(candidate, resources=kernel.resources))
        report(1.0)
        return replace(self, candidates=tuple(candidates))


def campaign_facts(campaign: Campaign) -> dict[str, Any]:
    """What a reader needs to know of a campaign: its identity, and clocks, method and ceilings as text."""
    names = "id", "gpu", "driver", "cuda", "torch", "dsl", "commit", "dirty", "date", "command", "complete"
    clocks = campaign.clocks
    low, high = clocks.get("sm_mhz_low"), clocks.get("sm_mhz_high")
    dropped = "the clock DROPPED" if clocks.get("dropped") else "no drop of the clock"
    causes = ", ".join(map(str, clocks.get("throttle", ())))
    method = {name: value for name, value in campaign.method.items() if isinstance(value, int | float | str)}
    return {name: getattr(campaign, name) for name in names} | {
        "sm_clock": "not recorded" if low is None else f"{low} MHz" if low == high else f"{low} to {high} MHz",
        "throttling": f"{dropped}, throttled by {causes}" if causes else f"{dropped}, no throttling",
        "method": ", ".join(f"{name} {value}" for name, value in method.items()) or "not recorded",
        "ceilings": ", ".join(f"{name} {value:g}" for name, value in campaign.ceilings.items()) or "none",
    }


def design_review(
    problem: GemmProblem, device: Device, mode: str = "chained", candidates: Sequence[str | Tactic] = (),
    data_dir: Path | None = None, process: str | None = None,
) -> Review:  # fmt: skip
    """The review of `candidates` (tactics, or texts such as "ws-gemm:7,2,8,3,8,1"), `suggested` ones if there are none.

    From the records of the `process` asked for, by default of the one that is `answering` at this M. ValueError in
    words for a candidate that is malformed, cannot run, or is there twice, and where no kernel does it.
    """
    check_choice("mode", mode, records.MODES)
    rows = weight_rows(problem.n, problem.k, mode, device.name, data_dir)
    process = answering(competing(row for row in rows if row.m == problem.m), process)
    rows = measured_in(process, rows)
    proposed = suggested(problem, device, rows, defaults(problem, device))
    if candidates:
        notes = dict(proposed)
        tactics = [parse(each) if isinstance(each, str) else each for each in candidates]
        proposed = [(tactic, notes.get(tactic, "")) for tactic in tactics]
    return review_of(problem, device, mode, process, proposed, rows, records.campaigns(data_dir))


def review_of(
    problem: GemmProblem, device: Device, mode: str, process: str, proposed: Sequence[tuple[Tactic, str]],
    rows: Sequence[Record], campaigns: Mapping[str, Campaign],
) -> Review:  # fmt: skip
    """The review of tactics, each with why it is `proposed`, from records of `mode` and `process` read already."""
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
    at_m = {(row.kernel, row.tactic): row for row in rows if row.m == problem.m}
    candidates = []
    for letter, (tactic, note) in zip(LETTERS, proposed, strict=False):
        footprint = tactic.footprint(tactic.problem(problem), device)
        candidates.append(Candidate(letter, tactic, note, footprint, at_m.get((tactic.kernel, str(tactic)))))
    kernels = {candidate.kernel for candidate in candidates}
    plotted = [vars(row) for row in rows if row.kernel in kernels or not row.is_ours]
    table = measured(pd.DataFrame(plotted, columns=records.COLUMNS).assign(live=False), problem.n, problem.k)
    first = candidates[0].tactic
    campaigns_used = used(table, campaigns)
    lead = TacticData(first.kernel, first, first.problem(problem), device, mode, table, campaigns_used, process)
    tried = [candidate.record for candidate in candidates]
    others = tuple(row for row in at_m.values() if row.is_ours and row not in tried)
    peers, bound = sentences.best_peers(at_m.values()), bound_of(rows)
    drawn_on = tuple(sorted(lead.campaigns, key=lambda campaign: campaign is not lead.campaign))
    return Review(problem, device, mode, process, tuple(candidates), others, peers, bound, lead, drawn_on)


def parse(text: str) -> Tactic:
    """The tactic written `KERNEL:TACTIC`."""
    kernel, colon, fields = text.partition(":")
    if not colon:
        raise ValueError(f"candidate {text!r} is not written KERNEL:TACTIC, such as warp-splitk:16,8,256,8,2")
    return tactic_type(kernel).parse(fields)


def defaults(problem: GemmProblem, device: Device) -> dict[str, Tactic]:
    """The default tactic of each kernel that takes the problem, by its name."""
    able = {name: kind for name, kind in KERNELS.items() if kind.unsupported(problem, device) is None}
    return {name: kind.default(kind.problem(problem), device) for name, kind in able.items()}


def suggested(
    problem: GemmProblem, device: Device, rows: Sequence[Record], standing: Mapping[str, Tactic]
) -> list[tuple[Tactic, str]]:
    """Candidates worth a look, each with why, the fastest first: of each kernel the fastest recorded and the `standing`
    tactic, its default, and the runner-up of all, as many as a review compares. Where nothing was recorded at this M
    the defaults.
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
    return [(tactic, names[tactic]) for tactic in order if tactic in names][: len(LETTERS)] or list(names.items())


def ranked(kind: type[Tactic], problem: GemmProblem, device: Device, rows: Sequence[Record]) -> dict[Tactic, float]:
    """The recorded tactics of one kernel that can run `problem`, the fastest first, with their median microseconds."""
    at_m = sorted((r for r in rows if r.kernel == kind.kernel and r.m == problem.m), key=lambda row: row.median_us)
    times = {kind.parse(row.tactic): row.median_us for row in at_m}
    return {tactic: time for tactic, time in times.items() if tactic.why_not(problem, device) is None}
