"""The pages of a design review, each a figure of one A4 sheet: what `review` says, in type and charts.

Candidates keep their letter, colour, marker and dash on every page; peers and limits are grey.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.review import LETTERS, Candidate, Review
from ..figures import style
from ..figures.export import commit
from ..figures.panel import Panel
from ..figures.performance import end_labels
from ..figures.resources import draw_smem, smem_table
from ..records import Campaign, Record
from ..records.statistics import CONFIDENCE, TOLERANCE, Verdict, verdict
from ..tactics import KERNELS

WIDTH, HEIGHT, MARGIN = 11.69, 8.27, 0.55  #: inches: A4, landscape
HEADING, BIG, HUGE = 15.0, 19.0, 25.0  #: points
MAPS = 4  #: shared-memory maps on one page
FOOT = 0.75  #: inches from the lower edge: the footer's
_ROOM = WIDTH - 2 * MARGIN


@dataclass(frozen=True)
class Page:
    """One page: `name` is its file's stem, `data` what it plots or tabulates."""

    name: str
    title: str
    figure: Figure
    data: pd.DataFrame


def pages(review: Review, theme: style.Theme = style.LIGHT) -> list[Page]:
    """All pages in order: answer, comparison, bandwidth, roofline, resources, provenance."""
    made = [
        ("answer", *answer(review, theme)),
        ("comparison", *comparison(review, theme)),
        ("bandwidth", *bandwidth(review, theme)),
        ("roofline", *roofline(review, theme)),
        *(("resources", *each) for each in resources(review, theme)),
        *(("provenance", *each) for each in provenance(review, theme)),
    ]
    p = review.problem
    about = f"{p.n}x{p.k}, M = {p.m}, {review.mode}, {review.device.title}"
    for number, (_, sheet, _) in enumerate(made, 1):
        where = f"{about}   |   {number} of {len(made)}"
        sheet.write(WIDTH - MARGIN, HEIGHT - 0.5, where, theme.muted, ha="right", va="baseline")
    names = [f"{number:02}-{name}" for number, (name, *_) in enumerate(made, 1)]
    return [Page(name, sheet.title, sheet.figure, data) for name, (_, sheet, data) in zip(names, made, strict=True)]


class Sheet:
    """A page under way; places are inches from its lower left corner."""

    def __init__(self, title: str, theme: style.Theme):
        self.title, self.theme = title, theme
        self.figure = style.figure(WIDTH, HEIGHT, theme)
        self.whole = Panel(self.figure, 0, 0, WIDTH, HEIGHT, theme, x=(0, WIDTH), y=(0, HEIGHT))
        self.write(MARGIN, HEIGHT - 0.55, title, size=HEADING, va="baseline", weight="bold")

    def write(self, x: float, y: float, text: str, color: str | None = None, ha: str = "left", **look) -> None:
        self.whole.labels([(x, y)], [text], color, ha=ha, **look)

    def rule(self, y: float, left: float = MARGIN, right: float = WIDTH - MARGIN, width: float = 0.8) -> None:
        self.whole.lines([[(left, y), (right, y)]], self.theme.muted, linewidths=width)

    def paragraph(
        self, y: float, text: str, left: float = MARGIN, right: float = WIDTH - MARGIN, size: float = style.TEXT, **look
    ) -> float:
        """Writes `text` in as many lines as it needs, the first at `y`; returns the place of the next line."""
        characters = int((right - left) * 72 / (0.55 * size))  # one is 0.55 em wide on average
        step = 1.45 * size / 72
        lines = textwrap.wrap(text, characters, break_on_hyphens=False)
        for i, line in enumerate(lines):
            self.write(left, y - i * step, line, size=size, va="baseline", **look)
        return y - len(lines) * step

    def badge(self, x: float, y: float, candidate: Candidate, size: float = style.TEXT) -> None:
        """The candidate's marker and letter."""
        look = _look(candidate, self.theme)
        self.whole.line([x], [y], look["color"], marker=look["marker"], markersize=0.75 * size, linestyle="")
        self.write(x + 0.014 * size, y, candidate.letter, size=size, weight="bold")


def answer(review: Review, theme: style.Theme) -> tuple[Sheet, pd.DataFrame]:
    """The cover: the question and the answer."""
    sheet = Sheet("Design review", theme)
    sheet.write(MARGIN, 6.95, review.question(), size=HUGE, weight="bold", va="baseline")
    y = 6.6
    for sentence in review.setting():
        y = sheet.paragraph(y, sentence, color=theme.muted)
    y -= 0.15
    sheet.whole.boxes([(MARGIN, y - 0.95, _ROOM, 0.95)], theme.grid)
    best = review.winner
    if best is None:
        sheet.write(MARGIN + 0.25, y - 0.48, "No recorded answer", size=BIG, weight="bold")
    else:
        row = review.measured[best.letter]
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
        sheet.write(MARGIN + 3.4, at, candidate.note, theme.muted)
    return sheet, review.comparison()


def comparison(review: Review, theme: style.Theme) -> tuple[Sheet, pd.DataFrame]:
    """Every candidate and peer with its interval, and the verdicts."""
    sheet = Sheet("Comparison", theme)
    lines: list[tuple[Candidate | None, str, str, Record | None]] = [
        (c, c.text, c.note, review.measured.get(c.letter)) for c in review.candidates
    ]
    lines += [(None, f"{name} {row.tactic}".strip(), "peer", row) for name, row in review.peers.items()]
    rivals = review.compared_with()
    verdicts = [c for c in review.candidates if c.letter in review.measured] if rivals else []
    step = min(0.34, 5.6 / (len(lines) + len(verdicts) + 4))
    right = {"median, us": 5.62, f"{100 * CONFIDENCE:g} % interval": 7.0, "over bound": 7.85, "run": 8.25}
    top = HEIGHT - 1.2
    for name, x in right.items():
        sheet.write(x, top, name, theme.muted, ha="right")
    sheet.rule(top - 0.5 * step)
    count = len(lines) + bool(review.bound)
    bottom = top - (count + 0.5) * step
    chart = Panel(sheet.figure, 8.5, bottom, 2.6, count * step, theme, _span(review), (count, 0))
    for i, (candidate, name, note, row) in enumerate(lines):
        y = top - (i + 1) * step
        if candidate:
            sheet.badge(MARGIN + 0.1, y, candidate)
        sheet.write(MARGIN + 0.5, y, name)
        sheet.write(3.2, y, note, theme.muted)
        if row is None:
            sheet.write(7.0, y, "not recorded", theme.muted, ha="right")
            continue
        cells = [f"{row.median_us:.3f}", f"{row.low_us:.3f} to {row.high_us:.3f}"]
        cells += [f"{row.median_us / review.bound:.3f}" if review.bound else "-", str(review.run_of(row))]
        for text, x in zip(cells, right.values(), strict=True):
            sheet.write(x, y, text, ha="right")
        _interval(chart, i + 0.5, row, _look(candidate, theme) if candidate else dict(color=theme.muted, marker="|"))
    if review.bound:
        y = top - (len(lines) + 1) * step
        sheet.write(MARGIN + 0.5, y, "bound")
        sheet.write(3.2, y, "the least that reading the weight took", theme.muted)
        sheet.write(right["median, us"], y, f"{review.bound:.3f}", ha="right")
    sheet.rule(bottom)
    sheet.write(11.1, top, "us per launch", theme.muted, ha="right")
    _axis(chart, review.bound, 36 * step)
    y = bottom - 0.62
    if verdicts:
        sheet.write(MARGIN, y, "Verdicts: the row against the column", size=style.TITLE, weight="bold", va="baseline")
        y -= 0.36
        columns = {name: 3.4 + 1.95 * i for i, name in enumerate(rivals)}
        for name, x in columns.items():
            sheet.write(x, y, f"against {name}", theme.muted)
        sheet.rule(y - 0.5 * step)
        for candidate in verdicts:
            y -= step
            mine = review.measured[candidate.letter]
            sheet.badge(MARGIN + 0.1, y, candidate)
            sheet.write(MARGIN + 0.5, y, candidate.text)
            for name, x in columns.items():
                if rivals[name] is not mine:
                    _verdict(sheet, x, y, mine, rivals[name])
        y -= step
    words = (
        f"FASTER, SLOWER: the {100 * CONFIDENCE:g} % intervals are disjoint. SAME: they prove a difference of at most "
        f"{100 * TOLERANCE:g} %. UNDECIDED: neither. Percentages: difference of the medians. Peers at their fastest "
        "recorded tactic; cublas and triton launch without programmatic dependent launch. run: see the provenance page."
    )
    sheet.paragraph(max(y - 0.05, 0.95), words, size=style.SMALL, color=theme.muted)
    return sheet, review.comparison()


def bandwidth(review: Review, theme: style.Theme) -> tuple[Sheet, pd.DataFrame]:
    """Bandwidth against M: candidates bold, all other tactics of their kernels faint, peers at best, the limits."""
    over = "bytes over exposed time" if review.mode == "exposed" else "bandwidth"
    sheet = Sheet(f"{over.capitalize()} against M", theme)
    rows = list(review.table.itertuples(index=False))
    ours = [row for row in rows if row.kernel in KERNELS]
    peers = {name: _fastest(row for row in rows if row.kernel == name) for name in review.peers}
    limits = review.view.limits()
    drawn = [*ours, *(row for points in peers.values() for row in points)]
    top = 1.08 * max([row.tbs for row in drawn] + [*limits.values()], default=1.0)
    most = max([32, review.problem.m, *(row.m for row in drawn)])
    panel = Panel(sheet.figure, 1.0, 1.15, 7.3, 5.75, theme, x=(-0.15, np.log2(most) + 0.15), y=(0, top))
    ms = [2**i for i in range(int(np.log2(most)) + 1)]
    panel.ticks("x", np.log2(ms), ms, "M, tokens")
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if top / s <= 10)
    values = np.arange(0, top, step)
    panel.ticks("y", values, [f"{v:g}" for v in values.round(3)], "TB/s")
    panel.frame()
    _mark(panel, np.log2(review.problem.m), f"M = {review.problem.m}")

    ends = []
    for i, (name, tbs) in enumerate(limits.items()):
        panel.line(panel.x, (tbs, tbs), theme.muted, linewidth=1.2, linestyle=style.DASHES[(i + 1) % 4])
        ends.append((panel.x[1], tbs, name, theme.muted))
    groups: dict[tuple, list] = {}
    for row in ours:
        groups.setdefault((row.kernel, row.tactic), []).append(row)
    faint = [_against_m(group) for group in groups.values()]
    panel.lines([line for line in faint if len(line) > 1], theme.faint, linewidths=0.8)
    if faint:
        panel.line(*np.concatenate(faint).T, theme.faint, linestyle="", marker=".", markersize=3)
    for i, (name, points) in enumerate(peers.items()):
        line = _against_m(points)
        panel.line(*line.T, theme.muted, linewidth=1.4, markersize=6, **_peer(i))
        ends.append((*line[-1], name, theme.muted))
    for candidate in reversed(review.candidates):  # the first on top
        group = groups.get((candidate.kernel, str(candidate.tactic)), [])
        if not group:
            continue
        line, look = _against_m(group), _look(candidate, theme)
        bars = [[(np.log2(row.m), row.low_tbs), (np.log2(row.m), row.high_tbs)] for row in group]
        panel.lines(bars, look["color"], linewidths=1.6)
        panel.line(*line.T, linewidth=2.6, markersize=7, zorder=3, **look)
        ends.append((*line[-1], f"{candidate.letter}  {candidate.text}", look["color"]))
    end_labels(panel, ends, bold=f"{LETTERS[0]}  {review.candidates[0].text}")
    absent = [c.letter for c in review.candidates if (c.kernel, str(c.tactic)) not in groups]
    if absent:
        panel.note(0.02, 0.03, f"not recorded at any M: {', '.join(absent)}", ha="left", va="bottom")
    return sheet, review.table


def roofline(review: Review, theme: style.Theme) -> tuple[Sheet, pd.DataFrame]:
    """The roofline with measured ceilings: the candidates and peers at each M, the M in question ringed."""
    over = " over exposed time" if review.mode == "exposed" else ""
    sheet = Sheet(f"Roofline{over}", theme)
    rows = list(review.table.itertuples(index=False))
    memory, compute = review.view.roofs()
    peak, widest = max([*compute.values(), 1.0]), max([*memory.values(), 1.0])
    low, high = 0.5, 1024.0
    y = np.log10(low * widest * 0.15), np.log10(peak * 2)
    panel = Panel(sheet.figure, 1.0, 1.15, _ROOM - 0.5, 5.75, theme, x=(np.log10(low), np.log10(high)), y=y)
    xs = [1, 4, 16, 64, 256, 1024]
    panel.ticks("x", np.log10(xs), xs, "FLOP per byte")
    ys = [10.0**i for i in range(-1, 5) if y[0] <= i <= y[1]]
    panel.ticks("y", np.log10(ys), [f"{value:g}" for value in ys], "TFLOP/s")
    panel.frame()
    _mark(panel, np.log10(review.problem.intensity), f"M = {review.problem.m}")

    entries = []
    for i, (name, tbs) in enumerate(memory.items()):
        look, end = dict(linewidth=1.6, linestyle=style.DASHES[i % 4]), min(peak / tbs, high)
        panel.line(np.log10([low, end]), np.log10([low * tbs, end * tbs]), theme.muted, **look)
        entries.append((f"{name} {tbs:.3g} TB/s", theme.muted, look))
    for name, tflops in compute.items():
        panel.line(np.log10([tflops / widest, high]), np.log10([tflops] * 2), theme.muted, linewidth=1.6)
        at = [(panel.x[1], np.log10(tflops))]
        panel.labels(at, [f"{name} {tflops:.4g} TFLOP/s"], theme.muted, ha="right", va="bottom", offset=(0, 3))
    for i, name in enumerate(review.peers):
        points = [(row.intensity, row.tflops) for row in _fastest(row for row in rows if row.kernel == name)]
        look = dict(linewidth=1.2, markersize=6, **_peer(i))
        panel.line(*np.log10(points).T, theme.muted, **look)
        entries.append((name, theme.muted, look))
    for candidate in reversed(review.candidates):
        mine = [row for row in rows if (row.kernel, row.tactic) == (candidate.kernel, str(candidate.tactic))]
        if not mine:
            continue
        look = _look(candidate, theme)
        color = look.pop("color")
        panel.line(*np.log10([(r.intensity, r.tflops) for r in mine]).T, color, linewidth=2.2, markersize=7, **look)
        ring = dict(linestyle="", marker="o", markersize=14, markerfacecolor="none", markeredgewidth=1.6)
        here = [(row.intensity, row.tflops) for row in mine if row.m == review.problem.m]
        if here:
            panel.line(*np.log10(here).T, color, **ring)
        entries.append((f"{candidate.letter}  {candidate.text}", color, dict(linewidth=2.2, markersize=7, **look)))
    panel.line_key([*reversed(entries)])
    return sheet, review.table


def resources(review: Review, theme: style.Theme) -> list[tuple[Sheet, pd.DataFrame]]:
    """Shared memory, registers and residency of each candidate, a few to a page."""
    made = []
    for some in _chunks(review.candidates, MAPS):
        sheet, tables = Sheet("Shared memory of an SM, registers, residency", theme), []
        for i, candidate in enumerate(some):
            footprint = candidate.tactic.footprint(review.of(candidate), review.device)
            top = HEIGHT - 1.15 - 1.68 * i
            sheet.badge(MARGIN + 0.1, top, candidate, style.TITLE)
            sheet.write(MARGIN + 0.55, top, candidate.text, size=style.TITLE, weight="bold")
            facts = f"{footprint.describe()}; {footprint.smem_bytes:,} B and {footprint.threads} threads per CTA"
            sheet.write(MARGIN + 3.4, top, facts)
            sheet.write(MARGIN + 3.4, top - 0.22, _registers(review, candidate), theme.muted)
            draw_smem(sheet.figure, MARGIN, top - 0.85, _ROOM, footprint, review.device, theme)
            table = smem_table(footprint, review.device)
            table.insert(0, "candidate", candidate.letter)
            tables.append(table)
        made.append((sheet, pd.concat(tables, ignore_index=True)))
    return made


def provenance(review: Review, theme: style.Theme) -> list[tuple[Sheet, pd.DataFrame]]:
    """Campaigns, machine, commits, clocks and the commands that make it all again."""
    sheet = Sheet("Provenance", theme)
    y = _command(sheet, HEIGHT - 1.15, "Make this pack again", review.command())
    drawn = f"Drawn at commit {commit()} from the records in data/campaigns."
    y = sheet.paragraph(y, drawn, size=style.SMALL, color=theme.muted) - 0.4
    made = []
    here: list[Campaign] = []

    def finish() -> None:
        made.append((sheet, pd.DataFrame([_summary(campaign) for campaign in here])))

    for campaign in review.campaigns:
        height = HEIGHT - _campaign(Sheet("", theme), HEIGHT, review, campaign)
        if here and y - height < FOOT:
            finish()
            sheet, y, here = Sheet("Provenance, continued", theme), HEIGHT - 1.15, []
        y = _campaign(sheet, y, review, campaign) - 0.3
        here.append(campaign)
    if here:
        finish()
    else:
        sheet.paragraph(y, "No campaign: nothing was recorded of this weight in this mode on this device.")
        made.append((sheet, pd.DataFrame(columns=["id"])))
    return made


def _campaign(sheet: Sheet, y: float, review: Review, campaign: Campaign) -> float:
    number = review.campaigns.index(campaign) + 1
    sheet.rule(y + 0.22)
    sheet.write(MARGIN, y, f"Run {number}:  {campaign.id}", size=style.TITLE, weight="bold", va="baseline")
    facts = _summary(campaign)
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
    sheet.write(MARGIN, y, what, sheet.theme.muted, va="baseline")
    y -= 0.22
    for line in _broken(command, int(_ROOM * 72 / (0.62 * style.SMALL))):
        sheet.write(MARGIN + 0.1, y, line, va="baseline", family="monospace")
        y -= 0.19
    return y - 0.08


def _summary(campaign: Campaign) -> dict:
    """The campaign's facts, each as text."""
    facts = {name: value for name, value in asdict(campaign).items() if name in (
        "id", "gpu", "driver", "cuda", "torch", "dsl", "commit", "dirty", "date", "complete", "command",
    )}  # fmt: skip
    clocks = campaign.clocks
    low, high = clocks.get("sm_mhz_low"), clocks.get("sm_mhz_high")
    facts["sm_clock"] = "not recorded" if low is None else f"{low} MHz" if low == high else f"{low} to {high} MHz"
    dropped = "the clock DROPPED" if clocks.get("dropped") else "no drop of the clock"
    causes = ", ".join(map(str, clocks.get("throttle", ())))
    facts["throttling"] = f"{dropped}, throttled by {causes}" if causes else f"{dropped}, no throttling"
    method = {name: value for name, value in campaign.method.items() if isinstance(value, int | float | str)}
    facts["method"] = ", ".join(f"{name} {value}" for name, value in method.items()) or "not recorded"
    facts["ceilings"] = ", ".join(f"{name} {value:g}" for name, value in campaign.ceilings.items()) or "none"
    return facts


def _registers(review: Review, candidate: Candidate) -> str:
    known = review.resources.get(candidate.letter)
    if known is None:
        return "registers: not compiled yet"
    return f"{known.registers} registers per thread, {known.spill_bytes} B spilled"


def _look(candidate: Candidate, theme: style.Theme) -> dict:
    i = LETTERS.index(candidate.letter)
    return dict(color=theme.series[i], marker=style.MARKERS[i], linestyle=style.DASHES[i])


def _peer(i: int) -> dict:
    return dict(linestyle=style.DASHES[i + 1], marker=style.MARKERS[i + 1], markerfacecolor="none")


def _span(review: Review) -> tuple[float, float]:
    """The limits of the chart of times: bound, candidates, and peers not much slower; others are beyond the edge."""
    mine, peers = list(review.measured.values()), list(review.peers.values())
    slowest = 1.15 * max((row.high_us for row in mine or peers), default=1.0)
    shown = [row for row in [*mine, *peers] if row.high_us <= slowest]
    low = min([row.low_us for row in shown] + ([review.bound] if review.bound else []), default=0.0)
    high = max((row.high_us for row in shown), default=1.0)
    room = 0.08 * (high - low) or 0.02 * high
    return low - room, high + room


def _interval(chart: Panel, y: float, row: Record, look: dict) -> None:
    """A median with its interval, or an arrow where it is beyond the edge."""
    color = look["color"]
    if row.low_us > chart.x[1]:
        chart.labels([(chart.x[1], y)], ["→"], color, ha="right", size=style.TITLE)
        return
    ends = [[(row.low_us, y), (row.high_us, y)]]
    chart.lines(ends, color, linewidths=2.2)
    chart.line([row.median_us], [y], color, marker=look["marker"], markersize=7, linestyle="")


def _axis(chart: Panel, bound: float | None, raised: float) -> None:
    """Ticks, and the bound with its name `raised` points above the chart."""
    low, high = chart.x
    step = next(s for s in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if (high - low) / s <= 5)
    values = np.arange(np.ceil(low / step) * step, high, step)
    chart.ticks("x", values, [f"{value:g}" for value in values.round(3)])
    if bound and low < bound < high:
        chart.lines([[(bound, 0), (bound, chart.y[0])]], chart.theme.ink, linewidths=1.2, linestyles=[(0, (4, 2))])
        chart.labels([(bound, 0)], ["bound"], chart.theme.muted, offset=(0, raised))


def _verdict(sheet: Sheet, x: float, y: float, row: Record, rival: Record) -> None:
    word = verdict(row, rival)
    strong = word in (Verdict.FASTER, Verdict.SLOWER)
    sheet.write(x, y, word, weight="bold" if strong else "normal")
    more = f"{100 * (row.median_us / rival.median_us - 1):+.1f} %"
    sheet.write(x + 1.72, y, more, sheet.theme.muted, ha="right")


def _mark(panel: Panel, x: float, text: str) -> None:
    """The M in question."""
    panel.lines([[(x, panel.y[0]), (x, panel.y[1])]], panel.theme.faint, linewidths=1.2, linestyles=[(0, (2, 2))])
    panel.labels([(x, panel.y[1])], [text], va="bottom", offset=(0, 3))


def _fastest(rows: Iterable) -> list:
    """The fastest of each M, in ascending M."""
    best: dict[int, object] = {}
    for row in sorted(rows, key=lambda row: (row.m, row.median_us)):
        best.setdefault(row.m, row)
    return list(best.values())


def _against_m(rows: Sequence) -> np.ndarray:
    return np.array([(np.log2(row.m), row.tbs) for row in rows])


def _chunks(items: Sequence, size: int) -> list[Sequence]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def _broken(command: str, room: int) -> list[str]:
    """A command in lines of at most `room` characters that a shell joins again, broken at spaces if it can."""
    lines = []
    while len(command) > room:
        at = command.rfind(" ", 0, room - 1) + 1 or room - 1
        lines.append(command[:at] + "\\")
        command = command[at:]
    return [*lines, command]
