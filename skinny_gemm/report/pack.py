"""A design review as a folder to hand out: one PDF of all pages, each page as SVG and PNG, its data and provenance.

    review.pdf                  all pages
    review.json                 question, candidates, provenance, and every file here with its SHA-256
    reproduce.sh                makes the pack again
    pages/01-answer.svg ...     each page as .svg and .png, its data as .csv and its provenance as .json

The same review gives the same bytes. The folder appears whole or not at all.
"""

import hashlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_pdf import PdfPages

from ..analysis.provenance import one_line
from ..analysis.review import Review
from ..figures import style
from ..figures.export import export
from .pages import Page, pages

MANIFEST, PDF = "review.json", "review.pdf"
KIND = "skinny_gemm design review"


def write(review: Review, folder: str | os.PathLike, report: Callable[[float], None] = lambda fraction: None) -> Path:
    """Writes the pack of `review` to `folder` and returns it; `report` is told the fraction done.

    An earlier pack there is replaced. ValueError, in a sentence, if the folder holds anything else, which stays.
    """
    target = Path(folder).resolve()
    check(target)
    review = review.compiled(lambda fraction: report(0.3 * fraction))
    facts, drawn = review.provenance(), pages(review)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for number, page in enumerate(drawn):
            report(0.3 + 0.6 * number / len(drawn))
            export(page.figure, page.data, facts | {"page": page.title}, fresh / "pages" / page.name, ("svg", "png"))
        report(0.9)
        (fresh / PDF).write_bytes(pdf(drawn, review.question(), facts))
        script = fresh / "reproduce.sh"
        purpose = f"# {review.question()} Makes this pack again, from the repository."
        script.write_text(f"#!/bin/sh\n{purpose}\n{facts['reproduce']}\n")
        (fresh / MANIFEST).write_text(manifest(review, fresh))
        for path in fresh.rglob("*"):
            path.chmod(0o755 if path.is_dir() or path == script else 0o644)
        fresh.chmod(0o755)
        check(target)  # again: seconds have passed
        _swap(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    report(1.0)
    return target


def files(folder: Path) -> list[Path]:
    """The files of the pack in `folder`, the PDF first."""
    return sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.name != PDF, path))


def check(folder: Path) -> None:
    """ValueError unless `folder` is absent, empty, or holds an earlier pack as it was written and nothing else."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file, but the pack is a folder: choose another name.")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        earlier = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        written = dict(earlier["files"]) if earlier["kind"] == KIND else {}
    except (OSError, ValueError, KeyError, TypeError):
        written = {}
    if not written:
        raise ValueError(f"{folder} is not empty and holds no review pack: nothing was written, choose another folder.")
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name == MANIFEST or (path.is_dir() and not path.is_symlink()):
            continue
        foreign = name not in written or path.is_symlink()
        if foreign or _digest(path) != written[name]:
            why = "which no review pack wrote" if foreign else "which was changed since"
            raise ValueError(f"{folder} holds {name}, {why}: nothing was written, choose another folder.")


def pdf(drawn: list[Page], question: str, facts: Mapping[str, Any]) -> bytes:
    """All pages in one file, the footer on each, the provenance `facts` in its metadata."""
    buffer = io.BytesIO()
    metadata = {
        "Title": f"{question} A design review",
        "Subject": json.dumps(dict(facts), sort_keys=True, default=str),
        "Creator": "skinny_gemm",
        "Producer": None,
        "CreationDate": None,
    }
    with matplotlib.rc_context(style.RC), PdfPages(buffer, metadata=metadata) as book:
        for page in drawn:
            style.set_footer(page.figure, one_line(facts))
            book.savefig(page.figure, facecolor=page.figure.get_facecolor())
            style.set_footer(page.figure, "")
    return buffer.getvalue()


def manifest(review: Review, folder: Path) -> str:
    """The text of review.json for the files that lie in `folder`."""
    content = {
        "kind": KIND,
        "question": review.question(),
        "answer": [review.headline(), *review.answer()],
        "recommended": str(review.winner) if review.winner else None,
        "candidates": {candidate.letter: str(candidate) for candidate in review.candidates},
        "provenance": review.provenance(),
        "files": {str(path.relative_to(folder)): _digest(path) for path in files(folder)},
    }
    return json.dumps(content, indent=2) + "\n"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _swap(fresh: Path, target: Path) -> None:
    """Puts `fresh` in the place of `target`, which comes back if that fails."""
    if not target.exists():
        os.rename(fresh, target)
        return
    aside = fresh.with_name(f"{fresh.name}.old")
    os.rename(target, aside)
    try:
        os.rename(fresh, target)
    except BaseException:
        os.rename(aside, target)
        raise
    shutil.rmtree(aside)
