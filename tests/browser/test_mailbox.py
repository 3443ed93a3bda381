"""The mailbox notebook in a real browser: step through events, break it, read who is missing."""


def test_the_mailbox(notebook):
    nb = notebook("06_mailbox.ipynb")
    nb.run_all()
    screen = nb.output(1)
    assert "event 3 of 15: rank 2 publishes step 0 into buffer 0" in screen.inner_text()
    nb.press("Forward ▶")
    nb.press("Forward ▶")
    assert nb.readout("event") == "5" and "buffer 0 is empty again" in screen.inner_text()
    nb.slide("fragment", +1)
    assert f"fragment {nb.readout('fragment')}" in screen.inner_text().replace("\xa0", " ")
    nb.choose("break it:", "rank 1 never publishes")
    nb.slide("event", -1)
    assert "rank 1 did not publish" in screen.inner_text() and "within 1 s" in screen.inner_text()
    nb.press("Export")
    assert "mailbox-4x2-local-rank-1-never-publishes-event4" in screen.inner_text()
    assert nb.problems == []
