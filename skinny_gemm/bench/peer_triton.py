"""A skinny GEMM in Triton, as a peer: each program multiplies a few weight rows with all tokens, over all of K."""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def _skinny_gemm(x, weight, out, m, n, k, TOKENS: tl.constexpr, ROWS: tl.constexpr, K_TILE: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tokens = tl.arange(0, TOKENS)
    columns = tl.arange(0, K_TILE)
    weight_tile = weight + rows[:, None].to(tl.int64) * k + columns[None, :]
    x_tile = x + tokens[None, :] * k + columns[:, None]
    sums = tl.zeros((ROWS, TOKENS), dtype=tl.float32)
    for _ in range(0, k, K_TILE):
        a = tl.load(weight_tile, mask=rows[:, None] < n, other=0.0)
        b = tl.load(x_tile, mask=tokens[None, :] < m, other=0.0)
        sums = tl.dot(a, b, sums)
        weight_tile += K_TILE
        x_tile += K_TILE
    mask = (rows[:, None] < n) & (tokens[None, :] < m)
    tl.store(out + tokens[None, :] * n + rows[:, None], sums.to(tl.bfloat16), mask=mask)


def run(x: Any, weight: Any, out: Any, rows: int, k_tile: int, stages: int, warps: int) -> None:
    """out `[M, N]` = x `[M, K]` @ weight `[N, K]`^T, BF16 and packed, M <= 64, K a multiple of `k_tile`."""
    m, k = x.shape
    n = weight.shape[0]
    tokens = next(tile for tile in (16, 32, 64) if tile >= m)  # tl.dot takes no smaller tiles
    _skinny_gemm[(triton.cdiv(n, rows),)](
        x, weight, out, m, n, k, TOKENS=tokens, ROWS=rows, K_TILE=k_tile, num_stages=stages, num_warps=warps
    )
