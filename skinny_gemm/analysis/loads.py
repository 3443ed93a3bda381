"""One warp-wide load of shared memory as a table: lane by lane the address, the banks and the wavefront that serve it.

Of warp split-K an `ldmatrix.x4`, of the weight-stationary GEMM a load of x. Offsets are those of `layouts`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..layouts import WARP, banks, warp_splitk, ws_gemm
from ..layouts.fragments import ldmatrix_destination
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES, plain_offset, tile_offset

CHUNK_BYTES = CHUNK * ELEMENT_BYTES
GROUPS = banks.BANKS * banks.WORD // CHUNK_BYTES  #: eight groups of four banks
ADDRESSES = {"A": warp_splitk.a_ldmatrix, "B": warp_splitk.b_ldmatrix}


def group(address: Any) -> Any:
    """The group of four banks, 0..7, that serves the 16-byte chunk at byte `address` (an integer or an array)."""
    return address // CHUNK_BYTES % GROUPS


def ldmatrix_table(operand: str, warp: int, step: int, phase: int, k_tile: int, swizzled: bool = True) -> pd.DataFrame:
    """What each of the 32 lanes does in one `ldmatrix.x4` of the kernel: one row per lane.

    `operand` "A" or "B"; `phase` is the k16 phase of A, the pair of phases of B. Columns: lane, row and col (element of
    the tile), address (byte in the stage), bank (the first of four), matrix (0..3, served one after the other), turn
    (how many lanes of the same matrix go before it at the same banks), register (which of four it fills) and
    first_lane (of the four lanes that get its 16 bytes). ValueError on another operand.
    """
    if operand not in ADDRESSES:
        raise ValueError(f"operand is {operand!r}: the kernel loads A and B")
    lane = np.arange(WARP)
    row, col = ADDRESSES[operand](warp, step, phase, lane, k_tile)
    address = ELEMENT_BYTES * (tile_offset if swizzled else plain_offset)(row, col, k_tile)
    matrix, first_lane = ldmatrix_destination(lane)  # a matrix fills the register of its number
    return pd.DataFrame(
        {
            "lane": lane,
            "row": row,
            "col": col,
            "address": address,
            "bank": banks.bank(address),
            "matrix": matrix,
            "turn": turns(matrix, group(address)),
            "register": matrix,
            "first_lane": first_lane,
        }
    )


def turns(phase: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """How many earlier lanes of the same phase want the same bank: integers `(32,)`, as `phase` and `bank`."""
    lane = np.arange(len(phase))
    return ((phase[:, None] == phase) & (bank[:, None] == bank) & (lane[:, None] > lane)).sum(axis=1)


def lane_sentence(table: pd.DataFrame, lane: int) -> str:
    """The way of one lane's 16 bytes, from its address to the registers they fill."""
    r = table.loc[lane]
    return (
        f"lane {lane}  →  row {r.row}, k {r.col} to {r.col + CHUNK - 1}  →  byte {r.address} of the stage  →  "
        f"16-byte chunk {r.address // CHUNK_BYTES}  →  banks {r.bank} to {r.bank + 3}  →  "
        f"register {r.register} of lanes {r.first_lane} to {r.first_lane + 3}"
    )


def bank_sentence(table: pd.DataFrame, bank: int) -> str:
    """Which lanes hit one bank, matrix by matrix."""
    hit = table[table.bank == bank // 4 * 4]
    parts = [f"matrix {matrix}: {_lanes(rows.lane)}" for matrix, rows in hit.groupby("matrix")]
    return f"bank {bank} serves  " + ";  ".join(parts) if parts else f"bank {bank} serves no lane of this load"


def _lanes(lanes: Sequence[int]) -> str:
    lanes = list(lanes)
    return f"lane {lanes[0]}" if len(lanes) == 1 else f"lanes {', '.join(map(str, lanes))}"


def x_load_table(k_slice: int, padded: bool = True, block: int = 0) -> pd.DataFrame:
    """One 16-byte load of a fragment of x by a warp: lane, token, address, bank (the first of four), phase, wavefront.

    `k_slice`: K elements of a row of the tile. `padded`: with the pitch of the kernel, else rows end to end.
    """
    lane = np.arange(WARP)
    token, column = ws_gemm.load_row(lane), ws_gemm.k_column(0, block, lane, block + 1)
    address = ws_gemm.x_offset(token, column, k_slice) if padded else ELEMENT_BYTES * (token * k_slice + column)
    phase = lane // (WARP // banks.phases(16))
    bank = banks.bank(address)
    turn = turns(phase, bank)
    rounds = np.array([turn[phase == p].max() + 1 for p in range(banks.phases(16))])
    table = {"lane": lane, "token": token, "address": address, "bank": bank, "phase": phase}
    return pd.DataFrame(table | {"wavefront": (np.cumsum(rounds) - rounds)[phase] + turn})
