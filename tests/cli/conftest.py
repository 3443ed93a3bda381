"""What the tests of commands share."""

import shlex

import pytest

from skinny_gemm.__main__ import main


@pytest.fixture
def call(capsys):
    """`call("shapes --json") -> (status, stdout, stderr)`, in this process."""

    def call(line):
        status = main(shlex.split(line))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
