"""Dependent launches: nothing that the preceding kernel writes may be read before `griddepcontrol.wait`."""

from collections.abc import Sequence

import numpy as np

from ..errors import DependencyError
from ..memory import Buffer
from ..place import Array, Mask, Place
from . import Observer


class Dependency(Observer):
    """Watches the `buffers` that the preceding kernel writes."""

    def __init__(self, buffers: Sequence[Buffer]):
        self.buffers = buffers

    def global_read(self, place: Place, index: int, addresses: Array, mask: Mask) -> None:
        early = ~place.depends if mask is None else ~place.depends & mask
        for buffer in self.buffers:
            lanes = early & (addresses >= np.uint64(buffer.base)) & (addresses < np.uint64(buffer.end))
            if lanes.any():
                raise DependencyError(
                    f"Reads {buffer.name}, which the preceding kernel writes, without having executed "
                    f"griddepcontrol.wait: {place.place_of(index, lanes)}."
                )
