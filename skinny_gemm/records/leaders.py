"""The tactics that were fastest so far: what is worth measuring again, in another state, mode or at an M between."""

from ..checks import check_integer
from .best import newest, weight_rows
from .schema import Record

MOST = 4  #: of a kernel at one M


def leaders(kernel: str, n: int, k: int, m: int, device: str, most: int = MOST) -> list[str]:
    """The `most` fastest tactics of `kernel`, one of ours or a peer, at M and at the recorded Ms next to it.

    Of chained launches and cold weights, of either process, the lower M's first. [] where nothing is recorded.
    """
    check_integer("most", most, 1)
    rows = [row for row in newest(weight_rows(n, k, "chained", device)) if row.kernel == kernel]
    ms = {row.m for row in rows}
    nearest = {max((at for at in ms if at <= m), default=0), min((at for at in ms if at >= m), default=0)}
    return list(dict.fromkeys(tactic for at in sorted(nearest) for tactic in _fastest(rows, at, most)))


def _fastest(rows: list[Record], m: int, most: int) -> list[str]:
    ordered = sorted((row for row in rows if row.m == m), key=lambda row: row.median_us)
    return list(dict.fromkeys(row.tactic for row in ordered))[:most]
