"""The pages of a design review, each a figure of one A4 sheet: what `review` says, in type and charts.

Candidates keep their letter, colour, marker and dash on every page; peers and limits are grey.
"""

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.performance import fastest_of_each_m, grouped, rows_of
from ..analysis.review import AGAINST, LETTERS, Candidate, Review, campaign_facts
from ..analysis.tactic import smem_table
from ..figures import charts, style
from ..figures.charts import Series, against_m, in_roofline
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
_HOLLOW: dict[str, Any] = dict(markersize=6, markerfacecolor="none")  #: the marks of peers


@dataclass(frozen=True)
class Page:
    """One page: `name` is its file's stem, `data` what it plots or tabulates."""

    name: str
    title: str
    figure: Figure
    data: pd.DataFrame


def pages(review: Review) -> list[Page]:
    """All pages in order: answer, comparison, bandwidth, roofline, resources, provenance."""
    made = [
        ("answer", *answer(review)),
        ("comparison", *comparison(review)),
        ("bandwidth", *bandwidth(review)),
        ("roofline", *roofline(review)),
        *(("resources", *each) for each in resources(review)),
        *(("provenance", *each) for each in provenance(review)),
    ]
    p = review.problem
    about = f"{p.n}x{p.k}, M = {p.m}, {review.mode}, {review.device.title}"
    for number, (_, sheet, _) in enumerate(made, 1):
        where = f"{about}   |   {number} of {len(made)}"
        sheet.write(WIDTH - MARGIN, HEIGHT - 0.5, where, LIGHT.muted, ha="right", va="baseline")
    names = [f"{number:02}-{name}" for number, (name, *_) in enumerate(made, 1)]
    return [Page(name, sheet.title, sheet.figure, data) for name, (_, sheet, data) in zip(names, made, strict=True)]


class Sheet:
    """A page under way; places are inches from its lower left corner."""

    def __init__(self, title: str):
        self.title, self.figure = title, style.figure(WIDTH, HEIGHT)
        self.whole = Panel(self.figure, 0, 0, WIDTH, HEIGHT, x=(0, WIDTH), y=(0, HEIGHT))
        self.write(MARGIN, HEIGHT - 0.55, title, size=HEADING, va="baseline", weight="bold")

    def write(self, x: float, y: float, text: str, color: str | None = None, ha: str = "left", **look) -> None:
        """A text at (x, y); `look` as `Labels` takes it."""
        self.whole.labels([(x, y)], [text], color, ha=ha, **look)

    def rule(self, y: float) -> None:
        """A line across the page."""
        self.whole.lines([[(MARGIN, y), (WIDTH - MARGIN, y)]], LIGHT.muted, linewidths=0.8)

    def paragraph(self, y: float, text: str, size: float = style.TEXT, **look) -> float:
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


def answer(review: Review) -> tuple[Sheet, pd.DataFrame]:
    """The cover: the question and the answer."""
    sheet = Sheet("Design review")
    sheet.write(MARGIN, 6.95, review.question(), size=HUGE, weight="bold", va="baseline")
    y = sheet.paragraph(6.6, review.setting(), color=LIGHT.muted) - 0.15
    sheet.whole.boxes([(MARGIN, y - 0.95, _ROOM, 0.95)], LIGHT.grid)
    best = review.winner
    if best is None:
        sheet.write(MARGIN + 0.25, y - 0.48, "No recorded answer", size=BIG, weight="bold")
    else:
        row = review.timed[best.letter]
        sheet.badge(MARGIN + 0.35, y - 0.48, best, BIG)
        sheet.write(MARGIN + 1.0, y - 0.48, best.text, size=BIG, weight="bold")
        sheet.write(WIDTH - MARGIN - 0.25, y - 0.36, f"{row.median_us:.3f} us", size=BIG, ha="right", weight="bold")
        interval = f"{100 * CONFIDENCE:g} % interval {row.low_us:.3f} to {row.high_us:.3f} us, {row.samples} samples"
        sheet.write(WIDTH - MARGIN - 0.25, y - 0.72, interval, size=style.TEXT, ha="right")
    y -= 1.35
    for sentence in review.answer():
        y = sheet.paragraph(y, sentence) - 0.07
    y -= 0.2
    sheet.write(MARGIN, y, "Candidates", size=style.TITLE, weight="bold", va="baseline")
    for i, candidate in enumerate(review.candidates):
        at = y - 0.32 - 0.27 * i
        sheet.badge(MARGIN + 0.1, at, candidate)
        sheet.write(MARGIN + 0.6, at, candidate.text)
        sheet.write(MARGIN + 3.4, at, candidate.note, LIGHT.muted)
    return sheet, review.comparison()


def comparison(review: Review) -> tuple[Sheet, pd.DataFrame]:
    """Every candidate and peer with its interval, and the verdicts."""
    sheet, table = Sheet("Comparison"), review.comparison()
    candidates = {candidate.letter: candidate for candidate in review.candidates}
    runs = {campaign.id: number for number, campaign in enumerate(review.campaigns, 1)}
    rivals = [name for name in table if name.startswith(AGAINST)]
    judged = table[table.name.isin(candidates) & table.median_us.notna()] if rivals else table[:0]
    step = min(0.34, 5.6 / (len(table) - bool(review.bound) + len(judged) + 4))
    columns = {"median, us": 5.62, f"{100 * CONFIDENCE:g} % interval": 7.0, "over bound": 7.85, "run": 8.25}
    top = HEIGHT - 1.2
    for name, x in columns.items():
        sheet.write(x, top, name, LIGHT.muted, ha="right")
    sheet.rule(top - 0.5 * step)
    bottom = top - (len(table) + 0.5) * step
    chart = Panel(sheet.figure, 8.5, bottom, 2.6, len(table) * step, _span(review), (len(table), 0))
    for i, row in enumerate(table.itertuples()):
        y, candidate = top - (i + 1) * step, candidates.get(row.name)
        color, marker = LIGHT.muted, "|"
        if candidate:
            sheet.badge(MARGIN + 0.1, y, candidate)
            color, marker = color_of(candidate), look(candidate)["marker"]
        sheet.write(MARGIN + 0.5, y, f"{row.kernel} {row.tactic}".strip() or row.name)
        sheet.write(3.2, y, row.note if row.kernel else "the least that reading the weight took", LIGHT.muted)
        if pd.isna(row.median_us):
            sheet.write(7.0, y, "not recorded", LIGHT.muted, ha="right")
            continue
        cells = [f"{row.median_us:.3f}"]
        if row.kernel:
            over = f"{row.median_us / review.bound:.3f}" if review.bound else "-"
            cells += [f"{row.low_us:.3f} to {row.high_us:.3f}", over, str(runs[row.campaign])]
        for text, x in zip(cells, columns.values(), strict=False):
            sheet.write(x, y, text, ha="right")
        if row.kernel:
            _interval(chart, i + 0.5, row, color, marker)
    sheet.rule(bottom)
    sheet.write(11.1, top, "us per launch", LIGHT.muted, ha="right")
    _axis(chart, review.bound, 36 * step)
    y = bottom - 0.62
    if len(judged):
        sheet.write(MARGIN, y, "Verdicts: the row against the column", size=style.TITLE, weight="bold", va="baseline")
        y -= 0.36
        places = {name: 3.4 + 1.95 * i for i, name in enumerate(rivals)}
        for name, x in places.items():
            sheet.write(x, y, f"against {name.removeprefix(AGAINST)}", LIGHT.muted)
        sheet.rule(y - 0.5 * step)
        medians = table.set_index("name").median_us
        for row in judged.to_dict("records"):
            y -= step
            sheet.badge(MARGIN + 0.1, y, candidates[row["name"]])
            sheet.write(MARGIN + 0.5, y, candidates[row["name"]].text)
            for name, x in places.items():
                word = row[name]
                if pd.notna(word):
                    sheet.write(x, y, word, weight="bold" if word in (Verdict.FASTER, Verdict.SLOWER) else "normal")
                    change = row["median_us"] / medians[name.removeprefix(AGAINST)] - 1
                    sheet.write(x + 1.72, y, f"{100 * change:+.1f} %", LIGHT.muted, ha="right")
        y -= step
    words = (
        f"FASTER, SLOWER: the {100 * CONFIDENCE:g} % intervals are disjoint. SAME: they prove a difference of at most "
        f"{100 * TOLERANCE:g} %. UNDECIDED: neither. Percentages: difference of the medians. Peers at their fastest "
        "recorded tactic; cublas and triton launch without programmatic dependent launch. run: see the provenance page."
    )
    sheet.paragraph(max(y - 0.05, 0.95), words, size=style.SMALL, color=LIGHT.muted)
    return sheet, table


def bandwidth(review: Review) -> tuple[Sheet, pd.DataFrame]:
    """Bandwidth against M: candidates bold, all other tactics of their kernels faint, peers at best, the limits."""
    over = "bytes over exposed time" if review.mode == "exposed" else "bandwidth"
    sheet = Sheet(f"{over.capitalize()} against M")
    rows = rows_of(review.table)
    tactics = grouped((row for row in rows if row.kernel in KERNELS), "kernel", "tactic")
    peers = {name: fastest_of_each_m(row for row in rows if row.kernel == name) for name in review.peers}
    drawn = [(row.m, row.tbs) for group in [*tactics.values(), *peers.values()] for row in group]
    place = 1.0, 1.15, 7.3, 5.75
    panel = charts.bandwidth_panel(sheet.figure, place, drawn, review.limits, review.problem.m)

    ends = []
    for i, (name, tbs) in enumerate(review.limits.items()):
        panel.line(panel.x, (tbs, tbs), LIGHT.muted, linewidth=1.2, linestyle=style.DASHES[(i + 1) % 4])
        ends.append((panel.x[1], tbs, name, LIGHT.muted))
    context = [np.array([(np.log2(row.m), row.tbs) for row in group]) for group in tactics.values()]
    panel.lines([line for line in context if len(line) > 1], LIGHT.faint, linewidths=0.8)
    if context:
        x, y = np.concatenate(context).T
        panel.line(x, y, LIGHT.faint, linestyle="", marker=".", markersize=3)
    series = [
        Series(name, against_m(group), LIGHT.muted, charts.peer_look(i, 1.4, **_HOLLOW))
        for i, (name, group) in enumerate(peers.items())
    ]
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
    return sheet, review.table


def roofline(review: Review) -> tuple[Sheet, pd.DataFrame]:
    """The roofline with measured ceilings: the candidates and peers at each M, the M in question ringed."""
    over = " over exposed time" if review.mode == "exposed" else ""
    sheet = Sheet(f"Roofline{over}")
    tactics, kernels = (grouped(rows_of(review.table), *names) for names in (("kernel", "tactic"), ("kernel",)))
    series = [
        Series(name, in_roofline(fastest_of_each_m(kernels[name])), LIGHT.muted, charts.peer_look(i, 1.2, **_HOLLOW))
        for i, name in enumerate(review.peers)
    ]
    for candidate in reversed(review.candidates):  # the first on top
        group, color = tactics.get((candidate.kernel, str(candidate.tactic)), []), color_of(candidate)
        if group:
            bold = dict(linewidth=2.2, markersize=7, **look(candidate))
            series.append(Series(candidate.name, in_roofline(group), color, bold))
            series += charts.ring(group, review.problem.m, color, 14, 1.6)
    place = 1.0, 1.15, _ROOM - 0.5, 5.75
    charts.draw_roofline(sheet.figure, place, series, review.memory, review.compute, review.problem)
    return sheet, review.table


def resources(review: Review) -> list[tuple[Sheet, pd.DataFrame]]:
    """Shared memory, registers and residency of each candidate, a few to a page."""
    made = []
    for start in range(0, len(review.candidates), MAPS):
        sheet, tables = Sheet("Shared memory of an SM, registers, residency"), []
        for i, candidate in enumerate(review.candidates[start : start + MAPS]):
            footprint, known = candidate.footprint, candidate.resources
            top = HEIGHT - 1.15 - 1.68 * i
            sheet.badge(MARGIN + 0.1, top, candidate, style.TITLE)
            sheet.write(MARGIN + 0.55, top, candidate.text, size=style.TITLE, weight="bold")
            facts = f"{footprint.describe()}; {footprint.smem_bytes:,} B and {footprint.threads} threads per CTA"
            sheet.write(MARGIN + 3.4, top, facts)
            registers = "registers: not compiled yet"
            if known:
                registers = f"{known.registers} registers per thread, {known.spill_bytes} B spilled"
            sheet.write(MARGIN + 3.4, top - 0.22, registers, LIGHT.muted)
            draw_smem(sheet.figure, MARGIN, top - 0.85, _ROOM, footprint, review.device)
            table = smem_table(footprint, review.device)
            table.insert(0, "candidate", candidate.letter)
            tables.append(table)
        made.append((sheet, pd.concat(tables, ignore_index=True)))
    return made


def provenance(review: Review) -> list[tuple[Sheet, pd.DataFrame]]:
    """Campaigns, machine, commits, clocks and the commands that make it all again."""
    sheet, facts = Sheet("Provenance"), review.provenance()
    y = _command(sheet, HEIGHT - 1.15, "Make this pack again", facts["reproduce"])
    drawn = f"Drawn at commit {facts['drawn_at']} from the records in data/campaigns."
    y = sheet.paragraph(y, drawn, size=style.SMALL, color=LIGHT.muted) - 0.4
    if not review.campaigns:
        sheet.paragraph(y, "No campaign: nothing was recorded of this weight in this mode on this device.")
        return [(sheet, pd.DataFrame(columns=["id"]))]
    sheets: list[tuple[Sheet, list[dict]]] = [(sheet, [])]
    for number, campaign in enumerate(review.campaigns, 1):
        height = HEIGHT - _campaign(Sheet(""), HEIGHT, number, campaign)
        if sheets[-1][1] and y - height < FOOT:
            sheets.append((Sheet("Provenance, continued"), []))
            y = HEIGHT - 1.15
        y = _campaign(sheets[-1][0], y, number, campaign) - 0.3
        sheets[-1][1].append(campaign_facts(campaign))
    return [(sheet, pd.DataFrame(campaigns)) for sheet, campaigns in sheets]


def _campaign(sheet: Sheet, y: float, number: int, campaign: Campaign) -> float:
    """What a reader needs to know of a run, from `y` downwards; returns the place of what follows."""
    sheet.rule(y + 0.22)
    sheet.write(MARGIN, y, f"Run {number}:  {campaign.id}", size=style.TITLE, weight="bold", va="baseline")
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
        y = sheet.paragraph(y, line, size=style.SMALL)
    return _command(sheet, y - 0.06, "Measure again", campaign.command)


def _command(sheet: Sheet, y: float, what: str, command: str) -> float:
    """A heading and a command, in as many lines as it needs; returns the place of what follows."""
    sheet.write(MARGIN, y, what, LIGHT.muted, va="baseline")
    y -= 0.22
    for line in broken(command, int(_ROOM * 72 / (0.62 * style.SMALL))):
        sheet.write(MARGIN + 0.1, y, line, va="baseline", family="monospace")
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


def _interval(chart: Panel, y: float, row: Any, color: str, marker: str) -> None:
    """A median with its interval, or an arrow where it is beyond the edge."""
    if row.low_us > chart.x[1]:
        chart.labels([(chart.x[1], y)], ["→"], color, ha="right", size=style.TITLE)
        return
    ends = [[(row.low_us, y), (row.high_us, y)]]
    chart.lines(ends, color, linewidths=2.2)
    chart.line([row.median_us], [y], color, marker=marker, markersize=7, linestyle="")


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
