"""What a binary is made of is found by reading imports: its digest changes with those files and with no others."""

import subprocess
import sys

import pytest

from skinny_gemm.runtime.sources import source_digest, sources
from skinny_gemm.tactics import KERNELS

KERNEL_MODULES = ["skinny_gemm.kernels." + name for name in ("collect", "probes", "warp_splitk", "ws_gemm")]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`package(module=text, ...)` writes modules of a package `toy` and returns the digest of its `kernel`."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text("")

    def write(**modules):
        for name, text in modules.items():
            (tmp_path / "toy" / f"{name}.py").write_text(text)
        source_digest.cache_clear()
        return source_digest("toy.kernel")

    return write


@pytest.mark.parametrize(
    "statement",
    [
        "from .helper import offset",
        "from . import helper",
        "import toy.helper",
        "from toy import helper as h",
        "def build():\n    from .helper import offset",
        "class Kernel:\n    if True:\n        from . import helper",
        "from .between import offset",
    ],
)
def test_a_change_of_a_helper_changes_the_digest(package, statement):
    first = package(kernel=statement, helper="offset = 1", between="from .helper import offset", apart="")
    assert package(apart="nobody = 'imports this'") == first
    changed = package(helper="offset = 2")
    assert changed != first and package(helper="offset = 1") == first


def test_a_new_helper_changes_the_digest_and_one_that_only_type_checkers_see_does_not(package):
    first = package(kernel="x = 1", helper="")
    assert package(kernel="from . import helper") != first
    lazy = package(kernel="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import helper")
    assert package(helper="y = 1") == lazy


def test_layouts_and_tactics_of_the_package_count(package):
    package(kernel="from skinny_gemm.layouts import swizzle\nfrom skinny_gemm.tactics.ws_gemm import WsGemmTactic")
    assert {"skinny_gemm.layouts.swizzle", "skinny_gemm.tactics.ws_gemm"} < set(sources("toy.kernel"))


@pytest.mark.parametrize("module", KERNEL_MODULES)
def test_a_kernel_is_made_of_its_own_files(module):
    """Its layouts, tactic and PTX helpers; nothing of another kernel, nor of what measures, draws or runs it."""
    names = {name.removeprefix("skinny_gemm.") for name in sources(module)}
    kernel = module.rpartition(".")[2]
    assert {"artifact", "kernels.ptx", f"kernels.{kernel}"} <= names
    if kernel.replace("_", "-") in KERNELS:
        assert {"problem", f"layouts.{kernel}", f"tactics.{kernel}", "tactics.base", "layouts.fragments"} <= names
    others = {"warp_splitk", "ws_gemm"} - {kernel}
    assert not {f"{package}.{name}" for package in ("kernels", "tactics", "layouts") for name in others} & names
    assert {name.partition(".")[0] for name in names} <= {"artifact", "kernels", "layouts", "problem", "tactics"}


def test_the_compiler_is_not_loaded_to_name_a_binary():
    code = f"import sys; from skinny_gemm.runtime.sources import source_digest\nfor name in {KERNEL_MODULES}:\n"
    code += "    source_digest(name)\nassert not {'cutlass', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_module_without_a_file_is_refused():
    with pytest.raises(ValueError, match="module nowhere.at_all has no source file"):
        sources("nowhere.at_all")
