"""In which order warps run and copies land: a schedule chooses whenever the machine asks."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..checks import check_integer


@dataclass(frozen=True)
class InOrder:
    """Deterministic: the first group that can run does; copies land when none can, oldest first."""

    name = "in_order"

    def start(self, chunk: int) -> "InOrder":
        return self

    def partition(self, rows: int, warps: int) -> list[tuple[slice, np.ndarray]]:
        """The groups a chunk starts with, as (slice of CTAs, warp numbers)."""
        return [(slice(0, rows), np.arange(warps))]

    def order(self, rows: int) -> np.ndarray:
        """In which order the chunk's CTAs become rows."""
        return np.arange(rows)

    def choose(self, ready: list[Any], flying: list[Any]) -> Any:
        """What happens next: a group of `ready` runs, or one of the `flying` lands."""
        return ready[0] if ready else flying[0]

    def parts(self, ctas: int, warps: int) -> None:
        """Which lanes (CTAs, warps, 32) of a transfer land apart, as numbers; None for all at once."""
        return None

    def dares(self, what: str) -> bool:
        """Whether a copy or transfer lands as it is issued ("land"), a `try_wait` fails that could succeed ("fail"), or
        the group that runs is cut off after a block ("cut")."""
        return False


@dataclass(frozen=True)
class Adversarial:
    """Random by `seed`: every warp runs on its own, CTAs in subsets that cut through clusters, and copies and transfers
    land as early or as late as allowed, the lanes of one transfer apart."""

    seed: int
    subsets: int = 2  #: of a chunk's CTAs, each of which runs apart

    @property
    def name(self) -> str:
        return f"adversarial({self.seed})"

    def start(self, chunk: int) -> "_Adversary":
        return _Adversary(np.random.default_rng((self.seed, chunk)), self.subsets)


class _Adversary:
    """One chunk's adversary, with the methods of `InOrder`; its mood is drawn once."""

    def __init__(self, random: np.random.Generator, subsets: int):
        self.random, self.subsets = random, subsets
        self.shares = {"land": random.choice([0.0, 0.0, 0.5, 1.0]), "fail": 0.1}  # of the cases in which it dares
        self.eager = random.choice([0.0, 0.1, 0.5])  # how readily batches complete while warps could run
        self.shares["cut"] = random.choice([0.0, 0.2])
        self.favourite = random.random() < 0.5  # run one group as far as it can go, or all in turn

    def order(self, rows: int) -> np.ndarray:
        return self.random.permutation(rows)

    def partition(self, rows: int, warps: int) -> list[tuple[slice, np.ndarray]]:
        count = min(self.subsets, rows)
        cuts = sorted(self.random.choice(np.arange(1, rows), count - 1, replace=False).tolist()) if count > 1 else []
        return [(slice(*part), np.array([w])) for part in pairwise([0, *cuts, rows]) for w in range(warps)]

    def choose(self, ready: list[Any], flying: list[Any]) -> Any:
        if flying and (not ready or self.random.random() < self.eager):
            return flying[self.random.integers(len(flying))]
        return ready[0] if self.favourite else ready[self.random.integers(len(ready))]

    def parts(self, ctas: int, warps: int) -> np.ndarray:
        return self.random.integers(0, self.random.integers(1, 4), (ctas, warps, 32))

    def dares(self, what: str) -> bool:
        return self.shares[what] > 0 and self.random.random() < self.shares[what]


def in_order() -> InOrder:
    """The schedule for stepping and for speed."""
    return InOrder()


def adversarial(seed: int, subsets: int = 2) -> Adversarial:
    """A random schedule; a correct kernel gives the same bits under every seed."""
    return Adversarial(check_integer("seed", seed, 0), subsets)


def named(schedule: Any) -> InOrder | Adversarial:
    """A schedule from its name (`in_order`, `adversarial(3)`) or from itself."""
    if isinstance(schedule, InOrder | Adversarial):
        return schedule
    if schedule == "in_order":
        return InOrder()
    if isinstance(schedule, str) and schedule.startswith("adversarial(") and schedule[12:-1].isdecimal():
        return Adversarial(int(schedule[12:-1]))
    raise ValueError(f'schedule {schedule!r} must be "in_order" or adversarial(seed).')
