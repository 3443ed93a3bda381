"""The MoE front end to end, in the interpreter: virtual ranks publish and collect the unsharded product.

Over every transport, at TP8 and TP16, in both buffers; what cannot be verified is refused in one sentence.
"""

from dataclasses import replace

import pytest

from skinny_gemm import FrontProblem, PreparedWsGemm, WsGemmTactic
from skinny_gemm.problem import KIMI_K3, GemmProblem
from skinny_gemm.runtime import verify as module
from skinny_gemm.runtime.verify import verify, verify_front
from tests.support.fronts import FRONT, TACTICS, M, packs_rank_0


@pytest.mark.parametrize("schedule", ["in_order", "adversarial"])
@pytest.mark.parametrize("transport", module.TRANSPORTS)
@pytest.mark.parametrize("tactic", TACTICS)
def test_virtual_ranks_give_the_unsharded_product(tactic, transport, schedule):
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
def test_small_fronts_of_8_and_16_ranks(ranks, m, tactic):
    front = FrontProblem.sharded(m, k=512, latent=16 * ranks, experts=12 * ranks, ranks=ranks)
    assert front.valid < front.split
    assert verify_front(front, tactic, "interpreter", seed=ranks).passed


def test_kimi_k3_at_tp16():
    front = FrontProblem.sharded(9, ranks=16, **KIMI_K3)
    assert (front.n, front.valid, front.split) == (288, 56, 64)
    assert verify_front(front, WsGemmTactic(3, 2, 16, 7, 16, 2), "interpreter", seed=0).passed


def test_a_front_without_experts_is_a_sharded_gemm():
    front = FrontProblem.sharded(M, k=64, latent=64, experts=0, ranks=4)
    result = verify_front(front, WsGemmTactic(1, 2, 1, 0, 0, 1), "interpreter", seed=0)
    assert result.passed and result.logits_error == 0


def test_a_rank_with_anothers_weight_is_noticed(monkeypatch):
    monkeypatch.setattr(PreparedWsGemm, "pack", packs_rank_0)
    assert not verify_front(replace(FRONT, m=M), TACTICS["gather"], "interpreter", seed=0).passed


SINGLE_PASS = TACTICS["single pass"]


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (lambda: verify_front(None), "front is None, but must be a FrontProblem"),
        (lambda: verify_front(GemmProblem(3, 32, 64)), r"front is GemmProblem\(.*, but must be a FrontProblem"),
        (lambda: verify_front(FRONT, "1,2,1,0,0,1"), "tactic is '1,2,1,0,0,1', but must be a WsGemmTactic or None"),
        (lambda: verify_front(FRONT, seed="1"), "seed is '1', but must be an integer of at least 0"),
        (lambda: verify_front(FRONT, seed=-1), "seed is -1, but must be an integer of at least 0"),
        (lambda: verify(SINGLE_PASS, FRONT, seed=2.5), "seed is 2.5, but must be an integer of at least 0"),
        (
            lambda: verify(SINGLE_PASS, FRONT, seeds="2"),
            "seeds is '2', but must be an integer of at least 1",
        ),
        (
            lambda: verify(SINGLE_PASS, FRONT, seeds=1.5),
            "seeds is 1.5, but must be an integer of at least 1",
        ),
    ],
)
def test_what_cannot_be_verified_is_refused_in_a_sentence(check, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        check()


def test_too_many_peers_are_refused_before_any_data_is_made(monkeypatch):
    monkeypatch.setattr(module, "random_operands", lambda *_: pytest.fail("data was made"))
    with pytest.raises(ValueError, match="front has 32 ranks, but peers are at most 16"):
        verify_front(FrontProblem.sharded(4, ranks=32, **KIMI_K3), transport="peers")
