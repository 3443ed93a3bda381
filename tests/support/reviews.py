"""A recorded problem, small enough to compile in a second, and a review of it.

Of 64x1024 at M = 1 and 8, candidate B takes 9 us, A 10, cublas 18, the bound is 6; C is not recorded.
"""

from pathlib import Path

import pytest

from skinny_gemm import catalogue, device
from skinny_gemm.analysis.review import Review, design_review
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Campaign, CampaignWriter, Point

H200 = device.get("h200")
SMALL = GemmProblem(8, 64, 1024)
A, B, C = (f"warp-splitk:16,8,256,{stages},1" for stages in (2, 4, 3))
TIMES = {A: 10.0, B: 9.0}


def write_campaign(root: Path) -> Path:
    """Makes `root` a data folder with the campaign; returns it."""
    for name in ("shapes.csv", "devices.json"):
        (root / name).symlink_to(catalogue.data_dir() / name)
    folder = root / "campaigns" / "2026-01-01-test"
    writer = CampaignWriter(
        folder,
        Campaign(
            id=folder.name, device="h200", gpu="NVIDIA H200", driver="580.1", cuda="13.0", torch="2.11", dsl="4.8.1",
            commit="0123456789abcdef", dirty=True, date="2026-01-01T00:00:00+00:00", command="bench --all " + "x" * 150,
            ceilings={"hbm_read_tbs": 4.5, "bf16_tflops": 630.0}, method={"replays": 25}, complete=True,
            clocks={"sm_mhz_low": 1800, "sm_mhz_high": 1980, "dropped": True, "throttle": ["power cap"]},
        ),
    )  # fmt: skip
    for m in (1, 8):
        for candidate, time in TIMES.items():
            kernel, _, tactic = candidate.partition(":")
            writer.add(Point(kernel, 64, 1024, m, tactic), [time + 0.01 * i for i in range(9)], 1e-3, 131072 + 2048 * m)
        writer.add(Point("cublas", 64, 1024, m), [18 + 0.01 * i for i in range(9)], 1e-3, 131072 + 2048 * m)
    writer.add(Point("stream", 64, 1024, 0, "528x3x8192"), [6.0] * 9, float("nan"), 131072)
    writer.save()
    return root


def small_review(data: Path) -> Review:
    """A, B and C at M = 8."""
    return design_review(SMALL, H200, candidates=[A, B, C], data_dir=data)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A data folder with the campaign of `tests.support.reviews`."""
    return write_campaign(tmp_path_factory.mktemp("data"))


@pytest.fixture
def small(data):
    return small_review(data)
