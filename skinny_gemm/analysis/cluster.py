"""What the CTAs of one cluster of the weight-stationary GEMM do with each other, read off a trace, in its logical time:
who did what when, which bytes went from where to where, and which parts had landed when. `read_spans`, `traffic` and
`planned_traffic` serve any kernel.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..layouts import WARP
from ..layouts import ws_gemm as layout
from ..layouts.fragments import MMA_N
from ..layouts.swizzle import ELEMENT_BYTES
from ..problem import GemmProblem
from ..tactics import WsGemmTactic
from .pipeline import doing_at, region_at

#: Opcodes to trace: all after the weights' loads that moves data or waits.
OPCODES = (
    "griddepcontrol.wait", "ld.global.v4", "cp.async.bulk", "ld.shared", "st.shared", "st.async", "st.relaxed", "mma",
    "mbarrier", "barrier.cluster", "bar.sync",
)  # fmt: skip
WAITS = ("wait grid", "wait CTA", "wait cluster", "wait x", "wait slot")
SETTLE_SENTENCES = {  #: a span of the settle pipeline in words
    "wait grid": "waits for the previous grid (griddepcontrol.wait)",
    "wait CTA": "waits until the barriers of its CTA are initialised (bar.sync)",
    "wait cluster": "waits until the barriers of every owner are armed (barrier.cluster.wait)",
    "wait x": "waits until x of group {group} has landed",
    "wait slot": "waits until all parts of block {block} of group {group} are in slot {number}",
    "stage x": "arms the group barriers and sends for x, one bulk copy per token",
    "multiply": "multiplies group {group}",
    "push": "pushes its parts of group {group} to their owners",
    "settle": "adds, turns round and publishes block {block} of group {group}",
}


def cluster_spans(table: pd.DataFrame, tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What each warp of a cluster did: one row per span of logical time, by CTA, warp and start.

    `table` from `Trace.table` of the cluster's CTAs 0..ks-1, recorded with `OPCODES`. Columns: cta, warp, what (of
    `WAITS`, or stage x, multiply, store, push, gather, settle), group (token group; 0 in a single pass, -1 without),
    block (that is settled or whose slot is waited for; else -1), number (of a cluster barrier, from 1; slot or group of
    an mbarrier; -1), start, end (exclusive), line (of the PTX).
    """
    return read_spans(table, ("group", "block", "number"), lambda cta: _Reader(tactic, problem, cta).tell)


def read_spans(table: pd.DataFrame, facts: Sequence[str], reader: Callable[[int], Callable]) -> pd.DataFrame:
    """The spans of each traced warp, by CTA, warp and start: cta, warp, what, `facts`, start, end (exclusive), line.

    `reader` makes, for a warp of a CTA, a function that tells what each of its instructions, in their order, is for:
    (what, *facts), or None for what only prepares. Instructions in a row that tell the same are one span; a wait is
    from when it began.
    """
    spans: list[tuple] = []
    for (cta, warp), rows in table[table.event != "land"].groupby(["cta", "warp"], sort=True):
        tell, waiting = reader(cta), None
        of_warp: list[tuple] = []
        for row in rows.sort_values("time").itertuples():
            if row.event == "wait":
                waiting = row.time if waiting is None else waiting
            elif meaning := tell(row):
                if of_warp and of_warp[-1][:-3] == meaning:  # goes on; or a try_wait that had failed without need
                    of_warp[-1] = (*meaning, of_warp[-1][-3], row.time + 1, of_warp[-1][-1])
                else:
                    of_warp.append((*meaning, row.time if waiting is None else waiting, row.time + 1, row.line))
                waiting = None
        spans += [(cta, warp, *span) for span in of_warp]
    return pd.DataFrame(spans, columns=["cta", "warp", "what", *facts, "start", "end", "line"])


class _Reader:
    """Tells what the instructions of one warp are for, in their order."""

    ALONE = {"griddepcontrol.wait": "wait grid", "bar.sync": "wait CTA", "cp.async.bulk": "stage x"}
    REGIONS = {"stages": "multiply", "x": "multiply", "parts": "store", "receive": "settle", "red": "settle"}

    def __init__(self, tactic: WsGemmTactic, problem: GemmProblem, cta: int):
        self.regions, self.tactic, self.cta = tactic.smem_regions(problem), tactic, cta
        self.tiles = layout.tiles_per_group(problem.m, tactic.tg)
        self.group, self.block = (-1 if tactic.tg else 0), -1

    def tell(self, row: Any) -> tuple[str, int, int, int] | None:
        """(what, group, block, number), as `cluster_spans` has them, or None for what only prepares."""
        op = row.opcode
        alone = next((what for prefix, what in self.ALONE.items() if op.startswith(prefix)), None)
        if alone:
            return alone, -1, -1, -1
        if op.startswith("barrier.cluster.wait"):
            return "wait cluster", -1, -1, row.phase
        if op.startswith("mbarrier.try_wait"):
            name, start = region_at(self.regions, row.barrier)
            number = (row.barrier - start) // 8
            if name == "group barriers":
                self.group = number
                return "wait x", number, -1, number
            self.block = layout.owned_block(self.cta, number, self.tactic.ks)
            return "wait slot", *self.at_block(), number
        if op.startswith(("mma", "ld.global")):
            return "multiply", self.group, -1, -1
        if op.startswith("st.async"):
            return "push", self.group, -1, -1
        if op.startswith("st.relaxed"):
            return "settle", *self.at_block(), -1
        if op.startswith(("ld.shared", "st.shared")):
            name, start = region_at(self.regions, row.addresses[0])
            if name == "parts" and op.startswith("ld"):
                self.block = int(row.addresses[0] - start) // (self.tactic.kq * layout.FRAGMENT_BYTES)
                return "gather", *self.at_block(), -1
            what = self.REGIONS[name]
            return what, *(self.at_block() if what == "settle" else (self.group, -1)), -1
        return None

    def at_block(self) -> tuple[int, int]:
        """(group, block) of the block at hand."""
        return layout.block_tile(self.block, self.tactic.rt)[0] // self.tiles, self.block


def traffic(table: pd.DataFrame, ks: int) -> pd.DataFrame:
    """Bytes of sums from each CTA of the cluster to each, a row per pair: source, target, bytes.

    A gather's loads bring bytes from the peer, pushes take them there; a CTA's own bytes go the same way.
    """
    rows = table[(table.space == "dsmem") & (table.event == "execute")]
    matrix = np.zeros((ks, ks), np.int64)
    for row in rows.itertuples():
        active = (row.active >> np.arange(WARP)) & 1 == 1
        for peer, lanes in zip(*np.unique(np.asarray(row.peer)[active] % ks, return_counts=True), strict=True):
            pair = (peer, row.cta) if row.opcode.startswith("ld") else (row.cta, peer)
            matrix[pair] += row.bytes * lanes
    source, target = np.divmod(np.arange(ks * ks), ks)
    return pd.DataFrame(dict(source=source, target=target, bytes=matrix.reshape(-1)))


def owners(m: int, rt: int, kq: int, ks: int, tg: int = 0) -> pd.DataFrame:
    """Every part of every block of a cluster, and who sums it: a row per (block, CTA that holds the part, part).

    Columns: block, token_tile, row_tile, group, owner, slot, cta, part (0..kq-1 of the CTA), order (in which it is
    added, 0..ks*kq-1), bytes.
    """
    tiles = layout.token_tiles(m)
    block, cta, part = (a.reshape(-1) for a in np.mgrid[0 : tiles * rt, 0:ks, 0:kq])
    token_tile, row_tile = layout.block_tile(block, rt)
    owner, slot = layout.owner(block, ks)
    table = dict(
        block=block, token_tile=token_tile, row_tile=row_tile, group=token_tile // layout.tiles_per_group(m, tg)
    )
    table |= dict(owner=owner, slot=slot, cta=cta, part=part, order=cta * kq + part)
    return pd.DataFrame(table).assign(bytes=layout.FRAGMENT_BYTES)


def planned_traffic(parts: pd.DataFrame, ks: int, leader: bool = False) -> pd.DataFrame:
    """`traffic` as `owners` has it; with `leader`, as if CTA 0 summed every block."""
    target = 0 * parts.owner if leader else parts.owner
    sums = parts.bytes.groupby([parts.cta, target]).sum()
    every = pd.MultiIndex.from_product([range(ks), range(ks)])
    return sums.reindex(every, fill_value=0).rename_axis(["source", "target"]).rename("bytes").reset_index()


def settle_state(spans: pd.DataFrame, time: int) -> pd.DataFrame:
    """What every warp of a settle pipeline does at logical `time`, in words: CTA, warp, doing, line (of the PTX)."""
    warps = spans.groupby(["cta", "warp"])
    rows = [(*name, *doing_at(of_warp, time, SETTLE_SENTENCES, first="loads weights")) for name, of_warp in warps]
    return pd.DataFrame(rows, columns=["CTA", "warp", "doing", "line"])


def block_sentence(parts: pd.DataFrame, block: int) -> str:
    """Where one block's parts are and who sums them."""
    of_block = parts[parts.block == block]
    r = of_block.iloc[0]
    away = int((of_block.cta != r.owner).sum())
    ks = parts.cta.max() + 1
    return (
        f"block {block}  →  tokens {MMA_N * r.token_tile} to {MMA_N * r.token_tile + MMA_N - 1}, row tile {r.row_tile}"
        f"  →  owner CTA {r.owner} = {block} mod {ks}, slot {r.slot}  →  it adds {len(of_block)} parts of {r.bytes} B, "
        f"{away} of them from other CTAs"
    )


def arrivals(table: pd.DataFrame, tactic: WsGemmTactic, problem: GemmProblem) -> pd.DataFrame:
    """What landed in the cluster's shared memory when: a row per landing of bulk copies and of pushes, by time.

    `table` from `Trace.table` of the cluster's CTAs 0..ks-1, recorded with `OPCODES`. Columns: time,
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
