"""Basic blocks -> Python functions over NumPy arrays.

Every block becomes `b<n>(g, R)` for a group `g` of warps that execute it together (`R` is the list of registers), and
on demand `m<n>(g, R, M)` for the lanes in the mask `M` only. A block that ends in a conditional branch returns the
array "branch is taken". Reading the generated text (`Program.source`) is the best documentation of this file.
"""

from dataclasses import dataclass

import numpy as np

from . import ops
from .errors import UnsupportedInstruction
from .flow import Flow
from .fuse import MmaFusion
from .opcodes import Opcodes, width_of
from .parser import Address, Float, Imm, Instruction, Reg, Special

DTYPE = {1: "?", 8: "u1", 16: "u2", 32: "u4", 64: "u8"}
#: Instructions without an effect on one warp's values in this machine: memory is coherent and ordered.
NO_EFFECT = {"membar", "prefetch", "setmaxnreg", "discard", "applypriority"}
SPECIALS = {"tid", "ntid", "ctaid", "nctaid", "laneid", "warpid", "nwarpid", "cluster_ctarank", "cluster_nctarank",
            "cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid"}  # fmt: skip
CLOCKS = {"globaltimer", "globaltimer_lo", "clock64", "clock"}


@dataclass
class Program:
    """The generated functions of one kernel; `masked(n)` compiles on first use."""

    flow: Flow
    functions: list
    source: str
    generator: "Generator"
    masks: dict

    def masked(self, number: int):
        if number not in self.masks:
            text = "\n".join(self.generator.block(self.flow.blocks[number], masked=True))
            self.masks[number] = self.generator.compile(text)[f"m{number}"]
        return self.masks[number]


def generate(flow: Flow, traced=None) -> Program:
    """The program of a kernel; with `traced`, a predicate on instructions, those report to the group's trace."""
    generator = Generator(flow, traced)
    lines = []
    for block in flow.blocks:
        if block.waits:
            check_wait(flow.kernel.instructions[block.start])
        else:
            lines += generator.block(block, masked=False)
    text = "\n".join(lines)
    names = generator.compile(text)
    functions = [names.get(f"b{block.number}") for block in flow.blocks]
    return Program(flow, functions, text, generator, {})


def check_wait(ins: Instruction):
    """Raises `UnsupportedInstruction` unless the machine knows how to wait for `ins`."""
    match ins.op:
        case ("bar" | "barrier", "sync", *aligned):
            known = not ins.guard and (not aligned or aligned == ["aligned"])
        case ("barrier", "cluster", "wait", *rest):
            known = not ins.guard and rest in ([], ["aligned"], ["acquire"], ["acquire", "aligned"])
        case ("mbarrier", "try_wait" | "test_wait", *rest, "shared" | "shared::cta", "b64"):
            known = not ins.guard and isinstance(ins.operands[0], Reg) and ins.operands[0].name != "_"
            order = [m for m in rest if m != "parity"]
            known = known and order in ([], ["acquire", "cta"], ["acquire", "cluster"])
        case _:
            known = False
    if not known:
        raise unsupported(ins)


class Generator(Opcodes):
    def __init__(self, flow: Flow, traced):
        self.flow, self.traced = flow, traced
        self.code, self.number = flow.kernel.instructions, flow.number
        self.widths = flow.kernel.widths
        self.parameters = {p.name: p for p in flow.kernel.parameters}
        self.names = {"np": np, "ops": ops, "bits": ops.bits, "merge": ops.merge, "TRUE": ops.TRUE,
                      "where": np.where, "mma": ops.mma, "f4": np.float32, "i4": np.int32, "i8": np.int64,
                      "u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "u8": np.uint64, "i2": np.int16,
                      "i1": np.int8, "f8": np.float64}  # fmt: skip
        self.constants = {}
        #: Registers that an mma writes may hold a `Word`.
        self.lazy = {name for i in self.code if i.op[0] == "mma" for name in flow.writes[i.index]}

    def compile(self, text):
        names = {}
        exec(compile(text, "<ptx>", "exec"), self.names, names)
        return names

    # Blocks

    def block(self, block, masked: bool) -> list[str]:
        self.masked = masked
        code = self.code[block.start : block.stop]
        self.local, self.out = set(), []
        self.read_first, self.counter = [], 0
        self.fusion = None if masked else MmaFusion(self.flow, block, self.intern)
        for ins in code:
            self.emit(ins)
        if self.fusion:
            self.out += self.fusion.close_all()
        tail = []
        written = {name for ins in code for name in self.flow.writes[ins.index]}
        for name in sorted(written, key=self.number.get):
            n = self.number[name]
            if block.live_out >> n & 1:
                tail.append(f"R[{n}] = merge(M, v{n}, R[{n}])" if masked else f"R[{n}] = v{n}")
        if not masked:  # in a masked region another path may still need them
            dead = block.live_in & ~block.live_out  # all of them are read here
            read = {self.number[name] for ins in code for name in self.flow.reads[ins.index]}
            tail += [f"R[{n}] = None" for n in sorted(read) if dead >> n & 1]
        if block.branch is not None and block.branch.guard:
            register, negated = block.branch.guard
            tail.append(f"return {'~' if negated else ''}{self.local_name(register.name)}")
        head = f"def m{block.number}(g, R, M):" if masked else f"def b{block.number}(g, R):"
        loads = [f"v{n} = R[{n}]" for n in self.read_first]
        return [head] + [" " + line for line in loads + self.out + tail or ["pass"]]

    def local_name(self, name) -> str:
        n = self.number[name]
        if n not in self.local:
            self.local.add(n)
            self.read_first.append(n)
        return f"v{n}"

    def emit(self, ins: Instruction):
        base = ins.op[0]
        if base in ("bra", "ret", "exit"):
            return
        if self.fusion:
            self.out += self.fusion.before(ins)
        self.mask, self.ins = self.mask_of(ins), ins
        traced = self.traced is not None and self.traced(ins)
        if traced and "mbarrier" not in ins.op:
            self.trace(ins)
        self.handle(ins, base)
        if traced and "mbarrier" in ins.op:  # afterwards: the table shows what the event made of the barrier
            self.trace(ins)

    def handle(self, ins: Instruction, base: str):
        if base in NO_EFFECT:
            return
        handler = getattr(self, "op_" + base, None)
        if handler is None:
            raise unsupported(ins)
        try:
            handler(ins, ins.op[1:], ins.operands)
        except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:  # not a form that it knows
            raise unsupported(ins) from error

    def mask_of(self, ins) -> str:
        if not ins.guard:
            return "M" if self.masked else "None"
        register, negated = ins.guard
        guard = ("~" if negated else "") + self.local_name(register.name)
        return f"({guard} & M)" if self.masked else f"({guard})"

    def trace(self, ins):
        address = next((o for o in ins.operands if isinstance(o, Address) and not isinstance(o.base, str)), None)
        wide = ins.op[0] == "multimem" or ("global" in ins.op and ins.op[0] != "cp")
        where = self.address(address, 64 if wide else 32) if address else "None"
        if ins.op[:2] == ("cp", "async") and len(ins.operands) > 1:
            size = self.value(ins.operands[2], "u32")
            self.out.append(f"g.trace_source({self.address(ins.operands[1], 64)}, {size})")
        self.out.append(f"g.trace({ins.index}, {self.mask}, {where})")

    # Operands

    def constant(self, value, dtype: str) -> str:
        key = (value, dtype)
        if key not in self.constants:
            array = np.array([[[value]]], dtype=np.dtype(dtype))
            array.setflags(write=False)
            self.constants[key] = self.bind(array)
        return self.constants[key]

    def intern(self, array: np.ndarray) -> str:
        """The name of an array of the generated code; equal arrays share it."""
        key = array.shape, array.tobytes()
        if key not in self.constants:
            self.constants[key] = self.bind(array)
        return self.constants[key]

    def bind(self, array) -> str:
        name = f"K{len(self.names)}"
        self.names[name] = array
        return name

    def value(self, operand, kind: str) -> str:
        """An expression for an operand as `kind`: a PTX type such as u32, s64, b16, f32 or pred."""
        if kind == "pred":
            if isinstance(operand, Imm):
                return "TRUE" if operand.value else "(~TRUE)"
            return self.local_name(operand.name)
        bits = width_of(kind)
        letter = "f" if kind[0] == "f" and bits >= 32 else "i" if kind[0] == "s" else "u"
        dtype = f"{letter}{bits // 8}"
        if isinstance(operand, Imm):
            if letter == "f":
                raise ValueError
            value = operand.value & (1 << bits) - 1
            if letter == "i" and value >> bits - 1:
                value -= 1 << bits
            return self.constant(value, dtype)
        if isinstance(operand, Float):
            if operand.bits != bits:
                raise ValueError
            text = self.constant(operand.pattern, f"u{bits // 8}")
            return text if letter == "u" else f"{text}.view({dtype})"
        if isinstance(operand, Special):
            head, _, axis = operand.name.partition(".")
            if head in CLOCKS:
                return f"g.clock({head!r}).astype(u{bits // 8})"
            if head not in SPECIALS:
                raise ValueError
            return f"g.special({head!r}, {axis!r})" + (".astype(u8)" if bits == 64 else "")
        text = self.local_name(operand.name)
        if operand.name in self.lazy:
            text = f"bits({text})"
        if self.widths[operand.name] != bits:
            text = f"{text}.astype(u{bits // 8})"
        return text if letter == "u" else f"{text}.view({dtype})"

    def address(self, operand: Address, bits: int = 32) -> str:
        if operand.base is None:
            return self.constant(operand.offset & (1 << bits) - 1, f"u{bits // 8}")
        bits = self.widths[operand.base.name]
        text = self.value(operand.base, f"u{bits}")
        if operand.offset:
            text = f"({text} + {self.constant(operand.offset & (1 << bits) - 1, f'u{bits // 8}')})"
        return text

    def assign(self, operand, expression: str):
        """Writes a register; under a guard it keeps its old value in the other lanes."""
        if not isinstance(operand, Reg):
            raise ValueError
        if operand.name == "_":
            self.out.append(expression)
            return
        n = self.number[operand.name]
        if self.ins.guard:
            register, negated = self.ins.guard
            guard = ("~" if negated else "") + self.local_name(register.name)
            old = self.local_name(operand.name)
            self.out.append(f"v{n} = merge({guard}, {expression}, {old})")
        else:
            self.local.add(n)
            self.out.append(f"v{n} = {expression}")

    def result(self, operand, expression: str, kind: str):
        """Assigns a value computed as `kind`, as bits of the register's own width."""
        if kind == "pred":
            return self.assign(operand, expression)
        have = width_of(kind)
        letter = "f" if kind[0] == "f" and have >= 32 else "i" if kind[0] == "s" else "u"
        if letter != "u":
            expression = f"({expression}).view(u{have // 8})"
        want = self.widths.get(operand.name, have)
        if want != have:
            if letter == "i":
                expression = f"({expression}).view(i{have // 8}).astype(i{want // 8}).view(u{want // 8})"
            else:
                expression = f"({expression}).astype(u{want // 8})"
        return self.assign(operand, expression)

    def binary(self, ins, kind, template):
        d, a, b = ins.operands
        self.result(d, template.format(a=self.value(a, kind), b=self.value(b, kind)), kind)


def unsupported(ins: Instruction) -> UnsupportedInstruction:
    return UnsupportedInstruction(
        f"PTX line {ins.line}: the interpreter does not execute {ins.opcode!r} (in {ins.text!r})."
    )
