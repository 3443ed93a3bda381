"""A model of shared memory's banks: how many wavefronts one warp-wide access takes.

32 banks of 4 bytes serve one wavefront per cycle. A bank gives one word per wavefront, to any number of lanes. An
access goes in phases of at most 128 bytes: 4 bytes a lane in one, 8 bytes in two of 16 lanes, 16 bytes in four of 8
lanes. `ldmatrix.x4` reads a 16-byte row per lane, an 8x8 matrix per phase, and counts as a 16-byte access.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import WARP

BANKS = 32
WORD = 4  #: bytes

Address = Callable[..., Any]


@dataclass(frozen=True)
class Access:
    """One kind of warp-wide shared-memory access: byte addresses `(accesses, 32)`, a row for each access."""

    name: str  #: "REGION, KIND": a region of the footprint, and the instruction, as a trace of the kernel names them
    bytes_per_lane: int  #: 4, 8 or 16
    shipped: np.ndarray  #: by the kernel's layout
    plain: np.ndarray | None = None  #: by row-major data, to show what the layout gains; None: it would be the same

    @classmethod
    def of(
        cls, name: str, bytes_per_lane: int, places: Iterable[tuple], shipped: Address, plain: Address | None = None
    ) -> "Access":
        """The accesses to `places`, each the arguments of `shipped` and `plain`, which give a warp's byte addresses."""
        places = list(places)
        shipped_at = np.stack([shipped(*place) for place in places])
        return cls(name, bytes_per_lane, shipped_at, plain and np.stack([plain(*place) for place in places]))


def bank(address: Any) -> Any:
    """The bank 0..31 that holds the byte at `address` (an int or an array)."""
    return (address >> 2) & (BANKS - 1)


def phases(bytes_per_lane: int) -> int:
    """Into how many phases a warp's access of 4, 8 or 16 bytes per lane is cut; phase p serves consecutive lanes."""
    if bytes_per_lane not in (4, 8, 16):
        raise ValueError(f"bytes_per_lane is {bytes_per_lane}: the bank model knows 4, 8 and 16")
    return bytes_per_lane // WORD


def words_per_bank(addresses: Any, bytes_per_lane: int, active: Any = None) -> np.ndarray:
    """Distinct words that each bank must give in each phase: `(..., phases, 32)`.

    `addresses` `(..., 32)`: byte address per lane, aligned to `bytes_per_lane`. `active` `(..., 32)`: lanes that take
    part (default all). ValueError on a shape without 32 lanes, a misaligned address or another width.
    """
    count = phases(bytes_per_lane)
    addresses = np.asarray(addresses, dtype=np.int64)
    if addresses.shape[-1:] != (WARP,):
        raise ValueError(f"addresses have shape {addresses.shape}: the last dimension is the {WARP} lanes of a warp")
    active = np.broadcast_to(True if active is None else np.asarray(active, dtype=bool), addresses.shape)
    wrong = addresses[active & (addresses % bytes_per_lane != 0)]
    if wrong.size:
        raise ValueError(f"address {wrong[0]:#x} is not aligned to its {bytes_per_lane} bytes")
    words = addresses[..., None] // WORD + np.arange(count)
    words = np.sort(np.where(active[..., None], words, -1).reshape(-1, BANKS))  # one row per phase: 32 words each
    row, column = np.nonzero((np.diff(words, axis=-1, prepend=-1) != 0) & (words >= 0))
    counts = np.bincount(row * BANKS + words[row, column] % BANKS, minlength=words.size)
    return counts.reshape(*addresses.shape[:-1], count, BANKS)


def wavefronts(addresses: Any, bytes_per_lane: int, active: Any = None) -> np.ndarray:
    """Wavefronts `(...)` of each access, arguments as in `words_per_bank`: per phase the most words of any bank."""
    return words_per_bank(addresses, bytes_per_lane, active).max(axis=-1).sum(axis=-1)


def ideal_wavefronts(bytes_per_lane: int, active: Any = None) -> np.ndarray:
    """Wavefronts without any conflict: one per phase with an active lane. `active` `(..., 32)`, default all lanes."""
    active = np.ones(WARP, dtype=bool) if active is None else np.asarray(active, dtype=bool)
    return active.reshape(*active.shape[:-1], phases(bytes_per_lane), -1).any(axis=-1).sum(axis=-1)
