"""Records on disk.

Properties: what is written is read back equal; nothing is ever overwritten; what lacks the column of the process was
measured in a quiet one; every fault of a file is reported with the
file and the line, costs no other campaign anything, and is not passed over in silence.
"""

import dataclasses
import gzip
import json
import math
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skinny_gemm import records
from skinny_gemm.records import COLUMNS, Campaign, CampaignWriter, ExposedSamples, Point

FIXTURES = Path(__file__).parents[1] / "fixtures"


def campaign(name="c1", **changes):
    base = Campaign(
        id=name, device="h200", gpu="NVIDIA H200", driver="580", cuda="13.0", torch="2.11", dsl="4.8.1",
        commit="abc", dirty=False, date="2026-01-01T00:00:00+00:00", command="bench",
    )  # fmt: skip
    return dataclasses.replace(base, **changes)


def write(root, name="c1", points=(), **changes):
    writer = CampaignWriter(root / "campaigns" / name, campaign(name, **changes))
    for i, point in enumerate(points):
        writer.add(point, [10.0 + i + 0.01 * j for j in range(12)], 0.002, 1000)
    writer.save()
    return root / "campaigns" / name


POINT = Point("warp-splitk", 64, 1024, 8, "16,8,256,2,1", "chained")

points = st.builds(
    Point,
    kernel=st.sampled_from(["warp-splitk", "cublas", "stream"]),
    n=st.integers(1, 10**6),
    k=st.integers(1, 10**6),
    m=st.integers(1, 64),
    tactic=st.sampled_from(["", "16,8,256,4,2", "132x12x16384"]),
    mode=st.sampled_from(records.MODES),
    weights=st.sampled_from(records.WEIGHTS),
    process=st.sampled_from(records.PROCESSES),
)
measured = st.lists(st.floats(0.01, 1e5), min_size=6, max_size=20)


def samples_of(point, samples):
    """`samples` as a record of `point` states them: an exposed one a positive difference of two medians."""
    return ExposedSamples([sample + 1e6 for sample in samples], samples) if point.mode == "exposed" else samples


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(points, st.tuples(measured, st.floats(0, 1)), max_size=6))
def test_round_trip(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("data")
    writer = CampaignWriter(root / "campaigns" / "c1", campaign())
    for point, (samples, error) in content.items():
        writer.add(point, samples_of(point, samples), error, 123)
    writer.save()
    frame = records.load(root)
    assert tuple(frame.columns) == COLUMNS and len(frame) == len(content)
    assert [records.Record(**row).point for row in frame.to_dict("records")] == list(content)
    assert records.campaigns(root) == {"c1": campaign()}
    raw = records.store.samples("c1", root)
    for point, (samples, _) in content.items():
        assert type(raw[point]) is type(samples_of(point, samples))
        assert list(raw[point]) == pytest.approx(list(samples_of(point, samples)), abs=5e-4)


def test_a_campaign_is_never_overwritten(tmp_path):
    folder = write(tmp_path, points=[POINT])
    before = (folder / "records.csv").read_bytes()
    with pytest.raises(ValueError, match="never overwritten"):
        CampaignWriter(folder, campaign())
    assert (folder / "records.csv").read_bytes() == before


def test_a_point_is_recorded_once(tmp_path):
    writer = CampaignWriter(tmp_path / "c1", campaign())
    writer.add(POINT, [1.0] * 6, 0.001, 1)
    with pytest.raises(ValueError, match="already recorded"):
        writer.add(POINT, [1.0] * 6, 0.001, 1)


def test_resume_continues_where_it_stopped(tmp_path):
    folder = write(tmp_path, points=[POINT])
    other = dataclasses.replace(POINT, m=1)
    failed = dataclasses.replace(POINT, m=2)
    writer = CampaignWriter(folder, campaign(), resume=True)
    assert writer.done == {POINT}
    writer.add(other, [3.0] * 6, 0.001, 1)
    writer.fail(failed, "it hung")
    writer.save()
    again = CampaignWriter(folder, campaign(), resume=True)
    assert again.done == {POINT, other, failed}
    assert list(records.store.samples("c1", tmp_path)) == [POINT, other]


@pytest.mark.parametrize("name", ["2026-11-30-h200-6ddc50f-front", "2026-11-30-h200-6ddc50f-repeat-b"])
def test_a_recorded_campaign_is_written_again_byte_for_byte(tmp_path, name):
    """Read and saved by a resume, with bounds and exposed rows in it; only the column of the process comes to it."""
    recorded, folder = records.store.campaign_folder(name), tmp_path / name
    shutil.copytree(recorded, folder)
    described = (recorded / "campaign.json").read_text()
    interrupted = described.replace('"complete": true', '"complete": false')
    (folder / "campaign.json").write_text(interrupted)
    CampaignWriter(folder, records.load_campaign(folder), resume=True).save()
    assert (folder / "campaign.json").read_text() == interrupted
    header, *lines = (recorded / "records.csv").read_text().splitlines()
    again = "\n".join([f"{header},process", *(f"{line},quiet" for line in lines)])
    assert (folder / "records.csv").read_text() == f"{again}\n"
    before, after = (gzip.decompress((path / "samples.csv.gz").read_bytes()) for path in (recorded, folder))
    assert before == after
    raw = records.store.samples(name)
    for row in records.store.read_rows(recorded / "records.csv")[::20]:
        exposed = isinstance(raw[row.point], ExposedSamples)
        assert len(raw[row.point]) == row.samples and exposed == (row.mode == "exposed")
        assert records.interval_of(raw[row.point]).median == pytest.approx(row.median_us, abs=2e-3)


def test_resume_refuses_other_hardware_or_code_and_complete_campaigns(tmp_path):
    folder = write(tmp_path)
    with pytest.raises(ValueError, match="its commit is 'abc', now it is 'def'"):
        CampaignWriter(folder, campaign(commit="def"), resume=True)
    finished = write(tmp_path, "c2", complete=True)
    with pytest.raises(ValueError, match="complete"):
        CampaignWriter(finished, campaign("c2"), resume=True)
    with pytest.raises(ValueError, match="campaign.json is missing"):
        CampaignWriter(tmp_path / "absent", campaign("absent"), resume=True)


def test_samples_of_rows_that_a_crash_lost_are_ignored(tmp_path):
    folder = write(tmp_path, points=[POINT, dataclasses.replace(POINT, m=1)])
    lines = (folder / "records.csv").read_text().splitlines(keepends=True)
    (folder / "records.csv").write_text("".join(lines[:-1]))
    assert list(records.store.samples("c1", tmp_path)) == [POINT]


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("n", "x", "n is 'x', but must be an integer"),
        ("m", "0", "m is 0, but must be an integer from 1 to"),
        ("mode", "warm", "mode is 'warm', but must be one of isolated, chained, exposed"),
        ("weights", "", "weights is '', but must be one of cold, warm"),
        ("process", "idle", "process is 'idle', but must be one of quiet, busy"),
        ("kernel", "", "kernel is empty"),
        ("low_us", "99", "must be positive and ascend"),
        ("median_us", "nan", "must be positive and ascend"),
        ("high_us", "inf", "must be positive and ascend"),
        ("samples", "5", "samples is 5, but must be an integer from 6 to"),
        ("relative_error", "", "relative_error is nan"),
        ("relative_error", "-1", "relative_error is -1.0"),
        ("bytes", "0", "bytes is 0"),
        ("campaign", "c9", "campaign is 'c9', but the folder is 'c1'"),
    ],
)
def test_a_bad_cell_is_reported_with_file_and_line(tmp_path, column, value, complaint):
    folder = write(tmp_path, points=[POINT, dataclasses.replace(POINT, m=1)])
    path = folder / "records.csv"
    header, first, second = path.read_text().splitlines()
    cells = second.replace('"16,8,256,2,1"', "T").split(",")
    cells[COLUMNS.index(column)] = value
    path.write_text("\n".join([header, first, ",".join(cells)]) + "\n")
    sentence = records.problems(tmp_path)["c1"]
    assert sentence.startswith(f"{path}, line 3: ") and complaint in sentence


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("records.csv", lambda old: old.replace(b"median_us", b"median"), "records.csv, line 1: columns are"),
        ("records.csv", lambda old: old + old.splitlines()[1], "records.csv, line 3: .* is already on line 2"),
        ("records.csv", lambda old: old + b"1,2,3", "records.csv, line 3: 3 cells"),
        ("records.csv", lambda old: b"\xff\xfe", "records.csv: "),
        ("campaign.json", lambda old: b'{"id": "c1"', "campaign.json: JSONDecodeError"),
        ("campaign.json", lambda old: b'{"id": "c1"}', "campaign.json: KeyError 'failures'"),
        ("campaign.json", lambda old: b"[]", "campaign.json: TypeError"),
        ("samples.csv.gz", lambda old: b"not gzip", "samples.csv.gz: "),
        ("samples.csv.gz", lambda old: old[:20] + bytes(20), "samples.csv.gz: "),
        ("samples.csv.gz", lambda old: gzip.compress(b"samples_us\n1.0 x\n"), "samples.csv.gz: .*'x'"),
        ("samples.csv.gz", lambda old: gzip.compress(b"samples_us\n"), "samples.csv.gz: 0 lines of samples for 1"),
    ],
)
def test_damaged_files_are_reported_by_name(tmp_path, name, change, words):
    path = write(tmp_path, points=[POINT]) / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=words):
        records.store.samples("c1", tmp_path)
    if name != "samples.csv.gz":  # which only `samples` reads
        assert re.search(words, records.problems(tmp_path)["c1"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"commit": None}, "commit is None, but must be a str"),
        ({"dirty": 1}, "dirty is 1, but must be a bool"),
        ({"clocks": []}, r"clocks is \[\], but must be a Mapping"),
        ({"ceilings": {"copy_tbs": "4"}}, "ceiling copy_tbs is '4', but must be a number"),
    ],
)
def test_a_campaign_of_wrong_types_is_reported_by_name(tmp_path, changes, words):
    path = write(tmp_path, points=[POINT]) / "campaign.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert re.search(f"campaign.json: {words}", records.problems(tmp_path)["c1"])


def test_hidden_folders_are_no_campaigns(tmp_path):
    write(tmp_path, points=[POINT])
    (tmp_path / "campaigns" / ".ipynb_checkpoints").mkdir()
    assert list(records.campaigns(tmp_path)) == ["c1"] and len(records.load(tmp_path)) == 1


def test_exposed_samples_are_of_exposed_rows_only_and_equally_many(tmp_path):
    writer = CampaignWriter(tmp_path / "campaigns" / "c1", campaign())
    for mode, samples in (("exposed", [3.0] * 12), ("chained", ExposedSamples([3.0] * 6, [1.0] * 6))):
        with pytest.raises(ValueError, match="an exposed launch, and no other, has ExposedSamples"):
            writer.add(dataclasses.replace(POINT, mode=mode), samples, 0.001, 1000)
    with pytest.raises(ValueError, match="2 samples with the launch, but 1 without it"):
        ExposedSamples([1.0, 2.0], [1.0])


def test_a_bound_needs_no_tokens_and_no_error(tmp_path):
    writer = CampaignWriter(tmp_path / "campaigns" / "c1", campaign())
    writer.add(Point("stream", 64, 1024, 0, "132x6x16384", "isolated"), [2.0] * 6, math.nan, 131072)
    writer.save()
    assert math.isnan(records.load(tmp_path).relative_error[0])


def test_an_exposed_row_states_the_difference_of_two_medians(tmp_path):
    writer = CampaignWriter(tmp_path / "campaigns" / "c1", campaign())
    point = dataclasses.replace(POINT, mode="exposed")
    both, alone = [7.0 + 0.01 * i for i in range(25)], [3.0 + 0.02 * i for i in range(25)]
    row = writer.add(point, ExposedSamples(both, alone), 0.001, 1000)
    assert row.median_us == pytest.approx(7.12 - 3.24) and row.samples == 50
    assert 3.6 < row.low_us < row.median_us < row.high_us < 4.2
    with pytest.raises(ValueError, match="must be positive and ascend"):
        writer.add(dataclasses.replace(point, m=1), ExposedSamples(alone, both), 0.001, 1000)


def test_the_interval_of_an_exposed_row_may_reach_below_zero_but_of_no_other(tmp_path):
    writer = CampaignWriter(tmp_path / "campaigns" / "c1", campaign())
    noisy, alone = [3.0 + (i % 7) for i in range(25)], [2.9 + (i % 7) for i in range(25)]
    row = writer.add(dataclasses.replace(POINT, mode="exposed"), ExposedSamples(noisy, alone), 0.001, 1000)
    assert row.low_us < 0 < row.median_us
    writer.save()
    (read,) = records.rows(tmp_path)
    assert read.low_us == row.low_us
    with pytest.raises(ValueError, match="must be positive and ascend"):
        writer.add(POINT, [*[-1.0] * 12, *[2.0] * 13], 0.001, 1000)


def test_a_broken_campaign_is_named_and_costs_the_others_nothing(tmp_path):
    write(tmp_path, "c0", points=[POINT])
    path = write(tmp_path, "c1", points=[POINT]) / "records.csv"
    assert records.problems(tmp_path) == {}
    path.write_text(path.read_text().replace("chained", "changed"))
    (sentence,) = records.problems(tmp_path).values()
    assert sentence.startswith(f"{path}, line 2: mode is 'changed'")
    for read in (records.rows, records.load, records.campaigns):
        with pytest.warns(records.BrokenCampaign) as warned:
            found = read(tmp_path)
        assert [str(w.message) for w in warned] == [sentence] and len(found) == 1
    with pytest.raises(ValueError, match="line 2: mode is 'changed'"):
        records.store.samples("c1", tmp_path)
    path.unlink()
    assert records.problems(tmp_path) == {"c1": f"{path} is missing."}


def test_what_is_remembered_of_a_campaign_follows_its_files(tmp_path):
    write(tmp_path, points=[POINT])
    assert len(records.rows(tmp_path)) == 1
    writer = CampaignWriter(tmp_path / "campaigns" / "c1", campaign(), resume=True)
    writer.add(dataclasses.replace(POINT, m=1), [3.0] * 6, 0.001, 1)
    writer.save()
    assert [row.m for row in records.rows(tmp_path)] == [8, 1]


def test_campaigns_are_in_the_order_of_their_dates(tmp_path):
    write(tmp_path, "a-newer", points=[POINT], date="2026-02-01T00:00:00+00:00")
    write(tmp_path, "b-older", points=[POINT], date="2026-01-01T00:00:00+00:00")
    assert list(records.campaigns(tmp_path)) == ["b-older", "a-newer"]
    assert list(records.load(tmp_path).campaign) == ["b-older", "a-newer"]


def test_an_empty_or_absent_folder_has_no_records(tmp_path):
    assert records.load(tmp_path).empty and records.campaigns(tmp_path) == {}


def test_every_campaign_in_the_repository_is_valid_and_small():
    from skinny_gemm.catalogue import data_dir

    assert records.problems() == {}
    assert sum(f.stat().st_size for f in data_dir().rglob("*") if f.is_file()) < 20e6


def test_a_row_measured_at_a_dropped_clock_counts_only_where_there_is_no_other(tmp_path):
    other = dataclasses.replace(POINT, m=16)
    write(tmp_path, "c1", points=[POINT])
    clocks = [(8, 1700), (16, 1700), (1, 1980)]
    busy = [{"when": "during", "n": 64, "k": 1024, "m": m, "sm_mhz": mhz} for m, mhz in clocks]
    write(tmp_path, "c2", points=[POINT, other], date="2026-02-01T00:00:00+00:00", clocks={"samples": busy})
    last = {row.point: row.campaign for row in records.rows(tmp_path)}
    assert last == {POINT: "c1", other: "c2"}
    assert records.campaigns(tmp_path)["c2"].slow == {(64, 1024, 8, "quiet"), (64, 1024, 16, "quiet")}


def test_a_clock_that_dropped_in_one_process_says_nothing_of_the_other(tmp_path):
    busy = dataclasses.replace(POINT, process="busy")
    write(tmp_path, "c1", points=[POINT, busy])
    mhz = {"quiet": 1980, "busy": 1700}
    clocks = [{"when": "during", "n": 64, "k": 1024, "m": 8, "process": p, "sm_mhz": mhz[p]} for p in mhz]
    write(tmp_path, "c2", points=[POINT, busy], date="2026-02-01T00:00:00+00:00", clocks={"samples": clocks})
    assert {row.point: row.campaign for row in records.rows(tmp_path)} == {POINT: "c2", busy: "c1"}


def test_what_lacks_the_column_was_measured_in_a_quiet_process(tmp_path):
    """As campaigns did before the process was part of the method: rows and failures."""
    failed = dataclasses.replace(POINT, m=1)
    failure = {name: value for name, value in vars(failed).items() if name != "process"} | {"reason": "it hung"}
    path = write(tmp_path, points=[POINT], failures=(failure,)) / "records.csv"
    header, line = path.read_text().splitlines()
    path.write_text("\n".join([header.removesuffix(",process"), line.removesuffix(",quiet")]) + "\n")
    writer = CampaignWriter(path.parent, campaign(), resume=True)
    assert writer.done == {POINT, failed} and POINT.process == failed.process == "quiet"
    assert list(records.load(tmp_path).process) == ["quiet"]
    assert list(records.store.samples("c1", tmp_path)) == [POINT]
    path.write_text(path.read_text() + line + "\n")
    assert records.problems(tmp_path)["c1"].endswith("line 3: 16 cells, but there are 15 columns.")


def test_a_resume_tells_the_processes_apart(tmp_path):
    busy = dataclasses.replace(POINT, process="busy")
    writer = CampaignWriter(write(tmp_path, points=[POINT]), campaign(), resume=True)
    assert busy not in writer.done
    writer.fail(busy, "it hung")
    writer.save()
    assert CampaignWriter(writer.folder, campaign(), resume=True).done == {POINT, busy}


@pytest.mark.parametrize(
    "changes", [{"failures": [5]}, {"failures": [{"kernel": "warp-splitk"}]}, {"clocks": {"samples": [5]}}]
)
def test_a_malformed_campaign_is_named(tmp_path, changes):
    path = write(tmp_path, points=[POINT]) / "campaign.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    (sentence,) = records.problems(tmp_path).values()
    assert sentence.startswith(str(path))


def test_json_nested_too_deep_costs_one_campaign_only(tmp_path):
    write(tmp_path, "c1", points=[POINT])
    path = write(tmp_path, "c2", points=[POINT]) / "campaign.json"
    path.write_text("[" * 100_000)
    with pytest.warns(records.BrokenCampaign):
        assert list(records.campaigns(tmp_path)) == ["c1"]


def test_point_reads_as_a_sentence():
    assert str(Point("warp-splitk", 64, 128, 8, "16,8,128,1,1")) == (
        "warp-splitk [16,8,128,1,1] 64x128 M=8 chained cold quiet"
    )
