"""Shared by the tests of the review pack."""

import pytest

from skinny_gemm import commit
from skinny_gemm.analysis.provenance import drawn_at
from skinny_gemm.figures import export
from tests.support.reviews import data, small  # noqa: F401 (fixtures)


@pytest.fixture(autouse=True)
def heuristic_defaults(monkeypatch):
    """The default tactic is one that the synthetic campaign holds, whatever the repository's records say."""
    monkeypatch.setattr("skinny_gemm.tactics.defaults.best_recorded", lambda path: {})


@pytest.fixture
def quick(monkeypatch):
    """PNGs of few pixels; a commit that stays the same while others work in the repository."""
    monkeypatch.setattr(export, "PNG_DPI", 30)
    monkeypatch.setenv(commit.VARIABLE, "0badc0de")
    drawn_at.cache_clear()
    yield
    drawn_at.cache_clear()
