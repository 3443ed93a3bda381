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
    written: np.ndarray
    members: Sequence["Buffer"]  #: of a multicast address range: the buffers that a store reaches
    views: dict[int, tuple[np.ndarray, np.ndarray, np.uint64]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.base + self.bytes.size

    def view(self, width: int) -> tuple[np.ndarray, np.ndarray, np.uint64]:
        """(`width`-byte elements of the buffer and of `written`, address of the first): from the first aligned byte."""
        if width not in self.views:
            skip = -self.base % width
            part = slice(skip, skip + max(self.bytes.size - skip, 0) // width * width)
            views: list[np.ndarray] = [array[part].view(DTYPES[width]) for array in (self.bytes, self.written)]
            self.views[width] = views[0], views[1], np.uint64(self.base + skip)
        return self.views[width]


class GlobalMemory:
    """The registered buffers of one launch."""

    def __init__(self):
        self.buffers: list[Buffer] = []

    def add(
        self, name: str, array: np.ndarray, writable: bool, like: np.ndarray, members: Sequence[Buffer] = ()
    ) -> Buffer:
        """Registers a flat uint8 array with the alignment of another; with `members`, a multicast address of these."""
        base = (len(self.buffers) + 1 << SPACING) + (like.__array_interface__["data"][0] & 15)
        written = np.zeros(array.size * writable, np.uint8)
        self.buffers.append(Buffer(name, array, base, writable, written, members))
        return self.buffers[-1]

    def buffer_at(self, address: int) -> Buffer | None:
        i = (address >> SPACING) - 1
        return self.buffers[i] if 0 <= i < len(self.buffers) else None

    def nearest(self, address: int, width: int) -> str:
        """A phrase that says where `address` lies relative to the nearest buffer."""

        def distance(buffer: Buffer) -> int:
            return buffer.base - address if address < buffer.base else address + width - buffer.end

        if not self.buffers:
            return "no buffer is registered"
        buffer = min(self.buffers, key=distance)
        if distance(buffer) > 1 << (SPACING - 1):
            return "no buffer is near"
        where = "before" if address < buffer.base else "past the end of"
        return f"{distance(buffer)} bytes {where} {buffer.name} ({buffer.bytes.size} bytes)"

    def fault(self, addresses: np.ndarray, width: int) -> tuple[int, int, str] | None:
        """(flat index, address, phrase) of the first address that is misaligned or outside every buffer, or None."""
        flat = addresses.reshape(-1)
        good = np.zeros(flat.shape, bool)
        for buffer in self.buffers:
            if not buffer.members:
                good |= (flat >= buffer.base) & (flat + np.uint64(width) <= buffer.end)
        good &= flat % np.uint64(width) == 0
        if good.all():
            return None
        i = int(good.argmin())
        address = int(flat[i])
        if address % width:
            return i, address, f"not aligned to {width} bytes"
        owner = self.buffer_at(address)
        if owner is not None and owner.members and owner.base <= address < owner.end:
            return i, address, f"a multicast address of {owner.name}, which only multimem instructions reach"
        return i, address, self.nearest(address, width)

    def find(self, addresses: np.ndarray, width: int) -> Buffer | None:
        """The one buffer that holds all `addresses` (uint64), or None if they spread, stray or are misaligned."""
        low, high = int(addresses.min()), int(addresses.max())
        buffer = self.buffer_at(low)
        if buffer is None or buffer.members or low < buffer.base or high + width > buffer.end:
            return None
        return None if width > 1 and int(np.bitwise_or.reduce(addresses, axis=None)) & (width - 1) else buffer

    def load(self, addresses: np.ndarray, width: int) -> np.ndarray:
        """Elements of `width` bytes at uint64 `addresses`, in their shape. Raises `MemoryAccessError`, bare."""
        buffer = self.find(addresses, width)
        if buffer is not None:
            view, _, base = buffer.view(width)
            return view.take((addresses - base) // np.uint64(width), mode="clip")
        out: np.ndarray = np.empty(addresses.shape, DTYPES[width])
        for lanes in self._by_buffer(addresses, width):
            out[lanes] = self.load(addresses[lanes], width)
        return out

    def _by_buffer(self, addresses, width):
        """Masks of those of the `addresses` that lie in one buffer. Raises `MemoryAccessError`, bare."""
        if self.fault(addresses, width) is not None:
            raise MemoryAccessError
        owner = addresses >> np.uint64(SPACING)
        return [owner == i for i in np.unique(owner)]

    def store(self, addresses: np.ndarray, data: np.ndarray, width: int) -> None:
        """Stores flat `data` at flat uint64 `addresses`. Raises `MemoryAccessError` or `ReadOnlyError`, bare."""
        buffer = self.find(addresses, width)
        if buffer is None:
            for lanes in self._by_buffer(addresses, width):
                self.store(addresses[lanes], data[lanes], width)
            return
        if not buffer.writable:
            raise ReadOnlyError(buffer.name)
        view, written, base = buffer.view(width)
        index = (addresses - base) // np.uint64(width)
        view[index] = data
        written[index] = np.full(width, 0xFF, np.uint8).view(DTYPES[width])

    def store_multicast(self, addresses: np.ndarray, data: np.ndarray, width: int) -> None:
        """`store` in every member at multicast `addresses`; the error has a phrase where one is no such address."""
        owners = addresses >> np.uint64(SPACING)
        for owner in np.unique(owners):
            mask = owners == owner
            buffer = self.buffer_at(int(owner) << SPACING)
            if buffer is None or not buffer.members:
                raise MemoryAccessError(f"{int(addresses[mask][0]):#x} is no multicast address")
            for member in buffer.members:
                self.store(addresses[mask] - np.uint64(buffer.base) + np.uint64(member.base), data[mask], width)


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


def store(
    place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask, multicast: bool = False
) -> None:
    """`st.global` of one or several words per lane; with `multicast`, `multimem.st` to every array of a `Multicast`."""
    place.events.global_write(place, index, addresses, words, mask)
    width, flat, data, _ = scatter(place, addresses, words, mask)
    if not flat.size:
        return
    try:
        memory = place.machine.memory
        (memory.store_multicast if multicast else memory.store)(flat.astype(np.uint64), data, width)
    except MemoryAccessError as error:
        if not multicast:
            fault(place, index, addresses if (lanes := active(mask, addresses)) is None else lanes, width, "store")
        what = str(error) or f"{int(flat[0]):#x} (+{width} bytes) is out of bounds or misaligned"
        raise place.error(MemoryAccessError, f"multimem store: {what}", index, mask) from None
    except ReadOnlyError as error:
        what = f"The kernel stores to {error}, which is not declared as written"
        raise place.error(ReadOnlyError, what, index, mask) from None


def fault(place: Place, index: int, addresses: Array, width: int, what: str) -> NoReturn:
    """Raises for the first of some addresses that the memory refuses; `what` is the access (load, store, ...)."""
    flat, address, phrase = place.machine.memory.fault(addresses, width) or (0, 0, "")
    place.events.faulted(place, index, addresses, "global")
    raise MemoryAccessError(
        f"Global {what} of {width} bytes at {address:#x}, {phrase}: {place.spot(index, addresses.shape[:3], flat)}."
    )
