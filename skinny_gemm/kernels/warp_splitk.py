"""Warp split-K GEMM for decode: `out[M, N] = x[M, K] @ weight[N, K]^T`, BF16 in and out, FP32 accumulation, M <= 32.

A CTA owns `output_tile` weight rows and `token_tile` tokens. Warps 4-5 load weights and 6 (and 7) activations, by
16-byte `cp.async` into a ring of K tiles; warps 0-3 each multiply one K quarter of every tile. Their partial sums meet
in shared memory and are added in warp order, so results are bitwise reproducible.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..artifact import Parameter
from ..layouts import WARP
from ..layouts import warp_splitk as layout
from ..layouts.swizzle import ELEMENT_BYTES, tile_offset
from ..problem import GemmProblem
from ..tactics.base import FIRST, LAST
from ..tactics.warp_splitk import WarpSplitKTactic
from . import ptx

COMPUTE_THREADS = layout.COMPUTE_WARPS * WARP
WEIGHT_THREADS = layout.WEIGHT_LOADER_WARPS * WARP
FIRST_ACTIVATION_WARP = layout.COMPUTE_WARPS + layout.WEIGHT_LOADER_WARPS
REDUCE_BARRIER = 1  #: named barrier of the four compute warps; 0 is the CTA's


@dataclass(frozen=True)
class Place:
    """Which thread this is, what its CTA works on, and where the regions of shared memory start."""

    thread: Any
    warp: Any
    first_feature: Any  #: weight row
    first_token: Any
    sA: Any
    sB: Any
    partials: Any
    full: Any  #: barriers, one a stage
    empty: Any


class WarpSplitK:
    """The kernel for one (N, K, tactic) and any M; `pdl` compiles programmatic dependent launch in or out."""

    parameters = (
        Parameter("weight", "pointer"),
        Parameter("x", "pointer"),
        Parameter("out", "pointer", written=True),
        Parameter("bias", "pointer", optional=True, alignment=8),
        Parameter("m", "i32"),
    )

    def __init__(self, problem: GemmProblem, tactic: WarpSplitKTactic, pdl: bool):
        self.problem, self.tactic, self.pdl = problem, tactic, pdl
        self.block, self.cluster, self.smem_bytes = (tactic.threads, 1, 1), (1, 1, 1), tactic.smem_bytes
        self.n, self.k, self.tiles = problem.n, problem.k, problem.k // tactic.k_tile
        self.ring = self.tiles > tactic.stages  # the ring is reused: loaders must wait for empty stages
        self.steps_a, self.steps_b = tactic.output_tile // layout.MMA_M, tactic.token_tile // layout.MMA_N
        self.activation_threads = tactic.b_loader_warps * WARP
        self.reduce_rounds = -(-layout.reduce_units(tactic.output_tile, tactic.token_tile) // COMPUTE_THREADS)
        self.smem = layout.smem_regions(tactic.output_tile, tactic.token_tile, tactic.k_tile, tactic.stages)

    @cute.jit
    def __call__(self, *values):
        grid = self.tactic.grid(self.problem)  # only traced: a launch takes that of its own M
        self.kernel(*values).launch(grid=grid, block=self.block, smem=self.smem_bytes, use_pdl=self.pdl)

    @cute.kernel
    def kernel(self, weight, x, out, bias, m):
        t = self.tactic
        thread, _, _ = cute.arch.thread_idx()
        tile_n, tile_m, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // WARP)
        smem = cute.arch.get_dyn_smem(cutlass.Uint8, alignment=1024)
        sA, sB, partials, full, empty = (smem + offset for _, offset, _ in self.smem)
        full, empty = cute.recast_ptr(full, dtype=Int64), cute.recast_ptr(empty, dtype=Int64)
        at = Place(thread, warp, tile_n * t.output_tile, tile_m * t.token_tile, sA, sB, partials, full, empty)

        # Masks instead of subtractions: the compiler then knows the bits and turns row steps into constant offsets.
        loader = thread & (WEIGHT_THREADS - 1)
        ring = self.ring_chunks(ptx.vector_register(sA.toint(), thread & 31), t.output_tile, loader, WEIGHT_THREADS)
        source = self.source_chunk(weight, at.first_feature, loader, WEIGHT_THREADS)
        policy = ptx.evict_first_policy()
        is_weight_loader = warp >= layout.COMPUTE_WARPS and warp < FIRST_ACTIVATION_WARP
        if is_weight_loader:
            # Weights never depend on the previous kernel: the first tile's DRAM latency hides behind barrier set-up
            # and behind the predecessor's tail.
            self.load_weights(0, source, ring, policy)
        if thread == 0:
            for stage in cutlass.range_constexpr(t.stages):
                cute.arch.mbarrier_init(full + stage, WEIGHT_THREADS + self.activation_threads)
                if cutlass.const_expr(self.ring):
                    cute.arch.mbarrier_init(empty + stage, layout.COMPUTE_WARPS)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        if warp < layout.COMPUTE_WARPS:
            self.compute(out, bias, m, at)
        elif is_weight_loader:
            self.stream_weights(source, ring, policy, at)
        else:
            self.stream_activations(x, m, at)

    kernel.set_name_prefix("warp_splitk", remove_cutlass_symbol=True, keep_mangled_name=False)

    # What follows up to `compute` runs while the kernel is traced: plain Python, unrolled over constants.

    def stream_weights(self, source, ring, policy, at: Place) -> None:
        """A weight loader: all K tiles, the first of which is already on its way."""
        for tile in range(self.tiles):
            if tile > 0:
                self.wait_empty(at, tile)
                self.load_weights(tile, source, ring, policy)
            cute.arch.cp_async_mbarrier_arrive_noinc(at.full + tile % self.tactic.stages)

    def stream_activations(self, x, m, at: Place) -> None:
        """An activation loader: waits for the preceding kernel, then all K tiles of this CTA's tokens.

        The next kernel may start once every CTA has let it, at the tactic's `trigger`; it waits for x in any case.
        """
        if self.pdl and self.tactic.trigger == FIRST:
            cute.arch.griddepcontrol_launch_dependents()
        if self.pdl:
            # Per thread: only a thread that has waited may read what the previous kernel wrote.
            cute.arch.griddepcontrol_wait()
        rows, threads = self.tactic.token_tile, self.activation_threads
        loader = at.thread & (threads - 1)
        ring = self.ring_chunks(at.sB.toint(), rows, loader, threads)
        source = self.source_chunk(x, at.first_token, loader, threads)
        valid = [at.first_token + row < m for row in self.chunk_rows(rows, loader, threads)]  # past M nothing is read
        for tile in range(self.tiles):
            self.wait_empty(at, tile)
            for (target, origin), row_valid in zip(self.copies(tile, source, ring, rows, threads), valid, strict=True):
                ptx.cp_async(target, origin, row_valid)
            cute.arch.cp_async_mbarrier_arrive_noinc(at.full + tile % self.tactic.stages)
        if self.pdl and self.tactic.trigger == LAST:
            cute.arch.griddepcontrol_launch_dependents()

    def wait_empty(self, at: Place, tile: int) -> None:
        """Waits until the compute warps have drained the stage that `tile` reuses; the first pass never waits."""
        stages = self.tactic.stages
        if tile >= stages:
            cute.arch.mbarrier_wait(at.empty + tile % stages, (tile // stages - 1) & 1)

    def load_weights(self, tile: int, source, ring, policy) -> None:
        """Issues a weight loader's copies of K tile `tile`."""
        for target, origin in self.copies(tile, source, ring, self.tactic.output_tile, WEIGHT_THREADS):
            ptx.cp_async_evict_first(target, origin, policy)

    def stage_bytes(self, tile: int, rows: int) -> int:
        """Bytes from the first stage of a ring of `[rows, k_tile]` tiles to the one that holds K tile `tile`."""
        return tile % self.tactic.stages * rows * self.tactic.k_tile * ELEMENT_BYTES

    def chunk_rows(self, rows: int, thread, threads: int) -> list:
        """The row of each 16-byte chunk that loader `thread` of `threads` copies of a `[rows, k_tile]` tile."""
        k_tile = self.tactic.k_tile
        count = layout.loader_chunks(rows, threads, k_tile)
        return [layout.loader_chunk(thread, i, threads, k_tile)[0] for i in range(count)]

    def ring_chunks(self, base, rows: int, thread, threads: int) -> list:
        """Where those chunks go in the first stage of the ring at `base`: shared-memory addresses."""
        k_tile = self.tactic.k_tile
        _, col = layout.loader_chunk(thread, 0, threads, k_tile)
        chunk_rows = self.chunk_rows(rows, thread, threads)
        return [base + tile_offset(row, col, k_tile) * ELEMENT_BYTES for row in chunk_rows]

    def source_chunk(self, matrix, first_row, thread, threads: int):
        """Global address of the first of those chunks in K tile 0, for rows of `matrix` from `first_row` on."""
        row, col = layout.loader_chunk(thread, 0, threads, self.tactic.k_tile)
        return matrix.toint() + (Int64(first_row + row) * self.k + col) * ELEMENT_BYTES

    def copies(self, tile: int, source, ring, rows: int, threads: int) -> Iterator[tuple]:
        """(to, from) of each chunk of K tile `tile`; both are constants from the chunks of `ring` and from `source`."""
        for i, chunk in enumerate(ring):
            row, _ = layout.loader_chunk(0, i, threads, self.tactic.k_tile)
            step = (row * self.k + tile * self.tactic.k_tile) * ELEMENT_BYTES
            yield chunk + self.stage_bytes(tile, rows), source + step

    @cute.jit
    def compute(self, out, bias, m, at):
        """A compute warp: multiplies its K quarter of every tile, then takes part in the fixed-order reduction."""
        t = self.tactic
        lane = at.thread & 31
        bias_words = []  # read ahead of the K loop, which hides the latency
        for i in cutlass.range_constexpr(self.reduce_rounds):
            feature, _ = layout.reduce_unit(at.thread + i * COMPUTE_THREADS, t.output_tile)
            low, high = Int32(0), Int32(0)
            if bias.toint() != 0:
                low, high = ptx.load_global_b32x2(bias.toint() + Int64((at.first_feature + feature) * ELEMENT_BYTES))
            bias_words += [low, high]
        steps_a, steps_b = range(self.steps_a), range(self.steps_b)
        acc = [[[Float32(0.0)] * 4 for _ in steps_b] for _ in steps_a]
        sA, sB = at.sA, at.sB
        a_lane = [  # this lane's row addresses in the first stage, by phase and step; by pair and step for B
            [sA.toint() + layout.a_offset(at.warp, i, phase, lane, t.k_tile) * ELEMENT_BYTES for i in steps_a]
            for phase in range(t.k_tile // 64)
        ]
        b_lane = [
            [sB.toint() + layout.b_offset(at.warp, j, pair, lane, t.k_tile) * ELEMENT_BYTES for j in steps_b]
            for pair in range(t.k_tile // 128)
        ]
        for tile in cutlass.range_constexpr(self.tiles):
            stage = tile % t.stages
            cute.arch.mbarrier_wait(at.full + stage, (tile // t.stages) & 1)
            a_stage, b_stage = self.stage_bytes(tile, t.output_tile), self.stage_bytes(tile, t.token_tile)
            for phase in cutlass.range_constexpr(t.k_tile // 64):
                pair, half = phase // 2, phase % 2
                if cutlass.const_expr(half == 0):  # one ldmatrix of B serves two phases
                    b = [ptx.ldmatrix_x4(address + b_stage) for address in b_lane[pair]]
                for i in cutlass.range_constexpr(self.steps_a):
                    a = ptx.ldmatrix_x4(a_lane[phase][i] + a_stage)
                    for j in cutlass.range_constexpr(self.steps_b):
                        acc[i][j] = ptx.mma_bf16(acc[i][j], a, b[j][2 * half : 2 * half + 2])
            if cutlass.const_expr(tile + t.stages < self.tiles):
                cute.arch.sync_warp()  # every lane's reads come before the one arrival that frees the stage
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive(at.empty + stage)
        self.reduce(acc, bias_words, out, m, at.partials.toint(), at)

    @cute.jit
    def reduce(self, acc, bias_words, out, m, partials, at):
        """Adds the four warps' partials in warp order, adds the bias, rounds to BF16, stores the tokens below M."""
        t = self.tactic
        lane = at.thread & 31
        words = t.output_tile * t.token_tile
        own_partials = partials + at.warp * (4 * words)
        for i in cutlass.range_constexpr(self.steps_a):
            for j in cutlass.range_constexpr(self.steps_b):
                for word in cutlass.range_constexpr(0, 4, 2):
                    feature, token = layout.accumulator_element(i, j, lane, word)
                    address = own_partials + 4 * layout.partial_word(feature, token, t.output_tile)
                    ptx.store_shared_f32x2(address, acc[i][j][word], acc[i][j][word + 1])
        cute.arch.barrier(barrier_id=REDUCE_BARRIER, number_of_threads=COMPUTE_THREADS)
        for i in cutlass.range_constexpr(self.reduce_rounds):
            unit = at.thread + i * COMPUTE_THREADS
            if unit < layout.reduce_units(t.output_tile, t.token_tile):
                feature, token = layout.reduce_unit(unit, t.output_tile)
                bias_values = [*ptx.unpack_bf16x2(bias_words[2 * i]), *ptx.unpack_bf16x2(bias_words[2 * i + 1])]
                sums = []
                for f in cutlass.range_constexpr(layout.FEATURES_PER_UNIT):
                    word = partials + 4 * layout.partial_word(feature + f, token, t.output_tile)
                    total = ptx.load_shared_f32(word)
                    for w in cutlass.range_constexpr(1, layout.COMPUTE_WARPS):
                        total = total + ptx.load_shared_f32(word + w * (4 * words))
                    sums.append(total + bias_values[f])
                row, column = at.first_token + token, at.first_feature + feature
                if row < m:
                    target = out.toint() + (Int64(row) * self.n + Int64(column)) * ELEMENT_BYTES
                    ptx.store_global_b32x2(target, ptx.pack_bf16x2(*sums[:2]), ptx.pack_bf16x2(*sums[2:]))


build = WarpSplitK
