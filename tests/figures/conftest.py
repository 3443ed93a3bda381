"""Shared by the tests of figures."""

import pytest


@pytest.fixture(autouse=True)
def heuristic_defaults(monkeypatch):
    """The default tactic is one that the synthetic campaign holds, whatever the repository's records say."""
    monkeypatch.setattr("skinny_gemm.tactics.defaults.best_recorded", lambda path: {})
