"""Oracles of scans of machine code."""

import re

from skinny_gemm.runtime import sass


def odd_descriptors(cubin):
    """Offsets of LDGSTS with an odd descriptor register, by the disassembler."""
    return [
        address
        for address, opcode, _, operands in sass.instructions(cubin)
        if opcode == "LDGSTS" and int(re.search(r"desc\[UR(\d+)\]", operands)[1]) % 2
    ]
