"""The weight-stationary GEMM's operands as tables: the K permutation, where the weights wait, and what a warp does
before and after the previous kernel has finished.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from ..layouts import WARP, fragments
from ..layouts import ws_gemm as layout
from .pipeline import region_at

MMAS = fragments.K_BLOCK // fragments.MMA_K  #: of a K block
CHUNK = 8  #: K elements of a lane's 16 bytes
REGISTERS, STAGED = "registers", "shared memory"  #: where weights wait
#: Opcodes to trace for `warp_steps`.
OPCODES = (
    "cp.async", "ld.global", "ld.shared", "st.", "multimem", "add.f32", "add.rn.f32", "mma", "mbarrier", "bar.",
    "barrier", "griddepcontrol",
)  # fmt: skip
HELD, COPIED, WAIT, X = "weights to registers", "weights to shared memory", "wait", "x"
BACK, MMA, SUMS, PUBLISH = "staged weights back", "mma", "sums: add, exchange", "publish"
KINDS = (HELD, COPIED, WAIT, X, BACK, MMA, SUMS, PUBLISH)


def fragment_table() -> pd.DataFrame:
    """One row per 32-bit word (two K elements) that a lane loads of a K block, of 16 weight rows and 8 tokens.

    Columns: operand ("W" or "x"), lane, row (of the weight tile, or token), word (0..3 of the 16 bytes), element (the
    first of its two K elements 0..31 in memory), mma (0, 1), register (of that operand's fragment), k (the first of
    the two K positions 0..15 that the mma takes it for).
    """
    lane = np.arange(WARP)
    low, high = ([(half, word) for word in range(4)] for half in (0, 1))  # of weight rows g and g + 8
    tables = []
    for mma in range(MMAS):
        for operand, words in (("W", fragments.a_words(mma, low, high)), ("x", fragments.b_words(mma, low))):
            for register, (half, word) in enumerate(words):
                row, element = fragments.load_row(lane) + 8 * half, layout.k_column(0, 0, lane, 1) + 2 * word
                in_w, in_x = fragments.a_element(lane, register, 0), fragments.b_element(lane, register, 0)
                place = dict(mma=mma, register=register, k=in_w[1] if operand == "W" else in_x[0])
                tables.append(
                    pd.DataFrame(dict(operand=operand, lane=lane, row=row, word=word, element=element) | place)
                )
    return pd.concat(tables, ignore_index=True)


def lane_sentences(table: pd.DataFrame, lane: int, column: int) -> list[str]:
    """What `lane` loads of the K block that starts at `column`, and where its words go: two lines."""
    of_lane = table[table.lane == lane]
    rows, first = sorted(of_lane[of_lane.operand == "W"].row.unique()), column + int(of_lane.element.min())
    tokens = of_lane[of_lane.operand == "x"].sort_values("word")
    return [
        f"lane {lane}  →  16 bytes each of weight rows {rows[0]} and {rows[1]} and of token {tokens.row.iloc[0]}: "
        f"K {first} to {first + CHUNK - 1}",
        ";  ".join(f"word {r.word} is k {r.k}, {r.k + 1} of mma {r.mma} (B register {r.register})"
                   for r in tokens.itertuples()),
    ]  # fmt: skip


@lru_cache(maxsize=8)
def placement_table(rt: int, kq: int, ks: int, kb: int, staged: int) -> pd.DataFrame:
    """Where the weights of one cluster wait: one row per (row tile, K block of 32).

    Columns: row_tile, part (0..ks*kq-1), block (0..kb-1 of the part), column (its first K), cta, warp, place
    (`REGISTERS` or `STAGED`), offset (of the staged block in shared memory, lane 0; else -1).
    """
    row_tile, part, block = (a.reshape(-1) for a in np.mgrid[0:rt, 0 : ks * kq, 0:kb])
    warp = row_tile * kq + part % kq
    through = block < staged
    place = dict(row_tile=row_tile, part=part, block=block, column=layout.k_column(part, block, 0, kb), cta=part // kq)
    offset = np.where(through, layout.stage_offset(warp, block, 0, 0, staged), -1)
    return pd.DataFrame(place | dict(warp=warp, place=np.where(through, STAGED, REGISTERS), offset=offset))


def placement_sentence(table: pd.DataFrame, cta: int, warp: int) -> str:
    """What one warp holds of the weights."""
    blocks = table[(table.cta == cta) & (table.warp == warp)]
    held, staged = (int((blocks.place == place).sum()) for place in (REGISTERS, STAGED))
    low, high = blocks.column.min(), blocks.column.max() + fragments.K_BLOCK - 1
    registers = f"{held} K blocks in {8 * held} registers of each lane" if held else "none in registers"
    shared = f"{staged} in {2 * staged * layout.FRAGMENT_BYTES:,} B of shared memory" if staged else "none staged"
    return f"warp {warp} of CTA {cta}  →  row tile {blocks.row_tile.iloc[0]}, K {low} to {high}: {registers}, {shared}"


def warp_steps(table: pd.DataFrame, ptx: str, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """What one warp did, in its own order: one row per instruction that moves, multiplies, adds or waits.

    `table` is the trace of that warp, recorded with `OPCODES`; `ptx` the kernel's text, which tells the chains;
    `regions` as in a footprint. Columns: step, kind (of `KINDS`), chain (of an mma: accumulators in the order of their
    first use; else -1), bytes (moved by the whole warp), exposed (after griddepcontrol.wait), line (of the PTX).
    """
    lines, exposed = ptx.split("\n"), False
    chain_of: dict[str, int] = {}
    steps: list[tuple] = []
    for row in table[table.event != "wait"].sort_values("time").itertuples():
        if row.opcode.startswith("griddepcontrol.wait"):
            exposed = True
        kind, chain = _kind(row, regions), -1
        if kind is None:
            continue
        if kind == MMA:  # whose result its accumulator was
            operands = re.findall(r"{([^}]*)}", lines[row.line - 1])
            chain = chain_of.get(operands[3], len(set(chain_of.values())))
            chain_of[operands[0]] = chain
        steps.append((len(steps), kind, chain, row.bytes * row.lanes, exposed, row.line))
    return pd.DataFrame(steps, columns=["step", "kind", "chain", "bytes", "exposed", "line"])


def chain_table(steps: pd.DataFrame) -> pd.DataFrame:
    """The accumulator chains of `warp_steps`: chain and mma, how many depend on each other one after the other."""
    return steps[steps.kind == MMA].groupby("chain").size().reset_index(name="mma")


def exposure_sentences(steps: pd.DataFrame) -> list[str]:
    """What lies before and after the wait for the previous kernel, in two lines."""
    before, after = steps[~steps.exposed], steps[steps.exposed]
    weights = before[before.kind.isin([HELD, COPIED])]
    chains, late = chain_table(steps), int(after.kind.isin([HELD, COPIED]).sum())
    return [
        f"before the wait: {len(weights)} loads of {weights.bytes.sum():,} B of weights, all that the warp needs",
        f"after it: {int((after.kind == X).sum())} loads of x, {int(chains.mma.sum())} mma in {len(chains)} chains "
        f"(the longest {chains.mma.max()}), then the sums; {late or 'no'} loads of weights",
    ]


def _kind(row: Any, regions: Sequence[tuple[str, int, int]]) -> str | None:
    """Which of `KINDS` an instruction is; None for what only synchronises without waiting."""
    op = row.opcode
    if op.startswith("mma"):
        return MMA
    if op.startswith("cp.async.bulk"):
        return X if row.event == "execute" else None
    if op.startswith("cp.async") and row.bytes:
        return COPIED
    if op.startswith("ld.global"):
        return HELD if "cache_hint" in op else X
    if op.startswith("ld.shared.") and row.addresses is not None:
        return {"stages": BACK, "x": X}.get(region_at(regions, row.addresses[0])[0], SUMS)
    if op.startswith(("st.shared", "ld.shared", "add")) or (op.startswith("st.async") and row.event == "execute"):
        return SUMS
    if op.startswith(("st.relaxed", "multimem")):
        return PUBLISH
    if op.startswith(("griddepcontrol.wait", "cp.async.wait", "bar.sync", "barrier.cluster.wait", "mbarrier.try")):
        return WAIT
    return None
