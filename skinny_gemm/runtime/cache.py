"""The disk cache of compiled kernels: one zip an entry, written whole; a damaged one counts as absent."""

import dataclasses
import io
import json
import os
import zipfile
from pathlib import Path

from ..artifact import CompiledKernel, Parameter, Resources
from ..files import write_whole


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
        meta["parameters"] = tuple(Parameter(**parameter) for parameter in meta["parameters"])
        meta["resources"] = Resources(**meta["resources"])
        meta["block"], meta["cluster"] = tuple(meta["block"]), tuple(meta["cluster"])
        return CompiledKernel(ptx=ptx, cubin=cubin, **meta)
    except Exception:  # a damaged zip raises half a dozen kinds, zlib's among them
        return None


def store(key: str, compiled: CompiledKernel) -> None:
    """Stores `compiled` under `key`; a directory that cannot be written costs the cache, not the compilation."""
    meta = dataclasses.asdict(compiled)
    ptx, cubin = meta.pop("ptx"), meta.pop("cubin")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as entry:
        entry.writestr("kernel.json", json.dumps(meta))
        entry.writestr("kernel.ptx", ptx)
        entry.writestr("kernel.cubin", cubin)
    try:
        cache_dir().mkdir(parents=True, exist_ok=True)
        write_whole(cache_dir() / f"{key}.zip", content.getvalue())
    except OSError:
        pass
