"""Covering designs: few cases that together show all that many cases show."""

import heapq
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

Case = TypeVar("Case", bound=Hashable)


def cover(cases: Sequence[Case], traits: Callable[[Case], set]) -> list[Case]:
    """Few of `cases` that have every trait that any of them has: each adds the most to those before it."""
    traits_of = {case: traits(case) for case in cases}
    missing, picked = set().union(*traits_of.values()), []
    gains = [(-len(some), number) for number, some in enumerate(traits_of.values())]
    heapq.heapify(gains)
    while missing:
        _, number = heapq.heappop(gains)
        gain = len(traits_of[cases[number]] & missing)  # now; it was more when it was last looked at
        if gains and gain < -gains[0][0]:
            heapq.heappush(gains, (-gain, number))
        else:
            picked.append(cases[number])
            missing -= traits_of[cases[number]]
    return picked


def combinations(fields: dict, count: int) -> set:
    """Each `count` of the fields with their values."""
    return set(itertools.combinations(fields.items(), count))
