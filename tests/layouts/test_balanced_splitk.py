"""Layouts of balanced split-K: row tiles and K chunks cover the weights, a stage gives NumPy's product, none conflicts.

Oracles are independent of the layouts: a stage is filled by the copies' map, read through the loads' and multiplied
through the PTX ISA's fragment maps.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.layouts import balanced_splitk as layout
from skinny_gemm.layouts import banks, fragments
from skinny_gemm.layouts import end as end_of

LANES = np.arange(32)
ROWS = st.integers(1, 112)
K_CHUNKS = st.sampled_from([64, 128])
TOKEN_TILES = st.sampled_from([8, 16, 24, 32, 48, 64])
CLUSTERS = st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def tilings(draw):
    """(N, row tiles) as a tactic allows them, very large N among them."""
    n = draw(st.integers(1, 3000) | st.integers(1, 2**20))
    return n, draw(st.integers(1, min(n, 2000, (2**31 - 1) // n)))


@given(tilings())
def test_row_tiles_partition_n_into_heights_that_differ_by_at_most_one(tiling):
    n, row_tiles = tiling
    first, height = layout.row_range(np.arange(row_tiles), n, row_tiles)
    assert first[0] == 0 and (first[1:] == first[:-1] + height[:-1]).all() and first[-1] + height[-1] == n
    assert height.min() >= 1 and height.max() - height.min() <= 1
    assert (height.min(), height.max()) == (n // row_tiles, layout.highest(n, row_tiles))
    assert row_tiles * n < 2**31, "the kernel's products of a tile and N are 32-bit"


@given(CLUSTERS, st.integers(1, 16), K_CHUNKS, st.integers(1, 9))
def test_ctas_warps_and_turns_cover_k_once(cluster, warps, k_chunk, turns):
    k_slice = turns * warps * k_chunk
    cta, warp, turn = np.mgrid[0:cluster, 0:warps, 0:turns]
    column = layout.chunk_column(cta, warp, turn, k_slice, warps, k_chunk)
    assert sorted(column.ravel()) == list(range(0, cluster * k_slice, k_chunk))
    assert (column == column[:, :, :1] + layout.chunk_column(0, 0, turn, k_slice, warps, k_chunk)).all(), "constants"


@given(ROWS, K_CHUNKS)
def test_copies_fill_every_chunk_of_a_stage_once_in_whole_lines(rows, k_chunk):
    lane, index = np.mgrid[0:32, 0 : layout.copies(rows, k_chunk)]
    row, chunk = layout.copied(lane, index, k_chunk)
    inside = row < rows
    assert inside[:, :-1].all(), "only the last copy may reach past the tile"
    offset = layout.stage_offset(row, chunk, k_chunk)
    assert sorted(offset[inside]) == list(range(0, rows * 2 * k_chunk, 16)), "a bijection"
    covered = set(zip(row[inside], chunk[inside], strict=True))
    assert covered == {(r, c) for r in range(rows) for c in range(k_chunk // 8)}
    source = (row * k_chunk + 8 * chunk).reshape(4, 8, -1)  # eight lanes, one 128-byte line of global memory
    assert (np.diff(source, axis=1) == 8).all() and (source[:, 0] % 64 == 0).all()


@given(ROWS, K_CHUNKS)
def test_all_copies_and_loads_of_a_lane_are_constants_from_its_first(rows, k_chunk):
    """What the kernel adds to a lane's first address: whole rows to a copy, 128 bytes to every second K block."""
    lane, index = np.mgrid[0:32, 0 : layout.copies(rows, k_chunk)]
    (row, chunk), (first, _), (step, _) = (
        layout.copied(*at, k_chunk) for at in ((lane, index), (lane, 0 * index), (0 * lane, index))
    )
    assert (row == first + step).all()
    offset = layout.stage_offset(row, chunk, k_chunk)
    assert (offset == layout.stage_offset(first, chunk, k_chunk) + step * 2 * k_chunk).all()
    for block in range(k_chunk // 32):
        for half in range(layout.half_tiles(rows)):
            at = layout.loaded_row(LANES, half)
            offset, start = (
                layout.stage_offset(at, layout.loaded_chunk(LANES, b), k_chunk) for b in (block, block % 2)
            )
            assert (offset == start + block // 2 * 128).all()


def filled(weight, k_chunk):
    """The elements of a stage after a warp's copies of `weight` `[rows, k_chunk]`, NaN where nothing was copied."""
    memory = np.full(weight.size, np.nan)
    for index in range(layout.copies(len(weight), k_chunk)):
        for row, chunk in zip(*layout.copied(LANES, index, k_chunk), strict=True):
            if row < len(weight):
                at = layout.stage_offset(row, chunk, k_chunk) // 2
                memory[at : at + 8] = weight[row, 8 * chunk : 8 * chunk + 8]
    return memory


@pytest.mark.parametrize("k_chunk", [64, 128])
@pytest.mark.parametrize(("rows", "token_tile"), [(1, 8), (8, 64), (16, 16), (35, 24), (39, 8), (40, 32)])
def test_a_stage_multiplies_like_numpy(rows, token_tile, k_chunk):
    """Two mma a K block, in fragments from 16-byte loads of weights and x, as the ISA lays them out, give W @ x^T."""
    random = np.random.default_rng(0)
    weight, x = (random.integers(-8, 8, (count, k_chunk)).astype(float) for count in (rows, token_tile))
    memory, halves = filled(weight, k_chunk), layout.half_tiles(rows)
    product = np.zeros((layout.fragments(rows, token_tile), 16, 8))
    for block in range(k_chunk // 32):
        chunk = layout.loaded_chunk(LANES, block)
        words = []  # per half tile `[4 words, 32 lanes, 2 elements]`
        for half in range(halves + halves % 2):
            row = np.minimum(layout.loaded_row(LANES, half), rows - 1)
            at = layout.stage_offset(row, chunk, k_chunk) // 2
            words.append(memory[at[:, None] + np.arange(8)].reshape(32, 4, 2).swapaxes(0, 1))
        for part in range(token_tile // 8):
            token = 8 * part + fragments.load_row(LANES)
            loaded = x[token[:, None], 8 * chunk[:, None] + np.arange(8)].reshape(32, 4, 2).swapaxes(0, 1)
            for row_part in range(len(words) // 2):
                for mma in (0, 1):
                    a, b = np.full((16, 16), np.nan), np.full((16, 8), np.nan)
                    for register, word in enumerate(fragments.a_words(mma, *words[2 * row_part :][:2])):
                        for half in (0, 1):
                            a[fragments.a_element(LANES, register, half)] = word[:, half]
                    for register, word in enumerate(fragments.b_words(mma, loaded)):
                        for half in (0, 1):
                            b[fragments.b_element(LANES, register, half)] = word[:, half]
                    product[layout.fragment(row_part, part, token_tile)] += a @ b
    found = np.full((16 * -(-rows // 16), token_tile), np.nan)
    for number in range(len(product)):
        lane, word = np.mgrid[0:32, 0:4]
        found[layout.sum_element(number, lane, word, token_tile)] = product[number][fragments.c_element(lane, word)]
    assert (found[:rows] == weight @ x.T).all()


@given(ROWS, TOKEN_TILES)
def test_every_sum_has_one_word_of_one_lane_of_one_fragment(rows, token_tile):
    fragment, lane, word = np.mgrid[0 : layout.fragments(rows, token_tile), 0:32, 0:4]
    row, token = layout.sum_element(fragment, lane, word, token_tile)
    height = 16 * -(-rows // 16)
    assert sorted((row * token_tile + token).ravel()) == list(range(height * token_tile))
    assert rows <= height < rows + 16
    offset = layout.lane_offset(fragment, lane) + 4 * word
    assert sorted(offset.ravel()) == list(range(0, 4 * height * token_tile, 4))


@given(ROWS, TOKEN_TILES, CLUSTERS)
def test_every_fragment_has_one_owner_and_one_slot(rows, token_tile, cluster):
    count = layout.fragments(rows, token_tile)
    cta, slot = layout.owner(np.arange(count), cluster)
    assert (layout.owned(cta, slot, cluster) == np.arange(count)).all() and (cta < cluster).all()
    for number in range(cluster):
        owned = slot[cta == number].tolist()
        assert owned == list(range(layout.slots(count, cluster, number)))
        assert layout.owned(number, len(owned), cluster) >= count, "the next slot is past the last fragment"
    assert layout.slots(count, cluster) == max(np.bincount(cta, minlength=cluster))


@given(ROWS, TOKEN_TILES, K_CHUNKS, CLUSTERS)
def test_no_access_has_bank_conflicts(rows, token_tile, k_chunk, cluster):
    accesses = {access.name: access for access in layout.shared_accesses(rows, token_tile, k_chunk, cluster)}
    regions = {name for name, _, _ in layout.smem_regions(rows, token_tile, 2, k_chunk, 1, cluster, 1)}
    assert {name.partition(", ")[0] for name in accesses} == regions - {"received"}
    for access in accesses.values():
        assert (banks.wavefronts(access.shipped, access.bytes_per_lane) == 4).all(), access.name
    plain = banks.wavefronts(accesses["rings, ld"].plain, 16)
    assert (plain[: rows // 8 * (k_chunk // 32)] == 8).all(), "row-major, two rows of a phase lie in the same banks"


@given(ROWS, TOKEN_TILES, K_CHUNKS)
def test_x_in_a_stage_lies_behind_the_weights_and_swaps_like_them(rows, token_tile, k_chunk):
    """So that copies and loads of x are those of weights, from another row on; without x a stage ends with weights."""
    first = layout.first_x_row(rows)
    assert rows <= first <= rows + 1 and layout.stage_rows(rows, token_tile, 1) == first + token_tile
    assert layout.stage_rows(rows, token_tile, 0) == rows
    row, chunk = np.mgrid[0:token_tile, 0 : k_chunk // 8]
    moved = layout.stage_offset(first + row, chunk, k_chunk) - layout.stage_offset(row, chunk, k_chunk)
    assert (moved == first * 2 * k_chunk).all()


@given(ROWS, TOKEN_TILES, st.integers(1, 16), K_CHUNKS, st.integers(1, 8), CLUSTERS, st.integers(0, 1))
def test_regions_are_aligned_disjoint_and_large_enough(rows, token_tile, warps, k_chunk, stages, cluster, x_ring):
    regions = layout.smem_regions(rows, token_tile, warps, k_chunk, stages, cluster, x_ring)
    assert [name for name, _, _ in regions] == ["rings", "receive", "received"][: 3 if cluster > 1 else 1]
    end = 0
    for (name, offset, size), alignment in zip(regions, (128, 16, 8), strict=False):
        assert offset == end and offset % alignment == 0, name
        end = offset + size
    assert end == end_of(regions)
    count, sizes = layout.fragments(rows, token_tile), {name: size for name, _, size in regions}
    of_warp = layout.warp_bytes(rows, token_tile, k_chunk, stages, x_ring)
    of_stage = rows + x_ring * (rows % 2 + token_tile)
    assert of_warp == max(stages * of_stage * k_chunk * 2, count * 512) and of_warp % 128 == 0
    assert sizes["rings"] == warps * of_warp
    if cluster > 1:
        assert sizes["receive"] == -(-count // cluster) * cluster * 512
