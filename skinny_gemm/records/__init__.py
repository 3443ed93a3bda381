"""What was measured: the campaigns under data/, and the answers that follow from them. Needs no GPU and no PyTorch."""

from .schema import (
    BOUNDS,
    COLUMNS,
    MODES,
    PEERS,
    PROCESSES,
    WEIGHTS,
    Campaign,
    Point,
    Record,
    failed_point,
    fastest,
    is_slow,
)
from .statistics import ExposedSamples, Samples, interval_of
from .store import BrokenCampaign, CampaignWriter, campaigns, load, load_campaign, problems, read_campaign, rows

__all__ = [
    "BOUNDS", "COLUMNS", "MODES", "PEERS", "PROCESSES", "WEIGHTS", "BrokenCampaign", "Campaign", "CampaignWriter",
    "ExposedSamples", "Point", "Record", "Samples", "campaigns", "failed_point", "fastest", "interval_of", "is_slow",
    "load", "load_campaign", "problems", "read_campaign", "rows",
]  # fmt: skip
