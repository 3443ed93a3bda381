"""The bank model against a lane-by-lane count, and the conflict counts that the kernel's layouts promise.

- the vectorised count equals a plain-Python one on random accesses with random active lanes;
- broadcast of a word is free; a stride of 128 bytes serialises; phases are counted apart;
- the shipped A and B offsets are conflict-free and the unswizzled ones are 8-way;
- the partials mailbox is conflict-free, stores and loads.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm.layouts import banks
from skinny_gemm.layouts import warp_splitk as layout
from skinny_gemm.layouts.swizzle import plain_offset

LANES = np.arange(32)


def count_slowly(addresses, bytes_per_lane, active):
    lanes_per_phase = 128 // bytes_per_lane
    total = 0
    for start in range(0, 32, lanes_per_phase):
        words = {
            address // 4 + i
            for address, on in list(zip(addresses, active, strict=True))[start : start + lanes_per_phase]
            if on
            for i in range(bytes_per_lane // 4)
        }
        total += max([sum(w % 32 == b for w in words) for b in range(32)])
    return total


accesses = st.sampled_from([4, 8, 16]).flatmap(
    lambda width: st.tuples(
        st.just(width),
        st.lists(st.integers(0, 2047).map(lambda i: i * width), min_size=32, max_size=32),
        st.lists(st.booleans(), min_size=32, max_size=32),
    )
)


@settings(deadline=None)
@given(accesses)
def test_equals_a_lane_by_lane_count(access):
    width, addresses, active = access
    assert banks.wavefronts(addresses, width, active) == count_slowly(addresses, width, active)


@settings(deadline=None)
@given(st.lists(accesses.filter(lambda a: a[0] == 8), min_size=2, max_size=4))
def test_many_accesses_at_once_equal_one_at_a_time(many):
    addresses, active = np.array([a[1] for a in many]), np.array([a[2] for a in many])
    one_by_one = [banks.wavefronts(a, 8, on) for _, a, on in many]
    assert banks.wavefronts(addresses, 8, active).tolist() == one_by_one


@pytest.mark.parametrize("width", [4, 8, 16])
def test_known_patterns(width):
    ideal = width // 4
    assert banks.wavefronts(LANES * width, width) == ideal  # consecutive
    assert banks.wavefronts(0 * LANES, width) == ideal  # everybody reads the same word: broadcast
    assert banks.wavefronts(LANES * 128, width) == 32  # one bank group: every lane waits for the others
    assert banks.wavefronts(LANES * width, width, LANES < 0) == 0  # nobody
    assert banks.ideal_wavefronts(width, LANES < 128 // width) == 1


def test_rejects_what_it_cannot_model():
    with pytest.raises(ValueError, match="bytes_per_lane is 2"):
        banks.wavefronts(LANES, 2)
    with pytest.raises(ValueError, match=r"shape \(31,\)"):
        banks.wavefronts(LANES[:31], 4)
    with pytest.raises(ValueError, match="0x4 is not aligned"):
        banks.wavefronts(LANES * 4, 16)


@pytest.mark.parametrize("k_tile", [128, 256])
@pytest.mark.parametrize("warp", range(4))
def test_swizzled_ldmatrix_has_no_conflicts_and_plain_rows_collide_eightfold(k_tile, warp):
    for phase in range(k_tile // 64):
        assert banks.wavefronts(2 * layout.a_offset(warp, 0, phase, LANES, k_tile), 16) == 4
        assert banks.wavefronts(2 * plain_offset(*layout.a_ldmatrix(warp, 0, phase, LANES, k_tile), k_tile), 16) == 32
    for pair in range(k_tile // 128):
        assert banks.wavefronts(2 * layout.b_offset(warp, 0, pair, LANES, k_tile), 16) == 4
        assert banks.wavefronts(2 * plain_offset(*layout.b_ldmatrix(warp, 0, pair, LANES, k_tile), k_tile), 16) == 32


@pytest.mark.parametrize("output_tile", [16, 32])
@pytest.mark.parametrize("token_tile", [8, 16, 32])
def test_partials_mailbox_has_no_conflicts(output_tile, token_tile):
    for i in range(output_tile // 16):
        for j in range(token_tile // 8):
            for word in (0, 2):
                stored = layout.partial_word(*layout.accumulator_element(i, j, LANES, word), output_tile)
                assert banks.wavefronts(4 * stored, 8) == 2
    units = layout.reduce_units(output_tile, token_tile)
    for first in range(0, units, 32):
        feature, token = layout.reduce_unit(first + LANES, output_tile)
        for f in range(layout.FEATURES_PER_UNIT):
            assert banks.wavefronts(4 * layout.partial_word(feature + f, token, output_tile), 4) == 1


def test_a_bank_is_the_word_modulo_32():
    addresses = np.arange(0, 512)
    assert (banks.bank(addresses) == addresses // 4 % 32).all()
