"""A campaign in one table of text, and how our best stand against the peers' best. Needs no pandas."""

from collections.abc import Iterable
from itertools import product
from statistics import median

from . import best as tables
from .schema import BOUNDS, MODES, PEERS, Campaign, Record
from .statistics import verdict

NOISE = 0.04  #: 95 % of the points of two campaigns on two boards differed by less, see the README


def lines(rows: Iterable[Record]) -> list[str]:
    """One line for each (N, K, M, mode, kernel of ours): its best tactic, the streaming bound, every peer's best.

    Microseconds. The verdict compares our best with the fastest peer, by their intervals.
    """
    rows = list(rows)
    peers = [peer for peer in PEERS if any(row.kernel == peer for row in rows)]
    kernels = list(dict.fromkeys(row.kernel for row in rows if row.kernel not in PEERS + BOUNDS))
    heading = f"{'N x K':>13} {'M':>3} {'mode':8} {'kernel':11} {'ours':>8} {'tactic':16} {'stream':>7} {'ratio':>5}"
    table = [heading + "".join(f" {peer:>10}" for peer in peers) + "  verdict"]
    for n, k in dict.fromkeys((row.n, row.k) for row in rows):
        shape = [row for row in rows if (row.n, row.k) == (n, k)]
        for m in sorted({row.m for row in shape if row.kernel not in BOUNDS}):
            for mode, kernel in product(MODES, kernels):
                here = [row for row in shape if row.mode == mode]
                ours = _best(row for row in here if row.m == m and row.kernel == kernel)
                if ours is None:
                    continue
                bound = _best(row for row in here if row.kernel == "stream")
                text = f"{f'{n}x{k}':>13} {m:3} {mode:8} {kernel:11} {ours.median_us:8.2f} {ours.tactic:16}"
                text += f" {bound.median_us:7.2f} {ours.median_us / bound.median_us:5.2f}" if bound else " " * 14
                theirs = [_best(row for row in here if row.m == m and row.kernel == peer) for peer in peers]
                text += "".join(f" {row.median_us:10.2f}" if row else f" {'-':>10}" for row in theirs)
                fastest = _best(row for row in theirs if row)
                table.append(f"{text}  {verdict(ours, fastest) if fastest else ''}".rstrip())
    return table


def standing(rows: Iterable[Record]) -> list[str]:
    """For each M, chained and cold: over all weights with records of ours and of a peer, how they compare.

    `rows` are of one device. Then a line for every problem in which a peer is faster.
    """
    weights: dict[tuple[int, int], list[Record]] = {}
    for row in tables.newest(row for row in rows if (row.mode, row.weights) == ("chained", "cold")):
        weights.setdefault((row.n, row.k), []).append(row)
    problems: dict[int, list[tuple[float, float]]] = {}
    behind = []
    for (n, k), here in weights.items():
        bound = tables.bound_of(here)
        for m in sorted({row.m for row in here if row.m and row.kernel not in BOUNDS}):
            ours = _best(row for row in here if row.m == m and row.kernel not in PEERS + BOUNDS)
            peer = _best(row for row in here if row.m == m and row.kernel in PEERS)
            if not (ours and peer and bound):
                continue
            problems.setdefault(m, []).append((peer.median_us / ours.median_us, ours.median_us / bound))
            if peer.median_us < ours.median_us:
                times = f"{ours.median_us:.2f} against {peer.median_us:.2f} us of {peer.kernel}"
                behind.append(f"{n}x{k} M={m}: {times}, {verdict(ours, peer)}")
    text = [f"{'M':>3} {'weights':>7}  peer over ours: {'median':>6} {'least':>6}  ours over bound: {'median':>6}"]
    for m, ratios in sorted(problems.items()):
        peers, bounds = zip(*ratios, strict=True)
        middle = f"{median(peers):6.2f} {min(peers):6.3f}"
        text.append(f"{m:3} {len(ratios):7}  {'':15} {middle}  {'':16} {median(bounds):6.3f}")
    ahead = [peer for ratios in problems.values() for peer, _ in ratios]
    text.append(
        f"{len(ahead) - len(behind)} of {len(ahead)} problems: no recorded peer has a lower median; in "
        f"{sum(ratio > 1 + NOISE for ratio in ahead)} ours is more than {NOISE:.0%} faster"
    )
    return [*text, *behind]


def _best(rows: Iterable[Record]) -> Record | None:
    return min(rows, key=lambda row: row.median_us, default=None)


def summary(campaign: Campaign, rows: Iterable[Record]) -> list[str]:
    """The campaign as text: the machine, the ceilings, the table, the failures."""
    state = "complete" if campaign.complete else "NOT complete"
    clocks = {name: value for name, value in campaign.clocks.items() if name != "samples"}
    return [
        f"{campaign.id}: {campaign.gpu}, driver {campaign.driver}, CUDA {campaign.cuda}, {campaign.commit}, {state}",
        f"ceilings: {dict(campaign.ceilings)} {campaign.method.get('ceilings_failed', '')}",
        f"clocks: {clocks}",
        *lines(rows),
        *(f"failed: {failure}" for failure in campaign.failures),
    ]
