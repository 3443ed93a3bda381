"""Which commit of the source runs here: what records and figures say of themselves."""

import os
import subprocess
from pathlib import Path

VARIABLE = "SKINNY_GEMM_COMMIT"  #: commit of a tree that came without its git: a hash, "-dirty" behind it or not


def commit(untracked: bool = True) -> tuple[str, bool]:
    """The commit and whether the working tree differs from it; ("unknown", True) outside a repository.

    $SKINNY_GEMM_COMMIT overrides git. Files that git does not track count as a difference if `untracked`.
    """
    if given := os.environ.get(VARIABLE):
        return given.removesuffix("-dirty"), given.endswith("-dirty")

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    try:
        files = "normal" if untracked else "no"
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", f"--untracked-files={files}"))
    except (OSError, subprocess.SubprocessError):
        return "unknown", True
