"""The map of an SM's shared memory adds up, and names what holds something."""

import pytest

from skinny_gemm import device, tactics
from skinny_gemm.analysis.resources import smem_table
from skinny_gemm.figures.resources import smem_map
from skinny_gemm.problem import GemmProblem
from tests.support.drawings import texts

H200 = device.get("h200")
PROBLEM = GemmProblem(8, 3584, 7168)
KIND = tactics.KERNELS["warp-splitk"]


@pytest.mark.parametrize("text", ["16,8,128,2,1", "32,32,256,2,2"])
def test_the_shared_memory_map_adds_up(text):
    tactic = KIND.parse(text)
    footprint = tactic.footprint(PROBLEM, H200)
    table = smem_table(footprint, H200)
    used = table[table.cta >= 0]
    assert used.groupby("cta")["bytes"].sum().unique().tolist() == [
        sum(size for _, _, size in footprint.regions) + H200.smem_reserved_per_cta
    ]
    assert used.cta.nunique() == footprint.ctas_per_sm
    ends = (used.start + used["bytes"]).to_numpy()
    assert (ends[:-1] <= used.start.to_numpy()[1:]).all() and ends[-1] <= H200.smem_per_sm
    said = texts(smem_map(footprint, H200))
    assert any(t.endswith(f"{footprint.ctas_per_sm} CTAs fit") or "1 CTA fits" in t for t in said)
    assert "A 8 KB" in said or "A 32 KB" in said


def test_regions_that_hold_nothing_are_not_named():
    tactic = tactics.KERNELS["ws-gemm"].parse("1,4,4,0,8,1")
    footprint = tactic.footprint(GemmProblem(8, 560, 7168), H200)
    said = texts(smem_map(footprint, H200))
    assert dict((name, size) for name, _, size in footprint.regions)["stages"] == 0
    assert not any(t.startswith("stages") for t in said) and any(t.startswith("receive ") for t in said)
