"""The pages of a design review, each a figure of one A4 page: what `review` says, in type and charts.

Candidates keep their letter, colour, marker and dash on every page; peers and limits are grey.
"""

import textwrap
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.performance import fastest_of_each_m, grouped, rows_of
from ..analysis.review import AGAINST, LETTERS, Candidate, Review, campaign_facts
from ..analysis.tactic import smem_table
from ..figures import charts, style
from ..figures.charts import Series, against_m, best_of_peers, in_roofline
from ..figures.layout import draw_smem
from ..figures.panel import Panel, tick_step
from ..figures.style import LIGHT
from ..records import Campaign
from ..records.statistics import CONFIDENCE, TOLERANCE, Verdict
from ..tactics import KERNELS

WIDTH, HEIGHT, MARGIN = 11.69, 8.27, 0.55  #: inches: A4, landscape
HEADING, BIG, HUGE = 15.0, 19.0, 25.0  #: points
MAPS = 4  #: shared-memory maps on one page
FOOT = 0.75  #: inches from the lower edge: the footer's
_ROOM = WIDTH - 2 * MARGIN
JUDGED = 4  #: columns of verdicts that a page has room for: against the first candidate and the fastest peers
_HOLLOW: dict[str, Any] = dict(markersize=6, markerfacecolor="none")  #: the marks of peers


class Page:
    """One page: `name` is its file's stem, `data` what it plots or tabulates; places are inches from its lower left."""

    def __init__(self, name: str, title: str, data: pd.DataFrame | None = None):
        self.name, self.title, self.data = name, title, pd.DataFrame() if data is None else data
        self.figure = style.figure(WIDTH, HEIGHT)
        self.whole = Panel(self.figure, 0, 0, WIDTH, HEIGHT, (0, WIDTH), (0, HEIGHT))
        self.write(MARGIN, HEIGHT - 0.55, title, size=HEADING, va="baseline", weight="bold")

    def write(self, x: float, y: float, text: str, color: str | None = None, ha: str = "left", **look: Any) -> None:
        """A text at (x, y); `look` as `Labels` takes it."""
        self.whole.labels([(x, y)], [text], color, ha=ha, **look)

    def rule(self, y: float) -> None:
        """A line across the page."""
        self.whole.lines([[(MARGIN, y), (WIDTH - MARGIN, y)]], LIGHT.muted, linewidths=0.8)

    def paragraph(self, y: float, text: str, size: float = style.TEXT, **look: Any) -> float:
        """Writes `text` in as many lines as it needs, the first at `y`; returns the place of the next line."""
        characters = int(_ROOM * 72 / (0.55 * size))  # one is 0.55 em wide on average
        step = 1.45 * size / 72
        lines = textwrap.wrap(text, characters, break_on_hyphens=False)
        for i, line in enumerate(lines):
            self.write(MARGIN, y - i * step, line, size=size, va="baseline", **look)
        return y - len(lines) * step

    def badge(self, x: float, y: float, candidate: Candidate, size: float = style.TEXT) -> None:
        """The candidate's marker and letter."""
        marker = look(candidate)["marker"]
        self.whole.line([x], [y], color_of(candidate), marker=marker, markersize=0.75 * size, linestyle="")
        self.write(x + 0.014 * size, y, candidate.letter, size=size, weight="bold")


def pages(review: Review) -> list[Page]:
    """All pages in order: answer, comparison, bandwidth, roofline, resources, provenance."""
    parts = answer, comparison, bandwidth, roofline, resources, provenance
    made = [page for part in parts for page in part(review)]
    p = review.problem
    launches = review.mode + ", busy process" * (review.process == "busy")
    about = f"{p.n}x{p.k}, M = {p.m}, {launches}, {review.device.title}"
    for number, page in enumerate(made, 1):
        page.name = f"{number:02}-{page.name}"
        where = f"{about}   |   {number} of {len(made)}"
        page.write(WIDTH - MARGIN, HEIGHT - 0.5, where, LIGHT.muted, ha="right", va="baseline")
    return made


def answer(review: Review) -> list[Page]:
    """The cover: the question and the answer."""
    page = Page("answer", "Design review", review.comparison())
    page.write(MARGIN, 6.95, review.question(), size=HUGE, weight="bold", va="baseline")
    y = page.paragraph(6.6, review.setting(), color=LIGHT.muted) - 0.15
    page.whole.boxes([(MARGIN, y - 0.95, _ROOM, 0.95)], LIGHT.grid)
    best = review.winner
    if best is None:
        page.write(MARGIN + 0.25, y - 0.48, "No recorded answer", size=BIG, weight="bold")
    else:
        row = review.timed[best.letter]
        page.badge(MARGIN + 0.35, y - 0.48, best, BIG)
        page.write(MARGIN + 1.0, y - 0.48, best.text, size=BIG, weight="bold")
        page.write(WIDTH - MARGIN - 0.25, y - 0.36, f"{row.median_us:.3f} us", size=BIG, ha="right", weight="bold")
        interval = f"{100 * CONFIDENCE:g} % interval {row.low_us:.3f} to {row.high_us:.3f} us, {row.samples} samples"
        page.write(WIDTH - MARGIN - 0.25, y - 0.72, interval, size=style.TEXT, ha="right")
    y -= 1.35
    for sentence in review.answer():
        y = page.paragraph(y, sentence) - 0.07
    y -= 0.2
    page.write(MARGIN, y, "Candidates", size=style.TITLE, weight="bold", va="baseline")
    for i, candidate in enumerate(review.candidates):
        at = y - 0.32 - 0.27 * i
        page.badge(MARGIN + 0.1, at, candidate)
        page.write(MARGIN + 0.6, at, candidate.text)
        page.write(MARGIN + 3.4, at, candidate.note, LIGHT.muted)
    return [page]


def comparison(review: Review) -> list[Page]:
    """Every candidate and peer with its interval, and the verdicts."""
    table = review.comparison()
    page = Page("comparison", "Comparison", table)
    candidates = {candidate.letter: candidate for candidate in review.candidates}
    runs = {campaign.id: number for number, campaign in enumerate(review.campaigns, 1)}
    rivals = [name for name in table if name.startswith(AGAINST)][:JUDGED]
    judged = table[table.name.isin(candidates) & table.median_us.notna()] if rivals else table[:0]
    step = min(0.34, 5.6 / (len(table) - bool(review.bound) + len(judged) + 4))
    columns = {"median, us": 5.62, f"{100 * CONFIDENCE:g} % interval": 7.0, "over bound": 7.85, "run": 8.25}
    top = HEIGHT - 1.2
    for name, x in columns.items():
        page.write(x, top, name, LIGHT.muted, ha="right")
    page.rule(top - 0.5 * step)
    bottom = top - (len(table) + 0.5) * step
    chart = Panel(page.figure, 8.5, bottom, 2.6, len(table) * step, _span(review), (len(table), 0))
    for i, row in enumerate(table.itertuples()):
        y, candidate = top - (i + 1) * step, candidates.get(row.name)
        color, marker = LIGHT.muted, "|"
        if candidate:
            page.badge(MARGIN + 0.1, y, candidate)
            color, marker = color_of(candidate), look(candidate)["marker"]
        page.write(MARGIN + 0.5, y, f"{row.kernel} {row.tactic}".strip() or row.name)
        page.write(3.2, y, row.note if row.kernel else "what reading alone takes", LIGHT.muted)
        if pd.isna(row.median_us):
            page.write(7.0, y, "not recorded", LIGHT.muted, ha="right")
            continue
        cells = [f"{row.median_us:.3f}"]
        if row.kernel:
            over = f"{row.median_us / review.bound:.3f}" if review.bound else "-"
            cells += [f"{row.low_us:.3f} to {row.high_us:.3f}", over, str(runs[row.campaign])]
        for text, x in zip(cells, columns.values(), strict=False):
            page.write(x, y, text, ha="right")
        if row.kernel and row.low_us > chart.x[1]:  # beyond the edge
            chart.labels([(chart.x[1], i + 0.5)], ["→"], color, ha="right", size=style.TITLE)
        elif row.kernel:
            chart.lines([[(row.low_us, i + 0.5), (row.high_us, i + 0.5)]], color, linewidths=2.2)
            chart.line([row.median_us], [i + 0.5], color, marker=marker, markersize=7, linestyle="")
    page.rule(bottom)
    page.write(11.1, top, "us per launch", LIGHT.muted, ha="right")
    _axis(chart, review.bound, 36 * step)
    y = bottom - 0.62
    if len(judged):
        page.write(MARGIN, y, "Verdicts: the row against the column", size=style.TITLE, weight="bold", va="baseline")
        y -= 0.36
        places = {name: 3.4 + 1.95 * i for i, name in enumerate(rivals)}
        for name, x in places.items():
            page.write(x, y, f"against {name.removeprefix(AGAINST)}", LIGHT.muted)
        page.rule(y - 0.5 * step)
        medians = table.set_index("name").median_us
        for row in judged.to_dict("records"):
            y -= step
            page.badge(MARGIN + 0.1, y, candidates[row["name"]])
            page.write(MARGIN + 0.5, y, candidates[row["name"]].text)
            for name, x in places.items():
                word = row[name]
                if pd.notna(word):
                    page.write(x, y, word, weight="bold" if word in (Verdict.FASTER, Verdict.SLOWER) else "normal")
                    change = row["median_us"] / medians[name.removeprefix(AGAINST)] - 1
                    page.write(x + 1.72, y, f"{100 * change:+.1f} %", LIGHT.muted, ha="right")
        y -= step
    words = (
        f"FASTER, SLOWER: the {100 * CONFIDENCE:g} % intervals are disjoint. SAME: they prove a difference of at most "
        f"{100 * TOLERANCE:g} %. UNDECIDED: neither. Percentages: difference of the medians. Peers at their fastest "
        "recorded tactic; cublas, cublaslt and triton launch without programmatic dependent launch. run: see the "
        "provenance page."
    )
    page.paragraph(max(y - 0.05, 0.95), words, size=style.SMALL, color=LIGHT.muted)
    return [page]


def bandwidth(review: Review) -> list[Page]:
    """Bandwidth against M: candidates bold, all other tactics of their kernels faint, peers at best, the limits."""
    over = "Bytes over exposed time" if review.mode == "exposed" else "Bandwidth"
    page = Page("bandwidth", f"{over} against M", review.lead.table)
    rows = rows_of(review.lead.table)
    tactics = grouped((row for row in rows if row.kernel in KERNELS), "kernel", "tactic")
    peers = {name: fastest_of_each_m(row for row in rows if row.kernel == name) for name in review.peers}
    drawn = [(row.m, row.tbs) for group in [*tactics.values(), *peers.values()] for row in group]
    limits = review.lead.limits()
    panel = charts.bandwidth_panel(page.figure, (1.0, 1.15, 7.3, 5.75), drawn, limits, review.problem.m)

    ends = []
    for i, (name, tbs) in enumerate(limits.items()):
        panel.line(panel.x, (tbs, tbs), LIGHT.muted, linewidth=1.2, linestyle=style.DASHES[(i + 1) % 4])
        ends.append((panel.x[1], tbs, name, LIGHT.muted))
    context = [np.array([(np.log2(row.m), row.tbs) for row in group]) for group in tactics.values()]
    panel.lines([line for line in context if len(line) > 1], LIGHT.faint, linewidths=0.8)
    if context:
        x, y = np.concatenate(context).T
        panel.line(x, y, LIGHT.faint, linestyle="", marker=".", markersize=3)
    series = best_of_peers(peers, against_m, [LIGHT.muted], linewidth=1.4, **_HOLLOW)
    absent: list[str] = []
    for candidate in reversed(review.candidates):  # the first on top
        group = tactics.get((candidate.kernel, str(candidate.tactic)))
        if group:
            bold = dict(linewidth=2.6, markersize=7, zorder=3, **look(candidate))
            series.append(Series(candidate.name, against_m(group), color_of(candidate), bold, intervals=True))
        else:
            absent.insert(0, candidate.letter)
    charts.end_labels(panel, ends + charts.draw_against_m(panel, series), bold=review.candidates[0].name)
    if absent:
        panel.note(0.02, 0.03, f"not recorded at any M: {', '.join(absent)}", ha="left", va="bottom")
    return [page]


def roofline(review: Review) -> list[Page]:
    """The roofline with measured ceilings: the candidates and peers at each M, the M in question ringed."""
    title = "Roofline over exposed time" if review.mode == "exposed" else "Roofline"
    page = Page("roofline", title, review.lead.table)
    tactics, kernels = (grouped(rows_of(review.lead.table), *names) for names in (("kernel", "tactic"), ("kernel",)))
    peers = {name: kernels[name] for name in review.peers}
    series = best_of_peers(peers, in_roofline, [LIGHT.muted], linewidth=1.2, **_HOLLOW)
    for candidate in reversed(review.candidates):  # the first on top
        group, color = tactics.get((candidate.kernel, str(candidate.tactic)), []), color_of(candidate)
        if group:
            bold = dict(linewidth=2.2, markersize=7, **look(candidate))
            series.append(Series(candidate.name, in_roofline(group), color, bold))
            series += charts.ring(group, review.problem.m, color, 14, 1.6)
    charts.draw_roofline(page.figure, (1.0, 1.15, _ROOM - 0.5, 5.75), series, *review.lead.roofs(), review.problem)
    return [page]


def resources(review: Review) -> list[Page]:
    """Shared memory, registers and residency of each candidate, a few to a page."""
    made = []
    for start in range(0, len(review.candidates), MAPS):
        page, tables = Page("resources", "Shared memory of an SM, registers, residency"), []
        for i, candidate in enumerate(review.candidates[start : start + MAPS]):
            footprint, known = candidate.footprint, candidate.resources
            top = HEIGHT - 1.15 - 1.68 * i
            page.badge(MARGIN + 0.1, top, candidate, style.TITLE)
            page.write(MARGIN + 0.55, top, candidate.text, size=style.TITLE, weight="bold")
            facts = f"{footprint.describe()}; {footprint.smem_bytes:,} B and {footprint.threads} threads per CTA"
            page.write(MARGIN + 3.4, top, facts)
            registers = known and f"{known.registers} registers per thread, {known.spill_bytes} B spilled"
            page.write(MARGIN + 3.4, top - 0.22, registers or "registers: not compiled yet", LIGHT.muted)
            draw_smem(page.figure, MARGIN, top - 0.85, _ROOM, footprint, review.device)
            tables.append(smem_table(footprint, review.device))
            tables[-1].insert(0, "candidate", candidate.letter)
        page.data = pd.concat(tables, ignore_index=True)
        made.append(page)
    return made


def provenance(review: Review) -> list[Page]:
    """Campaigns, machine, commits, clocks and the commands that make it all again."""
    page, facts = Page("provenance", "Provenance", pd.DataFrame(columns=["id"])), review.provenance()
    y = _command(page, HEIGHT - 1.15, "Make this pack again", facts["reproduce"])
    drawn = f"Drawn at commit {facts['drawn_at']} from the records in data/campaigns."
    y = page.paragraph(y, drawn, size=style.SMALL, color=LIGHT.muted) - 0.4
    if not review.campaigns:
        state = f"a {review.process} process"
        page.paragraph(y, f"No campaign: nothing was recorded of this weight in this mode and {state} on this device.")
    made = [page]
    listed: list[dict] = []  # on the last of them
    for number, campaign in enumerate(review.campaigns, 1):
        height = HEIGHT - _campaign(Page("", ""), HEIGHT, number, campaign)
        if listed and y - height < FOOT:
            made.append(Page("provenance", "Provenance, continued"))
            y, listed = HEIGHT - 1.15, []
        y = _campaign(made[-1], y, number, campaign) - 0.3
        listed.append(campaign_facts(campaign))
        made[-1].data = pd.DataFrame(listed)
    return made


def _campaign(page: Page, y: float, number: int, campaign: Campaign) -> float:
    """What a reader needs to know of a run, from `y` downwards; returns the place of what follows."""
    page.rule(y + 0.22)
    page.write(MARGIN, y, f"Run {number}:  {campaign.id}", size=style.TITLE, weight="bold", va="baseline")
    facts = campaign_facts(campaign)
    lines = [
        f"{campaign.gpu}, driver {campaign.driver}, CUDA {campaign.cuda}, PyTorch {campaign.torch}, CuTe DSL "
        f"{campaign.dsl}; {campaign.date}",
        f"commit {campaign.commit}{' with uncommitted changes' if campaign.dirty else ''}"
        f"{'' if campaign.complete else '; NOT complete'}",
        f"SM clock {facts['sm_clock']}; {facts['throttling']}; ceilings: {facts['ceilings']}",
        f"method: {facts['method']}",
    ]
    y -= 0.27
    for line in lines:
        y = page.paragraph(y, line, size=style.SMALL)
    return _command(page, y - 0.06, "Measure again", campaign.command)


def _command(page: Page, y: float, what: str, command: str) -> float:
    """A heading and a command, in as many lines as it needs; returns the place of what follows."""
    page.write(MARGIN, y, what, LIGHT.muted, va="baseline")
    y -= 0.22
    for line in broken(command, int(_ROOM * 72 / (0.62 * style.SMALL))):
        page.write(MARGIN + 0.1, y, line, va="baseline", family="monospace")
        y -= 0.19
    return y - 0.08


def color_of(candidate: Candidate) -> str:
    """The candidate's colour, the same on every page."""
    return LIGHT.series[LETTERS.index(candidate.letter)]


def look(candidate: Candidate) -> dict[str, Any]:
    """The candidate's marker and dash."""
    i = LETTERS.index(candidate.letter)
    return dict(marker=style.MARKERS[i], linestyle=style.DASHES[i])


def _span(review: Review) -> tuple[float, float]:
    """The limits of the chart of times: bound, candidates, and peers not much slower; others are beyond the edge."""
    timed, peers = list(review.timed.values()), list(review.peers.values())
    slowest = 1.15 * max((row.high_us for row in timed or peers), default=1.0)
    shown = [row for row in [*timed, *peers] if row.high_us <= slowest]
    low = min([row.low_us for row in shown] + ([review.bound] if review.bound else []), default=0.0)
    high = max((row.high_us for row in shown), default=1.0)
    room = 0.08 * (high - low) or 0.02 * high
    return low - room, high + room


def _axis(chart: Panel, bound: float | None, raised: float) -> None:
    """Ticks, and the bound with its name `raised` points above the chart."""
    low, high = chart.x
    step = tick_step(high - low, 5, least=0.01)
    values = np.arange(np.ceil(low / step) * step, high, step)
    chart.ticks("x", values, [f"{value:g}" for value in values.round(3)])
    if bound and low < bound < high:
        chart.lines([[(bound, 0), (bound, chart.y[0])]], LIGHT.ink, linewidths=1.2, linestyles=[(0, (4, 2))])
        chart.labels([(bound, 0)], ["bound"], LIGHT.muted, offset=(0, raised))


def broken(command: str, room: int) -> list[str]:
    """A command in lines of at most `room` characters that a shell joins again, broken at spaces if it can."""
    lines = []
    while len(command) > room:
        at = command.rfind(" ", 0, room - 1) + 1 or room - 1
        lines.append(command[:at] + "\\")
        command = command[at:]
    return [*lines, command]
