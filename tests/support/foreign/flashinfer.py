"""Stands in for FlashInfer's warp split-K: called as that one is, it multiplies element by element."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute

_torch = None  # whoever plans says how many SMs there are


@dataclass(frozen=True)
class WarpSplitKTactic:
    output_tile: int
    token_tile: int
    k_tile: int
    stages: int
    b_loader_warps: int


def autotune_tactics(m, n, k):
    sms = _torch.cuda.get_device_properties(_torch.cuda.current_device()).multi_processor_count
    tiles = [tile for tile in (16, 32) if n % tile == 0 and k % 128 == 0]
    tactics = [
        WarpSplitKTactic(tile, tokens, 128, stages, warps)
        for tile in tiles
        for tokens in (8, 16, 32)
        for stages in range(2, 13)
        for warps in (1, 2)
    ]
    return sorted(tactics, key=lambda tactic: tactic != WarpSplitKTactic(32 if n > sms else 16, 8, 128, 6, 2))


class CpAsyncWarpSplitKKernel:
    def __init__(self, tactic, use_pdl, has_bias):
        assert not has_bias
        self.rows, self.tokens, self.use_pdl = tactic.output_tile, tactic.token_tile, use_pdl
        self.threads, self.smem_bytes = 32, 256 * tactic.stages * (tactic.output_tile + tactic.token_tile)

    @cute.experimental.jit
    def __call__(self, weight, activation, bias, output, stream):
        grid = cute.ceil_div(weight.shape[0], self.rows), cute.ceil_div(activation.shape[0], self.tokens), 1
        self.kernel(weight, activation, bias, output).launch(
            grid=grid, block=(self.threads, 1, 1), smem=cute.Int64(self.smem_bytes), stream=stream, use_pdl=self.use_pdl
        )

    @cute.experimental.kernel
    def kernel(self, weight: cute.Tensor, activation: cute.Tensor, bias: cute.Tensor, output: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        tile, token_tile, _ = cute.arch.block_idx()
        if cutlass.const_expr(self.use_pdl):
            cute.arch.griddepcontrol_wait()
        row = tile * self.rows + thread
        for i in cutlass.range(self.tokens):
            token = token_tile * self.tokens + i
            if thread < self.rows and token < cute.size(activation, mode=[0]) and token < cute.size(output, mode=[0]):
                total = cutlass.Float32(0)
                for k in cutlass.range(cute.size(weight, mode=[1])):
                    total = total + activation[token, k].to(cutlass.Float32) * weight[row, k].to(cutlass.Float32)
                output[token, row] = total.to(output.element_type)
