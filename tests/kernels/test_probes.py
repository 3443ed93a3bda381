"""The probe kernels compile for sm_90a without a GPU, do what they measure and nothing else, and spill nothing."""

import numpy as np
import pytest

pytest.importorskip("cutlass")

from skinny_gemm import interpreter
from skinny_gemm.artifact import LaunchArguments
from skinny_gemm.bench import bounds
from skinny_gemm.kernels.probes import DependencyFloor, MmaRate, Producer, Ring, Stream
from skinny_gemm.runtime import compile_probe, sass


@pytest.mark.parametrize("ring", bounds.RINGS, ids=str)
def test_stream_probes_fit_an_sm_and_only_copy_in_bulk(ring):
    compiled = compile_probe(Stream(ring), "sm_90a")
    assert compiled.pdl and compiled.resources.spill_bytes == 0
    assert compiled.smem_bytes == ring.stages * (ring.chunk_bytes + 8) <= 232_448
    opcodes = sass.opcode_counts(compiled.cubin)
    assert opcodes["UBLKCP"] >= ring.stages + 1 and not {"LDG", "STG", "LDGSTS", "HMMA"} & set(opcodes)
    assert "evict_first" in compiled.ptx and "griddepcontrol.wait" in compiled.ptx


def test_the_l2_probe_keeps_its_lines():
    compiled = compile_probe(Stream(bounds.L2_RING, repeat=True), "sm_90a")
    assert "evict_first" not in compiled.ptx and bounds.L2_BYTES % bounds.L2_RING.chunk_bytes == 0


def test_the_dependency_floor_waits_then_reads_then_writes_one_word():
    compiled = compile_probe(DependencyFloor(), "sm_90a")
    ptx = compiled.ptx
    assert ptx.index("griddepcontrol.wait") < ptx.index("ld.global.v4") < ptx.index("st.global")
    assert sass.opcode_counts(compiled.cubin)["STG"] == 1 and compiled.resources.spill_bytes == 0


@pytest.mark.parametrize(("m", "k"), [(1, 7168), (5, 2880), (3, 64)])
def test_the_producer_copies_each_token_after_its_sum(m, k):
    """Run in the interpreter: x is the source, a sum a token; the source is read only after the PDL wait."""
    compiled = compile_probe(Producer(), "sm_90a")
    source = np.random.default_rng(k).integers(0, 1 << 16, (m, k), np.uint16)
    x, sums = np.zeros_like(source), np.zeros(m, np.uint32)
    arguments = LaunchArguments((m, 1, 1), (source, x, sums, k // 8))
    interpreter.run(compiled, arguments, preceding=("source",), races=True)
    assert (x == source).all() and (sums == source.view(np.uint32).sum(axis=1, dtype=np.uint32)).all()
    text = compiled.ptx
    assert text.index("launch_dependents") < text.index("griddepcontrol.wait") < text.index("ld.global")
    assert text.index("bar.sync") < text.index("st.global.v4"), "a norm knows its row's sum before it writes"


def test_the_mma_probe_runs_its_chains_from_registers():
    compiled = compile_probe(MmaRate(), "sm_90a")
    opcodes = sass.opcode_counts(compiled.cubin)
    assert opcodes["HMMA"] % MmaRate.CHAINS == 0 and not {"LDS", "LDSM", "LDL"} & set(opcodes)
    assert MmaRate.flops(1) == 264 * 8 * 8 * 4096 and MmaRate.SOURCE_BYTES == 256 * 80


def test_ring_text_round_trips():
    for ring in bounds.RINGS:
        assert Ring.parse(str(ring)) == ring
