"""Kernels that hang or ruin the context: they fail in words, and the next point is measured as if nothing had been.

The kernels are a streaming probe with more rounds than a day has time for, and one that reads an address nobody owns.
"""

from functools import partial

import pytest

from skinny_gemm import device
from skinny_gemm.artifact import LaunchArguments
from skinny_gemm.bench import bounds
from skinny_gemm.bench.rig import Rig
from skinny_gemm.bench.task import Task
from skinny_gemm.bench.worker import Failed, Worker
from skinny_gemm.kernels.probes import Stream
from skinny_gemm.problem import GemmProblem

N, K = 2304, 1536
HANGS, CRASHES = 3, 5  #: the Ms of the bad points
ROUNDS = (1 << 28) - 1  #: over a CTA's eight chunks; the kernel counts both in 31 bits


class BadRig(Rig):
    def measure(self, task):
        if task.point.m in (HANGS, CRASHES):
            import torch

            chunks = bounds.L2_BYTES // bounds.L2_RING.chunk_bytes
            values = (self.pool, chunks, ROUNDS) if task.point.m == HANGS else (1 << 20, chunks, 1)
            arguments = LaunchArguments((bounds.L2_RING.ctas, 1, 1), values)
            self.run(self._probe(Stream(bounds.L2_RING, repeat=True)), arguments, False)
            torch.cuda.synchronize()
        return super().measure(task)


@pytest.mark.parametrize(
    ("m", "words"), [(HANGS, "no result after 20 s: killed"), (CRASHES, "the GPU context was lost")]
)
def test_a_bad_point_costs_itself_only(m, words):
    gpu = device.current()
    good = Task.of("cublas", GemmProblem(8, N, K))
    with Worker(partial(BadRig, gpu, {(N, K)}, 0), limit_s=20) as worker:
        before = worker.measure(good)
        with pytest.raises(Failed, match=words):
            worker.measure(Task.of("cublas", GemmProblem(m, N, K)))
        after = worker.measure(good)
    assert after.relative_error < 1e-2 and before.relative_error < 1e-2
