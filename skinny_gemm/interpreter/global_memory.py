"""Loads and stores of global memory by a group; the memory itself is in `buffers`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from .buffers import DTYPES
from .errors import MemoryAccessError, ReadOnlyError
from .place import Array, Mask, Place, active, scatter

if TYPE_CHECKING:
    from .group import Group


def load(group: "Group", index: int, addresses: Array, width: int, mask: Mask) -> Array:
    """`ld.global`: elements of `width` bytes at uint64 addresses."""
    group.events.global_read(group, index, addresses, mask)
    lanes = active(mask, addresses)
    if lanes is None:
        return np.zeros((1, 1, 1), DTYPES[width])
    try:
        return group.machine.memory.load(lanes, width)
    except MemoryAccessError:
        fault(group, index, lanes, width, "load")


def store(group: "Group", index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
    """`st.global` of one or several words per lane."""
    group.events.global_write(group, index, addresses, words, mask)
    width, flat, data, _ = scatter(group, addresses, words, mask)
    if not flat.size:
        return
    try:
        group.machine.memory.store(flat.astype(np.uint64), data, width)
    except MemoryAccessError:
        lanes = active(mask, addresses)
        assert lanes is not None  # there are addresses
        fault(group, index, lanes, width, "store")
    except ReadOnlyError as error:
        _read_only(group, index, error, mask)


def store_multicast(group: "Group", index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
    """`multimem.st`: the words reach every array of a `Multicast`."""
    group.events.global_write(group, index, addresses, words, mask)
    width, flat, data, _ = scatter(group, addresses, words, mask)
    try:
        group.machine.memory.store_multicast(flat.astype(np.uint64), data, width)
    except MemoryAccessError as error:
        what = str(error) or f"{int(flat[0]):#x} (+{width} bytes) is out of bounds or misaligned"
        raise MemoryAccessError(f"multimem store: {what}: {group.place_of(index, mask)}.") from None
    except ReadOnlyError as error:
        _read_only(group, index, error, mask)


def fault(place: Place, index: int, addresses: Array, width: int, what: str) -> NoReturn:
    """Raises for the first of some addresses that the memory refuses; `what` is the access (load, store, ...)."""
    flat, address, phrase = place.machine.memory.fault(addresses, width)
    place.events.faulted(place, index, addresses, "global")
    raise MemoryAccessError(
        f"Global {what} of {width} bytes at {address:#x}, {phrase}: {place.spot(index, addresses.shape[:3], flat)}."
    )


def _read_only(place: Place, index: int, error: ReadOnlyError, mask: Mask) -> NoReturn:
    raise ReadOnlyError(
        f"The kernel stores to {error}, which is not declared as written: {place.place_of(index, mask)}."
    ) from None
