"""What a warp does at one moment, told from its spans of logical time."""

from collections.abc import Callable

import pandas as pd


def doing_at(spans: pd.DataFrame, time: int, sentence: Callable, first: str | None = None) -> tuple[str, int | str]:
    """What the warp of these `spans` (start, end, line) does at `time`, by `sentence(span)`, and the line of the PTX.

    `first` says what it does before the first of them. Without a line "".
    """
    now = spans[(spans.start <= time) & (time < spans.end)]
    if len(now):
        return sentence(now.iloc[-1]), int(now.iloc[-1].line)
    if first and time < spans.start.min():
        return first, ""
    if len(spans) and time >= spans.end.max():
        return "done", ""
    return "between two traced instructions", ""
