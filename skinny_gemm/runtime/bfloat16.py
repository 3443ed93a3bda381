"""BF16 in NumPy, which has no such type: arrays of uint16 bit patterns."""

import numpy as np


def to_bits(values: np.ndarray) -> np.ndarray:
    """FP32 or FP64 values rounded to the nearest BF16, ties to even, as uint16 bits. Values must be finite."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(bits: np.ndarray) -> np.ndarray:
    """The FP32 values of BF16 bit patterns (exact)."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
