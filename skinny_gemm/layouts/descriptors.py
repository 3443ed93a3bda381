"""Where `wgmma` finds its operands in shared memory, by the PTX ISA's matrix descriptors; operands are K-major.

An operand is made of groups of 8 rows. A row of a group is as many bytes as the layout is wide: one 16-byte chunk of 8
BF16 without a swizzle, else 32, 64 or 128 bytes, whose chunks the swizzle permutes by the bits of the *address* above
them. So a descriptor may start anywhere in a row: 32 bytes further is the next k16, whichever the width.
"""

from dataclasses import dataclass

from . import Index

CHUNK_BYTES = 16  #: what moves as one, 8 BF16
GROUP = 8  #: rows
WIDTHS = (16, 128, 64, 32)  #: bytes of a row, by bits 62-63 of a descriptor; 16 is no swizzle
FIELD = 0x3FFF  #: what of an address or an offset, in units of 16 bytes, a descriptor holds
RESERVED = 0x3FF1C000C000C000  #: bits that must be zero


@dataclass(frozen=True)
class Descriptor:
    """What a 64-bit matrix descriptor says, in bytes; the members are integers or arrays of them."""

    start: Index
    leading: Index  #: from a chunk to the next one along K, without a swizzle; with one it is not used
    stride: Index  #: from a group of 8 rows to the next
    base: Index  #: 0 for a layout whose swizzle is that of the addresses
    mode: Index  #: the place of its width in `WIDTHS`


def encoded(start: Index, leading: int, stride: int, width: int) -> Index:
    """The descriptor of an operand `start` bytes from 0, a multiple of 16 below 2^18, with rows of `width` bytes."""
    fixed = leading // CHUNK_BYTES << 16 | stride // CHUNK_BYTES << 32 | WIDTHS.index(width) << 62
    return start // CHUNK_BYTES | fixed


def decoded(descriptor: Index) -> Descriptor:
    """The reverse of `encoded`, of an integer or an array of 64-bit ones."""
    start, leading, stride = ((descriptor >> place & FIELD) * CHUNK_BYTES for place in (0, 16, 32))
    return Descriptor(start, leading, stride, descriptor >> 49 & 7, descriptor >> 62 & 3)


def chunk_address(row: Index, chunk: Index, start: Index, step: Index, stride: Index, width: Index) -> Index:
    """Address of 16-byte `chunk` 0 or 1 of a row of an operand; `step` lies between the two: `leading`, or 16."""
    address = start + (row & 7) * width + (row >> 3) * stride + chunk * step
    return address ^ ((address >> 7 & (width // CHUNK_BYTES - 1)) * CHUNK_BYTES)
