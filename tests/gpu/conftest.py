"""GPU tests: `make gpu-test` on a host with a CUDA GPU that the kernels are compiled for."""

import pytest
import torch

from skinny_gemm import device
from skinny_gemm.runtime import ARCHITECTURES


@pytest.fixture(scope="session", autouse=True)
def gpu():
    gpu = device.current()
    if gpu is None or gpu.arch not in ARCHITECTURES:
        pytest.skip(f"needs a GPU of {', '.join(ARCHITECTURES)}; here is {gpu.arch if gpu else 'none'}")
    return gpu


@pytest.fixture(autouse=True)
def fresh_seed():
    torch.seed()


@pytest.fixture
def normal():
    """`normal(*shape)`: fresh BF16 normals on the GPU, rounded once so that FP64 references see the same values."""
    return lambda *shape: torch.randn(shape, device="cuda").bfloat16()
