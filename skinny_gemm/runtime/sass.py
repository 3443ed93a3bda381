"""What the assembler made of a kernel: disassembly, opcode counts, resource usage, known mis-encodings.

Uses NVIDIA's `nvdisasm` and `cuobjdump`, from their wheels or from an installed CUDA toolkit.
"""

import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from ..artifact import Resources

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[\w]+)*)([^;]*);")


@functools.cache
def tool(name: str) -> str:
    """Path of CUDA binary utility `name`; FileNotFoundError says how to get it."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(root) / "cu13" / "bin" / name for root in (spec.submodule_search_locations or ())] if spec else []
    for candidate in (*map(str, wheels), name, f"/usr/local/cuda/bin/{name}"):
        if found := shutil.which(candidate):
            return found
    raise FileNotFoundError(f"{name} not found: install the wheel nvidia-cuda-{name} or a CUDA toolkit")


def _run(name: str, *arguments: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run(
            [tool(name), *arguments, file.name], check=True, capture_output=True, text=True, timeout=60
        ).stdout


@functools.lru_cache(maxsize=64)
def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin as text, one instruction a line."""
    return _run("nvdisasm", "-c", cubin=cubin)


def instructions(cubin: bytes) -> list[tuple[int, str, str, str]]:
    """The instructions of a cubin: (address, opcode, modifiers, operands)."""
    return [
        (int(address, 16), opcode, modifiers, operands.strip())
        for address, opcode, modifiers, operands in _INSTRUCTION.findall(disassemble(cubin))
    ]


def opcode_counts(cubin: bytes) -> dict[str, int]:
    """How often each opcode (without modifiers) stands in the SASS, most frequent first."""
    return dict(Counter(opcode for _, opcode, _, _ in instructions(cubin)).most_common())


def resources(cubin: bytes, entry: str) -> Resources:
    """Registers, spills, stack and static shared memory of kernel `entry`.

    Spills are counted in the SASS (bytes of local stores and loads) only where the kernel has a stack at all: local
    memory is where spills go.
    """
    usage = _run("cuobjdump", "--dump-resource-usage", cubin=cubin)
    line = re.search(re.escape(entry) + r":\s*\n\s*(.*)", usage)
    if line is None:
        raise ValueError(f"the assembler's report does not mention kernel {entry}")
    report = {name: int(value) for name, value in re.findall(r"([A-Z]+):(\d+)", line[1])}
    spilled = sum(
        int(width[0]) // 8 if (width := re.findall(r"64|128", modifiers)) else 4
        for _, opcode, modifiers, _ in (instructions(cubin) if report["STACK"] else ())
        if opcode in ("LDL", "STL")
    )
    return Resources(report["REG"], spilled, report["STACK"], report["SHARED"])


def misencoded_copies(cubin: bytes) -> list[str]:
    """`LDGSTS` instructions whose uniform descriptor register is odd or never written: illegal, error 716 at run time.

    Some assemblers emit them for hinted copies; a descriptor is a pair of uniform registers and must be even.
    """
    listed = instructions(cubin)
    written = set()
    for _, opcode, _, operands in listed:
        if target := re.match(r"UR(\d+)", operands):
            # A 64-bit result fills the pair, a 128-bit one the quad; counting both neighbours errs on the quiet side
            # only for registers next to a written one.
            written.update(range(int(target[1]), int(target[1]) + 4))
        elif opcode == "R2UR" and (target := re.search(r"UR(\d+)", operands)):
            written.add(int(target[1]))
    faults = []
    for address, opcode, modifiers, operands in listed:
        if opcode == "LDGSTS" and (descriptor := re.search(r"desc\[UR(\d+)\]", operands)):
            register = int(descriptor[1])
            if register % 2 or register not in written:
                faults.append(f"/*{address:04x}*/ {opcode}{modifiers} {operands}")
    return faults
