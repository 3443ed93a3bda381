"""What a tactic occupies: the shared memory of an SM, region by region."""

import pandas as pd

from ..device import Device
from ..tactics import Footprint


def smem_table(footprint: Footprint, device: Device) -> pd.DataFrame:
    """One row per region of every CTA that fits on an SM, and what is free: cta, region, start in the SM, bytes."""
    rows, start = [], 0
    for cta in range(footprint.ctas_per_sm):
        rows.append((cta, "reserved", start, device.smem_reserved_per_cta))
        start += device.smem_reserved_per_cta
        rows += [(cta, name, start + offset, size) for name, offset, size in footprint.regions]
        start += footprint.smem_bytes
    rows.append((-1, "free", start, max(device.smem_per_sm - start, 0)))
    return pd.DataFrame(rows, columns=["cta", "region", "start", "bytes"])
