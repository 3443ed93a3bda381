"""The command line, as its users run it: JSON with the promised keys; bad input is one line on stderr and status 2."""

import json
import shlex
import subprocess
import sys

import pytest

from skinny_gemm.__main__ import main


@pytest.fixture
def call(capsys):
    """`call("shapes --json") -> (status, stdout, stderr)`, in this process."""

    def call(line):
        status = main(line.split())
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tactics nope --m 1 --n 64 --k 512", "unknown kernel 'nope': known are warp-splitk"),
        ("tactics warp-splitk --m 1 --n 64", "Missing option '--k'"),
        ("tactics warp-splitk --m one --n 64 --k 512", "'one' is not a valid integer"),
        ("tactics warp-splitk --m 0 --n 64 --k 512", "m is 0"),
        ("tactics warp-splitk --m 33 --n 64 --k 512", "1 to 32 tokens"),
        ("tactics warp-splitk --m 1 --n 60 --k 512", "N = 60 is not a multiple of 16"),
        ("tactics warp-splitk --m 1 --n 64 --k 512 --device h900", "h900"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --tactic 16,8,128", "16,8,128"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --tactic 16,8,128,9,1", "stages is 9"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --backend tpu", "backend is 'tpu'"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --backend interpreter --schedule late", "schedule is 'late'"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --backend interpreter --seeds 0", "seeds is 0"),
        ("inspect warp-splitk --n 64 --k 512 --arch sm_80", "arch is 'sm_80'"),
        ("bench warp-splitk --n 64", "--n and --k belong together"),
        ("bench warp-splitk --shapes 64x", "shape '64x' is not written NxK"),
        ("bench warp-splitk --n 64 --k 512 --m 1,two", "'1,two'"),
        ("bench warp-splitk --parallel TP3", "known are"),
        ("bench nope --n 64 --k 512", "unknown kernel 'nope'"),
        ("bench warp-splitk --n 64 --k 512 --modes slow", "mode is 'slow'"),
        ("bench warp-splitk --n 64 --k 512 --peers mkl", "mkl"),
        ("bench warp-splitk --n 64 --k 512 --m 0", "m is 0"),
        ("figure pie warp-splitk --m 8 --n 64 --k 512", "known are bandwidth, roofline, smem and all"),
        ("frobnicate", "No such command 'frobnicate'. Known are doctor, shapes, tactics, verify"),
        ("tactics warp-splitk --m 1 --n 99999999999984 --k 512", "N = 99999999999984 is more than 2147483632"),
        ("inspect warp-splitk --n 99999999999984 --k 512", "N = 99999999999984 is more than 2147483632"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --backend interpreter --seed -1", "seed is -1"),
        ("bench warp-splitk --n 64 --k 512 --seconds nan", "nan seconds, but must be positive"),
        ("figure smem warp-splitk --m 8 --n 64 --k 512 --out /dev/null", "/dev/null: File exists"),
    ],
)
def test_bad_input_is_one_line_and_status_2(call, line, words):
    status, out, err = call(line)
    assert status == 2 and not out
    assert err.startswith("error: ") and err.count("\n") == 1 and words in err


def test_a_process_exits_with_2_and_no_traceback():
    run = subprocess.run(
        [sys.executable, "-m", "skinny_gemm", "shapes", "--bogus"], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 2 and run.stderr.startswith("error: ") and run.stderr.count("\n") == 1


def test_shapes_say_which_kernels_take_them_or_why_not(call):
    status, out, _ = call("shapes --json")
    rows = json.loads(out)
    assert status == 0 and {"model", "parallel", "projection", "n", "k", "kernels"} <= rows[0].keys()
    verdicts = {(row["n"], row["k"]): row["kernels"]["warp-splitk"] for row in rows}
    assert verdicts[3584, 7168] is True and "2880" in verdicts[128, 2880]


def test_tactics_come_with_footprints_the_default_first(call):
    status, out, _ = call("tactics warp-splitk --m 8 --n 3584 --k 7168 --json")
    rows = json.loads(out)
    assert status == 0 and rows[0]["default"] and not any(row["default"] for row in rows[1:])
    assert {"tactic", "output_tile", "smem_bytes", "ctas", "ctas_per_sm", "waves"} <= rows[0].keys()


def test_verify_reports_what_it_did(call):
    line = "verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter"
    status, out, _ = call(f"{line} --schedule adversarial --seeds 2 --json")
    report = json.loads(out)
    assert status == 0 and report["passed"] and report["bitwise_equal"] and report["runs"] == 2
    assert 0 < report["relative_error"] < 4e-3 and report["backend"] == "interpreter"
    assert report["tactic"] == "16,8,128,2,1" and report["seconds"] >= report["execution_seconds"] > 0


def test_verify_fails_with_status_1_when_the_result_is_wrong(call, monkeypatch):
    from skinny_gemm.runtime import verify

    monkeypatch.setattr(verify, "TOLERANCE", 1e-9)
    status, out, _ = call("verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter")
    assert status == 1 and out.startswith("FAILED")


def test_verify_fails_with_status_1_when_the_interpreter_finds_a_fault(call, monkeypatch):
    from skinny_gemm import interpreter

    def fault(*_, **__):
        raise interpreter.RaceError("Race on shared address 0.")

    monkeypatch.setattr(interpreter, "run", fault)
    line = "verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter"
    status, out, _ = call(line)
    assert status == 1 and out.startswith("FAILED") and "Race on shared address 0." in out
    status, out, _ = call(f"{line} --json")
    assert status == 1 and json.loads(out)["passed"] is False


def test_lack_of_memory_is_one_line_and_status_2(call, monkeypatch):
    from skinny_gemm.runtime import verify

    def full(*_):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(verify, "random_operands", full)
    status, out, err = call("verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter")
    assert (status, out, err) == (2, "", "error: Unable to allocate 1 TiB\n")


@pytest.mark.parametrize(("redirection", "status", "words"), [(">&-", 0, ""), (">/dev/full", 2, "No space left")])
def test_an_output_that_cannot_be_written_ends_in_words(redirection, status, words):
    command = f"{shlex.quote(sys.executable)} -m skinny_gemm shapes {redirection}"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert run.returncode == status and words in run.stderr and run.stderr.count("\n") == bool(words)


def test_progress_is_silent_where_stderr_is_no_terminal(capsys):
    from skinny_gemm.__main__ import _progress

    with _progress("interpreting") as report:
        report(0.5)
    assert capsys.readouterr() == ("", "")


def test_inspect_reports_resources_and_opcodes(call):
    status, out, _ = call("inspect warp-splitk --n 64 --k 512 --tactic 16,8,128,2,1 --json")
    report = json.loads(out)
    assert status == 0 and report["spill_bytes"] == 0 and 16 <= report["registers"] <= 255
    assert report["smem_bytes"] == 14368
    assert report["sass"]["HMMA"] == 512 // 4 // 16, "one per k16 phase of a warp's quarter of K"
    assert report["sass"]["LDGSTS"] > 0


def test_figure_writes_every_format_with_provenance(call, tmp_path):
    status, out, _ = call(f"figure smem warp-splitk --m 8 --n 3584 --k 7168 --out {tmp_path} --json")
    files = json.loads(out)["files"]
    assert status == 0 and {path.rpartition(".")[2] for path in files} == {"svg", "pdf", "png", "csv", "json"}


def test_doctor_names_the_backend_and_the_versions(call):
    status, out, _ = call("doctor --json")
    report = json.loads(out)
    assert status == 0 and report["backend"] in ("cuda", "interpreter")
    assert report["packages"]["nvidia-cutlass-dsl"] and report["catalogue"]
