"""What compiling a kernel yields: data that the CUDA driver and the interpreter both run.

Parameters are pointers and integers only, so that either can pass them without the DSL's calling convention.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: `kind` is `pointer`, `i32` or `i64`; `written` if the kernel stores through it."""

    name: str
    kind: str
    written: bool = False
    optional: bool = False  #: a pointer that may be null (`None` among the values)
    dtype: str = "BFloat16"  #: what a pointer points to, by its DSL name
    alignment: int = 32  #: of a pointer, in bytes
    joined: bool = False  #: in one kernel argument with the parameter before, as a tensor's sizes with its pointer


def arguments_of(parameters: Sequence[Parameter]) -> list[list[Parameter]]:
    """The arguments of a kernel, each with its parameters, which lie in it as members of a C structure do."""
    arguments: list[list[Parameter]] = []
    for parameter in parameters:
        if parameter.joined:
            arguments[-1].append(parameter)
        else:
            arguments.append([parameter])
    return arguments


@dataclass(frozen=True)
class Resources:
    """What the assembler reports for one kernel, per thread unless the name says otherwise."""

    registers: int
    spill_bytes: int  #: stores plus loads
    stack_bytes: int
    static_smem_bytes: int  #: per CTA


@dataclass(frozen=True)
class CompiledKernel:
    """One compiled kernel: PTX for the interpreter, a cubin for the driver, and all that a launch needs but M."""

    kernel: str  #: registry name, such as "warp-splitk"
    entry: str
    arch: str  #: such as "sm_90a"
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    parameters: tuple[Parameter, ...]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int  #: dynamic shared memory per CTA
    pdl: bool  #: launch with the programmatic-stream-serialization attribute
    resources: Resources
    facts: Mapping[str, Any] = field(default_factory=dict)  #: n, k, tactic, DSL version, source digest


@dataclass(frozen=True)
class LaunchArguments:
    """One launch of a `CompiledKernel`: the grid and the values of its parameters, in order.

    A pointer's value is a packed torch tensor (on the CPU for the interpreter) or NumPy array, or None if optional.
    """

    grid: tuple[int, int, int]
    values: tuple[Any, ...]
