"""Kernel arguments that are structures: their members arrive as their places say; what does not fit is one sentence."""

from dataclasses import replace

import numpy as np
import pytest

from skinny_gemm.artifact import Parameter, arguments_of
from skinny_gemm.interpreter import UnsupportedInstruction
from tests.interpreter.programs import kernel, run

PTX = """ld.param.b64 %rd0, [tensor]; ld.param.b32 %r1, [tensor+8]; ld.param.b64 %rd2, [tensor+16];
    ld.param.b64 %rd3, [out]; ld.param.b32 %r2, [out+8]; ld.global.b32 %r3, [%rd0]; cvt.u32.u64 %r4, %rd2;
    st.global.v4.b32 [%rd3], {%r1, %r2, %r3, %r4};"""
DECLARED = ".param .align 8 .b8 tensor[24],\n.param .align 8 .b8 out[16]"
TENSOR = (
    Parameter("tensor", "pointer"),
    Parameter("size", "i32", joined=True),
    Parameter("stride", "i64", joined=True),
    Parameter("out", "pointer", written=True),
    Parameter("m", "i32", joined=True),
)


def packed(parameters=TENSOR, body=PTX, declared=DECLARED):
    compiled = kernel(body, "PLACE")
    head, _, rest = compiled.ptx.partition("    .param .u64 .ptr .global .align 16 PLACE")
    text = (head + declared + rest).replace("ld.param.b64 %rd0, [PLACE];", "", 1)
    return replace(compiled, ptx=text, parameters=parameters)


def test_members_of_a_structure_arrive_as_c_lays_them_out():
    a, out = np.array([77], np.uint32), np.zeros(4, np.uint32)
    run(packed(), a, -5, 1 << 33 | 9, out, 6)
    assert out.view(np.int32).tolist() == [-5, 6, 77, 9]


def test_parameters_are_grouped_by_argument():
    assert [[p.name for p in argument] for argument in arguments_of(TENSOR)] == [
        ["tensor", "size", "stride"], ["out", "m"],
    ]  # fmt: skip


def test_a_part_of_a_parameter_is_loaded_and_extended_by_its_type():
    body = """ld.param.b64 %rd0, [n]; ld.param.b64 %rd1, [out]; ld.param.u32 %r1, [n+4]; ld.param.u8 %r2, [n+1];
        ld.param.s8 %r3, [n+1]; ld.param.s16 %r4, [n+2]; st.global.v4.b32 [%rd1], {%r1, %r2, %r3, %r4};"""
    parameters = (Parameter("n", "i64"), Parameter("out", "pointer", written=True))
    out = np.zeros(4, np.uint32)
    run(packed(parameters, body, ".param .u64 n,\n.param .u64 out"), 0x1122334485669788, out)
    assert out.tolist() == [0x11223344, 0x97, 0xFFFFFF97, 0xFFFF8566]


@pytest.mark.parametrize("load", ["b32 %r1, [tensor+22]", "b64 %rd4, [tensor+20]", "b16 %h1, [out+16]"])
def test_what_lies_across_a_parameters_end_or_its_alignment_is_refused(load):
    with pytest.raises(UnsupportedInstruction, match=f"ld.param.{load[:3]}"):
        run(packed(body=f"ld.param.{load}; {PTX}"), *[None] * 5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"parameters": TENSOR[:1] + TENSOR[2:]},
            "tensor, stride: 16 bytes, but the PTX has a parameter of 24 for them",
        ),
        ({"parameters": tuple(replace(p, joined=False) for p in TENSOR)}, "has 2 parameters, the artifact 5"),
        ({"body": PTX.replace("tensor+8", "tensor+12")}, "reads 4 bytes at byte 12 of its parameters, which hold no"),
        ({"body": PTX.replace("b32 %r2, [out+8]", "b64 %rd9, [out+8]")}, "reads 8 bytes at byte 32 of its parameters"),
    ],
)
def test_what_does_not_fit_the_ptx_is_one_sentence(change, words):
    compiled = packed(**change)
    values = [np.zeros(4, np.uint32) if p.kind == "pointer" else 1 for p in compiled.parameters]
    with pytest.raises(ValueError, match=words):
        run(compiled, *values)
