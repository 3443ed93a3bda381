"""Tables, verdicts and errors as HTML: what they hold is escaped, and read as what was said."""

import pandas as pd

from skinny_gemm.explore import markup


def test_what_is_shown_is_escaped():
    frame = pd.DataFrame({"warp": [0, 1], "doing": ["waits <x>", "done"]})
    assert "<th" in markup.table(frame) and "waits &lt;x&gt;" in markup.table(frame)
    assert "a &amp; b" in markup.facts({"name": "a & b"})
    assert "K &lt; 16" in markup.verdict("K < 16") and "K &lt; 16" in markup.verdict(None, "K < 16")


def test_an_error_without_words_is_named_and_traced():
    try:
        raise KeyError
    except KeyError as error:
        assert markup.sentence(error) == "KeyError"
        assert "test_an_error_without_words_is_named_and_traced" in markup.trouble(error)


def test_source_is_linked_from_the_notebooks():
    assert 'href="../skinny_gemm/explore/markup.py"' in markup.source_of(markup.table)
    assert "explore.markup.table" in markup.source_of(markup.table)
