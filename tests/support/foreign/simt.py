"""Stands in for the published SIMT skinny GEMM: called as that one is, it multiplies element by element."""

import cutlass
import cutlass.cute as cute


class CuteSkinnyGemm:
    def __init__(
        self, *, element_type, num_rows, block_size, outputs_per_block, vector_width, k_unroll, use_pdl, static_k
    ):
        self.element_type, self.tokens, self.threads, self.rows = element_type, num_rows, block_size, outputs_per_block
        self.use_pdl, self.static_k = use_pdl, static_k

    @cute.jit
    def __call__(self, gA: cute.Tensor, gB: cute.Tensor, gResidual: cute.Tensor, gC: cute.Tensor, stream):
        # Unused, as parameters that the published kernel has.
        atom = cute.make_copy_atom(
            cute.nvgpu.CopyG2ROp(), self.element_type, num_bits_per_copy=128,
            load_cache_mode=cute.nvgpu.LoadCacheMode.STREAMING,
        )  # fmt: skip
        self.kernel(gA, gB, gResidual, gC, cute.size(gA, mode=[1]), atom, atom, atom).launch(
            grid=[cute.ceil_div(cute.size(gB, mode=[0]), self.rows), 1, 1], block=[self.threads, 1, 1], smem=0,
            stream=stream, use_pdl=self.use_pdl,
        )  # fmt: skip

    @cute.kernel
    def kernel(
        self, gA: cute.Tensor, gB: cute.Tensor, gResidual: cute.Tensor, gC: cute.Tensor, k: cutlass.Int32,
        first: cute.CopyAtom, second: cute.CopyAtom, third: cute.CopyAtom,
    ):  # fmt: skip
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        if cutlass.const_expr(self.use_pdl):
            cute.arch.griddepcontrol_wait()
        if thread < self.tokens * self.rows:
            token, row = thread // self.rows, block * self.rows + thread % self.rows
            total = cutlass.Float32(0)
            for i in cutlass.range(k):
                total = total + gA[token, i].to(cutlass.Float32) * gB[row, i].to(cutlass.Float32)
            gC[token, row] = total.to(self.element_type)
