"""Peers that are made of a file of others, with stand-ins for the files, and with the files where they are named.

Properties: the adaptor passes pointers, sizes and strides such that the peer multiplies right, for every tactic of its
grid; a grid holds what the peer takes, its default first, and plans the same without a GPU; a binary belongs to the
content of the file; a file that is nowhere is one sentence.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from skinny_gemm import device, interpreter
from skinny_gemm.bench import peer_flashinfer, peer_simt, peers
from skinny_gemm.bench.foreign import ForeignFile
from skinny_gemm.bench.plan import MS
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import PEERS
from skinny_gemm.runtime.trials import Operands, relative_error, values
from skinny_gemm.tactics import Tactic

H200 = device.get("h200")
ADAPTORS = {"flashinfer": peer_flashinfer, "simt": peer_simt}
STANDS_IN = Path(__file__).parents[1] / "support" / "foreign"
NAMED = {peer: os.environ.get(adaptor.FILE.variable) for peer, adaptor in ADAPTORS.items()}


@pytest.fixture
def stand_in(monkeypatch):
    for peer, adaptor in ADAPTORS.items():
        monkeypatch.setenv(adaptor.FILE.variable, str(STANDS_IN / f"{peer}.py"))


def error_of(peer: str, tactic: str, problem: GemmProblem) -> float:
    """The relative error of one interpreted launch; whatever is read of x before the wait is an error."""
    operands, out = Operands.random(problem, 0), Tactic.output(problem)
    compiled = peers.compile_peer(peer, tactic, problem, "sm_90a")
    bound = peers.arguments(peer, tactic, operands.x, operands.weight, out)
    interpreter.run(compiled, bound, preceding=("x",))
    return relative_error(values(out, Tactic.results(problem)[0]), operands.product)


@pytest.mark.parametrize(
    ("peer", "problem", "tactic"),
    [
        ("flashinfer", GemmProblem(5, 64, 256), "16,8,128,2,1"),
        ("flashinfer", GemmProblem(11, 96, 128), "32,8,128,2,2"),
        ("simt", GemmProblem(1, 48, 256), "32,3,2,8,0"),
        ("simt", GemmProblem(4, 64, 512), "32,4,1,8,512"),
    ],
)
def test_an_adaptor_passes_what_the_peer_multiplies(stand_in, peer, problem, tactic):
    assert error_of(peer, tactic, problem) < 4e-3


@pytest.mark.parametrize("m", [1, 4, 5])
@pytest.mark.parametrize("peer", ADAPTORS)
def test_the_published_kernel_multiplies_right_at_every_tactic_of_its_grid(peer, m):
    if not NAMED[peer]:
        pytest.skip(f"${ADAPTORS[peer].FILE.variable} names no file of this peer")
    problem = GemmProblem(m, 96, 1024)
    for tactic in peers.tactics(peer, problem, H200):
        assert error_of(peer, tactic, problem) < 4e-3, tactic


def test_flashinfer_is_tried_at_its_default_and_around(stand_in):
    problem = GemmProblem(16, 3584, 7168)
    first, *others = tactics = peers.tactics("flashinfer", problem, H200)
    assert first == "32,8,128,6,2" and len(tactics) == len(set(tactics)) >= peer_flashinfer.LEAST
    assert peers.tactics("flashinfer", problem, replace(H200, sms=5000))[0] == "16,8,128,6,2", "the SMs of the device"
    parsed = [tuple(map(int, tactic.split(","))) for tactic in others]
    assert {rows for rows, *_ in parsed} == {16, 32} and (32, 8, 128, 6, 1) in parsed
    for m, tokens in ((16, {8, 16, 32}), (32, {16, 32})):
        _, flipped, *around = peers.tactics("flashinfer", replace(problem, m=m), H200)
        assert flipped == "32,8,128,6,1" and {int(tactic.split(",")[1]) for tactic in around} == tokens


def test_simt_is_tried_at_legal_configurations_of_many_kinds():
    taken = 0
    for n, k in {(shape.n, shape.k) for shape in shapes()}:
        for m in MS:
            try:
                tactics = peers.tactics("simt", GemmProblem(m, n, k), H200)
            except ValueError as error:
                assert m > peer_simt.MAX_M or k % 128, error
                continue
            taken += 1
            parsed = [peer_simt.Tactic(*map(int, tactic.split(","))) for tactic in tactics]
            assert len(tactics) == len(set(tactics)) and (len(tactics) >= 4 or n % 2), (n, k, m)
            for t in parsed:
                assert n % t.rows == 0 and k % (t.threads * t.vector) == 0 and t.static_k in (0, k)
                assert not t.static_k or k >= 2 * t.threads * t.vector
    assert taken > 100


@pytest.mark.parametrize(
    ("peer", "problem", "words"),
    [
        ("flashinfer", GemmProblem(64, 64, 256), "M is 64, but it takes 1 to 32 tokens"),
        ("flashinfer", GemmProblem(8, 40, 256), "it has no tactic for 40x256 at M = 8"),
        ("simt", GemmProblem(8, 64, 256), "M is 8, but it takes 1 to 6 tokens"),
        ("simt", GemmProblem(1, 64, 200), "it has no configuration for 64x200 at M = 1"),
    ],
)
def test_what_a_peer_does_not_take_is_one_sentence(stand_in, peer, problem, words):
    with pytest.raises(ValueError, match=words):
        peers.tactics(peer, problem, H200)


def test_a_binary_belongs_to_the_content_of_the_file(stand_in, monkeypatch, tmp_path):
    problem, tactic = GemmProblem(1, 64, 512), "32,4,1,8,0"
    before = peers.specialisation("simt", tactic, problem)
    moved = tmp_path / "moved.py"
    moved.write_bytes((STANDS_IN / "simt.py").read_bytes())
    monkeypatch.setenv(peer_simt.FILE.variable, str(moved))
    assert peers.specialisation("simt", tactic, problem) == before
    assert peers.specialisation("simt", tactic, replace(problem, n=128)) == before, "N is read at run time"
    assert peers.specialisation("simt", tactic, replace(problem, m=2)) != before
    moved.write_text(moved.read_text() + "# changed")
    assert peers.specialisation("simt", tactic, problem) != before


def test_a_file_is_loaded_alone_or_it_is_said_why_not(monkeypatch, tmp_path):
    file = ForeignFile("SOME_FILE", "some_package_of_others/part/kernel.py")
    with pytest.raises(
        ImportError, match=r"some_package_of_others is not installed, and \$SOME_FILE names no kernel.py"
    ):
        file.load()
    folder = tmp_path / "some_package_of_others"
    (folder / "part").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('never imported')")
    (folder / "part" / "kernel.py").write_text("ANSWER = 42")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert file.load().ANSWER == 42
    (tmp_path / "other.py").write_text("ANSWER = 43")
    monkeypatch.setenv("SOME_FILE", str(tmp_path / "other.py"))
    assert file.load().ANSWER == 43


def test_each_peer_is_available_or_says_why_not(stand_in, monkeypatch, tmp_path):
    reasons = peers.available()
    assert list(reasons) == list(PEERS) and (reasons["cublas"], reasons["flashinfer"], reasons["simt"]) == (None,) * 3
    assert all(reason is None or ": " in reason for reason in reasons.values())
    monkeypatch.setenv(peer_simt.FILE.variable, str(tmp_path / "nowhere.py"))
    assert peers.available()["simt"].startswith("FileNotFoundError: ")
