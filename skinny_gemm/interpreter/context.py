"""What the chunks of one launch share: program, arguments, observers and the clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .codegen import Program
from .memory import GlobalMemory
from .observers import Observer

if TYPE_CHECKING:
    from .machine import Machine

DOUBLINGS = 17  #: of the clock's step, up to 0.13 s a read
Triple = tuple[int, int, int]  #: along x, y and z


class Clock:
    """`%globaltimer` (ns), and `%clock` at 1 GHz: it moves by 1 us per read and by what `nanosleep` asks for.

    Where only the clock is read and nothing else happens, as in a loop that polls until a time limit, the step doubles
    from read to read, so that the limit comes soon.
    """

    def __init__(self) -> None:
        self.now, self.idle = 0, 0
        self.seen: int | None = None

    def read(self, name: str, version: int) -> np.ndarray:
        """The special register `name`; `version` tells whether anything has happened since the last read."""
        self.idle = self.idle + 1 if version == self.seen else 0
        self.seen = version
        self.now += 1000 << min(self.idle, DOUBLINGS)
        return np.full((1, 1, 1), self.now & 0xFFFFFFFF if name in ("clock", "globaltimer_lo") else self.now, np.uint64)


@dataclass
class Context:
    """The program, its geometry and its arguments, and who watches."""

    program: Program
    grid: Triple
    block: Triple
    warps: int  #: of a CTA
    cluster: int  #: CTAs of a cluster, along x
    fills: int  #: fill patterns of what is uninitialised, each run by a twin of every CTA
    memory: GlobalMemory
    parameters: dict[tuple[int, int], np.ndarray]  #: values by (offset, size)
    shared_end: int  #: the address past a CTA's shared memory
    observers: Sequence[Observer]
    tick: "Callable[[Machine], None]"  #: called before every choice of the schedule
    clock: Clock = field(default_factory=Clock)
    scratch: dict[Any, np.ndarray] = field(default_factory=dict)  #: see `Machine.scratch`
