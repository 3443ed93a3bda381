"""What the assembler made of a kernel, by NVIDIA's `nvdisasm` and `cuobjdump`; known mis-encodings."""

import functools
import importlib.util
import re
import shutil
import struct
import subprocess
import tempfile
from collections import Counter

from ..artifact import Resources

_LDGSTS, _LDGSTS_UNIFORM_BASE = 0xFAE, 0xDAE  #: opcodes, sm_90a to sm_120a
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)((?:\.[\w]+)*)([^;]*);")


@functools.cache
def tool(name: str) -> str:
    """Path of CUDA binary utility `name`; FileNotFoundError says how to get it."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [f"{root}/cu13/bin/{name}" for root in (spec.submodule_search_locations or ())] if spec else []
    for candidate in (*wheels, name, f"/usr/local/cuda/bin/{name}"):
        if found := shutil.which(candidate):
            return found
    raise FileNotFoundError(f"{name} not found: install the wheel nvidia-cuda-{name} or a CUDA toolkit")


def _run(name: str, *arguments: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [tool(name), *arguments, file.name]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@functools.lru_cache(maxsize=64)
def instructions(cubin: bytes) -> list[tuple[int, str, str, str]]:
    """The instructions of a cubin: (address, opcode, modifiers, operands)."""
    rows = _INSTRUCTION.findall(_run("nvdisasm", "-c", cubin=cubin))
    return [(int(address, 16), opcode, modifiers, operands.strip()) for address, opcode, modifiers, operands in rows]


def opcode_counts(cubin: bytes) -> dict[str, int]:
    """How often each opcode (without modifiers) stands in the SASS, most frequent first."""
    return dict(Counter(opcode for _, opcode, _, _ in instructions(cubin)).most_common())


def resources(cubin: bytes, entry: str) -> Resources:
    """Registers, spills, stack and static shared memory of kernel `entry`."""
    usage = _run("cuobjdump", "--dump-resource-usage", cubin=cubin)
    line = re.search(re.escape(entry) + r":\s*\n\s*(.*)", usage)
    if line is None:
        raise ValueError(f"the assembler's report does not mention kernel {entry}")
    report = {name: int(value) for name, value in re.findall(r"([A-Z]+):(\d+)", line[1])}
    listing = instructions(cubin) if report["STACK"] else []  # spills go to the stack: without one there are none
    local = [modifiers for _, opcode, modifiers, _ in listing if opcode in ("LDL", "STL")]
    spilled = sum(int(width[0]) // 8 if (width := re.findall(r"64|128", modifiers)) else 4 for modifiers in local)
    return Resources(report["REG"], spilled, report["STACK"], report["SHARED"])


def misencoded_copies(cubin: bytes) -> list[int]:
    """Offsets of `LDGSTS` instructions whose descriptor register is odd: illegal, error 716 at run time.

    ptxas breaks that where it adds a uniform base to the shared address: that form (0xdae) names one register, the
    base, and takes the next for the descriptor. Read off the encoding, as a disassembler takes 0.8 s a kernel.
    """
    (table,) = struct.unpack_from("<Q", cubin, 0x28)  # of a 64-bit ELF file, whose code is a section a kernel
    entry, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, table + i * entry) for i in range(count)]
    strings, faults = headers[names][4], []
    for name, _, _, _, start, size in headers:
        code = cubin[start : start + size] if cubin[strings + name :].startswith(b".text.") else b""
        for offset in range(0, len(code), 16):
            low, high = struct.unpack_from("<QQ", code, offset)  # the register number is at the end of the high word
            descriptor = {_LDGSTS: high, _LDGSTS_UNIFORM_BASE: high + 1}.get(low & 0xFFF, 0)
            if descriptor & 1:
                faults.append(offset)
    return faults
