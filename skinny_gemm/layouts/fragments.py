"""Which lane of a warp holds which matrix element, by the PTX ISA of `ldmatrix.x4`, `mma.sync.m16n8k16` and `wgmma`."""

from collections.abc import Sequence

from . import Index

MMA_M = 16  #: weight rows (features) of one mma
MMA_N = 8  #: tokens of one mma
MMA_K = 16  #: K of one mma
WARPGROUP = 4  #: warps that execute one `wgmma` together, the first a multiple of 4
WGMMA_M = WARPGROUP * MMA_M  #: rows of one wgmma
WGMMA_N = range(8, 257, 8)  #: columns that one wgmma can have


def a_element(lane: Index, register: Index, half: Index) -> tuple[Index, Index]:
    """(row, k) of the 16x16 A matrix held by `lane` in 32-bit `register` 0..3, BF16 `half` 0 (low) or 1."""
    return (lane >> 2) + 8 * (register & 1), 2 * (lane & 3) + half + 8 * (register >> 1)


def b_element(lane: Index, register: Index, half: Index) -> tuple[Index, Index]:
    """(k, column) of the 16x8 B matrix held by `lane` in 32-bit `register` 0..1, BF16 `half` 0 (low) or 1."""
    return 2 * (lane & 3) + half + 8 * register, lane >> 2


def c_element(lane: Index, word: Index) -> tuple[Index, Index]:
    """(row, column) of the 16x8 accumulator held by `lane` in FP32 `word` 0..3."""
    return (lane >> 2) + 8 * (word >> 1), 2 * (lane & 3) + (word & 1)


def wgmma_element(warp: Index, lane: Index, word: Index) -> tuple[Index, Index]:
    """(row, column) of the 64xN accumulator that `lane` of the `warp`-th warp 0..3 holds in FP32 `word` 0..N/2-1."""
    row, column = c_element(lane, word & 3)
    return MMA_M * warp + row, MMA_N * (word >> 2) + column


def ldmatrix_destination(lane: Index) -> tuple[Index, Index]:
    """(register, first of four lanes) that the 16 bytes addressed by `lane` of an `ldmatrix.x4` fill, 4 bytes each."""
    return lane >> 3, 4 * (lane & 7)


def plane_word(row: Index, token: Index) -> Index:
    """FP32 word of (row, token 0..7) of accumulators kept in shared memory: a row of 8 words each.

    With the row's low two bits XOR-ed by those of `row div 4`, stores of two words a lane in accumulator order and
    loads of one word a lane (rows 4q + r at fixed r, all tokens) touch all 32 banks once, with no padding words.
    """
    return (row ^ ((row >> 2) & 3)) * 8 + token


# A permuted K, for operands that take no `ldmatrix`: a lane loads 16 consecutive bytes of a row, and the words of that
# one load are fragments of two mma. A and B are permuted alike, so every product meets its partner.

K_BLOCK = 32  #: K elements that four lanes load of a row, 16 bytes each: two mma


def load_row(lane: Index) -> Index:
    """Row of the weight tile (and 8 more: its second load), or token of the token tile, that `lane` loads."""
    return lane >> 2


def a_words(mma: int, low: Sequence[Index], high: Sequence[Index]) -> tuple[Index, Index, Index, Index]:
    """The A fragment of mma 0 or 1 of a K block: from a lane's words of weight rows g (`low`) and g + 8 (`high`)."""
    return low[2 * mma], high[2 * mma], low[2 * mma + 1], high[2 * mma + 1]


def b_words(mma: int, words: Sequence[Index]) -> tuple[Index, Index]:
    """The B fragment of mma 0 or 1 of a K block, from a lane's four words of its token's row."""
    return words[2 * mma], words[2 * mma + 1]


def k_element(mma: Index, k: Index) -> Index:
    """Which K element 0..31 of a block, of A and B alike, sits where mma 0 or 1 expects its k 0..15."""
    return 8 * ((k >> 1) & 3) + 4 * mma + 2 * (k >> 3) + (k & 1)
