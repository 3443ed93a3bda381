"""Records as tables of text: one campaign, and how ours stands against the peers over all records of a device."""

from collections.abc import Iterable
from itertools import product
from statistics import median

from .best import answering, bound_of, measured_in, newest
from .schema import MODES, PEERS, PROCESSES, Campaign, Record, fastest
from .statistics import verdict

NOISE = 0.04  #: 95 % of the points of two campaigns on two boards differed by less, see the README


def summary(campaign: Campaign, rows: Iterable[Record]) -> list[str]:
    """A campaign as lines of text: the machine, the ceilings, the clocks, `lines` of its rows, the failures."""
    state = "complete" if campaign.complete else "NOT complete"
    clocks = {name: value for name, value in campaign.clocks.items() if name != "samples"}
    return [
        f"{campaign.id}: {campaign.gpu}, driver {campaign.driver}, CUDA {campaign.cuda}, {campaign.commit}, {state}",
        f"ceilings: {dict(campaign.ceilings)} {campaign.method.get('ceilings_failed', '')}",
        f"clocks: {clocks}",
        *lines(rows),
        *(f"failed: {failure}" for failure in campaign.failures),
    ]


def lines(rows: Iterable[Record]) -> list[str]:
    """A line for each (N, K, M, process, mode, kernel): our best, stream, peers in us, verdict on the best peer."""
    rows = list(rows)
    peers = [peer for peer in PEERS if any(row.kernel == peer for row in rows)]
    kernels = list(dict.fromkeys(row.kernel for row in rows if row.is_ours))
    heading = f"{'N x K':>13} {'M':>3} {'process':7} {'mode':8} {'kernel':11} {'ours':>8} {'tactic':16}"
    heading += f" {'stream':>7} {'ratio':>5}" + "".join(f" {peer:>10}" for peer in peers)
    table = [f"{heading}  verdict, on which peer"]
    for n, k in dict.fromkeys((row.n, row.k) for row in rows):
        of_weight = [row for row in rows if (row.n, row.k) == (n, k)]
        for m in sorted({row.m for row in of_weight if not row.is_bound}):
            for process, mode, kernel in product(PROCESSES, MODES, kernels):
                of_mode = [row for row in of_weight if (row.process, row.mode) == (process, mode)]
                of_problem = [row for row in of_mode if row.m == m]
                ours = fastest(row for row in of_problem if row.kernel == kernel)
                if ours is None:
                    continue
                bound = fastest(row for row in of_mode if row.kernel == "stream")
                text = f"{f'{n}x{k}':>13} {m:3} {process:7} {mode:8} {kernel:11} {ours.median_us:8.2f} {ours.tactic:16}"
                text += f" {bound.median_us:7.2f} {ours.median_us / bound.median_us:5.2f}" if bound else " " * 14
                rivals = [fastest(row for row in of_problem if row.kernel == peer) for peer in peers]
                text += "".join(f" {rival.median_us:10.2f}" if rival else f" {'-':>10}" for rival in rivals)
                rival = fastest(row for row in rivals if row)
                table.append(
                    f"{text}  {verdict(ours, rival)} {rival.kernel} {rival.tactic}".rstrip() if rival else text
                )
    return table


def standing(rows: Iterable[Record], process: str | None = None) -> list[str]:
    """For each M, chained and cold, how ours and the peers compare on one device; then where a peer is faster.

    Each problem in the state of the process that is `answering`, or in `process`.
    """
    weights: dict[tuple[int, int], list[Record]] = {}
    for row in newest(row for row in rows if (row.mode, row.weights) == ("chained", "cold")):
        weights.setdefault((row.n, row.k), []).append(row)
    ratios: dict[int, list[tuple[float, float]]] = {}  # M to (peer over ours, ours over bound) of each weight
    behind, busy = [], 0
    for (n, k), of_weight in weights.items():
        for m in sorted({row.m for row in of_weight if row.m and not row.is_bound}):
            state = answering([row for row in of_weight if row.m == m and row.is_ours], process)
            of_state = measured_in(state, of_weight)
            bound = bound_of(of_state)
            ours = fastest(row for row in of_state if row.m == m and row.is_ours)
            peer = fastest(row for row in of_state if row.m == m and row.kernel in PEERS)
            if ours and peer and bound:
                ratios.setdefault(m, []).append((peer.median_us / ours.median_us, ours.median_us / bound))
                busy += state == "busy"
            if ours and peer and bound and peer.median_us < ours.median_us:
                rival = f"{peer.kernel} {peer.tactic}".rstrip()
                times = f"{ours.median_us:.2f} against {peer.median_us:.2f} us of {rival}"
                behind.append(f"{n}x{k} M={m}: {times} in a {state} process, {verdict(ours, peer)}")
    if not ratios:
        state = f" in a {process} process" if process else ""
        raise ValueError(f"There is no weight with records of ours, of a peer and of a bound on this device{state}.")
    text = [f"{'M':>3} {'weights':>7}  peer over ours: {'median':>6} {'least':>6}  ours over bound: {'median':>6}"]
    for m, pairs in sorted(ratios.items()):
        peers, bounds = zip(*pairs, strict=True)
        middle = f"{median(peers):6.2f} {min(peers):6.3f}"
        text.append(f"{m:3} {len(pairs):7}  {'':15} {middle}  {'':16} {median(bounds):6.3f}")
    ahead = [peer for pairs in ratios.values() for peer, _ in pairs]
    faster = f"in {sum(ratio > 1 + NOISE for ratio in ahead)} ours is more than {NOISE:.0%} faster"
    text.append(f"{len(ahead) - len(behind)} of {len(ahead)} problems: no recorded peer has a lower median; {faster}")
    text.append(f"{busy} of these {len(ahead)} were measured in a busy process, the others in a quiet one")
    return [*text, *behind]
