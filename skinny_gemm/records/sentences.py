"""Answers in words: how sure a time is, how far from its bound, and how it stands against others by its interval."""

from collections import Counter
from collections.abc import Iterable, Mapping

from ..checks import check_choice
from ..device import REFERENCE
from . import store
from .best import Best, best, best_peers, competing, measured_in, weight_rows
from .schema import MODES, Record, is_slow
from .statistics import Verdict, verdict

_THAN = {Verdict.FASTER: "than", Verdict.SLOWER: "than", Verdict.SAME: "as", Verdict.UNDECIDED: "against"}


def answer(
    n: int, k: int, m: int, mode: str = "chained", device: str = REFERENCE, kernel: str | None = None,
    process: str | None = None,
) -> tuple[Best, str]:  # fmt: skip
    """`best`, and one paragraph that says it; ValueError, in a sentence, where there is no such record."""
    check_choice("mode", mode, MODES)
    rows = weight_rows(n, k, mode, device)
    result = best(n, k, m, mode, device, kernel, rows=rows, process=process)
    rows = measured_in(result.process, rows)
    of_problem = [row for row in rows if row.m == m]
    ours, peers = competing(of_problem, kernel), best_peers(of_problem)
    chosen = next(row for row in ours if (row.kernel, row.tactic) == (result.kernel, result.tactic))
    of_bound = [("the bound", row) for row in rows if row.is_bound and row.median_us == result.bound]
    slow = is_slow(chosen, store.campaigns()[result.campaign])
    sentences = (
        f"For {n}x{k} at M = {m} on {device}, {mode} launches and cold weights in a {result.process} process, take "
        f"{result.kernel} {result.tactic}: {time_of(chosen)}.",
        how_far(chosen, result.bound),
        how_sure(chosen, (row for row in ours if row is not chosen)),
        f"Of the peers' best, it is {against(chosen, peers)}." if peers else "No peer is recorded.",
        f"Campaign {result.campaign}, commit {result.commit[:8]}.",
        elsewhere(chosen, dict(of_bound[:1]) | peers),
        "The SM clock had dropped when it was measured: measure again." if slow else "",
    )
    return result, " ".join(sentence for sentence in sentences if sentence)


def time_of(row: Record) -> str:
    """`11.745 us (95 % interval 11.740 to 11.752)`."""
    return f"{row.median_us:.3f} us (95 % interval {row.low_us:.3f} to {row.high_us:.3f})"


def how_sure(row: Record, others: Iterable[Record]) -> str:
    """A sentence on how `row` stands against the other tactics recorded of the same problem."""
    counts = Counter(verdict(row, other) for other in others)
    if not counts:
        return "No other tactic is recorded."
    total = counts.total()
    number = {word: f"all {total}" if count == total > 1 else str(count) for word, count in counts.items()}
    parts = [f"{word} {_THAN[word]} {number[word]}" for word in Verdict if word in number]
    return f"Of {total} other recorded {'tactic' if total == 1 else 'tactics'} it is {_listed(parts)}."


def how_far(row: Record, bound: float | None) -> str:
    """A sentence on how far `row` is from the `bound` of its weight, microseconds."""
    if bound is None:
        return f"No bound is recorded of {row.mode} launches."
    return f"That is {row.median_us / bound:.3f} times the measured bound of {bound:.3f} us."


def against(row: Record, rivals: Mapping[str, Record]) -> str:
    """`FASTER than flashinfer 16,8,256,6,2 (12.369 us, 1.05 times as long) and cublas (...), SAME as ...`, by time."""
    groups: dict[Verdict, list[str]] = {word: [] for word in Verdict}
    for name, rival in sorted(rivals.items(), key=lambda item: item[1].median_us):
        times = rival.median_us / row.median_us
        which = f"{name} {rival.tactic}".rstrip() if name == rival.kernel else name  # a letter stands for both
        groups[verdict(row, rival)].append(f"{which} ({rival.median_us:.3f} us, {times:.2f} times as long)")
    return ", ".join(f"{word} {_THAN[word]} {_listed(names)}" for word, names in groups.items() if names)


def elsewhere(row: Record, rivals: Mapping[str, Record]) -> str:
    """A sentence that names the campaigns of `rivals` that are not `row`'s; "" if all are of one."""
    campaigns: dict[str, list[str]] = {}
    for name, rival in rivals.items():
        if rival.campaign != row.campaign:
            campaigns.setdefault(rival.campaign, []).append(name)
    parts = [f"{_listed(names)} ({campaign})" for campaign, names in campaigns.items()]
    return f"Of other campaigns are {_listed(parts)}." if parts else ""


def _listed(parts: list[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
