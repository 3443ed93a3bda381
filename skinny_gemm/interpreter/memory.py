"""Global memory: the caller's arrays, zero copy, each at an address range of its own.

Buffer i starts at `(i + 1) << 40` plus the low four bits of the array's own address, so a misaligned array is as
misaligned here as it would be on a GPU. Outputs of a checked run live in two private copies, one per fill pattern. A
multicast range has addresses of its own, and a store there reaches each of its buffers.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from .errors import MemoryAccessError, ReadOnlyError
from .place import DTYPES, Array, Mask, Place, active, scatter

SPACING = 40  #: log2 of the distance between two buffers


def as_bytes(value: Any, name: str) -> np.ndarray:
    """The memory of a packed NumPy array or CPU torch tensor as a flat uint8 array, without a copy."""
    if hasattr(value, "data_ptr"):
        torch = sys.modules["torch"]
        if value.device.type != "cpu":
            raise ValueError(f"{name} is on {value.device}; the interpreter takes CPU tensors.")
        if not value.is_contiguous():
            raise ValueError(f"{name} has strides {tuple(value.stride())}; it must be packed row-major.")
        value = value.detach().reshape(-1).view(torch.uint8).numpy()
    elif not isinstance(value, np.ndarray):
        raise ValueError(f"{name} is a {type(value).__name__}; it must be a NumPy array or a CPU torch tensor.")
    elif not value.flags.c_contiguous:
        raise ValueError(f"{name} has strides {value.strides}; it must be packed row-major.")
    return value.reshape(-1).view(np.uint8)


@dataclass
class Buffer:
    """One array in global memory; `written` has a byte per byte of an output, 255 where the kernel has stored."""

    name: str
    bytes: np.ndarray
    base: int
    writable: bool
    written: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    members: Sequence["Buffer"] = ()  #: of a multicast address range: the buffers that a store reaches
    views: dict = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.base + self.bytes.size

    def view(self, width: int, array: np.ndarray | None = None) -> tuple[np.ndarray, int]:
        """(`width`-byte elements of the buffer, address of the first): starts at the first aligned byte."""
        skip = -self.base % width
        array = self.bytes if array is None else array
        count = max(array.size - skip, 0) // width
        return array[skip : skip + count * width].view(DTYPES[width]), self.base + skip

    def cached_view(self, width: int) -> tuple[np.ndarray, int]:
        if width not in self.views:
            self.views[width] = self.view(width)
        return self.views[width]


class GlobalMemory:
    """The registered buffers of one launch."""

    def __init__(self):
        self.buffers: list[Buffer] = []

    def add(self, name: str, array: np.ndarray, writable: bool, like: np.ndarray | None = None) -> Buffer:
        """Registers a flat uint8 array; `like` is the array whose alignment it shall have."""
        low = (array if like is None else like).__array_interface__["data"][0] & 15
        base = (len(self.buffers) + 1 << SPACING) + low
        written = np.zeros(array.size * writable, np.uint8)
        self.buffers.append(Buffer(name, array, base, writable, written))
        return self.buffers[-1]

    def add_multicast(self, name: str, members: Sequence[Buffer]) -> Buffer:
        """Registers an address range that stands for several buffers of one size and alignment."""
        base = (len(self.buffers) + 1 << SPACING) + (members[0].base & 15)
        self.buffers.append(Buffer(name, members[0].bytes, base, True, members=members))
        return self.buffers[-1]

    def buffer_at(self, address: int) -> Buffer | None:
        i = (address >> SPACING) - 1
        return self.buffers[i] if 0 <= i < len(self.buffers) else None

    def nearest(self, address: int, width: int) -> str:
        """A phrase that says where `address` lies relative to the nearest buffer."""
        best = None
        for buffer in self.buffers:
            distance = buffer.base - address if address < buffer.base else address + width - buffer.end
            if best is None or distance < best[0]:
                best = distance, buffer
        if best is None:
            return "no buffer is registered"
        distance, buffer = best
        if distance > 1 << (SPACING - 1):
            return "no buffer is near"
        if address < buffer.base:
            return f"{distance} bytes before {buffer.name} ({buffer.bytes.size} bytes)"
        return f"{distance} bytes past the end of {buffer.name} ({buffer.bytes.size} bytes)"

    def fault(self, addresses: np.ndarray, width: int) -> tuple[int, int, str] | None:
        """(flat index, address, phrase) of the first address that is misaligned or outside every buffer, or None."""
        flat = addresses.reshape(-1)
        for i in np.flatnonzero(self.bad(flat, width)).tolist():
            address = int(flat[i])
            if address % width:
                return i, address, f"not aligned to {width} bytes"
            buffer = self.buffer_at(address)
            if buffer is not None and buffer.members and buffer.base <= address < buffer.end:
                return i, address, f"a multicast address of {buffer.name}, which only multimem instructions reach"
            return i, address, self.nearest(address, width)
        return None

    def bad(self, flat: np.ndarray, width: int) -> np.ndarray:
        ok = np.zeros(flat.shape, bool)
        for buffer in self.buffers:
            if not buffer.members:
                ok |= (flat >= buffer.base) & (flat + np.uint64(width) <= buffer.end)
        return ~ok | (flat % np.uint64(width) != 0)

    def find(self, addresses: np.ndarray, width: int) -> Buffer | None:
        """The one buffer that holds all `addresses` (uint64), or None if they spread, stray or are misaligned."""
        low, high = int(addresses.min()), int(addresses.max())
        buffer = self.buffer_at(low)
        if buffer is None or buffer.members or low < buffer.base or high + width > buffer.end:
            return None
        if width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1):
            return None
        return buffer

    def load(self, addresses: np.ndarray, width: int) -> np.ndarray:
        """Elements of `width` bytes at uint64 `addresses`, in their shape. Raises `MemoryAccessError`, bare."""
        buffer = self.find(addresses, width)
        if buffer is not None:
            view, base = buffer.cached_view(width)
            return view.take((addresses - np.uint64(base)) // np.uint64(width), mode="clip")
        if self.fault(addresses, width) is not None:
            raise MemoryAccessError
        out: np.ndarray = np.empty(addresses.shape, DTYPES[width])
        owner = addresses >> np.uint64(SPACING)
        for i in np.unique(owner):
            mask = owner == i
            out[mask] = self.load(addresses[mask], width)
        return out

    def store(self, addresses: np.ndarray, data: np.ndarray, width: int) -> None:
        """Stores flat `data` at flat uint64 `addresses`. Raises `MemoryAccessError` or `ReadOnlyError`, bare."""
        buffer = self.find(addresses, width)
        if buffer is None:
            if self.fault(addresses, width) is not None:
                raise MemoryAccessError
            owner = addresses >> np.uint64(SPACING)
            for i in np.unique(owner):
                mask = owner == i
                self.store(addresses[mask], data[mask], width)
            return
        if not buffer.writable:
            raise ReadOnlyError(buffer.name)
        view, base = buffer.cached_view(width)
        index = (addresses - np.uint64(base)) // np.uint64(width)
        view[index] = data
        marks = buffer.view(width, buffer.written)[0]
        marks[index] = np.full(width, 0xFF, np.uint8).view(DTYPES[width])

    def store_multicast(self, addresses: np.ndarray, data: np.ndarray, width: int) -> None:
        """Stores flat `data` at flat multicast `addresses`, in every member. Raises `MemoryAccessError` or
        `ReadOnlyError`: bare, or with a phrase where an address is not a multicast one."""
        for owner in np.unique(addresses >> np.uint64(SPACING)):
            mask = addresses >> np.uint64(SPACING) == owner
            buffer = self.buffer_at(int(owner) << SPACING)
            if buffer is None or not buffer.members:
                raise MemoryAccessError(f"{int(addresses[mask][0]):#x} is no multicast address")
            for member in buffer.members:
                self.store(addresses[mask] - np.uint64(buffer.base) + np.uint64(member.base), data[mask], width)


# What instructions do


def load(place: Place, index: int, addresses: Array, width: int, mask: Mask) -> Array:
    """`ld.global`: elements of `width` bytes at uint64 addresses."""
    place.events.global_read(place, index, addresses, mask)
    lanes = active(mask, addresses)
    if lanes is None:
        return np.zeros((1, 1, 1), DTYPES[width])
    try:
        return place.machine.memory.load(lanes, width)
    except MemoryAccessError:
        fault(place, index, lanes, width, "load")


def store(place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
    """`st.global` of one or several words per lane."""
    place.events.global_write(place, index, addresses, words, mask)
    width, flat, data, _ = scatter(place, addresses, words, mask)
    if not flat.size:
        return
    try:
        place.machine.memory.store(flat.astype(np.uint64), data, width)
    except MemoryAccessError:
        fault(place, index, addresses if (lanes := active(mask, addresses)) is None else lanes, width, "store")
    except ReadOnlyError as error:
        _read_only(place, index, error, mask)


def store_multicast(place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
    """`multimem.st`: the words reach every array of a `Multicast`."""
    place.events.global_write(place, index, addresses, words, mask)
    width, flat, data, _ = scatter(place, addresses, words, mask)
    try:
        place.machine.memory.store_multicast(flat.astype(np.uint64), data, width)
    except MemoryAccessError as error:
        what = str(error) or f"{int(flat[0]):#x} (+{width} bytes) is out of bounds or misaligned"
        raise MemoryAccessError(f"multimem store: {what}: {place.place_of(index, mask)}.") from None
    except ReadOnlyError as error:
        _read_only(place, index, error, mask)


def fault(place: Place, index: int, addresses: Array, width: int, what: str) -> NoReturn:
    """Raises for the first of some addresses that the memory refuses; `what` is the access (load, store, ...)."""
    flat, address, phrase = place.machine.memory.fault(addresses, width) or (0, 0, "")
    place.events.faulted(place, index, addresses, "global")
    raise MemoryAccessError(
        f"Global {what} of {width} bytes at {address:#x}, {phrase}: {place.spot(index, addresses.shape[:3], flat)}."
    )


def _read_only(place: Place, index: int, error: ReadOnlyError, mask: Mask) -> NoReturn:
    raise ReadOnlyError(
        f"The kernel stores to {error}, which is not declared as written: {place.place_of(index, mask)}."
    ) from None
