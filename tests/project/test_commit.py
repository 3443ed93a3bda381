"""The commit of the source is git's, or what the environment says where there is no git."""

from skinny_gemm.commit import VARIABLE, commit


def test_the_commit_can_be_given_where_there_is_no_git(monkeypatch):
    monkeypatch.setenv(VARIABLE, "abc-dirty")
    assert commit() == ("abc", True)
    monkeypatch.setenv(VARIABLE, "abc")
    assert commit() == ("abc", False)
