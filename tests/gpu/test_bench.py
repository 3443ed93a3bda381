"""A campaign on a GPU: every point measured, every result checked, ceilings and clocks recorded."""

from dataclasses import replace
from pathlib import Path

from skinny_gemm import records
from skinny_gemm.bench.campaign import bench
from skinny_gemm.bench.plan import Request
from skinny_gemm.problem import GemmProblem


def test_a_small_campaign(tmp_path):
    request = Request("warp-splitk", [GemmProblem(1, 2304, 1536)], [1, 8], peers=["cublas"], bounds=True)
    folder = bench(request, tmp_path / "campaigns" / "small")
    campaign, table = records.campaigns(tmp_path)[folder.name], records.load(tmp_path)
    assert campaign.complete and not campaign.failures and campaign.clocks["samples"]
    assert {"hbm_read_tbs", "copy_tbs", "bf16_tflops"} <= campaign.ceilings.keys()
    ours = table[table.kernel == "warp-splitk"]
    assert set(zip(ours.m, ours["mode"], strict=True)) == {
        (m, mode) for m in (1, 8) for mode in ("isolated", "chained")
    }
    assert (ours.relative_error < 4e-3).all() and (ours.low_us <= ours.high_us).all()
    assert {"cublas", "stream", "dependency-floor"} <= set(table.kernel)
    fastest_possible = 2304 * 1536 * 2 / 8e6  # microseconds, at 8 TB/s: faster is not a cold read
    assert (ours.median_us > fastest_possible).all()


def test_a_campaign_of_a_quiet_and_a_busy_process(tmp_path):
    problems, processes = [GemmProblem(1, 2304, 1536)], ["quiet", "busy"]
    request = Request(
        "warp-splitk", problems, [16], modes=["chained"], peers=["cublas"], processes=processes, bounds=True
    )
    folder = bench(request, tmp_path / "campaigns" / "both")
    campaign, rows = records.read_campaign(folder)
    assert campaign.complete and not campaign.failures and campaign.ceilings
    half = len(rows) // 2
    assert [row.process for row in rows] == ["quiet"] * half + ["busy"] * half
    assert [replace(row.point, process="quiet") for row in rows[half:]] == [row.point for row in rows[:half]]


def test_a_campaign_of_a_front_with_its_exposed_latency(tmp_path):
    request = Request("ws-gemm", [GemmProblem(1, 288, 7168)], [4, 64], modes=["chained", "exposed"], peers=["cublas"])
    folder = bench(request, tmp_path / "campaigns" / "front")
    campaign, table = records.campaigns(tmp_path)[folder.name], records.load(tmp_path)
    assert campaign.complete and not campaign.failures
    assert "warp-splitk 288x7168 M=64" in campaign.method["left_out"][0]
    for kernel, ms in (("ws-gemm", {4, 64}), ("warp-splitk", {4}), ("cublas", {4, 64})):
        mine = table[table.kernel == kernel]
        assert set(zip(mine.m, mine["mode"], strict=True)) == {(m, mode) for m in ms for mode in ("chained", "exposed")}
        assert (mine.relative_error < 1e-2).all() and (mine.low_us > 0.3).all()


def test_each_peer_is_timed_at_those_of_its_tactics_that_look_fastest(tmp_path, monkeypatch):
    """Stand-ins for the files of peers take the same parameters: structures that the driver must pass whole."""
    for peer in ("flashinfer", "simt"):
        file = Path(__file__).parents[1] / "support" / "foreign" / f"{peer}.py"
        monkeypatch.setenv(f"SKINNY_GEMM_{peer.upper()}", str(file))
    names = ["cublas", "cublaslt", "flashinfer", "simt"]
    request = Request("warp-splitk", [GemmProblem(1, 256, 512)], [4], modes=["chained"], peers=names, most=2)
    folder = bench(request, tmp_path / "campaigns" / "peers")
    campaign, table = records.campaigns(tmp_path)[folder.name], records.load(tmp_path)
    assert campaign.complete and not campaign.failures and not campaign.method["peers_absent"]
    assert table.kernel.value_counts()[names].to_dict() == {"cublas": 1, "cublaslt": 2, "flashinfer": 2, "simt": 2}
    looks = campaign.method["screened_out"]
    for peer in names[1:]:
        rows = table[table.kernel == peer]
        slower = [us for point, us in looks.items() if point.startswith(f"{peer} [")]
        assert slower and rows.median_us.min() < 1.1 * min(slower) and (rows.relative_error < 1e-2).all()
