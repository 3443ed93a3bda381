"""The MoE front end to end: the real kernels publish and collect, in the interpreter.

- virtual ranks give the unsharded product, over every transport, at TP8 and TP16, in both buffers;
- whatever FP32 sums come out, the published words are those sums, or their BF16, and never the sentinel: exact -0.0,
  values that round to -0.0, subnormals, infinities and NaN; without the sanitising the consumer would wait for ever;
- padding rows are published nowhere;
- everything out of place is refused in one sentence, and nothing compiles while it runs.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm import FrontProblem, Mailbox, MissingPublisher, PreparedWsGemm, WsGemmTactic
from skinny_gemm.__main__ import main
from skinny_gemm.layouts import mailbox as layout
from skinny_gemm.problem import KIMI_K3, GemmProblem
from skinny_gemm.runtime import compile_kernel
from skinny_gemm.runtime import front as module
from skinny_gemm.runtime import prepared as prepared_module
from skinny_gemm.runtime import verify_front as verifying
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from skinny_gemm.runtime.verify import verify
from skinny_gemm.runtime.verify_front import verify_front

FRONT = FrontProblem.sharded(1, k=64, latent=32, experts=16, ranks=2)  #: valid 8 of split 16: half of it is padding
TACTICS = {
    "single pass": WsGemmTactic(1, 2, 1, 0, 0, 1),
    "staged": WsGemmTactic(1, 2, 1, 1, 0, 2),
    "gather": WsGemmTactic(2, 1, 2, 0, 0, 1),
    "token groups": WsGemmTactic(2, 1, 2, 0, 8, 1),
}
TRANSPORTS = {"local": Mailbox.local, "peers": Mailbox.peers, "multicast": Mailbox.multicast}
M = 3


def bits(tensor):
    return tensor.view(torch.int16).numpy().view(np.uint16)


def bf16(*shape):
    return torch.randn(shape).bfloat16()


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


class TestWholeProduct:
    @pytest.mark.parametrize("schedule", ["in_order", "adversarial"])
    @pytest.mark.parametrize("transport", TRANSPORTS)
    @pytest.mark.parametrize("tactic", TACTICS)
    def test_virtual_ranks_give_the_unsharded_product(self, tactic, transport, schedule):
        result = verify_front(replace(FRONT, m=M), TACTICS[tactic], "interpreter", schedule, transport, seed=1)
        assert result.passed and result.latent_error < 4e-3 and result.logits_error < 1e-5
        assert result.consumers_equal and result.steps == 2

    @pytest.mark.parametrize(
        ("ranks", "m", "tactic"),
        [
            (8, 9, WsGemmTactic(2, 2, 2, 3, 8, 0)),
            (8, 17, WsGemmTactic(2, 1, 4, 0, 16, 2)),
            (16, 1, WsGemmTactic(1, 4, 2, 2, 0, 0)),
            (16, 16, WsGemmTactic(2, 2, 4, 1, 8, 1)),
        ],
    )
    def test_small_fronts_of_8_and_16_ranks(self, ranks, m, tactic):
        front = FrontProblem.sharded(m, k=512, latent=16 * ranks, experts=12 * ranks, ranks=ranks)
        assert front.valid < front.split
        assert verify_front(front, tactic, "interpreter", seed=ranks).passed

    def test_kimi_k3_at_tp16(self):
        front = FrontProblem.sharded(9, ranks=16, **KIMI_K3)
        assert (front.n, front.valid, front.split) == (288, 56, 64)
        assert verify_front(front, WsGemmTactic(3, 2, 16, 7, 16, 2), "interpreter", seed=0).passed

    def test_a_front_without_experts_is_a_sharded_gemm(self):
        front = FrontProblem.sharded(M, k=64, latent=64, experts=0, ranks=4)
        result = verify_front(front, WsGemmTactic(1, 2, 1, 0, 0, 1), "interpreter", seed=0)
        assert result.passed and result.logits_error == 0

    def test_a_rank_with_anothers_weight_is_noticed(self, monkeypatch):
        monkeypatch.setattr(module.PreparedWsGemm, "pack", _packs_rank_0)
        assert not verify_front(replace(FRONT, m=M), TACTICS["gather"], "interpreter", seed=0).passed


_pack = PreparedWsGemm.pack


@staticmethod
def _packs_rank_0(router, down, front, rank):
    return _pack(router, down, front, 0)


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


SMALL_TACTIC = TACTICS["single pass"]


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (lambda: verify_front(None), "front is None, but must be a FrontProblem"),
        (lambda: verify_front(GemmProblem(3, 32, 64)), r"front is GemmProblem\(.*, but must be a FrontProblem"),
        (lambda: verify_front(FRONT, "1,2,1,0,0,1"), "tactic is '1,2,1,0,0,1', but must be a WsGemmTactic or None"),
        (lambda: verify_front(FRONT, seed="1"), "seed is '1', but must be an integer of at least 0"),
        (lambda: verify_front(FRONT, seed=-1), "seed is -1, but must be an integer of at least 0"),
        (lambda: verify(SMALL_TACTIC, FRONT, seed=2.5), "seed is 2.5, but must be an integer of at least 0"),
        (lambda: verify(SMALL_TACTIC, FRONT, seeds="2"), "seeds is '2', but must be an integer of at least 1"),
        (lambda: verify(SMALL_TACTIC, FRONT, seeds=1.5), "seeds is 1.5, but must be an integer of at least 1"),
    ],
)
def test_what_cannot_be_verified_is_refused_in_a_sentence(check, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        check()


def test_too_many_peers_are_refused_before_any_data_is_made(monkeypatch):
    monkeypatch.setattr(verifying, "random_operands", lambda *_: pytest.fail("data was made"))
    with pytest.raises(ValueError, match="front has 32 ranks, but peers are at most 16"):
        verify_front(FrontProblem.sharded(4, ranks=32, **KIMI_K3), transport="peers")


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


SMALL = "verify front --ranks 2 --m 3 --k 64 --latent 32 --experts 16 --backend interpreter"


class TestCommandLine:
    def test_of_kimi_k3_over_eight_ranks(self, capsys):
        status = main("verify front --ranks 8 --m 4 --backend interpreter --seed 0 --json".split())
        report = json.loads(capsys.readouterr().out)
        assert (
            status == 0
            and report["passed"]
            and (report["ranks"], report["latent"], report["experts"]) == (8, 3584, 896)
        )
        assert 0 < report["latent_error"] < 4e-3 and 0 < report["logits_error"] < 1e-5

    @pytest.mark.parametrize("more", ["", "--transport peers", "--transport multicast --schedule adversarial"])
    def test_of_a_small_front_in_words(self, capsys, more):
        assert main(f"{SMALL} {more} --tactic 2,1,2,0,8,1".split()) == 0
        words = capsys.readouterr().out
        assert words.startswith(
            "passed: front of 2 ranks (32 latent, 16 experts, K = 64) at M = 3, ws-gemm 2,1,2,0,8,1"
        )

    def test_a_publisher_that_does_not_come_is_status_1(self, capsys, monkeypatch):
        monkeypatch.setattr(module.PreparedWsGemm, "launch", lambda *_, **__: None)
        assert main(SMALL.split()) == 1
        assert re.match(r"FAILED: front of 2 ranks: rank \d did not publish ", capsys.readouterr().out)

    def test_a_wrong_result_is_status_1(self, capsys, monkeypatch):
        monkeypatch.setattr(module.PreparedWsGemm, "pack", _packs_rank_0)
        assert main(f"{SMALL} --json".split()) == 1
        assert json.loads(capsys.readouterr().out)["passed"] is False

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("verify front --ranks 3 --m 4", "ranks is 3; it must divide latent 3584 and experts 896"),
            ("verify front --m 4 --n 560", "do not belong to front"),
            ("verify front --m 4 --seeds 2", "do not belong to front"),
            ("verify front --m 4 --transport mail", "transport is 'mail', but must be one of local, peers, multicast"),
            ("verify front --m 4 --backend tpu", "backend is 'tpu'"),
            ("verify front --m 4 --schedule late", "schedule is 'late'"),
            ("verify front --m 4 --seed -1", "seed is -1"),
            ("verify front --m 65 --backend interpreter", "M is 65, but this kernel takes 1 to 64 tokens"),
            ("verify front --m 4 --tactic 1,2,3", "tactic '1,2,3' is not 6"),
            ("verify front --m 4 --tactic 1,1,1,0,0,0 --backend interpreter", "registers per thread needed"),
            ("verify warp-splitk --m 4 --n 64 --k 512 --ranks 2", "--ranks belongs to front, not to warp-splitk"),
            ("verify warp-splitk --m 4 --k 512", "Missing option '--n'"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(self, capsys, line, words):
        status = main(line.split())
        out, err = capsys.readouterr()
        assert (status, out) == (2, "") and err.startswith("error: ") and words in err and err.count("\n") == 1
