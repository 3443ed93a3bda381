"""What the balanced kernels share: row tiles that differ by at most one row, K split over a cluster and in a CTA.

A *unit* of a CTA, a warp or a warpgroup, multiplies every so manieth K chunk, which it copies itself into a ring of its
own. Sums of units, then of CTAs, are added in order, so results are bitwise reproducible.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ..artifact import Parameter
from ..checks import check_choice
from ..layouts import WARP
from ..layouts import balanced_splitk as layout
from ..layouts.swizzle import ELEMENT_BYTES
from ..problem import GemmProblem
from ..tactics.base import FIRST, LAST
from . import ptx

OUTPUTS = {"bf16": "BFloat16", "f32": "Float32"}  #: what `out` points to


@dataclass(frozen=True)
class Place:
    """Which thread this is, which rows its CTA works on, and where shared memory and its unit's ring start."""

    warp: Any
    lane: Any
    cta: Any  #: in the cluster
    first: Any  #: weight row of the tile
    height: Any  #: rows of the tile
    smem: Any
    ring: Any


class Balanced(ABC):
    """A kernel for one (N, K, tactic) and any M up to the token tile; `pdl` compiles PDL in or out.

    `output`: "bf16" rounds the results, "f32" stores them as they are. ValueError for another.
    """

    kernel: Any  #: `run` under the subclass's name
    unit_warps = 1  #: warps of a unit
    alignment = 128  #: of shared memory

    def __init__(self, problem: GemmProblem, tactic: Any, pdl: bool, output: str = "bf16") -> None:
        check_choice("output", output, OUTPUTS)
        t = self.tactic = tactic
        self.problem, self.pdl, self.output = problem, pdl, output
        self.block, self.cluster, self.smem_bytes = (t.threads, 1, 1), (t.cluster, 1, 1), t.smem_bytes(problem)
        self.smem = {name: offset for name, offset, _ in t.smem_regions(problem)}
        self.n, self.k, self.rows, self.turns = problem.n, problem.k, t.rows(problem), t.turns(problem)
        self.row_bytes, self.warps = ELEMENT_BYTES * problem.k, t.threads // WARP
        self.units = self.warps // self.unit_warps
        self.unit_bytes, self.fragments = self.place_units()
        self.rounds = -(-layout.slots(self.fragments, t.cluster) // self.warps)  # of fragments that a warp finishes
        self.parameters = (
            Parameter("weight", "pointer"),
            Parameter("x", "pointer"),
            Parameter("out", "pointer", written=True, dtype=OUTPUTS[output]),
            Parameter("bias", "pointer", optional=True, alignment=8),
            Parameter("m", "i32"),
        )

    @abstractmethod
    def place_units(self) -> tuple[int, int]:
        """Bytes from one unit's ring to the next, and fragments of a tile's sums."""

    @abstractmethod
    def multiply(self, weight, x, m, at: Place) -> list[list]:
        """The sums of a unit's chunks, as `store_sums` takes them; waits for the preceding kernel before it reads x."""

    @abstractmethod
    def store_sums(self, acc, at: Place) -> None:
        """Stores a unit's sums as fragments where its ring was, once nobody reads that any more."""

    @abstractmethod
    def sum_element(self, number, lane, word: int) -> tuple:
        """(row, token) of the sum in `word` of a lane's four of fragment `number`; words 0, 1 and 2, 3 share rows."""

    @cute.jit
    def __call__(self, *values):
        grid, smem = self.tactic.grid(self.problem), self.smem_bytes
        self.kernel(*values).launch(grid=grid, block=self.block, cluster=self.cluster, smem=smem, use_pdl=self.pdl)

    @cute.jit
    def run(self, weight, x, out, bias, m):
        """All of the kernel."""
        t = self.tactic
        if cutlass.const_expr(self.pdl and t.trigger == FIRST):
            cute.arch.griddepcontrol_launch_dependents()
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        warp, lane = cute.arch.make_warp_uniform(thread // WARP), thread & 31
        smem = cute.arch.get_dyn_smem(Int64, alignment=self.alignment)
        ring = ptx.vector_register(smem.toint() + warp // self.unit_warps * self.unit_bytes, lane)
        first, height = layout.row_range(block // t.cluster, self.n, t.row_tiles)
        at = Place(warp, lane, block % t.cluster, first, height, smem.toint(), ring)

        if cutlass.const_expr(t.cluster > 1):
            received = smem + self.smem["received"] // 8
            if thread == 0:
                cute.arch.mbarrier_init(received, 1)
                cute.arch.mbarrier_init_fence()
            cute.arch.sync_warp()  # for racecheck, which takes the same lane's next access for a race
            if thread == 0:
                owned = layout.slots(self.fragments, t.cluster, at.cta)
                cute.arch.mbarrier_arrive_and_expect_tx(received, owned * (t.cluster * layout.FRAGMENT_BYTES))
            cute.arch.sync_warp()  # orders nothing: lanes that have met arrive in one instruction
            cute.arch.cluster_arrive_relaxed()  # waited for where the first sum is sent, behind everything else
        biases = self.load_biases(bias, at)  # like weights they do not depend on the preceding kernel
        self.reduce(self.multiply(weight, x, m, at), biases, out, m, at)

    @abstractmethod
    def copies(self, turn: int, rows: int) -> Iterator[tuple]:
        """Of each copy: rows from the first one's, the last row that the unit copies then, (to, from) offsets."""

    def copy_weights(self, turn: int, first: tuple, policy, at: Place) -> None:
        """Issues a thread's copies of the weights of `turn`, `first` being its first: none of rows past the tile."""
        first_row, target, source = first
        for row, last, offsets in self.copies(turn, self.rows):
            inside = None if last < self.n // self.tactic.row_tiles else first_row + row < at.height
            ptx.cp_async_evict_first(target, source, policy, inside, offsets)

    def copy_x(self, turn: int, first: tuple, m) -> None:
        """Issues a thread's copies of the x of `turn`; past M nothing is read."""
        first_row, target, source = first
        for row, _, offsets in self.copies(turn, self.tactic.token_tile):
            ptx.cp_async(target, source, first_row + row < m, offsets)

    def wait_for_preceding(self) -> None:
        """Where each thread has asked for its first weights: it reads x next."""
        if self.pdl:
            cute.arch.griddepcontrol_wait()

    def trigger_last(self) -> None:
        """Where the last copies are on their way: dependents start now, unless they did first of all."""
        if self.pdl and self.tactic.trigger == LAST:
            cute.arch.griddepcontrol_launch_dependents()

    def finished(self, round_: int, at: Place) -> tuple:
        """(slot, fragment, whether there is one) that this warp finishes in its round 0, 1, ..."""
        slot = at.warp + round_ * self.warps
        number = layout.owned(at.cta, slot, self.tactic.cluster)
        return slot, number, number < self.fragments

    @cute.jit
    def load_biases(self, bias, at):
        """The bias of the two rows that a lane has of each fragment that its warp finishes."""
        found = []
        for i in cutlass.range_constexpr(self.rounds):
            _, number, there = self.finished(i, at)
            for word in cutlass.range_constexpr(0, 4, 2):
                row, _ = self.sum_element(number, at.lane, word)
                value = Int32(0)
                if bias.toint() != 0 and there and row < at.height:
                    value = ptx.load_global_b16(bias.toint() + Int64(at.first + row) * ELEMENT_BYTES)
                found.append(value)
        return found

    @cute.jit
    def reduce(self, acc, biases, out, m, at):
        """Adds the units' sums in order and, in a cluster, those of its CTAs; stores the results."""
        self.store_sums(acc, at)
        cute.arch.sync_threads()
        self.finish(biases, out, m, at)

    @cute.jit
    def finish(self, biases, out, m, at):
        """Adds up and stores fragment by fragment, in a cluster those that this CTA owns."""
        t = self.tactic
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
                    total = self.sum_of_units(number, at)
                self.store(total, number, biases[2 * i : 2 * i + 2], out, m, at)

    @cute.jit
    def send(self, at):
        """Sends this CTA's sums to their owners in the cluster, each fragment by one warp."""
        t = self.tactic
        receive, received = at.smem + self.smem["receive"], at.smem + self.smem["received"]
        cute.arch.cluster_wait()  # the owners' barriers are armed
        for i in cutlass.range_constexpr(-(-self.fragments // self.warps)):
            number = at.warp + i * self.warps
            if number < self.fragments:
                owner, slot = layout.owner(number, t.cluster)
                target = receive + layout.lane_offset(slot * t.cluster + at.cta, at.lane)
                to, barrier = ptx.cluster_address(target, owner), ptx.cluster_address(received, owner)
                ptx.store_cluster_async_f32x4(to, self.sum_of_units(number, at), barrier)

    def sum_of_units(self, number, at: Place) -> list:
        """A lane's words of a fragment, over the units in order."""
        return self.total(at.smem + layout.lane_offset(number, at.lane), self.units, self.unit_bytes)

    def total(self, first, count: int, step: int) -> list:
        """The sum of `count` runs of four words from `first` on, `step` bytes apart, in their order."""
        parts = [ptx.load_shared_f32x4(first, offset=i * step) for i in range(count)]
        return reduce(lambda total, words: [a + b for a, b in zip(total, words, strict=True)], parts)

    @cute.jit
    def store(self, total, number, biases, out, m, at):
        """Adds the bias to a lane's sums of a fragment and stores those of the tile's rows and of tokens below M."""
        for word in cutlass.range_constexpr(4):
            row, token = self.sum_element(number, at.lane, word)
            bias, _ = ptx.unpack_bf16x2(biases[word // 2])
            if row < at.height and token < m:
                element, value = Int64(token) * self.n + Int64(at.first + row), total[word] + bias
                if cutlass.const_expr(self.output == "f32"):
                    ptx.store_global_f32(out.toint() + element * 4, value)
                else:
                    ptx.store_global_b16(out.toint() + element * ELEMENT_BYTES, ptx.pack_bf16x2(value, value))
