"""Where files lie: the folder for exports, and paths as the repository's readers know them."""

import os
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


def export_dir() -> Path:
    """Where exports go: $SKINNY_GEMM_EXPORTS, or build/exports of the repository."""
    override = os.environ.get("SKINNY_GEMM_EXPORTS")
    return Path(override) if override else _REPOSITORY / "build" / "exports"


def relative(path: Path) -> str:
    """`path` as seen from the repository, where it is inside."""
    return str(path.relative_to(_REPOSITORY)) if path.is_relative_to(_REPOSITORY) else str(path)
