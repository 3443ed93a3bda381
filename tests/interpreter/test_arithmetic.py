"""Every integer, logic and float instruction gives the bits that its definition gives, edge values included."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm.runtime.bfloat16 import from_bits
from tests.interpreter.programs import elementwise, kernel, run

EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 2**63 - 1, 2**63, 2**64 - 1]


def numbers(bits):
    edges = st.sampled_from([e & (1 << bits) - 1 for e in EDGES])
    values = edges | st.integers(0, (1 << bits) - 1)
    return st.lists(values, min_size=32, max_size=32).map(lambda v: np.array(v, f"u{bits // 8}"))


def signed(value, bits):
    return value - (1 << bits) if value >> bits - 1 else value


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


BINARY = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul.lo": lambda a, b, bits: a * b,
    "mul.hi": lambda a, b, bits: a * b >> bits,
    "min": lambda a, b, bits: min(a, b),
    "max": lambda a, b, bits: max(a, b),
    "div": lambda a, b, bits: truncated(a, b) if b else -1,
    "rem": lambda a, b, bits: a - truncated(a, b) * b if b else a,
}


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_integer_arithmetic_wraps_exactly(op, kind, data):
    bits = int(kind[1:])
    a, b = data.draw(numbers(bits)), data.draw(numbers(bits))
    r = "rd" if bits == 64 else "r"
    got = elementwise(f"{op}.{kind} %{r}20, %{r}10, %{r}11;", (a, b), a.dtype)
    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        if kind[0] == "s":
            x, y = signed(x, bits), signed(y, bits)
        assert z == BINARY[op](x, y, bits) & (1 << bits) - 1, (x, y)


HALVES = "mov.b32 {%h1, %h2}, %r10; mov.b32 {%h3, %h4}, %r11; "


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("kind", ["s16", "u16"])
@settings(max_examples=5, deadline=None)
@given(a=numbers(32), b=numbers(32))
def test_arithmetic_of_16_bits_wraps_exactly(op, kind, a, b):
    got = elementwise(HALVES + f"{op}.{kind} %h5, %h1, %h3; cvt.u32.u16 %r20, %h5;", (a, b), np.uint32)
    packed = op if op in ("add", "min", "max") else None
    both = elementwise(f"{packed}.{kind}x2 %r20, %r10, %r11;", (a, b), np.uint32) if packed else got
    for x, y, z, pair in zip(a.tolist(), b.tolist(), got.tolist(), both.tolist(), strict=True):
        want = []
        for shift in (0, 16):
            low, high = (v >> shift & 0xFFFF for v in (x, y))
            low, high = (signed(low, 16), signed(high, 16)) if kind[0] == "s" else (low, high)
            want.append(BINARY[op](low, high, 16) & 0xFFFF)
        assert z == want[0] and (not packed or pair == want[1] << 16 | want[0]), (x, y)


INTEGERS = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "us"]


@pytest.mark.parametrize("to", INTEGERS)
@settings(max_examples=8, deadline=None)
@given(source=st.sampled_from(INTEGERS), wide=st.booleans(), x=numbers(64))
def test_a_conversion_extends_the_source_by_its_sign_and_the_result_by_its_own(to, source, wide, x):
    bits, given_bits = int(to[1:]), int(source[1:])
    wide |= bits == 64
    a, d = "%rd10" if given_bits == 64 else "%r5", "%rd20" if wide else "%r20"
    code = f"cvt.u32.u64 %r5, %rd10; cvt.{to}.{source} {d}, {a};"
    got = elementwise(code, (x,), np.uint64 if wide else np.uint32)
    for value, z in zip(x.tolist(), got.tolist(), strict=True):
        value &= (1 << given_bits) - 1
        value = signed(value, given_bits) if source[0] == "s" else value
        value &= (1 << bits) - 1
        value = signed(value, bits) if to[0] == "s" else value
        assert z == value & (1 << (64 if wide else 32)) - 1


def test_a_rounded_number_is_extended_by_its_sign():
    x = np.full(32, -2.5, np.float32).view(np.uint32)
    assert (elementwise("mov.b32 %f1, %r10; cvt.rni.s32.f32 %rd20, %f1;", (x,), np.uint64) == 2**64 - 2).all()


@pytest.mark.parametrize("op", ["shl.b", "shr.u", "shr.s"])
@pytest.mark.parametrize("bits", [32, 64])
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_shifts_clamp_their_amount(op, bits, data):
    a, amount = data.draw(numbers(bits)), data.draw(numbers(32))
    r = "rd" if bits == 64 else "r"
    got = elementwise(f"{op}{bits} %{r}20, %{r}10, %r11;", (a, amount), a.dtype)
    for x, n, z in zip(a.tolist(), amount.tolist(), got.tolist(), strict=True):
        if op == "shl.b":
            want = x << n if n < bits else 0
        else:
            want = (signed(x, bits) if op == "shr.s" else x) >> min(n, bits)
        assert z == want & (1 << bits) - 1, (x, n)


@pytest.mark.parametrize("kind", ["s32", "u32"])
@settings(max_examples=5, deadline=None)
@given(a=numbers(32), b=numbers(32), c=numbers(64))
def test_wide_products_are_exact(kind, a, b, c):
    got = elementwise(f"mad.wide.{kind} %rd20, %r10, %r11, %rd12;", (a, b, c), np.uint64)
    fix = (lambda v: signed(v, 32)) if kind == "s32" else int
    want = [(fix(x) * fix(y) + z) % (1 << 64) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    assert got.tolist() == want
    got = elementwise(f"mul.wide.{kind} %rd20, %r10, -2048;", (a,), np.uint64)
    factor = -2048 if kind == "s32" else -2048 % (1 << 32)
    assert got.tolist() == [fix(x) * factor % (1 << 64) for x in a.tolist()]


@settings(max_examples=5, deadline=None)
@given(a=numbers(32), b=numbers(32))
def test_logic_and_selection(a, b):
    code = """and.b32 %r30, %r10, %r11; or.b32 %r31, %r10, 0x0f0f; xor.b32 %r32, %r30, %r31; not.b32 %r33, %r32;
    setp.lt.s32 %p1, %r10, %r11; setp.lt.u32 %p2, %r10, %r11; and.pred %p3, %p1, %p2; not.pred %p4, %p3;
    selp.b32 %r34, %r33, %r10, %p4; @!%p1 add.s32 %r34, %r34, 7; mov.b32 %r20, %r34;"""
    got = elementwise(code, (a, b), np.uint32)
    less_s, less_u = a.view(np.int32) < b.view(np.int32), a < b
    want = np.where(~(less_s & less_u), ~((a & b) ^ (a | 0x0F0F)), a)
    assert (got == want + np.where(less_s, 0, 7).astype(np.uint32)).all()


@pytest.mark.parametrize("compare", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_know_signs_and_nan(compare):
    import operator

    edges = np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32)
    a, b = (x.reshape(-1) for x in np.meshgrid(edges, edges))
    a, b = np.resize(a, 32), np.resize(b, 32)
    function = getattr(operator, compare)
    for kind, view in (("s32", np.int32), ("u32", np.uint32)):
        got = elementwise(f"setp.{compare}.{kind} %p1, %r10, %r11; selp.b32 %r20, 1, 0, %p1;", (a, b), np.uint32)
        assert (got == function(a.view(view), b.view(view))).all()
    x = np.resize(np.array([0.0, -0.0, 1.5, np.nan, np.inf], np.float32), 32)
    y = np.roll(x, 3)
    ordered = function(x, y) & ~np.isnan(x) & ~np.isnan(y)
    got = elementwise(f"setp.{compare}.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 0, %p1;", (x, y), np.uint32)
    assert (got == ordered).all()
    got = elementwise(f"setp.{compare}u.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 0, %p1;", (x, y), np.uint32)
    assert (got == (function(x, y) | np.isnan(x) | np.isnan(y))).all()


@settings(max_examples=5, deadline=None)
@given(a=numbers(32), b=numbers(64))
def test_integer_conversions(a, b):
    assert (elementwise("cvt.s64.s32 %rd20, %r10;", (a,), np.uint64).view(np.int64) == a.view(np.int32)).all()
    assert (elementwise("cvt.u64.u32 %rd20, %r10;", (a,), np.uint64) == a).all()
    assert (elementwise("cvt.u32.u64 %r20, %rd10;", (b,), np.uint32) == (b & 0xFFFFFFFF)).all()
    low = elementwise("mov.b32 {%h1, %h2}, %r10; mov.b32 %r20, {%h2, %h1};", (a,), np.uint32)
    assert (low == (a << 16 | a >> 16)).all()
    parts = elementwise("mov.b64 {%r1, %r2}, %rd10; mov.b64 %rd20, {%r2, %r1};", (b,), np.uint64)
    assert (parts == (b << np.uint64(32) | b >> np.uint64(32))).all()


def test_float_arithmetic_is_ieee():
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, (64, 2, 32), dtype=np.uint32)
    with np.errstate(all="ignore"):
        for a, b in bits.view(np.float32):
            for op, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
                got = elementwise(f"{op}.f32 %r20, %r10, %r11;", (a, b), np.float32)
                np.testing.assert_array_equal(got, function(a, b))
    for pattern in (0xBF800000, 0x00000000, 0x80000000, 0x7F800001):  # -1, both zeros, a signalling NaN
        code = f"mov.f32 %f1, 0f00000000; mov.f32 %r20, 0f{pattern:08X};"
        assert (elementwise(code, (a,), np.uint32) == pattern).all()


def bf16_oracle(values):
    """torch's rounding, with the hardware's NaN."""
    bits = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    return np.where(np.isnan(values), 0x7FFF, bits).astype(np.uint16)


def test_bf16_rounding_is_exact_for_every_exponent_tie_nan_and_subnormal():
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = (high[None] | low[:, None]).reshape(-1).view(np.float32)
    half = values[::-1].copy()
    threads, grid = 256, len(values) // 256
    body = """mov.u32 %r1, %ctaid.x; shl.b32 %r2, %r1, 8; add.s32 %r3, %r2, %r0; mul.wide.u32 %rd10, %r3, 4;
    add.s64 %rd11, %rd10, %rd0; add.s64 %rd12, %rd10, %rd1; add.s64 %rd13, %rd10, %rd2;
    ld.global.f32 %f1, [%rd11]; ld.global.f32 %f2, [%rd12];
    cvt.rn.bf16x2.f32 %r4, %f1, %f2; st.global.b32 [%rd13], %r4;"""
    out = np.zeros(len(values), np.uint32)
    run(kernel(body, "high low out", threads), values, half, out, grid=(grid, 1, 1), checks=False)
    assert (out >> 16 == bf16_oracle(values)).all()
    assert ((out & 0xFFFF).astype(np.uint16) == bf16_oracle(half)).all()


def test_bf16_widens_by_shifting():
    bits = np.arange(32, dtype=np.uint32) * 2027
    got = elementwise("cvt.u16.u32 %h1, %r10; cvt.f32.bf16 %f1, %h1; mov.b32 %r20, %f1;", (bits,), np.uint32)
    assert (got.view(np.float32) == from_bits(bits.astype(np.uint16))).all()


MASK32 = 0xFFFFFFFF


def as_ints(*arrays):
    return zip(*(a.tolist() for a in arrays), strict=True)


@settings(max_examples=8, deadline=None)
@given(a=numbers(32), b=numbers(32), c=numbers(32), table=st.integers(0, 255))
def test_lop3_looks_up_three_bits(a, b, c, table):
    got = elementwise(f"lop3.b32 %r20, %r10, %r11, %r12, {table};", (a, b, c), np.uint32)
    for x, y, z, w in as_ints(a, b, c, got):
        want = sum((table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1) & 1) << i for i in range(32))
        assert w == want


@settings(max_examples=8, deadline=None)
@given(a=numbers(32), b=numbers(32), c=numbers(32))
def test_prmt_picks_bytes_and_signs(a, b, c):
    got = elementwise("prmt.b32 %r20, %r10, %r11, %r12;", (a, b, c), np.uint32)
    for x, y, selector, w in as_ints(a, b, c, got):
        pool, want = (y << 32 | x).to_bytes(8, "little"), 0
        for i in range(4):
            nibble = selector >> 4 * i & 15
            byte = pool[nibble & 7]
            want |= (0xFF * (byte >> 7) if nibble & 8 else byte) << 8 * i
        assert w == want, hex(selector)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_bit_fields_are_extracted_and_inserted(kind, data):
    bits = int(kind[1:])
    a, b, start, count = (data.draw(numbers(n)) for n in (bits, bits, 32, 32))
    start, count = start & 0xFFFFFF4F, count & 0xFFFFFF4F  # only the low byte counts
    r = "rd" if bits == 64 else "r"
    got = elementwise(f"bfe.{kind} %{r}20, %{r}10, %r11, %r12;", (a, start, count), a.dtype)
    put = elementwise(f"bfi.b{bits} %{r}20, %{r}10, %{r}11, %r12, %r13;", (a, b, start, count), a.dtype)
    for x, y, s, n, w, v in as_ints(a, b, start, count, got, put):
        s, n = s & 255, n & 255
        wide = signed(x, bits) if kind[0] == "s" else x
        field = (wide >> s) & ((1 << n) - 1)
        if n and kind[0] == "s" and wide >> min(s + n - 1, bits - 1) & 1:
            field -= 1 << n
        assert w == field & (1 << bits) - 1, (x, s, n)
        mask = ((1 << n) - 1 << s) & (1 << bits) - 1
        assert v == (y & ~mask | x << s & mask) & (1 << bits) - 1, (x, y, s, n)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
@settings(max_examples=8, deadline=None)
@given(a=numbers(32), b=numbers(32), c=numbers(32))
def test_funnel_shifts_join_two_words(mode, a, b, c):
    left, right = (elementwise(f"shf.{s}.{mode}.b32 %r20, %r10, %r11, %r12;", (a, b, c), np.uint32) for s in "lr")
    for low, high, n, x, y in as_ints(a, b, c, left, right):
        n = n & 31 if mode == "wrap" else min(n, 32)
        both = high << 32 | low
        assert x == both << n >> 32 & MASK32 and y == both >> n & MASK32, n


@pytest.mark.parametrize("bits", [32, 64])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_bits_are_counted_and_reversed(bits, data):
    a, r = data.draw(numbers(bits)), "rd" if bits == 64 else "r"
    zeros = elementwise(f"clz.b{bits} %r20, %{r}10;", (a,), np.uint32)
    ones = elementwise(f"popc.b{bits} %r20, %{r}10;", (a,), np.uint32)
    turned = elementwise(f"brev.b{bits} %{r}20, %{r}10;", (a,), a.dtype)
    for x, z, o, t in as_ints(a, zeros, ones, turned):
        assert (z, o, t) == (bits - x.bit_length(), x.bit_count(), int(f"{x:0{bits}b}"[::-1], 2))


@settings(max_examples=5, deadline=None)
@given(a=numbers(32))
def test_warps_reduce_and_know_their_active_lanes(a):
    lane = np.arange(32)
    reductions = {
        "add.u32": a.sum(dtype=np.uint32),
        "min.u32": a.min(),
        "max.s32": a.view(np.int32).max(),
        "and.b32": np.bitwise_and.reduce(a),
        "or.b32": np.bitwise_or.reduce(a),
        "xor.b32": np.bitwise_xor.reduce(a),
    }
    for name, want in reductions.items():
        got = elementwise(f"redux.sync.{name} %r20, %r10, 0xffffffff;", (a,), np.uint32)
        assert (got == np.array(want).astype(np.int64).astype(np.uint32)).all(), name
    code = """mov.b32 %r20, 0; setp.lt.u32 %p1, %r10, 5; @%p1 bra LOW; activemask.b32 %r20; bra.uni END;
        LOW: activemask.b32 %r20; END:"""
    got = elementwise(code, (lane.astype(np.uint32),), np.uint32)
    assert (got == np.where(lane < 5, 0x1F, MASK32 ^ 0x1F)).all()


def test_float_extremes_signs_and_conversions():
    x = np.resize(np.array([0.5, 1.5, -2.5, -0.0, 3e9, -3e9, np.nan, np.inf, -np.inf, 1e-40, 7.99], np.float32), 32)
    y = np.roll(x, 5)
    with np.errstate(all="ignore"):
        for code, want in (
            ("min.f32 %r20, %r10, %r11;", np.fmin(x, y)),
            ("max.f32 %r20, %r10, %r11;", np.fmax(x, y)),
            ("max.NaN.f32 %r20, %r10, %r11;", np.maximum(x, y)),
            ("neg.f32 %r20, %r10;", -x),
            ("abs.f32 %r20, %r10;", np.abs(x)),
            ("fma.rn.f32 %r20, %r10, %r11, %r10;", (x.astype(np.float64) * y + x).astype(np.float32)),
            ("cvt.f64.f32 %rd5, %r10; cvt.rn.f32.f64 %r20, %rd5;", x),
        ):
            np.testing.assert_array_equal(elementwise(code, (x, y), np.float32), want, code)
    for mode, function in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        whole = function(np.where(np.isnan(x), 0, x.astype(np.float64)))
        got = elementwise(f"cvt.{mode}.s32.f32 %r20, %r10;", (x,), np.int32)
        assert (got == np.clip(whole, -(2.0**31), 2.0**31 - 1)).all()
        got = elementwise(f"cvt.{mode}.u32.f32 %r20, %r10;", (x,), np.uint32)
        assert (got == np.clip(whole, 0, 2.0**32 - 1)).all()
    for compare, want in (("num", ~np.isnan(x) & ~np.isnan(y)), ("nan", np.isnan(x) | np.isnan(y))):
        got = elementwise(f"setp.{compare}.f32 %p1, %r10, %r11; selp.b32 %r20, 1, 0, %p1;", (x, y), np.uint32)
        assert (got == want).all()
