"""What a campaign measures, one thing at a time, and what comes of it."""

from collections.abc import Callable
from dataclasses import dataclass

from ..problem import GemmProblem
from ..records import Point, Samples
from ..tactics import KERNELS

Progress = Callable[[str, int, int], None]  #: (what, done, of how many)


@dataclass(frozen=True)
class Task:
    """A point and the problem that it measures, as its kernel sees it.

    A bound multiplies nothing: its problem is its weight, with one token, whatever the point's M is.
    """

    point: Point
    problem: GemmProblem

    @classmethod
    def of(
        cls, kernel: str, problem: GemmProblem, tactic: object = "", mode: str = "chained", weights: str = "cold"
    ) -> "Task":
        """The task of `kernel`, one of ours or a peer, for `problem` as `seen_by` it."""
        point = Point(kernel, problem.n, problem.k, problem.m, str(tactic), mode, weights)
        return cls(point, seen_by(kernel, problem))


@dataclass(frozen=True)
class Measurement:
    """Samples in microseconds per launch and the bytes that a launch must move.

    `relative_error` is the largest of the kernel's results, NaN for a bound.
    """

    samples_us: Samples
    relative_error: float
    bytes: int


def seen_by(kernel: str, problem: GemmProblem) -> GemmProblem:
    """`problem` as `kernel` sees it: a front stays what it is to a kernel of fronts, to all others it is its weight."""
    plain = GemmProblem(problem.m, problem.n, problem.k)
    seen = KERNELS[kernel].problem(plain) if kernel in KERNELS else plain
    return problem if type(problem) is type(seen) else seen


def sentence(error: BaseException) -> str:
    """An exception in one line of words."""
    text = " ".join(str(error).split())[:400]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
