"""A front small enough to interpret in no time, tactics for every path of its kernel, and tensors as bits."""

import numpy as np
import torch

from skinny_gemm import FrontProblem, PreparedWsGemm, WsGemmTactic

FRONT = FrontProblem.sharded(1, k=64, latent=32, experts=16, ranks=2)  #: valid 8 of split 16: half of it is padding
TACTICS = {
    "single pass": WsGemmTactic(1, 2, 1, 0, 0, 1),
    "staged": WsGemmTactic(1, 2, 1, 1, 0, 2),
    "gather": WsGemmTactic(2, 1, 2, 0, 0, 1),
    "token groups": WsGemmTactic(2, 1, 2, 0, 8, 1),
}
M = 3


def bits(tensor):
    """The bits of a BF16 tensor, as uint16."""
    return tensor.view(torch.int16).numpy().view(np.uint16)


def bf16(*shape):
    """BF16 normals."""
    return torch.randn(shape).bfloat16()


_pack = PreparedWsGemm.pack


@staticmethod
def packs_rank_0(router, down, front, rank):
    """In place of `PreparedWsGemm.pack`: every rank gets the weight of rank 0."""
    return _pack(router, down, front, 0)
