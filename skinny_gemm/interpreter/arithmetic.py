"""Arithmetic on register values.

A register of a group of warps is an array (CTAs | 1, warps | 1, lanes | 1) of unsigned bits, or of bools for a
predicate; a dimension of 1 means that all share the value. Types are views.
"""

from typing import Any

import numpy as np
from numpy import ndarray

from ..layouts import WARP

U2, U4, U8 = np.uint16, np.uint32, np.uint64
I4, I8, F4 = np.int32, np.int64, np.float32

TRUE = np.ones((1, 1, 1), bool)
FALSE = np.zeros((1, 1, 1), bool)
LANES = np.arange(WARP, dtype=U4).reshape(1, 1, WARP)
ELECTED = LANES == 0
ZERO = np.zeros((1, 1, 1), U4)


class Accumulator:
    """The N / 2 registers of a product, kept as `tile` (CTAs, warps, 16 rows, N columns) float32 until they are read:
    N is 8 for an mma."""

    __slots__ = ("columns", "tile", "words")

    def __init__(self, tile: Any):
        self.tile, self.columns = tile, tile.shape[3]
        self.words: ndarray | None = None

    def word(self, v: int) -> ndarray:
        """Register `v` as bits: lane l holds row l div 4 + 8 (v div 2 mod 2), and of the 8 columns from 8 (v div 4) on
        number 2 (l mod 4) + v mod 2."""
        if self.words is None:
            c, w, _, n = self.tile.shape
            parts = self.tile.view(U4).reshape(c, w, 2, 8, n // 8, 4, 2).transpose(4, 2, 6, 0, 1, 3, 5)
            self.words = parts.reshape(n // 2, c, w, WARP)
        return self.words[v]

    def select(self, rows: ndarray | None, warps: ndarray | None) -> "Accumulator":
        """See `select`."""
        return Accumulator(select(self.tile, rows, warps))


class Word:
    """Register `v` of an `Accumulator`, not yet read by anything but the next mma or wgmma."""

    __slots__ = ("accumulator", "v")

    def __init__(self, accumulator: Accumulator, v: int):
        self.accumulator, self.v = accumulator, v


def bits(value: Any) -> ndarray:
    """The bits of a register that may still be a `Word`."""
    return value.accumulator.word(value.v) if value.__class__ is Word else value


def select(array: ndarray, rows: ndarray | None, warps: ndarray | None) -> ndarray:
    """The part of a value that belongs to some rows (CTAs) and warps of its group; None keeps all."""
    if rows is not None and array.shape[0] > 1:
        array = array[rows]
    if warps is not None and array.shape[1] > 1:
        array = array[:, warps]
    return array


def select_registers(
    registers: list, rows: ndarray | None, warps: ndarray | None, accumulators: dict[Accumulator, Accumulator]
) -> list:
    """`select` for a list of registers (None where undefined); `Word`s that share an accumulator still do.

    `accumulators` maps each to its part, and gains those that turn up.
    """
    out = registers.copy()
    for i, value in enumerate(registers):
        if value.__class__ is Word:
            whole = value.accumulator
            if whole not in accumulators:
                accumulators[whole] = whole.select(rows, warps)
            out[i] = Word(accumulators[whole], value.v)
        elif value is not None:
            out[i] = select(value, rows, warps)
    return out


def words(raw: ndarray, count: int, dtype: type) -> list[ndarray]:
    """The `count` words of `dtype` that each element of `raw` consists of, first in memory first."""
    parts: ndarray = np.ascontiguousarray(raw).view(dtype).reshape(*raw.shape, count)
    return [parts[..., i] for i in range(count)]


def merge(mask: ndarray, new: Any, old: Any) -> Any:
    """`new` where `mask`, else `old`; `new` alone where `old` was never written."""
    if old is None:
        return new
    return np.where(mask, bits(new), bits(old))


def _lanes(register: Any) -> ndarray:
    """The bits of a register, (CTAs, warps, 8, 4 lanes)."""
    array = bits(register)
    return np.broadcast_to(array, (*array.shape[:2], WARP)).reshape(*array.shape[:2], 8, 4)


def accumulator_of(words: tuple) -> Accumulator | None:
    """The accumulator whose registers `words` are, all of them in order; None if there is none."""
    if words[0].__class__ is not Word:
        return None
    whole = words[0].accumulator
    same = all(w.__class__ is Word and w.accumulator is whole and w.v == v for v, w in enumerate(words))
    return whole if same and whole.columns == 2 * len(words) else None


def accumulator_tile(words: tuple) -> ndarray | None:
    """The float32 tile (CTAs, warps, 16, N) of N / 2 accumulator registers, or None if they are all zero."""
    whole = accumulator_of(words)
    if whole is not None:
        return whole.tile
    if all(w.__class__ is ndarray and w.size == 1 and not w.any() for w in words):
        return None
    lanes = [_lanes(word) for word in words]
    c, w = (max(x.shape[axis] for x in lanes) for axis in (0, 1))
    tile = np.empty((c, w, 2, 8, len(words) // 4, 4, 2), U4)
    for v, word in enumerate(lanes):
        tile[:, :, v >> 1 & 1, :, v >> 2, :, v & 1] = word
    return tile.reshape(c, w, 16, 2 * len(words)).view(F4)


def mma(a: ndarray, b: ndarray, words: tuple) -> tuple[Word, Word, Word, Word]:
    """a @ b^T + the accumulator `words`, as four `Word`s.

    `a` (CTAs, warps, 16, K) and `b` (CTAs, warps, 8, K) are float32 values of BF16. The order of the additions: one
    float32 dot product over K in the order of the host's BLAS, then the accumulator. K is 16 times the number of
    mma in an unbroken run on one accumulator; products of BF16 are exact in float32.
    """
    tile = np.matmul(a, b.swapaxes(-1, -2))
    start = accumulator_tile(words)
    if start is not None:
        tile = np.add(tile, start, out=tile if tile.shape == np.broadcast_shapes(tile.shape, start.shape) else None)
    accumulator = Accumulator(tile)
    return Word(accumulator, 0), Word(accumulator, 1), Word(accumulator, 2), Word(accumulator, 3)


def fragment(registers: tuple, rows: int) -> ndarray:
    """Registers of an A (`rows` 16, four) or B (`rows` 8, two) operand as a float32 matrix (CTAs, warps, rows, 16)."""
    lanes = [_lanes(register) for register in registers]
    c, w = (max(x.shape[axis] for x in lanes) for axis in (0, 1))
    pairs = np.empty((c, w, rows // 8, 8, 2, 4), U4)
    for i, register in enumerate(lanes):
        pairs[:, :, i % (rows // 8), :, 8 * i // rows] = register
    wide = pairs.view(U2).astype(U4)  # the low half of a pair is first
    wide <<= 16
    return wide.view(F4).reshape(c, w, rows, 16)


def bf16_bits(value: ndarray) -> ndarray:
    """float32 bits -> BF16 bits (uint32), round to nearest even; every NaN becomes 0x7fff as on the hardware."""
    rounded = (value + (((value >> 16) & U4(1)) + U4(0x7FFF))) >> 16
    return np.where((value & U4(0x7FFFFFFF)) > U4(0x7F800000), U4(0x7FFF), rounded)


def bf16x2(high: ndarray, low: ndarray) -> ndarray:
    """`cvt.rn.bf16x2.f32`: the first source is the high half."""
    return (bf16_bits(high) << 16) | bf16_bits(low)


def shift_left(value: ndarray, amount: ndarray) -> ndarray:
    """`shl`: amounts past the width give 0, as NumPy's do."""
    return value << np.minimum(amount, U4(64)).astype(value.dtype)


def shift_right(value: ndarray, amount: ndarray) -> ndarray:
    """`shr` of a signed or unsigned view: amounts past the width give the sign or 0, as NumPy's do."""
    return value >> np.minimum(amount, U4(64)).astype(value.dtype)


def divide(a: ndarray, b: ndarray) -> ndarray:
    """Integer division that truncates; by zero all bits are set, as on the hardware."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, ~a.dtype.type(0), (a - np.fmod(a, safe)) // safe)


def remainder(a: ndarray, b: ndarray) -> ndarray:
    """`a - (a / b) * b` with the truncating division; the dividend where `b` is zero."""
    return np.where(b == 0, a, np.fmod(a, b))


def multiply_high(a: ndarray, b: ndarray) -> ndarray:
    """The upper half of the product of two integer views."""
    size = a.dtype.itemsize
    if size < 8:
        wide = I8 if a.dtype.kind == "i" else U8
        return (a.astype(wide) * b.astype(wide) >> wide(8 * size)).astype(a.dtype)
    return (a.astype(object) * b.astype(object) >> 64).astype(a.dtype)  # Python's integers


def packed(function: Any, a: ndarray, b: ndarray, kind: str) -> ndarray:
    """`function` of the two halves of 32-bit values, each of which is a number of `kind`, u16x2 or s16x2."""
    dtype = np.int16 if kind[0] == "s" else U2
    low, high = (function(*(x.astype(U2).view(dtype) for x in half)).view(U2) for half in ((a, b), (a >> 16, b >> 16)))
    return high.astype(U4) << 16 | low


def shuffle(mode: str, value: ndarray, b: ndarray, c: ndarray) -> tuple[ndarray, ndarray]:
    """`shfl.sync`: (value from the source lane, whether that lane was in range).

    `mode` is idx, up, down or bfly; `c` packs the clamp (bits 0-4) and the segment mask (bits 8-12).
    """
    lane, b, c = LANES.astype(I8), b.astype(I8) & 31, c.astype(I8)
    segment = c >> 8 & 31
    last = (lane & segment) | (c & 31 & ~segment)
    if mode == "idx":
        source = (lane & segment) | (b & ~segment)
    else:
        source = {"up": np.subtract, "down": np.add, "bfly": np.bitwise_xor}[mode](lane, b)
    valid = source >= last if mode == "up" else source <= last
    source = np.where(valid, source, lane)
    if value.shape[2] == 1:
        return value, valid
    if source.size == WARP:
        order = source.reshape(-1)
        same = (order == order[0]).all()
        return (value[:, :, order[0] : order[0] + 1] if same else value[:, :, order]), valid
    value, source = np.broadcast_arrays(value, source)
    return np.take_along_axis(value, source, axis=2), valid


def vote(mode: str, predicate: ndarray, mask: ndarray) -> ndarray:
    """`vote.sync` over the lanes in `mask` (a bool array): `any`, `all`, `uni` as predicate, `ballot` as bits."""
    shape = (*np.broadcast_shapes(predicate.shape, mask.shape)[:2], WARP)
    predicate, mask = np.broadcast_to(predicate, shape), np.broadcast_to(mask, shape)
    voted = predicate & mask
    if mode == "ballot":
        return (voted.astype(U4) << LANES).sum(axis=2, keepdims=True, dtype=U4)
    some, every = voted.any(axis=2, keepdims=True), (predicate | ~mask).all(axis=2, keepdims=True)
    return {"any": some, "all": every, "uni": every | ~some}[mode]


def lane_mask(membermask: ndarray) -> ndarray:
    """A 32-bit member mask as a bool array over lanes."""
    return (membermask >> LANES) & U4(1) != 0


def reduce_lanes(name: str, value: ndarray, members: ndarray) -> ndarray:
    """`redux.sync`: one value per warp, over the lanes in `members`."""
    value, members, _ = np.broadcast_arrays(value, members, LANES)
    function = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                "xor": np.bitwise_xor}[name]  # fmt: skip
    info = np.iinfo(value.dtype)
    start = {"min": info.max, "max": info.min, "and": info.max}.get(name, 0)
    return function.reduce(value, axis=2, keepdims=True, dtype=value.dtype, initial=start, where=members)


def to_integer(value: ndarray, mode: str, dtype: type) -> ndarray:
    """`cvt` of float32 values to u32 or s32 (`dtype`): rounded by `mode`, saturating; NaN gives 0."""
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode](value)
    limits = np.iinfo(dtype)
    return np.clip(np.nan_to_num(rounded.astype(np.float64)), limits.min, limits.max).astype(I8).astype(dtype)


# Bits


def lop3(a: ndarray, b: ndarray, c: ndarray, table: int) -> ndarray:
    """Bit i of the result is the bit of `table` that the i-th bits of a, b, c (most significant first) number."""
    out = ZERO
    for i in range(8):
        if table >> i & 1:
            out = out | (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out


def permute_bytes(a: ndarray, b: ndarray, selector: ndarray) -> ndarray:
    """`prmt`: each nibble of `selector` picks one of the eight bytes b:a; with its top bit set, that byte's sign."""
    pool = b.astype(U8) << U8(32) | a.astype(U8)
    out = ZERO
    for i in range(4):
        nibble = selector >> U4(4 * i) & U4(15)
        byte = (pool >> (nibble & U4(7)).astype(U8) * U8(8)).astype(U4) & U4(255)
        sign = np.where(byte & U4(128), U4(255), U4(0))
        out = out | np.where(nibble & U4(8), sign, byte) << U4(8 * i)
    return out


def extract_bits(value: ndarray, start: ndarray, count: ndarray) -> ndarray:
    """`bfe` of a signed or unsigned view: the field at bit `start` (both modulo 256), sign-extended where signed."""
    width = value.dtype.itemsize * 8
    start, count = (np.minimum(x & U4(255), U4(width)) for x in (start, count))
    above = U4(width) - np.minimum(start + count, U4(width))  # bits above the field
    return np.where(count == 0, value.dtype.type(0), shift_right(shift_left(value, above), above + start))


def insert_bits(a: ndarray, b: ndarray, start: ndarray, count: ndarray) -> ndarray:
    """`bfi`: `b` with the low `count` bits of `a` at bit `start`."""
    width = a.dtype.itemsize * 8
    start, count = (np.minimum(x & U4(255), U4(width)) for x in (start, count))
    field = shift_left(~shift_left(np.full((1, 1, 1), ~a.dtype.type(0)), count), start)
    return shift_left(a, start) & field | b & ~field


def funnel_shift(low: ndarray, high: ndarray, amount: ndarray, side: str, mode: str) -> ndarray:
    """`shf`: 32 bits of high:low, shifted left ("l", the upper word) or right (the lower); `mode` wrap or clamp."""
    amount = amount & U4(31) if mode == "wrap" else np.minimum(amount, U4(32))
    both = high.astype(U8) << U8(32) | low.astype(U8)
    shifted = both << amount.astype(U8) >> U8(32) if side == "l" else both >> amount.astype(U8)
    return shifted.astype(U4)


def leading_zeros(value: ndarray) -> ndarray:
    """`clz` of 32 or 64 bits."""
    width = value.dtype.itemsize * 8
    for step in (1, 2, 4, 8, 16, 32)[: width.bit_length() - 1]:
        value = value | value >> value.dtype.type(step)  # ends with every bit set below the highest one
    return U4(width) - np.bitwise_count(value)


def reverse_bits(value: ndarray) -> ndarray:
    """`brev` of 32 or 64 bits."""
    in_bytes = np.packbits(np.unpackbits(np.ascontiguousarray(value).view(np.uint8), bitorder="little"))
    return in_bytes.view(value.dtype).reshape(value.shape).byteswap()
