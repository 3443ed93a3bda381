"""What a record says: the key of a measurement, its row, its campaign, and what either of them must be.

A row's `kernel` is one of ours, a peer or a bound: then `tactic` names the probe's shape, and `m` is 0 without tokens.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, get_origin, get_type_hints

from ..checks import check_choice, check_integer
from ..tactics import KERNELS
from .statistics import MINIMUM_SAMPLES

#: Kernels of others that ours are compared with; `bench.peers` runs them.
PEERS = ("cublas", "cublaslt", "triton", "flashinfer", "simt")
BOUNDS = ("stream", "dependency-floor")  #: probes that no kernel can beat; `bench.bounds` runs them
#: "isolated": no PDL between launches; "chained": PDL, back to back; "exposed": what a launch adds to x's producer
MODES = ("isolated", "chained", "exposed")
WEIGHTS = ("cold", "warm")  #: "cold": rotating through more than 5x L2; "warm": one copy
PROCESSES = ("quiet", "busy")  #: what the measuring process had used before: few streams, or many; `bench.process`
MOST = 2**53  #: integers from there on are not all exact in a plot
DROP = 0.95  #: an SM clock under load below this part of its highest counts as dropped


@dataclass(frozen=True)
class Point:
    """What is measured once: the key of a record within its campaign."""

    kernel: str
    n: int
    k: int
    m: int
    tactic: str = ""
    mode: str = "chained"
    weights: str = "cold"
    process: str = "quiet"

    def __str__(self) -> str:
        tactic = f" [{self.tactic}]" if self.tactic else ""
        return f"{self.kernel}{tactic} {self.n}x{self.k} M={self.m} {self.mode} {self.weights} {self.process}"


@dataclass(frozen=True)
class Record:
    """One row of records.csv."""

    campaign: str
    device: str
    kernel: str
    n: int
    k: int
    m: int
    tactic: str
    mode: str
    weights: str
    median_us: float
    low_us: float  #: low and high end of the median's 95 % interval
    high_us: float
    samples: int
    relative_error: float  #: relative Frobenius error against FP64; NaN for a bound, which computes no product
    bytes: int  #: that one launch must move
    process: str = "quiet"  #: which all campaigns were that lack the column

    @property
    def is_bound(self) -> bool:
        return self.kernel in BOUNDS

    @property
    def is_ours(self) -> bool:
        return self.kernel not in (*PEERS, *BOUNDS)

    @property
    def point(self) -> Point:
        return Point(self.kernel, self.n, self.k, self.m, self.tactic, self.mode, self.weights, self.process)


TYPES: dict[str, Any] = get_type_hints(Record)  #: of the columns of records.csv, in order
COLUMNS = tuple(TYPES)
EARLIER_COLUMNS = COLUMNS[: COLUMNS.index("process")]  #: of campaigns from before the process was part of the method


def fastest(rows: Iterable[Record]) -> Record | None:
    """The one of `rows` with the least median, the first of equals; None of none."""
    return min(rows, key=lambda row: row.median_us, default=None)


@dataclass(frozen=True)
class Campaign:
    """What one campaign ran on and how; the content of campaign.json."""

    id: str
    device: str  #: catalogue name, such as "h200"
    gpu: str  #: as the driver names it
    driver: str
    cuda: str
    torch: str
    dsl: str
    commit: str
    dirty: bool  #: uncommitted changes in the working tree
    date: str  #: UTC, ISO 8601
    command: str  #: reproduces the campaign
    ceilings: Mapping[str, float] = field(default_factory=dict)  #: measured in this campaign; names as in `device`
    clocks: Mapping[str, Any] = field(default_factory=dict)  #: from NVML; `dropped` flags a slow run
    method: Mapping[str, Any] = field(default_factory=dict)  #: replays, rotation, seeds
    failures: Sequence[Mapping[str, Any]] = ()  #: points that could not be measured, each with its `reason` in words
    complete: bool = False  #: False while it runs, and after an interrupt
    board: str = ""  #: UUID of the GPU, of several after a resume on another one; "" if unknown

    @cached_property
    def slow(self) -> frozenset[tuple[int, int, int, str]]:
        """The (n, k, m, process) in whose measuring the SM clock was seen dropped; a bound has m = 0. See `DROP`."""
        during = [s for s in self.clocks.get("samples", ()) if s.get("when") == "during" and "n" in s]
        least = DROP * max((s["sm_mhz"] for s in during), default=0)
        slow = (s for s in during if s["sm_mhz"] < least)
        return frozenset((s["n"], s["k"], s["m"], s.get("process", "quiet")) for s in slow)


def is_slow(row: Record, campaign: Campaign) -> bool:
    """Whether `row` was measured while the SM clock had dropped."""
    return (row.n, row.k, row.m, row.process) in campaign.slow


def failed_point(failure: Mapping[str, Any]) -> Point:
    """The point of one of `Campaign.failures`, quiet if it does not say; KeyError if it names none."""
    named = {"process": "quiet", **failure}
    return Point(**{f.name: named[f.name] for f in fields(Point)})


def check_record(row: Record) -> None:
    """ValueError says what of the row breaks the schema."""
    for name in ("campaign", "device", "kernel"):
        if not getattr(row, name):
            raise ValueError(f"{name} is empty")
    for name, allowed in (
        ("mode", MODES), ("weights", WEIGHTS), ("process", PROCESSES), ("kernel", (*KERNELS, *PEERS, *BOUNDS)),
    ):  # fmt: skip
        check_choice(name, getattr(row, name), allowed)
    least = {"n": 1, "k": 1, "m": 0 if row.is_bound else 1, "samples": MINIMUM_SAMPLES, "bytes": 1}
    for name, minimum in least.items():
        check_integer(name, getattr(row, name), minimum, MOST - 1)
    least_us = -math.inf if row.mode == "exposed" else 0  # the interval of a difference may reach below zero
    if not (least_us < row.low_us <= row.median_us <= row.high_us < math.inf and row.median_us > 0):
        times = f"{row.low_us}, {row.median_us}, {row.high_us}"
        raise ValueError(f"low_us, median_us, high_us are {times}, but must be positive and ascend")
    if not (row.relative_error >= 0 or row.is_bound):
        raise ValueError(f"relative_error is {row.relative_error}, but must be a number of at least 0 for {row.kernel}")


def check_campaign(campaign: Campaign) -> None:
    """ValueError says what of the campaign breaks the schema."""
    for name, hint in get_type_hints(Campaign).items():
        value, kind = getattr(campaign, name), get_origin(hint) or hint
        if not isinstance(value, kind):
            raise ValueError(f"{name} is {value!r}, but must be a {kind.__name__}")
    for name, value in campaign.ceilings.items():
        if not isinstance(value, int | float):
            raise ValueError(f"ceiling {name} is {value!r}, but must be a number")
    for failure in campaign.failures:
        try:
            failed_point(failure)
        except (TypeError, KeyError):
            raise ValueError(f"failure {failure!r} does not name a point") from None
    try:
        _ = campaign.slow
    except (TypeError, KeyError, AttributeError):
        raise ValueError("the samples of clocks are not such as this program writes") from None
