"""A kernel is one registry entry plus its own files: here a toy, all of it in this file, is entered in `KERNELS`.

With no other edit the command line lists, verifies, inspects, plans and answers for it, figures draw it, its bank
conflicts are counted, `prepare` and `matmul` run it where it is the fastest, and the tactic explorer has its sliders
and its map of shared memory.
"""

import itertools
import json
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch

from skinny_gemm import device, matmul, prepare
from skinny_gemm.__main__ import main
from skinny_gemm.artifact import Parameter
from skinny_gemm.bench.plan import Request, plan
from skinny_gemm.catalogue import data_dir
from skinny_gemm.layouts import WARP, end, placed
from skinny_gemm.layouts.banks import Access
from skinny_gemm.layouts.fragments import MMA_M, MMA_N, c_element
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import Point, model
from skinny_gemm.records.best import write_defaults
from skinny_gemm.tactics import KERNELS, Footprint, Tactic
from skinny_gemm.tactics.base import occupancy
from skinny_gemm.tactics.defaults import best_recorded
from tests.support.records import write

# --- its layouts

K_BLOCK = 32  #: K elements of four lanes x 16 bytes: two mma


def k_column(block, lane):
    """First of the 8 consecutive K elements that `lane` loads of K block `block`; its row or token is lane // 4."""
    return K_BLOCK * block + 8 * (lane & 3)


def turn_word(row, token, pad):
    """FP32 word of (row 0..15, token 0..7) of a warp's block while it turns from accumulators into runs of rows."""
    return token * (MMA_M + pad) + row


def turn_regions(warps, pad):
    """The CTA's shared memory: one block a warp."""
    return placed([("turn", warps * 4 * MMA_N * (MMA_M + pad), 16)])


def publish_unit(lane):
    """(first of four rows, token) that `lane` stores."""
    return 4 * (lane >> 3), lane & 7


# --- its tactics


@dataclass(frozen=True)
class ToyTactic(Tactic):
    """One warp for 16 weight rows and 8 tokens; operands straight from global memory."""

    kernel = "toy"
    module = __name__
    max_m = 16
    n_multiple = MMA_M
    k_multiple = K_BLOCK

    warps: int  #: of a CTA, 1, 2 or 4: each has 16 rows
    pad: int  #: words between the tokens of the block in shared memory: 0 or 4

    def why_not(self, problem, device):
        if reason := self.refusal(problem):
            return reason
        if self.warps not in (1, 2, 4) or self.pad not in (0, 4):
            return f"warps is {self.warps} and pad {self.pad}, but they must be 1, 2 or 4 and 0 or 4"
        if problem.n % (MMA_M * self.warps):
            return f"{self.warps} warps of 16 rows do not divide N = {problem.n}"
        return None

    def grid(self, problem):
        return problem.n // (MMA_M * self.warps), -(-problem.m // MMA_N), 1

    def footprint(self, problem, device):
        columns, rows, _ = self.grid(problem)
        regions, threads = turn_regions(self.warps, self.pad), self.warps * WARP
        ctas_per_sm = occupancy(end(regions), threads, device)
        waves = -(-columns * rows // (ctas_per_sm * device.sms))
        return Footprint(tuple(regions), end(regions), threads, columns * rows, ctas_per_sm, waves, 0)

    def shared_accesses(self, problem):
        lane = np.arange(WARP)
        first, token = publish_unit(lane)
        stores = [c_element(lane, word) for word in range(4)]
        padded, plain = ((lambda row, token, pad=pad: 4 * turn_word(row, token, pad)) for pad in (self.pad, 0))
        return [
            Access.of("turn, st", 4, stores, padded, plain),
            Access.of("turn, ld", 16, [(first, token)], padded, plain),
        ]

    @classmethod
    def enumerate(cls, problem, device):
        every = itertools.starmap(cls, itertools.product((1, 2, 4), (0, 4)))
        return [tactic for tactic in every if tactic.why_not(problem, device) is None]

    @classmethod
    def heuristic(cls, problem, device):
        if legal := cls.enumerate(problem, device):
            return legal[-1]
        raise ValueError(f"{problem.n}x{problem.k} at M = {problem.m}: {cls.refusal(problem)}")


# --- its device code


def build(problem, tactic, pdl):
    """The kernel to compile for the weights of `problem`; it takes any M up to 16."""
    import cutlass
    import cutlass.cute as cute
    from cutlass import Float32, Int32, Int64

    from skinny_gemm.kernels import ptx

    class Toy:
        parameters = (
            Parameter("weight", "pointer"),
            Parameter("x", "pointer"),
            Parameter("out", "pointer", written=True),
            Parameter("m", "i32"),
        )
        block, cluster = (tactic.warps * WARP, 1, 1), (1, 1, 1)
        smem_bytes = end(turn_regions(tactic.warps, tactic.pad))

        def __init__(self):
            self.n, self.k, self.warps, self.pad, self.pdl = problem.n, problem.k, tactic.warps, tactic.pad, pdl

        @cute.jit
        def __call__(self, weight: cute.Pointer, x: cute.Pointer, out: cute.Pointer, m: Int32):
            self.kernel(weight, x, out, m).launch(
                grid=[self.n // (MMA_M * self.warps), cute.ceil_div(m, MMA_N), 1],
                block=self.block,
                smem=self.smem_bytes,
                use_pdl=self.pdl,
            )

        @cute.kernel
        def kernel(self, weight: cute.Pointer, x: cute.Pointer, out: cute.Pointer, m: Int32):
            thread, _, _ = cute.arch.thread_idx()
            tile_n, tile_m, _ = cute.arch.block_idx()
            lane, warp = thread % WARP, thread // WARP
            first_row, first_token = (tile_n * self.warps + warp) * MMA_M, tile_m * MMA_N
            if cutlass.const_expr(self.pdl):
                cute.arch.griddepcontrol_launch_dependents()
                cute.arch.griddepcontrol_wait()
            token = first_token + (lane >> 2)
            if token >= m:  # multiplied, but not stored
                token = m - 1
            low = weight.toint() + 2 * (Int64(first_row + (lane >> 2)) * self.k + k_column(0, lane))
            source = x.toint() + 2 * (Int64(token) * self.k + k_column(0, lane))
            acc = [Float32(0.0)] * 4
            for block in cutlass.range(self.k // K_BLOCK):
                step = Int64(block) * (2 * K_BLOCK)
                a, b = ptx.load_global_b32x4(low + step), ptx.load_global_b32x4(low + step + 16 * self.k)
                c = ptx.load_global_b32x4(source + step)
                for mma in cutlass.range_constexpr(2):
                    words = a[2 * mma], b[2 * mma], a[2 * mma + 1], b[2 * mma + 1]
                    acc = ptx.mma_bf16(acc, words, (c[2 * mma], c[2 * mma + 1]))
            shared = cute.arch.get_dyn_smem(cutlass.Uint8, alignment=16).toint()
            turn = shared + warp * (4 * MMA_N * (MMA_M + self.pad))
            for word in cutlass.range_constexpr(4):
                ptx.store_shared_b32(turn + 4 * turn_word(*c_element(lane, word), self.pad), acc[word])
            cute.arch.sync_warp()
            row, column = publish_unit(lane)
            sums = ptx.load_shared_f32x4(turn + 4 * turn_word(row, column, self.pad))
            if first_token + column < m:
                ptx.store_global_b32x2(
                    out.toint() + 2 * (Int64(first_token + column) * self.n + first_row + row),
                    ptx.pack_bf16x2(sums[0], sums[1]),
                    ptx.pack_bf16x2(sums[2], sums[3]),
                )

    return Toy()


# --- what it gets for that

H200 = device.get("h200")
PROBLEM = GemmProblem(9, 64, 256)
SIZES = "--n 64 --k 256"


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    """The registry entry: the one edit a kernel needs outside its own files."""
    monkeypatch.setitem(KERNELS, "toy", ToyTactic)


@pytest.fixture
def call(capsys):
    """`call("tactics toy ...")`: the JSON that the command prints, or what it says on stderr where it fails."""

    def call(line):
        status = main([*line.split(), "--json"])
        printed = capsys.readouterr()
        return json.loads(printed.out) if status == 0 else printed.err

    return call


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A data folder with a made-up campaign: (tactic, microseconds) of the toy, of a peer and of the bound."""
    for name in ("devices.json", "shapes.csv"):
        (tmp_path / name).write_bytes((data_dir() / name).read_bytes())
    times = {Point("toy", 64, 256, 9, text): time for text, time in (("1,0", 3.0), ("2,4", 2.0), ("4,4", 4.0))}
    others = {Point("cublas", 64, 256, 9): 5.0, Point("stream", 64, 256, 0, "528x3x8192"): 1.0}
    write(tmp_path, "2026-01-01", times | others)
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    return tmp_path


def test_the_command_line_lists_its_tactics_and_takes_its_shapes(call):
    listed = call(f"tactics toy --m 9 {SIZES}")
    assert {row["tactic"] for row in listed} == {"1,0", "1,4", "2,0", "2,4", "4,0", "4,4"}
    assert listed[0]["default"] and listed[0]["warps"] == 4 and listed[0]["smem_bytes"] == 4 * 640
    assert "M is 17, but this kernel takes 1 to 16 tokens" in call(f"tactics toy --m 17 {SIZES}")
    known = "known are warp-splitk, balanced-splitk, wgmma-splitk, ws-gemm, toy"
    assert f"unknown kernel 'toys': {known}" in call(f"tactics toys --m 1 {SIZES}")
    assert all(row["kernels"]["toy"] is True for row in call("shapes") if row["k"] % 32 == 0)


@pytest.mark.parametrize("tactic", ["1,0", "4,4"])
def test_it_computes_the_product(call, tactic):
    result = call(f"verify toy --m 9 {SIZES} --tactic {tactic} --backend interpreter --schedule adversarial --seeds 2")
    assert result["passed"] and result["kernel"] == "toy" and result["bitwise_equal"] and result["m"] == 9


def test_its_resources_and_instructions_are_told(call):
    report = call(f"inspect toy {SIZES} --arch sm_90a")
    assert report["smem_bytes"] == ToyTactic(4, 4).footprint(PROBLEM, H200).smem_bytes and report["threads"] == 128
    assert any(opcode.startswith("HMMA") for opcode in report["sass"])


def test_a_campaign_sweeps_its_neighbours():
    request = Request("toy", [GemmProblem(1, 64, 256)], [9, 17], "coarse", ["chained"], ["cublas"])
    tasks, left_out = plan(request, H200)
    points = [task.point for task in tasks]
    assert {point.tactic for point in points if point.kernel == "toy"} == {"4,4", "1,4", "2,4", "4,0"}
    assert {point.kernel for point in points} == {"toy", "cublas"} and "M is 17" in left_out[0]


def test_the_records_answer_for_it(call, recorded):
    answer = call(f"best {SIZES} --m 9")
    assert (answer["kernel"], answer["tactic"], answer["ratio_to_bound"]) == ("toy", "2,4", 2.0)
    assert ToyTactic.default(PROBLEM, H200) == ToyTactic.heuristic(PROBLEM, H200)
    write_defaults()
    best_recorded.cache_clear()
    assert str(ToyTactic.default(PROBLEM, H200)) == "2,4"
    assert model.why_not("toy", "chained", H200) == "there is no model of toy"


def test_it_competes_for_plain_gemms(call, recorded):
    """It is recorded here and no other kernel is: `matmul` runs it. It has no parameter for a bias, and says so."""
    x, weight = (torch.randn(rows, 256).bfloat16() for rows in (9, 64))
    write_defaults()
    best_recorded.cache_clear()
    prepared = prepare(weight, [9])
    assert prepared.tactics == {9: ToyTactic(2, 4)}
    out, expected = prepared.run(x, x.new_empty(9, 64)), x.double() @ weight.double().T
    assert (out.double() - expected).norm() / expected.norm() < 4e-3
    assert torch.equal(matmul(x, weight, ToyTactic(1, 0)), matmul(x, weight))
    with pytest.raises(ValueError, match="bias is given, but must be None: toy adds none"):
        prepared.run(x, out, torch.zeros(64).bfloat16())


def test_figures_draw_it(call, recorded, tmp_path):
    files = call(f"figure all toy --m 9 {SIZES} --tactic 2,4 --out {tmp_path / 'figures'}")["files"]
    names = {file.rpartition("/")[2] for file in files}
    assert {f"toy-64x256-m9-{name}.svg" for name in ("bandwidth", "roofline", "tactic-fields", "smem")} <= names
    (smem,) = (file for file in files if file.endswith("smem.svg"))
    assert ">turn" in open(smem).read()


def test_its_bank_conflicts_are_counted_and_are_those_of_the_trace():
    from skinny_gemm.explore import conflicts

    _, data, facts = conflicts(ToyTactic(2, 4), PROBLEM)
    wavefronts = data.pivot(index="access", columns="source", values="wavefronts")
    assert set(wavefronts.index) == {"turn, st", "turn, ld"} and facts["kernel"] == "toy"
    assert (wavefronts["trace of the kernel"] == wavefronts["model, as shipped"]).all()
    assert wavefronts["model, row-major"]["turn, st"] > wavefronts["model, as shipped"]["turn, st"]


def test_a_kernel_that_describes_no_accesses_says_so(monkeypatch):
    from skinny_gemm.explore import conflicts

    monkeypatch.delattr(ToyTactic, "shared_accesses")
    with pytest.raises(ValueError, match="toy describes no accesses to shared memory"):
        conflicts(ToyTactic(2, 4), PROBLEM)


def test_the_tactic_explorer_has_its_sliders_and_its_map_of_shared_memory(recorded):
    from skinny_gemm.explore.tactic import TacticExplorer

    explorer = TacticExplorer()
    explorer.kernel.value, explorer.model.value = "toy", None
    explorer.n.value, explorer.k.value, explorer.m.value = 64, 256, 9
    assert list(explorer.fields) == [field.name for field in fields(ToyTactic)]
    assert explorer.fields["warps"].options == (1, 2, 4) and explorer.fields["pad"].options == (0, 4)
    assert ">turn" in explorer.smem.value and "OK" in explorer.verdict.value
    explorer.best_button.click()
    assert explorer.trouble.value == "" and str(explorer.tactic) == "2,4"
    assert "campaign 2026-01-01" in explorer.status.value
    explorer.m.value = 17
    assert "M is 17, but this kernel takes 1 to 16 tokens" in explorer.verdict.value and explorer.smem.hidden
