"""A campaign in one table of text: `python -m skinny_gemm.bench.summary data/campaigns/<id>`. Needs no pandas.

With `--pruning` before the folder: what the coarse grid of tactics costs, by a campaign of full sweeps.
"""

import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from .. import device as devices
from . import pruning
from .records import BOUNDS, MODES, PEERS, Record, read_campaign
from .statistics import verdict


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


def _best(rows: Iterable[Record]) -> Record | None:
    return min(rows, key=lambda row: row.median_us, default=None)


def main(folder: str) -> None:
    """Prints the campaign in `folder`: the machine, the ceilings, the table, the failures."""
    campaign, rows = read_campaign(Path(folder))
    state = "complete" if campaign.complete else "NOT complete"
    print(f"{campaign.id}: {campaign.gpu}, driver {campaign.driver}, CUDA {campaign.cuda}, {campaign.commit}, {state}")
    print("ceilings:", dict(campaign.ceilings), campaign.method.get("ceilings_failed", ""))
    print("clocks:", {name: value for name, value in campaign.clocks.items() if name != "samples"})
    print("\n".join(lines(rows)))
    for failure in campaign.failures:
        print("failed:", failure)


def show_pruning(folder: str) -> None:
    """Prints what pruning costs by the full sweeps of the campaign in `folder`."""
    campaign, rows = read_campaign(Path(folder))
    failed = [tuple(failure[name] for name in ("kernel", "n", "k", "m", "tactic")) for failure in campaign.failures]
    print("\n".join(pruning.lines(pruning.costs(rows, devices.get(campaign.device), failed))))


if __name__ == "__main__":
    *flags, folder = sys.argv[1:] or [""]
    if flags not in ([], ["--pruning"]) or not folder:
        sys.exit("usage: python -m skinny_gemm.bench.summary [--pruning] CAMPAIGN_FOLDER")
    try:
        (show_pruning if flags else main)(folder)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
