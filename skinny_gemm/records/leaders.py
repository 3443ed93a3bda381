"""The tactics that were fastest so far: what is worth measuring again, in another state, mode or at an M between."""

from collections.abc import Iterable

from ..checks import check_integer
from .schema import Record

MOST = 4  #: of a kernel at one M


def leaders(kernel: str, rows: Iterable[Record], m: int, most: int = MOST) -> list[str]:
    """The `most` fastest tactics of `kernel`, one of ours or a peer, at M and at the recorded Ms next to it.

    `rows` are `best.weight_rows` of a weight, of either process. The lower M's come first; [] where it has no row.
    """
    check_integer("most", most, 1)
    mine = [row for row in rows if row.kernel == kernel]
    ms = {row.m for row in mine}
    nearest = {max((at for at in ms if at <= m), default=0), min((at for at in ms if at >= m), default=0)}
    return list(dict.fromkeys(tactic for at in sorted(nearest) for tactic in _fastest(mine, at, most)))


def _fastest(rows: list[Record], m: int, most: int) -> list[str]:
    ordered = sorted((row for row in rows if row.m == m), key=lambda row: row.median_us)
    return list(dict.fromkeys(row.tactic for row in ordered))[:most]
