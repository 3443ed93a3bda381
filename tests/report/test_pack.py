"""The pack of a review is whole and repeatable, and replaces nothing but a pack.

- SVG, PDF and PNG carry the provenance; `reproduce.sh` makes the same bytes in another process;
- a folder that holds anything else is refused and left alone, a failure leaves the earlier pack and no litter.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from skinny_gemm.figures import export
from skinny_gemm.report import pack
from tests.support.drawings import pdf_streams
from tests.support.reviews import A, B, C


@pytest.fixture
def light(quick, monkeypatch):
    """Packs without figures, for what is about folders."""
    monkeypatch.setattr(pack, "pdf", lambda *_: b"%PDF")
    monkeypatch.setattr(export, "render", lambda figure, *_: repr(figure.get_size_inches()).encode())


def contents(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in pack.files(folder)}


def test_the_pack_carries_its_provenance_and_can_be_made_again(small, data, tmp_path, quick):
    told = []
    folder = pack.write(small, tmp_path / "made" / "review", told.append)
    assert told == sorted(told) and told[-1] == 1.0
    manifest = json.loads((folder / "review.json").read_text())
    made = contents(folder)
    assert {name: digest for name, digest in made.items() if name != "review.json"} == manifest["files"]
    assert manifest["recommended"] == B and manifest["candidates"] == {"A": A, "B": B, "C": C}
    names = [name.removesuffix(".svg") for name in made if name.endswith(".svg")]
    assert [Path(name).name[3:] for name in names] == [
        "answer", "comparison", "bandwidth", "roofline", "resources", "provenance",
    ]  # fmt: skip
    for name in names:
        facts = json.loads((folder / f"{name}.json").read_text())
        assert facts.items() >= manifest["provenance"].items() and facts["commit"] == "01234567+"
        assert json.loads(Image.open(folder / f"{name}.png").info["Description"]) == facts
        metadata, shown = (folder / f"{name}.svg").read_text().split("</metadata>")
        assert "2026-01-01-test" in metadata and "recorded, chained, campaign 2026-01-01-test" in shown
        assert not pd.read_csv(folder / f"{name}.csv").empty
    pdf = pdf_streams(folder / "review.pdf")
    assert f"/Count {len(names)}" in pdf and "CreationDate" not in pdf
    assert "2026-01-01-test" in pdf.split("/Subject")[1] and ("Tj" in pdf or "TJ" in pdf)

    command = shlex.split((folder / "reproduce.sh").read_text().splitlines()[-1])
    assert command[:3] == ["python", "-m", "skinny_gemm"]
    script = (
        "from skinny_gemm.figures import export; export.PNG_DPI = 30\n"
        f"from skinny_gemm.__main__ import main; raise SystemExit(main({command[3:]!r}))"
    )
    environment = {**os.environ, "SKINNY_GEMM_DATA": str(data), "PYTHONHASHSEED": "7"}
    environment["PYTHONPATH"] = str(Path(pack.__file__).parents[2])
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert contents(tmp_path / "review") == made


def test_only_a_pack_is_replaced(small, tmp_path, light):
    target = tmp_path / "review"
    target.mkdir()
    pack.write(small, target)  # an empty folder will do
    pack.write(replace(small, candidates=small.candidates[:1]), target)
    assert json.loads((target / "review.json").read_text())["candidates"] == {"A": A}
    assert [path.name for path in tmp_path.iterdir()] == ["review"]
    before = contents(target)
    (target / "pages" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds pages/notes.txt, which no review pack wrote: nothing was written"):
        pack.write(small, target)
    (target / "pages" / "notes.txt").unlink()
    assert contents(target) == before
    script = target / "reproduce.sh"
    script.write_text(script.read_text() + "# mine")
    with pytest.raises(ValueError, match="holds reproduce.sh, which was changed since: nothing was written"):
        pack.write(small, target)


def test_what_arrives_while_the_pack_is_made_is_kept(small, tmp_path, light):
    target = tmp_path / "review"
    pack.write(small, target)

    def arrive(fraction):
        (target / "notes.txt").write_text("mine")

    with pytest.raises(ValueError, match="holds notes.txt"):
        pack.write(small, target, arrive)
    assert (target / "notes.txt").read_text() == "mine" and [p.name for p in tmp_path.iterdir()] == ["review"]


@pytest.mark.parametrize("name", ["thesis.txt", "review.json"])
def test_a_folder_of_something_else_is_refused(small, tmp_path, name):
    (tmp_path / name).write_text('{"kind": "something else", "files": []}')
    with pytest.raises(ValueError, match="is not empty and holds no review pack"):
        pack.write(small, tmp_path)
    with pytest.raises(ValueError, match="is a file, but the pack is a folder"):
        pack.write(small, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_failure_keeps_the_earlier_pack_and_leaves_no_litter(small, tmp_path, light, monkeypatch):
    target = pack.write(small, tmp_path / "review")
    before, written, rename = contents(target), pack.manifest, pack.os.rename

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(pack, "manifest", fail)
    with pytest.raises(OSError, match="disk full"):
        pack.write(replace(small, candidates=small.candidates[:1]), target)
    monkeypatch.setattr(pack, "manifest", written)
    renames = iter([rename, fail, rename])  # the earlier pack aside, the new one in its place, the earlier one back
    monkeypatch.setattr(pack.os, "rename", lambda *paths: next(renames)(*paths))
    with pytest.raises(OSError, match="disk full"):
        pack.write(replace(small, candidates=small.candidates[:1]), target)
    assert next(renames, None) is None
    assert contents(target) == before and [path.name for path in tmp_path.iterdir()] == ["review"]
