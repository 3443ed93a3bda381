"""The balanced kernels as tables: which rows an SM streams, what each warp does over a traced run, where its sums go;
and of the one with `wgmma` what lies where in a stage, and which thread has which sums.
"""

from typing import Any

import numpy as np
import pandas as pd

from ..layouts import WARP
from ..layouts import balanced_splitk as layout
from ..layouts import wgmma_splitk as wgmma
from ..layouts.fragments import MMA_K, MMA_M, MMA_N, WGMMA_M, wgmma_element
from ..layouts.swizzle import CHUNK
from ..problem import GemmProblem
from ..tactics import BalancedSplitKTactic
from ..tactics.balanced_splitk import MOST_ROWS
from .cluster import read_spans
from .pipeline import doing_at, region_at

CUTS = EQUAL, BALANCED = "equal tiles", "balanced tiles"
PARTS = TOKENS, WEIGHTS, PAST = "x", "weights", "past the tile"  #: of a stage that `wgmma` reads
STEP_CHUNKS = MMA_K // CHUNK  #: 16-byte chunks of a row that one `wgmma` takes
#: Opcodes to trace: all that moves data, multiplies or synchronises.
OPCODES = (
    "cp.async", "ld.shared", "ld.global.v4", "mma", "bar.", "griddepcontrol", "st.shared", "st.async", "st.global",
    "mbarrier", "barrier.cluster",
)  # fmt: skip
WAITS = ("wait grid", "wait copies", "wait lanes", "wait CTA", "wait cluster", "wait sums")
SENTENCES = {  #: a span of `warp_spans` in words
    "trigger": "lets the next grid start (griddepcontrol.launch_dependents)",
    "arm": "arms the mbarrier that counts the sums it will receive",
    "arrive": "arrives at the cluster barrier and goes on",
    "copy": "issues the copies of turn {number} into stage {stage} of its ring",
    "copy x": "issues the copies of the x of turn {number} into stage {stage}",
    "wait grid": "waits for the previous grid (griddepcontrol.wait)",
    "load x": "loads the x of its first K blocks into registers",
    "wait copies": "waits until its copies of turn {number} are in stage {stage} (cp.async.wait_group, bar.warp.sync)",
    "hold": "takes the weights of turn {number} from stage {stage} into registers",
    "multiply": "multiplies turn {number} in stage {stage}",
    "wait lanes": "waits until all its lanes have read stage {stage} (bar.warp.sync)",
    "store": "leaves its sums in its ring",
    "wait CTA": "waits for the sums of the other warps (bar.sync)",
    "wait cluster": "waits until every CTA of the cluster has armed its mbarrier (barrier.cluster.wait)",
    "push": "adds up fragment {number} over the warps and sends it to its owner (st.async)",
    "wait sums": "waits until the sums of all CTAs have arrived (mbarrier)",
    "finish": "adds up fragment {number} and stores the results",
}


def cuts(n: int, sms: int, tile: int) -> pd.DataFrame:
    """N cut in two ways, and which SM streams which rows, one CTA at a time: a row per CTA of either cut.

    Columns: cut (of `CUTS`: into tiles of `tile` rows, and by `layout.row_range` into as many tiles as SMs, or a
    multiple so that no tile has over `MOST_ROWS` rows), cta, sm, wave, first (weight row), rows.
    """
    equal = np.arange(-(-n // tile))
    row_tiles = min(n, sms * -(-n // (sms * MOST_ROWS)))
    balanced = np.arange(row_tiles)
    tables = [
        pd.DataFrame(dict(cut=EQUAL, cta=equal, first=tile * equal, rows=np.minimum(tile, n - tile * equal))),
        pd.DataFrame(dict(zip(("cta", "first", "rows"), (balanced, *layout.row_range(balanced, n, row_tiles)),
                              strict=True), cut=BALANCED)),
    ]  # fmt: skip
    table = pd.concat(tables, ignore_index=True)
    return table.assign(sm=table.cta % sms, wave=table.cta // sms)[["cut", "cta", "sm", "wave", "first", "rows"]]


def shares(table: pd.DataFrame, sms: int) -> pd.DataFrame:
    """What `cuts` give the SMs: a row per cut, by its name.

    Columns: ctas, waves, lowest and highest (rows of a tile), least and most (rows of an SM), idle (share of the time
    of all SMs until the busiest is done, if each streams at the same rate).
    """
    rows = table.pivot_table(index="cut", columns="sm", values="rows", aggfunc="sum", fill_value=0, sort=False)
    rows = rows.reindex(columns=range(sms), fill_value=0)
    ctas = table.groupby("cut", sort=False)
    facts = dict(ctas=ctas.size(), waves=ctas.wave.max() + 1, lowest=ctas.rows.min(), highest=ctas.rows.max())
    facts |= dict(least=rows.min(axis=1), most=rows.max(axis=1), idle=1 - rows.mean(axis=1) / rows.max(axis=1))
    return pd.DataFrame(facts)


def warp_spans(table: pd.DataFrame, tactic: BalancedSplitKTactic, problem: GemmProblem) -> pd.DataFrame:
    """What each warp of a cluster did: one row per span of logical time, by CTA, warp and start.

    `table` from `Trace.table` of the cluster's CTAs, recorded with `OPCODES`. Columns: cta, warp, what (of
    `SENTENCES`), number (turn of the warp; fragment of push and finish; else -1), stage (of the warp's ring; else -1),
    start, end (exclusive), line (of the PTX).
    """
    return read_spans(table, ("number", "stage"), lambda cta: _Reader(tactic, problem, cta).tell)


class _Reader:
    """Tells what the instructions of one warp are for, in their order."""

    ALONE = {
        "griddepcontrol.launch": "trigger", "griddepcontrol.wait": "wait grid", "st.shared": "store",
        "bar.sync": "wait CTA", "barrier.cluster.arrive": "arrive", "barrier.cluster.wait": "wait cluster",
        "mbarrier.try_wait": "wait sums", "mbarrier": "arm",
    }  # fmt: skip

    def __init__(self, tactic: BalancedSplitKTactic, problem: GemmProblem, cta: int):
        t = self.tactic = tactic
        self.regions, self.cta, self.filled = t.smem_regions(problem), cta, min(t.stages, t.turns(problem))
        self.ring = layout.warp_bytes(t.rows(problem), t.token_tile, t.k_chunk, t.stages, t.x_ring)
        self.ahead = int(t.held_blocks(problem) > 0)  # waits for the first turn's weights alone, before x comes
        self.commits, self.waits, self.copying, self.reading = 0, 0, "copy", False
        self.summing, self.fragment = False, -1  # whether K is done, and the fragment at hand

    def tell(self, row: Any) -> tuple[str, int, int] | None:
        """(what, number, stage), as `warp_spans` has them, or None for what only prepares."""
        op = row.opcode
        alone = next((what for prefix, what in self.ALONE.items() if op.startswith(prefix)), None)
        if alone:
            self.summing |= alone == "store"
            return alone, -1, -1
        if self.summing:
            return self._sum(op, row.addresses)
        if op.startswith("cp.async.wait_group"):
            self.waits, self.reading = self.waits + 1, False
            return self._in_turn("wait copies")
        if op.startswith("cp.async"):
            return self._copy(op)
        if op.startswith("ld.global") and self.waits <= self.ahead:
            return "load x", -1, -1
        if not self.waits:
            return None
        if op.startswith("bar.warp.sync"):  # the other lanes' copies are there, or they have read what is replaced
            return self._in_turn("wait lanes" if self.reading else "wait copies")
        self.reading = True
        return self._in_turn("hold" if self.waits <= self.ahead else "multiply")

    def _in_turn(self, what: str, turn: int | None = None) -> tuple[str, int, int]:
        turn = max(0, self.waits - 1 - self.ahead) if turn is None else turn
        return what, turn, turn % self.tactic.stages

    def _copy(self, op: str) -> tuple[str, int, int]:
        """Of a copy, or of the end of a group: first of weights, then of x, and of both where a stage is refilled."""
        again = self.filled * self.tactic.x_ring  # groups of x alone, behind as many of weights
        turn = self.commits - (again if self.commits >= self.filled else 0)
        if op.startswith("cp.async.commit"):
            self.commits += 1
        else:
            self.copying = "copy" if "cache_hint" in op else "copy x"
        return self._in_turn(self.copying, turn)

    def _sum(self, op: str, addresses: Any) -> tuple[str, int, int]:
        """Of a load of sums, of its own CTA's or of those that it received, or of what follows it."""
        cluster = self.tactic.cluster
        if op.startswith("ld.shared"):
            name, start = region_at(self.regions, addresses[0])
            place = int(addresses[0]) - start
            if name == "receive":
                self.fragment = layout.owned(self.cta, place // (cluster * layout.FRAGMENT_BYTES), cluster)
                return "finish", self.fragment, -1
            self.fragment = place % self.ring // layout.FRAGMENT_BYTES
            return "finish" if cluster == 1 else "push", self.fragment, -1
        return "push" if op.startswith("st.async") else "finish", self.fragment, -1


def flights(spans: pd.DataFrame) -> pd.DataFrame:
    """Copies in flight: cta, warp, number (turn), stage, start (of their issue), end (of the wait that needs them).

    They may land earlier: what a thread knows of its copies, and the trace of them, is when it has waited.
    """
    keys = ["cta", "warp", "number", "stage"]
    issues = spans[spans.what.isin(["copy", "copy x"])].groupby(keys)
    issued = pd.DataFrame(dict(start=issues.start.min(), issued=issues.end.max())).reset_index()
    waits = spans.loc[spans.what == "wait copies", [*keys, "end"]]
    both = issued.merge(waits, on=keys)
    return both[both.end > both.issued].groupby([*keys, "start"], as_index=False).end.min()


def turns_apart(spans: pd.DataFrame) -> tuple[int, int, int]:
    """(turns, warp ahead, warp behind): the most turns that one warp of CTA 0 had finished more than another."""
    ends = spans[(spans.cta == 0) & (spans.what == "multiply")].groupby(["warp", "number"]).end.max()
    times, warps = np.sort(ends.unique()), sorted(ends.index.unique("warp"))
    done = np.array([np.searchsorted(np.sort(ends[warp]), times, side="right") for warp in warps])
    apart = done.max(axis=0) - done.min(axis=0)
    at = int(apart.argmax())
    return int(apart[at]), warps[int(done[:, at].argmax())], warps[int(done[:, at].argmin())]


def warp_state(spans: pd.DataFrame, time: int) -> pd.DataFrame:
    """What every warp does at logical `time`, in words: CTA, warp, doing, line (of the PTX), in flight (turns)."""
    flying, rows = flights(spans), []
    flying = flying[(flying.start <= time) & (time < flying.end)]
    for (cta, warp), of_warp in spans.groupby(["cta", "warp"]):
        doing, line = doing_at(of_warp, time, SENTENCES, first="computes its addresses")
        turns = flying.number[(flying.cta == cta) & (flying.warp == warp)]
        rows.append((cta, warp, doing, line, ", ".join(f"turn {turn}" for turn in turns)))
    return pd.DataFrame(rows, columns=["CTA", "warp", "doing", "line", "in flight"])


def owners(tactic: BalancedSplitKTactic, problem: GemmProblem) -> pd.DataFrame:
    """Every warp's part of every fragment of a row tile, and which CTA of the cluster adds them up: a row for each.

    Columns: fragment, row_part (of 16 rows), token_part (of 8 tokens), owner, slot (of the owner), cta, warp, bytes.
    """
    t, rows = tactic, tactic.rows(problem)
    count = layout.fragments(rows, t.token_tile)
    fragment, cta, warp = (a.reshape(-1) for a in np.mgrid[0:count, 0 : t.cluster, 0 : t.warps])
    row, token = layout.sum_element(fragment, 0, 0, t.token_tile)
    owner, slot = layout.owner(fragment, t.cluster)
    place = dict(fragment=fragment, row_part=row // MMA_M, token_part=token // MMA_N, owner=owner, slot=slot)
    return pd.DataFrame(place | dict(cta=cta, warp=warp)).assign(bytes=layout.FRAGMENT_BYTES)


def fragment_sentences(parts: pd.DataFrame, fragment: int) -> list[str]:
    """Which sums are in one fragment of `owners`, and what happens to them: two lines."""
    r, ctas, warps = parts[parts.fragment == fragment].iloc[0], parts.cta.max() + 1, parts.warp.max() + 1
    rows, tokens = (
        f"{size * at} to {size * at + size - 1}" for size, at in ((MMA_M, r.row_part), (MMA_N, r.token_part))
    )
    return [
        f"fragment {fragment}  →  rows {rows} of the tile, tokens {tokens}  →  "
        f"owner CTA {r.owner} = {fragment} mod {ctas}, slot {r.slot}",
        f"in each CTA warp {fragment % warps} adds the sums of {warps} warps and sends them to the owner, whose warp "
        f"{r.slot % warps} adds those of {ctas} CTAs",
    ]


def arrivals(table: pd.DataFrame, tactic: BalancedSplitKTactic, problem: GemmProblem) -> pd.DataFrame:
    """The sums that landed in each CTA of a cluster: a row per landing, by time.

    `table` as of `warp_spans`. Columns: time, cta (that receives), source (CTA that sent), fragment, bytes, expected
    (bytes that the CTA's mbarrier waits for), landed (of them so far).
    """
    t = tactic
    count = layout.fragments(t.rows(problem), t.token_tile)
    receive = next((start for name, start, _ in t.smem_regions(problem) if name == "receive"), 0)
    sent, rows = {}, []
    pushes = table[table.opcode.str.startswith("st.async")]
    for r in pushes[pushes.event == "execute"].itertuples():
        slot = int(r.addresses[0] - receive) // (t.cluster * layout.FRAGMENT_BYTES)
        sent[r.cta, r.warp, r.line] = int(r.peer[0]), slot
    for r in pushes[pushes.event == "land"].itertuples():
        cta, slot = sent[r.cta, r.warp, r.line]
        expected = layout.slots(count, t.cluster, cta) * t.cluster * layout.FRAGMENT_BYTES
        rows.append((r.time, cta, r.cta, layout.owned(cta, slot, t.cluster), r.lanes * r.bytes, expected))
    frame = pd.DataFrame(rows, columns=["time", "cta", "source", "fragment", "bytes", "expected"])
    frame = frame.sort_values("time", kind="stable", ignore_index=True)
    return frame.assign(landed=frame.groupby("cta").bytes.cumsum())


def stage_chunks(rows: int, token_tile: int) -> pd.DataFrame:
    """Every 16-byte chunk of an atom of wgmma split-K, 64 K elements wide: a row for each, by row of the atom.

    Columns: row, chunk (0..7 of its K), what (of `PARTS`), index (token, or row of the tile of `rows`), a and b (which
    row of that operand; -1: none), address (byte of the atom), thread (of the warpgroup, that copies it; -1: none).
    """
    per_row = wgmma.ATOM_K // CHUNK
    row, chunk = np.divmod(np.arange(per_row * wgmma.stage_rows(rows, token_tile)), per_row)
    b = np.where(row < token_tile, -1, row - token_tile)
    index = np.where(b < 0, row, b)
    thread = np.arange(wgmma.GROUP)
    copier = np.empty((wgmma.COPIED_ROWS, per_row), int)
    copier[wgmma.copied(thread)] = thread
    what = np.select([b < 0, b < rows], [TOKENS, WEIGHTS], PAST)
    roles = dict(what=what, index=index, a=np.where(row < WGMMA_M, row, -1), b=b)
    places = dict(address=wgmma.atom_offset(row, chunk))
    places["thread"] = np.where(b < rows, copier[index % wgmma.COPIED_ROWS, chunk], -1)
    return pd.DataFrame(dict(row=row, chunk=chunk) | roles | places)


def wgmma_sums(rows: int, token_tile: int) -> pd.DataFrame:
    """The accumulator of a `wgmma` of wgmma split-K: a row for each sum, by thread of the warpgroup and word.

    Columns: thread, word, a and b (the rows of the operands), fragment (in which it is stored; -1: in none), result
    (whether it is one: of a token and a row of the tile).
    """
    words = np.arange(wgmma.whole_rows(rows) // 2)
    thread, word = (part.reshape(-1) for part in np.meshgrid(np.arange(wgmma.GROUP), words, indexing="ij"))
    a, b = wgmma_element(thread // WARP, thread % WARP, word)
    part = a // MMA_M
    stored = part < wgmma.token_parts(token_tile)
    fragment = np.where(stored, wgmma.fragment(b // wgmma.ROW_STEP, part, token_tile), -1)
    result = (a < token_tile) & (b < rows)
    return pd.DataFrame(dict(thread=thread, word=word, a=a, b=b, fragment=fragment, result=result))


def places_of(chunks: pd.DataFrame) -> np.ndarray:
    """Where each of the `stage_chunks` lies in the 128 bytes of its row: 0 to 7, which is its group of four banks."""
    return (chunks.address % wgmma.ATOM_ROW_BYTES // layout.CHUNK_BYTES).to_numpy()


def stage_sentences(chunks: pd.DataFrame, sums: pd.DataFrame, row: int, step: int, thread: int) -> list[str]:
    """In three lines: what `row` of a stage is, where its chunks of k16 `step` lie, and what `thread` has to do."""
    of_row = chunks[chunks.row == row]
    r, taken = of_row.iloc[0], of_row[of_row.chunk // STEP_CHUNKS == step]
    names = {TOKENS: f"token {r['index']}", WEIGHTS: f"row {r['index']} of the tile", PAST: f"{PAST}, never copied"}
    dropped = "" if r.what == TOKENS else " (its sums are dropped)"
    roles = [text for at, text in ((r.a, f"row {r.a} of A{dropped}"), (r.b, f"row {r.b} of B")) if at >= 0]
    places = [f"chunk {chunk} at place {at}" for chunk, at in zip(taken.chunk, places_of(taken), strict=True)]
    copied, results = chunks[chunks.thread == thread], sums[sums.result & (sums.thread == thread)]
    rows = ", ".join(map(str, copied.row))
    copies = f"copies chunk {copied.chunk.iloc[0]} of rows {rows}" if len(copied) else "copies nothing"
    tokens = " and ".join(map(str, results.a.unique()))
    has = f"has {len(results)} sums of token{'s' * (results.a.nunique() > 1)} {tokens}" if tokens else "has no result"
    return [
        f"row {row} of the stage  →  {names[r.what]}  →  {' and '.join(roles)}",
        f"its k16 {step}  →  {', '.join(places)} of 128 bytes: XOR {row % wgmma.ROW_STEP}, the row mod 8",
        f"thread {thread}  →  {copies}  →  lane {thread % WARP} of warp {thread // WARP} {has}",
    ]
