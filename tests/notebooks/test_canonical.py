"""Every notebook is committed in canonical form, byte for byte, becomes a script, and links to files that are there."""

import json
import re

import nbformat
import pytest
from nbconvert import ScriptExporter

from tests.notebooks.canonical import METADATA, canonical, notebooks


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_notebook_is_canonical(path):
    notebook = json.loads(path.read_bytes())
    nbformat.validate(notebook)
    assert path.read_bytes() == canonical(notebook).encode(), "run: python tests/notebooks/canonical.py --fix"


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_script_of_the_notebook_is_python(path):
    """What `nbconvert --to script` writes; it would be a .txt of the code alone without the language's exporter."""
    script, resources = ScriptExporter().from_notebook_node(nbformat.read(path, as_version=4))
    assert resources["output_extension"] == ".py"
    compile(script, f"{path.stem}.py", "exec")
    cells = [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "code"]
    assert cells and all("".join(cell["source"]) in script for cell in cells)


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_every_link_of_the_notebook_leads_to_a_file(path):
    cells = [cell for cell in json.loads(path.read_bytes())["cells"] if cell["cell_type"] == "markdown"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    links = re.findall(r"""(?:\]\(|(?:src|href)=["'])(?!\w+:|#)([^)#\s"']+)""", text)
    assert links and [link for link in links if not (path.parent / link).is_file()] == []


def executed_notebook() -> dict:
    """A notebook as a careless save leaves it: run, folded, with a doubled id, a bad id and one missing."""
    output = {"output_type": "stream", "name": "stdout", "text": ["2\n"]}
    code = {"cell_type": "code", "metadata": {"collapsed": True, "tags": ["slow"]}, "outputs": [output]}
    return {
        "cells": [
            {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": "# Café\n\n"},
            {**code, "id": "intro", "execution_count": 7, "source": ["x = 1\n", "x + x\n"]},
            {**code, "id": "not valid!", "execution_count": 8, "source": "x"},
            {**code, "execution_count": None, "source": []},
        ],
        "metadata": {"kernelspec": {"name": "mine"}, "widgets": {"state": {}}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }


def test_what_running_leaves_behind_is_gone():
    clean = json.loads(canonical(executed_notebook()))
    nbformat.validate(clean)
    assert clean["metadata"] == METADATA
    for cell in clean["cells"][1:]:
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
    assert [cell["metadata"] for cell in clean["cells"]] == [{}, *3 * [{"tags": ["slow"]}]], "tags are the author's"


def test_what_the_author_wrote_stays():
    clean = json.loads(canonical(executed_notebook()))
    assert [cell["source"] for cell in clean["cells"]] == [["# Café"], ["x = 1\n", "x + x"], ["x"], []]
    assert clean["cells"][0]["id"] == "intro", "a good id is kept"
    assert len({cell["id"] for cell in clean["cells"]}) == 4


def test_the_form_is_a_fixed_point_that_jupyter_writes_too():
    text = canonical(executed_notebook())
    assert canonical(json.loads(text)) == text
    assert nbformat.writes(nbformat.reads(text, as_version=4)) + "\n" == text
