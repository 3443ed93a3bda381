"""Planning a campaign.

Properties: a plan holds every problem once, with tactics that are legal, its rivals beside it; a front stays what it
was asked for as; what cannot be taken is left out in words; bad arguments are one sentence.
"""

from dataclasses import replace

import pytest

from skinny_gemm import device, records
from skinny_gemm.bench.plan import MS, Request, plan
from skinny_gemm.catalogue import data_dir, shapes
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.records import Point
from skinny_gemm.tactics import KERNELS
from tests.support.records import write

H200 = device.get("h200")


def planned(kernel, shapes, *arguments, **named):
    """The points of a plan and what it leaves out, of weights given as (N, K)."""
    tasks, left_out = plan(Request(kernel, [GemmProblem(1, n, k) for n, k in shapes], *arguments, **named), H200)
    return [task.point for task in tasks], left_out


def test_a_plan_has_no_duplicates_and_only_legal_tactics():
    every = [(shape.n, shape.k) for shape in shapes() if shape.parallel == "TP8"]
    points, left_out = planned("warp-splitk", every, tactics="coarse", peers=["cublas", "triton"], bounds=True)
    assert len(points) == len(set(points))
    measured = {(p.n, p.k, p.m) for p in points if p.kernel == "warp-splitk"}
    for n, k in set(every):
        for m in MS:
            assert ((n, k, m) in measured) != any(s.startswith(f"{n}x{k} M={m}:") for s in left_out)
    for point in points:
        if point.kernel == "warp-splitk":
            tactic = KERNELS["warp-splitk"].parse(point.tactic)
            assert tactic.why_not(GemmProblem(point.m, point.n, point.k), H200) is None
    order = list(dict.fromkeys((p.n, p.k) for p in points))
    assert [(p.n, p.k) for p in points] == sorted(((p.n, p.k) for p in points), key=order.index)  # shape by shape


def test_a_campaign_of_a_front_has_its_rivals_beside_it():
    points, left_out = planned(
        "ws-gemm", [(560, 7168)], [8, 64], "coarse", ["chained", "exposed"], ["cublas", "triton"], bounds=True
    )
    split_k = KERNELS["warp-splitk"].default(GemmProblem(8, 560, 7168), H200)
    assert [p for p in points if p.kernel == "warp-splitk"] == [
        Point("warp-splitk", 560, 7168, 8, str(split_k), mode) for mode in ("chained", "exposed")
    ]
    assert left_out == ["warp-splitk 560x7168 M=64: 560x7168 at M = 64: M is 64, but this kernel takes 1 to 32 tokens"]
    assert {p.m for p in points if p.kernel in ("ws-gemm", "cublas", "triton") and p.mode == "exposed"} == {8, 64}
    assert {p.mode for p in points if p.kernel in records.BOUNDS} == {"chained"}, "nothing of a bound is exposed"
    assert all(p.kernel != "ws-gemm" for p in planned("warp-splitk", [(560, 7168)], [8])[0])


def test_every_proposal_that_cublaslt_may_have_is_planned_without_asking_it():
    points, _ = planned("warp-splitk", [(3584, 7168)], [8], "default", ["chained"], ["cublas", "cublaslt"])
    assert [p.tactic for p in points if p.kernel == "cublaslt"] == [str(i) for i in range(32)]


def test_a_mode_can_be_of_the_default_tactic_only():
    problem = GemmProblem(8, 3584, 7168)
    arguments = "warp-splitk", [(3584, 7168)], [8], "coarse"
    points, _ = planned(*arguments, ["isolated:default", "chained"], ["cublas"], bounds=True)
    ours = [p for p in points if p.kernel == "warp-splitk"]
    default = str(KERNELS["warp-splitk"].default(problem, H200))
    assert [p.tactic for p in ours if p.mode == "isolated"] == [default]
    everywhere, _ = planned(*arguments, ["chained"], ["cublas"], bounds=True)
    assert [p for p in points if p.mode == "chained"] == [p for p in everywhere if p.mode == "chained"]
    for kernel in ("cublas", "stream"):
        assert {p.mode for p in points if p.kernel == kernel} == {"isolated", "chained"}, "rivals stand beside ours"
    with pytest.raises(ValueError, match="mode is 'isolated:best'"):
        planned(*arguments, ["isolated:best"])


def test_a_full_sweep_is_every_legal_tactic_or_a_sentence():
    points, _ = planned("warp-splitk", [(3584, 7168)], [8], "full", ["chained"])
    legal = KERNELS["warp-splitk"].enumerate(GemmProblem(8, 3584, 7168), H200)
    assert sorted(p.tactic for p in points) == sorted(map(str, legal))
    points, left_out = planned("ws-gemm", [(560, 7168)], [8], "full", ["chained"])
    assert points == [] and "ws-gemm has 9,564 tactics" in left_out[0] and "choose 'coarse'" in left_out[0]


def test_exposed_launches_are_measured_where_they_are_asked_for():
    points, _ = planned("ws-gemm", [(560, 7168)], [8])
    assert {p.mode for p in points} == {"isolated", "chained"}


def test_both_processes_measure_the_same_the_quiet_one_first():
    arguments = "warp-splitk", [(3584, 7168), (896, 7168)], [1, 8], "coarse", ["chained"], ["cublas"]
    quiet, left_out = planned(*arguments, bounds=True)
    assert {p.process for p in quiet} == {"quiet"} and {p.kernel for p in quiet} > {"cublas", *records.BOUNDS}
    busy = [replace(point, process="busy") for point in quiet]
    assert planned(*arguments, bounds=True, processes=["busy", "quiet"]) == ([*quiet, *busy], left_out)
    assert planned(*arguments, bounds=True, processes=["busy"]) == (busy, left_out)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"kernel": "nope"}, "unknown kernel 'nope'"),
        ({"modes": ["warm"]}, "mode is 'warm', but must be one of isolated, chained, exposed"),
        ({"peers": ["mkl"]}, "peer is 'mkl'"),
        ({"most": 0}, "most is 0"),
        ({"weights": "hot"}, "weights is 'hot', but must be one of cold, warm"),
        ({"processes": ["idle"]}, "process is 'idle', but must be one of quiet, busy"),
        (
            {"tactics": "all"},
            "tactics is 'all', but must be 'default', 'coarse', 'full', 'recorded' or a list",
        ),
        ({"tactics": ["16,8"]}, "16,8"),
        ({"ms": [0]}, "m is 0"),
    ],
)
def test_bad_arguments_are_one_sentence(change, complaint):
    arguments = {"kernel": "warp-splitk", "shapes": [(2112, 7168)], "ms": [1]}
    with pytest.raises(ValueError, match=complaint):
        planned(**{**arguments, **change})


def test_an_unsupported_shape_is_left_out_with_its_reason():
    points, left_out = planned("warp-splitk", [(7168, 2112), (128, 2880)], [1], bounds=True)
    assert points == [] and all("K = " in sentence for sentence in left_out) and len(left_out) == 2


def test_a_front_that_its_shape_does_not_tell_is_a_front_to_its_own_kernel_only():
    front = FrontProblem(1, 64, 512, split=16, valid=12, latent=96, experts=24)
    tasks, _ = plan(Request("ws-gemm", [front], [4, 8], modes=["chained"], peers=["cublas"], bounds=True), H200)
    problems = {(task.point.kernel, task.point.m): task.problem for task in tasks}
    for m in (4, 8):
        assert problems["ws-gemm", m] == replace(front, m=m)
        assert problems["warp-splitk", m] == problems["cublas", m] == GemmProblem(m, 64, 512)
    assert problems["stream", 0] == GemmProblem(1, 64, 512), "a bound multiplies nothing"
    known, _ = plan(Request("ws-gemm", [GemmProblem(1, 560, 7168)], [4], modes=["chained"]), H200)
    assert known[0].problem == FrontProblem.of(GemmProblem(4, 560, 7168))


def test_a_weight_is_asked_for_once():
    again = [GemmProblem(1, 64, 512), GemmProblem(8, 64, 512)]
    assert len(Request("ws-gemm", again).problems) == 1
    with pytest.raises(ValueError, match="64x512 is asked for as two different problems"):
        Request("ws-gemm", [*again, FrontProblem(1, 64, 512, 16, 12)])


def test_recorded_tactics_are_those_of_the_nearest_ms(tmp_path, monkeypatch):
    """With the token tile of M where the kernel has but one; both triggers if only one was tried; of peers too."""
    times = {
        Point("balanced-splitk", 3584, 7168, 32, "128,1,8,64,3,32,0,1", "chained"): 13.5,
        Point("warp-splitk", 3584, 7168, 16, "32,8,256,6,2", "chained"): 12.4,
        Point("warp-splitk", 3584, 7168, 16, "32,8,256,5,2,1", "chained"): 12.3,
        Point("cublaslt", 3584, 7168, 16, "7", "chained"): 18.0,
    }
    (tmp_path / "devices.json").write_bytes((data_dir() / "devices.json").read_bytes())
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    write(tmp_path, "2026-01-01-a", times)
    default = KERNELS["balanced-splitk"].default(GemmProblem(24, 3584, 7168), H200)
    points, _ = planned(
        "balanced-splitk", [(3584, 7168)], [24], "recorded", ["chained"], ["cublaslt", "cublas"], also=["warp-splitk"]
    )
    tactics = {
        kernel: [p.tactic for p in points if p.kernel == kernel] for kernel in dict.fromkeys(p.kernel for p in points)
    }
    assert tactics["balanced-splitk"] == ["128,1,8,64,3,24,0,1", "128,1,8,64,3,24,1,1", str(default)]
    assert tactics["warp-splitk"][:-1] == ["32,8,256,5,2,1", "32,8,256,6,2"]
    assert (tactics["cublaslt"], tactics["cublas"]) == (["7"], [""])


def test_further_kernels_are_planned_like_the_first():
    points, left_out = planned("balanced-splitk", [(512, 7168)], [8, 64], also=["warp-splitk"], modes=["chained"])
    assert [(p.kernel, p.m) for p in points] == [("balanced-splitk", 8), ("warp-splitk", 8), ("balanced-splitk", 64)]
    assert left_out == ["warp-splitk 512x7168 M=64: 512x7168 at M = 64: M is 64, but this kernel takes 1 to 32 tokens"]
    with pytest.raises(ValueError, match="those of balanced-splitk are not those of warp-splitk"):
        Request("balanced-splitk", [], tactics=["1,1,1,64,1,8"], also=["warp-splitk"])
