"""What a kernel's performance model is made of: `records.model` answers with it, `records.fit` fits it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..device import Device
from ..problem import GemmProblem

MODES = ("isolated", "chained")  #: an exposed time is a difference to a producer, which no term here knows

Terms = dict[str, np.ndarray]  #: microseconds


@dataclass(frozen=True)
class Coefficient:
    """One number of a formula. `start` is where the fit begins."""

    name: str
    unit: str
    meaning: str
    start: float
    modes: tuple[str, ...] = MODES


@dataclass(frozen=True)
class Formula:
    """The model of one kernel: what it needs of a tactic, and the time that follows with given coefficients."""

    coefficients: tuple[Coefficient, ...]
    quantities: Callable[[Any, GemmProblem, Device], dict[str, float]]  #: of a tactic of the kernel, on its problem
    terms: Callable[[Mapping[str, np.ndarray], Mapping[str, float], str], Terms]  #: the last one, "time", is the result

    def of(self, mode: str) -> tuple[Coefficient, ...]:
        """The coefficients that a mode has."""
        return tuple(c for c in self.coefficients if mode in c.modes)


SHARPNESS = Coefficient("sharpness", "", "p of the soft maximum; a large one hides all but the largest term", 2.5)


def soft_maximum(p: float, *terms: np.ndarray) -> np.ndarray:
    """The p-norm |a, b, c| = (a^p + b^p + c^p)^(1/p) of terms, none of which counts where it is negative."""
    largest = np.maximum.reduce(terms)
    return largest * sum((np.maximum(term, 0) / largest) ** p for term in terms) ** (1 / p)


def hbm_rate(device: Device) -> float:
    """Bytes per microsecond that the device reads from HBM."""
    return device.ceilings["hbm_read_tbs"] * 1e6
