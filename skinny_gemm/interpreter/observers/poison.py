"""Data that is not there yet: uninitialised memory (`Poison`), and what a preceding kernel still writes (`Dependency`).

With checks on, every CTA runs twice, as neighbouring rows of the machine's arrays, and whatever nobody has written
holds other bytes in the second twin. Where the twins' values differ, they depend on such bytes. That is no error until
the value decides a branch, an address or a count, or is stored to global memory.
"""

from collections.abc import Sequence

import numpy as np

from ..errors import DependencyError, InterpreterError, PoisonError
from ..memory import SPACING, Buffer
from ..place import Array, Mask, Place
from . import Observer


class Poison(Observer):
    """Compares the twins, which every CTA of the run must have."""

    def decides(self, place: Place, index: int, values: Array, what: str, mask: Mask = None) -> None:
        """Raises PoisonError where the twins differ in an active lane."""
        if values.shape[0] == 1:
            return
        differ = values[0::2] != values[1::2]
        if mask is not None:
            differ = differ & (mask if mask.shape[0] == 1 else mask[0::2])
        if differ.any():
            row, warp, lane = np.argwhere(differ)[0]
            at = [i if size > 1 else 0 for i, size in zip((2 * row, warp, lane), values.shape, strict=True)]
            flat = int(np.ravel_multi_index(at, values.shape))
            raise PoisonError(f"Uninitialised memory or an undefined register reaches {what} of "
                              f"{place.spot(index, values.shape, flat)}.")  # fmt: skip

    def faulted(self, place: Place, index: int, addresses: Array, space: str) -> None:
        """A bad address may well be a poisoned one, and that is the better sentence."""
        self.decides(place, index, addresses if space == "shared" else _same_buffer(addresses), "the address")

    def global_write(self, place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
        """Neither what is stored nor where may differ."""
        for word in words:
            self.decides(place, index, word, "the stored value", mask)
        self.decides(place, index, _same_buffer(addresses), "the address", mask)

    def output(self, name: str, buffers: Sequence[Buffer]) -> None:
        """The twins must have stored the same bytes of an output."""
        first, *others = (buffer.written for buffer in buffers)
        if not all(np.array_equal(first, other) for other in others):
            raise InterpreterError(f"What is stored to {name} depends on uninitialised memory.")


def _same_buffer(addresses: Array) -> Array:
    """Global addresses of twins without the whole buffers by which an output's two copies lie apart."""
    if addresses.shape[0] == 1:
        return addresses
    same = addresses.copy()
    same[1::2] -= (addresses[1::2] - addresses[0::2]) >> np.uint64(SPACING) << np.uint64(SPACING)
    return same


class Dependency(Observer):
    """Nothing in the `buffers` that the preceding kernel writes may be read before `griddepcontrol.wait`."""

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
