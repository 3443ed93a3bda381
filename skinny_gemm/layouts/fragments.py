"""Which lane of a warp holds which BF16 matrix element, by the PTX ISA of `ldmatrix.x4` and `mma.sync.m16n8k16`."""

from . import Index

MMA_M = 16  #: weight rows (features) of one mma
MMA_N = 8  #: tokens of one mma
MMA_K = 16  #: K of one mma


def a_element(lane: Index, register: Index, half: Index) -> tuple[Index, Index]:
    """(row, k) of the 16x16 A matrix held by `lane` in 32-bit `register` 0..3, BF16 `half` 0 (low) or 1."""
    return (lane >> 2) + 8 * (register & 1), 2 * (lane & 3) + half + 8 * (register >> 1)


def b_element(lane: Index, register: Index, half: Index) -> tuple[Index, Index]:
    """(k, column) of the 16x8 B matrix held by `lane` in 32-bit `register` 0..1, BF16 `half` 0 (low) or 1."""
    return 2 * (lane & 3) + half + 8 * register, lane >> 2


def c_element(lane: Index, word: Index) -> tuple[Index, Index]:
    """(row, column) of the 16x8 accumulator held by `lane` in FP32 `word` 0..3."""
    return (lane >> 2) + 8 * (word >> 1), 2 * (lane & 3) + (word & 1)


def ldmatrix_destination(lane: Index) -> tuple[Index, Index]:
    """(register, first of four lanes) that the 16 bytes addressed by `lane` of an `ldmatrix.x4` fill, 4 bytes each."""
    return lane >> 3, 4 * (lane & 7)


def plane_word(row: Index, token: Index) -> Index:
    """FP32 word of (row, token 0..7) of accumulators kept in shared memory: a row of 8 words each.

    With the row's low two bits XOR-ed by those of `row div 4`, stores of two words a lane in accumulator order and
    loads of one word a lane (rows 4q + r at fixed r, all tokens) touch all 32 banks once, with no padding words.
    """
    return (row ^ ((row >> 2) & 3)) * 8 + token
