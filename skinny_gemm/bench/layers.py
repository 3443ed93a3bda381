"""The layers of a decode step and the models made of them: what is multiplied by which weight, in what order.

A layer is a function of the hidden state and of `multiply`, which stands for any way to multiply by a weight. The rest
is PyTorch's: RMS norms (their gains folded into the weights behind them), SiLU, gates and residual adds.

Left out is what is no projection or would need another rank: KV caches and states, where a stand-in of the right width
lets every projection wait for the one before it; the routed experts, and with them all that follows the mailbox; sums
over ranks; embedding, head and sampling.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from .. import catalogue
from ..problem import FrontProblem, GemmProblem

HEAD = 128  #: columns of an attention head
EPSILON = 1e-6  #: of the RMS norms; PyTorch's default would differ between BF16 and FP64
FRONT = "moe_front"  #: the projection that goes into a mailbox

Shapes = Mapping[str, tuple[int, int]]  #: projection to (N, K)
Multiply = Callable[[str, Any], Any]  #: (projection, x `[M, K]`) to `[M, N]`, of `FRONT` to what nobody here reads


class Layer(NamedTuple):
    """A layer, and the projections that it has weights for."""

    run: Callable[[Multiply, Shapes, Any], Any]  #: (multiply, shapes, hidden `[M, H]`) to the next hidden state
    projections: tuple[str, ...]


def norm(x: Any) -> Any:
    """Each row over its root mean square."""
    return F.rms_norm(x, x.shape[-1:], eps=EPSILON)


def gated(x: Any) -> Any:
    """`[M, 2 W]` to `[M, W]`: SiLU of the first half, times the second."""
    gate, up = x.chunk(2, dim=1)
    return F.silu(gate) * up


def dense(multiply: Multiply, shapes: Shapes, hidden: Any) -> Any:
    """A dense layer. Attention is that of the token to itself: every query head returns the V of its group."""
    qkv, width = multiply("qkv", norm(hidden)), shapes["o_proj"][1]
    v = qkv[:, (width + qkv.shape[1]) // 2 :].unflatten(1, (-1, 1, HEAD))
    attended = v.expand(-1, -1, width // HEAD // v.shape[1], -1).flatten(1)
    hidden = hidden + multiply("o_proj", attended)
    return hidden + multiply("down", gated(multiply("gate_up", norm(hidden))))


def linear_attention(multiply: Multiply, shapes: Shapes, hidden: Any) -> Any:
    """A layer with linear attention, a mixture behind it. V plus decay stands in for the recurrence over the state."""
    width, low = shapes["o_proj"][1], shapes["f_b"][1]
    _q, _k, v, gate, decay, _ = multiply("in_proj_qkvgfab", norm(hidden)).tensor_split(
        [width, 2 * width, 3 * width, 4 * width, 4 * width + low], dim=1
    )
    attended = norm(v + multiply("f_b", decay.contiguous())) * torch.sigmoid(gate)
    return mixture(multiply, hidden + multiply("o_proj", attended))


def latent_attention(multiply: Multiply, shapes: Shapes, hidden: Any) -> Any:
    """A layer with latent attention, a mixture behind it. Q's first columns stand in for what attention returns."""
    x, width, low = norm(hidden), shapes["o_proj"][1], shapes["q_b"][1]
    q = multiply("q_b", norm(multiply("fused_qkv_a", x)[:, :low].contiguous()))
    attended = q[:, :width] * torch.sigmoid(multiply("mla_g", x))
    return mixture(multiply, hidden + multiply("o_proj", attended))


def mixture(multiply: Multiply, hidden: Any) -> Any:
    """The mixture of experts as one rank sees it: its part of the front is published, the shared expert added."""
    x = norm(hidden)
    multiply(FRONT, x)
    return hidden + multiply("shared_down", gated(multiply("shared_gate_up", x)))


DENSE = Layer(dense, ("qkv", "o_proj", "gate_up", "down"))
MIXTURE = (FRONT, "shared_gate_up", "shared_down")
LINEAR = Layer(linear_attention, ("in_proj_qkvgfab", "f_b", "o_proj", *MIXTURE))
LATENT = Layer(latent_attention, ("fused_qkv_a", "q_b", "mla_g", "o_proj", *MIXTURE))


@dataclass(frozen=True)
class Model:
    """Layers of a model as one rank of a tensor-parallel group has them, each with weights of its own."""

    name: str  #: in the catalogue, as `parallel`
    parallel: str
    layers: tuple[Layer, ...]
    problems: Mapping[str, GemmProblem]  #: projection to its weight, with any M; `FRONT` to a `FrontProblem`

    @classmethod
    def catalogued(cls, name: str, parallel: str, layers: Sequence[Layer]) -> "Model":
        """With the weights that the catalogue lists for it."""
        known = {s.projection: (s.n, s.k) for s in catalogue.shapes() if (s.model, s.parallel) == (name, parallel)}
        problems = {p: GemmProblem(1, *known[p]) for layer in dict.fromkeys(layers) for p in layer.projections}
        fronts = {FRONT: FrontProblem.of(problems[FRONT])} if FRONT in problems else {}
        return cls(name, parallel, tuple(layers), problems | fronts)

    @property
    def hidden(self) -> int:
        """Columns of the hidden state."""
        return self.problems[self.layers[0].projections[0]].k

    @property
    def weight_bytes(self) -> int:
        """Of all layers."""
        return sum(self.problems[name].weight_bytes for layer in self.layers for name in layer.projections)

    def step(self, multiply: Callable[[int, str, Any], Any], hidden: Any) -> Any:
        """From the hidden state `[M, hidden]` to that behind all layers; `multiply` is told the number of the layer."""
        shapes = {name: (problem.n, problem.k) for name, problem in self.problems.items()}
        for index, layer in enumerate(self.layers):
            hidden = layer.run(partial(multiply, index), shapes, hidden)
        return hidden


#: By their names in the catalogue. Of Kimi K3 only 28 layers, three with linear attention to one with latent attention:
#: their 4.1 GB are 65 times the L2 of an H200, as much as a cold campaign rotates through.
MODELS: dict[str, Callable[[], Model]] = {
    "Dense 8B": partial(Model.catalogued, "Dense 8B", "TP1", 36 * (DENSE,)),
    "Kimi K3": partial(Model.catalogued, "Kimi K3", "TP8", 7 * (LINEAR, LINEAR, LINEAR, LATENT)),
}
