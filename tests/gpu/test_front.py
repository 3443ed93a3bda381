"""The MoE front on a GPU: virtual ranks, both buffers, a missing publisher, CUDA graphs; two GPUs where there are."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from skinny_gemm import FrontProblem, Mailbox, MissingPublisher, PreparedWsGemm, WsGemmTactic
from skinny_gemm.layouts import mailbox as layout
from skinny_gemm.problem import KIMI_K3
from skinny_gemm.runtime.verify import verify_front

FRONT = FrontProblem.sharded(1, k=512, latent=64, experts=32, ranks=2)
TACTICS = (WsGemmTactic(1, 4, 2, 0, 0, 1), WsGemmTactic(3, 2, 4, 1, 8, 1))


def error(got, x, weight):
    expected = x.double() @ weight.double().T
    return ((got.double() - expected).norm() / expected.norm()).item()


def is_empty(box):
    bits = box.view(torch.int16).cpu().numpy().view(np.uint16)
    return (bits == layout.empty(1, FRONT.latent, FRONT.experts)).all()


@pytest.fixture
def weights(normal):
    """(router, down), unsharded."""
    return normal(FRONT.experts, FRONT.k), normal(FRONT.latent, FRONT.k)


def prepare(weights, mailbox, ms, tactic=TACTICS[0], devices=("cuda", "cuda")):
    packed = [PreparedWsGemm.pack(*weights, FRONT, rank).to(device) for rank, device in enumerate(devices)]
    return [PreparedWsGemm(weight, FRONT, dict.fromkeys(ms, tactic), mailbox) for weight in packed]


@pytest.mark.parametrize("transport", ["local", "peers"])
@pytest.mark.parametrize(("ranks", "m"), [(8, 1), (8, 4), (8, 9), (8, 64), (16, 1), (16, 16), (16, 33)])
def test_kimi_k3_over_virtual_ranks(ranks, m, transport):
    result = verify_front(FrontProblem.sharded(m, ranks=ranks, **KIMI_K3), backend="cuda", transport=transport)
    assert result.passed, result


@pytest.mark.parametrize("tactic", TACTICS, ids=str)
def test_many_steps_without_a_pause(normal, weights, tactic):
    """Each launch follows the last by programmatic dependent launch; the host waits for none of them."""
    ms = (1, 7, 8, 17)
    mailbox = Mailbox.peers(FRONT, device="cuda")
    prepared = prepare(weights, mailbox, ms, tactic)
    xs = [normal(ms[step % len(ms)], FRONT.k) for step in range(100)]
    results = []
    for x in xs:
        for rank in (0, 1):
            prepared[rank].run(x, rank)
        results.append([mailbox.collect(rank, wait=False) for rank in (0, 1)])
    for rank in (0, 1):
        mailbox.check(rank)
    for x, consumers in zip(xs, results, strict=True):
        for latent, logits in consumers:
            assert error(latent, x, weights[1]) < 4e-3 and error(logits, x, weights[0]) < 1e-5
    assert all(is_empty(box) for box in mailbox.boxes)


def test_a_missing_publisher_is_named_within_two_seconds(normal, weights):
    mailbox = Mailbox.local(FRONT, "cuda")
    prepared = prepare(weights, mailbox, (3,))
    x = normal(3, FRONT.k)
    prepared[1].run(x, 1)
    begin = time.monotonic()
    with pytest.raises(MissingPublisher, match=r"rank 0 did not publish .* of token 0 .* in step 0 within 1 s"):
        mailbox.collect()
    assert 0.9 < time.monotonic() - begin < 2
    mailbox.reset()
    for rank in (0, 1):
        prepared[rank].run(x, rank)
    assert error(mailbox.collect()[0], x, weights[1]) < 4e-3


def test_a_late_publisher_is_waited_for(normal, weights):
    mailbox = Mailbox.local(FRONT, "cuda")
    prepared = prepare(weights, mailbox, (2,))
    x = normal(2, FRONT.k)
    prepared[0].run(x, 0)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)  # some 10 ms
        prepared[1].run(x, 1)
    latent, logits = mailbox.collect()
    assert error(latent, x, weights[1]) < 4e-3 and error(logits, x, weights[0]) < 1e-5


def test_a_graph_of_two_steps_replays(normal, weights):
    mailbox = Mailbox.local(FRONT, "cuda")
    prepared = prepare(weights, mailbox, (4,))
    inputs = [normal(4, FRONT.k) for _ in range(2)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            outputs = []
            for x in inputs:
                for rank in (0, 1):
                    prepared[rank].run(x, rank)
                outputs.append(mailbox.collect())
    for _ in range(20):
        for x in inputs:
            x.normal_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        mailbox.check()
        for x, (latent, logits) in zip(inputs, outputs, strict=True):
            assert error(latent, x, weights[1]) < 4e-3 and error(logits, x, weights[0]) < 1e-5
    assert is_empty(mailbox.boxes[0]) and mailbox.step() == 2


def test_ranks_on_two_gpus(normal, weights):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    devices = [torch.device("cuda", ordinal) for ordinal in (0, 1)]
    mailbox = Mailbox.peers(FRONT, [Mailbox.allocate(FRONT, device) for device in devices])
    prepared = prepare(weights, mailbox, (1, 5), devices=devices)
    assert torch.cuda.current_device() == 0
    for step in range(200):
        m = (1, 5)[step % 2]
        x = normal(m, FRONT.k)
        xs = [x.to(device) for device in devices]
        for device in devices:
            torch.cuda.synchronize(device)
        for rank in (0, 1):
            with torch.cuda.device(devices[rank]):
                prepared[rank].run(xs[rank], rank)
        gathered = [mailbox.collect(rank, wait=False) for rank in (0, 1)]
        for rank in (0, 1):
            mailbox.check(rank)
            latent, logits = (tensor.to("cuda:0") for tensor in gathered[rank])
            assert error(latent, x, weights[1]) < 4e-3 and error(logits, x, weights[0]) < 1e-5
    assert all(is_empty(box) for box in mailbox.boxes)


def test_multicast_is_not_made_here():
    with pytest.raises(ValueError, match="checked in the interpreter only"):
        verify_front(replace(FRONT, m=1), backend="cuda", transport="multicast")
    boxes = [Mailbox.allocate(FRONT, "cuda") for _ in range(FRONT.ranks)]
    with pytest.raises(ValueError, match="address is None, but must be an integer on GPUs"):
        Mailbox.multicast(FRONT, boxes)
