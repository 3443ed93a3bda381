"""ldmatrix and mma agree with the PTX ISA's fragment maps; fused runs of mma agree with single ones."""

import numpy as np
import pytest

from skinny_gemm.layouts import fragments
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from tests.interpreter.programs import kernel, run

LANES = np.arange(32)

COPY_IN = """
    mul.wide.u32 %rd10, %r0, 16;  add.s64 %rd11, %rd10, %rd0;  shl.b32 %r1, %r0, 4;  mov.b32 %r2, smem;
    add.s32 %r3, %r1, %r2;  ld.global.v4.b32 {%r4, %r5, %r6, %r7}, [%rd11];
    st.shared.v4.b32 [%r3], {%r4, %r5, %r6, %r7};  bar.warp.sync -1;
"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix_gives_each_lane_its_elements(count, trans):
    tile = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)  # four matrices of 8 rows of 16 bytes
    registers = ", ".join(f"%r{20 + i}" for i in range(count))
    stores = "\n".join(f"st.global.b32 [%rd13+{128 * i}], %r{20 + i};" for i in range(count))
    body = (
        COPY_IN
        + f"""
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r3];
    mul.wide.u32 %rd12, %r0, 4;  add.s64 %rd13, %rd12, %rd1;
    {stores}"""
    )
    out = np.zeros((count, 32), np.uint32)
    run(kernel(body, shared=512), tile, out)
    for matrix in range(count):
        for half in range(2):
            row, column = LANES // 4, 2 * (LANES % 4) + half
            if trans:
                row, column = column, row
            assert ((out[matrix] >> 16 * half & 0xFFFF) == tile[matrix, row, column]).all()


def mma_program():
    """One mma on fragments read from global memory, lane by lane: A 4, B 2, C 4 registers."""
    places = [(4, i) for i in range(4)] + [(5, i) for i in range(2)] + [(6, i) for i in range(4)]
    loads = "\n".join(f"ld.global.b32 %r{10 + n}, [%rd{r}+{128 * i}];" for n, (r, i) in enumerate(places))
    stores = "\n".join(f"st.global.b32 [%rd7+{128 * i}], %r{20 + i};" for i in range(4))
    return f"""mul.wide.u32 %rd10, %r0, 4;
    add.s64 %rd4, %rd10, %rd0; add.s64 %rd5, %rd10, %rd1; add.s64 %rd6, %rd10, %rd2; add.s64 %rd7, %rd10, %rd3;
    {loads}
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{%r20, %r21, %r22, %r23}}, {{%r10, %r11, %r12, %r13}},
    {{%r14, %r15}}, {{%r16, %r17, %r18, %r19}};
    {stores}""".replace("},\n    {", "}, {")


def pack(matrix, element, registers):
    words = np.zeros((registers, 32), np.uint32)
    for register in range(registers):
        for half in range(2):
            words[register] |= matrix[element(LANES, register, half)].astype(np.uint32) << 16 * half
    return words


@pytest.mark.parametrize("seed", range(4))
def test_mma_is_the_fp64_product_of_the_isa_fragments(seed):
    random = np.random.default_rng(seed)
    a, b = to_bits(random.standard_normal((16, 16))), to_bits(random.standard_normal((16, 8)))
    c = random.standard_normal((16, 8)).astype(np.float32)
    words = np.stack([c[fragments.c_element(LANES, word)] for word in range(4)]).view(np.uint32)
    out = np.zeros((4, 32), np.float32)
    compiled = kernel(mma_program(), "a b c out")
    run(compiled, pack(a, fragments.a_element, 4), pack(b, fragments.b_element, 2), words, out)
    exact = from_bits(a).astype(np.float64) @ from_bits(b).astype(np.float64) + c
    scale = np.abs(from_bits(a)).astype(np.float64) @ np.abs(from_bits(b)) + np.abs(c)
    for word in range(4):
        place = fragments.c_element(LANES, word)
        assert (np.abs(out[word] - exact[place]) <= 2**-23 * 4 * scale[place]).all()


def test_mma_keeps_nan_and_infinity_in_their_rows():
    a, b = np.full((16, 16), 0x3F80, np.uint16), np.full((16, 8), 0x3F80, np.uint16)
    a[3, 5], a[7, 1] = 0x7FC0, 0x7F80
    out = np.zeros((4, 32), np.float32)
    words = np.zeros((4, 32), np.uint32)
    run(
        kernel(mma_program(), "a b c out"), pack(a, fragments.a_element, 4), pack(b, fragments.b_element, 2), words, out
    )
    result = np.zeros((16, 8), np.float32)
    for word in range(4):
        result[fragments.c_element(LANES, word)] = out[word]
    assert np.isnan(result[3]).all() and np.isposinf(result[7]).all()
    assert (np.delete(result, [3, 7], axis=0) == 16).all()


def chain_program(steps, fused):
    """`steps` mma on one accumulator, fed by ldmatrix; a read between them makes each stand alone."""
    lines = [COPY_IN, "mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;"]
    for step in range(steps):
        d = [f"%r{20 + 4 * (step + 1) + i}" for i in range(4)]
        c = [f"%r{20 + 4 * step + i}" for i in range(4)]
        a = ", ".join(f"%r{60 + 8 * step + i}" for i in range(4))
        b = ", ".join(f"%r{64 + 8 * step + i}" for i in range(2))
        lines.append(f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{a}}}, [%r3];")
        lines.append(f"ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{{b}}}, [%r3];")
        operands = ", ".join(f"{{{x}}}" for x in (", ".join(d), a, b, ", ".join(c)))
        lines.append(f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {operands};")
        if not fused:
            lines.append(f"mov.b32 %r1, {d[0]};")
    lines.append("mul.wide.u32 %rd12, %r0, 4; add.s64 %rd13, %rd12, %rd1;")
    lines += [f"st.global.b32 [%rd13+{128 * i}], %r{20 + 4 * steps + i};" for i in range(4)]
    return "\n".join(lines)


def test_a_fused_run_equals_single_steps():
    tile = to_bits(np.random.default_rng(1).standard_normal(256))
    results = []
    for fused in (True, False):
        out = np.zeros((4, 32), np.float32)
        run(kernel(chain_program(3, fused), shared=512), tile, out)
        results.append(out)
    scale = np.abs(from_bits(tile)).max() ** 2 * 48
    assert np.abs(results[0] - results[1]).max() <= 2**-22 * scale
    assert np.abs(results[0]).max() > 0


def test_a_run_starts_from_the_accumulator_as_it_was():
    program = chain_program(1, fused=True)
    start = "mov.b32 %r20, 0;"
    mma = program.index("mma.sync")
    end = program.index(";", mma) + 1
    program = program.replace(start, "mov.f32 %r20, 0f40E00000;")
    end += len(program) - len(chain_program(1, fused=True))
    clobbered = program[:end] + " mov.b32 %r20, 0;" + program[end:]
    tile = to_bits(np.random.default_rng(1).standard_normal(256))
    results = []
    for text in (program, clobbered):
        out = np.zeros((4, 32), np.float32)
        run(kernel(text, shared=512), tile, out)
        results.append(out)
    assert (results[0] == results[1]).all()
