"""A trace is read off the executed instructions: what it says equals what the layouts and the program say."""

import dataclasses

import numpy as np
import pytest

from skinny_gemm import interpreter
from skinny_gemm.artifact import LaunchArguments
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import compile_kernel
from skinny_gemm.tactics import WarpSplitKTactic
from tests.interpreter.programs import Gemm, kernel, run
from tests.support.clusters import moved

SECTOR = 32  #: bytes of global memory that move as one
N, K, TACTIC = 64, 1024, WarpSplitKTactic.parse("16,8,256,2,1")


@pytest.fixture(scope="module")
def traced():
    trace = interpreter.Trace(ctas=[1])
    gemm = Gemm(7, N, K)
    plain, _ = gemm.run(compile_kernel(TACTIC, GemmProblem(1, N, K)), TACTIC)
    out, result = gemm.run(compile_kernel(TACTIC, GemmProblem(1, N, K)), TACTIC, trace=trace)
    assert (out == plain).all() and result.trace is trace
    return trace.table()


def test_only_the_chosen_cta_is_recorded_with_all_its_instructions(traced):
    assert set(traced.cta) == {1} and set(traced.warp) == set(range(7))
    executed = traced[traced.event == "execute"]
    mma = executed[executed.opcode.str.startswith("mma")].groupby("warp").size()
    assert mma.to_dict() == {warp: K // 4 // 16 for warp in range(4)}
    assert traced.time.is_monotonic_increasing


def test_the_swizzle_leaves_no_bank_conflict(traced):
    accesses = interpreter.shared_accesses(traced)
    assert set(accesses.opcode.str.split(".").str[0]) == {"ldmatrix", "cp", "st", "ld"}
    assert accesses.conflicts.sum() == 0
    loads = accesses[accesses.opcode.str.startswith("ldmatrix")]
    assert (loads.wavefronts == 4).all()  # one per 8x8 matrix


def test_conflicts_of_an_unswizzled_access_are_counted():
    body = """mov.b32 %r1, smem; shl.b32 %r2, %r0, {shift}; add.s32 %r3, %r1, %r2; mov.b32 %r4, 0; mov.b32 %r5, 0;
    st.shared.v{vector}.b32 [%r3], {values};"""
    for shift, vector, wavefronts, ideal in ((2, 1, 1, 1), (3, 1, 2, 1), (7, 1, 32, 1), (3, 2, 2, 2), (7, 2, 32, 2)):
        text = body.format(shift=shift, vector=vector, values="{%r4, %r5}" if vector == 2 else "{%r4}")
        trace = interpreter.Trace("st.shared")
        run(kernel(text.replace(".v1", ""), "out", shared=8192), np.zeros(1, np.uint32), trace=trace)
        (row,) = interpreter.shared_accesses(trace.table()).itertuples()
        assert (row.wavefronts, row.ideal) == (wavefronts, ideal), (shift, vector)


def test_copies_read_whole_sectors_and_every_byte_once(traced):
    copies = traced[traced.source.notna()]
    for row in copies.itertuples():
        used = row.source[(row.active >> np.arange(32)) & 1 == 1]
        sectors = np.unique(np.concatenate([used, used + row.bytes - 1]) // SECTOR)
        assert len(sectors) * SECTOR == len(np.unique(used)) * row.bytes
    assert moved(traced, "cp.async") == 2 * 16 * K + 2 * 7 * K  # rows past M are never read
    assert moved(traced, "st.global") == 2 * 16 * 7


def test_barrier_events_show_phases_and_counts(traced):
    waits = traced[traced.opcode.str.startswith("mbarrier.try_wait")]
    assert set(waits.event) == {"wait", "pass"}
    assert len(waits[waits.event == "pass"]) == 4 * 4 + 3 * 2  # four tiles for compute warps, two reuses for loaders
    landed = traced[traced.event == "land"]
    assert len(landed) == 4 * 3 and landed.phase.max() == 2
    inits = traced[traced.opcode.str.startswith("mbarrier.init")]
    assert sorted(inits.pending) == [4, 4, 96, 96]
    named = traced[traced.opcode.str.startswith("bar.sync") & (traced.event == "pass") & (traced.barrier == 1)]
    assert sorted(named.warp) == [0, 1, 2, 3]


def test_every_batch_of_copies_is_tied_once_and_lands_once_later(traced):
    tied = traced[traced.opcode.str.startswith("cp.async.mbarrier") & (traced.event == "execute")]
    landed = traced[traced.event == "land"]
    for warp in (4, 5, 6):
        issues, landings = (sorted(rows[rows.warp == warp].time) for rows in (tied, landed))
        assert len(issues) == len(landings) == 4
        assert all(issue < landing for issue, landing in zip(issues, landings, strict=True))
    assert set(landed.warp) == {4, 5, 6}


def test_a_trace_is_bounded_and_chosen():
    gemm, compiled = Gemm(8, N, K), compile_kernel(TACTIC, GemmProblem(1, N, K))
    trace = interpreter.Trace(("ldmatrix", "mma"), ctas=[(2, 0, 0)], warps=[3])
    gemm.run(compiled, TACTIC, trace=trace)
    table = trace.table()
    assert set(table.opcode.str.split(".").str[0]) == {"ldmatrix", "mma"}
    assert set(table.warp) == {3} and set(table.cta) == {2} and not trace.truncated
    short = interpreter.Trace(limit=100)
    gemm.run(compiled, TACTIC, trace=short)
    assert short.truncated and len(short.table()) <= 100
    with pytest.raises(ValueError, match="limit is 0, but must be"):
        interpreter.Trace(limit=0)


def test_tracing_costs_nothing_when_off():
    compiled = compile_kernel(TACTIC, GemmProblem(1, N, K))
    from skinny_gemm.interpreter.launch import program_of

    assert "trace" not in program_of(compiled.ptx, compiled.entry).source
    renamed = dataclasses.replace(compiled, entry="anything")  # the PTX has one entry: that one is meant
    gemm = Gemm(1, N, K)
    values = {"weight": gemm.weight, "x": gemm.x, "out": np.zeros((1, N), np.uint16), "bias": None, "m": 1}
    interpreter.run(renamed, LaunchArguments((4, 1, 1), tuple(values[p.name] for p in compiled.parameters)))
