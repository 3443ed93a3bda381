"""Weight-stationary GEMM for the MoE front: `y[M, N] = x[M, K] @ weight[N, K]^T`, BF16, published into a mailbox.

*All* weights of a CTA are on their way to registers and shared memory before it waits for the previous kernel; then
only x, the MMAs and a reduction remain. K is split over the `kq` warps of a row tile and the `ks` CTAs of a cluster;
parts are added in K order, so results are bitwise reproducible. With tg = 0 a single pass multiplies all tokens, with
tg > 0 a part of a group is pushed to its owner while the next group is multiplied.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..artifact import Parameter
from ..checks import check_choice, check_integer
from ..layouts import WARP, fragments
from ..layouts import mailbox as mail
from ..layouts import ws_gemm as layout
from ..layouts.fragments import MMA_N
from ..problem import FrontProblem
from ..tactics.base import FIRST, LAST
from ..tactics.ws_gemm import WsGemmTactic
from . import ptx

TRANSPORTS: Any = {  #: how a store reaches the mailboxes
    "local": ptx.publish_gpu_b32x4,
    "peers": ptx.publish_system_b32x4,
    "multicast": ptx.publish_multicast_b32x4,
}
X_WINDOW = 8  #: 16-byte loads of x a lane keeps in flight; 16 were no faster on H200, 2 up to 3 % slower


@dataclass(frozen=True)
class Place:
    """Which thread this is, where its CTA keeps what the warps share, and where results are published."""

    cluster: Any  #: number of its cluster: which rows of the weight
    cta: Any  #: in the cluster
    row_tile: Any  #: of its warp, in the CTA
    part: Any  #: of K that its warp multiplies, in the CTA
    warp: Any
    lane: Any
    smem: Any  #: address of the CTA's shared memory, whose first bytes `barriers` points to as well
    barriers: Any
    rank: Any  #: as which it publishes
    mailboxes: tuple


class WsGemm:
    """The kernel for one rank of `problem`; `pdl` compiles programmatic dependent launch in or out.

    `transport`: "local" publishes to one mailbox of this GPU, "peers" to each of `peers` mailboxes, "multicast" to all
    behind one multicast address. ValueError for another transport, or a number of peers that is none.
    """

    def __init__(
        self, problem: FrontProblem, tactic: WsGemmTactic, pdl: bool, transport: str = "local", peers: int = 1
    ) -> None:
        check_choice("transport", transport, TRANSPORTS)
        check_integer("peers", peers, 1)
        p, t = self.problem, self.tactic = problem, tactic
        self.pdl, self.transport = pdl, transport
        self.block, self.cluster, self.smem_bytes = (t.threads, 1, 1), (t.ks, 1, 1), t.smem_bytes(p)
        self.smem = {name: offset for name, offset, _ in t.smem_regions(p)}
        self.warps, self.kb, self.chains, self.k_slice = t.rt * t.kq, t.blocks(p), t.chains(p), p.k // t.ks
        self.tiles, self.groups = layout.token_tiles(p.m), layout.groups(p.m, t.tg)
        self.group_tiles = layout.tiles_per_group(p.m, t.tg)
        self.blocks = self.tiles * t.rt
        self.slots = layout.slots(self.blocks, t.ks)
        names = [f"mailbox{i}" for i in range(peers)] if transport == "peers" else ["mailbox"]
        self.parameters = (
            Parameter("weight", "pointer"),
            Parameter("x", "pointer"),
            Parameter("rank", "i32"),
            *(Parameter(name, "pointer", written=True) for name in names),
        )

    @cute.jit
    def __call__(self, weight: cute.Pointer, x: cute.Pointer, rank: Int32, *mailboxes):
        grid, smem = self.tactic.grid(self.problem), self.smem_bytes
        self.kernel(weight, x, rank, mailboxes).launch(
            grid=grid, block=self.block, cluster=self.cluster, smem=smem, use_pdl=self.pdl
        )

    @cute.kernel
    def kernel(self, weight: cute.Pointer, x: cute.Pointer, rank: Int32, mailboxes: tuple):
        t = self.tactic
        if cutlass.const_expr(self.pdl and t.trigger == FIRST):
            # Whoever consumes this kernel's results waits for it or polls, and the next kernel's weights can be on
            # their way while this one works.
            cute.arch.griddepcontrol_launch_dependents()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(thread // WARP)
        lane = thread & 31
        cluster, cta = block // t.ks, block % t.ks
        row_tile, part = warp // t.kq, warp % t.kq
        barriers = cute.arch.get_dyn_smem(Int64, alignment=128)
        at = Place(cluster, cta, row_tile, part, warp, lane, barriers.toint(), barriers, rank, mailboxes)

        if cutlass.const_expr(t.tg > 0):
            if thread == 0:
                for group in cutlass.range_constexpr(self.groups):
                    cute.arch.mbarrier_init(self.barrier(at, "group barriers", group), 1)
                for slot in cutlass.range_constexpr(self.slots):
                    cute.arch.mbarrier_init(self.barrier(at, "owner barriers", slot), 1)
                cute.arch.mbarrier_init_fence()
                for slot in cutlass.range_constexpr(self.slots):
                    expected = t.ks * t.kq * layout.FRAGMENT_BYTES
                    cute.arch.mbarrier_arrive_and_expect_tx(self.barrier(at, "owner barriers", slot), expected)
            cute.arch.sync_threads()
            cute.arch.cluster_arrive_relaxed()

        staged, held = self.load_weights(weight, at)
        if cutlass.const_expr(self.pdl):
            cute.arch.griddepcontrol_wait()
        if cutlass.const_expr(t.tg == 0):
            self.trigger_last()
            self.single_pass(x, staged, held, at)
        else:
            self.token_groups(x, staged, held, at)

    kernel.set_name_prefix("ws_gemm", remove_cutlass_symbol=True, keep_mangled_name=False)

    # Methods without a decorator run while the kernel is traced: plain Python, unrolled over constants.

    def barrier(self, at: Place, region: str, index: int):
        """Pointer to the barrier `index` of "group barriers" (for x) or "owner barriers" (for a block's parts)."""
        return at.barriers + (self.smem[region] // 8 + index)

    def trigger_last(self) -> None:
        """Where nothing of the next kernel's can come before this one's x: dependents start now, if not at first."""
        if self.pdl and self.tactic.trigger == LAST:
            cute.arch.griddepcontrol_launch_dependents()

    def load_weights(self, weight, at: Place) -> tuple[list, list]:
        """Sends for a warp's weights, a pair (rows g and g + 8) a K block: (addresses staged at, registers held)."""
        p, t, lane = self.problem, self.tactic, at.lane
        part = at.cta * t.kq + at.part
        row = layout.output_row(at.cluster, at.row_tile, fragments.load_row(lane), t.rt)
        column = layout.k_column(part, 0, lane, self.kb)
        source = weight.toint() + (Int64(row) * p.k + column) * 2
        halves = (0, 8 * p.k * 2)  # bytes to weight rows g and g + 8
        policy = ptx.evict_first_policy()
        stages = ptx.vector_register(at.smem + self.smem["stages"], lane) if t.staged else None
        staged = [
            [stages + layout.stage_offset(at.warp, block, half, lane, t.staged) for half in (0, 1)]
            for block in range(t.staged)
        ]
        for block, stage in enumerate(staged):
            for half in (0, 1):
                ptx.cp_async_evict_first(stage[half], source + (halves[half] + 2 * fragments.K_BLOCK * block), policy)
        if t.staged:
            cute.arch.cp_async_commit_group()
        held = [
            [ptx.load_weights_b32x4(source + (halves[half] + 2 * fragments.K_BLOCK * block), policy) for half in (0, 1)]
            for block in range(t.staged, self.kb)
        ]
        return staged, held

    def multiply(self, staged: list, held: list, tiles: int, load_x) -> list:
        """The warp's sums of `tiles` 8-token tiles: four words each; `load_x(tile, block)` gives four words of x."""
        t = self.tactic
        steps = [(block, tile) for block in range(self.kb) for tile in range(tiles)]
        acc = [[[Float32(0.0)] * 4 for _ in range(self.chains)] for _ in range(tiles)]
        words = [load_x(tile, block) for block, tile in steps[:X_WINDOW]]  # ahead of the MMAs: one latency for all
        weights: Any = None
        for i, (block, tile) in enumerate(steps):
            if tile == 0:
                in_smem = block < t.staged
                weights = [*map(ptx.load_shared_b32x4, staged[block])] if in_smem else held[block - t.staged]
            for mma in (0, 1):
                chain = (2 * block + mma) % self.chains
                a, b = fragments.a_words(mma, *weights), fragments.b_words(mma, words[i])
                acc[tile][chain] = ptx.mma_bf16(acc[tile][chain], a, b)
            if len(words) < len(steps):
                ahead_block, ahead_tile = steps[len(words)]
                words.append(load_x(ahead_tile, ahead_block))
        return [_sum(chains) for chains in acc]

    @cute.jit
    def single_pass(self, x, staged, held, at):
        """All tokens at once, x from global memory; then the owner of each block gathers its parts."""
        p, t, lane = self.problem, self.tactic, at.lane
        column = layout.k_column(at.cta * t.kq + at.part, 0, lane, self.kb)
        rows = []
        for tile in cutlass.range_constexpr(self.tiles):
            token = MMA_N * tile + fragments.load_row(lane)
            if cutlass.const_expr(MMA_N * tile + MMA_N > p.m):
                # Tokens past M repeat the last one: in bounds, free (the same sectors), and never published.
                token = cutlass.min(token, p.m - 1)
            rows.append(x.toint() + (Int64(token) * p.k + column) * 2)
        if cutlass.const_expr(t.staged > 0):
            cute.arch.cp_async_wait_group(0)  # a lane reads back only what it copied itself: no barrier
        load_x = lambda tile, block: ptx.load_global_b32x4(rows[tile] + 2 * fragments.K_BLOCK * block)  # noqa: E731
        sums = self.multiply(staged, held, self.tiles, load_x)
        parts = at.smem + self.smem["parts"]
        for tile in cutlass.range_constexpr(self.tiles):
            slot = layout.block_index(tile, at.row_tile, t.rt)
            ptx.store_shared_f32x4(parts + layout.part_offset(slot, at.part, lane, t.kq), *sums[tile])
        if cutlass.const_expr(t.ks > 1):
            # Release and acquire over all threads of the cluster: every CTA's sums are there, and it still runs.
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()
            peers, load = [ptx.cluster_address(parts, Int32(peer)) for peer in range(t.ks)], ptx.load_cluster_f32x4
        else:
            cute.arch.sync_threads()
            peers, load = [parts], ptx.load_shared_f32x4
        for slot in cutlass.range_constexpr(self.slots):
            block = layout.owned_block(at.cta, slot, t.ks)
            if at.warp == slot % self.warps and block < self.blocks:
                offsets = [layout.part_offset(block, part, lane, t.kq) for part in range(t.kq)]
                addresses = [peer + offset for peer in peers for offset in offsets]
                self.settle(_sum([load(address) for address in addresses]), block, at)
        if cutlass.const_expr(t.ks > 1):
            # A peer's shared memory must outlive the reads.
            cute.arch.cluster_arrive()
            cute.arch.cluster_wait()

    @cute.jit
    def token_groups(self, x, staged, held, at):
        """Group by group, x by bulk copies; a group's parts are pushed to their owners, who settle a group later."""
        t, lane = self.tactic, at.lane
        if at.warp == 0:
            self.stage_x(x, at)
            self.trigger_last()
        if cutlass.const_expr(t.staged > 0):
            cute.arch.cp_async_wait_group(0)
        column = layout.k_column(at.part, 0, lane, self.kb)  # inside this CTA's K slice
        tile_x = at.smem + self.smem["x"] + layout.x_offset(fragments.load_row(lane), column, self.k_slice)
        for group in cutlass.range_constexpr(self.groups):
            first = group * self.group_tiles
            tiles = min(self.group_tiles, self.tiles - first)
            group_x = tile_x + layout.x_offset(MMA_N * first, 0, self.k_slice)
            cute.arch.mbarrier_wait(self.barrier(at, "group barriers", group), 0)
            x_at = lambda tile, block: layout.x_offset(MMA_N * tile, fragments.K_BLOCK * block, self.k_slice)  # noqa: E731
            load_x = lambda tile, block: ptx.load_shared_b32x4(group_x + x_at(tile, block))  # noqa: E731, B023
            sums = self.multiply(staged, held, tiles, load_x)
            if cutlass.const_expr(group == 0):
                cute.arch.cluster_wait()  # the owners' barriers are armed; the latency was hidden behind the weights
            for tile in cutlass.range_constexpr(tiles):
                block = layout.block_index(first + tile, at.row_tile, t.rt)
                owner, slot = layout.owner(block, t.ks)
                received = layout.part_offset(slot, at.cta * t.kq + at.part, lane, t.ks * t.kq)
                address = at.smem + self.smem["receive"] + received
                barrier = at.smem + self.smem["owner barriers"] + 8 * slot
                address, barrier = ptx.cluster_address(address, owner), ptx.cluster_address(barrier, owner)
                ptx.store_cluster_async_f32x4(address, sums[tile], barrier)
            if cutlass.const_expr(group > 0):
                self.settle_group(group - 1, at)
        self.settle_group(self.groups - 1, at)

    @cute.jit
    def stage_x(self, x, at):
        """Warp 0: arms each group's barrier and copies this CTA's K slice of every token's row of x."""
        p, t = self.problem, self.tactic
        group_tokens = self.group_tiles * MMA_N
        if at.lane == 0:
            for group in cutlass.range_constexpr(self.groups):
                size = layout.group_tokens(group, p.m, t.tg) * 2 * self.k_slice
                cute.arch.mbarrier_arrive_and_expect_tx(self.barrier(at, "group barriers", group), size)
        cute.arch.sync_warp()
        for first in cutlass.range_constexpr(0, p.m, WARP):
            token = first + at.lane
            if token < p.m:
                ptx.bulk_copy(
                    at.smem + self.smem["x"] + layout.x_offset(token, 0, self.k_slice),
                    x.toint() + (Int64(token) * p.k + at.cta * self.k_slice) * 2,
                    Int32(2 * self.k_slice),
                    at.smem + self.smem["group barriers"] + 8 * (token // group_tokens),
                )

    @cute.jit
    def settle_group(self, group: cutlass.Constexpr, at):
        """Sums and publishes the blocks of `group` that this CTA owns, each by one warp."""
        t = self.tactic
        low = group * self.group_tiles * t.rt
        high = min(low + self.group_tiles * t.rt, self.blocks)
        parts = t.ks * t.kq
        for slot in cutlass.range_constexpr(low // t.ks, layout.slots(high, t.ks)):
            block = layout.owned_block(at.cta, slot, t.ks)
            if at.warp == slot % self.warps and block >= low and block < high:
                ptx.mbarrier_wait_cluster(at.smem + self.smem["owner barriers"] + 8 * slot, Int32(0))
                receive = at.smem + self.smem["receive"]
                addresses = [receive + layout.part_offset(slot, part, at.lane, parts) for part in range(parts)]
                self.settle(_sum([ptx.load_shared_f32x4(address) for address in addresses]), block, at)

    @cute.jit
    def settle(self, total, block, at):
        """Publishes a finished block: its warp turns accumulator order into runs of four rows per lane."""
        p, t, lane = self.problem, self.tactic, at.lane
        token_tile, row_tile = layout.block_tile(block, t.rt)
        red = at.smem + self.smem["red"] + at.warp * layout.FRAGMENT_BYTES
        cute.arch.sync_warp()  # the previous block's reads are done
        for word in cutlass.range_constexpr(0, 4, 2):
            row, token = layout.accumulator_element(lane, word)
            ptx.store_shared_f32x2(red + layout.red_offset(row, token), total[word], total[word + 1])
        cute.arch.sync_warp()
        row, token = layout.publish_unit(lane)
        values = [ptx.load_shared_f32(red + layout.red_offset(row + i, token)) for i in range(4)]
        token = MMA_N * token_tile + token
        column = layout.output_row(at.cluster, row_tile, row, t.rt)
        pairs = [self.pack(values[0], values[1]), self.pack(values[2], values[3])]
        partner = [cute.arch.shuffle_sync_bfly(pair, 8) for pair in pairs]
        if token < p.m:
            if column < p.valid:
                words = [
                    ptx.without(ptx.bitcast(Int32, value), Int32(mail.LOGIT_SENTINEL - (1 << 32))) for value in values
                ]
                logit = mail.logit_column(at.rank, p.valid, column, p.latent)
                self.publish(at.mailboxes, token, logit, words)
            elif column >= p.split and (lane & 8) == 0:
                latent = mail.latent_column(at.rank, p.shard, column - p.split)
                self.publish(at.mailboxes, token, latent, [*pairs, *partner])

    def pack(self, low, high):
        """Two FP32 as a word of BF16, neither half of it the sentinel: judged after rounding."""
        word = ptx.pack_bf16x2(low, high)
        low = ptx.without(word & 0xFFFF, Int32(mail.BF16_SENTINEL))
        return low | ptx.without(word & Int32(-0x10000), Int32((mail.BF16_SENTINEL << 16) - (1 << 32)))

    def publish(self, mailboxes, token, column, words) -> None:
        """Stores 16 bytes at (token, BF16 column) of every mailbox."""
        offset = Int64(mail.offset(0, token, column, 0, self.problem.width))
        for mailbox in mailboxes:
            TRANSPORTS[self.transport](mailbox.toint() + offset, *words)


def _sum(parts: list[list]) -> list:
    """The sum of several runs of words, word by word, in their order."""
    return reduce(lambda total, words: [a + b for a, b in zip(total, words, strict=True)], parts)


build = WsGemm
