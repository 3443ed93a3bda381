"""The pages of a review say what was found and where from; candidates can be told apart without colour."""

import subprocess
from dataclasses import replace

import numpy as np
from matplotlib.lines import Line2D

from skinny_gemm import device
from skinny_gemm.analysis import review
from skinny_gemm.analysis.review import design_review
from skinny_gemm.artifact import Resources
from skinny_gemm.figures import style
from skinny_gemm.figures.panel import Labels
from skinny_gemm.records import PEERS
from skinny_gemm.report import pages
from tests.support.drawings import texts
from tests.support.reviews import H200, SMALL, A


def page(found: review.Review, name: str) -> pages.Page:
    return next(page for page in pages.pages(found) if page.name.endswith(name))


def test_pages_say_what_was_found(small):
    cover, table = texts(page(small, "answer").figure), texts(page(small, "comparison").figure)
    assert {"Which tactic for 64x1024 at M = 8?", "9.040 us", "warp-splitk 16,8,256,4,1"} <= set(cover)
    assert any(line.startswith("That is 1.507 times") for line in cover)
    assert {"10.040", "9.040", "18.040", "10.010 to 10.070", "not recorded", "bound", "6.000"} <= set(table)
    assert table.count("FASTER") == 3, "B against A, A and B against cublas"
    assert {"-10.0 %", "-44.3 %", "-49.9 %"} <= set(table)
    assert any("→" in line for line in table), "cublas is beyond the edge of the chart"
    assert f"64x1024, M = 8, chained, NVIDIA H200   |   2 of {len(pages.pages(small))}" in table


def test_verdicts_are_against_as_many_peers_as_there_is_room_for(small):
    (cublas,) = small.peers.values()
    every = replace(small, peers={name: replace(cublas, kernel=name) for name in PEERS})
    said = texts(pages.comparison(every)[0].figure)
    columns = [text for text in said if text.startswith("against ")]
    assert columns == ["against A", *(f"against {name}" for name in PEERS[:3])] and set(PEERS) <= set(said)


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
    assert again == small.campaigns[0].command


def test_every_campaign_is_told_above_the_footer_however_long(small):
    (one,) = small.campaigns
    long = tuple(replace(one, id=f"run-{i}", command=one.command + 200 * " --m 1") for i in range(3))
    made = pages.provenance(replace(small, campaigns=long))
    assert sum(len(page.data) for page in made) == len(long)
    assert len(made) > 1
    for page in made:
        low = [y for labels in page.figure.findobj(Labels) for _, y in labels.points]
        assert min(low) > pages.FOOT - 0.2


def test_a_broken_command_is_the_same_command():
    command = "python -m x --shapes " + ",".join(["3584x7168"] * 30) + " --out y"
    lines = pages.broken(command, 60)
    assert len(lines) > 4 and max(map(len, lines)) <= 60
    shell = ["sh", "-c", "printf '%s\\n' " + "\n".join(lines)]
    joined = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert joined.stdout.split() == command.split()


def test_candidates_are_told_apart_without_colour(small):
    looks = [pages.look(c) | {"color": pages.color_of(c)} for c in small.candidates]
    for name in ("marker", "linestyle", "color"):
        assert len({str(look[name]) for look in looks}) == len(looks), name
    assert len(style.MARKERS) >= len(review.LETTERS) <= len(style.DASHES)


def test_the_charts_plot_the_records(small):
    for name, x, y in (("bandwidth", lambda r: np.log2(r.m), lambda r: r.tbs),
                       ("roofline", lambda r: np.log10(r.intensity), lambda r: np.log10(r.tflops))):  # fmt: skip
        drawn = page(small, name)
        for candidate in small.candidates[:2]:
            rows = small.lead.table[small.lead.table.tactic == str(candidate.tactic)]
            wanted = np.array([(x(row), y(row)) for row in rows.itertuples()])
            color = pages.color_of(candidate)
            lines = [
                np.column_stack(artist.get_data())
                for artist in drawn.figure.artists
                if isinstance(artist, Line2D) and artist.get_color() == color
            ]
            assert any(line.shape == wanted.shape and np.allclose(line, wanted) for line in lines), (name, candidate)
    assert "not recorded at any M: C" in texts(page(small, "bandwidth").figure)
    assert "HBM read 4.5 TB/s" in texts(page(small, "roofline").figure)


def test_resources_tell_registers_once_compiled(small):
    said = texts(page(small, "resources").figure)
    assert "registers: not compiled yet" in said
    first, *others = small.candidates
    known = replace(small, candidates=(replace(first, resources=Resources(77, 8, 0, 0)), *others))
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


def test_every_page_names_a_busy_process(small):
    for process, said in (("quiet", "M = 8, chained, NVIDIA"), ("busy", "M = 8, chained, busy process, NVIDIA")):
        for each in pages.pages(replace(small, process=process)):
            assert any(said in line for line in texts(each.figure)), each.name


def test_a_bound_alone_is_compared_with_nothing(data):
    found = design_review(replace(SMALL, m=7), H200, candidates=[A], data_dir=data)
    table = texts(page(found, "comparison").figure)
    assert {"not recorded", "bound", "6.000"} <= set(table) and "Verdicts: the row against the column" not in table
