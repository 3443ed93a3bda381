"""Token groups and the settle pipeline: which parts have landed when, what each warp does, how x lies in its banks."""

from typing import Any

import numpy as np
import pandas as pd

from ..layouts import WARP, banks
from ..layouts import ws_gemm as layout
from ..layouts.swizzle import ELEMENT_BYTES
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from .swizzle import turns


def arrivals(table: pd.DataFrame, tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What landed in the cluster's shared memory when: a row per landing of bulk copies and of pushes, by time.

    `table` from `Trace.table` of the cluster's CTAs 0..ks-1, recorded with `analysis.cluster.OPCODES`. Columns: time,
    cta (that receives), kind ("x" or "parts"), number (the barrier's: group of x, slot of parts), group, block (of
    parts; else -1), source (CTA that sent), bytes, expected (bytes of the barrier's phase), landed (of them so far).
    """
    t, p = tactic, problem
    starts = {name: start for name, start, _ in t.smem_regions(p)}
    group_blocks = layout.tiles_per_group(p.m, t.tg) * t.rt
    parts, slice_bytes = t.ks * t.kq, ELEMENT_BYTES * p.k // t.ks
    sent, rows = {}, []
    for r in table[table.opcode.str.startswith("st.async") & (table.event == "execute")].itertuples():
        slot = int(r.addresses[0] - starts["receive"]) // (parts * layout.FRAGMENT_BYTES)
        sent[r.cta, r.warp, r.line] = int(r.peer[0]), slot
    for r in table[table.event == "land"].itertuples():
        if r.opcode.startswith("st.async"):
            cta, slot = sent[r.cta, r.warp, r.line]
            if r.barrier != starts["owner barriers"] + 8 * slot:  # of another warp that pushed at the same time
                continue
            block = layout.owned_block(cta, slot, t.ks)
            expected = parts * layout.FRAGMENT_BYTES
            rows.append((r.time, cta, "parts", slot, block // group_blocks, block, r.cta, r.lanes * r.bytes, expected))
        else:
            group = (r.barrier - starts["group barriers"]) // 8
            expected = layout.group_tokens(group, p.m, t.tg) * slice_bytes
            before = sum(row[7] for row in rows if row[1:4] == (r.cta, "x", group))
            landed = expected if r.phase else expected - r.pending_bytes
            rows.append((r.time, r.cta, "x", group, group, -1, r.cta, landed - before, expected))
    names = ["time", "cta", "kind", "number", "group", "block", "source", "bytes", "expected"]
    frame = pd.DataFrame(rows, columns=names).sort_values("time", kind="stable", ignore_index=True)
    frame = frame[frame.bytes > 0].reset_index(drop=True)  # x of other groups may land with the same copies
    return frame.assign(landed=frame.groupby(["cta", "kind", "number"]).bytes.cumsum())


def span_sentence(span: Any) -> str:
    """A span of `cluster_spans` of the settle pipeline, in words."""
    return {
        "wait grid": "waits for the previous grid (griddepcontrol.wait)",
        "wait CTA": "waits until the barriers of its CTA are initialised (bar.sync)",
        "wait cluster": "waits until the barriers of every owner are armed (barrier.cluster.wait)",
        "wait x": f"waits until x of group {span.group} has landed",
        "wait slot": f"waits until all parts of block {span.block} of group {span.group} are in slot {span.number}",
        "stage x": "arms the group barriers and sends for x, one bulk copy per token",
        "multiply": f"multiplies group {span.group}",
        "push": f"pushes its parts of group {span.group} to their owners",
        "settle": f"adds, turns round and publishes block {span.block} of group {span.group}",
    }[span.what]


def x_load_table(k_slice: int, padded: bool = True, block: int = 0) -> pd.DataFrame:
    """One 16-byte load of a fragment of x by a warp: lane, token, address, bank (the first of four), phase, wavefront.

    `k_slice`: K elements of a row of the tile. `padded`: with the pitch of the kernel, else rows end to end.
    """
    lane = np.arange(WARP)
    token, column = layout.load_row(lane), layout.k_column(0, block, lane, block + 1)
    address = layout.x_offset(token, column, k_slice) if padded else ELEMENT_BYTES * (token * k_slice + column)
    phase = lane // (WARP // banks.phases(16))
    bank = banks.bank(address)
    turn = turns(phase, bank)
    rounds = np.array([turn[phase == p].max() + 1 for p in range(banks.phases(16))])
    table = {"lane": lane, "token": token, "address": address, "bank": bank, "phase": phase}
    return pd.DataFrame(table | {"wavefront": (np.cumsum(rounds) - rounds)[phase] + turn})
