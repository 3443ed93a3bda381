"""What the GPU can do at best: the bounds of a problem and the ceilings of a device, measured beside the kernels.

`stream` reads the weight of a problem and does nothing with it; `dependency-floor` is a chain of kernels that read x
and no weight. Both are measured per problem like a kernel. The ceilings are measured once per campaign.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..artifact import CompiledKernel, LaunchArguments
from ..kernels.probes import MmaRate, Ring, Stream
from ..problem import BF16_BYTES
from ..records.statistics import median_interval
from .graphs import Launch

#: Ring shapes tried for every weight: many small CTAs let the next kernel's weights fly early, few deep ones stream
#: large weights best.
RINGS = (Ring(528, 3, 8192), Ring(264, 6, 8192), Ring(132, 12, 16384), Ring(132, 6, 16384))
ASYMPTOTE_BYTES = 512 << 20
SLACK_BYTES = max(ring.chunk_bytes for ring in RINGS)  #: that the last, partial chunk may read past a weight

L2_RING = Ring(264, 6, 8192)
L2_BYTES, L2_ROUNDS = 16 << 20, 32  # 16 MB fit either half of the L2
MMA_REPEATS = 2048

Run = Callable[[CompiledKernel, LaunchArguments, bool], None]  #: (kernel, arguments, pdl attribute) enqueues a launch


def floor_ctas(n: int) -> list[int]:
    """Grid sizes whose dependency floor is measured for N outputs: those of output tiles of 32 and 16."""
    return sorted({n // tile for tile in (32, 16) if n % tile == 0})


def stream(
    run: Run, compiled: CompiledKernel, ring: Ring, weights: Iterable[Any], weight_bytes: int, pdl: bool
) -> list[Launch]:
    """One launch per weight copy; each must be followed by `SLACK_BYTES` of readable memory."""
    chunks = -(-weight_bytes // ring.chunk_bytes)
    return [_launch(run, compiled, ring.ctas, (weight, chunks, 1), pdl) for weight in weights]


def dependency_floor(run: Run, compiled: CompiledKernel, ctas: int, x: Any, pdl: bool) -> list[Launch]:
    """One launch of `ctas` CTAs that each read all of `x` (BF16, packed, a multiple of 16 bytes)."""
    out = x.new_empty(2 * ctas)  # one 32-bit word a CTA
    return [_launch(run, compiled, ctas, (x, out, x.numel() * BF16_BYTES // 16), pdl)]


def ceilings(
    time: Callable[[list[Launch], int], Sequence[float]],
    run: Run,
    compiled: Callable[[Stream | MmaRate], CompiledKernel],
    pool: Any,
) -> dict[str, float]:
    """The device's ceilings, by the names that `device.Device` uses; nothing here is chained.

    `time(launches, rounds)` gives samples in microseconds per launch, `compiled(probe)` the compiled probe; `pool` is
    random BF16 of at least 512 MB and `SLACK_BYTES`.
    """
    import torch

    def median(launches: list[Launch], rounds: int) -> float:
        return median_interval(time(launches, rounds)).median

    def streaming(ring: Ring) -> float:
        chunks = ASYMPTOTE_BYTES // ring.chunk_bytes
        return median([_launch(run, compiled(Stream(ring)), ring.ctas, (pool, chunks, 1), False)], 8)

    source = pool[: ASYMPTOTE_BYTES // BF16_BYTES]
    target = source.new_empty(source.shape)
    # An elementwise kernel that reads and writes as much as a copy: captured, `copy_` becomes a memcpy node, which
    # reached 2.8 TB/s on H200 where kernels reach 4.2.
    copy_us = median([lambda: torch.neg(source, out=target)], 4)

    l2 = (pool, L2_BYTES // L2_RING.chunk_bytes, L2_ROUNDS)
    l2_us = median([_launch(run, compiled(Stream(L2_RING, repeat=True)), L2_RING.ctas, l2, False)], 8)

    sums = pool.new_empty(2 * MmaRate.CTAS * MmaRate.THREADS)
    mma_us = median([_launch(run, compiled(MmaRate()), MmaRate.CTAS, (pool, sums, MMA_REPEATS), False)], 8)
    return {
        "hbm_read_tbs": round(ASYMPTOTE_BYTES / min(map(streaming, RINGS)) / 1e6, 3),
        "copy_tbs": round(2 * ASYMPTOTE_BYTES / copy_us / 1e6, 3),
        "l2_read_tbs": round(L2_BYTES * L2_ROUNDS / l2_us / 1e6, 3),
        "bf16_tflops": round(MmaRate.flops(MMA_REPEATS) / mma_us / 1e6, 1),
    }


def _launch(run: Run, compiled: CompiledKernel, ctas: int, values: tuple, pdl: bool) -> Launch:
    arguments = LaunchArguments((ctas, 1, 1), values)
    return lambda: run(compiled, arguments, pdl)
