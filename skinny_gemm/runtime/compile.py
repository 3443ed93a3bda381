"""Compiles CuTe DSL kernels for any architecture on any machine, without a GPU; looks in memory and on disk first."""

import functools
import hashlib
import importlib
import importlib.metadata
import tempfile
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .. import device as devices
from ..artifact import CompiledKernel, Parameter
from ..checks import check_choice
from ..interpreter.launch import places_of
from ..interpreter.parser import parameters_of
from ..problem import GemmProblem
from ..tactics import Tactic
from . import cache, sass
from .sources import source_digest

_memory: dict[str, CompiledKernel] = {}
_compiler_lock = threading.Lock()  # the DSL's tracer is not safe for threads; sweeps use processes


def compile_kernel(
    tactic: Tactic, problem: GemmProblem, arch: str = "sm_90a", pdl: bool = True, **options: Any
) -> CompiledKernel:
    """The kernel of `tactic`, legal for `problem`, from the cache or newly compiled; ValueError for an unknown `arch`.

    One binary serves every problem of the same `tactic.specialisation`. `pdl` compiles programmatic dependent launch
    in; `options` are those of the kernel's `build`.
    """
    special, arguments = {**tactic.specialisation(problem), **options}, (tactic.problem(problem), tactic)
    return compile_built(tactic.kernel, tactic.module, str(tactic), special, arch, pdl, arguments, options)


def compile_collect(latent: int, experts: int, arch: str = "sm_90a", pdl: bool = True) -> CompiledKernel:
    """The mailbox's consumer for rows of `latent` BF16 and `experts` FP32, from the cache or newly compiled."""
    special, module = {"latent": latent, "experts": experts}, "skinny_gemm.kernels.collect"
    return compile_built("collect", module, "", special, arch, pdl, (latent, experts))


def compile_probe(probe: Any, arch: str) -> CompiledKernel:
    """One of `kernels.probes`, newly compiled; needs no GPU."""
    return compile_jit(probe.kernel_name, probe, probe.parameters, probe.block, probe.smem_bytes, arch, pdl=True)


def compile_built(
    kernel: str, module: str, tactic: str, special: Mapping, arch: str, pdl: bool, arguments: tuple,
    options: Mapping = MappingProxyType({}), check_copies: bool = True,
) -> CompiledKernel:  # fmt: skip
    """What the `build` of `module` makes of `arguments`, `pdl` and `options`, from the cache or newly compiled.

    `special` is all that the binary depends on beside `tactic`, `arch`, `pdl` and the sources of `module`: nothing of
    the machine, so that a cache filled on one serves on another. ValueError for an unknown `arch`.
    """
    check_choice("arch", arch, devices.architectures())
    identity = (kernel, tactic, sorted(special.items()), arch, pdl, dsl_version(), source_digest(module))
    key = hashlib.sha256(repr(identity).encode()).hexdigest()[:32]
    if key not in _memory:
        facts = {**special, "tactic": tactic, "dsl": dsl_version(), "source": source_digest(module)}
        compiled = cache.load(key)
        if compiled is None or (compiled.kernel, compiled.arch, compiled.facts) != (kernel, arch, facts):
            built = importlib.import_module(module).build(*arguments, pdl, **options)
            shape = built.parameters, built.block, built.smem_bytes
            compiled = compile_jit(kernel, built, *shape, arch, pdl, facts, built.cluster, check_copies)
            cache.store(key, compiled)
        _memory[key] = compiled
    return _memory[key]


def compile_jit(
    kernel: str,
    function: Any,
    parameters: tuple[Parameter, ...],
    block: tuple[int, int, int],
    smem_bytes: int,
    arch: str,
    pdl: bool,
    facts: Mapping[str, Any] | None = None,
    cluster: tuple[int, int, int] = (1, 1, 1),
    check_copies: bool = True,
) -> CompiledKernel:
    """Compiles `function`, a `@cute.jit` callable that launches one kernel with exactly `parameters`, for `arch`.

    ValueError if the PTX has other parameters, or, with `check_copies`, if the assembler mis-encoded an instruction
    (see `sass.misencoded_copies`).
    """
    import cutlass
    import cutlass.cute as cute
    from cutlass.base_dsl.compiler import DumpDir
    from cutlass.cute.runtime import make_ptr

    integers = {"i32": cutlass.Int32, "i64": cutlass.Int64}
    arguments = [
        make_ptr(getattr(cutlass, p.dtype), p.alignment, cute.AddressSpace.gmem, assumed_align=p.alignment)
        if p.kind == "pointer"
        else integers[p.kind](1)
        for p in parameters
    ]
    # The DSL passes PTX and cubin through files whose names omit the tactic: a directory of its own for each call.
    with _compiler_lock, tempfile.TemporaryDirectory() as directory:
        options = cute.GPUArch(arch), cute.KeepPTX(True), cute.KeepCUBIN(True), DumpDir(directory)
        # Without the engine that would launch it from here: a quarter of the time.
        result = cute.compile[options](function, *arguments, no_jit_engine=True)
        (entry,) = result.kernel_info
        ptx, cubin = result.__ptx__, result.__cubin__
    places_of(parameters_of(ptx), parameters)
    if check_copies and (faults := sass.misencoded_copies(cubin)):
        raise ValueError(f"the assembler mis-encoded {len(faults)} copies for {arch}, first at {faults[0]:#x}")
    resources = sass.resources(cubin, entry)
    return CompiledKernel(
        kernel, entry, arch, ptx, cubin, parameters, block, cluster, smem_bytes, pdl, resources, facts or {}
    )


@functools.cache
def dsl_version() -> str:
    """Version of the CuTe DSL that compiles here."""
    return importlib.metadata.version("nvidia-cutlass-dsl")
