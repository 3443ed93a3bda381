"""Probes: kernels that do one thing as fast as the GPU can, to say how far the real ones are from their bounds."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..artifact import Parameter
from ..layouts import WARP
from . import ptx


@dataclass(frozen=True)
class Ring:
    """The shape of a streaming probe: CTAs, and the stages of each one's shared-memory ring."""

    ctas: int
    stages: int
    chunk_bytes: int  #: of a stage: one bulk copy

    def __str__(self) -> str:
        return f"{self.ctas}x{self.stages}x{self.chunk_bytes}"

    @classmethod
    def parse(cls, text: str) -> "Ring":
        return cls(*map(int, text.split("x")))


class Probe:
    """What the probes share. All are compiled with PDL, whose instructions do nothing without the launch attribute."""

    kernel: Any  #: what a subclass defines, beside `kernel_name` and `parameters`
    ctas = 1  #: only traced: a launch takes its own grid
    block = (256, 1, 1)
    smem_bytes = 0

    @cute.jit
    def __call__(self, *values):
        grid = [self.ctas, 1, 1]
        self.kernel(*values).launch(grid=grid, block=self.block, smem=self.smem_bytes, use_pdl=True)


class Stream(Probe):
    """Bulk copies of `chunks` consecutive chunks of `source` into a ring, interleaved over the CTAs; nothing is used.

    The ring is filled before the PDL wait, as a weight loader would; the rest follows it. With `repeat` every CTA goes
    `rounds` times over its chunks, without the evict-first policy: a read of L2.
    """

    kernel_name = "stream"
    parameters = (Parameter("source", "pointer"), Parameter("chunks", "i32"), Parameter("rounds", "i32"))

    def __init__(self, ring: Ring, repeat: bool = False):
        self.ring, self.repeat, self.ctas = ring, repeat, ring.ctas
        self.block = (WARP, 1, 1)
        self.smem_bytes = ring.stages * (ring.chunk_bytes + 8)  # ring, then one mbarrier a stage

    @cute.kernel
    def kernel(self, source: cute.Pointer, chunks: Int32, rounds: Int32):
        ring = self.ring
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        smem = cute.arch.get_dyn_smem(cutlass.Uint8, alignment=128)
        full = cute.recast_ptr(smem + ring.stages * ring.chunk_bytes, dtype=Int64)
        if thread == 0:
            cute.arch.griddepcontrol_launch_dependents()  # early: the next kernel's ring fills while this one drains
            for stage in cutlass.range_constexpr(ring.stages):
                cute.arch.mbarrier_init(full + stage, 1)
            cute.arch.mbarrier_init_fence()
            cta_chunks = (chunks - cta + (ring.ctas - 1)) // ring.ctas
            total = cta_chunks * rounds if cutlass.const_expr(self.repeat) else cta_chunks
            policy = None if self.repeat else ptx.evict_first_policy()
            load = partial(self.load, source, smem, full, cta, cta_chunks, policy)
            for i in cutlass.range_constexpr(ring.stages):
                if i < total:
                    load(i)
            cute.arch.griddepcontrol_wait()
            for i in cutlass.range(ring.stages, total):
                cute.arch.mbarrier_wait(full + i % ring.stages, (i // ring.stages - 1) & 1)
                load(i)
            for back in cutlass.range_constexpr(ring.stages):  # a CTA must not exit while copies into it are in flight
                i = total - ring.stages + back
                if i >= 0:
                    cute.arch.mbarrier_wait(full + i % ring.stages, (i // ring.stages) & 1)

    @cute.jit
    def load(self, source, smem, full, cta, cta_chunks, policy, i):
        """Issues this CTA's copy number `i`."""
        ring, size = self.ring, self.ring.chunk_bytes
        barrier = full + i % ring.stages
        chunk = (i % cta_chunks if cutlass.const_expr(self.repeat) else i) * ring.ctas + cta
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, size)
        target, origin = smem.toint() + i % ring.stages * size, source.toint() + Int64(chunk) * size
        ptx.bulk_copy(target, origin, Int32(size), barrier.toint(), policy)


@cute.jit
def _warp_sums(address, words, thread, partials):
    """Sums 16-byte `words` from `address` on; leaves each warp's 32-bit sum at `partials` for all threads to see."""
    total = Int32(0)
    for word in cutlass.range(thread, words, Probe.block[0]):
        a, b, c, d = ptx.load_global_b32x4(address + Int64(word) * 16)
        total = total + (a + b + c + d)
    for step in cutlass.range_constexpr(5):
        total = total + cute.arch.shuffle_sync_bfly(total, 16 >> step)
    if thread % WARP == 0:
        ptx.store_shared_b32(partials + thread // WARP * 4, total)
    cute.arch.sync_threads()


def _total(partials):
    """The sum of what `_warp_sums` left."""
    return sum((ptx.load_shared_b32(partials + 4 * warp) for warp in range(Probe.block[0] // WARP)), Int32(0))


class DependencyFloor(Probe):
    """A link of a dependent chain: wait for the previous kernel, read all of x in every CTA, reduce, write one word.

    `words` counts the 16-byte words of x; `out` holds one 32-bit word a CTA.
    """

    kernel_name = "dependency-floor"
    parameters = (Parameter("x", "pointer"), Parameter("out", "pointer", written=True), Parameter("words", "i32"))
    smem_bytes = 4 * Probe.block[0] // WARP  # one partial sum a warp

    @cute.kernel
    def kernel(self, x: cute.Pointer, out: cute.Pointer, words: Int32):
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        partials = cute.arch.get_dyn_smem(Int32, alignment=16).toint()
        cute.arch.griddepcontrol_launch_dependents()
        cute.arch.griddepcontrol_wait()
        _warp_sums(x.toint(), words, thread, partials)
        if thread == 0:
            ptx.store_global_b32(out.toint() + Int64(cta) * 4, _total(partials))


class Producer(Probe):
    """What runs before a GEMM in decode, shaped like an RMSNorm: a CTA a token reads its row, reduces and writes it.

    x is a copy of `source`, so that its product is known; `sums` takes one 32-bit word a token, `words` counts the
    16-byte words of a row. Launches its dependents first of all: they wait for x, not for its start.
    """

    kernel_name = "producer"
    parameters = (
        Parameter("source", "pointer"),
        Parameter("x", "pointer", written=True),
        Parameter("sums", "pointer", written=True),
        Parameter("words", "i32"),
    )
    smem_bytes = DependencyFloor.smem_bytes

    @cute.kernel
    def kernel(self, source: cute.Pointer, x: cute.Pointer, sums: cute.Pointer, words: Int32):
        cute.arch.griddepcontrol_launch_dependents()
        thread, _, _ = cute.arch.thread_idx()
        token, _, _ = cute.arch.block_idx()
        partials = cute.arch.get_dyn_smem(Int32, alignment=16).toint()
        row = Int64(token) * words * 16
        cute.arch.griddepcontrol_wait()
        _warp_sums(source.toint() + row, words, thread, partials)
        for word in cutlass.range(thread, words, self.block[0]):  # a norm scales what it kept; this reads it from L1
            values = ptx.load_global_b32x4(source.toint() + row + Int64(word) * 16)
            ptx.store_global_b32x4(x.toint() + row + Int64(word) * 16, *values)
        if thread == 0:
            ptx.store_global_b32(sums.toint() + Int64(token) * 4, _total(partials))


class MmaRate(Probe):
    """`repeats` rounds of independent m16n8k16 BF16 chains in every warp, operands from registers.

    `source` holds at least `SOURCE_BYTES` of BF16, `out` one FP32 word a thread: each thread's sum, so that nothing is
    optimised away. FLOP of a launch: `flops(repeats)`.
    """

    kernel_name = "mma-rate"
    parameters = (
        Parameter("source", "pointer"),
        Parameter("out", "pointer", written=True),
        Parameter("repeats", "i32"),
    )
    CTAS, THREADS, CHAINS = 264, 256, 8  #: two CTAs per H200 SM; 8 chains hide the latency of mma.sync
    OPERAND_BYTES = 16 + 8 * CHAINS  #: of a thread: one A fragment, one B fragment a chain
    SOURCE_BYTES = THREADS * OPERAND_BYTES
    ctas, block = CTAS, (THREADS, 1, 1)

    @classmethod
    def flops(cls, repeats: int) -> int:
        return cls.CTAS * cls.THREADS // WARP * cls.CHAINS * repeats * (2 * 16 * 8 * 16)

    @cute.kernel
    def kernel(self, source: cute.Pointer, out: cute.Pointer, repeats: Int32):
        thread, _, _ = cute.arch.thread_idx()
        cta, _, _ = cute.arch.block_idx()
        operands = source.toint() + Int64(thread) * self.OPERAND_BYTES
        a = [*ptx.load_global_b32x2(operands), *ptx.load_global_b32x2(operands + 8)]
        b = [ptx.load_global_b32x2(operands + (16 + 8 * chain)) for chain in range(self.CHAINS)]
        acc = [[Float32(0.0)] * 4 for _ in range(self.CHAINS)]
        for _ in cutlass.range(repeats):
            for chain in cutlass.range_constexpr(self.CHAINS):
                acc[chain] = ptx.mma_bf16(acc[chain], a, b[chain])
        total = Float32(0.0)
        for chain in cutlass.range_constexpr(self.CHAINS):
            for word in cutlass.range_constexpr(4):
                total = total + acc[chain][word]
        ptx.store_global_b32(out.toint() + Int64(cta * self.THREADS + thread) * 4, total)
