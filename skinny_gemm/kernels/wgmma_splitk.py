"""wgmma split-K GEMM for decode: `out[M, N] = x[M, K] @ weight[N, K]^T`, BF16 in, BF16 or FP32 out, M <= 64.

For many tokens, where `mma.sync` needs too many registers and reads x too often: tiles as in the balanced split-K
kernel, but higher. A warpgroup multiplies every so manieth K chunk, which it copies itself into a ring of its own
(`cp.async`), x and weights alike; `wgmma` reads both from there, so that a tile's sums are all that registers hold.
One barrier of the group a turn frees the stage of the turn before.
"""

from collections.abc import Iterator

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int64

from ..layouts import WARP, balanced_splitk
from ..layouts import wgmma_splitk as layout
from ..layouts.fragments import MMA_K, WARPGROUP
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES
from . import ptx
from .balanced import Balanced, Place

COALESCED = (
    32  #: tokens from which on a tile's results pass through shared memory once more, to be stored in whole lines
)


class WgmmaSplitK(Balanced):
    """The units are warpgroups."""

    unit_warps = WARPGROUP
    alignment = layout.PATTERN_BYTES

    def place_units(self) -> tuple[int, int]:
        t = self.tactic
        self.k_slice = self.k // t.cluster
        self.stage_bytes = layout.stage_bytes(self.rows, t.token_tile, t.k_chunk)
        self.atom_bytes = self.stage_bytes // (t.k_chunk // layout.ATOM_K)
        self.parts = layout.token_parts(t.token_tile)
        self.coalesced = self.output == "bf16" and t.cluster == 1 and t.token_tile >= COALESCED
        group_bytes = layout.group_bytes(self.rows, t.token_tile, t.k_chunk, t.stages)
        return group_bytes, layout.fragments(self.rows, t.token_tile)

    @cute.kernel
    def kernel(self, weight, x, out, bias, m):
        self.run(weight, x, out, bias, m)

    kernel.set_name_prefix("wgmma_splitk", remove_cutlass_symbol=True, keep_mangled_name=False)

    # Methods without a decorator run while the kernel is traced: plain Python, unrolled over constants.

    def multiply(self, weight, x, m, at: Place) -> list:
        """The accumulators of a group's chunks: fills the ring, waits for x, then turn by turn."""
        t, turns = self.tactic, self.turns
        filled = range(min(t.stages, turns))
        weight_copy, policy = self.first_copy(weight, at.first, t.token_tile, at), ptx.evict_first_policy()
        for turn in filled:
            self.copy_weights(turn, weight_copy, policy, at)
            cute.arch.cp_async_commit_group()
        self.wait_for_preceding()
        x_copy = self.first_copy(x, 0, 0, at)
        for turn in filled:
            self.copy_x(turn, x_copy, m)
            cute.arch.cp_async_commit_group()
        if turns == len(filled):
            self.trigger_last()
        # Not from `at.ring`: descriptors are to be in uniform registers.
        ring = at.smem + at.warp // WARPGROUP * self.unit_bytes
        operands = [layout.descriptor(Int64(ring + row * layout.ATOM_ROW_BYTES)) for row in (0, t.token_tile)]
        first = [Float32(0.0)] * (layout.whole_rows(self.rows) // 2)
        copies = weight_copy, x_copy, policy, m, at
        acc = self.turn(0, first, operands, copies)
        rounds = max(0, turns - t.stages) // t.stages  # of all stages, each turn of which refills one
        if rounds > 1:
            acc = self.rolled(rounds, acc, operands, copies)
            if rounds * t.stages == turns - t.stages:
                self.trigger_last()
        for turn in range(1 + (rounds * t.stages if rounds > 1 else 0), turns):
            acc = self.turn(turn, acc, operands, copies)
            if turn == turns - t.stages:
                self.trigger_last()
        return acc

    @cute.jit
    def rolled(self, rounds, acc, operands, copies):
        """Turn 1 and those behind it in a loop, a round at a time: unrolled, all of them fill the instruction cache."""
        (row, weight_to, weight_from), (_, x_to, x_from), *others = copies
        for i in cutlass.range(rounds, unroll=1):
            passed = Int64(i) * (self.tactic.stages * self.units * self.tactic.k_chunk * ELEMENT_BYTES)
            here = (row, weight_to, weight_from + passed), (row, x_to, x_from + passed), *others
            for turn in cutlass.range_constexpr(1, 1 + self.tactic.stages):
                acc = self.turn(turn, acc, operands, here)
        return acc

    def turn(self, turn: int, acc: list, operands: list, copies) -> list:
        """Multiplies the chunk of `turn`, once all its copies are there; refills the stage of the turn before."""
        t, turns = self.tactic, self.turns
        weight_copy, x_copy, policy, m, at = copies
        issued = min(t.stages + max(0, turn - 1), turns)  # turns whose copies are on their way
        cute.arch.cp_async_wait_group(issued - turn - 1)
        ptx.fence_async_proxy()  # what this thread's copies wrote, for wgmma
        self.meet(at)  # all copies of this turn are there, nobody reads the stage of the turn before
        refilled = turn - 1 + t.stages
        if 0 < turn and refilled < turns:
            self.copy_weights(refilled, weight_copy, policy, at)
            self.copy_x(refilled, x_copy, m)
            cute.arch.cp_async_commit_group()
        stage = turn % t.stages * self.stage_bytes
        steps = [
            (stage + atom * self.atom_bytes + k * ELEMENT_BYTES) >> 4
            for atom in range(t.k_chunk // layout.ATOM_K)
            for k in range(0, layout.ATOM_K, MMA_K)
        ]
        return ptx.wgmma_bf16(acc, operands[0], operands[1], steps)

    def meet(self, at: Place) -> None:
        """Waits for all threads of the group: a barrier of its own, since 0 is the CTA's."""
        group = at.warp // WARPGROUP
        cute.arch.barrier(barrier_id=1 + group, number_of_threads=layout.GROUP)

    def first_copy(self, matrix, first_row, atom_row: int, at: Place) -> tuple:
        """(row, to, from) of a thread's first copy of `matrix` from `first_row` on in turn 0, to `atom_row` and on.

        All its other copies are constants away: rows by 16, so that their chunks are XOR-ed alike.
        """
        t, group = self.tactic, at.warp // WARPGROUP
        row, chunk = layout.copied(at.warp % WARPGROUP * WARP + at.lane)
        column = balanced_splitk.chunk_column(at.cta, group, 0, self.k_slice, t.groups, t.k_chunk) + chunk * CHUNK
        source = matrix.toint() + Int64(first_row + row) * self.row_bytes + Int64(column) * ELEMENT_BYTES
        return row, at.ring + atom_row * layout.ATOM_ROW_BYTES + layout.atom_offset(row, chunk), source

    def copies(self, turn: int, rows: int) -> Iterator[tuple]:
        """Of each copy: rows from the first one's, the last row that the group copies then, (to, from) offsets."""
        t = self.tactic
        stage = turn % t.stages * self.stage_bytes
        column = balanced_splitk.chunk_column(0, 0, turn, self.k_slice, t.groups, t.k_chunk)
        for atom in range(t.k_chunk // layout.ATOM_K):
            start = (column + atom * layout.ATOM_K) * ELEMENT_BYTES
            for row in range(0, rows, layout.COPIED_ROWS):
                to = stage + atom * self.atom_bytes + row * layout.ATOM_ROW_BYTES
                yield row, row + layout.COPIED_ROWS - 1, (to, row * self.row_bytes + start)

    @cute.jit
    def store_sums(self, acc, at):
        """Each warp those of its 16 tokens; warps of none have nothing to store."""
        self.meet(at)  # everybody's wgmma are done
        part = at.warp % WARPGROUP
        if part < self.parts:
            for row_part in cutlass.range_constexpr(len(acc) // 4):
                number = layout.fragment(row_part, part, self.tactic.token_tile)
                words = [acc[4 * row_part + layout.accumulator_word(word)] for word in range(4)]
                ptx.store_shared_f32x4(at.ring + balanced_splitk.lane_offset(number, at.lane), *words)

    @cute.jit
    def finish(self, biases, out, m, at):
        """Adds up and stores all results of a tile, by way of shared memory where they are many."""
        if cutlass.const_expr(self.coalesced):
            self.store_coalesced(biases, out, m, at)
        else:
            Balanced.finish(self, biases, out, m, at)

    @cute.jit
    def store_coalesced(self, biases, out, m, at):
        """Adds up all fragments, puts the results into shared memory by tokens, and stores 16 aligned bytes a thread.

        Parts of a sector cost the L2 as much as a whole one: 12288x2048 at M = 64 went from 16.7 to 15.2 us on H200. It
        takes two barriers more, which few results do not pay for: 3072x1536 in clusters of 2 went from 4.9 to 5.7.
        """
        results = []
        for i in cutlass.range_constexpr(self.rounds):
            _, number, _ = self.finished(i, at)
            total = self.sum_of_units(cutlass.min(number, self.fragments - 1), at)
            for word in cutlass.range_constexpr(4):
                bias, _ = ptx.unpack_bf16x2(biases[2 * i + word // 2])
                results.append(ptx.pack_bf16x2(total[word] + bias, total[word] + bias))
        cute.arch.sync_threads()  # all sums are read: what follows overwrites them
        shift = at.first % CHUNK
        for i in cutlass.range_constexpr(self.rounds):
            _, number, there = self.finished(i, at)
            for word in cutlass.range_constexpr(4):
                row, token = self.sum_element(number, at.lane, word)
                if there and row < at.height and token < m:
                    offset = layout.out_offset(token, row + shift, self.rows)
                    ptx.store_shared_b16(at.smem + offset, results[4 * i + word])
        cute.arch.sync_threads()
        chunks, threads = layout.out_chunks(self.rows), self.warps * WARP
        for i in cutlass.range_constexpr(-(-self.tactic.token_tile * chunks // threads)):
            item = at.warp * WARP + at.lane + i * threads
            token, chunk = item // chunks, item % chunks
            row = chunk * CHUNK - shift
            source = at.smem + layout.out_offset(token, chunk * CHUNK, self.rows)
            target = out.toint() + (Int64(token) * self.n + Int64(at.first + row)) * ELEMENT_BYTES
            if token < m:
                if row >= 0 and row + CHUNK <= at.height:
                    ptx.store_global_b32x4(target, *ptx.load_shared_b32x4(source))
                else:  # the first and the last chunk, of which the tiles beside store the rest
                    for element in cutlass.range_constexpr(CHUNK):
                        if row + element >= 0 and row + element < at.height:
                            result = ptx.load_shared_b16(source, offset=element * ELEMENT_BYTES)
                            ptx.store_global_b16(target + element * ELEMENT_BYTES, result)

    def sum_element(self, number, lane, word: int) -> tuple:
        return layout.sum_element(number, lane, word, self.tactic.token_tile)


build = WgmmaSplitK
