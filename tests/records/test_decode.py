"""Recorded decode steps: read as written, by id or path; the table follows from the samples; a broken file is named."""

import json

import pytest

from skinny_gemm.records import Campaign
from skinny_gemm.records.decode import Step, find, folder, lines, read, write

CAMPAIGN = Campaign(
    id="a", device="h200", gpu="NVIDIA H200", driver="580", cuda="13.0", torch="2.11", dsl="4.8", commit="abc",
    dirty=False, date="2026-12-01T00:00:00+00:00", command="bench decode", complete=True,
    clocks={"samples": [], "dropped": False},
    method={"model": "Tiny", "parallel": "TP1", "layers": 2, "weight_bytes": 13_900_000_000},
)  # fmt: skip


def pair(m, theirs, ours):
    """The steps of M tokens, in microseconds: medians in the middle of an interval of 8 us."""
    samples = [[us - 5 + i for i in range(11)] for us in (theirs, ours)]
    tactics = {"o_proj": "warp-splitk 16,8,256,4,2"}
    return [Step(m, "torch", samples[0], 0.01, 0.0), Step(m, "skinny_gemm", samples[1], 0.0101, 0.012, tactics)]


STEPS = [*pair(1, 5000.0, 4000.0), *pair(16, 5000.0, 5001.0), *pair(32, 5000.0, 6000.0)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    return write(folder() / "a.json", CAMPAIGN, STEPS)


def test_what_was_written_is_read(run):
    campaign, steps = read(run)
    assert campaign == CAMPAIGN and steps == STEPS
    assert find("a") == find(run) == run


def test_the_table_follows_from_the_samples(run):
    machine, clocks, what, heading, *rows = lines(*read(run))
    assert machine == "a: NVIDIA H200, driver 580, CUDA 13.0, PyTorch 2.11, abc"
    assert clocks == "clocks: {'dropped': False}"
    assert what.startswith("Tiny TP1, 2 layers, 13.9 GB of weights: ")
    assert heading.split() == ["M", "torch", "ours", "speed-up", "verdict", "torch", "ours", "apart"]
    assert [row.split()[:5] for row in rows] == [
        ["1", "5000.0", "4000.0", "1.250", "FASTER"],
        ["16", "5000.0", "5001.0", "1.000", "SAME"],
        ["32", "5000.0", "6000.0", "0.833", "SLOWER"],
    ]
    assert rows[0].split()[5:] == ["1.0e-02", "1.0e-02", "1.2e-02"]


def test_an_unknown_run_is_refused_with_those_that_are_known(run):
    with pytest.raises(ValueError, match="There is no decode step 'b': recorded are a"):
        find("b")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda c: c["campaign"].pop("gpu"), "missing 1 required positional argument: 'gpu'"),
        (lambda c: c["campaign"].update(id="b"), "id is 'b', but must be the file's name 'a'"),
        (lambda c: c["campaign"].update(dirty="no"), "dirty is 'no', but must be a bool"),
        (lambda c: c["campaign"].update(method={}), "method lacks layers, model, parallel, weight_bytes"),
        (lambda c: c.pop("steps"), "'steps'"),
        (lambda c: c["steps"].pop(), "the steps are not, for each M, one of torch and one of skinny_gemm"),
        (lambda c: c["steps"].reverse(), "the steps are not, for each M"),
        (lambda c: c["steps"].clear(), "the steps are not, for each M"),
        (lambda c: c["steps"][3].update(m=17), "the steps are not, for each M"),
        (lambda c: c["steps"][0].update(samples_us=[1.0] * 5), "5 samples cannot bound a median"),
        (lambda c: c["steps"][0].update(samples_us=[-1.0] * 9), "samples_us of torch at M = 1 are not positive"),
        (lambda c: c["steps"][0].update(seconds=1), "unexpected keyword argument 'seconds'"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(run, damage, words):
    content = json.loads(run.read_text())
    damage(content)
    run.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"a.json is not a recorded decode step: .*{words}"):
        read(run)


def test_half_a_file_is_named(run):
    run.write_text(run.read_text()[:100])
    with pytest.raises(ValueError, match="a.json is not a recorded decode step"):
        read(run)
