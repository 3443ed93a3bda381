"""Two campaigns, point by point: of one commit on one GPU, they tell how far the records can be trusted."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .schema import Campaign, Record
from .statistics import TOLERANCE, Verdict, verdict
from .store import campaign_folder, read_campaign

WORST = 12  #: points that the text shows


@dataclass(frozen=True)
class Pair:
    """One point in both campaigns."""

    first: Record
    second: Record
    verdict: Verdict  #: of the second against the first

    @property
    def ratio(self) -> float:
        """The second's time over the first's."""
        return self.second.median_us / self.first.median_us

    @property
    def change(self) -> float:
        """By how much the larger median exceeds the smaller, as a fraction."""
        return max(self.ratio, 1 / self.ratio) - 1


@dataclass(frozen=True)
class Comparison:
    """Two campaigns and the points that both have."""

    first: Campaign
    second: Campaign
    pairs: tuple[Pair, ...]  #: the largest changes first
    only_first: int  #: points that the other campaign lacks
    only_second: int
    tolerance: float

    @property
    def counts(self) -> dict[str, int]:
        """Points of each verdict."""
        return _counts(self.pairs)

    @property
    def shares(self) -> dict[str, float]:
        """The fraction of the points of each verdict."""
        return {name: count / len(self.pairs) for name, count in self.counts.items()}

    @property
    def median_ratio(self) -> float:
        """The median of the second's times over the first's."""
        return median(pair.ratio for pair in self.pairs)

    def report(self) -> dict:
        """Plain values for JSON."""
        facts = ("id", "device", "gpu", "commit", "dirty", "date", "complete")
        points = [
            vars(pair.first.point)
            | {"first_us": pair.first.median_us, "second_us": pair.second.median_us}
            | {"ratio": round(pair.ratio, 4), "verdict": str(pair.verdict)}
            for pair in self.pairs
        ]
        return {
            "first": {name: getattr(self.first, name) for name in facts},
            "second": {name: getattr(self.second, name) for name in facts},
            **{name: getattr(self, name) for name in ("same_commit", "same_board", "tolerance")},
            "common": len(self.pairs),
            **{name: getattr(self, name) for name in ("only_first", "only_second", "counts")},
            "shares": {name: round(share, 4) for name, share in self.shares.items()},
            "median_ratio": round(self.median_ratio, 5),
            "points": points,
        }

    @property
    def same_commit(self) -> bool:
        """Whether the same source was measured; not if either had uncommitted changes."""
        return self.first.commit == self.second.commit and not (self.first.dirty or self.second.dirty)

    @property
    def same_board(self) -> bool | None:
        """Whether one and the same GPU ran both; None if that is not known."""
        return self.first.board == self.second.board if self.first.board and self.second.board else None

    def lines(self) -> list[str]:
        """Text: what was compared, verdicts in all and by kernel, mode and process, points that changed the most."""
        source = "the same commit" if self.same_commit else "different commits"
        if self.same_board is not None:
            source += ", the same board" if self.same_board else ", different boards (which differ by some percent)"
        only = f"{self.only_first:,} only in the first, {self.only_second:,} only in the second"
        text = [
            f"second: {_line(self.second)}",
            f"first:  {_line(self.first)}",
            f"{source}; the second takes {self.median_ratio:.4f} times as long (median)",
            f"points: {len(self.pairs):,} in both, {only}",
            "",
            f"{'kernel':17} {'mode':9} {'process':7} {'points':>6}" + "".join(f" {name:>9}" for name in Verdict),
        ]
        groups: dict[tuple[str, str, str], list[Pair]] = {}
        for pair in self.pairs:
            groups.setdefault((pair.first.kernel, pair.first.mode, pair.first.process), []).append(pair)
        for (kernel, mode, process), pairs in [*sorted(groups.items()), (("all", "", ""), self.pairs)]:
            shares = "".join(f" {count / len(pairs):9.1%}" for count in _counts(pairs).values())
            text.append(f"{kernel:17} {mode:9} {process:7} {len(pairs):6}{shares}")
        changed = [pair for pair in self.pairs if pair.verdict != Verdict.SAME]
        if changed:
            text += ["", f"the largest changes of the {len(changed):,} points that are not the SAME, microseconds:"]
            for pair in changed[:WORST]:
                first, second = (
                    f"{r.median_us:8.3f} ({r.low_us:.3f} to {r.high_us:.3f})" for r in (pair.first, pair.second)
                )
                text.append(f"{pair.verdict:9} {first} -> {second} {pair.ratio - 1:+7.1%}  {pair.first.point}")
        return text


def compare(first: str | Path, second: str | Path, tolerance: float = TOLERANCE) -> Comparison:
    """Compares two campaigns, each an id or a folder; ValueError if one is broken, or they have no point in common."""
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance is {tolerance}, but must be a fraction of 0 to 1.")
    (one, rows_one), (two, rows_two) = (read_campaign(campaign_folder(name)) for name in (first, second))
    of_one, of_two = ({row.point: row for row in rows} for rows in (rows_one, rows_two))
    common = [point for point in of_one if point in of_two]
    if not common:
        raise ValueError(f"{one.id} and {two.id} have no point in common.")
    pairs = [Pair(of_one[p], of_two[p], verdict(of_two[p], of_one[p], tolerance)) for p in common]
    pairs.sort(key=lambda pair: -pair.change)
    return Comparison(one, two, tuple(pairs), len(of_one) - len(common), len(of_two) - len(common), tolerance)


def _counts(pairs: Iterable[Pair]) -> dict[str, int]:
    points = Counter(pair.verdict for pair in pairs)
    return {str(name): points[name] for name in Verdict}


def _line(campaign: Campaign) -> str:
    state = "" if campaign.complete else ", NOT complete"
    dirty = " with uncommitted changes" if campaign.dirty else ""
    return f"{campaign.id}: {campaign.gpu}, commit {campaign.commit[:8]}{dirty}, {campaign.date}{state}"
