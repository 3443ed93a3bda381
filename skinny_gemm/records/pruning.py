"""What pruning costs: in a campaign that swept every tactic, the best of the coarse grid against the best of all."""

from collections.abc import Iterable
from dataclasses import dataclass

from .. import device as devices
from ..problem import GemmProblem
from ..tactics import KERNELS
from .schema import Campaign, Record, failed_point, fastest
from .statistics import Verdict, verdict

TARGET = 0.02  #: the grid is good enough where it costs no more


@dataclass(frozen=True)
class Cost:
    """One problem, swept in full: the fastest of all tactics and the fastest of the coarse grid."""

    best: Record
    coarse: Record
    tactics: int  #: recorded
    tried: int  #: of them in the coarse grid

    @property
    def cost(self) -> float:
        """By how much the best of the grid is slower, as a fraction; both are medians."""
        return self.coarse.median_us / self.best.median_us - 1

    @property
    def verdict(self) -> Verdict:
        """Of the best of the grid against the best of all."""
        return verdict(self.coarse, self.best)


def costs_of(campaign: Campaign, rows: Iterable[Record]) -> list[Cost]:
    """The cost for every problem (fronts are Kimi K3's) whose every legal tactic is in `rows`, or failed.

    Modes and states of the process are judged each by itself. A campaign from before a kernel had its last fields was
    to try only what leaves them off.
    """
    device, failed = devices.get(campaign.device), [failed_point(failure) for failure in campaign.failures]
    groups: dict[tuple, dict[str, Record]] = {}
    for row in rows:
        if row.kernel in KERNELS:
            swept_in = row.kernel, row.n, row.k, row.m, row.process, row.mode, row.weights
            groups.setdefault(swept_in, {})[row.tactic] = row
    swept = []
    for (kernel, n, k, m, process, *_), recorded in groups.items():
        kind = KERNELS[kernel]
        problem = kind.problem(GemmProblem(m, n, k))
        here = kernel, n, k, m, process
        known = {*recorded, *(p.tactic for p in failed if (p.kernel, p.n, p.k, p.m, p.process) == here)}
        longest = max(text.count(",") for text in known)
        legal = map(str, kind.enumerate(problem, device))
        if any(text not in known for text in legal if text.count(",") <= longest):
            continue
        tried = [recorded[text] for text in map(str, kind.coarse(problem, device)) if text in recorded]
        best, coarse = fastest(recorded.values()), fastest(tried)
        if best and coarse:
            swept.append(Cost(best, coarse, len(recorded), len(tried)))
    return swept


def lines(costs: list[Cost]) -> list[str]:
    """A line for each problem, the costliest last, then how many are within `TARGET`."""
    if not costs:
        return ["no problem was swept in full: measure with --tactics full"]
    best = f"{'best':>8} {'tactic':16}"
    problem = f"{'kernel':11} {'N x K':>13} {'M':>3} {'mode':8} {'process':7}"
    text = [f"{problem} {'all':>5} {best} {'grid':>5} {best} {'cost':>6}  verdict"]
    for c in sorted(costs, key=lambda c: c.cost):
        b = c.best
        problem = f"{b.kernel:11} {f'{b.n}x{b.k}':>13} {b.m:3} {b.mode:8} {b.process:7}"
        of_all, of_grid = (f"{row.median_us:8.3f} {row.tactic:16}" for row in (b, c.coarse))
        text.append(f"{problem} {c.tactics:5} {of_all} {c.tried:5} {of_grid} {c.cost:6.1%}  {c.verdict}")
    within = sum(c.cost <= TARGET for c in costs)
    mean = sum(c.cost for c in costs) / len(costs)
    text.append(f"{within} of {len(costs)} problems within {TARGET:.0%} of the best; {mean:.2%} on average")
    return text
