"""PTX micro-programs for the interpreter's tests, and the real kernel with its FP64 reference."""

import functools
import re

import numpy as np

from skinny_gemm import interpreter
from skinny_gemm.artifact import CompiledKernel, LaunchArguments, Parameter, Resources
from skinny_gemm.layouts import mailbox
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.runtime import compile_kernel
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from skinny_gemm.tactics import WarpSplitKTactic, WsGemmTactic

HEADER = """.version 9.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry k(
{parameters}
)
.reqntid {threads}, 1, 1
{{
    .reg .pred %p<20>;
    .reg .b16 %h<20>;
    .reg .b32 %r<100>;
    .reg .f32 %f<40>;
    .reg .b64 %rd<40>;
    mov.u32 %r0, %tid.x;
{body}
    ret;
}}
"""


def kernel(
    body: str, parameters: str = "a out", threads: int = 32, shared: int = 0, written=("out",), cluster: int = 1
) -> CompiledKernel:
    """A kernel whose pointer `parameters` are loaded into %rd0, %rd1, ...; %r0 holds the thread."""
    names = parameters.split()
    loads = "\n".join(f"    ld.param.b64 %rd{i}, [{name}];" for i, name in enumerate(names))
    declared = ",\n".join(f"    .param .u64 .ptr .global .align 16 {name}" for name in names)
    text = HEADER.format(parameters=declared, threads=threads, body=loads + "\n" + body)
    specs = tuple(Parameter(name, "pointer", name in written, True) for name in names)
    none = Resources(0, 0, 0, 0)
    shape = (threads, 1, 1), (cluster, 1, 1)
    return CompiledKernel("test", "k", "sm_90a", text, b"", specs, *shape, shared, False, none)


class Eager(interpreter.InOrder):
    """The schedule under which copies and transfers land as they are issued."""

    def dares(self, what: str) -> bool:
        return what == "land"


def run(compiled: CompiledKernel, *values, grid=(1, 1, 1), **options):
    return interpreter.run(compiled, LaunchArguments(grid, values), **options)


def elementwise(code: str, inputs, out_dtype, threads: int = 32):
    """Runs `code` once per thread: it finds its inputs in %r10, %r11, ... (4 bytes) or %rd10, ... (8 bytes) by dtype
    and leaves its result in %r20 or %rd20 by `out_dtype`."""
    lines = []
    for i, array in enumerate(inputs):
        size = array.dtype.itemsize
        name = f"%{'rd' if size == 8 else 'r'}{10 + i}"
        lines += [f"mul.wide.u32 %rd30, %r0, {size};", f"add.s64 %rd31, %rd30, %rd{i};",
                  f"ld.global.b{8 * size} {name}, [%rd31];"]  # fmt: skip
    size = np.dtype(out_dtype).itemsize
    name = "%rd20" if size == 8 else "%r20"
    lines += [code, f"mul.wide.u32 %rd30, %r0, {size};", f"add.s64 %rd31, %rd30, %rd{len(inputs)};",
              f"st.global.b{8 * size} [%rd31], {name};"]  # fmt: skip
    names = " ".join([*(f"in{i}" for i in range(len(inputs))), "out"])
    out = np.zeros(threads, out_dtype)
    run(kernel("\n".join(lines), names, threads), *inputs, out)
    return out


class Gemm:
    """Inputs of one warp split-K launch, on exact BF16 values, with the FP64 result."""

    def __init__(self, m, n, k, bias=True, seed=0):
        random = np.random.default_rng(seed)
        self.m, self.n, self.k = m, n, k
        self.weight = to_bits(random.standard_normal((n, k)) / np.sqrt(k))
        self.x = to_bits(random.standard_normal((m, k)))
        self.bias = to_bits(random.standard_normal(n)) if bias else None
        exact = from_bits(self.x).astype(np.float64) @ from_bits(self.weight).astype(np.float64).T
        self.exact = exact + from_bits(self.bias) if bias else exact

    def run(self, compiled, tactic, **options):
        """(out bits `[M, N]`, Result); the rows past M of a padded buffer must stay as they are."""
        padded = np.full((self.m + 3, self.n), 0x1234, np.uint16)
        named = {"weight": self.weight, "x": self.x, "out": padded[: self.m], "bias": self.bias, "m": self.m}
        values = tuple(named[p.name] for p in compiled.parameters)
        grid = (self.n // tactic.output_tile, -(-self.m // tactic.token_tile), 1)
        result = interpreter.run(compiled, LaunchArguments(grid, values), **options)
        assert (padded[self.m :] == 0x1234).all()
        return padded[: self.m], result

    def error(self, out) -> float:
        """Largest error, relative to the largest result; half an ulp of BF16 is 2^-9."""
        return float(np.abs(from_bits(out) - self.exact).max() / np.abs(self.exact).max())


class Front:
    """Inputs of one rank's weight-stationary GEMM, on exact BF16 values; `run` gives the mailbox, `exact` is FP64."""

    RANK = 1

    def __init__(self, m, tactic, k=256, latent=96, experts=32, ranks=2, **options):
        self.front = FrontProblem.sharded(m, k, latent, experts, ranks)
        self.tactic = WsGemmTactic.parse(tactic)
        self.kernel = compile_kernel(self.tactic, self.front, **options)
        random = np.random.default_rng(0)
        front = self.front
        self.weight = to_bits(random.standard_normal((front.n, front.k)) / np.sqrt(front.k))
        self.x = to_bits(random.standard_normal((m, front.k)))
        self.exact = from_bits(self.x).astype(np.float64) @ from_bits(self.weight).astype(np.float64).T

    def empty(self):
        return mailbox.empty(self.front.m, self.front.latent, self.front.experts)

    def run(self, kernel=None, boxes=None, **options):
        box = self.empty()
        values = (self.weight, self.x, self.RANK, *([box] if boxes is None else boxes))
        arguments = LaunchArguments(self.tactic.grid(self.front), values)
        self.result = interpreter.run(kernel or self.kernel, arguments, **options)
        return box


SMALL = (64, 1024, "16,8,256,2,1")
WIDE = (64, 512, "32,32,128,2,2")  # two feature steps, four token steps, a ring that is reused


@functools.cache
def compiled(n, k, tactic):
    return compile_kernel(WarpSplitKTactic.parse(tactic), GemmProblem(1, n, k)), WarpSplitKTactic.parse(tactic)


# Mutants: the kernel without one of its synchronisations. Stale or missing bytes show as a wrong result, as poison or
# as a deadlock, under some schedule.

WAIT = re.compile(r"\{\s*\.reg \.pred\s+P1;\s*LAB_WAIT:\s*mbarrier\.try_wait[^}]*\}")
WAIT_LINE = re.compile(r"(mbarrier\.try_wait\.parity\.shared\.b64 P1, \[%r\d+\], )([01])(,)")
MUTATIONS = {
    "warp sync": re.compile(r"bar\.warp\.sync[^;]*;"),
    "wait": WAIT,
    "parity": WAIT_LINE,
    "arrive": re.compile(r"mbarrier\.arrive\.shared\.b64 [^;]*;"),
    "copy arrive": re.compile(r"cp\.async\.mbarrier\.arrive\.noinc[^;]*;"),
    "init": re.compile(r"mbarrier\.init\.shared\.b64 [^;]*;"),
    "named barrier": re.compile(r"bar\.sync\s+1, 128;"),
    "CTA barrier": re.compile(r"bar\.sync\s+0;"),
}


def mutants(text, kind):
    """The PTX with each of a kind's places, in turn, taken out (or its parity flipped)."""
    for match in MUTATIONS[kind].finditer(text):
        new = ""
        if kind == "parity":
            new = match.expand(rf"\g<1>{1 - int(match.group(2))}\g<3>")
        yield text[: match.start()] + new + text[match.end() :]
