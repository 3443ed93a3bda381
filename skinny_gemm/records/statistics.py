"""Medians with their uncertainty, and verdicts that respect it.

The interval of a median comes from order statistics: it assumes nothing about the distribution of the samples. A
verdict looks at intervals only, never at two medians alone. A difference of medians has its interval from a bootstrap.
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
    """What an exposed launch is timed by: samples of two graphs, equally many of each, in microseconds.

    Iterating and `len` go through both of them, one after the other, as a file of samples does.
    """

    both: Sequence[float]  #: a producer of x and the launch behind it
    alone: Sequence[float]  #: the producer alone

    def __post_init__(self):
        if len(self.both) != len(self.alone):
            raise ValueError(f"{len(self.both)} samples with the launch, but {len(self.alone)} without it")

    def __iter__(self) -> Iterator[float]:
        yield from self.both
        yield from self.alone

    def __len__(self) -> int:
        return len(self.both) + len(self.alone)


Samples = Sequence[float] | ExposedSamples  #: of one point, in microseconds per launch


class Verdict(StrEnum):
    """How the first of two variants compares with the second."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNDECIDED = "UNDECIDED"


def rank(samples: int, confidence: float = CONFIDENCE) -> int:
    """The 1-based rank r for which [r-th smallest, r-th largest] covers the true median with `confidence` or more.

    The largest such r. The median lies below the r-th smallest sample exactly if fewer than r of `samples` fair coins
    show heads; the other end is symmetric. ValueError if even the extremes do not reach `confidence`.
    """
    missed, r = 0, 0  # 2^samples times the chance of at most r heads, accumulated exactly
    while r < (samples + 1) // 2:
        missed += comb(samples, r)
        if missed / 2 ** (samples - 1) > 1 - confidence:  # both ends may miss
            break
        r += 1
    if r == 0:
        raise ValueError(f"{samples} samples cannot bound a median with {confidence:.0%} confidence.")
    return r


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of `samples` (at least 6 finite numbers for 95 %) and its interval by order statistics."""
    ordered = sorted(samples)
    count = len(ordered)
    if not all(map(isfinite, ordered)):
        raise ValueError("Every sample must be a finite number.")
    r = rank(count, confidence)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Interval(middle, ordered[r - 1], ordered[count - r])


def difference_interval(more: Sequence[float], less: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of `more` less that of `less` (at least 6 finite numbers each), and its interval by the bootstrap.

    The samples are drawn again, each side for itself, with a fixed seed: the same samples give the same interval.
    """
    point = median_interval(more, confidence).median - median_interval(less, confidence).median
    draw = random.Random(0)
    differences = sorted(
        median(draw.choices(more, k=len(more))) - median(draw.choices(less, k=len(less))) for _ in range(RESAMPLES)
    )
    tail = round(RESAMPLES * (1 - confidence) / 2)
    return Interval(point, min(differences[tail], point), max(differences[-1 - tail], point))


def interval_of(samples: Samples) -> Interval:
    """The time that a record states of its samples: their median, of exposed ones the difference of the two medians."""
    if isinstance(samples, ExposedSamples):
        return difference_interval(samples.both, samples.alone)
    return median_interval(samples)


class Row(Protocol):
    """The ends of an interval as a row of the records has them."""

    @property
    def low_us(self) -> float: ...
    @property
    def high_us(self) -> float: ...


def verdict(first: Interval | Row, second: Interval | Row, tolerance: float = TOLERANCE) -> Verdict:
    """Whether `first` takes less or more time than `second`.

    SAME if the intervals prove that the two differ by at most `tolerance` (a fraction); FASTER or SLOWER if they are
    disjoint otherwise; UNDECIDED if the samples support none of these.
    """
    (low_1, high_1), (low_2, high_2) = _ends(first), _ends(second)
    if high_1 <= low_2 * (1 + tolerance) and high_2 <= low_1 * (1 + tolerance):
        return Verdict.SAME
    if high_1 < low_2:
        return Verdict.FASTER
    if high_2 < low_1:
        return Verdict.SLOWER
    return Verdict.UNDECIDED


def _ends(time: Interval | Row) -> tuple[float, float]:
    return (time.low, time.high) if isinstance(time, Interval) else (time.low_us, time.high_us)
