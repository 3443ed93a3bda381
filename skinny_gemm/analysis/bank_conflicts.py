"""Loads and stores of shared memory as tables: one warp-wide load lane by lane, and the bank conflicts of a kernel.

Offsets are those of `layouts`. Conflicts are tables of mean wavefronts per warp-wide access (access, source,
wavefronts, ideal), by the layouts' model and by a trace of the kernel.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..layouts import WARP, balanced_splitk, banks, warp_splitk, ws_gemm
from ..layouts.fragments import ldmatrix_destination, load_row
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES, plain_offset, tile_offset
from ..problem import GemmProblem
from ..tactics import Tactic
from .pipeline import region_at

CHUNK_BYTES = CHUNK * ELEMENT_BYTES
GROUPS = banks.BANKS * banks.WORD // CHUNK_BYTES  #: eight groups of four banks
ADDRESSES = {"A": warp_splitk.a_ldmatrix, "B": warp_splitk.b_ldmatrix}
COLUMNS = ["access", "source", "wavefronts", "ideal"]
PLAIN, SHIPPED, TRACED = SOURCES = "model, row-major", "model, as shipped", "trace of the kernel"


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
    table = dict(lane=lane, row=row, col=col, address=address, bank=banks.bank(address), matrix=matrix)
    return pd.DataFrame(table).assign(turn=_turns(matrix, group(address)), register=matrix, first_lane=first_lane)


def x_load_table(k_slice: int, padded: bool = True, block: int = 0) -> pd.DataFrame:
    """One 16-byte load of a fragment of x by a warp: lane, token, address, bank (the first of four), phase, wavefront.

    `k_slice`: K elements of a row of the tile. `padded`: with the pitch of the kernel, else rows end to end.
    """
    lane = np.arange(WARP)
    token, column = load_row(lane), ws_gemm.k_column(0, block, lane, block + 1)
    address = ws_gemm.x_offset(token, column, k_slice) if padded else ELEMENT_BYTES * (token * k_slice + column)
    return pd.DataFrame(dict(lane=lane, token=token) | _served(address))


def stage_load_table(k_chunk: int, swapped: bool = True, half: int = 0, block: int = 0) -> pd.DataFrame:
    """One 16-byte load of weights of balanced split-K by a warp: lane, row and chunk (of 16 bytes) of the stage,
    address, bank (the first of four), phase, wavefront.

    A stage has rows of `k_chunk` K elements; `swapped`: as in the kernel, else row-major. `half` tile and K `block`.
    """
    lane = np.arange(WARP)
    row, chunk = balanced_splitk.loaded_row(lane, half), balanced_splitk.loaded_chunk(lane, block)
    plain = row * ELEMENT_BYTES * k_chunk + chunk * CHUNK_BYTES
    address = balanced_splitk.stage_offset(row, chunk, k_chunk) if swapped else plain
    return pd.DataFrame(dict(lane=lane, row=row, chunk=chunk) | _served(address))


def _served(address: np.ndarray) -> dict[str, np.ndarray]:
    """By which banks and when a warp's 16-byte accesses to `address` are served: address, bank, phase, wavefront."""
    phase, bank = np.arange(WARP) // (WARP // banks.phases(16)), banks.bank(address)
    turn = _turns(phase, bank)
    rounds = np.array([turn[phase == p].max() + 1 for p in range(banks.phases(16))])
    return dict(address=address, bank=bank, phase=phase, wavefront=(np.cumsum(rounds) - rounds)[phase] + turn)


def _turns(phase: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """How many earlier lanes of the same phase want the same bank."""
    return np.tril((phase[:, None] == phase) & (bank[:, None] == bank), -1).sum(axis=1)


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
    parts = []
    for matrix, rows in table[table.bank == bank // 4 * 4].groupby("matrix"):
        parts.append(f"matrix {matrix}: lane{'s' * (len(rows) > 1)} {', '.join(map(str, rows.lane))}")
    return f"bank {bank} serves  " + ";  ".join(parts) if parts else f"bank {bank} serves no lane of this load"


def modelled(tactic: Tactic, problem: GemmProblem) -> pd.DataFrame:
    """The conflicts of every kind of access by the bank model; ValueError in words if the kernel describes none."""
    rows = []
    for access in tactic.shared_accesses(problem):
        for source, addresses in ((PLAIN, access.plain), (SHIPPED, access.shipped)):
            if addresses is not None:
                wavefronts = float(banks.wavefronts(addresses, access.bytes_per_lane).mean())
                rows.append((access.name, source, wavefronts, float(banks.ideal_wavefronts(access.bytes_per_lane))))
    if not rows:
        raise ValueError(f"{tactic.kernel} describes no accesses to shared memory: there are no conflicts to count")
    return pd.DataFrame(rows, columns=COLUMNS)


def observed(accesses: pd.DataFrame, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """The same from `accesses`, a table of `interpreter.shared_accesses`; `regions` as in a footprint."""
    names = [region_at(regions, addresses.min())[0] for addresses in accesses.addresses]
    kinds = accesses.opcode.str.extract(r"(cp\.async|[^.]+)", expand=False)
    labels = [f"{name}, {kind}" for name, kind in zip(names, kinds, strict=True)]
    means = accesses.assign(access=labels, source=TRACED).groupby(["access", "source"], sort=False)
    return means[["wavefronts", "ideal"]].mean().reset_index()
