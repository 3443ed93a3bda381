"""`make` installs once, calls pip again only when the pins change, and says clearly what it lacks."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

# Stands for Python: logs its arguments, "makes" a virtual environment by copying itself, and does nothing else.
PYTHON = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
    *version_info*) exit ${TOO_OLD:-0} ;;
    --version) echo "Python 3.9.2" ;;
    "-m venv --clear .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


class Project:
    """A copy of the files that `make` reads, in a folder with a space in its name."""

    def __init__(self, folder: Path):
        self.folder, self.log, self.python = folder / "my work", folder / "calls", folder / "python3"
        self.folder.mkdir()
        for name in ("Makefile", "pyproject.toml", "requirements.lock"):
            shutil.copy(ROOT / name, self.folder)
        self.python.write_text(PYTHON)
        self.python.chmod(0o755)

    def make(self, *arguments: str, **environment: str) -> tuple[subprocess.CompletedProcess, list[str]]:
        """What make said, and the calls of Python that it took."""
        self.log.write_text("")
        clean = {k: v for k, v in os.environ.items() if not re.match("MAKE|MFLAGS", k)}  # not those of an outer make
        result = subprocess.run(
            ["make", f"PYTHON={self.python}", *arguments],
            cwd=self.folder, env=clean | {"CALLS": str(self.log)} | environment, capture_output=True, text=True,
        )  # fmt: skip
        return result, self.log.read_text().splitlines()


@pytest.fixture
def project(tmp_path) -> Project:
    return Project(tmp_path)


def pip_calls(calls: list[str]) -> list[str]:
    return [call for call in calls if call.startswith("-m pip install")]


def test_the_first_install_takes_the_pinned_versions(project):
    result, calls = project.make("install")
    assert result.returncode == 0, result.stderr
    *_, last = pip_calls(calls)
    assert last.endswith("--constraint requirements.lock --editable .[test]")


def test_a_second_start_calls_pip_no_more(project):
    project.make("install")
    result, calls = project.make("lab", "ARGS=--no-browser --port 8899")
    assert result.returncode == 0
    (lab,) = calls
    assert lab.startswith("-m jupyterlab ") and lab.endswith(" --no-browser --port 8899")
    assert "/lab/tree/notebooks/00_start_here.ipynb" in lab


@pytest.mark.parametrize("name", ["pyproject.toml", "requirements.lock"])
def test_changed_pins_are_installed(project, name):
    project.make("install")
    with (project.folder / name).open("a") as file:
        file.write("# changed\n")
    assert pip_calls(project.make("install")[1])
    assert not pip_calls(project.make("install")[1])


def test_an_environment_whose_python_has_gone_is_made_again(project):
    project.make("install")
    (project.folder / ".venv/bin/python").unlink()
    _, calls = project.make("test")
    assert "-m venv --clear .venv" in calls and "-m pytest" in calls[-1]


def test_an_old_python_is_refused_in_one_sentence(project):
    result, _ = project.make("lab", TOO_OLD="1")
    assert result.returncode != 0
    assert result.stdout.splitlines() == [
        f"Python 3.11 or newer is needed, and {project.python} is Python 3.9.2: "
        "give another, as in make PYTHON=python3.12 lab"
    ]
    assert not (project.folder / ".venv").exists()
