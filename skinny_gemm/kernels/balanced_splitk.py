"""Balanced split-K GEMM for decode: `out[M, N] = x[M, K] @ weight[N, K]^T`, BF16 in, BF16 or FP32 out, M <= 64.

Every SM streams the same bytes: the row tiles of the CTAs differ in height by at most one row. A warp multiplies every
so manieth K chunk, which it copies itself into a ring of its own (`cp.async`): there is no loader warp, and no barrier
in the K loop. x goes straight to registers, or through the rings too. K is permuted as in the weight-stationary GEMM:
one 16-byte load of a row holds the words of two `mma`. A cluster that splits K makes up for a small N. Sums of warps,
then of CTAs, are added in order, so results are bitwise reproducible.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..artifact import Parameter
from ..checks import check_choice
from ..layouts import WARP
from ..layouts import balanced_splitk as layout
from ..layouts.fragments import K_BLOCK, MMA_N, a_words, b_words, load_row
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES
from ..problem import GemmProblem
from ..tactics.balanced_splitk import X_WINDOW, BalancedSplitKTactic
from ..tactics.base import FIRST, LAST
from . import ptx

OUTPUTS = {"bf16": "BFloat16", "f32": "Float32"}  #: what `out` points to


@dataclass(frozen=True)
class Place:
    """Which thread this is, which rows its CTA works on, and where its shared memory and its warp's ring start."""

    warp: Any
    lane: Any
    cta: Any  #: in the cluster
    first: Any  #: weight row of the tile
    height: Any  #: rows of the tile
    smem: Any
    ring: Any


class BalancedSplitK:
    """The kernel for one (N, K, tactic) and any M up to the token tile; `pdl` compiles PDL in or out.

    `output`: "bf16" rounds the results, "f32" stores them as they are. ValueError for another.
    """

    def __init__(self, problem: GemmProblem, tactic: BalancedSplitKTactic, pdl: bool, output: str = "bf16") -> None:
        check_choice("output", output, OUTPUTS)
        t = self.tactic = tactic
        self.problem, self.pdl, self.output = problem, pdl, output
        self.block, self.cluster, self.smem_bytes = (t.threads, 1, 1), (t.cluster, 1, 1), t.smem_bytes(problem)
        self.smem = {name: offset for name, offset, _ in t.smem_regions(problem)}
        self.n, self.k, self.rows, self.turns = problem.n, problem.k, t.rows(problem), t.turns(problem)
        self.k_slice, self.row_bytes = problem.k // t.cluster, ELEMENT_BYTES * problem.k
        self.stage_row_bytes = ELEMENT_BYTES * t.k_chunk
        self.stage_bytes = layout.stage_rows(self.rows, t.token_tile, t.x_ring) * self.stage_row_bytes
        self.warp_bytes = layout.warp_bytes(self.rows, t.token_tile, t.k_chunk, t.stages, t.x_ring)
        self.fragments = layout.fragments(self.rows, t.token_tile)
        self.rounds = -(-layout.slots(self.fragments, t.cluster) // t.warps)  # of fragments that a warp finishes
        self.parameters = (
            Parameter("weight", "pointer"),
            Parameter("x", "pointer"),
            Parameter("out", "pointer", written=True, dtype=OUTPUTS[output]),
            Parameter("bias", "pointer", optional=True, alignment=8),
            Parameter("m", "i32"),
        )

    @cute.jit
    def __call__(self, *values):
        grid, smem = self.tactic.grid(self.problem), self.smem_bytes
        self.kernel(*values).launch(grid=grid, block=self.block, cluster=self.cluster, smem=smem, use_pdl=self.pdl)

    @cute.kernel
    def kernel(self, weight, x, out, bias, m):
        t = self.tactic
        if cutlass.const_expr(self.pdl and t.trigger == FIRST):
            cute.arch.griddepcontrol_launch_dependents()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp, lane = cute.arch.make_warp_uniform(thread // WARP), thread & 31
        smem = cute.arch.get_dyn_smem(Int64, alignment=128)
        ring = ptx.vector_register(smem.toint() + warp * self.warp_bytes, lane)
        first, height = layout.row_range(block // t.cluster, self.n, t.row_tiles)
        at = Place(warp, lane, block % t.cluster, first, height, smem.toint(), ring)

        if cutlass.const_expr(t.cluster > 1):
            if thread == 0:
                received = smem + self.smem["received"] // 8
                cute.arch.mbarrier_init(received, 1)
                cute.arch.mbarrier_init_fence()
                owned = layout.slots(self.fragments, t.cluster, at.cta)
                cute.arch.mbarrier_arrive_and_expect_tx(received, owned * (t.cluster * layout.FRAGMENT_BYTES))
            cute.arch.sync_warp()  # orders nothing: lanes that have met arrive in one instruction
            cute.arch.cluster_arrive_relaxed()  # waited for where the first sum is sent, behind everything else
        biases = self.load_biases(bias, at)  # like weights they do not depend on the preceding kernel
        self.reduce(self.multiply(weight, x, m, at), biases, out, m, at)

    kernel.set_name_prefix("balanced_splitk", remove_cutlass_symbol=True, keep_mangled_name=False)

    # Methods without a decorator run while the kernel is traced: plain Python, unrolled over constants.

    def multiply(self, weight, x, m, at: Place) -> list[list]:
        """The sums of a warp's chunks, four words a fragment: fills the ring, waits for x, then turn by turn."""
        t, turns = self.tactic, self.turns
        filled = range(min(t.stages, turns))
        weight_copy, policy = self.first_copy(weight, at.first, 0, at), ptx.evict_first_policy()
        for turn in filled:
            self.copy_weights(turn, weight_copy, policy, at)
            cute.arch.cp_async_commit_group()
        blocks, parts = range(t.k_chunk // K_BLOCK), range(t.token_tile // MMA_N)
        loads, held = self.first_loads(at), t.held_blocks(self.problem)
        if held:
            self.wait_for_copies(0)
        first_halves = [self.load_weights(loads, 0, block) for block in range(held)]
        if self.pdl:
            cute.arch.griddepcontrol_wait()  # each thread reads x
        steps = [(turn, block, part) for turn in range(turns) for block in blocks for part in parts]
        x_copy: Any = None
        ahead: list = []
        if t.x_ring:
            x_copy = self.first_copy(x, 0, layout.first_x_row(self.rows), at)
            for turn in filled:
                self.copy_x(turn, x_copy, m)
                cute.arch.cp_async_commit_group()
        else:
            x_rows = self.x_rows(x, m, at)
            ahead = [self.load_x(x_rows, *step) for step in steps[:X_WINDOW]]
        if turns == len(filled):
            self.trigger_last()
        acc = [[Float32(0.0)] * 4 for _ in range(self.fragments)]
        for i, (turn, block, part) in enumerate(steps):
            if (block, part) == (0, 0):
                self.wait_for_copies(turn)
            if part == 0:
                at_hand = turn == 0 and block < held
                halves = first_halves[block] if at_hand else self.load_weights(loads, turn, block)
            words = self.load_stage(loads[part - len(parts)], turn, block) if t.x_ring else ahead[i]
            for mma in (0, 1):
                for row_part in range(len(halves) // 2):
                    a, sums = a_words(mma, *halves[2 * row_part :][:2]), layout.fragment(row_part, part, t.token_tile)
                    acc[sums] = ptx.mma_bf16(acc[sums], a, b_words(mma, words))
            if i + X_WINDOW < len(steps) and not t.x_ring:
                ahead.append(self.load_x(x_rows, *steps[i + X_WINDOW]))
            if (block, part) == (blocks[-1], parts[-1]) and turn + t.stages < turns:
                cute.arch.sync_warp()  # every lane's loads come before the copies that replace what they read
                self.copy_weights(turn + t.stages, weight_copy, policy, at)
                if t.x_ring:
                    self.copy_x(turn + t.stages, x_copy, m)
                cute.arch.cp_async_commit_group()
                if turn + t.stages == turns - 1:
                    self.trigger_last()
        return acc

    def wait_for_copies(self, turn: int) -> None:
        """Waits until every lane's copies of `turn` are there, those of later turns under way."""
        cute.arch.cp_async_wait_group(min(self.tactic.stages, self.turns - turn) - 1)
        cute.arch.sync_warp()

    def trigger_last(self) -> None:
        """Where the last copies are on their way: dependents start now, unless they did first of all."""
        if self.pdl and self.tactic.trigger == LAST:
            cute.arch.griddepcontrol_launch_dependents()

    def first_copy(self, matrix, first_row, stage_row: int, at: Place) -> tuple:
        """(row, to, from) of a lane's first copy of `matrix` from `first_row` on in turn 0, to `stage_row` and on.

        All its other copies are constants away: rows by even numbers, so that their chunks swap alike.
        """
        t = self.tactic
        row, chunk = layout.copied(at.lane, 0, t.k_chunk)
        column = layout.chunk_column(at.cta, at.warp, 0, self.k_slice, t.warps, t.k_chunk) + chunk * CHUNK
        source = matrix.toint() + Int64(first_row + row) * self.row_bytes + Int64(column) * ELEMENT_BYTES
        return row, at.ring + layout.stage_offset(stage_row + row, chunk, t.k_chunk), source

    def copy_weights(self, turn: int, first: tuple, policy, at: Place) -> None:
        """Issues a lane's copies of the weights of `turn`; none of rows past the tile."""
        lane_row, target, source = first
        for row, last, offsets in self.copies(turn, self.rows):
            inside = None if last < self.n // self.tactic.row_tiles else lane_row + row < at.height
            ptx.cp_async_evict_first(target, source, policy, inside, offsets)

    def copy_x(self, turn: int, first: tuple, m) -> None:
        """Issues a lane's copies of the x of `turn`; past M nothing is read."""
        lane_row, target, source = first
        for row, _, offsets in self.copies(turn, self.tactic.token_tile):
            ptx.cp_async(target, source, lane_row + row < m, offsets)

    def copies(self, turn: int, rows: int) -> Iterator[tuple]:
        """Of each copy: rows from the first one's, the last row that the warp copies then, (to, from) offsets."""
        t = self.tactic
        stage = turn % t.stages * self.stage_bytes
        column = layout.chunk_column(0, 0, turn, self.k_slice, t.warps, t.k_chunk) * ELEMENT_BYTES
        for index in range(layout.copies(rows, t.k_chunk)):
            (row, _), (last, _) = (layout.copied(lane, index, t.k_chunk) for lane in (0, WARP - 1))
            yield row, last, (stage + row * self.stage_row_bytes, row * self.row_bytes + column)

    def first_loads(self, at: Place) -> list[list]:
        """Where a lane's loads start in the first stage, of even and odd K blocks: per half tile, then per 8 tokens."""
        chunks = [layout.loaded_chunk(at.lane, block) for block in (0, 1)]
        # A row past the tile repeats the last one; what comes of it is dropped.
        inside = [layout.loaded_row(at.lane, half) for half in range(layout.half_tiles(self.rows))]
        rows = [row if 8 * i + 7 < self.rows else cutlass.min(row, self.rows - 1) for i, row in enumerate(inside)]
        if self.tactic.x_ring:
            first = layout.first_x_row(self.rows) + load_row(at.lane)
            rows += [first + token for token in range(0, self.tactic.token_tile, MMA_N)]
        return [[at.ring + layout.stage_offset(row, chunk, self.tactic.k_chunk) for chunk in chunks] for row in rows]

    def load_weights(self, loads: list, turn: int, block: int) -> list:
        """A lane's words of each half tile's K block; zeros past the last, where an mma is 16 rows high."""
        halves = [self.load_stage(load, turn, block) for load in loads[: layout.half_tiles(self.rows)]]
        return halves + [[Int32(0)] * 4] * (len(halves) % 2)

    def load_stage(self, first: list, turn: int, block: int):
        """A lane's 16 bytes of 8 rows' K block, from the stage of `turn`."""
        stage = turn % self.tactic.stages * self.stage_bytes
        return ptx.load_shared_b32x4(first[block % 2], offset=stage + block // 2 * (2 * K_BLOCK * ELEMENT_BYTES))

    def x_rows(self, x, m, at: Place) -> list:
        """Where a lane's loads of x from global memory start, for every 8 tokens."""
        t = self.tactic
        column = layout.chunk_column(at.cta, at.warp, 0, self.k_slice, t.warps, t.k_chunk)
        column = column + layout.loaded_chunk(at.lane, 0) * CHUNK
        # Tokens past M repeat the last one: in bounds, free (the same sectors), and never stored.
        tokens = [cutlass.min(first + load_row(at.lane), m - 1) for first in range(0, t.token_tile, MMA_N)]
        return [x.toint() + Int64(token) * self.row_bytes + Int64(column) * ELEMENT_BYTES for token in tokens]

    def load_x(self, rows: list, turn: int, block: int, part: int):
        """A lane's 16 bytes of 8 tokens' K block, from global memory."""
        t = self.tactic
        column = layout.chunk_column(0, 0, turn, self.k_slice, t.warps, t.k_chunk) + block * K_BLOCK
        return ptx.load_global_b32x4(rows[part], offset=column * ELEMENT_BYTES)

    def finished(self, round_: int, at: Place) -> tuple:
        """(slot, fragment, whether there is one) that this warp finishes in its round 0, 1, ..."""
        slot = at.warp + round_ * self.tactic.warps
        number = layout.owned(at.cta, slot, self.tactic.cluster)
        return slot, number, number < self.fragments

    @cute.jit
    def load_biases(self, bias, at):
        """The bias of the two rows that a lane has of each fragment that its warp finishes."""
        found = []
        for i in cutlass.range_constexpr(self.rounds):
            _, number, there = self.finished(i, at)
            for word in cutlass.range_constexpr(0, 4, 2):
                row, _ = layout.sum_element(number, at.lane, word, self.tactic.token_tile)
                value = Int32(0)
                if bias.toint() != 0 and there and row < at.height:
                    value = ptx.load_global_b16(bias.toint() + Int64(at.first + row) * ELEMENT_BYTES)
                found.append(value)
        return found

    @cute.jit
    def reduce(self, acc, biases, out, m, at):
        """Adds the warps' sums in order and, in a cluster, those of its CTAs; stores the results."""
        t = self.tactic
        cute.arch.sync_warp()  # every lane's loads from the ring are done
        own = at.ring + layout.lane_offset(0, at.lane)
        for number in cutlass.range_constexpr(self.fragments):
            ptx.store_shared_f32x4(own + number * layout.FRAGMENT_BYTES, *acc[number])
        cute.arch.sync_threads()
        if cutlass.const_expr(t.cluster > 1):
            self.send(at)
        for i in cutlass.range_constexpr(self.rounds):
            slot, number, there = self.finished(i, at)
            if there:
                if cutlass.const_expr(t.cluster > 1):
                    if cutlass.const_expr(i == 0):  # it comes before any other
                        ptx.mbarrier_wait_cluster(at.smem + self.smem["received"], Int32(0))
                    received = layout.lane_offset(slot * t.cluster, at.lane)
                    total = self.total(at.smem + self.smem["receive"] + received, t.cluster, layout.FRAGMENT_BYTES)
                else:
                    total = self.sum_of_warps(number, at)
                self.store(total, number, biases[2 * i : 2 * i + 2], out, m, at)

    @cute.jit
    def send(self, at):
        """Sends this CTA's sums to their owners in the cluster, each fragment by one warp."""
        t = self.tactic
        receive, received = at.smem + self.smem["receive"], at.smem + self.smem["received"]
        cute.arch.cluster_wait()  # the owners' barriers are armed
        for i in cutlass.range_constexpr(-(-self.fragments // t.warps)):
            number = at.warp + i * t.warps
            if number < self.fragments:
                owner, slot = layout.owner(number, t.cluster)
                target = receive + layout.lane_offset(slot * t.cluster + at.cta, at.lane)
                to, barrier = ptx.cluster_address(target, owner), ptx.cluster_address(received, owner)
                ptx.store_cluster_async_f32x4(to, self.sum_of_warps(number, at), barrier)

    def sum_of_warps(self, number, at: Place) -> list:
        """A lane's words of a fragment, over the warps in order."""
        return self.total(at.smem + layout.lane_offset(number, at.lane), self.tactic.warps, self.warp_bytes)

    def total(self, first, count: int, step: int) -> list:
        """The sum of `count` runs of four words from `first` on, `step` bytes apart, in their order."""
        parts = [ptx.load_shared_f32x4(first, offset=i * step) for i in range(count)]
        return reduce(lambda total, words: [a + b for a, b in zip(total, words, strict=True)], parts)

    @cute.jit
    def store(self, total, number, biases, out, m, at):
        """Adds the bias to a lane's sums of a fragment and stores those of the tile's rows and of tokens below M."""
        for word in cutlass.range_constexpr(4):
            row, token = layout.sum_element(number, at.lane, word, self.tactic.token_tile)
            bias, _ = ptx.unpack_bf16x2(biases[word // 2])
            if row < at.height and token < m:
                element, value = Int64(token) * self.n + Int64(at.first + row), total[word] + bias
                if cutlass.const_expr(self.output == "f32"):
                    ptx.store_global_f32(out.toint() + element * 4, value)
                else:
                    ptx.store_global_b16(out.toint() + element * ELEMENT_BYTES, ptx.pack_bf16x2(value, value))


build = BalancedSplitK
