"""The state of the measuring process, against a stand-in for torch.cuda that counts the streams with work on them.

Properties: a busy process has used its streams once, before it measures; none becomes quiet again; all timers of a
process share a stream, so that a quiet one stays below the fourth.
"""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from skinny_gemm.bench import graphs, process


class FakeCuda:
    """Notes the stream of every kernel; 0 is the default one."""

    def __init__(self):
        self.made, self.current, self.used, self.waited = 0, 0, [], 0

    def Stream(self):
        self.made += 1
        return SimpleNamespace(cuda_stream=self.made)

    @contextmanager
    def stream(self, stream):
        self.current, before = stream.cuda_stream, self.current
        yield
        self.current = before

    def synchronize(self):
        self.waited = len(self.used)


@pytest.fixture
def cuda(monkeypatch):
    fake = FakeCuda()
    monkeypatch.setattr(torch, "cuda", fake)
    monkeypatch.setattr(torch, "ones", lambda size, device: fake.used.append(fake.current))
    monkeypatch.setattr(process, "_state", "quiet")
    graphs.timing_stream.cache_clear()
    yield fake
    graphs.timing_stream.cache_clear()


def test_a_busy_process_has_used_its_streams_once_and_waited_for_them(cuda):
    process.enter("quiet")
    assert cuda.used == []
    process.enter("busy")
    process.enter("busy")
    assert len(cuda.used) == len(set(cuda.used)) == process.STREAMS == cuda.waited and 0 not in cuda.used


def test_none_becomes_quiet_again(cuda):
    process.enter("busy")
    with pytest.raises(ValueError, match="This process is busy and stays so"):
        process.enter("quiet")
    process.enter("busy")


def test_all_timers_share_a_stream(cuda):
    handles = [int(graphs.CudaGraphs().handle) for _ in range(5)]
    assert handles == [1] * 5 and cuda.made == 1
    process.enter("busy")
    assert 1 not in cuda.used


def test_every_state_is_explained():
    from skinny_gemm.records import PROCESSES

    assert tuple(process.MEANINGS) == PROCESSES and f"{process.STREAMS} more streams" in process.MEANINGS["busy"]
