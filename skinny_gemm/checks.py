"""Checks of arguments: each refusal is one sentence that names the value and what is allowed."""

from collections.abc import Iterable
from numbers import Integral
from typing import Any


def is_integer(value: Any) -> bool:
    """Whether `value` is an integer, NumPy's included; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as a Python integer; ValueError unless it is one from `low` to `high` (None: no limit)."""
    if not is_integer(value) or value < low or (high is not None and value > high):
        allowed = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} is {value!r}, but must be an integer {allowed}")
    return int(value)


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> None:
    """ValueError unless `value` is one of `allowed`."""
    if value not in (allowed := tuple(allowed)):
        raise ValueError(f"{name} is {value!r}, but must be one of {', '.join(allowed)}")
