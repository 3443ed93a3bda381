"""Fits the performance model: `write_fit` writes data/model.json, `lines` says what is in it."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from ..catalogue import data_dir
from ..files import write_whole
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


def write_fit() -> Path:
    """Writes data/model.json anew and returns its path."""
    for sentence in store.problems().values():
        raise ValueError(sentence)
    return write_whole(data_dir() / "model.json", fitted(store.load()).encode())
