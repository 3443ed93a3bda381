"""The command line, as its users run it: JSON with the promised keys; bad input is one line on stderr and status 2."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from skinny_gemm import records
from skinny_gemm.problem import FrontProblem
from skinny_gemm.tactics import KERNELS, tactic_type


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tactics nope --m 1 --n 64 --k 512", "unknown kernel 'nope': known are warp-splitk, balanced-splitk, wg"),
        ("tactics ws-gemm --m 65 --n 64 --k 512", "1 to 64 tokens"),
        ("tactics ws-gemm --m 1 --n 64 --k 500", "K = 500 is not a multiple of 32"),
        ("tactics warp-splitk --m 1 --n 64 --k 512 --split 16", "which is nothing to warp-splitk"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --valid 8", "which is nothing to warp-splitk"),
        ("inspect warp-splitk --n 64 --k 512 --split 16", "which is nothing to warp-splitk"),
        ("bench warp-splitk --n 64 --k 512 --split 16", "which is nothing to warp-splitk"),
        ("figure all warp-splitk --m 8 --n 64 --k 512 --split 16", "which is nothing to warp-splitk"),
        ("bench ws-gemm --shapes 64x512 --split 16", "give its --n and --k"),
        ("tactics ws-gemm --m 1 --n 64 --k 512 --split 16 --valid 20", "split is 16 and valid 20"),
        ("tactics ws-gemm --m 1 --n 64 --k 512 --valid 7", "valid is 7; it must be a multiple of 4"),
        ("verify ws-gemm --m 1 --n 64 --k 512 --tactic 1,1,1,0,8,1", "token groups need a cluster"),
        ("verify front --m 1 --split 16", "do not belong to front"),
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
        ("bench decode", "Missing option '--model'"),
        ("bench decode --model 'Dense 9B'", "model is 'Dense 9B', but must be one of Dense 8B, Kimi K3"),
        ("bench decode --model 'Kimi K3' --peers none --n 64", "--peers, --n belongs to kernels, not to decode"),
        ("bench decode --model 'Kimi K3' --m 1,two", "'1,two'"),
        ("bench decode --model 'Kimi K3' --m 8,65", "m is 65, but must be an integer from 1 to 64"),
        ("decode nothing", "There is no decode step 'nothing': recorded are "),
        ("bench warp-splitk --n 64 --k 512 --modes slow", "mode is 'slow'"),
        ("bench warp-splitk --n 64 --k 512 --peers mkl", "mkl"),
        ("bench warp-splitk --n 64 --k 512 --m 0", "m is 0"),
        ("bench warp-splitk --n 64 --k 512 --most 0", "most is 0"),
        ("bench warp-splitk --n 64 --k 512 --compile-only h900", "h900"),
        (
            "figure pie warp-splitk --m 8 --n 64 --k 512",
            "known are bandwidth, roofline, tactic-fields, sensitivity, smem and all",
        ),
        ("frobnicate", "No such command 'frobnicate'. Known are doctor, shapes, tactics, verify"),
        ("tactics warp-splitk --m 1 --n 99999999999984 --k 512", "N = 99999999999984 is more than 2147483632"),
        ("inspect warp-splitk --n 99999999999984 --k 512", "N = 99999999999984 is more than 2147483632"),
        ("verify warp-splitk --m 1 --n 64 --k 512 --backend interpreter --seed -1", "seed is -1"),
        ("bench warp-splitk --n 64 --k 512 --seconds nan", "nan seconds, but must be positive"),
        ("bench warp-splitk --n 64 --k 512 --limit 0", "The limit for a point is 0.0 seconds"),
        ("bench ws-gemm --n 560 --k 7168 --m 8 --tactics all", "'all'"),
        ("bench ws-gemm --n 560 --k 7168 --m 8 --tactics full", "ws-gemm has 9,564 tactics for 560x7168 at M = 8"),
        ("compare nowhere nowhere", "There is no campaign 'nowhere': recorded are 20"),
        ("compare . .", "campaign.json is missing"),
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
    verdicts = {(row["n"], row["k"]): row["kernels"] for row in rows}
    assert verdicts[3584, 7168] == dict.fromkeys(KERNELS, True)
    assert "2880" in verdicts[128, 2880]["warp-splitk"] and verdicts[128, 2880]["ws-gemm"] is True


def test_tactics_come_with_footprints_the_default_first(call):
    status, out, _ = call("tactics warp-splitk --m 8 --n 3584 --k 7168 --json")
    rows = json.loads(out)
    assert status == 0 and rows[0]["default"] and not any(row["default"] for row in rows[1:])
    assert {"tactic", "output_tile", "smem_bytes", "ctas", "ctas_per_sm", "waves"} <= rows[0].keys()


def test_text_shows_the_first_of_thousands_and_says_how_many_more(call):
    status, out, _ = call("tactics ws-gemm --m 8 --n 560 --k 7168")
    first, *rows, last = out.splitlines()
    legal = len(json.loads(call("tactics ws-gemm --m 8 --n 560 --k 7168 --json")[1]))
    assert status == 0 and first.startswith(f"{legal:,} legal tactics (rt,kq,ks,staged,tg,ch,trigger; ")
    assert last == f"and {legal - len(rows):,} more: --json lists all" and len(rows) < legal
    assert "more" not in call("tactics warp-splitk --m 8 --n 3584 --k 7168")[1].splitlines()[-1]


def test_a_cache_is_filled_for_another_machine_and_what_cannot_be_is_said(call, tmp_path, monkeypatch):
    """Here, too, a later look compiles nothing: the same binary serves every M and mode."""
    monkeypatch.setenv("SKINNY_GEMM_CACHE", str(tmp_path))
    line = "bench warp-splitk --n 64 --k 256 --m 1,8,64 --peers none --compile-only b200 --json"
    status, out, _ = call(line)
    (entry,) = tmp_path.iterdir()
    assert status == 0 and json.loads(out) == {
        "cache": str(tmp_path), "failed": [],
        "left_out": ["64x256 M=64: 64x256 at M = 64: M is 64, but this kernel takes 1 to 32 tokens"],
    }  # fmt: skip
    made = entry.stat().st_mtime_ns
    said = call(line.removesuffix(" --json"))[1].splitlines()
    assert said[0] == f"compiled into {tmp_path}" and said[1].startswith("left out: 64x256 M=64: ")
    assert [file.stat().st_mtime_ns for file in tmp_path.iterdir()] == [made]


def test_verify_reports_what_it_did(call):
    line = "verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter"
    status, out, _ = call(f"{line} --schedule adversarial --seeds 2 --json")
    report = json.loads(out)
    assert status == 0 and report["passed"] and report["bitwise_equal"] and report["runs"] == 2
    assert 0 < report["relative_error"]["out"] < report["limit"]["out"] == 4e-3 and report["backend"] == "interpreter"
    assert report["tactic"] == "16,8,128,2,1" and report["seconds"] >= report["execution_seconds"] > 0


def test_verify_of_a_front_reports_both_results(call):
    line = "verify ws-gemm --m 3 --n 64 --k 512 --split 16 --valid 8 --tactic 1,2,2,0,0,1 --backend interpreter"
    status, out, _ = call(f"{line} --json")
    report = json.loads(out)
    assert status == 0 and report["passed"] and report["stray_writes"] == 0
    assert 1e-3 < report["relative_error"]["latent"] < report["limit"]["latent"] == 4e-3
    assert 0 < report["relative_error"]["logits"] < report["limit"]["logits"] == 1e-5
    said = call(line)[1]
    assert "relative error of latent" in said and "(limit 4e-03), of logits" in said and "(limit 1e-05)" in said


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter", "out"),
        ("verify ws-gemm --m 3 --n 64 --k 512 --valid 8 --tactic 1,2,2,0,0,1 --backend interpreter", "logits"),
    ],
)
def test_verify_fails_with_status_1_when_a_result_is_wrong(call, monkeypatch, line, name):
    kind = tactic_type(line.split()[1])
    results = kind.results

    def strict(problem):
        return [replace(r, tolerance=1e-12) if r.name == name else r for r in results(problem)]

    monkeypatch.setattr(kind, "results", staticmethod(strict))
    status, out, _ = call(line)
    assert status == 1 and out.startswith("FAILED") and "(limit 1e-12)" in out


def test_verify_fails_with_status_1_when_something_else_is_written(call, monkeypatch):
    """As if the kernel had written a word that belongs to no result: another rank's in the mailbox."""
    from skinny_gemm import interpreter

    front, run = FrontProblem(3, 64, 512, 16, 8, 96, 16), interpreter.run
    monkeypatch.setattr("skinny_gemm.problem.FrontProblem.of", lambda problem: front)

    def sloppy(compiled, arguments, *more, **others):
        result = run(compiled, arguments, *more, **others)
        arguments.values[-1][1, 60] = 0  # latent of rank 1
        return result

    line = "verify ws-gemm --m 3 --n 64 --k 512 --tactic 1,2,2,0,0,1 --backend interpreter"
    assert call(line)[0] == 0
    monkeypatch.setattr(interpreter, "run", sloppy)
    status, out, _ = call(line)
    assert status == 1 and out.startswith("FAILED") and "1 words WRITTEN outside the results" in out


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
    from skinny_gemm.runtime import trials

    def full(*_):
        raise MemoryError("Unable to allocate 1 TiB")

    monkeypatch.setattr(trials, "random_operands", full)
    status, out, err = call("verify warp-splitk --m 3 --n 64 --k 512 --tactic 16,8,128,2,1 --backend interpreter")
    assert (status, out, err) == (2, "", "error: Unable to allocate 1 TiB\n")


@pytest.mark.parametrize(("redirection", "status", "words"), [(">&-", 0, ""), (">/dev/full", 2, "No space left")])
def test_an_output_that_cannot_be_written_ends_in_words(redirection, status, words):
    command = f"{shlex.quote(sys.executable)} -m skinny_gemm shapes {redirection}"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert run.returncode == status and words in run.stderr and run.stderr.count("\n") == bool(words)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_is_no_error(unbuffered):
    command = [sys.executable, "-m", "skinny_gemm", "shapes", "--json"]
    read, write = os.pipe()
    os.close(read)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=environment, timeout=60)
    os.close(write)
    assert (run.returncode, run.stderr) == (0, b"")


def test_an_interrupt_is_one_word_even_while_modules_load():
    """Whenever it comes: the first is sent as soon as the command line's own first line has run."""
    started = "import os, sys; sys.argv[0] = '-m'; os.write(1, b'.'); import runpy; "
    command = [sys.executable, "-c", started + "runpy.run_module('skinny_gemm', run_name='__main__', alter_sys=True)"]
    for delay in (0.05, 0.1, 0.2):  # the command takes 0.8 s
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        line = [*command, "inspect", "ws-gemm", "--n", "560", "--k", "7168", "--m", "8"]
        process = subprocess.Popen(line, **pipes, preexec_fn=default_interrupts)
        assert process.stdout.read(1) == b"."
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (130, b"\ninterrupted\n"), delay


def default_interrupts():
    """For a process to come: a shell's background ignores interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_progress_is_silent_where_stderr_is_no_terminal(capsys):
    from skinny_gemm.cli.progress import progress

    with progress() as report:
        report("interpreting", 0.5, 1.0)
    assert capsys.readouterr() == ("", "")


def test_inspect_reports_resources_and_opcodes(call):
    status, out, _ = call("inspect warp-splitk --n 64 --k 512 --tactic 16,8,128,2,1 --json")
    report = json.loads(out)
    assert status == 0 and report["spill_bytes"] == 0 and 16 <= report["registers"] <= 255
    assert report["smem_bytes"] == 14368
    assert report["sass"]["HMMA"] == 512 // 4 // 16, "one per k16 phase of a warp's quarter of K"
    assert report["sass"]["LDGSTS"] > 0


def test_inspect_of_a_kernel_with_a_static_m(call):
    """Eight tokens are one tile and nine are two: twice the mma."""
    line = "inspect ws-gemm --n 64 --k 512 --valid 8 --tactic 1,2,2,0,0,1 --json --m"
    one, two = (json.loads(call(f"{line} {m}")[1]) for m in (8, 9))
    assert one["compiled_for"]["m"] == 8 and one["compiled_for"]["split"] == 16 and one["cluster"] == 2
    assert (one["sass"]["HMMA"], two["sass"]["HMMA"]) == (512 // 4 // 16, 2 * 512 // 4 // 16)


def test_figures_of_neighbours_come_from_the_shell(call, tmp_path):
    for name in ("tactic-fields", "sensitivity"):
        command = f"figure {name} warp-splitk --m 8 --n 3584 --k 7168 --device b200 --out {tmp_path} --json"
        status, out, _ = call(command)
        files = [Path(path) for path in json.loads(out)["files"]]
        assert status == 0 and {path.stem for path in files} == {f"warp-splitk-3584x7168-m8-{name}"}
        facts = json.loads(next(path for path in files if path.suffix == ".json").read_text())
        assert facts["source"] == "model" and "fitted to" in facts["model"]


def test_figure_writes_every_format_with_provenance(call, tmp_path):
    status, out, _ = call(f"figure smem warp-splitk --m 8 --n 3584 --k 7168 --out {tmp_path} --json")
    files = json.loads(out)["files"]
    assert status == 0 and {path.rpartition(".")[2] for path in files} == {"svg", "pdf", "png", "csv", "json"}


def test_doctor_names_the_backend_and_the_versions(call):
    status, out, _ = call("doctor --json")
    report = json.loads(out)
    assert status == 0 and report["backend"] in ("cuda", "interpreter")
    assert report["packages"]["nvidia-cutlass-dsl"] and report["catalogue"]


def test_a_broken_campaign_is_one_line_and_not_in_the_way(call, tmp_path, monkeypatch):
    data = Path(__file__).parents[2] / "data"
    for name in ("devices.json", "shapes.csv"):
        shutil.copy(data / name, tmp_path)
    shutil.copytree(
        data.parent / "tests" / "fixtures" / "campaigns" / "synthetic", tmp_path / "campaigns" / "synthetic"
    )
    broken = shutil.copytree(tmp_path / "campaigns" / "synthetic", tmp_path / "campaigns" / "torn")
    (broken / "campaign.json").write_text("{")
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    status, out, err = call("best --n 3584 --k 7168 --m 8 --json")
    assert status == 0 and json.loads(out)["campaign"] == "synthetic"
    (line,) = set(err.splitlines())
    assert line.startswith(f"warning: {broken}/campaign.json: JSONDecodeError")
    status, out, err = call("doctor --json")
    assert status == 0 and err == ""
    told = json.loads(out)["campaigns"]
    assert told["torn"].startswith(f"unreadable: {broken}/campaign.json") and "SYNTHETIC" in told["synthetic"]


def test_compare_answers_in_json_and_in_text(call):
    campaign = shlex.quote(str(Path(__file__).parents[1] / "fixtures" / "campaigns" / "synthetic"))
    status, out, _ = call(f"compare {campaign} {campaign} --json")
    found = json.loads(out)
    assert status == 0 and found["counts"]["FASTER"] == found["counts"]["SLOWER"] == 0
    assert found["common"] == len(found["points"]) == sum(found["counts"].values()) > 100
    status, out, _ = call(f"compare {campaign} {campaign} --tolerance 0.1")
    assert status == 0 and out.splitlines()[-1].split() == [
        "all",
        str(found["common"]),
        "0.0%",
        "0.0%",
        "100.0%",
        "0.0%",
    ]


SYNTHETIC = Path(__file__).parents[1] / "fixtures" / "campaigns" / "synthetic"


def test_a_summary_names_the_machine_and_every_problem(call):
    status, out, _ = call(f"summary {shlex.quote(str(SYNTHETIC))}")
    lines = out.splitlines()
    assert status == 0 and lines[0].startswith("synthetic: SYNTHETIC") and lines[1].startswith("ceilings: {")
    problems = {(r.n, r.k, r.m, r.mode) for r in records.store.read_rows(SYNTHETIC / "records.csv") if r.is_ours}
    assert sum(line.split()[4] == "warp-splitk" for line in lines[3:-1]) == len(problems) > 10
    told = json.loads(call(f"summary {shlex.quote(str(SYNTHETIC))} --json")[1])
    assert told["lines"] == lines and told["campaign"]["id"] == "synthetic"


def test_a_decode_step_is_recorded_and_shown(call, tmp_path, monkeypatch):
    """With what `bench.decode` measures replaced: no GPU is here."""
    from skinny_gemm.bench import decode
    from skinny_gemm.records.decode import Step, write

    campaign = records.load_campaign(SYNTHETIC)
    method = {"model": "Kimi K3", "parallel": "TP8", "layers": 28, "weight_bytes": 4 << 30}
    asked = []

    def bench(name, ms, out, progress):
        asked.append((name, ms, out))
        times = (("torch", 5000.0), ("skinny_gemm", 4000.0))
        steps = [Step(m, variant, [us] * 6, 0.01, 0.01) for m in ms for variant, us in times]
        return write(out, replace(campaign, id=out.stem, method=method), steps)

    monkeypatch.setattr(decode, "bench", bench)
    path = tmp_path / "a.json"
    status, out, _ = call(f"bench decode --model 'Kimi K3' --m 4,8 --out {path}")
    assert status == 0 and out.rstrip().endswith(f"recorded in {path}")
    assert asked == [("Kimi K3", [4, 8], path)]
    status, out, _ = call(f"decode {path}")
    assert status == 0 and "Kimi K3 TP8, 28 layers" in out and "1.250  FASTER" in out.splitlines()[-1]
    told = json.loads(call(f"decode {path} --json")[1])
    assert told["campaign"]["gpu"] == campaign.gpu
    assert [step["interval"]["median"] for step in told["steps"]] == [5000.0, 4000.0] * 2
    call(f"bench decode --model 'Kimi K3' --out {tmp_path / 'b.json'}")
    assert asked[1][1] == decode.MS


def test_pruning_and_standing_answer_in_json_and_in_text(call, tmp_path):
    status, out, _ = call("pruning 2026-11-30-h200-6ddc50f-full")
    told = json.loads(call("pruning 2026-11-30-h200-6ddc50f-full --json")[1])
    *table, last = out.splitlines()[1:]
    assert status == 0 and len(told) == len(table) == 9 and last.startswith("9 of 9 problems within")
    assert max(cost["cost"] for cost in told) == pytest.approx(float(table[-1].split()[-2][:-1]) / 100, abs=5e-4)
    status, out, _ = call("standing --device h200")
    assert status == 0 and json.loads(call("standing --json")[1])["lines"] == out.splitlines()


def test_what_is_made_from_the_records_is_made_again(call, tmp_path, monkeypatch):
    data = Path(__file__).parents[2] / "data"
    shutil.copytree(data, tmp_path / "data")
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path / "data"))
    best, fitted = (tmp_path / "data" / name for name in ("best.csv", "model.json"))
    best.unlink()
    assert call("defaults")[:2] == (0, f"wrote {best}\n")
    fitted.write_text("{}\n")
    assert json.loads(call("fit --json")[1]) == {"file": str(fitted)}
    assert all(path.read_bytes() == (data / path.name).read_bytes() for path in (best, fitted))
    status, out, _ = call("fit --show")
    fits = json.loads(call("fit --show --json")[1])
    assert status == 0 and all(f"{fit['kernel']}, {fit['mode']}, {fit['process']} process: " in out for fit in fits)
