"""Every number says where it comes from: its source, and the commit that drew or measured it."""

import pytest

from skinny_gemm.analysis import provenance


def test_a_source_is_one_of_four_and_what_is_not_known_drops():
    with pytest.raises(ValueError, match="'guessed'"):
        provenance.provenance("guessed")
    assert provenance.provenance("live", m=None, n=3).keys() == {"source", "commit", "n"}


@pytest.mark.parametrize(
    ("state", "expected"),
    [(("0123abcd4567", False), "0123abcd"), (("0123abcd4567", True), "0123abcd+"), (("unknown", True), "unknown")],
)
def test_a_changed_working_tree_is_marked(monkeypatch, state, expected):
    monkeypatch.setattr(provenance, "commit", lambda untracked: state)
    assert provenance.drawn_at.__wrapped__() == expected
