"""`best` and `review` on the command line: the promised keys, the words, and one sentence with status 2.

What answers from records takes the process, and says which it took.
"""

import json
from pathlib import Path

import pytest

from skinny_gemm import catalogue, records
from skinny_gemm.figures import export
from skinny_gemm.records import best as tables
from skinny_gemm.report import pack


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("best --n 3584 --k 7168 --m 7", "No record of our kernels for N = 3584, K = 7168, M = 7, chained"),
        ("best --n 3584 --k 7168 --m 8 --device b200", "cold weights on b200"),
        ("best --n 3584 --k 7168 --m 8 --device h900", "h900"),
        ("best --n 3584 --k 7168 --m 8 --mode slow", "mode is 'slow', but must be one of isolated, chained, exposed"),
        ("best --n 3584 --k 7168 --m 8 --kernel cublas", "unknown kernel 'cublas': known are warp-splitk, "),
        ("best --n 3584 --k 7168 --m 8 --process idle", "process is 'idle', but must be one of quiet, busy"),
        ("best --n 0 --k 7168 --m 8", "n is 0"),
        ("best --n 3584 --k 7168", "Missing option '--m'"),
        ("review --n 3584 --k 7168 --m 8", "Missing option '--out'"),
        ("review --n 3584 --k 7168 --m 8 --candidates x --out review", "'x' is not written KERNEL:TACTIC"),
        ("review --n 3584 --k 7168 --m 8 --candidates warp-splitk:16,8,256,4,1 x:1 --out r", "unknown kernel 'x'"),
        ("review --n 24 --k 100 --m 8 --out review", "No kernel takes 24x100 at M = 8"),
        ("review --n 3584 --k 7168 --m 8 --mode slow --out review", "mode is 'slow'"),
        ("review --n 3584 --k 7168 --m 8 --process idle --out review", "process is 'idle'"),
        ("figure all warp-splitk --n 3584 --k 7168 --m 8 --process idle --out review", "process is 'idle'"),
        ("standing --process idle", "process is 'idle', but must be one of quiet, busy"),
        ("summary 2026-11-30-h200-6ddc50f-front --process idle", "process is 'idle', but must be one of quiet, busy"),
        ("bench warp-splitk --n 64 --k 512 --processes idle", "process is 'idle', but must be one of quiet, busy"),
        ("review --n 3584 --k 7168 --m 8 --out /dev/null", "/dev/null is a file, but the pack is a folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(call, line, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, out, err = call(line)
    assert status == 2 and not out
    assert err.startswith("error: ") and err.count("\n") == 1 and words in err
    assert list(tmp_path.iterdir()) == []


def test_best_answers_from_the_records(call):
    status, out, _ = call("best --n 3584 --k 7168 --m 8 --json")
    found = json.loads(out)
    assert status == 0 and list(found) == [
        "kernel", "tactic", "microseconds", "interval", "bound", "ratio_to_bound", "peers", "campaign", "commit",
        "process",
    ]  # fmt: skip
    rows = [row for row in tables.weight_rows(3584, 7168, "chained", "h200") if row.m == 8]
    rows = tables.measured_in(found["process"], rows)
    row = min((row for row in rows if row.is_ours), key=lambda row: row.median_us)
    assert (found["kernel"], found["tactic"], found["microseconds"]) == (row.kernel, row.tactic, row.median_us)
    assert found["interval"] == [row.low_us, row.high_us] and found["campaign"] == row.campaign
    assert found["ratio_to_bound"] == pytest.approx(row.median_us / found["bound"], abs=1e-3)
    assert set(found["peers"]) == {row.kernel for row in rows} & set(records.PEERS)
    for peer, told in found["peers"].items():
        rival = min((row for row in rows if row.kernel == peer), key=lambda row: row.median_us)
        assert told == {"tactic": rival.tactic, "microseconds": rival.median_us}
    status, out, _ = call("best --n 3584 --k 7168 --m 8")
    said = " ".join(out.split())
    assert status == 0 and f"take {row.kernel} {row.tactic}: {row.median_us:.3f} us" in said
    assert f"{found['microseconds'] / found['bound']:.3f} times the measured bound" in said
    names = [f"{peer} {told['tactic']}".rstrip() for peer, told in found["peers"].items()]
    assert "FASTER than " in said and all(f"{name} (" in said for name in names)


def test_best_of_one_kernel_and_mode(call):
    front = "best --n 560 --k 7168 --m 8 --json"
    assert json.loads(call(front)[1])["kernel"] == "ws-gemm"
    assert json.loads(call(f"{front} --kernel warp-splitk")[1])["kernel"] == "warp-splitk"
    exposed = json.loads(call(f"{front} --mode exposed")[1])
    assert exposed["bound"] is exposed["ratio_to_bound"] is None and exposed["microseconds"] > 0


def test_review_writes_a_pack_and_says_where(call, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "render", lambda *_: b"picture")
    monkeypatch.setattr(pack, "pdf", lambda *_: b"%PDF")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pack.Review, "compiled", lambda review, report: review)
    line = "review --n 560 --k 7168 --m 8 --candidates warp-splitk:16,8,256,16,2 ws-gemm:7,2,8,3,8,1 --out new/pack"
    status, out, _ = call(f"{line} --json")
    told = json.loads(out)
    assert status == 0 and told["recommended"] == "ws-gemm:7,2,8,3,8,1" and told["folder"].endswith("new/pack")
    assert all((tmp_path / path).is_file() for path in told["files"]) and told["files"][0].endswith("review.pdf")
    manifest = json.loads((tmp_path / "new" / "pack" / "review.json").read_text())
    assert list(manifest["candidates"].values()) == ["warp-splitk:16,8,256,16,2", "ws-gemm:7,2,8,3,8,1"]
    status, out, _ = call(line)
    assert status == 0 and out.startswith("wrote ") and "B  ws-gemm 7,2,8,3,8,1: " in out and "FASTER than" in out


@pytest.fixture
def synthetic(tmp_path, monkeypatch):
    """A data folder with the campaigns of tests/fixtures: of 2304x1536 a busy process was measured too."""
    fixtures = Path(__file__).parents[1] / "fixtures"
    for path in (*(catalogue.data_dir() / name for name in ("devices.json", "shapes.csv")), fixtures / "campaigns"):
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))


@pytest.mark.parametrize("asked", ["", " --process quiet", " --process busy"])
def test_answers_are_of_the_process_asked_for(call, synthetic, asked, tmp_path):
    process, stages = ("quiet", 6) if "quiet" in asked else ("busy", 4)
    problem = "--n 2304 --k 1536 --m 8" + asked
    found = json.loads(call(f"best {problem} --json")[1])
    assert (found["process"], found["tactic"]) == (process, f"32,8,256,{stages},2")
    assert f"in a {process} process, take" in " ".join(call(f"best {problem}")[1].split())
    status, out, _ = call(f"figure bandwidth warp-splitk {problem} --out {tmp_path} --json")
    facts = json.loads(next(Path(path) for path in json.loads(out)["files"] if path.endswith(".json")).read_text())
    assert status == 0 and facts.get("process", "quiet") == process
    lines = call("summary synthetic-states" + asked)[1].splitlines()
    told = {line.split()[2] for line in lines if line.strip().startswith("2304x1536")}
    assert told == ({process} if asked else set(records.PROCESSES))
    *_, states = call("standing" + asked)[1].splitlines()
    busy = {"": 2, " --process quiet": 0, " --process busy": 2}[asked]
    assert states.startswith(f"{busy} of these ") and "were measured in a busy process" in states


def test_review_is_of_the_process_asked_for(call, synthetic, monkeypatch, tmp_path):
    monkeypatch.setattr(export, "render", lambda *_: b"picture")
    monkeypatch.setattr(pack, "pdf", lambda *_: b"%PDF")
    monkeypatch.setattr(pack.Review, "compiled", lambda review, report: review)
    for asked, process in (("", "busy"), (" --process quiet", "quiet")):
        status, _, _ = call(f"review --n 2304 --k 1536 --m 8 --out {tmp_path}/{process}{asked}")
        script = (tmp_path / process / "reproduce.sh").read_text()
        assert status == 0 and f" --process {process} " in script
        assert call(script.splitlines()[-1].removeprefix("python -m skinny_gemm ") + f" --out {tmp_path}/again")[0] == 0
        again = [(folder / "review.json").read_text() for folder in (tmp_path / process, tmp_path / "again")]
        assert again[0] == again[1]
