"""Every notebook runs from top to bottom without a GPU, raises nowhere and takes less than a minute."""

import os
import time

import nbformat
import pytest
from nbclient import NotebookClient

from tests.notebooks.canonical import NOTEBOOKS, notebooks

LIMIT_S = 60


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_the_notebook_runs_without_a_gpu(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": NOTEBOOKS}}  # the kernel's working directory
    client = NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", resources=resources)
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "SKINNY_GEMM_EXPORTS": str(tmp_path)}
    start = time.perf_counter()
    client.execute(env=environment)  # names the cell that raised
    seconds = time.perf_counter() - start
    warnings = [out.text for cell in notebook.cells for out in cell.get("outputs", []) if out.get("name") == "stderr"]
    assert warnings == [], "a reader would wonder what these mean"
    assert seconds < LIMIT_S
