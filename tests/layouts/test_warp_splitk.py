"""Layouts: every offset is a bijection, every fragment is the one mma.sync wants, and no phase has bank conflicts.

Oracles are independent of the layouts: a matrix is stored through the loader's chunk map and read back through the
`ldmatrix` addresses and the PTX ISA's fragment maps, and must multiply like NumPy's.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.layouts import banks, fragments, swizzle
from skinny_gemm.layouts import end as end_of
from skinny_gemm.layouts import warp_splitk as layout

K_TILES = (128, 256)
LANES = np.arange(32)


@pytest.mark.parametrize("k_tile", K_TILES)
@pytest.mark.parametrize("rows", (8, 16, 32))
def test_the_swizzle_is_a_bijection_that_keeps_rows_and_chunks(rows, k_tile):
    row, col = np.mgrid[0:rows, 0:k_tile]
    offset = swizzle.tile_offset(row, col, k_tile)
    assert sorted(offset.ravel()) == list(range(rows * k_tile))
    assert (offset // k_tile == row).all()
    assert (offset % swizzle.CHUNK == col % swizzle.CHUNK).all(), "16-byte chunks must stay whole"


@given(st.integers(0, 31), st.sampled_from(K_TILES), st.data())
def test_plain_integers_and_arrays_give_the_same_offset(row, k_tile, data):
    col = data.draw(st.integers(0, k_tile - 1))
    assert swizzle.tile_offset(row, col, k_tile) == swizzle.tile_offset(np.array(row), np.array(col), k_tile)


@pytest.mark.parametrize("threads", (32, 64))
@pytest.mark.parametrize("k_tile", K_TILES)
@pytest.mark.parametrize("rows", (8, 16, 32))
def test_loaders_copy_every_chunk_once_and_a_warp_reads_whole_lines(rows, k_tile, threads):
    chunks = layout.loader_chunks(rows, threads, k_tile)
    row, col = layout.loader_chunk(np.arange(threads)[:, None], np.arange(chunks)[None], threads, k_tile)
    linear = row * k_tile + col
    assert sorted(linear.ravel()) == list(range(0, rows * k_tile, swizzle.CHUNK))
    for first in range(0, threads, 8):  # eight threads, one 128-byte line of global memory
        assert (np.diff(linear[first : first + 8], axis=0) == swizzle.CHUNK).all()


@pytest.mark.parametrize("threads", (32, 64))
@pytest.mark.parametrize("k_tile", K_TILES)
def test_a_loader_thread_steps_by_constants(k_tile, threads):
    row, col = layout.loader_chunk(np.arange(threads)[:, None], np.arange(4)[None], threads, k_tile)
    first_row, first_col = layout.loader_chunk(np.arange(threads)[:, None], 0, threads, k_tile)
    step, _ = layout.loader_chunk(0, np.arange(4)[None], threads, k_tile)
    assert (row == first_row + step).all() and (col == first_col).all()


def stored(matrix, k_tile):
    """The stage of shared memory that holds `matrix`, element by element through `tile_offset`."""
    memory = np.empty(matrix.size)
    row, col = np.indices(matrix.shape)
    memory[swizzle.tile_offset(row, col, k_tile)] = matrix
    return memory


def ldmatrix_element(lane, half):
    """(row, column) inside one 8x8 matrix that `ldmatrix` leaves in `lane`'s register, BF16 `half` 0 or 1."""
    return lane >> 2, 2 * (lane & 3) + half


def ldmatrix_x4(memory, offsets):
    """What `ldmatrix.x4` leaves in (lane, register, half), given each lane's row address: by the PTX ISA's words."""
    registers = np.empty((32, 4, 2))
    for matrix in range(4):
        for lane in range(32):
            for half in range(2):
                row, col = ldmatrix_element(lane, half)
                registers[lane, matrix, half] = memory[offsets[8 * matrix + row] + col]
    return registers


def test_ldmatrix_destination_is_ldmatrix_element_seen_from_the_other_side():
    for lane in range(32):
        register, first = fragments.ldmatrix_destination(lane)
        assert register == lane // 8
        held = [ldmatrix_element(first + i, half) for i in range(4) for half in range(2)]
        assert held == [(lane % 8, column) for column in range(8)]


@pytest.mark.parametrize("k_tile", K_TILES)
@pytest.mark.parametrize("output_tile", (16, 32))
@pytest.mark.parametrize("token_tile", (8, 16, 32))
def test_ldmatrix_fragments_multiply_like_numpy(output_tile, token_tile, k_tile):
    """One stage, all four compute warps: the fragments read through the layout give exactly weight @ x^T."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 8, (output_tile, k_tile)).astype(float)
    x = rng.integers(-8, 8, (token_tile, k_tile)).astype(float)
    a_memory, b_memory = stored(weight, k_tile), stored(x, k_tile)
    total = np.zeros((output_tile, token_tile))
    lane, register, half = np.mgrid[0:32, 0:4, 0:2]
    for warp in range(layout.COMPUTE_WARPS):
        for phase in range(k_tile // 64):
            for i in range(output_tile // 16):
                registers = ldmatrix_x4(a_memory, layout.a_offset(warp, i, phase, LANES, k_tile))
                a = np.full((16, 16), np.nan)
                a[fragments.a_element(lane, register, half)] = registers
                for j in range(token_tile // 8):
                    pair, odd = divmod(phase, 2)
                    registers = ldmatrix_x4(b_memory, layout.b_offset(warp, j, pair, LANES, k_tile))
                    b = np.full((16, 8), np.nan)
                    b[fragments.b_element(*np.mgrid[0:32, 0:2, 0:2])] = registers[:, 2 * odd : 2 * odd + 2]
                    c = a @ b
                    words = np.mgrid[0:32, 0:4]
                    feature, token = layout.accumulator_element(i, j, *words)
                    total[feature, token] += c[fragments.c_element(*words)]
    assert (total == weight @ x.T).all()


@pytest.mark.parametrize("k_tile", K_TILES)
def test_ldmatrix_has_no_bank_conflicts_and_without_the_swizzle_has_eightfold_ones(k_tile):
    for warp in range(layout.COMPUTE_WARPS):
        for phase in range(k_tile // 64):
            row, col = layout.a_ldmatrix(warp, 0, phase, LANES, k_tile)
            swizzled = banks.wavefronts(2 * swizzle.tile_offset(row, col, k_tile), 16)
            plain = banks.wavefronts(2 * swizzle.plain_offset(row, col, k_tile), 16)
            assert (swizzled, plain) == (4, 32), "one wavefront per 8x8 matrix; unswizzled, each row collides"


@pytest.mark.parametrize("output_tile", (16, 32))
@pytest.mark.parametrize("token_tile", (8, 16, 32))
class TestPartials:
    def test_the_mailbox_is_a_bijection(self, output_tile, token_tile):
        feature, token = np.mgrid[0:output_tile, 0:token_tile]
        word = layout.partial_word(feature, token, output_tile)
        assert sorted(word.ravel()) == list(range(output_tile * token_tile))

    def test_pairs_of_tokens_are_adjacent_and_aligned(self, output_tile, token_tile):
        feature, token = np.mgrid[0:output_tile, 0:token_tile:2]
        word = layout.partial_word(feature, token, output_tile)
        assert (word % 2 == 0).all() and (layout.partial_word(feature, token + 1, output_tile) == word + 1).all()

    def test_stores_and_loads_have_no_bank_conflicts(self, output_tile, token_tile):
        for i in range(output_tile // 16):
            for j in range(token_tile // 8):
                for word in (0, 2):
                    feature, token = layout.accumulator_element(i, j, LANES, word)
                    addresses = 4 * layout.partial_word(feature, token, output_tile)
                    assert banks.wavefronts(addresses, 8) == 2, "two half-warps of eight bytes a lane"
        for first in range(0, layout.reduce_units(output_tile, token_tile), 32):
            feature, token = layout.reduce_unit(first + LANES, output_tile)
            for f in range(layout.FEATURES_PER_UNIT):
                assert banks.wavefronts(4 * layout.partial_word(feature + f, token, output_tile), 4) == 1

    def test_units_cover_the_tile_once_and_fill_sectors(self, output_tile, token_tile):
        unit = np.arange(layout.reduce_units(output_tile, token_tile))
        feature, token = layout.reduce_unit(unit, output_tile)
        covered = {(f + i, t) for f, t in zip(feature, token, strict=True) for i in range(layout.FEATURES_PER_UNIT)}
        assert covered == {(f, t) for f in range(output_tile) for t in range(token_tile)}
        for first in range(0, len(unit), 32):
            warp = slice(first, first + 32)
            sectors = {(t, f // 16) for f, t in zip(feature[warp], token[warp], strict=True)}
            assert len(sectors) == 8, "a warp's 256 bytes of output fill eight 32-byte sectors"


def test_shared_memory_regions_are_aligned_disjoint_and_in_order():
    for tile in ((16, 8, 128, 1), (32, 32, 256, 5), (16, 8, 256, 16)):
        end = 0
        for (name, offset, size), align in zip(layout.smem_regions(*tile), (1024, 1024, 16, 8, 8), strict=True):
            assert offset % align == 0 and offset >= end, name
            end = offset + size
        assert end == end_of(layout.smem_regions(*tile))
