"""GPU tests: `make gpu-test` on a host with a CUDA GPU that the kernels are compiled for."""

import csv
import io
import shutil
import subprocess
import sys

import pytest
import torch

from skinny_gemm import device

ATTEMPTS = 3  #: of a profiler


@pytest.fixture(scope="session", autouse=True)
def gpu():
    gpu = device.current()
    if gpu is None or gpu.arch not in device.architectures():
        pytest.skip(f"needs a GPU of {', '.join(device.architectures())}; here is {gpu.arch if gpu else 'none'}")
    return gpu


@pytest.fixture(autouse=True)
def fresh_seed():
    torch.seed()


@pytest.fixture
def normal():
    """`normal(*shape)`: fresh BF16 normals on the GPU, rounded once so that FP64 references see the same values."""
    return lambda *shape: torch.randn(shape, device="cuda").bfloat16()


def _profiled(tool, options, command):
    """What `python -m skinny_gemm COMMAND` prints under a tool of the CUDA toolkit; skips where there is none."""
    path = shutil.which(tool, path="/usr/local/cuda/bin:/usr/bin")
    if path is None:
        pytest.skip(f"{tool} is not installed")
    line = [path, *options, sys.executable, "-m", "skinny_gemm", *command.split()]
    for _ in range(ATTEMPTS):
        run = subprocess.run(line, capture_output=True, text=True, timeout=280)
        if "driver resource was unavailable" not in run.stdout:  # what ncu says while another profiler counts
            break
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return run.stdout


@pytest.fixture
def sanitize():
    """`sanitize(tool, kernel, command)` runs the command, a `verify`, and asserts that the tool found nothing."""

    def sanitize(tool, kernel, command):
        options = "--tool", tool, "--error-exitcode", "7", "--kernel-name", f"kernel_substring={kernel}"
        out = _profiled("compute-sanitizer", options, command)
        assert "passed" in out and (" 0 errors" in out or " 0 hazards" in out)

    return sanitize


@pytest.fixture
def shared_memory_counters():
    """`shared_memory_counters(kernel, command)`: (wavefronts, conflicts) of shared `ld` and `st`, from the hardware."""

    def measure(kernel, command):
        conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
        wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
        names = {op: (wavefronts.format(op), conflicts.format(op)) for op in ("ld", "st")}
        metrics = ",".join(name for pair in names.values() for name in pair)
        options = "--clock-control", "none", "--csv", "--kernel-name", f"regex:{kernel}", "--metrics", metrics
        out = _profiled("ncu", options, command)
        assert '"ID"' in out, out[-2000:]
        rows = csv.DictReader(io.StringIO(out[out.index('"ID"') :]))
        values = {row["Metric Name"]: int(float(row["Metric Value"].replace(",", ""))) for row in rows}
        return {op: tuple(values[name] for name in pair) for op, pair in names.items()}

    return measure
