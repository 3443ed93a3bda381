"""Time as a kernel sees it."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .group import Group

DOUBLINGS = 17  #: of the clock's step, up to 0.13 s a read


class Clock:
    """`%globaltimer` (ns), and `%clock` at 1 GHz: it moves by 1 us per read and by what `nanosleep` asks for.

    Where only the clock is read and nothing else happens, as in a loop that polls until a time limit, the step doubles
    from read to read, so that the limit comes soon.
    """

    def __init__(self) -> None:
        self.now, self.idle = 0, 0
        self.seen: int | None = None

    def read(self, name: str, version: int) -> np.ndarray:
        """The time; `version` tells whether anything has happened since the last read."""
        self.idle = self.idle + 1 if version == self.seen else 0
        self.seen = version
        self.now += 1000 << min(self.idle, DOUBLINGS)
        return np.full((1, 1, 1), self.now & 0xFFFFFFFF if name in ("clock", "globaltimer_lo") else self.now, np.uint64)


def read(group: "Group", name: str) -> np.ndarray:
    """The special register `name` (globaltimer, globaltimer_lo, clock or clock64)."""
    return group.machine.context.clock.read(name, group.machine.version)


def sleep(group: "Group", nanoseconds: np.ndarray) -> None:
    """`nanosleep`."""
    group.machine.context.clock.now += int(nanoseconds.max())
