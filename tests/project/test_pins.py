"""pyproject.toml, requirements.lock and environment.yml describe one and the same environment."""

import importlib.metadata as metadata
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [Requirement(r) for r in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]


def lock() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@cache
def installed(*, through_torch: bool) -> dict[str, str]:
    """Name and version of every distribution that the direct dependencies reach, here, without local version parts."""
    found, queue, seen = {}, list(DIRECT), set()
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        distribution = metadata.distribution(name)
        found[name] = distribution.version.partition("+")[0]
        if name == "torch" and not through_torch:
            continue
        for needed in map(Requirement, distribution.requires or []):
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(needed)
    return found


def test_the_lock_is_sorted_and_satisfies_every_direct_dependency():
    pins = lock()
    assert list(pins) == sorted(pins)
    for requirement in DIRECT:
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_what_decides_the_compiled_kernel_is_pinned_exactly():
    exact = {r.name: str(r.specifier) for r in DIRECT}
    assert exact["nvidia-cutlass-dsl"].startswith("==4.8.")
    assert exact["torch"].startswith("==")


def in_project_environment() -> bool:
    try:
        return metadata.distribution("skinny-gemm") is not None
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not in_project_environment(), reason="skinny-gemm is not installed here (make install does)")
def test_the_lock_is_what_is_installed_and_nothing_else():
    """Below torch itself the lock may fall short: its CUDA build brings pinned NVIDIA packages of its own."""
    pins = lock()
    assert {name: pins.get(name) for name in installed(through_torch=False)} == installed(through_torch=False)
    assert {name: installed(through_torch=True).get(name) for name in pins} == pins


def test_every_pin_takes_the_oldest_python_promised():
    """Debian 12 ships 3.11.2, and some releases ask for a later 3.11."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    needs = {name: metadata.distribution(name).metadata["Requires-Python"] for name in lock()}
    assert {name: need for name, need in needs.items() if need and oldest not in SpecifierSet(need)} == {}


def test_the_conda_environment_is_the_same():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, pip = environment["dependencies"]
    assert [name for name in conda if not name.startswith("python=")] == ["pip"], "versions come from the lock alone"
    (python,) = (name.partition("=")[2] for name in conda if name.startswith("python="))
    assert python in SpecifierSet(PROJECT["requires-python"])
    assert pip == {"pip": ["--constraint requirements.lock", "--editable .[test]"]}


def test_this_python_is_supported():
    assert ".".join(map(str, sys.version_info[:3])) in SpecifierSet(PROJECT["requires-python"])
