"""Matrix descriptors hold what they are made of, and a swizzle reads a k16 further on where the address says.

What wgmma reads by them is proved in tests/interpreter/test_warpgroup.py.
"""

import dataclasses

import numpy as np
import pytest

from skinny_gemm.layouts import descriptors, swizzle


def test_fields_of_a_descriptor_are_those_that_were_encoded():
    for start, leading, stride, width in ((1024, 128, 256, 16), (1056, 16, 1024, 128), (262128, 16, 512, 64)):
        made = descriptors.decoded(descriptors.encoded(start, leading, stride, width))
        assert made == descriptors.Descriptor(start, leading, stride, 0, descriptors.WIDTHS.index(width))


def test_every_bit_of_a_descriptor_is_of_one_field_or_reserved():
    for bit in range(64):
        fields = dataclasses.astuple(descriptors.decoded(1 << bit))
        assert sum(map(bool, fields)) + (descriptors.RESERVED >> bit & 1) == 1, bit


@pytest.mark.parametrize("width", [32, 64, 128])
def test_the_chunks_of_a_group_of_rows_fill_it_once(width):
    rows, steps = np.arange(8)[:, None, None], np.arange(width // 32)[:, None]
    at = descriptors.chunk_address(rows, np.arange(2), 4096 + 32 * steps, 16, 8 * width, width)
    assert sorted(at.reshape(-1).tolist()) == list(range(4096, 4096 + 8 * width, 16))


def test_the_widest_swizzle_is_that_of_a_tile_of_64_columns():
    rows, chunks = np.arange(64)[:, None], np.arange(8)
    at = descriptors.chunk_address(rows, chunks % 2, chunks // 2 * 32, 16, 1024, 128)
    assert (at == swizzle.ELEMENT_BYTES * swizzle.tile_offset(rows, swizzle.CHUNK * chunks, 64)).all()
