"""What the chunks of one launch share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .buffers import GlobalMemory
from .clock import Clock
from .codegen import Program
from .observers import Observer

if TYPE_CHECKING:
    from .machine import Machine

Triple = tuple[int, int, int]  #: along x, y and z


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
