"""The first notebook opens and runs in JupyterLab in a real browser."""


def test_the_start_page_runs(notebook):
    nb = notebook("00_start_here.ipynb")
    nb.run_all()
    nb.screenshot("00_start_here")
    assert nb.problems == []
