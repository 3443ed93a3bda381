"""The operands of PTX instructions as Python text, and the lines that instructions become.

This is all that the emitters see of the code generator (codegen.py), which adds the basic blocks.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from . import arithmetic as ops
from .errors import UnsupportedInstruction
from .parser import Address, Float, Imm, Instruction, Kernel, Reg, unsupported, width_of

if TYPE_CHECKING:
    from .fuse import MmaFusion

SPECIALS = {"tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "cluster_ctarank", "cluster_nctarank",
            "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid"}  # fmt: skip
CLOCKS = {"globaltimer", "globaltimer_lo", "clock64", "clock"}


@cache
def dtype_of(kind: str) -> str:
    """The NumPy dtype of a PTX type: its bits as unsigned, signed or floating-point numbers."""
    bits = width_of(kind)
    return f"{'f' if kind[0] == 'f' and bits >= 32 else 'i' if kind[0] == 's' else 'u'}{bits // 8}"


class Writer:
    """Writes `out`, the lines of the block at hand. `ins` is its current instruction, `mask` that one's active lanes:
    an expression, "None" for all; `relaxed` says whether it takes registers wider than its type. `number` gives
    registers their indices; those in `lazy` may hold a `Word` instead of an array. `fusion` joins mma into runs;
    without one every instruction stands alone.
    """

    def __init__(self, kernel: Kernel, number: dict[str, int], lazy: set[str]):
        self.number, self.widths, self.lazy = number, kernel.widths, lazy
        self.parameters = {p.name: p for p in kernel.parameters}
        self.names = {"np": np, "ops": ops, "bits": ops.bits, "merge": ops.merge, "TRUE": ops.TRUE,
                      "where": np.where, "mma": ops.mma, "f4": np.float32, "i4": np.int32, "i8": np.int64,
                      "u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "u8": np.uint64, "i2": np.int16,
                      "i1": np.int8, "f8": np.float64}  # fmt: skip
        self.constants: dict[tuple, str] = {}  # what an array holds -> its name
        self.ins: Instruction
        self.mask, self.relaxed = "None", False
        self.start(None)

    def start(self, fusion: "MmaFusion | None") -> None:
        """Begins a block."""
        self.fusion = fusion
        self.out: list[str] = []
        self.local: set[int] = set()  # registers that have a local variable
        self.read_first: list[int] = []  # those of them that it must be loaded into
        self.temporaries = 0

    def refuse(self) -> NoReturn:
        """Raises `UnsupportedInstruction` for the current instruction."""
        raise unsupported(self.ins)

    def line(self, text: str) -> None:
        self.out.append(text)

    def temporary(self, expression: str) -> str:
        """The name of a new variable with the value of `expression`."""
        self.temporaries += 1
        self.line(f"w{self.temporaries} = {expression}")
        return f"w{self.temporaries}"

    def spread(self, expression: str, registers: tuple, kinds: list[str]) -> None:
        """Writes a tuple of values, computed as `kinds`, to registers."""
        name = self.temporary(expression)
        for i, (register, kind) in enumerate(zip(registers, kinds, strict=True)):
            self.result(register, f"{name}[{i}]", kind)

    # Operands

    def constant(self, value: int, dtype: str) -> str:
        """The name of an integer, modulo its width, as a value that all share."""
        key = value, dtype
        if key not in self.constants:
            size = int(dtype[1])
            self.constants[key] = self.intern(np.array([[[value & (1 << 8 * size) - 1]]], f"u{size}").view(dtype))
        return self.constants[key]

    def intern(self, array: np.ndarray) -> str:
        """The name of an array of the generated code; equal arrays share it."""
        key = array.shape, array.dtype.str, array.tobytes()
        if key not in self.constants:
            array.setflags(write=False)
            name = self.constants[key] = f"K{len(self.names)}"
            self.names[name] = array
        return self.constants[key]

    def register(self, name: str) -> str:
        """The local variable of a register that is read."""
        n = self.number[name]
        if n not in self.local:
            self.local.add(n)
            self.read_first.append(n)
        return f"v{n}"

    def predicate(self, guard: tuple[Reg, bool]) -> str:
        register, negated = guard
        return ("~" if negated else "") + self.register(register.name)

    def value(self, operand: Any, kind: str) -> str:
        """An expression for an operand as `kind`: a PTX type such as u32, s64, b16, f32 or pred."""
        if kind == "pred":
            if isinstance(operand, Imm):
                return "TRUE" if operand.value else "(~TRUE)"
            return self.register(operand.name)
        bits, dtype = width_of(kind), dtype_of(kind)
        if isinstance(operand, Reg):
            text = self.register(operand.name)
            if operand.name in self.lazy:
                text = f"bits({text})"
            if self.widths[operand.name] != bits:
                self.check_width(operand, bits)
                text = f"{text}.astype(u{bits // 8})"
        elif isinstance(operand, Imm):
            if dtype[0] == "f":
                self.refuse()
            return self.constant(operand.value, dtype)
        elif isinstance(operand, Float):
            if operand.bits != bits or kind[0] in "us":
                self.refuse()
            text = self.constant(operand.pattern, f"u{bits // 8}")
        else:
            head, _, axis = operand.name.partition(".")
            if dtype[0] == "f" or head not in CLOCKS | SPECIALS:
                self.refuse()
            if head in CLOCKS:
                return f"g.clock({head!r}).astype(u{bits // 8})"
            return f"g.special({head!r}, {axis!r})" + (".astype(u8)" if bits == 64 else "")
        return text if dtype[0] == "u" else f"{text}.view({dtype})"

    def check_width(self, register: Reg, bits: int) -> None:
        """Raises unless the instruction takes a register of another width than its type's `bits`: loads, stores and
        conversions take wider ones."""
        width = self.widths[register.name]
        if width < bits or not self.relaxed:
            name = register.name.partition("@")[0]
            raise UnsupportedInstruction(f"PTX line {self.ins.line}: {name} has {width} bits where {self.ins.opcode!r} "
                                         f"takes {bits} (in {self.ins.text!r}).")  # fmt: skip

    def address(self, operand: Address, bits: int = 32) -> str:
        """An expression for an address, as wide as its register; `bits` is the width of one without."""
        if not isinstance(operand.base, Reg):
            return self.constant(operand.offset, f"u{bits // 8}")
        bits = self.widths[operand.base.name]
        text = self.value(operand.base, f"b{bits}")
        if operand.offset:
            text = f"({text} + {self.constant(operand.offset, f'u{bits // 8}')})"
        return text

    def result(self, operand: Reg, expression: str, kind: str) -> None:
        """Writes a value computed as `kind` to a register, as bits of its own width; a guard keeps the other lanes."""
        if kind != "pred":
            have, letter = width_of(kind), dtype_of(kind)[0]
            want = self.widths.get(operand.name, have)
            if want != have:
                self.check_width(operand, have)
            if letter != "u":
                expression = f"({expression}).view(u{have // 8})"
            if want != have and letter == "i":
                expression = f"({expression}).view(i{have // 8}).astype(i{want // 8}).view(u{want // 8})"
            elif want != have:
                expression = f"({expression}).astype(u{want // 8})"
        if operand.name == "_":
            return self.line(expression)
        n = self.number[operand.name]
        if self.ins.guard:
            guard, old = self.predicate(self.ins.guard), self.register(operand.name)
            self.line(f"v{n} = merge({guard}, {expression}, {old})")
        else:
            self.local.add(n)
            self.line(f"v{n} = {expression}")
