"""`best` and `review` on the command line: the promised keys, the words, and one sentence with status 2."""

import json

import pytest

from skinny_gemm import records
from skinny_gemm.figures import export
from skinny_gemm.records import best as tables
from skinny_gemm.report import pack
from skinny_gemm.tactics import KERNELS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("best --n 3584 --k 7168 --m 7", "No record of our kernels for N = 3584, K = 7168, M = 7, chained"),
        ("best --n 3584 --k 7168 --m 8 --device b200", "cold weights on b200"),
        ("best --n 3584 --k 7168 --m 8 --device h900", "h900"),
        ("best --n 3584 --k 7168 --m 8 --mode slow", "mode is 'slow', but must be one of isolated, chained, exposed"),
        ("best --n 3584 --k 7168 --m 8 --kernel cublas", f"unknown kernel 'cublas': known are {', '.join(KERNELS)}"),
        ("best --n 0 --k 7168 --m 8", "n is 0"),
        ("best --n 3584 --k 7168", "Missing option '--m'"),
        ("review --n 3584 --k 7168 --m 8", "Missing option '--out'"),
        ("review --n 3584 --k 7168 --m 8 --candidates x --out review", "'x' is not written KERNEL:TACTIC"),
        ("review --n 3584 --k 7168 --m 8 --candidates warp-splitk:16,8,256,4,1 x:1 --out r", "unknown kernel 'x'"),
        ("review --n 24 --k 100 --m 8 --out review", "No kernel takes 24x100 at M = 8"),
        ("review --n 3584 --k 7168 --m 8 --mode slow --out review", "mode is 'slow'"),
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
    ]  # fmt: skip
    rows = [row for row in tables.weight_rows(3584, 7168, "chained", "h200") if row.m == 8]
    row = min((row for row in rows if row.kernel in ("warp-splitk", "ws-gemm")), key=lambda row: row.median_us)
    assert (found["kernel"], found["tactic"], found["microseconds"]) == (row.kernel, row.tactic, row.median_us)
    assert found["interval"] == [row.low_us, row.high_us] and found["campaign"] == row.campaign
    assert found["ratio_to_bound"] == pytest.approx(row.median_us / found["bound"], abs=1e-3)
    assert set(found["peers"]) == {row.kernel for row in rows} & set(records.PEERS)
    status, out, _ = call("best --n 3584 --k 7168 --m 8")
    said = " ".join(out.split())
    assert status == 0 and f"take {row.kernel} {row.tactic}: {row.median_us:.3f} us" in said
    assert (
        f"{found['microseconds'] / found['bound']:.3f} times the measured bound" in said
        and "FASTER than flashinfer" in said
    )


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
