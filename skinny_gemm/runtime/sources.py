"""Which source files a kernel is made of, read off their import statements: nothing is imported for it."""

import ast
import functools
import hashlib
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib.util import find_spec, resolve_name
from pathlib import Path

#: They say whether a kernel may run and how fast, never what it is: no binary depends on them.
NOT_CODE = (
    "skinny_gemm.catalogue",
    "skinny_gemm.checks",
    "skinny_gemm.device",
    "skinny_gemm.tactics.defaults",
    "skinny_gemm.tactics.formula",
    "skinny_gemm.tactics.*_time",
)


@functools.cache
def source_digest(module: str) -> str:
    """Digest of the names and contents of a kernel's `sources`."""
    digest = hashlib.sha256()
    for name, file in sources(module).items():
        digest.update(name.encode() + b"\n" + file.read_bytes())
    return digest.hexdigest()[:16]


def sources(module: str) -> dict[str, Path]:
    """The files of `module` and of all it imports from its package and skinny_gemm, by name; ValueError for no file.

    Imports inside functions count, `NOT_CODE` and type checkers' do not; an `__init__` where a name comes from it.
    """
    files: dict[str, Path] = {}
    roots = {"skinny_gemm", module.partition(".")[0]}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        file = None if name in files or any(fnmatch(name, pattern) for pattern in NOT_CODE) else _file(name)
        if file is not None:
            files[name] = file
            package = name if file.name == "__init__.py" else name.rpartition(".")[0]
            waiting += [f for f in _imported(ast.parse(file.read_bytes()), package) if f.partition(".")[0] in roots]
    if module not in files:
        raise ValueError(f"module {module} has no source file, but a kernel must have one")
    return dict(sorted(files.items()))


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """The names that a module of `package` imports, as if each were a module; and the modules they come from."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{source}.{alias.name}" for alias in node.names]
            yield from (name if _file(name) else source for name in names)
        elif not (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")):
            yield from _imported(node, package)


def _file(module: str) -> Path | None:
    """The source file of a module, None if there is none; imports neither it nor the packages around it."""
    top, *inner = module.split(".")
    spec = find_spec(top)
    if spec is None or not inner:
        return Path(spec.origin) if spec and spec.origin else None
    path = Path(next(iter(spec.submodule_search_locations or ()), top), *inner)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
