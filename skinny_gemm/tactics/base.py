"""What every tactic, a frozen dataclass of integers, can do: all that the package asks of a kernel."""

from abc import ABC, abstractmethod
from dataclasses import MISSING, astuple, dataclass, fields, replace
from math import ceil
from typing import ClassVar, Self

import numpy as np

from ..checks import is_integer
from ..device import Device
from ..layouts import WARP
from ..layouts.banks import Access
from ..problem import GemmProblem
from . import defaults
from .formula import Formula

MAX_M = 64  #: the most tokens of any kernel: what sliders, curves and buffers go up to


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


#: where a kernel lets the next launch start (`griddepcontrol.launch_dependents`): before all else, or after the copies
#: of its last weights; the values of a field `trigger`
TRIGGERS = (FIRST, LAST) = (0, 1)
TRIGGER_WORDS = {"words": ("first", "after the last tile")}

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


@dataclass(frozen=True)
class Tactic(ABC):
    """A subclass names its kernel, adds integer fields, writes the abstract methods and overrides what differs.

    Its first field has no default. `metadata={"words": (...)}` of a field has a word for each of its values 0, 1, ...
    """

    kernel: ClassVar[str]  #: registry and command-line name
    module: ClassVar[str]  #: whose `build(problem, tactic, pdl)` makes the kernel; by default kernels/<its name>
    max_m: ClassVar[int] = MAX_M  #: tokens that the kernel takes
    max_n: ClassVar[int] = (1 << 31) - 16  #: weight rows that it can count
    n_multiple: ClassVar[int] = 1  #: what N is a multiple of
    k_multiple: ClassVar[int] = 1  #: what K is a multiple of
    outputs: ClassVar[tuple[str, ...]] = ("bf16",)  #: what it can store; of several, `build` has the option `output`
    baselines: ClassVar[tuple[str, ...]] = ()  #: kernels of ours that a campaign measures beside it
    formula: ClassVar[Formula | None] = None  #: its performance model

    def __init_subclass__(cls) -> None:
        if not hasattr(cls, "module"):
            cls.module = f"skinny_gemm.kernels.{cls.kernel.replace('-', '_')}"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not is_integer(value):
                raise ValueError(f"{field.name} is {value!r}, but must be an integer")
            object.__setattr__(self, field.name, int(value))  # NumPy integers become Python's

    @classmethod
    def parse(cls, text: str) -> Self:
        """The tactic written as `syntax` says, as by `str(tactic)`; ValueError, in a sentence, for any other text."""
        every = fields(cls)
        try:
            values = [int(part) for part in text.split(",")]
        except ValueError:
            values = []
        if not sum(f.default is MISSING for f in every) <= len(values) <= len(every):
            raise ValueError(f"tactic {text!r} is not {len(every)} comma-separated integers ({cls.syntax()})")
        return cls(*values)

    def __str__(self) -> str:
        """Without the fields at the end that have their defaults: so a kernel with a new field keeps its records."""
        changed = [f.default is MISSING or getattr(self, f.name) != f.default for f in fields(self)]
        written = len(changed) - changed[::-1].index(True)
        return ",".join(map(str, astuple(self)[:written]))

    @classmethod
    def syntax(cls) -> str:
        """The fields in the order in which a tactic's text has them, and which of them, at its end, may be left off."""
        defaults = [
            f"; {f.name} may be left off, then it is {f.default}" for f in fields(cls) if f.default is not MISSING
        ]
        return ",".join(f.name for f in fields(cls)) + "".join(defaults)

    @classmethod
    def in_words(cls, field: str, value: int) -> str:
        """`value` of `field` for people to read: its word, where the field's metadata has `words`, else the number."""
        words = next((f.metadata.get("words") for f in fields(cls) if f.name == field), None)
        return words[value] if words else str(value)

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
    def refusal(cls, problem: GemmProblem) -> str | None:
        """Why the kernel takes no such M, N or K, whatever the tactic and the device; None if it does."""
        if problem.m > cls.max_m:
            return f"M is {problem.m}, but this kernel takes 1 to {cls.max_m} tokens"
        if problem.n % cls.n_multiple:
            return f"N = {problem.n} is not a multiple of {cls.n_multiple}"
        if problem.n > cls.max_n:
            return f"N = {problem.n} is more than {cls.max_n}, the most rows the kernel can count"
        if problem.k % cls.k_multiple:
            return f"K = {problem.k} is not a multiple of {cls.k_multiple}"
        return None

    @classmethod
    def problem(cls, problem: GemmProblem) -> GemmProblem:
        """`problem` as this kernel sees it, such as a `FrontProblem` where it needs more than M, N and K."""
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

    @classmethod
    def is_plain(cls) -> bool:
        """Whether M, N and K are all that the kernel needs to know, and a BF16 product `[M, N]` all that it writes."""
        smallest = GemmProblem(1, cls.n_multiple, cls.k_multiple)
        if cls.problem(smallest) is not smallest:
            return False
        output_is_product = cls.output(smallest).shape == (smallest.m, smallest.n)
        return output_is_product and cls.results(smallest) == Tactic.results(smallest)

    @abstractmethod
    def grid(self, problem: GemmProblem) -> tuple[int, int, int]:
        """CTAs of a launch along x, y and z."""

    @abstractmethod
    def footprint(self, problem: GemmProblem, device: Device) -> Footprint:
        """What this tactic occupies on `device` for `problem`."""

    def shared_accesses(self, problem: GemmProblem) -> list[Access]:
        """Every kind of warp-wide access to shared memory, by the kernel's layouts; [] if it describes none."""
        return []

    @classmethod
    @abstractmethod
    def enumerate(cls, problem: GemmProblem, device: Device) -> list[Self]:
        """Every legal tactic, in ascending field order."""

    @classmethod
    def choices(cls, problem: GemmProblem, device: Device) -> dict[str, tuple[int, ...]]:
        """For each field the values that appear in at least one legal tactic, ascending."""
        legal = cls.enumerate(problem, device)
        return {f.name: tuple(sorted({getattr(tactic, f.name) for tactic in legal})) for f in fields(cls)}

    @classmethod
    @abstractmethod
    def heuristic(cls, problem: GemmProblem, device: Device) -> Self:
        """A good tactic by reasoning alone, whatever was recorded; ValueError in words where none is legal."""

    @classmethod
    def default(cls, problem: GemmProblem, device: Device) -> Self:
        """The one `recorded`, else `heuristic`; ValueError if data/best.csv is broken."""
        return cls.recorded(problem, device) or cls.heuristic(problem, device)

    @classmethod
    def recorded(cls, problem: GemmProblem, device: Device) -> Self | None:
        """The fastest recorded tactic of this M or the next M above that has one; None if there is none, or illegal."""
        for row in defaults.covering(device.name, cls.kernel, problem)[:1]:
            try:
                tactic = cls.parse(row.tactic)
            except ValueError as error:
                where = f"{defaults.path()}, {cls.kernel} {problem.n}x{problem.k} M={row.m}"
                raise ValueError(f"{where}: {error}: {defaults.CURE}") from error
            return tactic if tactic.why_not(problem, device) is None else None
        return None

    @classmethod
    def coarse(cls, problem: GemmProblem, device: Device) -> list[Self]:
        """The heuristic tactic and those around it, pruned by reason; it does not depend on what was recorded."""
        start = cls.heuristic(problem, device)
        return list(dict.fromkeys([start, *start.variations(problem, device)]))

    def variations(self, problem: GemmProblem, device: Device) -> list[Self]:
        """What a coarse grid tries around this heuristic tactic: every legal tactic that differs in one field."""
        choices = self.choices(problem, device)
        changed = (replace(self, **{f.name: value}) for f in fields(self) for value in choices[f.name])
        return [tactic for tactic in changed if tactic.why_not(problem, device) is None]


def register_limit(threads: int) -> int:
    """Registers that a thread can get: a quarter of the SM's 65,536 for every fourth warp of the CTA, 255 at most."""
    return min(255, 16384 // (ceil(threads / WARP / 4) * WARP) // 8 * 8)


def occupancy(smem_bytes: int, threads: int, device: Device, registers: int = 0) -> int:
    """CTAs of this size that fit on one SM of `device`, each charged the shared memory the system reserves for it.

    `registers` of a thread count if given, as an estimate: one CTA they always leave room for.
    """
    by_memory = device.smem_per_sm // (smem_bytes + device.smem_reserved_per_cta)
    fitting = min(by_memory, device.threads_per_sm // threads, device.ctas_per_sm)
    by_registers = device.registers_per_sm // (ceil(registers / 8) * 8 * threads) if registers else fitting
    return min(fitting, max(by_registers, 1))
