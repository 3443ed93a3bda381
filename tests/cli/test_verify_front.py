"""`verify front` from the command line: words and JSON, status 1 for a wrong result, status 2 for bad input."""

import json
import re

import pytest

from skinny_gemm import PreparedWsGemm
from skinny_gemm.__main__ import main
from tests.support.fronts import packs_rank_0

SMALL = "verify front --ranks 2 --m 3 --k 64 --latent 32 --experts 16 --backend interpreter"


class TestCommandLine:
    def test_of_kimi_k3_over_eight_ranks(self, capsys):
        status = main("verify front --ranks 8 --m 4 --backend interpreter --seed 0 --json".split())
        report = json.loads(capsys.readouterr().out)
        assert (
            status == 0
            and report["passed"]
            and (report["ranks"], report["latent"], report["experts"]) == (8, 3584, 896)
        )
        assert 0 < report["latent_error"] < 4e-3 and 0 < report["logits_error"] < 1e-5

    @pytest.mark.parametrize("more", ["", "--transport peers", "--transport multicast --schedule adversarial"])
    def test_of_a_small_front_in_words(self, capsys, more):
        assert main(f"{SMALL} {more} --tactic 2,1,2,0,8,1".split()) == 0
        words = capsys.readouterr().out
        assert words.startswith(
            "passed: front of 2 ranks (32 latent, 16 experts, K = 64) at M = 3, ws-gemm 2,1,2,0,8,1"
        )

    def test_a_publisher_that_does_not_come_is_status_1(self, capsys, monkeypatch):
        monkeypatch.setattr(PreparedWsGemm, "launch", lambda *_, **__: None)
        assert main(SMALL.split()) == 1
        assert re.match(r"FAILED: front of 2 ranks: rank \d did not publish ", capsys.readouterr().out)

    def test_a_wrong_result_is_status_1(self, capsys, monkeypatch):
        monkeypatch.setattr(PreparedWsGemm, "pack", packs_rank_0)
        assert main(f"{SMALL} --json".split()) == 1
        assert json.loads(capsys.readouterr().out)["passed"] is False

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("verify front --ranks 3 --m 4", "ranks is 3; it must divide latent 3584 and experts 896"),
            ("verify front --m 4 --n 560", "do not belong to front"),
            ("verify front --m 4 --seeds 2", "do not belong to front"),
            ("verify front --m 4 --transport mail", "transport is 'mail', but must be one of local, peers, multicast"),
            ("verify front --m 4 --backend tpu", "backend is 'tpu'"),
            ("verify front --m 4 --schedule late", "schedule is 'late'"),
            ("verify front --m 4 --seed -1", "seed is -1"),
            ("verify front --m 65 --backend interpreter", "M is 65, but this kernel takes 1 to 64 tokens"),
            ("verify front --m 4 --tactic 1,2,3", "tactic '1,2,3' is not 7"),
            ("verify front --m 4 --tactic 1,1,1,0,0,0 --backend interpreter", "registers per thread needed"),
            ("verify warp-splitk --m 4 --n 64 --k 512 --ranks 2", "--ranks belongs to front, not to warp-splitk"),
            ("verify warp-splitk --m 4 --k 512", "Missing option '--n'"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(self, capsys, line, words):
        status = main(line.split())
        out, err = capsys.readouterr()
        assert (status, out) == (2, "") and err.startswith("error: ") and words in err and err.count("\n") == 1
