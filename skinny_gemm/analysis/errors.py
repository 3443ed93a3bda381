"""How exact a result is: its distance from FP64, in units of the spacing of its own format."""

import numpy as np
import pandas as pd

LIMIT = 1.0  #: spacings of BF16; what lies beyond is counted in the outermost bins
BINS = 60
FORMATS = {"bf16": ("BF16", 7), "f32": ("FP32", 23)}  #: name, and bits after the leading one


def error_table(out: np.ndarray, reference: np.ndarray, dtype: str = "bf16") -> pd.DataFrame:
    """A histogram of (out - reference) in spacings of `dtype` at the reference: low, high, count; ends hold the rest.

    `out` and `reference` are FP64 of one shape. Of FP32, whose last bits the accumulation decides, it spans nine in ten
    outputs. ValueError if an output is NaN: it was not written.
    """
    if np.isnan(out).any():
        raise ValueError(f"{int(np.isnan(out).sum())} outputs are NaN: they were not written, or an operand was NaN")
    exponent = np.floor(np.log2(np.maximum(np.abs(reference), 2.0**-126)))
    distance = (out - reference) / 2.0 ** (exponent - FORMATS[dtype][1])
    limit = LIMIT
    if dtype != "bf16":
        limit = max(LIMIT, 2.0 ** np.ceil(np.log2(max(np.quantile(np.abs(distance), 0.9), LIMIT))))
    edges = np.linspace(-limit, limit, BINS + 1)
    counts, _ = np.histogram(np.clip(distance, -limit, limit), edges)
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "count": counts})
