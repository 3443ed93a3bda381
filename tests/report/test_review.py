"""A design review: numbers are records, verdicts are those of the intervals, and the pack is whole and repeatable.

- the table and the pages agree with the records, the best candidate wins wherever it stands;
- candidates differ by letter, marker and dash, not by colour alone;
- SVG, PDF and PNG carry the provenance; `reproduce.sh` makes the same bytes in another process;
- a folder that holds anything else is refused and left alone, a failure leaves the earlier pack and no litter.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from PIL import Image

from skinny_gemm import catalogue, device, records
from skinny_gemm.analysis import review
from skinny_gemm.analysis.review import design_review
from skinny_gemm.artifact import Resources
from skinny_gemm.figures import export, style
from skinny_gemm.figures.panel import Labels, Panel
from skinny_gemm.figures.performance import end_labels
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter, Point
from skinny_gemm.records import best as tables
from skinny_gemm.records.statistics import verdict
from skinny_gemm.report import pack, pages
from tests.support.drawings import pdf_streams, texts

H200 = device.get("h200")
SMALL = GemmProblem(8, 64, 1024)
A, B, C = (f"warp-splitk:16,8,256,{stages},1" for stages in (2, 4, 3))
TIMES = {A: 10.0, B: 9.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A data folder with one campaign of 64x1024: B takes 9 us, A 10, cublas 18, the bound is 6; C is not recorded."""
    root = tmp_path_factory.mktemp("data")
    for name in ("shapes.csv", "devices.json"):
        (root / name).symlink_to(catalogue.data_dir() / name)
    folder = root / "campaigns" / "2026-01-01-test"
    writer = CampaignWriter(
        folder,
        Campaign(
            id=folder.name, device="h200", gpu="NVIDIA H200", driver="580.1", cuda="13.0", torch="2.11", dsl="4.8.1",
            commit="0123456789abcdef", dirty=True, date="2026-01-01T00:00:00+00:00", command="bench --all " + "x" * 150,
            ceilings={"hbm_read_tbs": 4.5, "bf16_tflops": 630.0}, method={"replays": 25}, complete=True,
            clocks={"sm_mhz_low": 1800, "sm_mhz_high": 1980, "dropped": True, "throttle": ["power cap"]},
        ),
    )  # fmt: skip
    for m in (1, 8):
        for candidate, time in TIMES.items():
            kernel, _, tactic = candidate.partition(":")
            writer.add(Point(kernel, 64, 1024, m, tactic), [time + 0.01 * i for i in range(9)], 1e-3, 131072 + 2048 * m)
        writer.add(Point("cublas", 64, 1024, m), [18 + 0.01 * i for i in range(9)], 1e-3, 131072 + 2048 * m)
    writer.add(Point("stream", 64, 1024, 0, "528x3x8192"), [6.0] * 9, float("nan"), 131072)
    writer.save()
    return root


@pytest.fixture
def small(data):
    return design_review(SMALL, H200, candidates=[A, B, C], data_dir=data)


@pytest.fixture
def quick(monkeypatch):
    """PNGs of few pixels; a commit that stays the same while others work in the repository."""
    monkeypatch.setattr(export, "PNG_DPI", 30)
    for module in (export, review, pages):
        monkeypatch.setattr(module, "commit", lambda: "0badc0de")


@pytest.fixture
def light(quick, monkeypatch):
    """Packs without figures, for what is about folders."""
    monkeypatch.setattr(pack, "pdf", lambda *_: b"%PDF")
    monkeypatch.setattr(export, "render", lambda figure, *_: repr(figure.get_size_inches()).encode())


def page(found: review.Review, name: str) -> pages.Page:
    return next(page for page in pages.pages(found) if page.name.endswith(name))


def test_the_table_agrees_with_the_records(small):
    rows = {row.tactic if row.kernel == "warp-splitk" else row.kernel: row for row in small.rows if row.m == 8}
    table = small.comparison().set_index("name")
    assert table.index.tolist() == ["A", "B", "C", "cublas", "bound"]
    for name in ("A", "B", "cublas"):
        row = rows[table.tactic[name]] if name in "AB" else rows[name]
        told = table.loc[name, ["median_us", "low_us", "high_us", "samples", "campaign"]].tolist()
        assert told == [row.median_us, row.low_us, row.high_us, row.samples, row.campaign]
        assert table.over_bound[name] == pytest.approx(row.median_us / 6)
        for column, rival in (("against_A", rows["16,8,256,2,1"]), ("against_cublas", rows["cublas"])):
            told = table.loc[name, column]
            assert pd.isna(told) if rival is row else told == verdict(row, rival)
    assert table.loc["C", ["median_us", "against_A", "against_cublas"]].isna().all()
    assert table.median_us["bound"] == 6


def test_the_fastest_candidate_is_recommended_wherever_it_stands(small):
    assert small.winner.letter == "B" and small.headline().startswith("B  warp-splitk 16,8,256,4,1: 9.040 us")
    said = " ".join(small.answer())
    assert "1.507 times the measured bound of 6.000 us" in said and "Not recorded at this M: C." in said
    assert "Of the candidates, B is FASTER than A (10.040 us, 1.11 times as long)." in said
    assert "Of the peers' best, B is FASTER than cublas (18.040 us" in said


def test_a_faster_tactic_that_is_no_candidate_is_told(data):
    said = " ".join(design_review(SMALL, H200, candidates=[A], data_dir=data).answer())
    assert "A tactic that is no candidate is FASTER: warp-splitk 16,8,256,4,1 at 9.040 us." in said


def test_the_suggested_are_the_fastest_the_default_and_the_runner_up(data):
    rows = tables.weight_rows(64, 1024, "chained", "h200", data)
    found = review.suggested(SMALL, H200, rows, review.defaults(SMALL, H200))
    assert [f"{tactic.kernel}:{tactic}" for tactic, _ in found] == [B, A]
    assert found[0][1].startswith("fastest") and "runner-up" in found[1][1]
    at_7 = replace(SMALL, m=7)
    nothing = review.suggested(at_7, H200, rows, review.defaults(at_7, H200))
    assert {tactic.kernel for tactic, _ in nothing} == {"warp-splitk", "ws-gemm"}
    assert {note for _, note in nothing} == {"default"}, "nothing was recorded at M = 7"
    assert review.defaults(GemmProblem(8, 24, 100), H200) == {}


def test_pages_say_what_was_found(small):
    cover, table = texts(page(small, "answer").figure), texts(page(small, "comparison").figure)
    assert {"Which tactic for 64x1024 at M = 8?", "9.040 us", "warp-splitk 16,8,256,4,1"} <= set(cover)
    assert any(line.startswith("That is 1.507 times") for line in cover)
    assert {"10.040", "9.040", "18.040", "10.010 to 10.070", "not recorded", "bound", "6.000"} <= set(table)
    assert table.count("FASTER") == 3, "B against A, A and B against cublas"
    assert {"-10.0 %", "-44.3 %", "-49.9 %"} <= set(table)
    assert any("→" in line for line in table), "cublas is beyond the edge of the chart"
    assert f"64x1024, M = 8, chained, NVIDIA H200   |   2 of {len(pages.pages(small))}" in table


def test_provenance_is_told_in_full(small):
    said = texts(page(small, "provenance").figure)
    whole = "\n".join(said)
    for fact in (
        "Run 1:  2026-01-01-test", "NVIDIA H200, driver 580.1, CUDA 13.0, PyTorch 2.11, CuTe DSL 4.8.1",
        "commit 0123456789abcdef with uncommitted changes", "SM clock 1800 to 1980 MHz", "the clock DROPPED",
        "throttled by power cap", "hbm_read_tbs 4.5", "replays 25",
    ):  # fmt: skip
        assert fact in whole, fact
    again = whole.partition("Measure again\n")[2].replace("\\\n", "").splitlines()[0]
    assert again == small.recorded["2026-01-01-test"].command


def test_every_campaign_is_told_above_the_footer_however_long(small):
    long = {
        f"run-{i}": replace(c, id=f"run-{i}", command=c.command + 200 * " --m 1")
        for i, c in enumerate(3 * [*small.recorded.values()])
    }
    rows = tuple(replace(row, campaign=f"run-{i % len(long)}") for i, row in enumerate(small.rows))
    sheets = [sheet for sheet, _ in pages.provenance(replace(small, rows=rows, recorded=long), style.LIGHT)]
    assert len(sheets) > 1
    for sheet in sheets:
        low = [y for labels in sheet.figure.findobj(Labels) for _, y in labels.points]
        assert min(low) > pages.FOOT - 0.2


def test_a_broken_command_is_the_same_command():
    command = "python -m x --shapes " + ",".join(["3584x7168"] * 30) + " --out y"
    lines = pages._broken(command, 60)
    assert len(lines) > 4 and max(map(len, lines)) <= 60
    shell = ["sh", "-c", "printf '%s\\n' " + "\n".join(lines)]
    joined = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert joined.stdout.split() == command.split()


def test_candidates_are_told_apart_without_colour(small):
    looks = [pages._look(candidate, style.LIGHT) for candidate in small.candidates]
    for name in ("marker", "linestyle", "color"):
        assert len({str(look[name]) for look in looks}) == len(looks), name
    assert len(style.MARKERS) >= len(review.LETTERS) <= len(style.DASHES)


def test_the_charts_plot_the_records(small):
    for name, x, y in (("bandwidth", lambda r: np.log2(r.m), lambda r: r.tbs),
                       ("roofline", lambda r: np.log10(r.intensity), lambda r: np.log10(r.tflops))):  # fmt: skip
        drawn = page(small, name)
        for candidate in small.candidates[:2]:
            rows = small.table[small.table.tactic == str(candidate.tactic)]
            wanted = np.array([(x(row), y(row)) for row in rows.itertuples()])
            look = pages._look(candidate, style.LIGHT)
            lines = [
                np.column_stack(artist.get_data())
                for artist in drawn.figure.artists
                if isinstance(artist, Line2D) and artist.get_color() == look["color"]
            ]
            assert any(line.shape == wanted.shape and np.allclose(line, wanted) for line in lines), (name, candidate)
    assert "not recorded at any M: C" in texts(page(small, "bandwidth").figure)
    assert "HBM read 4.5 TB/s" in texts(page(small, "roofline").figure)


def test_resources_tell_registers_once_compiled(small):
    said = texts(page(small, "resources").figure)
    assert "registers: not compiled yet" in said
    known = replace(small, resources={"A": Resources(77, 8, 0, 0)})
    assert "77 registers per thread, 8 B spilled" in texts(page(known, "resources").figure)
    footprint = small.candidates[0].tactic.footprint(SMALL, H200)
    assert any(line.startswith(footprint.describe()) for line in said)
    assert page(small, "resources").data.groupby("candidate")["bytes"].sum().unique().tolist() == [H200.smem_per_sm]


def test_many_candidates_take_more_pages(data):
    many = [f"warp-splitk:16,8,128,{stages},1" for stages in range(2, 8)]
    found = design_review(SMALL, H200, candidates=many, data_dir=data)
    names = [each.name for each in pages.pages(found)]
    assert [name[3:] for name in names].count("resources") == 2 and len(set(names)) == len(names)
    assert found.winner is None and found.headline() == "No recorded answer."


def test_nothing_recorded_is_said_plainly(data):
    found = design_review(SMALL, device.get("b200"), candidates=[A], data_dir=data)
    assert "nothing to decide on" in found.answer()[0] and found.provenance()["source"] == "model"
    assert "No recorded answer" in texts(page(found, "answer").figure)
    assert any(line.startswith("No campaign") for line in texts(page(found, "provenance").figure))


@pytest.mark.parametrize(
    ("candidates", "mode", "words"),
    [
        (["nonsense"], "chained", "candidate 'nonsense' is not written KERNEL:TACTIC"),
        (["x:1,2"], "chained", "unknown kernel 'x'"),
        (["warp-splitk:1,2"], "chained", "tactic '1,2' is not 5 comma-separated integers"),
        (["warp-splitk:16,8,256,99,1"], "chained", "stages is 99"),
        ([A, A], "chained", "candidate warp-splitk:16,8,256,2,1 is there twice"),
        ([f"warp-splitk:16,8,128,{s},1" for s in range(2, 9)], "chained", "7 candidates are too many"),
        ([A], "quick", "mode is 'quick', but must be one of isolated, chained, exposed"),
    ],
)
def test_bad_input_is_named(data, candidates, mode, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        design_review(SMALL, H200, mode, candidates, data)


def test_a_shape_that_no_kernel_takes_says_why(data):
    with pytest.raises(ValueError, match="No kernel takes 24x100 at M = 8: warp-splitk: .*N = 24 is not a multiple"):
        design_review(GemmProblem(8, 24, 100), H200, data_dir=data)


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
        "from skinny_gemm.figures import export; export.PNG_DPI = 30; export.commit = lambda: '0badc0de'\n"
        f"from skinny_gemm.__main__ import main; raise SystemExit(main({command[3:]!r}))"
    )
    environment = {**os.environ, "SKINNY_GEMM_DATA": str(data), "PYTHONHASHSEED": "7"}
    environment["PYTHONPATH"] = str(Path(review.__file__).parents[2])
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


def test_campaigns_are_numbered_the_first_candidates_first(small):
    other = replace(small.recorded["2026-01-01-test"], id="2026-02-02-test")
    rows = [replace(row, campaign=other.id) if row.kernel == "cublas" else row for row in small.rows]
    mixed = replace(small, rows=tuple(rows), recorded={**small.recorded, other.id: other})
    assert [campaign.id for campaign in mixed.campaigns] == ["2026-01-01-test", "2026-02-02-test"]
    assert mixed.run_of(mixed.peers["cublas"]) == 2 and mixed.run_of(mixed.measured["A"]) == 1
    assert records.PEERS[0] in mixed.peers and len(page(mixed, "provenance").data) == 2


@pytest.mark.parametrize("values", [[1.53, 1.46, 1.37, 1.36, 1.33, 1.27], [1, 1, 1, 1], [3, 2, 1], [1.0, 1.01, 5.0]])
def test_labels_of_line_ends_never_overlap(values):
    fig = style.figure(11, 8)
    panel = Panel(fig, 1, 1, 7, 5.75, style.LIGHT, x=(0, 1), y=(0, 5))
    end_labels(panel, [(1, y, str(i), "#000000") for i, y in enumerate(values)])
    labels = [artist for artist in fig.artists if isinstance(artist, Labels)]
    at = np.array([label.points[0][1] for label in labels])
    gaps = np.diff(at) / 5 * 5.75
    assert (gaps > 0.16).all(), "inches"
    assert [label.texts[0] for label in labels] == [str(i) for i in np.argsort(values, kind="stable")]
    if np.diff(sorted(values)).min() > 0.5:
        np.testing.assert_allclose(at, sorted(values), err_msg="what does not touch stays")
