"""What every tactic can do: be read and written as text, say why it cannot run, and state what it occupies.

A tactic is a frozen dataclass of integers. Sliders, the command line, sweeps and records learn of a kernel from its
tactic type and nothing else.
"""

import csv
from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, fields
from functools import lru_cache
from math import ceil
from numbers import Integral
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from ..catalogue import data_dir
from ..device import Device
from ..problem import GemmProblem


@dataclass(frozen=True)
class Footprint:
    """What a tactic occupies on a device, before anything is compiled."""

    regions: tuple[tuple[str, int, int], ...]  #: shared memory of one CTA: (name, byte offset, bytes)
    smem_bytes: int  #: dynamic shared memory of one CTA
    threads: int  #: per CTA
    ctas: int  #: in the grid
    ctas_per_sm: int  #: that fit on one SM by shared memory and threads (registers are known only after compiling)
    waves: int  #: rounds in which the CTAs, or the clusters, become resident
    bytes_in_flight_per_sm: int  #: bytes of the ring buffers of the CTAs resident on the busiest SM

    def describe(self) -> str:
        """One line for people: `224 CTAs, up to 2 per SM, 1 wave, 208 KB in flight per SM` (the busiest)."""
        waves = "1 wave" if self.waves == 1 else f"{self.waves} waves"
        in_flight = self.bytes_in_flight_per_sm >> 10
        return f"{self.ctas} CTAs, up to {self.ctas_per_sm} per SM, {waves}, {in_flight} KB in flight per SM"


BF16_TOLERANCE = 4e-3  #: relative Frobenius error; rounding the exact result to BF16 costs about 1.7e-3
F32_TOLERANCE = 1e-5  #: of FP32 results


@dataclass(frozen=True)
class Result:
    """A part of a kernel's output: which columns of the output hold which columns of the product, and as what."""

    name: str
    columns: slice  #: of the output, in BF16 columns
    dtype: str  #: "bf16", or "f32": two BF16 columns make one value
    product: slice  #: columns of the product
    tolerance: float  #: relative Frobenius error against FP64


class Tactic(ABC):
    """Base of all tactic dataclasses; a subclass adds fields and the abstract methods."""

    kernel: ClassVar[str]  #: registry and command-line name

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Integral) or isinstance(value, bool):
                raise ValueError(f"{field.name} is {value!r}, but must be an integer")
            object.__setattr__(self, field.name, int(value))  # NumPy integers become Python's

    @classmethod
    def parse(cls, text: str) -> Self:
        """The tactic written as comma-separated integers in field order, as `str(tactic)` writes it."""
        names = [f.name for f in fields(cls)]
        parts = text.split(",")
        try:
            values = [int(part) for part in parts]
        except ValueError:
            values = []
        if len(values) != len(names):
            raise ValueError(f"tactic {text!r} is not {len(names)} comma-separated integers ({','.join(names)})")
        return cls(*values)

    def __str__(self) -> str:
        return ",".join(str(value) for value in astuple(self))

    @abstractmethod
    def why_not(self, problem: GemmProblem, device: Device) -> str | None:
        """None if this tactic can run `problem` on `device`, else one sentence that says why not."""

    def check(self, problem: GemmProblem, device: Device) -> None:
        """Raises ValueError with `why_not`'s sentence if this tactic cannot run."""
        if reason := self.why_not(problem, device):
            raise ValueError(f"tactic {self} cannot run {problem.n}x{problem.k} at M = {problem.m}: {reason}")

    @classmethod
    def unsupported(cls, problem: GemmProblem, device: Device) -> str | None:
        """Why no tactic at all can run `problem` on `device`, in words; None if one can."""
        try:
            cls.heuristic(problem, device)
        except ValueError as error:
            return str(error)
        return None

    @classmethod
    def problem(cls, problem: GemmProblem) -> GemmProblem:
        """`problem` as this kernel sees it; a kernel with more to say than M, N and K returns its own type."""
        return problem

    def specialisation(self, problem: GemmProblem) -> dict[str, int]:
        """What of `problem` one binary is compiled for; any M, unless a kernel says otherwise."""
        return {"n": problem.n, "k": problem.k}

    @classmethod
    def output(cls, problem: GemmProblem) -> np.ndarray:
        """A fresh output of `problem` as BF16 bits (uint16, a row per token), so that what is not written shows."""
        return np.full((problem.m, problem.n), 0xFFFF, np.uint16)  # NaN

    @classmethod
    def results(cls, problem: GemmProblem) -> tuple[Result, ...]:
        """Where the product x @ weight^T lies in an output; its other columns keep what `output` put there."""
        return (Result("out", slice(0, problem.n), "bf16", slice(0, problem.n), BF16_TOLERANCE),)

    @abstractmethod
    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """CTAs of a launch along x, y and z."""

    @abstractmethod
    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        """What this tactic occupies on `device` for `problem`."""

    @classmethod
    def choices(cls, problem: GemmProblem, device: Device) -> dict[str, tuple[int, ...]]:
        """For each field the values that appear in at least one legal tactic, ascending."""
        legal = cls.enumerate(problem, device)
        return {f.name: tuple(sorted({getattr(tactic, f.name) for tactic in legal})) for f in fields(cls)}

    @classmethod
    @abstractmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list[Self]:
        """Every legal tactic, in ascending field order."""

    @classmethod
    def default(cls, problem: GemmProblem, device: Device) -> Self:
        """The tactic to start from: the fastest recorded where there is one, else `heuristic`.

        Of the records those count that are of this device, N and K, and of M or the next M above that was recorded
        (chained, cold weights; data/best.csv). ValueError in words where no tactic is legal.
        """
        recorded = best_recorded(data_dir() / "best.csv").get((device.name, cls.kernel, problem.n, problem.k), {})
        covering = min((m for m in recorded if m >= problem.m), default=None)
        if covering is not None:
            try:
                tactic = cls.parse(recorded[covering])
            except ValueError as error:
                raise ValueError(
                    f"{data_dir() / 'best.csv'}, {cls.kernel} {problem.n}x{problem.k} M={covering}: {error}: "
                    "write it anew with python -m skinny_gemm.bench.tables"
                ) from error
            if tactic.why_not(problem, device) is None:
                return tactic
        return cls.heuristic(problem, device)

    @classmethod
    @abstractmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> Self:
        """A good tactic by reasoning alone, whatever was recorded; ValueError in words where none is legal."""


@lru_cache(maxsize=4)
def best_recorded(path: Path) -> dict[tuple[str, str, int, int], dict[int, str]]:
    """The fastest tactics of data/best.csv: (device, kernel, N, K) to M to tactic; {} if there is no such file."""
    best: dict[tuple[str, str, int, int], dict[int, str]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = row["device"], row["kernel"], int(row["n"]), int(row["k"])
                best.setdefault(key, {})[int(row["m"])] = row["tactic"]
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__} {error}): "
            "write it anew with python -m skinny_gemm.bench.tables"
        ) from error
    return best


def occupancy(smem_bytes: int, threads: int, device: Device) -> int:
    """CTAs of this size that fit on one SM of `device`, each charged the shared memory the system reserves for it."""
    return min(
        device.smem_per_sm // (smem_bytes + device.smem_reserved_per_cta),
        device.threads_per_sm // threads,
        device.ctas_per_sm,
    )


def waves(ctas: int, ctas_per_sm: int, device: Device) -> int:
    """Rounds in which the grid's CTAs become resident."""
    return ceil(ctas / (device.sms * max(ctas_per_sm, 1)))
