"""Shared by the tests of readings."""

import pytest

from tests.support.reviews import data, small  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True)
def heuristic_defaults(monkeypatch):
    """The default tactic is one that the synthetic campaign holds, whatever the repository's records say."""
    monkeypatch.setattr("skinny_gemm.tactics.defaults.best_recorded", lambda path: {})
