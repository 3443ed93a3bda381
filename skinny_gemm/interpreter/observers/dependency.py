"""Dependent launches: nothing that the preceding kernel writes may be read before `griddepcontrol.wait`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..buffers import Buffer
from ..errors import DependencyError
from ..place import Array, Mask
from . import Observer

if TYPE_CHECKING:
    from ..group import Group


class Dependency(Observer):
    """Watches the `buffers` that the preceding kernel writes."""

    def __init__(self, buffers: Sequence[Buffer]):
        self.buffers = buffers

    def global_read(self, group: "Group", index: int, addresses: Array, mask: Mask) -> None:
        """Raises DependencyError if lanes that have not waited read such a buffer."""
        early = ~group.depends if mask is None else ~group.depends & mask
        for buffer in self.buffers:
            lanes = early & (addresses >= np.uint64(buffer.base)) & (addresses < np.uint64(buffer.end))
            if lanes.any():
                raise DependencyError(
                    f"Reads {buffer.name}, which the preceding kernel writes, without having executed "
                    f"griddepcontrol.wait: {group.place_of(index, lanes)}."
                )
