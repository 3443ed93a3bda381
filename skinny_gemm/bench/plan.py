"""What is asked of a campaign, and the tasks that follow from it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..checks import check_choice, check_integer
from ..device import Device
from ..problem import GemmProblem
from ..records import MODES, PEERS, PROCESSES, WEIGHTS, Point, Record
from ..records.best import weight_rows
from ..records.leaders import leaders
from ..tactics import Tactic, sweep, tactic_type
from ..tactics.base import TRIGGERS
from . import bounds, peers
from .task import Task, seen_by

MS = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_ONLY = ":default"  #: behind a mode
RECORDED = "recorded"  #: tactics: those that were fastest so far
CHOICES = (*sweep.CHOICES, RECORDED)


@dataclass(frozen=True)
class Request:
    """What a campaign is to measure; ValueError for an unknown kernel, mode, peer or choice of tactics."""

    kernel: str  #: its baselines (`Tactic.baselines`) stand beside it, at their default tactics
    problems: Iterable[GemmProblem]  #: the weights, each as a problem of any M; what a front is goes to campaign.json
    ms: Iterable[int] = MS
    #: one of `sweep.CHOICES`, a list of tactics as text, or "recorded": of ours and of peers the fastest so far at this
    #: M and at those recorded next to it, where there are any, and the default
    tactics: str | Sequence[str] = "default"
    modes: Sequence[str] = ("isolated", "chained")  #: of `records.MODES`; "isolated:default": the default tactic only
    peers: Sequence[str] = ()  #: of `records.PEERS`
    bounds: bool = False  #: also the streaming bound, the dependency floor and the ceilings
    weights: str = "cold"  #: of `records.WEIGHTS`
    most: int | None = None  #: tactics of a kernel, problem and mode, chosen by a brief look at all; None: all
    processes: Sequence[str] = ("quiet",)  #: of `records.PROCESSES`: the states to measure all of it in
    also: Sequence[str] = ()  #: kernels of ours that are measured like `kernel`, with the same choice by name

    def __post_init__(self):
        object.__setattr__(self, "problems", tuple(dict.fromkeys(replace(p, m=1) for p in self.problems)))
        object.__setattr__(self, "ms", tuple(dict.fromkeys(self.ms)))
        parse = tactic_type(self.kernel).parse
        for kernel in self.also:
            tactic_type(kernel)
        for mode in self.timed_modes:
            check_choice("mode", mode, MODES)
        for peer in self.peers:
            check_choice("peer", peer, PEERS)
        check_choice("weights", self.weights, WEIGHTS)
        if self.most is not None:
            check_integer("most", self.most, 1)
        for process in self.processes:
            check_choice("process", process, PROCESSES)
        for text in [] if isinstance(self.tactics, str) else self.tactics:
            parse(text)
        if self.also and not isinstance(self.tactics, str):
            raise ValueError(f"tactics are listed, but those of {self.kernel} are not those of {', '.join(self.also)}.")
        if isinstance(self.tactics, str) and self.tactics not in CHOICES:
            allowed = ", ".join(map(repr, CHOICES))
            raise ValueError(f"tactics is {self.tactics!r}, but must be {allowed} or a list of tactics.")
        shapes = [(problem.n, problem.k) for problem in self.problems]
        if twice := [shape for shape in shapes if shapes.count(shape) > 1]:
            raise ValueError(f"{twice[0][0]}x{twice[0][1]} is asked for as two different problems.")

    @property
    def timed_modes(self) -> tuple[str, ...]:
        """The modes by name, each once."""
        return tuple(dict.fromkeys(mode.removesuffix(DEFAULT_ONLY) for mode in self.modes))

    def chosen(
        self, kernel: str, problem: GemmProblem, device: Device, rows: Sequence[Record]
    ) -> dict[str, list[Tactic]]:
        """The tactics of `kernel`, one of ours, to measure in each mode; ValueError where none can run `problem`.

        `rows` are the records of the weight, if it is them that decide.
        """
        parse = tactic_type(kernel).parse
        wanted = self.tactics if isinstance(self.tactics, str) else [parse(text) for text in self.tactics]
        choices = {mode: "default" if mode + DEFAULT_ONLY in self.modes else wanted for mode in self.timed_modes}
        return {
            mode: _recorded(kernel, problem, device, rows) if choice == RECORDED
            else sweep.select(kernel, problem, device, choice)
            for mode, choice in choices.items()
        }  # fmt: skip

    def peers_tactics(self, peer: str, problem: GemmProblem, device: Device, rows: Sequence[Record]) -> list[str]:
        """The tactics of a peer to measure; ValueError where none can run `problem`."""
        return leaders(peer, rows, problem.m) or peers.tactics(peer, problem, device)


def _recorded(kernel: str, problem: GemmProblem, device: Device, rows: Sequence[Record]) -> list[Tactic]:
    """The `leaders`, if they share a trigger with either, with M's token tile where it has but one; and the default."""
    kind = tactic_type(kernel)
    tiles: set[Any] = {vars(tactic).get("token_tile") for tactic in kind.enumerate(problem, device)}
    found: list[Any] = [kind.parse(text) for text in leaders(kernel, rows, problem.m)]
    if len(tiles) == 1 and None not in tiles:
        found = [replace(tactic, token_tile=min(tiles)) for tactic in found]
    if len({vars(tactic).get("trigger") for tactic in found} - {None}) == 1:  # the other was not tried here
        found = [replace(tactic, trigger=trigger) for tactic in found for trigger in TRIGGERS]
    found.append(kind.default(problem, device))
    return [tactic for tactic in dict.fromkeys(found) if tactic.why_not(problem, device) is None]


def plan(request: Request, device: Device) -> tuple[list[Task], list[str]]:
    """The tasks, shape by shape, and one sentence for each problem that a kernel or peer cannot take.

    First all of a quiet process, if asked for, then the same of a busy one.
    """
    tasks: list[Task] = []
    left_out: list[str] = []
    modes, weights = request.timed_modes, request.weights
    kernels = tuple(dict.fromkeys((request.kernel, *request.also)))
    baselines = [name for kernel in kernels for name in tactic_type(kernel).baselines if name not in kernels]
    for weight in request.problems:
        of_shape: list[Task] = []
        known = weight_rows(weight.n, weight.k, "chained", device.name) if request.tactics == RECORDED else []
        for m in request.ms:
            problem, where = replace(weight, m=m), f"{weight.n}x{weight.k} M={m}"
            ours: list[Task] = []
            for kernel in kernels:
                try:
                    chosen = request.chosen(kernel, seen_by(kernel, problem), device, known)
                except ValueError as error:
                    left_out.append(f"{where}: {error}" if kernel == request.kernel else f"{kernel} {where}: {error}")
                    continue
                ours += [Task.of(kernel, problem, t, mode, weights) for mode in modes for t in chosen[mode]]
            if not ours:
                continue
            of_shape += ours
            for rival in (*dict.fromkeys(baselines), *request.peers):
                try:
                    seen = seen_by(rival, problem)
                    tactics: Sequence[object] = (
                        request.peers_tactics(rival, seen, device, known)
                        if rival in PEERS
                        else sweep.select(rival, seen, device, "default")
                    )
                except ValueError as error:
                    left_out.append(f"{rival} {where}: {error}")
                    continue
                of_shape += [Task.of(rival, problem, tactic, mode, weights) for tactic in tactics for mode in modes]
        if of_shape and request.bounds:
            tasks += _bounds(weight.n, weight.k, modes, weights)
        tasks += of_shape
    states = [process for process in PROCESSES if process in request.processes]
    return [Task(replace(task.point, process=state), task.problem) for state in states for task in tasks], left_out


def _bounds(n: int, k: int, modes: Sequence[str], weights: str) -> list[Task]:
    timed = [mode for mode in modes if mode != "exposed"]
    points = [Point("stream", n, k, 0, str(ring), mode, weights) for ring in bounds.RINGS for mode in timed]
    if "chained" in modes:
        grids = sorted({n // tile for tile in bounds.FLOOR_TILES if n % tile == 0})
        points += [Point("dependency-floor", n, k, 1, str(ctas), "chained", weights) for ctas in grids]
    return [Task(point, GemmProblem(1, n, k)) for point in points]
