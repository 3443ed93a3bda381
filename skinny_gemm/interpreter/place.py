"""Where something happens: some warps of some CTAs of a chunk, in their clusters, and the words that name them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..layouts import WARP
from . import arithmetic as ops
from .errors import DivergenceError

if TYPE_CHECKING:
    from .machine import Machine

Array = np.ndarray  #: mostly (CTAs | 1, warps | 1, lanes | 1): a dimension of 1 means that all share the value
Mask = np.ndarray | None  #: the active lanes as bools, in the same shape; None for all
#: A view's dtype by bytes: what moves as one element.
DTYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}

# A shared::cluster address holds the CTA's rank plus one from bit 24 on. Zero there is the thread's own CTA, whose
# window is part of the cluster's: `mapa` of the own rank gives back the address itself.
RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1
NEGATIVE, FAR = 254, 253  #: what an address holds as the rank of a CTA below 0, or from 253 on: both in no cluster


class Place:
    """`rows` are CTAs by their row in the chunk's arrays (fill-pattern twins are neighbours), `warps` their warps."""

    def __init__(self, machine: "Machine", rows: Array, warps: Array):
        self.machine, self.events, self.rows, self.warps = machine, machine.events, rows, warps
        self.shape = len(rows), len(warps), WARP
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

    def error(self, kind: type[Exception], what: str, index: int, mask: Mask = None) -> Exception:
        """An error of some kind that says what happened and where: see `place_of`."""
        return kind(f"{what}: {self.place_of(index, mask)}.")

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
    return np.where(mask, addresses, addresses[mask][0]) if mask.any() else None


def scatter(place: Place, addresses: Array, words: Sequence[Array], mask: Mask) -> tuple[int, Array, Array, Array]:
    """(bytes, flat addresses, flat data, flat rows) of a store's active lanes, CTAs first."""
    width = words[0].dtype.itemsize * len(words)
    data = np.empty((*place.shape, len(words)), words[0].dtype)
    for i, word in enumerate(words):
        data[..., i] = word
    data = data.view(DTYPES[width])[..., 0]
    addresses, rows = (np.broadcast_to(x, place.shape) for x in (addresses, place.rows[:, None, None]))
    if mask is None:
        return width, addresses.reshape(-1).astype(np.int64), data.reshape(-1), rows.reshape(-1)
    mask = np.broadcast_to(mask, place.shape)
    return width, addresses[mask].astype(np.int64), data[mask], rows[mask]


def converged(place: Place, index: int, members: Array | None, mask: Mask) -> None:
    """Raises unless each warp is there with all its lanes or with none."""
    if mask is not None and mask.shape[2] > 1:
        if (mask.any(axis=2) != mask.all(axis=2)).any():
            raise DivergenceError(f"Lanes of one warp are apart at {place.place_of(index, mask)}.")


def elect(place: Place, index: int, members: Array, mask: Mask) -> tuple[Array, Array]:
    """`elect.sync`: (lane number of the leader, predicate that is true in its lane)."""
    if members.size == 1 and int(members[0, 0, 0]) == 0xFFFFFFFF:
        converged(place, index, members, mask)
        return ops.ZERO, ops.ELECTED
    lanes = ops.lane_mask(members)
    leader = lanes.argmax(axis=2)[..., None].astype(np.uint32)
    return leader, ops.LANES == leader


def linear(ctas: Array, grid: tuple[int, int, int]) -> Array:
    """The numbers of CTAs with coordinates (..., 3) in the grid, x fastest."""
    return ctas @ np.array([1, grid[0], grid[0] * grid[1]])


class Clusters:
    """The clusters of a chunk with CTAs `ctas` (n, 3), of each of which `fills` neighbouring rows are twins."""

    def __init__(self, ctas: Array, size: int, grid: tuple[int, int, int], fills: int, warps: int):
        self.size = size
        number = np.unique(linear(ctas, grid) // size, return_inverse=True)[1].reshape(-1)
        rank = ctas[:, 0] % size
        table = np.empty((number.max() + 1, size), np.int64)
        table[number, rank] = np.arange(len(ctas))
        twin = np.tile(np.arange(fills), len(ctas))
        self.rank = np.repeat(rank, fills)  #: of each row in its cluster
        self.number = np.repeat(number, fills) * fills + twin  #: of each row's cluster; twins have their own
        self.peers = np.repeat(table[number], fills, axis=0) * fills + twin[:, None]  #: (row, rank) -> row
        self.started = np.zeros(len(twin), bool)
        self.alive = np.full(len(twin), warps)  #: warps of each row that have not exited


def mapa(place: Place, addresses: Array, rank: Array) -> Array:
    """The shared::cluster addresses of what `addresses` are in the CTAs `rank`."""
    offset = addresses & np.uint32(OFFSET)
    rank = np.where(rank > FAR, np.where(rank >> np.uint32(31), np.uint32(NEGATIVE), np.uint32(FAR)), rank)
    far = (rank + np.uint32(1)) << np.uint32(RANK_SHIFT) | offset
    return np.where(rank == place.machine.clusters.rank[place.rows][:, None, None], offset, far)
