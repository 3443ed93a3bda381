"""Layouts of the weight-stationary GEMM: the K permutation is harmless, regions are bijections, no phase conflicts.

Oracles are independent of the layouts: a K block is multiplied through the PTX ISA's fragment maps and must give
NumPy's product; the settle pipeline's bookkeeping is replayed by hand.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.layouts import banks, fragments
from skinny_gemm.layouts import end as end_of
from skinny_gemm.layouts import ws_gemm as layout

LANES = np.arange(32)


def block_loads(matrix):
    """Per lane the four 32-bit words (pairs of elements) that it loads of a `[8, 32]` K block: `[32, 4, 2]`."""
    row, column = fragments.load_row(LANES), layout.k_column(0, 0, LANES, 1)
    return np.stack([matrix[row, column + i] for i in range(8)], axis=1).reshape(32, 4, 2)


def test_two_mma_on_permuted_fragments_are_the_product_of_the_block():
    """Fragments built from contiguous 16-byte loads, multiplied as the ISA lays them out, equal W @ x^T."""
    random = np.random.default_rng(0)
    weight, x = random.integers(-8, 8, (16, 32)), random.integers(-8, 8, (8, 32))
    low, high, words = (block_loads(part).swapaxes(0, 1) for part in (weight[:8], weight[8:], x))
    result = np.zeros((16, 8), int)
    for mma in (0, 1):
        a, b = np.zeros((16, 16), int), np.zeros((16, 8), int)
        for register, word in enumerate(fragments.a_words(mma, low, high)):
            for half in (0, 1):
                a[fragments.a_element(LANES, register, half)] = word[:, half]
        for register, word in enumerate(fragments.b_words(mma, words)):
            for half in (0, 1):
                b[fragments.b_element(LANES, register, half)] = word[:, half]
        # The permutation as the layout states it, for A and B alike.
        assert (a == weight[:, fragments.k_element(mma, np.arange(16))]).all()
        assert (b.T == x[:, fragments.k_element(mma, np.arange(16))]).all()
        result += a @ b
    assert (result == weight @ x.T).all()


def test_the_permutation_is_a_bijection():
    assert sorted(fragments.k_element(mma, k) for mma in (0, 1) for k in range(16)) == list(range(32))


@given(st.sampled_from([1, 2, 4, 16]), st.integers(1, 16), st.integers(1, 14))
def test_parts_and_blocks_cover_k_once(ks, kq, kb):
    part, block, lane = np.mgrid[0 : ks * kq, 0:kb, 0:4]
    columns = layout.k_column(part, block, lane, kb)[..., None] + np.arange(8)
    assert sorted(columns.ravel()) == list(range(32 * kb * kq * ks))


def test_a_load_covers_64_contiguous_bytes_of_each_row():
    column = layout.k_column(3, 2, LANES, 7)
    for row in range(8):
        assert sorted(column[fragments.load_row(LANES) == row]) == [column.min() + 8 * i for i in range(4)]


@given(st.integers(1, 6), st.integers(1, 14))
def test_staged_blocks_are_a_bijection_without_conflicts(warps, staged):
    warp, block, half, lane = np.mgrid[0:warps, 0:staged, 0:2, 0:32]
    offset = layout.stage_offset(warp, block, half, lane, staged)
    assert sorted(offset.ravel()) == list(range(0, warps * staged * 1024, 16))
    assert (banks.wavefronts(offset, 16) == 4).all()


@given(st.integers(1, 16), st.integers(1, 3))
def test_x_rows_never_overlap_and_loads_have_no_conflicts(slice_blocks, tiles):
    k_slice = 32 * slice_blocks
    token, chunk = np.mgrid[0 : 8 * tiles, 0 : k_slice // 8]
    offset = layout.x_offset(token, 8 * chunk, k_slice)
    assert len(set(offset.ravel())) == offset.size and (offset % 16 == 0).all()
    assert offset.max() + 16 <= 8 * tiles * layout.x_pitch(k_slice)
    for tile in range(tiles):
        for block in range(slice_blocks):
            rows, columns = 8 * tile + fragments.load_row(LANES), layout.k_column(0, block, LANES, slice_blocks)
            assert banks.wavefronts(layout.x_offset(rows, columns, k_slice), 16) == 4
    if slice_blocks % 2 == 0:  # without the 64 bytes, two rows of a phase would share their banks
        plain = fragments.load_row(LANES) * 2 * k_slice + 2 * layout.k_column(0, 0, LANES, 1)
        assert banks.wavefronts(plain, 16) == 8


def test_parts_have_no_conflicts():
    assert (banks.wavefronts(layout.part_offset(3, np.arange(6)[:, None], LANES, 6), 16) == 4).all()
    slot, part, lane = np.mgrid[0:3, 0:6, 0:32]
    assert sorted(layout.part_offset(slot, part, lane, 6).ravel()) == list(range(0, 3 * 6 * 512, 16))


def test_the_turn_of_a_finished_block_keeps_every_element_and_has_no_conflicts():
    memory = np.full(128, -1)
    for word in range(4):
        row, token = layout.accumulator_element(LANES, word)
        memory[layout.red_offset(row, token) // 4] = 8 * row + token
        if word % 2 == 0:
            assert banks.wavefronts(layout.red_offset(row, token), 8) == 2
            assert (
                layout.red_offset(*layout.accumulator_element(LANES, word + 1)) == layout.red_offset(row, token) + 4
            ).all()
    assert sorted(memory) == list(range(128))
    row, token = layout.publish_unit(LANES)
    for i in range(4):
        assert banks.wavefronts(layout.red_offset(row + i, token), 4) == 1
        assert (memory[layout.red_offset(row + i, token) // 4] == 8 * (row + i) + token).all()
    assert sorted(zip(row, token, strict=True)) == [(r, t) for r in range(0, 16, 4) for t in range(8)]
    assert (row[LANES ^ 8] == row ^ 4).all() and (token[LANES ^ 8] == token).all(), "the partner of a 16-byte store"


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 16), st.sampled_from([0, 8, 16, 24, 32, 64]))
def test_every_block_has_one_owner_and_one_slot(m, rt, ks, tg):
    blocks = layout.token_tiles(m) * rt
    owned = [layout.owner(block, ks) for block in range(blocks)]
    assert len(set(owned)) == blocks and max(slot for _, slot in owned) + 1 == layout.slots(blocks, ks)
    for block, (cta, slot) in enumerate(owned):
        assert layout.owned_block(cta, slot, ks) == block
        token_tile, row_tile = layout.block_tile(block, rt)
        assert layout.block_index(token_tile, row_tile, rt) == block and 0 <= row_tile < rt
    assert sum(layout.group_tokens(group, m, tg) for group in range(layout.groups(m, tg))) == m
    assert all(layout.group_tokens(group, m, tg) > 0 for group in range(layout.groups(m, tg)))


@given(
    st.integers(1, 64),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(2, 16),
    st.integers(0, 3),
    st.sampled_from([0, 8, 16]),
)
def test_regions_are_contiguous_aligned_and_large_enough(m, rt, kq, ks, staged, tg):
    k = 32 * kq * ks * 4
    regions = layout.smem_regions(m, k, rt, kq, ks, staged, tg)
    sizes = {name: size for name, _, size in regions}
    end = 0
    for name, offset, size in regions:
        assert offset == end and offset % (8 if "barriers" in name else 16) == 0
        end = offset + size
    assert end_of(regions) == end
    blocks = layout.token_tiles(m) * rt
    assert sizes["stages"] == rt * kq * staged * 1024
    if tg:
        slots = -(-blocks // ks)
        assert sizes["receive"] == slots * ks * kq * 512 and sizes["owner barriers"] == 8 * slots
        assert sizes["x"] >= 8 * layout.token_tiles(m) * 2 * k // ks
    else:
        assert sizes["parts"] == blocks * kq * 512


def test_output_rows_cover_n_once():
    cta, tile, row = np.mgrid[0:7, 0:5, 0:16]
    assert sorted(layout.output_row(cta, tile, row, 5).ravel()) == list(range(560))
