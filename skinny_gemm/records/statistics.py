"""Medians with their uncertainty, and verdicts that respect it: they look at intervals, never at two medians alone.

A median's interval comes from order statistics, which assume no distribution; a difference's from a bootstrap.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import comb, isfinite
from statistics import median
from typing import Protocol

CONFIDENCE = 0.95
MINIMUM_SAMPLES = 6  #: fewer cannot bound a median at 95 %: the extremes of five samples miss it in 6.25 % of cases
RESAMPLES = 2000  #: of the bootstrap
TOLERANCE = 0.01  #: two times within 1 % count as the same; clocks differ by that much between runs


@dataclass(frozen=True)
class Interval:
    """A median between the ends of its 95 % interval, in one unit (microseconds in the records)."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class ExposedSamples:
    """What an exposed launch is timed by: samples of two graphs, equally many, in us; iterates over both in turn."""

    both: Sequence[float]  #: a producer of x and the launch behind it
    alone: Sequence[float]  #: the producer alone

    def __post_init__(self):
        if len(self.both) != len(self.alone):
            raise ValueError(f"{len(self.both)} samples with the launch, but {len(self.alone)} without it")

    def __iter__(self) -> Iterator[float]:
        yield from (*self.both, *self.alone)

    def __len__(self) -> int:
        return len(self.both) + len(self.alone)


Samples = Sequence[float] | ExposedSamples  #: of one point, in microseconds per launch


class Timed(Protocol):
    """What has a median's 95 % interval, in microseconds: a `Record`, a decode step."""

    @property
    def low_us(self) -> float: ...
    @property
    def high_us(self) -> float: ...


class Verdict(StrEnum):
    """How the first of two variants compares with the second."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"


def rank(samples: int) -> int:
    """The largest r for which [r-th smallest, r-th largest] covers the median with 95 %; ValueError if none does.

    The median lies below the r-th smallest sample exactly if fewer than r of `samples` fair coins show heads.
    """
    missed, r = 0, 0  # 2^samples times the chance of at most r heads, accumulated exactly
    while r < (samples + 1) // 2:
        missed += comb(samples, r)
        if missed / 2 ** (samples - 1) > 1 - CONFIDENCE:  # both ends may miss
            break
        r += 1
    if r == 0:
        raise ValueError(f"{samples} samples cannot bound a median with {CONFIDENCE:.0%} confidence.")
    return r


def median_interval(samples: Sequence[float]) -> Interval:
    """The median of `samples` (at least 6 finite numbers) and its interval by order statistics."""
    ordered = sorted(samples)
    if not all(map(isfinite, ordered)):
        raise ValueError("Every sample must be a finite number.")
    r = rank(len(ordered))
    return Interval(median(ordered), ordered[r - 1], ordered[-r])


def difference_interval(more: Sequence[float], less: Sequence[float]) -> Interval:
    """The median of `more` less that of `less` (at least 6 finite numbers each), with a seeded bootstrap's interval."""
    point = median_interval(more).median - median_interval(less).median
    draw = random.Random(0)
    differences = sorted(
        median(draw.choices(more, k=len(more))) - median(draw.choices(less, k=len(less))) for _ in range(RESAMPLES)
    )
    tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Interval(point, min(differences[tail], point), max(differences[-1 - tail], point))


def interval_of(samples: Samples) -> Interval:
    """The time that a record states of its samples: their median, of exposed ones the difference of the two medians."""
    if isinstance(samples, ExposedSamples):
        return difference_interval(samples.both, samples.alone)
    return median_interval(samples)


def verdict(first: Timed, second: Timed, tolerance: float = TOLERANCE) -> Verdict:
    """SAME if the intervals prove that `first` and `second` differ by at most `tolerance` (a fraction).

    Otherwise FASTER or SLOWER if they are disjoint, else UNDECIDED.
    """
    if first.high_us <= second.low_us * (1 + tolerance) and second.high_us <= first.low_us * (1 + tolerance):
        return Verdict.SAME
    if first.high_us < second.low_us:
        return Verdict.FASTER
    return Verdict.SLOWER if second.high_us < first.low_us else Verdict.UNDECIDED
