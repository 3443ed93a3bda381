"""The disk cache of compiled kernels: one zip file an entry, data only.

Writers replace whole files atomically, so concurrent processes at worst compile the same kernel twice. A file that
cannot be read back whole (zip members carry checksums) is treated as absent and overwritten.
"""

import dataclasses
import json
import os
import tempfile
import zipfile
from pathlib import Path

from ..artifact import CompiledKernel, Parameter, Resources


def cache_dir() -> Path:
    """Where entries live: `$SKINNY_GEMM_CACHE`, else the user's cache directory."""
    if configured := os.environ.get("SKINNY_GEMM_CACHE"):
        return Path(configured)
    from platformdirs import user_cache_path

    return user_cache_path("skinny_gemm")


def load(key: str) -> CompiledKernel | None:
    """The entry stored under `key`, or None if there is none that reads back whole."""
    try:
        with zipfile.ZipFile(cache_dir() / f"{key}.zip") as entry:
            meta = json.loads(entry.read("kernel.json"))
            ptx, cubin = entry.read("kernel.ptx").decode(), entry.read("kernel.cubin")
        return CompiledKernel(
            **{
                **meta,
                "parameters": tuple(Parameter(**parameter) for parameter in meta["parameters"]),
                "resources": Resources(**meta["resources"]),
                "block": tuple(meta["block"]),
                "cluster": tuple(meta["cluster"]),
            },
            ptx=ptx,
            cubin=cubin,
        )
    except Exception:  # a damaged zip raises half a dozen kinds, zlib's among them
        return None


def store(key: str, compiled: CompiledKernel) -> None:
    """Stores `compiled` under `key`; a directory that cannot be written costs the cache, not the compilation."""
    meta = {f.name: getattr(compiled, f.name) for f in dataclasses.fields(compiled) if f.name not in ("ptx", "cubin")}
    meta["parameters"] = [dataclasses.asdict(parameter) for parameter in compiled.parameters]
    meta["resources"] = dataclasses.asdict(compiled.resources)
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=cache_dir(), prefix=".", delete=False) as file:
            try:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as entry:
                    entry.writestr("kernel.json", json.dumps(meta))
                    entry.writestr("kernel.ptx", compiled.ptx)
                    entry.writestr("kernel.cubin", compiled.cubin)
                file.close()
                os.replace(file.name, cache_dir() / f"{key}.zip")
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError:
        pass
