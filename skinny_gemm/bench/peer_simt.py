"""A published SIMT skinny GEMM as a peer, for M up to 6: its own kernel object, behind pointers and integers.

A thread multiplies a few weight rows with all tokens over its share of K, and a CTA adds up its threads' sums. M is
compiled in, N and K are read at run time. Where K is compiled in as well, the kernel loads its first weights before it
waits for the preceding kernel.

Its publisher compiles it with -maxrregcount=64, which changes nothing: ptxas goes by the launch bounds that the kernel
has instead (the same SASS with the option and without, at 60, 69 and 109 registers).
"""

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute

from ..artifact import LaunchArguments, Parameter
from ..device import Device
from ..layouts import WARP
from ..problem import BF16_BYTES, GemmProblem
from .foreign import ForeignFile

FILE = ForeignFile("SKINNY_GEMM_SIMT", "vllm/model_executor/kernels/linear/cute_dsl/_skinny_gemm.py")
MAX_M = 6
THREADS = (224, 128, 96, 64, 32)
VECTORS = (8, 4)  #: elements of a load; the shorter where the longer does not divide K, or makes few tiles of it
FEW_TILES = 4
SHAPES = 4  #: (threads, vector) tried, the widest that divide K
#: (weight rows of a CTA, K tiles unrolled) by M. Their product is the loads in flight, and rows times M the sums that a
#: thread holds: more tokens leave room for less. These are the publisher's choices for Hopper, and a few around them.
ROWS_AND_UNROLLED = {
    1: ((2, 4), (4, 2), (3, 2), (1, 4)),
    2: ((4, 2), (4, 1), (3, 2), (2, 2)),
    3: ((2, 1), (4, 1), (2, 2), (4, 2)),
}
MANY_TOKENS = ((2, 1), (3, 1), (4, 1), (6, 1))  #: the same for 4 tokens and more
STATIC_ROWS = (2, 4)  #: weight rows where K is compiled in, which unrolls all of it
STATIC_TILES = 2  #: K tiles that such a kernel loads in advance


class Tactic(NamedTuple):
    """A configuration in the order of its text."""

    threads: int
    rows: int
    unrolled: int
    vector: int
    static_k: int  #: K if it is compiled in, else 0


class Adaptor:
    """The kernel for one (M, tactic) and any N, with the parameters that its tensors and copy atoms become."""

    cluster = (1, 1, 1)

    def __init__(self, problem: GemmProblem, tactic: str, pdl: bool):
        t = self.tactic = _parse(tactic)
        self.m, self.parameters = problem.m, _parameters(t)
        self.block, self.smem_bytes = (t.threads, 1, 1), 4 * problem.m * t.rows * (t.threads // WARP)
        self.peer = FILE.load().CuteSkinnyGemm(
            element_type=cutlass.BFloat16, num_rows=problem.m, block_size=t.threads, outputs_per_block=t.rows,
            vector_width=t.vector, k_unroll=t.unrolled, use_pdl=pdl, static_k=t.static_k or None,
        )  # fmt: skip

    @cute.jit
    def __call__(self, *values):
        self.peer(*self.tensors(values), [])  # the default stream: only traced

    def tensors(self, values: tuple) -> tuple:
        """x, weight, residual and out, with what the publisher lets the compiler assume of their sizes and strides."""
        t, v = self.tactic, dict(zip((p.name for p in self.parameters), values, strict=True))
        n = cute.assume(v["n"], divby=t.rows)
        k = t.static_k or cute.assume(v["k"], divby=t.threads * t.vector)
        k_stride = cute.assume(v["k_stride"], divby=t.vector)
        return (
            cute.make_tensor(v["x"], cute.make_layout((self.m, k), stride=(k_stride, 1))),
            cute.make_tensor(v["weight"], cute.make_layout((n, k), stride=(k_stride, 1))),
            cute.make_tensor(v["residual"], cute.make_layout((self.m, n), stride=(v["n_stride"], 1))),
            cute.make_tensor(v["out"], cute.make_layout((self.m, n), stride=(v["n_stride"], 1))),
        )


build = Adaptor


def specialisation(problem: GemmProblem, tactic: str) -> dict[str, int]:
    """What of `problem` a binary is compiled for, beside the K in its tactic."""
    return {"m": problem.m}


def arguments(tactic: str, x: Any, weight: Any, out: Any) -> LaunchArguments:
    """One launch for x `[M, K]`, weight `[N, K]` and out `[M, N]`."""
    (n, k), t = weight.shape, _parse(tactic)
    named = {"x": x, "weight": weight, "residual": None, "out": out, "n": n, "k": k, "n_stride": n, "k_stride": k}
    return LaunchArguments((n // t.rows, 1, 1), tuple(named.get(p.name, 0) for p in _parameters(t)))


def tactics(problem: GemmProblem, device: Device) -> list[str]:
    """A grid of its configurations, see the constants above; ValueError if there is none for `problem`."""
    m, n, k = problem.m, problem.n, problem.k
    if m > MAX_M:
        raise ValueError(f"M is {m}, but it takes 1 to {MAX_M} tokens")
    shapes = []
    for threads in THREADS:
        dividing = [vector for vector in VECTORS if k % (threads * vector) == 0]
        few = bool(dividing) and k // (threads * dividing[0]) < FEW_TILES
        shapes += [(threads, vector) for vector in dividing[: 2 if few else 1]]
    grid = []
    for threads, vector in shapes[:SHAPES]:
        for rows, unrolled in ROWS_AND_UNROLLED.get(m, MANY_TOKENS):
            grid.append(Tactic(threads, rows, unrolled, vector, 0))
        if k >= STATIC_TILES * threads * vector:
            grid += [Tactic(threads, rows, 1, vector, k) for rows in STATIC_ROWS]
    legal = [",".join(map(str, tactic)) for tactic in grid if n % tactic.rows == 0]
    if not legal:
        raise ValueError(f"it has no configuration for {n}x{k} at M = {m}")
    return legal


def _parse(tactic: str) -> Tactic:
    return Tactic(*map(int, tactic.split(",")))


def _parameters(t: Tactic) -> tuple[Parameter, ...]:
    """A tensor is its pointer, its sizes and its outer stride, as far as they are not compiled in."""
    n, n_stride = Parameter("n", "i32", joined=True), Parameter("n_stride", "i64", joined=True)
    k, k_stride = Parameter("k", "i32", joined=True), Parameter("k_stride", "i64", joined=True)
    sized = () if t.static_k else (k,)
    loaded = BF16_BYTES * t.vector
    return (
        Parameter("x", "pointer", alignment=loaded), *sized, k_stride,
        Parameter("weight", "pointer", alignment=loaded), n, *sized, k_stride,
        Parameter("residual", "pointer", optional=True, alignment=BF16_BYTES), n, n_stride,
        Parameter("out", "pointer", written=True, alignment=BF16_BYTES), n, n_stride,
        Parameter("k", "i32"), *[Parameter(f"copy_atom{i}", "i64") for i in range(3)],
    )  # fmt: skip
