"""The mailbox: what is published is gathered bit for bit, in two buffers; who does not publish is named, in time.

- the consumer returns exactly the published bits, NaN and subnormals too, and re-arms exactly what it read;
- a fragment counts as missing while one of its words is the sentinel;
- a missing publisher ends in one sentence with token, column and rank, never in a hang;
- a rank may publish the next step while another has yet to collect this one;
- everything out of place is refused in one sentence.
"""

import re
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import FrontProblem, Mailbox, MissingPublisher
from skinny_gemm.layouts import mailbox as layout
from skinny_gemm.runtime import compile_collect

FRONT = FrontProblem.sharded(1, k=64, latent=32, experts=16, ranks=2)
FOUR = FrontProblem.sharded(1, k=64, latent=32, experts=16, ranks=4)
M = 3


def bits(tensor):
    return tensor.view(torch.int16).numpy().view(np.uint16)


def published(rng, front, m):
    """(latent bits, logit bits) that a publisher may write: any but the sentinel's."""
    latent = rng.integers(0, 1 << 16, (m, front.latent), np.uint16)
    logits = rng.integers(0, 1 << 32, (m, front.experts), np.uint32)
    latent[latent == layout.BF16_SENTINEL] = 0
    logits[logits == layout.LOGIT_SENTINEL] = 0
    return latent, logits


def publish(mailbox, rank, latent, logits, boxes=None):
    """Stores the shard of `rank` into the mailboxes, as its kernel would."""
    f, m = mailbox.front, len(latent)
    mailbox.targets(rank, m)
    buffer = mailbox.step(rank) % 2
    for box in mailbox.boxes if boxes is None else boxes:
        rows = bits(box)[buffer]
        low = layout.latent_column(rank, f.shard, 0)
        rows[:m, low : low + f.shard] = latent[:, low : low + f.shard]
        words = rows[:, f.latent :].view(np.uint32)
        words[:m, rank * f.valid : (rank + 1) * f.valid] = logits[:, rank * f.valid : (rank + 1) * f.valid]
    mailbox.published(rank, m)


def is_empty(mailbox):
    f = mailbox.front
    return all((bits(box) == layout.empty(1, f.latent, f.experts)).all() for box in mailbox.boxes)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.sampled_from([1, 2, 4]), st.integers(0, 3), st.data())
def test_what_is_published_is_gathered_bit_for_bit_and_rearmed(seed, m, ranks, experts, data):
    front = FrontProblem.sharded(1, k=64, latent=ranks * 8 * 3, experts=ranks * 4 * experts, ranks=ranks)
    mailbox, rng = Mailbox.local(front, capacity=5), np.random.default_rng(seed)
    for step in range(3):
        latent, logits = published(rng, front, m)
        for rank in data.draw(st.permutations(range(ranks))):
            publish(mailbox, rank, latent, logits)
        assert mailbox.step() == step
        got_latent, got_logits = mailbox.collect()
        assert (bits(got_latent) == latent).all()
        assert (got_logits.view(torch.int32).numpy().view(np.uint32) == logits).all()
        assert is_empty(mailbox)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, M - 1), st.integers(0, FRONT.width // 2 - 1))
def test_one_word_that_is_missing_is_named(token, word):
    mailbox = Mailbox.local(FRONT, capacity=M)
    latent, logits = published(np.random.default_rng(0), FRONT, M)
    for rank in range(FRONT.ranks):
        publish(mailbox, rank, latent, logits)
    rows, empty = bits(mailbox.boxes[0])[0], layout.empty(1, FRONT.latent, FRONT.experts)[0]
    rows[token, 2 * word : 2 * word + 2] = empty[2 * word : 2 * word + 2]
    with pytest.raises(MissingPublisher) as caught:
        mailbox.collect()
    error, fragment = caught.value, 8 * (word // 4)
    assert (error.token, error.column) == (token, fragment)
    if fragment < FRONT.latent:
        what, rank = f"latent column {fragment}", fragment // FRONT.shard
    else:
        expert = (fragment - FRONT.latent) // 2
        what, rank = f"the logit of expert {expert}", expert // FRONT.valid
    assert error.rank == rank
    assert str(error) == f"rank {rank} did not publish {what} of token {token} in step 0 within 1 s"
    rows = bits(mailbox.boxes[0])[0]
    assert (np.flatnonzero((rows != empty).any(0)) // 8 == fragment // 8).all(), "whatever came has been re-armed"


@pytest.mark.parametrize("value", [0x8000_0000, 0x0000_8000, 0x8000_0001, 0])
def test_half_a_sentinel_in_the_latent_is_a_value(value):
    """The BF16 pair (+0, -0) has the bits of the logits' sentinel, and must not be taken for one."""
    mailbox = Mailbox.local(FRONT, capacity=M)
    latent, logits = published(np.random.default_rng(0), FRONT, M)
    latent.view(np.uint32)[1, 5] = value
    for rank in range(FRONT.ranks):
        publish(mailbox, rank, latent, logits)
    assert bits(mailbox.collect()[0]).view(np.uint32)[1, 5] == value


@pytest.mark.parametrize("timeout_s", [1e-6, 1.0, 2])
@pytest.mark.parametrize("absent", [0, 1])
def test_a_missing_publisher_is_an_error_in_time(absent, timeout_s):
    mailbox = Mailbox.local(FRONT, capacity=M)
    latent, logits = published(np.random.default_rng(0), FRONT, M)
    publish(mailbox, 1 - absent, latent, logits)
    begin = time.monotonic()
    sentence = (
        rf"rank {absent} did not publish .* of token 0 \(2 other tokens incomplete\) in step 0 within {timeout_s:g} s"
    )
    with pytest.raises(MissingPublisher, match=sentence):
        mailbox.collect(timeout_s=timeout_s)
    assert time.monotonic() - begin < 2


def test_after_a_missing_publisher_only_reset_helps():
    mailbox = Mailbox.local(FRONT, capacity=M)
    latent, logits = published(np.random.default_rng(0), FRONT, M)
    publish(mailbox, 0, latent, logits)
    with pytest.raises(MissingPublisher):
        mailbox.collect()
    for action in (mailbox.collect, lambda: mailbox.targets(0, M)):
        with pytest.raises(ValueError, match=r"out of step, rank 1 did not publish .*: reset\(\) it"):
            action()
    mailbox.reset()
    assert is_empty(mailbox) and mailbox.step() == 0
    for rank in range(FRONT.ranks):
        publish(mailbox, rank, latent, logits)
    assert (bits(mailbox.collect()[0]) == latent).all()


def test_a_collect_that_does_not_wait_is_judged_by_check():
    mailbox = Mailbox.local(FRONT, capacity=M)
    mailbox.collect(m=M, wait=False)
    sentence = r"rank 0 did not publish latent column 0 of token 0 \(2 other tokens incomplete, parts of rank 1 missing"
    with pytest.raises(MissingPublisher, match=sentence) as caught:
        mailbox.check()
    assert caught.value.ranks == (0, 1)


@pytest.mark.parametrize("first", [0, 1])
def test_check_tells_the_first_step_that_failed_and_its_timeout(first):
    """Later collects, complete or not, change nothing of what is said."""
    mailbox = Mailbox.local(FRONT, capacity=M)
    latent, logits = published(np.random.default_rng(0), FRONT, M)
    for step in range(5):
        for rank in (0, 1):
            if rank == 0 or step not in (first, first + 2):
                publish(mailbox, rank, latent, logits)
        mailbox.collect(wait=False, timeout_s=0.01 * (1 + step))
    with pytest.raises(MissingPublisher, match=f"rank 1 did not .* in step {first} within 0.0{1 + first} s$"):
        mailbox.check()


@settings(deadline=None, max_examples=20)
@given(st.sets(st.integers(0, 3), min_size=1), st.integers(0, M - 1), st.integers(0, 2**32 - 1))
def test_of_several_missing_ranks_the_first_fragment_is_named_and_all_ranks_are_told(absent, token, seed):
    mailbox = Mailbox.local(FOUR, capacity=M)
    latent, logits = published(np.random.default_rng(seed), FOUR, M)
    for rank in range(4):
        publish(mailbox, rank, latent, logits)
    rows = bits(mailbox.boxes[0])[0]
    for rank in absent:
        rows[token:, rank * FOUR.shard : (rank + 1) * FOUR.shard] = layout.BF16_SENTINEL
    with pytest.raises(MissingPublisher) as caught:
        mailbox.collect(timeout_s=1e-3)
    error = caught.value
    assert (error.rank, error.token, error.column) == (min(absent), token, min(absent) * FOUR.shard)
    assert error.ranks == tuple(sorted(absent))
    others = ", ".join(map(str, sorted(absent)[1:]))
    assert (f"parts of rank{'s' * (len(absent) > 2)} {others} missing too" in str(error)) == (len(absent) > 1)


def test_a_fast_rank_publishes_the_next_step_before_a_slow_one_collects_this():
    mailbox, rng = Mailbox.peers(FRONT, capacity=M), np.random.default_rng(1)
    steps = [published(rng, FRONT, M) for _ in range(4)]
    for rank in (0, 1):
        publish(mailbox, rank, *steps[0])
    for step in range(3):
        assert (bits(mailbox.collect(0)[0]) == steps[step][0]).all()
        publish(mailbox, 0, *steps[step + 1])  # rank 1 has not collected `step` yet
        assert mailbox.step(0) == step + 1 and mailbox.step(1) == step
        assert (bits(mailbox.collect(1)[0]) == steps[step][0]).all()
        publish(mailbox, 1, *steps[step + 1])
    for rank in (0, 1):
        mailbox.collect(rank)
    assert is_empty(mailbox)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a", "sm_103a"])
def test_the_consumer_compiles_without_spills(arch):
    compiled = compile_collect(FRONT.latent, FRONT.experts, arch)
    assert compiled.resources.spill_bytes == 0 and compiled.resources.registers <= 32
    assert "launch_dependents" not in compiled.ptx, "its dependents need all that it stores"
    assert compiled.ptx.index("griddepcontrol.wait") < compiled.ptx.index("ld.relaxed.sys.global.v4.b32")


WIDE = FrontProblem.sharded(1, k=64, latent=17 * 8, experts=17 * 4, ranks=17)


def box(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


good = Mailbox.allocate(FRONT, capacity=4)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Mailbox.local("front"), "front is 'front', but must be a FrontProblem"),
        (lambda: Mailbox.local(FRONT, capacity=0), "capacity is 0, but must be an integer from 1 to 64"),
        (lambda: Mailbox.local(FRONT, capacity=65), "capacity is 65, but must be an integer from 1 to 64"),
        (lambda: Mailbox.local(FRONT, capacity=True), "capacity is True, but must be an integer from 1 to 64"),
        (lambda: Mailbox.local(FRONT, "meta"), "device is 'meta', but must be a CUDA device or the CPU"),
        (lambda: Mailbox.local(FRONT, "mps"), "device is 'mps', but must be a CUDA device or the CPU"),
        (lambda: Mailbox.local(FRONT, "bogus"), "device is 'bogus', but must be a CUDA device or the CPU"),
        (lambda: Mailbox.local(FRONT, "cuda:99"), r"device is 'cuda:99', but must be .* \(GPUs visible: \d+\)"),
        (lambda: Mailbox.local(FRONT, 99), "device is 99, but must be a CUDA device or the CPU"),
        (lambda: Mailbox.local(FRONT, None), "device is None, but must be a CUDA device or the CPU"),
        (lambda: Mailbox.peers(FRONT, [good, box(2, 4, 64)]), "rank 1 is not empty, but must be new .*allocate"),
        (lambda: Mailbox.multicast(FRONT, [box(2, 4, 64), good]), "rank 0 is not empty, but must be new .*allocate"),
        (lambda: Mailbox.peers(WIDE), "front has 17 ranks, but peers are at most 16: use a multicast mailbox"),
        (lambda: Mailbox.peers(FRONT, [good]), "boxes is 1 tensors, but must be a list of 2, one per rank"),
        (lambda: Mailbox.peers(FRONT, good), "boxes is a Tensor, but must be a list of 2, one per rank"),
        (lambda: Mailbox.peers(FRONT, [good, good]), "mailbox of rank 1 overlaps that of rank 0"),
        (
            lambda: Mailbox.peers(FRONT, [good, None]),
            "rank 1 is a NoneType, but must be a BF16 torch tensor",
        ),
        (lambda: Mailbox.peers(FRONT, [good, box(2, 4, 64, dtype=torch.half)]), "rank 1 is torch.float16"),
        (lambda: Mailbox.peers(FRONT, [good, box(2, 5, 64)]), r"rank 1 has shape \(2, 5, 64\), .* be \[2, 4, 64\]"),
        (
            lambda: Mailbox.peers(FRONT, [box(2, 4, 32)] * 2),
            r"rank 0 has shape \(2, 4, 32\), .* \[2, capacity, 64\]",
        ),
        (
            lambda: Mailbox.peers(FRONT, [box(2, 65, 64)] * 2),
            "the capacity of .* rank 0 is 65, .* from 1 to 64",
        ),
        (lambda: Mailbox.peers(FRONT, [box(2, 64)] * 2), r"rank 0 has 2 dimensions \(2, 64\)"),
        (lambda: Mailbox.peers(FRONT, [good, box(2, 64, 4).mT]), "rank 1 has strides .*, but must be packed row-major"),
        (
            lambda: Mailbox.peers(FRONT, [good, box(513)[1:].view(2, 4, 64)]),
            "rank 1 starts at .* 16-byte aligned",
        ),
        (
            lambda: Mailbox.peers(FRONT, [good, box(2, 4, 64).to("meta")]),
            "rank 1 is on meta, but must be on a CUDA device",
        ),
        (lambda: Mailbox.multicast(FRONT, address=1 << 40), "address is .*, but must be None on the CPU"),
        (lambda: Mailbox.multicast(FRONT, [None, None], address=16), "boxes has no tensor"),
    ],
)
def test_a_mailbox_is_refused_in_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        make()
    assert re.fullmatch(r"[^\n]+", str(caught.value))


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda b: b.targets(4, M), "rank is 4, but must be an integer from 0 to 3"),
        (lambda b: b.targets(-1, M), "rank is -1, but must be an integer from 0 to 3"),
        (lambda b: b.targets("0", M), "rank is '0', but must be an integer from 0 to 3"),
        (lambda b: b.targets(0, M), "rank 0 has published step 0 already: collect it before the next step"),
        (lambda b: b.targets(1, 5), "M is 5, but must be an integer from 1 to 4"),
        (lambda b: b.targets(1, 2), "M is 2, but step 0 has been published with M = 3"),
        (lambda b: b.collect(1), "rank is 1, but must be 0: a local mailbox has a single consumer"),
        (lambda b: b.collect(m=2), "m is 2, but step 0 has been published with M = 3"),
        (lambda b: b.collect(m=5), "m is 5, but must be an integer from 1 to 4"),
        (lambda b: b.collect(timeout_s=0), "timeout_s is 0, but must be a time above 0 and up to 60 seconds"),
        (lambda b: b.collect(timeout_s="1"), "timeout_s is '1', but must be a time above 0 and up to 60 seconds"),
        (lambda b: b.collect(timeout_s=float("nan")), "timeout_s is nan, but must be"),
    ],
)
def test_a_use_is_refused_in_a_sentence_and_changes_nothing(act, sentence):
    mailbox = Mailbox.local(FOUR, capacity=4)
    latent, logits = published(np.random.default_rng(0), FOUR, M)
    publish(mailbox, 0, latent, logits)
    with pytest.raises(ValueError, match=sentence):
        act(mailbox)
    for rank in (1, 2, 3):
        publish(mailbox, rank, latent, logits)
    assert (bits(mailbox.collect()[0]) == latent).all()


def test_boxes_in_use_are_refused():
    mailbox = Mailbox.peers(FRONT, capacity=M)
    publish(mailbox, 1, *published(np.random.default_rng(0), FRONT, M))
    with pytest.raises(ValueError, match="the mailbox of rank 0 is not empty"):
        Mailbox.peers(FRONT, mailbox.boxes)
    mailbox.reset()
    Mailbox.peers(FRONT, mailbox.boxes)


def test_a_step_that_nobody_here_published_needs_its_m():
    with pytest.raises(ValueError, match="nobody has published step 0 in this process: publish it first, or say m"):
        Mailbox.peers(FRONT).collect(1)
