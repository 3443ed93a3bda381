"""Files of others that peers are made of: read where they lie, loaded by themselves, never part of this repository."""

import functools
import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class ForeignFile:
    """One Python file: what the environment's `variable` names, else the file `inside` an installed package."""

    variable: str
    inside: str  #: such as "package/folder/module.py"

    def path(self) -> Path:
        """Where it lies; ImportError if that is nowhere. Imports nothing."""
        if named := os.environ.get(self.variable):
            return Path(named)
        package = self.inside.partition("/")[0]
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (path := Path(folder).parent / self.inside).is_file():
                return path
        raise ImportError(f"{package} is not installed, and ${self.variable} names no {Path(self.inside).name}")

    def load(self) -> ModuleType:
        """The module of this file alone, without the packages around it."""
        return _load(self.variable.lower(), self.path())

    def digest(self) -> str:
        """Digest of its content, as a key of what is compiled from it."""
        return hashlib.sha256(self.path().read_bytes()).hexdigest()[:16]


@functools.cache
def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module
