"""Every mistake of a kernel is one error that names the instruction, the thread and what is near."""

import numpy as np
import pytest
import torch

from skinny_gemm import interpreter
from tests.interpreter.programs import kernel, run

LOAD = """mul.wide.u32 %rd10, %r0, {stride}; add.s64 %rd11, %rd10, %rd0; ld.global.b32 %r1, [%rd11{offset}];
    add.s64 %rd12, %rd10, %rd1; st.global.b32 [%rd12], %r1;"""


def test_an_unsupported_instruction_is_named_with_its_line():
    compiled = kernel("sin.approx.f32 %f1, %f2;", "out")
    line = 1 + next(i for i, text in enumerate(compiled.ptx.split("\n")) if "sin.approx" in text)
    with pytest.raises(interpreter.UnsupportedInstruction, match=rf"PTX line {line}: .*'sin\.approx\.f32'"):
        run(compiled, np.zeros(1, np.uint32))


@pytest.mark.parametrize(
    "text",
    [
        "add.rz.f32 %f1, %f2, %f3;",
        "add.ftz.f32 %f1, %f2, %f3;",
        "cvt.rz.bf16x2.f32 %r1, %f1, %f2;",
        "@%p1 barrier.cluster.wait;",
        "barrier.cluster.arrive.acquire;",
        "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r1];",
        "mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p1, [%r1], 0;",
        "bar.red.popc.u32 %r1, 0, %p1;",
        "mapa.u64 %rd1, %rd2, 0;",
        "multimem.st.relaxed.sys.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};",
        "multimem.ld_reduce.relaxed.sys.global.add.f32 %f1, [%rd1];",
        "fence.proxy.tensormap::generic.release.gpu;",
        "min.ftz.f32 %f1, %f2, %f3;",
        "prmt.b32.f4e %r1, %r2, %r3, 1;",
        "ld.local.b32 %r1, [%r2];",
        "@%p1 mbarrier.try_wait.parity.shared.b64 %p2, [smem], 0;",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
        "{%f1, %f2, %f3, %f4};",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 16;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1], 16, "
        "[%r2], %h1;",
    ],
)
def test_a_variant_that_means_something_else_is_refused(text):
    with pytest.raises(interpreter.UnsupportedInstruction, match="PTX line"):
        run(kernel(text, "out"), np.zeros(1, np.uint32))


def test_a_global_load_out_of_bounds_names_lane_and_nearest_buffer():
    source, out = np.zeros(30, np.uint32), np.zeros(32, np.uint32)
    with pytest.raises(interpreter.MemoryAccessError) as error:
        run(kernel(LOAD.format(stride=4, offset="")), source, out)
    assert "4 bytes past the end of a (120 bytes)" in str(error.value)
    assert "CTA (0, 0, 0), warp 0, lane 30" in str(error.value) and "ld.global.b32" in str(error.value)
    with pytest.raises(interpreter.MemoryAccessError, match="4 bytes before a"):
        run(kernel(LOAD.format(stride=4, offset="+-4")), np.zeros(40, np.uint32), out)
    assert not out.any()


def test_misaligned_accesses_are_errors_even_through_a_misaligned_array():
    with pytest.raises(interpreter.MemoryAccessError, match="not aligned to 4 bytes.*lane 1"):
        run(kernel(LOAD.format(stride=2, offset="")), np.zeros(64, np.uint32), np.zeros(32, np.uint32))
    shifted = np.zeros(130, np.uint16)[1:]
    with pytest.raises(interpreter.MemoryAccessError, match="not aligned to 4 bytes"):
        run(kernel(LOAD.format(stride=4, offset="")), shifted, np.zeros(32, np.uint32))


def test_a_copy_out_of_bounds_names_the_copy_not_its_landing():
    body = """mov.b32 %r1, smem; shl.b32 %r2, %r0, 4; add.s32 %r3, %r1, %r2; mul.wide.u32 %rd10, %r0, 16;
    add.s64 %rd11, %rd10, %rd0; cp.async.cg.shared.global [%r3], [%rd11], 16;
    cp.async.cg.shared.global [%r3+16], [%rd11+16], 16; cp.async.wait_all;"""
    with pytest.raises(interpreter.MemoryAccessError, match=r"16 bytes past the end of a .*\[%r3\+16\].* lane 31"):
        run(kernel(body, shared=1024), np.zeros(128, np.uint32), np.zeros(1, np.uint32))
    with pytest.raises(
        interpreter.MemoryAccessError, match=r"16 bytes past the CTA's 512 bytes.*\[%r3\+16\].* lane 31"
    ):
        run(kernel(body, shared=512), np.zeros(256, np.uint32), np.zeros(1, np.uint32))


def test_shared_memory_has_bounds_and_alignment():
    for text, message in (
        ("ld.shared.b32 %r1, [smem+64];", "4 bytes past the CTA's 64 bytes of shared memory"),
        ("ld.shared.b32 %r1, [smem+-4];", "4 bytes before the CTA's shared memory"),
        ("st.shared.v2.b32 [smem+4], {%r0, %r0};", "not aligned to 8 bytes"),
    ):
        with pytest.raises(interpreter.MemoryAccessError, match=message):
            run(kernel(text, "out", shared=64), np.zeros(1, np.uint32))


def test_writing_a_parameter_that_is_only_read_is_an_error():
    body = "st.global.b32 [%rd0], %r0;"
    with pytest.raises(interpreter.ReadOnlyError, match="stores to a, which is not declared as written"):
        run(kernel(body), np.zeros(32, np.uint32), np.zeros(1, np.uint32))


POISON = {
    "the stored value": "ld.shared.b32 %r2, [smem]; st.global.b32 [%rd0], %r2;",
    "a register": "add.s32 %r2, %r50, 1; st.global.b32 [%rd0], %r2;",
    "branch": "ld.shared.b32 %r2, [smem]; setp.gt.s32 %p1, %r2, 0; @%p1 bra L; st.global.b32 [%rd0], %r0; L:",
    "the address of": """ld.shared.b32 %r2, [smem]; and.b32 %r3, %r2, 64; cvt.u64.u32 %rd1, %r3;
    add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r0;""",
    "an unwritten output": "ld.global.b32 %r2, [%rd0+4]; st.global.b32 [%rd0], %r2;",
    "float": "ld.shared.f32 %f1, [smem]; mul.f32 %f2, %f1, 0f00000000; st.global.f32 [%rd0], %f2;",
}


@pytest.mark.parametrize("case", POISON)
def test_poison_may_not_escape(case):
    out = np.full(64, 5, np.uint32)
    with pytest.raises(interpreter.PoisonError, match="CTA .* warp 0"):
        run(kernel(POISON[case], "out", shared=64), out)
    assert (out == 5).all()


def test_poison_that_is_dropped_is_legal():
    body = """ld.shared.b32 %r2, [smem]; and.b32 %r3, %r2, 0; add.s32 %r4, %r3, %r0;
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd2, %rd0, %rd1; st.global.b32 [%rd2], %r4;"""
    out = np.zeros(32, np.uint32)
    run(kernel(body, "out", shared=64), out)
    assert (out == np.arange(32)).all()


def test_a_poisoned_address_is_called_poison():
    body = "ld.shared.b32 %r2, [smem]; shl.b32 %r2, %r2, 2; ld.shared.b32 %r3, [%r2];"
    with pytest.raises(interpreter.PoisonError, match="reaches the address of 'ld.shared"):
        run(kernel(body, "out", shared=64), np.zeros(1, np.uint32))


def test_without_checks_outputs_are_written_in_place():
    out = np.full(64, 5, np.uint32)
    result = run(kernel("st.global.b32 [%rd0], 9;", "out"), out, checks=False)
    assert out.tolist() == [9] + [5] * 63 and not result.checks
    assert result.written["out"].tolist() == [True] * 4 + [False] * 252


def test_torch_tensors_are_written_in_place_and_bad_arguments_refused():
    body = "ld.global.b32 %r1, [%rd0]; st.global.b32 [%rd1], %r1;"
    a, out = torch.tensor([1.5, 2.0]).bfloat16(), torch.zeros(2).bfloat16()
    run(kernel(body), a, out)
    assert torch.equal(a, out)
    compiled = kernel(body)
    with pytest.raises(ValueError, match="must be packed row-major"):
        run(compiled, np.zeros((4, 4), np.uint32)[:, :2], np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match="a is a list"):
        run(compiled, [1], np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match="1 values are given for 2 parameters"):
        run(compiled, np.zeros(1, np.uint32))
    with pytest.raises(ValueError, match="schedule 'random' must be"):
        run(compiled, a, out, schedule="random")
    with pytest.raises(ValueError, match="seed is -1, but must be an integer"):
        interpreter.adversarial(-1)
    with pytest.raises(ValueError, match="grid .* must be three positive integers"):
        run(compiled, a, out, grid=(0, 1, 1))


def test_instructions_after_one_on_several_lines_keep_their_numbers():
    body = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32\n{%r1, %r2, %r3, %r4},\n{%r5, %r6, %r7, %r8},\n"
    compiled = kernel(body + "{%r9, %r10},\n{%r11, %r12, %r13, %r14};\nmov.b32 %r1, %nothing;", "out")
    line = 1 + next(i for i, text in enumerate(compiled.ptx.split("\n")) if "%nothing" in text)
    with pytest.raises(interpreter.PtxSyntaxError, match=f"Line {line}: "):
        run(compiled, np.zeros(1, np.uint32))


def test_bad_ptx_is_refused_with_its_line():
    compiled = kernel("add.s32 %r1, %r2, %nothing;", "out")
    with pytest.raises(interpreter.PtxSyntaxError, match=r"Line \d+: the operand '%nothing' is not declared"):
        run(compiled, np.zeros(1, np.uint32))
    with pytest.raises(interpreter.PtxSyntaxError, match="label 'NOWHERE' is not defined"):
        run(kernel("bra NOWHERE;", "out"), np.zeros(1, np.uint32))
    for pair in ("| %p1", "%r1|"):
        with pytest.raises(interpreter.PtxSyntaxError, match=r"nothing stands on one side of the \|"):
            run(kernel(f"elect.sync {pair}, -1;", "out"), np.zeros(1, np.uint32))


def test_importing_the_interpreter_stays_light():
    import subprocess
    import sys

    code = "import sys, skinny_gemm.interpreter; print([m for m in ('torch', 'pandas', 'cutlass') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("address", ["%p1", "_", "%p1+512", "%tid.x", "1.5"])
@pytest.mark.parametrize("line", ["ld.global.b32 %r20, [{}];", "st.shared.b32 [{}], %r0;",
                                  "mbarrier.arrive.shared::cta.b64 %rd5, [{}];"])  # fmt: skip
def test_an_address_is_a_wide_register_or_a_number(line, address):
    with pytest.raises(interpreter.PtxSyntaxError, match=r"Line \d+: .* is no address"):
        run(kernel(line.format(address)))
