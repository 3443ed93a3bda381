"""`wgmma` does on the GPU what the interpreter says: the same elements, wherever descriptors and swizzles put them."""

import dataclasses
import itertools

import numpy as np
import pytest

from skinny_gemm.artifact import LaunchArguments
from skinny_gemm.runtime import driver
from tests.support.warpgroups import assert_close, launch, whole_product


def on_gpu(compiled, *values, grid):
    """`programs.run` by the driver, which assembles the PTX."""
    text = compiled.ptx.replace(".version 9.4", ".version 8.0")
    driver.run_on_host_arrays(dataclasses.replace(compiled, cubin=text.encode() + b"\0"), LaunchArguments(grid, values))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize(("n", "width"), [*itertools.product((8, 48, 256), (16, 32, 64, 128)), (96, 128)])
def test_a_product_is_the_interpreters(gpu, n, width, kind):
    if gpu.arch != "sm_90a":
        pytest.skip(f"wgmma is an instruction of sm_90a; here is {gpu.arch}")
    body, image, want = whole_product(n, width, kind)
    measured = launch(body, image, n, runner=on_gpu)
    assert_close(measured[0], want)
    assert np.abs(measured - launch(body, image, n)).max() < 1e-5 * np.abs(want).max()
