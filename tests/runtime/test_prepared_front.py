"""The publisher of the MoE front, in the interpreter: what it publishes, and what it refuses.

- whatever FP32 sums come out, the published words are those sums, or their BF16, and never the sentinel: exact -0.0,
  values that round to -0.0, subnormals, infinities and NaN; without the sanitising the consumer would wait for ever;
- padding rows are published nowhere;
- everything out of place is refused in one sentence, and nothing compiles while it runs.
"""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import FrontProblem, Mailbox, MissingPublisher, PreparedWsGemm, WsGemmTactic
from skinny_gemm.layouts import mailbox as layout
from skinny_gemm.runtime import compile_kernel
from skinny_gemm.runtime import prepared as prepared_module
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from tests.support.fronts import FRONT, TACTICS, M, bf16, bits


def from_words(words):
    return torch.from_numpy(np.ascontiguousarray(words, np.uint16).view(np.int16)).view(torch.bfloat16).clone()


#: Edits of the kernel's PTX. A sum that starts at +0.0 is never -0.0, so its sign is turned to make one.
NEGATED = (r"ld\.shared\.f32 (\S+), (\S+);", r"ld.shared.f32 \1, \2; xor.b32 \1, \1, -2147483648;")
UNSANITISED = (r"selp\.b32 (\S+), 0, (\S+), same", r"mov.b32 \1, \2")
FLUSHED = (  # a comparison of floats that flushes subnormals, written in integers
    r"setp\.eq\.b32 same, (\S+), -2147483648",
    r".reg .b32 flushed; and.b32 flushed, \1, -8388608; setp.eq.b32 same, flushed, -2147483648",
)


def edited(prepared, *edits):
    """The same publishers with another PTX; every edit must change it."""

    def edit(compiled):
        for pattern, replacement in edits:
            ptx = re.sub(pattern, replacement, compiled.ptx)
            assert ptx != compiled.ptx, f"{pattern} is not in the PTX"
            compiled = replace(compiled, ptx=ptx)
        return compiled

    return [publisher.edited(edit) for publisher in prepared]


#: BF16 bits of a weight: zeros, subnormals, the smallest and largest, 2^-70, 1, infinities, NaN, and any other.
SPECIAL = [0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x8080, 0x1C80, 0x9C80, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F]
WILD = [0x7F80, 0xFF80, 0x7FC0, 0xFFC1]
factors = st.sampled_from(SPECIAL + WILD) | st.integers(0, 0xFFFF)
scales = st.sampled_from([0x3F80, 0xBF80, 0x1C80, 0x9C80, 0x0080])  # of x: 1, -1, 2^-70, -2^-70, 2^-126


@pytest.fixture(scope="module", params=TACTICS)
def ranks(request):
    """(mailbox, a publisher per rank), with weights that a test replaces."""
    mailbox = Mailbox.local(FRONT, capacity=M)
    weights = [torch.zeros(FRONT.n, FRONT.k).bfloat16() for _ in range(FRONT.ranks)]
    prepared = [PreparedWsGemm(weight, FRONT, {M: TACTICS[request.param]}, mailbox) for weight in weights]
    yield mailbox, prepared
    mailbox.reset()


def publish_products(prepared, scale, products, column=7):
    """Every sum is one product: `scale` (BF16 bits) times an element of `products` `[ranks, N]`."""
    x = np.zeros((M, FRONT.k), np.uint16)
    x[:, column] = scale
    for rank, publisher in enumerate(prepared):
        publisher.weight.zero_()
        publisher.weight[:, column] = from_words(products[rank])
        publisher.run(from_words(x), rank)


class TestValues:
    @settings(deadline=None, max_examples=30)
    @given(scales, st.lists(factors, min_size=64, max_size=64), st.integers(0, FRONT.k - 1), st.booleans())
    def test_published_words_are_the_sums_and_never_the_sentinel(self, ranks, scale, products, column, negated):
        mailbox, prepared = ranks
        products = np.array(products, np.uint16).reshape(2, FRONT.n)
        with np.errstate(all="ignore"):
            sums = from_bits(np.array(scale)) * from_bits(products) + np.float32(0)
        publish_products(edited(prepared, NEGATED) if negated else prepared, scale, products, column)
        rows = bits(mailbox.boxes[0])[mailbox.step() % 2]
        assert not (rows[:, : FRONT.latent] == layout.BF16_SENTINEL).any()
        assert not (rows[:, FRONT.latent :].view(np.uint32) == layout.LOGIT_SENTINEL).any()
        latent, logits = mailbox.collect()
        sums = -sums if negated else sums
        for token in range(M):
            same_values(logits[token].view(torch.int32).numpy().view(np.uint32), f32_words(sums[:, : FRONT.valid]))
            same_values(bits(latent)[token], bf16_words(sums[:, FRONT.split :]))

    @pytest.mark.parametrize("scale", [0, 0x0D80])  # sums of exactly 0, or that underflow to it
    def test_exact_minus_zero_becomes_plus_zero(self, ranks, scale):
        mailbox, prepared = ranks
        publish_products(edited(prepared, NEGATED), scale, np.full((2, FRONT.n), scale, np.uint16))
        latent, logits = mailbox.collect()
        assert (bits(latent) == 0).all() and (logits.view(torch.int32) == 0).all()

    @pytest.mark.parametrize("value", ["latent", "logits"])
    def test_without_sanitising_minus_zero_is_the_sentinel(self, ranks, value):
        mailbox, prepared = ranks
        products = np.full((2, FRONT.n), 0x3F80, np.uint16)
        products[:, slice(FRONT.split, None) if value == "latent" else slice(0, FRONT.valid)] = 0
        publish_products(edited(prepared, NEGATED, UNSANITISED), 0x3F80, products)
        with pytest.raises(MissingPublisher, match="latent column" if value == "latent" else "the logit of expert"):
            mailbox.collect()
        mailbox.reset()

    def test_what_rounds_to_minus_zero_is_sanitised_after_rounding(self, ranks):
        """-2^-140 is a subnormal in FP32, and -0.0 in BF16; its logit stays what it is."""
        mailbox, prepared = ranks
        products = np.full((2, FRONT.n), 0x9C80, np.uint16)  # -2^-70
        publish_products(prepared, 0x1C80, products)
        latent, logits = mailbox.collect()
        assert (bits(latent) == 0).all() and (logits.view(torch.int32).numpy().view(np.uint32) == 0x80000200).all()
        publish_products(edited(prepared, UNSANITISED), 0x1C80, products)
        with pytest.raises(MissingPublisher, match="latent column"):
            mailbox.collect()
        mailbox.reset()

    def test_compared_as_floats_subnormals_would_be_lost(self, ranks):
        mailbox, prepared = ranks
        products = np.full((2, FRONT.n), 0x9C80, np.uint16)
        publish_products(edited(prepared, FLUSHED), 0x1C80, products)
        _, logits = mailbox.collect()
        assert (logits.view(torch.int32) == 0).all(), "what the kernel must not do"

    def test_a_pair_of_plus_and_minus_zero(self, ranks):
        mailbox, prepared = ranks
        products = np.zeros((2, FRONT.n), np.uint16)
        products[:, 1::2] = 0x9C80  # (+0, rounds to -0), in memory 0x80000000 if nobody sanitised
        publish_products(edited(prepared, UNSANITISED), 0x1C80, products)
        assert (bits(mailbox.collect()[0]).view(np.uint32) == 0x80000000).all(), "not the sentinel of the latent"
        publish_products(prepared, 0x1C80, products)
        assert (bits(mailbox.collect()[0]) == 0).all()

    @pytest.mark.parametrize("rank", [0, 1])
    def test_padding_is_published_nowhere(self, ranks, rank):
        mailbox, prepared = ranks
        products = np.full((2, FRONT.n), 0x3F80, np.uint16)
        products[:, FRONT.valid : FRONT.split] = 0x7FC0
        before = bits(mailbox.boxes[0]).copy()
        x, buffer = torch.ones(M, FRONT.k).bfloat16(), mailbox.step() % 2
        prepared[rank].weight.copy_(from_words(np.repeat(products[rank][:, None], FRONT.k, 1)))
        prepared[rank].run(x, rank)
        changed = before.view(np.uint32) != bits(mailbox.boxes[0]).view(np.uint32)
        first = layout.latent_column(rank, FRONT.shard, 0)
        logits = layout.logit_column(rank, FRONT.valid, 0, FRONT.latent)
        mine = {*range(first, first + FRONT.shard, 2), *range(logits, logits + 2 * FRONT.valid, 2)}
        assert not changed[1 - buffer].any()
        assert all(set(2 * row.nonzero()[0]) == mine for row in changed[buffer])
        mailbox.reset()


def f32_words(sums):
    words = sums.ravel().view(np.uint32).copy()
    words[words == layout.LOGIT_SENTINEL] = 0
    return np.where(np.isnan(sums.ravel()), -1, words.astype(np.int64))


def bf16_words(sums):
    finite = np.where(np.isnan(sums), 0, sums).astype(np.float32).ravel()
    words = to_bits(finite)
    words[words == layout.BF16_SENTINEL] = 0
    return np.where(np.isnan(sums.ravel()), -1, words.astype(np.int64))


def same_values(words, expected):
    """Bit for bit; a NaN (-1 in `expected`) may be any NaN."""
    magnitude, infinity = (0x7FFF, 0x7F80) if words.dtype == np.uint16 else (0x7FFFFFFF, 0x7F800000)
    nan = (words & magnitude) > infinity
    assert (nan == (expected == -1)).all()
    assert (words[~nan] == expected[~nan]).all()


class TestRefusals:
    def prepared(self, mailbox=None, **more):
        arguments = {
            "weight": bf16(FRONT.n, FRONT.k),
            "front": FRONT,
            "tactics": {M: TACTICS["single pass"]},
            "mailbox": mailbox or Mailbox.local(FRONT, capacity=8),
            **more,
        }
        return PreparedWsGemm(**arguments)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (dict(weight=bf16(33, 64)), r"weight has shape \(33, 64\), but must be \[32, 64\]"),
            (dict(weight=torch.zeros(32, 64)), "weight is torch.float32, but must be torch.bfloat16"),
            (dict(weight=bf16(64, 32).T), "weight has strides .* packed row-major"),
            (dict(weight=bf16(32 * 64 + 8)[8:].view(32, 64)), "weight starts at .* 32-byte aligned"),
            (dict(weight=bf16(32, 64).to("meta")), "weight is on meta"),
            (dict(front=(1, 2)), r"front is \(1, 2\), but must be a FrontProblem"),
            (dict(front=FrontProblem(1, 32, 64)), "mailbox is of FrontProblem.*, but must be of FrontProblem"),
            (dict(mailbox=Mailbox), "mailbox is <class .*, but must be a Mailbox"),
            (dict(tactics={}), r"tactics is empty, but must map at least one M \(1 to 8\)"),
            (dict(tactics=[TACTICS["gather"]]), "must be a mapping from M to its tactic"),
            (dict(tactics={9: TACTICS["gather"]}), "tactics has M = 9, but M must be an integer from 1 to 8"),
            (dict(tactics={True: TACTICS["gather"]}), "tactics has M = True"),
            (dict(tactics={3: (1, 2, 1, 0, 0, 1)}), r"M = 3 is \(1, 2, .*, but must be a WsGemmTactic"),
            (dict(tactics={3: WsGemmTactic(4, 1, 1, 0, 0, 1)}), "tiles of 64 rows, which do not divide N = 32"),
        ],
    )
    def test_of_the_constructor(self, arguments, sentence):
        with pytest.raises(ValueError, match=sentence):
            self.prepared(**arguments)

    @pytest.mark.parametrize(
        ("x", "rank", "sentence"),
        [
            (bf16(4, 64), 0, "x has M = 4, but the prepared Ms are 3"),
            (bf16(3, 32), 0, r"x has shape \(3, 32\), but must be \[M, 64\]"),
            (bf16(3, 64).float(), 0, "x is torch.float32"),
            (bf16(3 * 64 + 8)[8:].view(3, 64), 0, "x starts at .* 32-byte aligned"),
            (bf16(3, 64).to("meta"), 0, "x is on meta"),
            (bf16(3, 64), 2, "rank is 2, but must be an integer from 0 to 1"),
            (bf16(3, 64), 0.0, "rank is 0.0, but must be an integer from 0 to 1"),
        ],
    )
    def test_of_run(self, x, rank, sentence):
        mailbox = Mailbox.local(FRONT, capacity=8)
        with pytest.raises(ValueError, match=sentence):
            self.prepared(mailbox).run(x, rank)
        assert (bits(mailbox.boxes[0]) == layout.empty(1, FRONT.latent, FRONT.experts)).all()

    def test_of_a_second_publication_of_one_rank(self):
        prepared = self.prepared()
        prepared.run(bf16(M, 64), 0)
        with pytest.raises(ValueError, match="rank 0 has published step 0 already: collect it before the next step"):
            prepared.run(bf16(M, 64), 0)

    def test_of_an_x_inside_the_mailbox(self):
        mailbox = Mailbox.local(FRONT, capacity=8)
        inside = mailbox.boxes[0].view(-1)[: M * 64].view(M, 64)
        with pytest.raises(ValueError, match="x at .* overlaps a mailbox"):
            self.prepared(mailbox).run(inside, 0)

    @pytest.mark.parametrize(
        ("router", "down", "rank", "sentence"),
        [
            (bf16(16, 64), bf16(32, 64), 2, "rank is 2, but must be an integer from 0 to 1"),
            (bf16(15, 64), bf16(32, 64), 0, r"router has shape \(15, 64\), but must be \[16, 64\]"),
            (bf16(16, 64), bf16(32, 32), 0, r"down has shape \(32, 32\), but must be \[32, 64\]"),
            (None, bf16(32, 64), 0, "router is a NoneType"),
        ],
    )
    def test_of_pack(self, router, down, rank, sentence):
        with pytest.raises(ValueError, match=sentence):
            PreparedWsGemm.pack(router, down, FRONT, rank)

    def test_of_a_router_without_experts(self):
        plain = FrontProblem.sharded(1, k=64, latent=64, experts=0, ranks=2)
        with pytest.raises(ValueError, match="router is given, but must be None: this front has no experts"):
            PreparedWsGemm.pack(bf16(16, 64), bf16(64, 64), plain, 0)


def test_run_never_compiles(monkeypatch):
    mailbox = Mailbox.local(FRONT, capacity=M)
    prepared = PreparedWsGemm(bf16(FRONT.n, FRONT.k), FRONT, {M: TACTICS["gather"]}, mailbox)
    monkeypatch.setattr(prepared_module, "compile_kernel", lambda *_, **__: pytest.fail("run compiled"))
    prepared.run(bf16(M, FRONT.k), 0)


def test_a_local_mailbox_takes_the_binary_without_options():
    """`verify` compiles that one: a second, equal one would cost seconds."""
    prepared = PreparedWsGemm(bf16(FRONT.n, FRONT.k), FRONT, {M: TACTICS["gather"]}, Mailbox.local(FRONT, capacity=M))
    assert prepared.compiled[M] is compile_kernel(TACTICS["gather"], replace(FRONT, m=M))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (dict(transport="bogus"), "transport is 'bogus', but must be one of local, peers, multicast"),
        (dict(transport="peers", peers=0), "peers is 0, but must be an integer of at least 1"),
        (dict(transport="peers", peers=-1), "peers is -1, but must be an integer of at least 1"),
        (dict(transport="peers", peers=True), "peers is True, but must be an integer of at least 1"),
    ],
)
def test_a_kernel_that_publishes_nowhere_is_not_compiled(options, sentence):
    with pytest.raises(ValueError) as raised:
        compile_kernel(TACTICS["gather"], replace(FRONT, m=M), **options)
    assert str(raised.value) == sentence


def test_pack_takes_every_row_once():
    router, down = bf16(16, 64), bf16(32, 64)
    packed = [PreparedWsGemm.pack(router, down, FRONT, rank) for rank in range(2)]
    assert torch.equal(torch.cat([w[: FRONT.valid] for w in packed]), router)
    assert torch.equal(torch.cat([w[FRONT.split :] for w in packed]), down)
    assert all((w[FRONT.valid : FRONT.split] == 0).all() for w in packed)


def test_a_missing_rank_is_named():
    mailbox = Mailbox.peers(FRONT, capacity=M)
    PreparedWsGemm(bf16(FRONT.n, FRONT.k), FRONT, {M: TACTICS["gather"]}, mailbox).run(bf16(M, FRONT.k), 1)
    with pytest.raises(MissingPublisher, match="^rank 0 did not publish .* of token 0 .* in step 0 within 1 s$"):
        mailbox.collect(1)
