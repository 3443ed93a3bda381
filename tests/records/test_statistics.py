"""Statistics of the benchmark.

Properties: the median and its interval equal a brute-force reading of the definition; the intervals of a median and of
a difference of medians cover the truth as often as promised; verdicts are symmetric, come from the intervals alone, and
never contradict them.
"""

import itertools
import random
import statistics as stdlib
from collections import namedtuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm.records.statistics import Verdict, difference_interval, median_interval, rank, verdict

times = st.floats(0.1, 1e4, allow_nan=False)
Time = namedtuple("Time", ("median_us", "low_us", "high_us"))  # of a record


@st.composite
def intervals(draw):
    low, median, high = sorted(draw(st.tuples(times, times, times)))
    return Time(median, low, high)


@given(st.lists(times, min_size=6, max_size=60))
def test_median_and_ends_are_order_statistics(samples):
    interval = median_interval(samples)
    ordered = sorted(samples)
    r = rank(len(samples))
    assert interval.median == pytest.approx(stdlib.median(samples))
    assert (interval.low, interval.high) == (ordered[r - 1], ordered[-r])
    assert interval.low <= interval.median <= interval.high


@pytest.mark.parametrize("count", range(6, 15))
def test_rank_is_the_largest_that_covers_by_counting_every_outcome(count):
    """Each sample falls below or above the true median like a fair coin: enumerate all 2^count outcomes."""
    below = [sum(outcome) for outcome in itertools.product((0, 1), repeat=count)]

    def coverage(r):  # the r-th smallest lies below the median and the r-th largest above
        return sum(r <= b <= count - r for b in below) / 2**count

    widest_allowed = max(r for r in range(1, count // 2 + 1) if coverage(r) >= 0.95)
    assert rank(count) == widest_allowed


def test_interval_covers_the_true_median_of_a_skewed_distribution():
    rng = random.Random(0)
    runs = [median_interval([rng.expovariate(1.0) for _ in range(30)]) for _ in range(2000)]
    true_median = 0.6931471805599453
    assert sum(i.low <= true_median <= i.high for i in runs) / len(runs) > 0.94


def test_a_difference_of_medians_is_covered_as_often_as_promised():
    rng = random.Random(0)
    pairs = [([rng.gauss(9, 1) for _ in range(25)], [rng.gauss(5, 0.5) for _ in range(25)]) for _ in range(100)]
    found = [difference_interval(more, less) for more, less in pairs]
    assert sum(i.low <= 4 <= i.high for i in found) >= 88
    assert max(i.high - i.low for i in found) < 3


@given(st.lists(times, min_size=6, max_size=30), st.lists(times, min_size=6, max_size=30))
@settings(max_examples=20, deadline=None)
def test_a_difference_is_that_of_the_medians_and_the_same_every_time(more, less):
    interval = difference_interval(more, less)
    assert interval.median == pytest.approx(stdlib.median(more) - stdlib.median(less))
    assert interval.low <= interval.median <= interval.high and interval == difference_interval(more, less)
    assert min(more) - max(less) <= interval.low and interval.high <= max(more) - min(less)


@pytest.mark.parametrize("count", range(6))
def test_too_few_samples_are_refused(count):
    with pytest.raises(ValueError, match=f"{count} samples cannot bound"):
        median_interval([1.0] * count)


def test_samples_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        median_interval([1.0] * 9 + [float("nan")])


def test_many_samples_do_not_overflow():
    assert 950 < rank(2000) < 1000  # 2^2000 is beyond a float


OPPOSITE = {
    Verdict.FASTER: Verdict.SLOWER,
    Verdict.SLOWER: Verdict.FASTER,
    Verdict.SAME: Verdict.SAME,
    Verdict.UNDECIDED: Verdict.UNDECIDED,
}


@given(intervals(), intervals(), st.floats(0, 0.1))
def test_swapping_the_variants_swaps_the_verdict(a, b, tolerance):
    assert verdict(b, a, tolerance) == OPPOSITE[verdict(a, b, tolerance)]


@given(intervals(), intervals(), st.floats(0, 0.1))
def test_verdicts_hold_for_every_pair_of_times_inside_the_intervals(a, b, tolerance):
    answer = verdict(a, b, tolerance)
    if answer == Verdict.FASTER:
        assert a.high_us < b.low_us
    if answer == Verdict.SAME:
        for x, y in itertools.product((a.low_us, a.high_us), (b.low_us, b.high_us)):
            assert max(x, y) <= min(x, y) * (1 + tolerance) * (1 + 1e-12)
    if answer == Verdict.UNDECIDED:
        assert a.low_us <= b.high_us and b.low_us <= a.high_us


@given(intervals(), intervals(), times)
def test_medians_alone_decide_nothing(a, b, other):
    moved = a._replace(median_us=min(max(other, a.low_us), a.high_us))
    assert verdict(moved, b) == verdict(a, b)


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ((10.0, 9.9, 10.1), (12.0, 11.9, 12.1), Verdict.FASTER),
        ((12.0, 11.9, 12.1), (10.0, 9.9, 10.1), Verdict.SLOWER),
        ((10.0, 9.99, 10.01), (10.05, 10.04, 10.06), Verdict.SAME),
        ((10.0, 9.0, 11.0), (10.0, 9.0, 11.0), Verdict.UNDECIDED),
    ],
)
def test_examples(a, b, answer):
    assert verdict(Time(*a), Time(*b)) == answer
