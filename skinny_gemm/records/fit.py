"""Fits the performance model: `python -m skinny_gemm.bench.fit` writes data/model.json, with `show` it prints it."""

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from . import model, store


def fitted(frame, campaigns: Iterable[str] | None = None) -> str:
    """The text of data/model.json from the rows of `frame`, of all campaigns or some; ValueError without a record."""
    rows = frame if campaigns is None else frame[frame.campaign.isin(set(campaigns))]
    found = {kernel: {mode: asdict(model.fit(kernel, mode, rows)) for mode in model.MODES} for kernel in model.FORMULAS}
    return json.dumps(found, indent=1) + "\n"


def lines() -> list[str]:
    """The stored coefficients with their meaning and unit, and the errors, as text."""
    text = []
    for (kernel, mode), fit in model.fits().items():
        text += [f"{kernel}, {mode}: {fit.describe()}; in the fit {fit.median_error:.1%} and {fit.p90_error:.1%}"]
        text += [
            f"  {c.name:10} {fit.coefficients[c.name]:9.4g} {c.unit:13} {c.meaning}"
            for c in model.FORMULAS[kernel].of(mode)
        ]
    return text


def main() -> Path:
    """Writes data/model.json anew."""
    from ..catalogue import data_dir

    for sentence in store.problems().values():
        raise ValueError(sentence)
    path = data_dir() / "model.json"
    store.write_whole(path, fitted(store.load()).encode())
    return path


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["show"]):
        sys.exit("usage: python -m skinny_gemm.bench.fit [show]")
    try:
        print("\n".join(lines()) if sys.argv[1:] else f"wrote {main()}")
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
