"""Where something happens: some warps of some CTAs of a chunk, and the words that name them in errors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .errors import DivergenceError

if TYPE_CHECKING:
    from .machine import Machine

Array = np.ndarray  #: mostly (CTAs | 1, warps | 1, lanes | 1): a dimension of 1 means that all share the value
#: A view's dtype by bytes: what moves as one element.
DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
Mask = np.ndarray | None  #: the active lanes as bools, in the same shape; None for all


class Place:
    """`rows` are CTAs by their row in the chunk's arrays (fill-pattern twins are neighbours), `warps` their warps."""

    def __init__(self, machine: "Machine", rows: Array, warps: Array):
        self.machine, self.events, self.rows, self.warps = machine, machine.events, rows, warps
        first, n = int(rows[0]), len(rows)
        self.slice: Array | slice = slice(first, first + n) if rows[-1] - first == n - 1 else rows

    depends = ops.FALSE  #: lanes that have passed griddepcontrol.wait

    def spot(self, index: int, shape: tuple[int, ...], flat: int) -> str:
        """Instruction, PTX line, CTA, warp and lane of the flat index into an array of `shape`."""
        row, warp, lane = (int(i) for i in np.unravel_index(flat, shape))
        ins = self.machine.code[index]
        lanes = f", lane {lane}" if shape[2] > 1 else ""
        warps = self.warps[warp] if shape[1] > 1 or len(self.warps) == 1 else "+".join(map(str, self.warps))
        return f"{ins.text!r} (PTX line {ins.line}), CTA {self.machine.cta_of(self.rows[row])}, warp {warps}{lanes}"

    def place_of(self, index: int, mask: Mask = None) -> str:
        """`spot` of the first active lane."""
        mask = ops.TRUE if mask is None else mask
        return self.spot(index, mask.shape, int(np.flatnonzero(mask)[0]) if mask.any() else 0)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(CTAs, warps, lanes)."""
        return len(self.rows), len(self.warps), WARP

    def full(self, mask: Mask) -> Array:
        """`mask` in full shape."""
        return np.ones(self.shape, bool) if mask is None else np.broadcast_to(mask, self.shape)


def active(mask: Mask, addresses: Array) -> Array | None:
    """`addresses` with those of inactive lanes replaced by an active lane's; None if no lane is active."""
    if mask is None:
        return addresses
    addresses, mask = np.broadcast_arrays(addresses, mask)
    if mask.all():
        return np.ascontiguousarray(addresses)
    if not mask.any():
        return None
    return np.where(mask, addresses, addresses[mask][0])


def scatter(place: Place, addresses: Array, words: Sequence[Array], mask: Mask) -> tuple[int, Array, Array, Array]:
    """(bytes, flat addresses, flat data, flat rows) of a store's active lanes, CTAs first."""
    size = words[0].dtype.itemsize
    width = size * len(words)
    data = np.empty((*place.shape, len(words)), words[0].dtype)
    for i, word in enumerate(words):
        data[..., i] = word
    data = data.view(DTYPES[width])[..., 0]
    addresses = np.broadcast_to(addresses, place.shape)
    rows = np.broadcast_to(place.rows[:, None, None], place.shape)
    if mask is None:
        return width, addresses.reshape(-1).astype(np.int64), data.reshape(-1), rows.reshape(-1)
    mask = np.broadcast_to(mask, place.shape)
    return width, addresses[mask].astype(np.int64), data[mask], rows[mask]


def converged(place: Place, index: int, members: Array | None, mask: Mask) -> None:
    """Raises unless each warp is there with all its lanes or with none."""
    if mask is not None and mask.shape[2] > 1:
        apart = mask.any(axis=2) != mask.all(axis=2)
        if apart.any():
            raise DivergenceError(f"Lanes of one warp are apart at {place.place_of(index, mask)}.")
