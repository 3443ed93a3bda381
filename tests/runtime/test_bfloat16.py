"""BF16 in NumPy rounds as PyTorch does."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm.runtime.bfloat16 import from_bits, to_bits


@given(st.floats(-(2.0**127), 2.0**127, width=32))
def test_bf16_rounding_is_torchs(value):
    bits = to_bits(np.array([value], np.float32))
    assert torch.from_numpy(from_bits(bits)).item() == torch.tensor([value]).bfloat16().float().item()
