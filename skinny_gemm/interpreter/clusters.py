"""The clusters of a chunk: which row is which CTA of which cluster, and what shared::cluster addresses mean.

A shared::cluster address holds the CTA's rank plus one from bit 24 on. Zero there is the thread's own CTA, whose window
is part of the cluster's: `mapa` of the own rank gives back the address itself.
"""

import numpy as np

RANK_SHIFT = 24
OFFSET = (1 << RANK_SHIFT) - 1
NEGATIVE, FAR = 254, 253  #: what an address holds as the rank of a CTA below 0, or from 253 on: both in no cluster
LARGEST = 16  #: CTAs of a cluster, non-portable sizes included


def linear(ctas: np.ndarray, grid: tuple[int, int, int]) -> np.ndarray:
    """The numbers of CTAs with coordinates (..., 3) in the grid, x fastest."""
    return ctas @ np.array([1, grid[0], grid[0] * grid[1]])


class Clusters:
    """`ctas` (n, 3) are the chunk's CTAs; of each, `fills` neighbouring rows are twins."""

    def __init__(self, ctas: np.ndarray, size: int, grid: tuple[int, int, int], fills: int, warps: int):
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

    def mapa(self, rows: np.ndarray, addresses: np.ndarray, rank: np.ndarray) -> np.ndarray:
        """The shared::cluster addresses of what `addresses` are in the CTAs `rank`."""
        offset = addresses & np.uint32(OFFSET)
        rank = np.where(rank > FAR, np.where(rank >> np.uint32(31), np.uint32(NEGATIVE), np.uint32(FAR)), rank)
        far = (rank + np.uint32(1)) << np.uint32(RANK_SHIFT) | offset
        return np.where(rank == self.rank[rows][:, None, None], offset, far)
