"""Programs of a few `wgmma`, with operands laid out as the PTX ISA draws them."""

import itertools

import numpy as np

from skinny_gemm.interpreter.parser import SHARED_BASE
from skinny_gemm.layouts import descriptors, fragments
from skinny_gemm.runtime.bfloat16 import from_bits, to_bits
from tests.interpreter.programs import kernel, run

FENCE, COMMIT, WAIT = (f"wgmma.{what};" for what in ("fence.sync.aligned", "commit_group.sync.aligned",
                                                     "wait_group.sync.aligned 0"))  # fmt: skip
PUBLISH = "fence.proxy.async; bar.sync 0;"
NUMBERS = {"bf16": from_bits, "f16": lambda bits: bits.view(np.float16).astype(np.float32)}


def placed(matrix: np.ndarray, width: int) -> np.ndarray:
    """The bytes of a K-major operand, chunk by chunk as the ISA draws its layouts: a swizzled one is as wide as a row,
    one without a swizzle has its 8x8 core matrices first along K."""
    chunks = matrix.shape[1] // 8
    image = np.empty(matrix.size, np.uint16)
    for row, chunk in itertools.product(range(len(matrix)), range(chunks)):
        group, r = divmod(row, 8)
        if width == 16:
            byte = 128 * (group * chunks + chunk) + 16 * r
        else:  # from 128 bytes to 128 bytes another chunk comes first
            byte = width * row + 16 * (chunk ^ (r * width // 128))
        image[byte // 2 : byte // 2 + 8] = matrix[row, 8 * chunk : 8 * chunk + 8]
    return image.view(np.uint8)


def descriptor(offset: int, width: int, k: int, step: int = 0) -> int:
    """Of the operand `offset` bytes into the dynamic shared memory; of its `step`-th k16."""
    stride = 16 * k if width == 16 else 8 * width
    return descriptors.encoded(SHARED_BASE + offset + step * (256 if width == 16 else 32), 128, stride, width)


def registers(n: int, name: str = "%a") -> str:
    return ", ".join(f"{name}{v}" for v in range(n // 2))


def copies_in(size: int, threads: int = 128) -> str:
    """Copies the first parameter to shared memory."""
    lines = ["mul.wide.u32 %rd20, %r0, 16; add.s64 %rd21, %rd20, %rd0;"]
    lines += ["shl.b32 %r1, %r0, 4; mov.b32 %r3, smem; add.s32 %r1, %r1, %r3;"]
    for at in range(0, size, 16 * threads):
        lines.append(f"cp.async.cg.shared.global [%r1+{at}], [%rd21+{at}], 16;")
    return " ".join([*lines, "cp.async.wait_all;"])


def product(
    n: int, a: int | str, b: int | str, adds: int | str = 1, kind="bf16", signs="1, 1", name: str = "%a"
) -> str:
    """A wgmma of descriptors (integers, or registers) in inline assembly, as the compiler writes it."""
    return f"""{{ .reg .pred p; .reg .b64 da, db; setp.ne.b32 p, {adds}, 0; mov.b64 da, {a}; mov.b64 db, {b};
    wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{{registers(n, name)}}}, da, db, p, {signs}, 0, 0; }}"""


def stores(n: int, threads: int = 128) -> str:
    """Stores the accumulators, word by word, to the last parameter."""
    lines = ["mul.wide.u32 %rd22, %r0, 4; add.s64 %rd23, %rd22, %rd1;"]
    return " ".join(lines + [f"st.global.f32 [%rd23+{4 * threads * v}], %a{v};" for v in range(n // 2)])


def declared(n: int) -> str:
    return f".reg .f32 %a<{n // 2}>; .reg .f32 %b<{n // 2}>;"


def launch(
    body: str, image: np.ndarray, n: int, threads: int = 128, cluster: int = 1, runner=run, **options
) -> np.ndarray:
    """The accumulators (warpgroups, 64, N) that a program with `stores` leaves, run as by `programs.run`."""
    padded = np.zeros(-(-image.size // (16 * threads)) * 16 * threads, np.uint8)
    padded[: image.size] = image
    out = np.zeros((n // 2, threads // 32, 32), np.float32)
    compiled = kernel(declared(n) + body, threads=threads, shared=padded.size, cluster=cluster)
    runner(compiled, padded, out, **{"grid": (cluster, 1, 1)} | options)
    result = np.empty((threads // 128, 64, n), np.float32)
    for word, warp, lane in np.ndindex(out.shape):
        result[warp // 4][fragments.wgmma_element(warp % 4, lane, word)] = out[word, warp, lane]
    return result


def operands(n: int, k: int, kind: str = "bf16", seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    parts = [random.standard_normal((rows, k)) for rows in (64, n)]
    return [to_bits(part) if kind == "bf16" else part.astype(np.float16).view(np.uint16) for part in parts]


def exact(a: np.ndarray, b: np.ndarray, kind: str = "bf16") -> np.ndarray:
    return NUMBERS[kind](a).astype(np.float64) @ NUMBERS[kind](b).astype(np.float64).T


def assert_close(result: np.ndarray, want: np.ndarray):
    assert np.abs(want).max() > 1 and np.abs(result - want).max() < 1e-5 * np.abs(want).max()


def whole_product(n: int, width: int, kind: str = "bf16") -> tuple[str, np.ndarray, np.ndarray]:
    """(program, bytes to copy in, exact result) of the product of one 64xK and one NxK operand, both `width` wide."""
    k = max(width // 2, 32) if width == 16 else width // 2
    a, b = operands(n, k, kind)
    at = 128 * k  # A's bytes, a multiple of 1024
    steps = (product(n, descriptor(0, width, k, s), descriptor(at, width, k, s), s, kind) for s in range(k // 16))
    image = np.concatenate([placed(a, width), placed(b, width)])
    return " ".join([copies_in(image.size), PUBLISH, FENCE, *steps, COMMIT, WAIT, stores(n)]), image, exact(a, b, kind)
