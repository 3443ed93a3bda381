"""What is here: versions, GPU, backend, tools, cache and recorded data, for people and for `doctor --json`."""

import importlib.metadata
import platform
import sys
import warnings
from typing import Any

from .. import device as devices
from .. import records
from ..catalogue import data_dir, shapes
from . import cache, sass

PACKAGES = ("nvidia-cutlass-dsl", "torch", "cuda-python", "jupyterlab", "ipywidgets", "matplotlib", "pandas", "numpy")


def doctor() -> dict[str, Any]:
    """The environment report: a dictionary of plain values; nothing in it needs a GPU or raises without one."""
    gpu = devices.current()
    try:
        catalogue = f"{len(shapes())} shapes in {data_dir()}"
    except ValueError as error:
        catalogue = str(error)
    return {
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "gpu": gpu.title if gpu else None,
        "arch": gpu.arch if gpu else None,
        "driver": _driver_version(),
        "backend": "cuda" if gpu else "interpreter",
        "packages": {name: _version(name) for name in PACKAGES},
        "nvdisasm": _tool("nvdisasm"),
        "cache": str(cache.cache_dir()),
        "catalogue": catalogue,
        "campaigns": _campaigns(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver_version() -> str | None:
    """CUDA version the installed driver supports, such as "13.0"."""
    from cuda.bindings import driver

    try:
        status, version = driver.cuDriverGetVersion()
    except RuntimeError:  # no libcuda on this machine
        return None
    return f"{version // 1000}.{version % 1000 // 10}" if status == driver.CUresult.CUDA_SUCCESS else None


def _tool(name: str) -> str | None:
    try:
        return sass.tool(name)
    except FileNotFoundError:
        return None


def _campaigns() -> dict[str, str]:
    """Campaign id to a line that says where it was measured, or why it cannot be read."""
    with warnings.catch_warnings(action="ignore", category=records.BrokenCampaign):  # told here
        try:
            known = {name: f"{c.gpu}, {c.date}, commit {c.commit[:7]}" for name, c in records.campaigns().items()}
            return known | {name: f"unreadable: {reason}" for name, reason in records.problems().items()}
        except ValueError as error:  # there is no data folder
            return {"unreadable": str(error)}
