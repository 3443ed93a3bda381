"""The shipped warp split-K kernel, from the PTX that its compiler emitted: right for every M, the same bits under every
schedule, and no wait, arrival or barrier of it can be dropped unnoticed."""

import dataclasses

import numpy as np
import pytest

from skinny_gemm import interpreter
from skinny_gemm.artifact import LaunchArguments
from skinny_gemm.interpreter import launch
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import compile_kernel
from skinny_gemm.tactics import WarpSplitKTactic
from tests.interpreter.programs import MUTATIONS, SMALL, WIDE, Gemm, compiled, mutants

TOLERANCE = 2**-8  # of the largest result: BF16 rounding is at most 2^-9 of each


@pytest.mark.parametrize("case", [SMALL, WIDE], ids=lambda c: c[2])
@pytest.mark.parametrize("m", [1, 3, 8, 9, 17, 32])
def test_every_m_agrees_with_fp64_and_leaves_the_rest_alone(case, m):
    kernel, tactic = compiled(*case)
    gemm = Gemm(m, *case[:2], bias=m % 2 == 1)
    out, result = gemm.run(kernel, tactic)
    assert gemm.error(out) <= TOLERANCE
    assert result.written["out"].all() and not kernel.parameters[0].written


def test_a_full_projection_agrees_with_fp64():
    n, k, text = 3584, 7168, "16,8,256,8,2"
    kernel, tactic = compiled(n, k, text)
    gemm = Gemm(8, n, k)
    out, result = gemm.run(kernel, tactic)
    assert gemm.error(out) <= TOLERANCE
    assert result.ctas == 224 and result.copied_bytes == 2 * n * k + 224 * 2 * 8 * k


@pytest.mark.parametrize(("arch", "pdl"), [("sm_100a", True), ("sm_120a", True), ("sm_90a", False)])
def test_the_ptx_of_other_architectures_runs_too(arch, pdl):
    tactic = WarpSplitKTactic.parse("16,8,128,2,1")
    gemm = Gemm(5, 32, 512)
    out, _ = gemm.run(compile_kernel(tactic, GemmProblem(1, 32, 512), arch, pdl), tactic, races=True)
    assert gemm.error(out) <= TOLERANCE


@pytest.mark.parametrize("case", [SMALL, WIDE], ids=lambda c: c[2])
def test_every_schedule_gives_the_same_bits(case):
    kernel, tactic = compiled(*case)
    gemm = Gemm(7, *case[:2])
    expected, _ = gemm.run(kernel, tactic)
    for seed in range(6):
        out, _ = gemm.run(kernel, tactic, schedule=interpreter.adversarial(seed))
        assert (out == expected).all(), seed
    out, _ = gemm.run(kernel, tactic, checks=False)
    assert (out == expected).all()


def test_chunks_do_not_change_the_bits(monkeypatch):
    kernel, tactic = compiled(*SMALL)
    gemm = Gemm(32, *SMALL[:2])
    expected, _ = gemm.run(kernel, tactic)
    monkeypatch.setattr(launch, "CHUNK_ROWS", 6)
    out, _ = gemm.run(kernel, tactic)
    assert (out == expected).all()


def test_nan_and_infinity_stay_in_their_rows():
    kernel, tactic = compiled(*SMALL)
    gemm = Gemm(3, *SMALL[:2], bias=False)
    clean, _ = gemm.run(kernel, tactic)
    gemm.x[1, 5], gemm.weight[9, 100] = 0x7FC0, 0x7F80
    out, _ = gemm.run(kernel, tactic)
    assert (out[1] == 0x7FFF).all() and (out[[0, 2], 9] & 0x7F80 == 0x7F80).all()
    keep = [i for i in range(64) if i != 9]
    assert (out[np.ix_([0, 2], keep)] == clean[np.ix_([0, 2], keep)]).all()


def test_an_interrupt_leaves_the_output_alone_and_the_next_run_right():
    kernel, tactic = compiled(*SMALL)
    gemm = Gemm(8, *SMALL[:2])
    expected, _ = gemm.run(kernel, tactic)

    turns = iter(range(10))

    def interrupt(*_):
        if next(turns, None) is None:
            raise KeyboardInterrupt

    before = np.full((8, 64), 3, np.uint16)
    values = (gemm.weight, gemm.x, before, gemm.bias, 8)
    values = tuple(
        dict(zip(("weight", "x", "out", "bias", "m"), values, strict=True))[p.name] for p in kernel.parameters
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch._Reporter, "__call__", interrupt)
        with pytest.raises(KeyboardInterrupt):
            interpreter.run(kernel, LaunchArguments((4, 1, 1), values))
    assert (before == 3).all()
    assert (gemm.run(kernel, tactic)[0] == expected).all()


def test_progress_is_reported_once_a_run_takes_long(monkeypatch):
    kernel, tactic = compiled(*SMALL)
    monkeypatch.setattr(launch, "PROGRESS_AFTER", 0.0)
    monkeypatch.setattr(launch, "PROGRESS_EVERY", 0.0)
    monkeypatch.setattr(launch, "CHUNK_ROWS", 2)
    seen = []
    Gemm(8, *SMALL[:2]).run(kernel, tactic, progress=seen.append)
    assert seen == sorted(seen) and 0 <= seen[0] and 0.5 <= seen[-1] <= 1


def caught(kernel, tactic, gemm, expected, text, seeds=12):
    """How a mutant is caught, or None."""
    mutant = dataclasses.replace(kernel, ptx=text)
    for schedule in ["in_order", *(interpreter.adversarial(seed) for seed in range(seeds))]:
        try:
            out, _ = gemm.run(mutant, tactic, schedule=schedule)
        except interpreter.InterpreterError as error:
            return type(error).__name__
        if (out != expected).any():
            return "wrong result"
    return None


@pytest.mark.parametrize("kind", [kind for kind in MUTATIONS if kind != "warp sync"])  # that one only clocks notice
def test_no_synchronisation_can_be_dropped_unnoticed(kind):
    kernel, tactic = compiled(*SMALL)
    gemm = Gemm(7, *SMALL[:2])
    expected, _ = gemm.run(kernel, tactic)
    how = [caught(kernel, tactic, gemm, expected, text) for text in mutants(kernel.ptx, kind)]
    print(kind, how)
    assert how and all(how), how
