"""Shared by the tests of readings."""

import pytest

from tests.support.reviews import small_review, write_campaign


@pytest.fixture(autouse=True)
def heuristic_defaults(monkeypatch):
    """The default tactic is one that the synthetic campaign holds, whatever the repository's records say."""
    monkeypatch.setattr("skinny_gemm.tactics.defaults.best_recorded", lambda path: {})


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A data folder with the campaign of `tests.support.reviews`."""
    return write_campaign(tmp_path_factory.mktemp("data"))


@pytest.fixture
def small(data):
    return small_review(data)
