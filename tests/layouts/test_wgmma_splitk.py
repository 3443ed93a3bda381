"""Layouts of wgmma split-K: K chunks and rows are covered once, a stage gives NumPy's product, nothing conflicts.

Oracles are independent of the layouts: a stage is filled by the copies' map, read as the PTX ISA says of a descriptor's
bits, and its product lies in the lanes as the ISA's accumulator does. How N is cut, test_balanced_splitk.py proves.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.layouts import balanced_splitk, banks
from skinny_gemm.layouts import end as end_of
from skinny_gemm.layouts import wgmma_splitk as layout
from skinny_gemm.layouts.fragments import wgmma_element

THREADS, LANES = np.arange(128), np.arange(32)
ROWS = st.integers(1, 256)
K_CHUNKS = st.sampled_from([64, 128])
TOKEN_TILES = st.sampled_from([8, 16, 24, 32, 48, 64])
CLUSTERS = st.sampled_from([1, 2, 4, 8, 16])


@given(CLUSTERS, st.integers(1, 4), K_CHUNKS, st.integers(1, 9))
def test_ctas_groups_and_turns_cover_k_once(cluster, groups, k_chunk, turns):
    k_slice = turns * groups * k_chunk
    cta, group, turn = np.mgrid[0:cluster, 0:groups, 0:turns]
    column = balanced_splitk.chunk_column(cta, group, turn, k_slice, groups, k_chunk)
    assert sorted(column.ravel()) == list(range(0, cluster * k_slice, k_chunk))


@given(ROWS, TOKEN_TILES)
def test_copies_fill_every_chunk_of_an_atom_once_in_whole_lines(rows, token_tile):
    for first, count in ((0, token_tile), (token_tile, layout.whole_rows(rows))):
        steps = np.arange(0, count, 16)[:, None]
        row, chunk = layout.copied(THREADS)
        row, chunk = np.broadcast_arrays(row + steps, chunk)
        inside = row < count
        assert inside[:-1].all(), "only the last copy may reach past the rows"
        offset = layout.atom_offset(first + row, chunk)
        assert sorted(offset[inside]) == list(range(first * 128, (first + count) * 128, 16)), "a bijection"
        assert set(zip(row[inside], chunk[inside], strict=True)) == {(r, c) for r in range(count) for c in range(8)}
        source = (64 * row + 8 * chunk).reshape(-1, 8)  # eight threads, one 128-byte line of global memory
        assert (np.diff(source) == 8).all() and (source[:, 0] % 64 == 0).all()


@given(ROWS, TOKEN_TILES)
def test_all_copies_of_a_thread_are_constants_from_its_first(rows, token_tile):
    """What the kernel adds to a thread's first address in an atom: whole rows, from the tokens' and the tile's on."""
    row, chunk = layout.copied(THREADS)
    for first in (0, token_tile):
        start = first * 128 + layout.atom_offset(row, chunk)
        for step in range(0, layout.whole_rows(rows), 16):
            assert (layout.atom_offset(first + row + step, chunk) == start + step * 128).all()


def filled(x, weight, token_tile, k_chunk, memory):
    """Fills a stage, a view of BF16 `memory`, by the copies' map: x `[tokens, k_chunk]`, weight `[rows, k_chunk]`."""
    atom = layout.stage_bytes(len(weight), token_tile, 64) // 2
    for matrix, first, count in ((x, 0, token_tile), (weight, token_tile, len(weight))):
        for number in range(k_chunk // 64):
            for step in range(0, count, 16):
                for row, chunk in zip(*layout.copied(THREADS), strict=True):
                    if row + step < len(matrix):
                        at = number * atom + layout.atom_offset(first + row + step, chunk) // 2
                        memory[at : at + 8] = matrix[row + step, 64 * number + 8 * chunk :][:8]


def operand(memory, descriptor, rows):
    """`[rows, 16]` that a wgmma reads by the 64 bits of a K-major descriptor with a 128-byte swizzle.

    Bits 0-13 are the start and 32-45 the way from 8 rows to the next, in units of 16 bytes. Row r of eight is 128 r
    bytes further; bits 4-6 of an address are XOR-ed by its bits 7-9.
    """
    assert descriptor >> 62 == 1 and descriptor >> 49 & 7 == 0 and descriptor & 0x3FF1C000C000C000 & ~(3 << 62) == 0
    start, groups = (descriptor & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
    row, k = np.mgrid[0:rows, 0:16]
    address = start + row // 8 * groups + row % 8 * 128 + 2 * k
    return memory[(address ^ (address >> 7 & 7) << 4) // 2]


@pytest.mark.parametrize("k_chunk", [64, 128])
@pytest.mark.parametrize("stage", [0, 2])
@pytest.mark.parametrize(
    ("rows", "token_tile", "tokens"), [(56, 8, 7), (61, 16, 16), (40, 24, 17), (35, 32, 31), (9, 48, 33), (1, 64, 64)]
)
def test_a_stage_multiplies_like_numpy(rows, token_tile, tokens, stage, k_chunk):
    """64 rows from the stage's first, x and weights, times the weights: below M and the tile's height x @ W^T."""
    random = np.random.default_rng(0)
    x, weight = (random.integers(-8, 8, (count, k_chunk)).astype(float) for count in (tokens, rows))
    size, ring = layout.stage_bytes(rows, token_tile, k_chunk), layout.group_bytes(rows, token_tile, k_chunk, 3)
    start = ring + stage * size  # of the second group
    memory = np.full(2 * ring // 2, np.nan)
    memory[start // 2 : (start + size) // 2] = 1000  # what a stage held before: wrong, but of this stage
    filled(x, weight, token_tile, k_chunk, memory[start // 2 :])

    a, b = (layout.descriptor(ring + first * 128) for first in (0, token_tile))
    height = layout.whole_rows(rows)
    product = np.zeros((64, height))
    for atom in range(k_chunk // 64):
        for k in range(0, 64, 16):
            step = (stage * size + atom * (size * 64 // k_chunk) + 2 * k) // 16
            product += operand(memory, a + step, 64) @ operand(memory, b + step, height).T
    assert not np.isnan(product).any(), "nothing but this stage is read"
    warp, lane, word = np.mgrid[0:4, 0:32, 0 : height // 2]
    acc = product[wgmma_element(warp, lane, word)]

    found = np.full((height, 16 * layout.token_parts(token_tile)), np.nan)
    for part in range(layout.token_parts(token_tile)):
        for row_part in range(height // 8):
            number, word = layout.fragment(row_part, part, token_tile), np.arange(4)[:, None]
            row, token = layout.sum_element(number, LANES, word, token_tile)
            found[row, token] = acc[part, LANES, 4 * row_part + layout.accumulator_word(word)]
    assert (found[:rows, :tokens] == (x @ weight.T).T).all()


@given(ROWS, TOKEN_TILES)
def test_every_sum_has_one_word_of_one_lane_of_one_fragment(rows, token_tile):
    fragment, lane, word = np.mgrid[0 : layout.fragments(rows, token_tile), 0:32, 0:4]
    row, token = layout.sum_element(fragment, lane, word, token_tile)
    height, width = 8 * -(-rows // 8), 16 * -(-token_tile // 16)
    assert sorted((row * width + token).ravel()) == list(range(height * width))
    assert (row[..., ::2] == row[..., 1::2]).all(), "words of one row lie in pairs: a lane loads two biases a fragment"
    pairs = {(r, p) for r in range(height // 8) for p in range(width // 16)}
    assert {layout.fragment(*pair, token_tile) for pair in pairs} == set(range(len(fragment)))


@given(ROWS, TOKEN_TILES, CLUSTERS)
def test_no_access_has_bank_conflicts(rows, token_tile, cluster):
    accesses = layout.shared_accesses(rows, token_tile, cluster)
    regions = {name for name, _, _ in layout.smem_regions(rows, token_tile, 2, 64, 2, cluster)}
    assert {access.name.partition(", ")[0] for access in accesses} == regions - {"received"}
    for access in accesses:
        assert (banks.wavefronts(access.shipped, access.bytes_per_lane) == 4).all(), access.name


@given(ROWS, TOKEN_TILES, st.integers(1, 4), K_CHUNKS, st.integers(1, 12), CLUSTERS)
def test_regions_are_aligned_disjoint_and_large_enough(rows, token_tile, groups, k_chunk, stages, cluster):
    regions = layout.smem_regions(rows, token_tile, groups, k_chunk, stages, cluster)
    assert [name for name, _, _ in regions] == ["rings", "receive", "received"][: 3 if cluster > 1 else 1]
    end = 0
    for (name, offset, size), alignment in zip(regions, (1024, 16, 8), strict=False):
        assert offset == end and offset % alignment == 0, name
        end = offset + size
    assert end == end_of(regions)
    count, sizes = layout.fragments(rows, token_tile), {name: size for name, _, size in regions}
    of_stage, of_group = (
        layout.stage_bytes(rows, token_tile, k_chunk),
        layout.group_bytes(rows, token_tile, k_chunk, stages),
    )
    assert of_stage == (token_tile + 8 * -(-rows // 8)) * k_chunk * 2
    assert of_stage % 1024 == of_group % 1024 == 0, "a pattern of the swizzle starts there"
    assert 0 <= of_group - max(stages * of_stage, count * 512) < 1024
    assert sizes["rings"] == groups * of_group
    if cluster > 1:
        assert sizes["receive"] == -(-count // cluster) * cluster * 512


@given(ROWS, TOKEN_TILES, st.integers(0, 7))
def test_results_wait_by_tokens_where_rings_were_as_aligned_as_in_out(rows, token_tile, shift):
    """Each has a place of its own, 16 bytes of it are 16 aligned bytes of `out`, and all fit into the least ring."""
    token, row = np.mgrid[0:token_tile, 0:rows]
    offset = layout.out_offset(token, row + shift, rows)
    assert len(set(offset.ravel())) == offset.size and (offset // 2 % 8 == (row + shift) % 8).all()
    assert offset.max() + 2 <= token_tile * layout.out_chunks(rows) * 16 <= layout.stage_bytes(rows, token_tile, 64)


@given(ROWS, TOKEN_TILES, st.integers(0, 7))
def test_results_are_stored_and_loaded_without_bank_conflicts(rows, token_tile, shift):
    """By a warp two bytes a lane, in whole words; chunks by a warp in the order of all threads."""
    for number in range(layout.fragments(rows, token_tile)):
        for word in range(4):
            row, token = layout.sum_element(number, LANES, word, token_tile)
            words = layout.out_offset(token, row + shift, rows) & ~3
            assert (banks.wavefronts(words, 4) == 1).all()
    item = np.arange(token_tile * layout.out_chunks(rows))
    item = item[: len(item) // 32 * 32].reshape(-1, 32)
    token, chunk = item // layout.out_chunks(rows), item % layout.out_chunks(rows)
    assert (banks.wavefronts(layout.out_offset(token, 8 * chunk, rows), 16) == 4).all()
