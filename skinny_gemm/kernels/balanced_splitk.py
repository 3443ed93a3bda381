"""Balanced split-K GEMM for decode: `out[M, N] = x[M, K] @ weight[N, K]^T`, BF16 in, BF16 or FP32 out, M <= 64.

Every SM streams the same bytes: the row tiles of the CTAs differ in height by at most one row. A warp multiplies every
so manieth K chunk, which it copies itself into a ring of its own (`cp.async`): there is no loader warp, and no barrier
in the K loop. x goes straight to registers, or through the rings too. K is permuted as in the weight-stationary GEMM:
one 16-byte load of a row holds the words of two `mma`. A cluster that splits K makes up for a small N.
"""

from collections.abc import Iterator
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..layouts import WARP
from ..layouts import balanced_splitk as layout
from ..layouts.fragments import K_BLOCK, MMA_N, a_words, b_words, load_row
from ..layouts.swizzle import CHUNK, ELEMENT_BYTES
from ..tactics.balanced_splitk import X_WINDOW
from . import ptx
from .balanced import Balanced, Place


class BalancedSplitK(Balanced):
    """The units are warps."""

    def place_units(self) -> tuple[int, int]:
        t = self.tactic
        self.k_slice, self.stage_row_bytes = self.k // t.cluster, ELEMENT_BYTES * t.k_chunk
        self.stage_bytes = layout.stage_rows(self.rows, t.token_tile, t.x_ring) * self.stage_row_bytes
        unit_bytes = layout.warp_bytes(self.rows, t.token_tile, t.k_chunk, t.stages, t.x_ring)
        return unit_bytes, layout.fragments(self.rows, t.token_tile)

    @cute.kernel
    def kernel(self, weight, x, out, bias, m):
        self.run(weight, x, out, bias, m)

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
        self.wait_for_preceding()
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
        # A zero that the assembler cannot see. It takes an A fragment for moves from two loads, and makes these moves
        # again before every mma that reads it, four for each of up to eight tokens' parts; an XOR it makes once.
        # 2304x1536 at M = 32 went from 4.32 to 4.13 us on H200; two parts were no faster, but spilled.
        zero = ptx.vector_register(Int32(0), at.lane)
        for i, (turn, block, part) in enumerate(steps):
            if (block, part) == (0, 0):
                self.wait_for_copies(turn)
            if part == 0:
                at_hand = turn == 0 and block < held
                halves = first_halves[block] if at_hand else self.load_weights(loads, turn, block)
                pairs = list(zip(halves[::2], halves[1::2], strict=True))
                a: list = [[a_words(mma, *pair) for pair in pairs] for mma in (0, 1)]
                if len(parts) > 2:
                    a = [[[word ^ zero for word in words] for words in of_mma] for of_mma in a]
            words = self.load_stage(loads[part - len(parts)], turn, block) if t.x_ring else ahead[i]
            for mma in (0, 1):
                for row_part in range(len(halves) // 2):
                    sums = layout.fragment(row_part, part, t.token_tile)
                    acc[sums] = ptx.mma_bf16(acc[sums], a[mma][row_part], b_words(mma, words))
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

    def first_copy(self, matrix, first_row, stage_row: int, at: Place) -> tuple:
        """(row, to, from) of a lane's first copy of `matrix` from `first_row` on in turn 0, to `stage_row` and on.

        All its other copies are constants away: rows by even numbers, so that their chunks swap alike.
        """
        t = self.tactic
        row, chunk = layout.copied(at.lane, 0, t.k_chunk)
        column = layout.chunk_column(at.cta, at.warp, 0, self.k_slice, t.warps, t.k_chunk) + chunk * CHUNK
        source = matrix.toint() + Int64(first_row + row) * self.row_bytes + Int64(column) * ELEMENT_BYTES
        return row, at.ring + layout.stage_offset(stage_row + row, chunk, t.k_chunk), source

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

    def store_sums(self, acc, at: Place) -> None:
        cute.arch.sync_warp()  # every lane's loads from the ring are done
        own = at.ring + layout.lane_offset(0, at.lane)
        for number in range(self.fragments):
            ptx.store_shared_f32x4(own + number * layout.FRAGMENT_BYTES, *acc[number])

    def sum_element(self, number, lane, word: int) -> tuple:
        return layout.sum_element(number, lane, word, self.tactic.token_tile)


build = BalancedSplitK
