"""Campaigns written for a test, and the points that they hold."""

import dataclasses
import math
from pathlib import Path

from skinny_gemm import records
from skinny_gemm.records import Campaign, CampaignWriter, Point

FIXTURES = Path(__file__).parents[1] / "fixtures"
SLOW = Point("warp-splitk", 64, 1024, 8, "16,8,256,2,1", "chained")
FAST = dataclasses.replace(SLOW, tactic="16,8,256,4,1")


def write(root, name, times, device="h200", complete=True, commit="abc"):
    """A campaign of `{point: microseconds}`; the interval is 1 % to either side."""
    meta = Campaign(
        id=name, device=device, gpu="g", driver="", cuda="", torch="", dsl="", commit=commit, dirty=False,
        date=f"{name[:10]}T00:00:00+00:00", command="bench", complete=complete,
    )  # fmt: skip
    writer = CampaignWriter(root / "campaigns" / name, meta)
    for point, time in times.items():
        samples = [time * (0.99 + 0.02 * i / 5) for i in range(6)]
        error = math.nan if point.kernel in records.BOUNDS else 0.002
        writer.add(point, samples, error, 1000)
    writer.save()
    return root / "campaigns" / name
