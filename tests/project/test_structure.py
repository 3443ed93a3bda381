"""The shape of the package and of its tests, read from their sources.

No module imports a private name of another; the package's inside does not import from its front door; what is public
says what it takes and returns; tests lie where the package does and stand alone; type information is shipped.
`make lint` checks the rest: layers and circles (import-linter), private attributes (ruff), types (mypy).
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, TESTS = ROOT / "skinny_gemm", ROOT / "tests"
BESIDE = {"browser", "fixtures", "gpu", "notebooks", "project", "support"}  #: folders of tests that mirror no package
DEVICE_CODE = PACKAGE / "kernels"  #: the DSL traces it and knows the types of its arguments


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    """The dotted name of the module in `path`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[Path, ast.Module]:
    """Every module of the package, parsed."""
    return {path: parse(path) for path in sorted(PACKAGE.rglob("*.py"))}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def imports(path: Path, tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """What a file imports, in functions too: (where, module, name in it or "")."""
    package = name_of(path).split(".")[: None if path.name == "__init__.py" else -1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if isinstance(node, ast.Import):
                yield from ((where, alias.name, "") for alias in node.names)
                continue
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((where, module, alias.name) for alias in node.names)


def private_imports(path: Path, tree: ast.Module) -> list[str]:
    """Imports of something private of the package, module or not: "where name"."""
    names = [(where, f"{module}.{name}".rstrip(".")) for where, module, name in imports(path, tree)]
    ours = [(where, name) for where, name in names if name.startswith("skinny_gemm.")]
    return [f"{where} {name}" for where, name in ours if any(map(is_private, name.split(".")))]


def public_functions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Public functions of a module and public methods of its public classes, but for those that a DSL traces."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not is_private(node.name):
            yield from public_functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            if not any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
                yield prefix + node.name, node


def unannotated(function: ast.FunctionDef) -> list[str]:
    """The arguments that lack an annotation, and "return"."""
    a = function.args
    arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
    missing = [argument.arg for argument in arguments if argument.annotation is None]
    missing = missing[1:] if missing[:1] in (["self"], ["cls"]) else missing
    return missing + (["return"] if function.returns is None else [])


def test_no_module_imports_a_private_name_of_another():
    assert [line for path, tree in modules().items() for line in private_imports(path, tree)] == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from ..tactics.base import _best", "skinny_gemm.tactics.base._best"),
        ("def f():\n    from . import _inner as b", "skinny_gemm.figures._inner"),
        ("import skinny_gemm._inner.base", "skinny_gemm._inner.base"),
        ("from ... import __main__, records", None),
        ("from .export import __doc__, save", None),
        ("from _thread import _local", None),
    ],
)
def test_a_private_import_is_seen(source, name):
    lines = private_imports(PACKAGE / "figures" / "made_up.py", ast.parse(source))
    assert [line.split()[1] for line in lines] == ([name] if name else [])


def test_no_module_imports_from_the_front_door():
    """`from skinny_gemm import matmul` inside the package would go round the layers: the front door loads them all."""
    found = [use for path, tree in modules().items() if path.parent != PACKAGE for use in imports(path, tree)]
    allowed = {*map(name_of, modules()), "skinny_gemm.__version__"}
    assert [use for use in found if use[1] == "skinny_gemm" and f"skinny_gemm.{use[2]}" not in allowed] == []


def test_public_functions_say_what_they_take_and_return():
    lines = [
        f"{name_of(path)}.{name}: {', '.join(missing)}"
        for path, tree in modules().items()
        if DEVICE_CODE not in path.parents
        for name, function in public_functions(tree.body)
        if (missing := unannotated(function))
    ]
    assert not lines, "\n".join(["without annotation:", *lines])


def test_tests_lie_where_the_package_does():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    folders = {path.parent.name for path in TESTS.glob("*/*")} - {"__pycache__"}
    assert sorted(name for name in packages if not any((TESTS / name).glob("test_*.py"))) == []
    assert folders - packages <= BESIDE


def test_test_modules_do_not_import_each_other():
    """What they share lies in tests/support, a conftest.py, or a plain module beside them."""
    found = [
        (where, *module.split("."), name)
        for path in TESTS.rglob("*.py")
        for where, module, name in imports(path, parse(path))
    ]
    assert [names for names in found if any(n.startswith("test_") or n == "conftest" for n in names[1:])] == []


def test_type_information_is_shipped():
    assert (PACKAGE / "py.typed").is_file()
    assert 'package-data.skinny_gemm = ["py.typed"]' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
