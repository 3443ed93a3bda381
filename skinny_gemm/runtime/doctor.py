"""What is here: versions, GPU, backend, tools, cache and recorded data, for people and for `doctor --json`."""

import importlib.metadata
import platform
import sys
import warnings
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cuda

from .. import device as devices
from .. import records
from ..catalogue import data_dir, shapes
from . import cache, driver, sass

PACKAGES = ("nvidia-cutlass-dsl", "torch", "cuda-python", "jupyterlab", "ipywidgets", "matplotlib", "pandas", "numpy")


def doctor() -> dict[str, Any]:
    """The environment report: a dictionary of plain values; nothing in it needs a GPU or raises without one."""
    gpu, version = devices.current(), _answer(lambda: driver.check(cuda.cuDriverGetVersion()))  # such as 13000
    try:
        catalogue = f"{len(shapes())} shapes in {data_dir()}"
    except ValueError as error:
        catalogue = str(error)
    return {
        "python": sys.version.split()[0],
        "platform": f"{platform.system()} {platform.machine()}",
        "gpu": gpu.title if gpu else None,
        "arch": gpu.arch if gpu else None,
        "driver": f"{version // 1000}.{version % 1000 // 10}" if version is not None else None,
        "backend": "cuda" if gpu else "interpreter",
        "packages": {name: _answer(importlib.metadata.version, name) for name in PACKAGES},
        "nvdisasm": _answer(sass.tool, "nvdisasm"),
        "cache": str(cache.cache_dir()),
        "catalogue": catalogue,
        "campaigns": _campaigns(),
    }


def _answer(ask: Callable[..., Any], *about: str) -> Any:
    """What `ask` tells, or None where there is no such package, tool or driver."""
    try:
        return ask(*about)
    except (importlib.metadata.PackageNotFoundError, FileNotFoundError, RuntimeError):
        return None


def _campaigns() -> dict[str, str]:
    """Campaign id to where it was measured, or why it cannot be read."""
    with warnings.catch_warnings(action="ignore", category=records.BrokenCampaign):  # told here
        try:
            known = {name: f"{c.gpu}, {c.date}, commit {c.commit[:7]}" for name, c in records.campaigns().items()}
            return known | {name: f"unreadable: {reason}" for name, reason in records.problems().items()}
        except ValueError as error:  # there is no data folder
            return {"unreadable": str(error)}
