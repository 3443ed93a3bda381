"""Bank conflicts of the kernels: what the layouts' model says, and what a trace of the kernel shows.

Both are tables of mean wavefronts per warp-wide access: access, source, wavefronts, ideal.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..layouts import banks
from ..problem import GemmProblem
from ..tactics import Tactic

COLUMNS = ["access", "source", "wavefronts", "ideal"]
PLAIN, SHIPPED, TRACED = SOURCES = "model, row-major", "model, as shipped", "trace of the kernel"


def modelled(tactic: Tactic, problem: GemmProblem) -> pd.DataFrame:
    """What the bank model says of every kind of access, for row-major data and for the kernel's layouts.

    ValueError in words if the kernel describes no accesses.
    """
    rows = []
    for access in tactic.shared_accesses(problem):
        for source, addresses in ((PLAIN, access.plain), (SHIPPED, access.shipped)):
            if addresses is not None:
                wavefronts = float(banks.wavefronts(addresses, access.bytes_per_lane).mean())
                rows.append((access.name, source, wavefronts, float(banks.ideal_wavefronts(access.bytes_per_lane))))
    if not rows:
        raise ValueError(f"{tactic.kernel} describes no accesses to shared memory: there are no conflicts to count")
    return pd.DataFrame(rows, columns=COLUMNS)


def observed(accesses: pd.DataFrame, regions: Sequence[tuple[str, int, int]]) -> pd.DataFrame:
    """The same from `accesses`, a table of `interpreter.shared_accesses`; `regions` as in a footprint."""
    first = np.array([addresses.min() for addresses in accesses.addresses])
    names = np.full(len(accesses), "", dtype=object)
    for name, offset, size in regions:
        names[(first >= offset) & (first < offset + size)] = name
    kinds = [_kind(opcode) for opcode in accesses.opcode]
    labels = [f"{name}, {kind}" for name, kind in zip(names, kinds, strict=True)]
    means = accesses[["wavefronts", "ideal"]].groupby(np.array(labels, dtype=object), sort=False).mean()
    return pd.DataFrame([(access, TRACED, *row) for access, row in zip(means.index, means.values, strict=True)],
                        columns=COLUMNS)  # fmt: skip


def _kind(opcode: str) -> str:
    return "cp.async" if opcode.startswith("cp.async") else opcode.split(".")[0]
