"""What a whole warp does together: `elect.sync`, `ldmatrix`, and the matrices of `mma` straight from shared memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..layouts import WARP
from . import ops
from .errors import DivergenceError, MemoryAccessError
from .place import Array, Mask, active
from .shared_memory import elements, read

if TYPE_CHECKING:
    from .group import Group


def converged(group: "Group", index: int, members: Array | None, mask: Mask) -> None:
    """Raises unless each warp is there with all its lanes or with none."""
    if mask is not None and mask.shape[2] > 1:
        apart = mask.any(axis=2) != mask.all(axis=2)
        if apart.any():
            raise DivergenceError(f"Lanes of one warp are apart at {group.place_of(index, mask)}.")


def elect(group: "Group", index: int, members: Array, mask: Mask) -> tuple[Array, Array]:
    """`elect.sync`: (lane number of the leader, predicate that is true in its lane)."""
    if members.size == 1 and int(members[0, 0, 0]) == 0xFFFFFFFF:
        converged(group, index, members, mask)
        return ops.ZERO, ops.ELECTED
    lanes = ops.lane_mask(members)
    leader = lanes.argmax(axis=2)[..., None].astype(np.uint32)
    return leader, ops.LANES == leader


def ldmatrix(group: "Group", index: int, addresses: Array, count: int, transposed: bool, mask: Mask) -> Sequence[Array]:
    """`count` registers, each lane l holding row l div 4, columns 2 (l mod 4) and the next of its matrix."""
    converged(group, index, None, mask)
    if addresses.shape[2] == 1:
        addresses = np.broadcast_to(addresses, (*addresses.shape[:2], WARP))
    used = np.broadcast_to(ops.LANES < 8 * count, addresses.shape)
    used = used if mask is None else used & mask
    lanes = active(used, addresses)
    if lanes is None:
        return (ops.ZERO,) * count
    raw = read(group, index, lanes, 16)
    group.events.access(group, index, addresses, 16, used, False)
    out = []
    for matrix in range(count):
        tile = np.ascontiguousarray(raw[:, :, 8 * matrix : 8 * matrix + 8])
        if transposed:
            tile = np.ascontiguousarray(tile.view(np.uint16).reshape(*tile.shape[:2], 8, 8).swapaxes(-1, -2))
        words = tile.view(np.uint32)
        out.append(words.reshape(*words.shape[:2], WARP))
    return out


def gather(group: "Group", indices: Sequence[int], addresses: Sequence[Array], order: Array, slot: int) -> Array:
    """The float32 matrices (CTAs, warps, rows, K) at the concatenated lane `addresses` of several `ldmatrix`.

    `order` (rows, 16-byte halves of K) says which lane addresses what, `slot` names memory that may be used again.
    """
    if len(addresses) == 1:
        lanes = addresses[0]
    else:
        c, w = (max(a.shape[axis] for a in addresses) for axis in (0, 1))
        lanes = np.concatenate([np.broadcast_to(a, (c, w, WARP)) for a in addresses], axis=2)
    try:
        at = elements(group, indices[0], lanes, 16)
    except MemoryAccessError:
        for index, a in zip(indices, addresses, strict=True):
            elements(group, index, a, 16)
        raise
    for index, a in zip(indices, addresses, strict=True):
        used = 8 * int(group.machine.code[index].op[4][1:])
        group.events.access(group, index, a[:, :, :used], 16, None, False)
    view = group.machine.shared_view(16)
    at = at[:, :, order]
    raw = view.reshape(-1).take(group.rows[:, None, None, None] * view.shape[1] + at, mode="clip")
    out = group.machine.scratch(slot, (*raw.shape[:3], raw.shape[3] * 8))
    np.copyto(out, raw.view(np.uint16))  # widening and shifting in place beats a strided copy of the halves
    out <<= 16
    return out.view(np.float32)
