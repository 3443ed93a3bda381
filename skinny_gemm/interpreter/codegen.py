"""Basic blocks -> Python functions over NumPy arrays.

Every block becomes `b<n>(g, R)` for a group `g` of warps that execute it together (`R` is the list of registers), and
on demand `m<n>(g, R, M)` for the lanes in the mask `M` only. A block that ends in a conditional branch returns the
array "branch is taken". Reading the generated text (`Program.source`) is the best documentation of this file.
"""

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from . import ops
from .errors import UnsupportedInstruction
from .flow import Flow
from .fuse import MmaFusion
from .parser import Address, Float, Imm, Instruction, Reg, Special, Vector

DTYPE = {1: "?", 8: "u1", 16: "u2", 32: "u4", 64: "u8"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
           "hs": ">=", "equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}  # fmt: skip
LOGIC = {"and": "&", "or": "|", "xor": "^"}
#: Instructions without an effect on one warp's values in this machine: memory is coherent and ordered.
NO_EFFECT = {"fence", "membar", "prefetch", "nanosleep", "setmaxnreg", "discard", "applypriority"}
SPECIALS = {"tid", "ntid", "ctaid", "nctaid"}


@cache
def width_of(type_name: str) -> int:
    """Bits of a PTX type such as `u32`; a predicate has one."""
    return 1 if type_name == "pred" else int(re.sub(r"\D", "", type_name))


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
        case ("mbarrier", "try_wait" | "test_wait", *_, "shared" | "shared::cta", "b64"):
            known = not ins.guard and isinstance(ins.operands[0], Reg) and ins.operands[0].name != "_"
        case _:
            known = False
    if not known:
        raise unsupported(ins)


class Generator:
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
        wide = "global" in ins.op and ins.op[0] != "cp"
        where = self.address(address, 64 if wide else 32) if address else "None"
        if ins.op[:2] == ("cp", "async") and len(ins.operands) > 1:
            self.out.append(f"g.trace_source({ins.index}, {self.mask}, {self.address(ins.operands[1], 64)})")
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
            if head == "laneid":
                return "g.special('laneid', '')"
            if head not in SPECIALS:
                raise ValueError
            return f"g.special({head!r}, {axis!r})"
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

    # Data movement

    def op_mov(self, ins, mods, operands):
        d, a = operands
        kind = mods[-1]
        if isinstance(d, Vector):  # split a register into its parts, low first
            part = width_of(kind) // len(d.items)
            for i, item in enumerate(d.items):
                shift = self.constant(i * part, f"u{width_of(kind) // 8}")
                self.assign(item, f"({self.value(a, kind)} >> {shift}).astype(u{part // 8})")
            return
        if isinstance(a, Vector):
            part = width_of(kind) // len(a.items)
            wide = f"u{width_of(kind) // 8}"
            terms = [
                f"({self.value(item, f'b{part}')}.astype({wide}) << {self.constant(i * part, wide)})"
                for i, item in enumerate(a.items)
            ]
            return self.assign(d, " | ".join(terms))
        if kind == "pred":
            return self.assign(d, self.value(a, "pred"))
        self.assign(d, self.value(a, "b" + kind[1:]))

    def op_cvta(self, ins, mods, operands):
        self.assign(operands[0], self.value(operands[1], "u64"))

    def op_cvt(self, ins, mods, operands):
        *modifiers, to, source = mods
        d, *a = operands
        if source == "f32" and to in ("bf16x2", "bf16") and modifiers == ["rn"]:
            words = [self.value(x, "b32") for x in a]
            if to == "bf16x2":
                return self.assign(d, f"ops.bf16x2({words[0]}, {words[1]})")
            return self.assign(d, f"ops.bf16_bits({words[0]}).astype(u2)")
        if source == "bf16" and to == "f32" and not modifiers:
            return self.assign(d, f"{self.value(a[0], 'b16')}.astype(u4) << {self.constant(16, 'u4')}")
        if source[0] in "us" and to[0] in "us" and not modifiers:
            text = self.value(a[0], source)
            step = f"{'i' if source[0] == 's' else 'u'}{width_of(to) // 8}"
            return self.result(d, f"{text}.astype({step}).view(u{width_of(to) // 8})", "u" + to[1:])
        if source[0] in "us" and to == "f32" and modifiers == ["rn"]:
            return self.result(d, f"{self.value(a[0], source)}.astype(f4)", "f32")
        raise ValueError

    def op_ld(self, ins, mods, operands):
        d, a = operands
        mods = [m for m in mods if m not in ("volatile", "relaxed", "acquire", "weak", "cta", "gpu", "sys", "nc")
                and "::" not in m or m.startswith("shared::")]  # fmt: skip
        if mods[0] == "param":
            p = self.parameters[a.base]
            return self.assign(d, f"g.parameter({p.offset + a.offset}, {width_of(mods[-1]) // 8})")
        space, kind = mods[0], mods[-1]
        count = int(mods[1][1:]) if mods[1][0] == "v" and mods[1][1:].isdigit() else 1
        size = width_of(kind) // 8
        bits = 64 if space == "global" else 32
        call = {"global": "load_global", "shared": "load_shared", "shared::cta": "load_shared"}[space]
        text = f"g.{call}({ins.index}, {self.address(a, bits)}, {size * count}, {self.mask})"
        registers_ = d.items if isinstance(d, Vector) else (d,)
        signed = kind[0] == "s"
        if count == 1:
            return self.result(d, f"{text}.view({'i' if signed else 'u'}{size})", ("s" if signed else "u") + kind[1:])
        self.counter += 1
        name = f"w{self.counter}"
        self.out.append(f"{name} = ops.words({text}, {count}, u{size})")
        for i, register in enumerate(registers_):
            self.result(register, f"{name}[{i}]", "u" + kind[1:])

    def op_st(self, ins, mods, operands):
        a, value = operands
        mods = [m for m in mods if m not in ("volatile", "relaxed", "release", "weak", "cta", "gpu", "sys")
                and "::" not in m or m.startswith("shared::")]  # fmt: skip
        space, kind = mods[0], mods[-1]
        items = value.items if isinstance(value, Vector) else (value,)
        bits = 64 if space == "global" else 32
        call = {"global": "store_global", "shared": "store_shared", "shared::cta": "store_shared"}[space]
        words = ", ".join(self.value(x, "b" + kind[1:]) for x in items)
        self.out.append(f"g.{call}({ins.index}, {self.address(a, bits)}, ({words},), {self.mask})")

    def op_createpolicy(self, ins, mods, operands):
        self.assign(operands[0], self.constant(0, "u8"))

    # Integers, logic and floats

    def sum(self, ins, mods, template):
        kind = mods[-1]
        if kind[0] in "us" and len(mods) == 1:
            return self.binary(ins, "u" + kind[1:], template)  # the bits do not depend on the sign
        if kind in ("f32", "f64") and mods[:-1] in ((), ("rn",)):
            return self.binary(ins, kind, template)
        raise ValueError

    def op_add(self, ins, mods, operands):
        self.sum(ins, mods, "{a} + {b}")

    def op_sub(self, ins, mods, operands):
        self.sum(ins, mods, "{a} - {b}")

    def op_mul(self, ins, mods, operands):
        d, a, b = operands
        match mods:
            case ("wide", kind):
                return self.result(d, self.wide_product(a, b, kind), kind[0] + str(2 * width_of(kind)))
            case ("lo", kind):
                return self.binary(ins, "u" + kind[1:], "{a} * {b}")
            case ("hi", kind):
                return self.binary(ins, kind, "ops.multiply_high({a}, {b})")
            case (("f32" | "f64") as kind,) | ("rn", ("f32" | "f64") as kind):
                return self.binary(ins, kind, "{a} * {b}")
        raise ValueError

    def op_mad(self, ins, mods, operands):
        d, a, b, c = operands
        match mods:
            case ("wide", kind):
                wide = kind[0] + str(2 * width_of(kind))
                return self.result(d, f"{self.wide_product(a, b, kind)} + {self.value(c, wide)}", wide)
            case ("lo", kind):
                kind = "u" + kind[1:]
                text = f"{self.value(a, kind)} * {self.value(b, kind)} + {self.value(c, kind)}"
                return self.result(d, text, kind)
        raise ValueError

    def wide_product(self, a, b, kind) -> str:
        wide = f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 4}"
        return f"{self.value(a, kind)}.astype({wide}) * {self.value(b, kind)}.astype({wide})"

    def op_fma(self, ins, mods, operands):
        # The product of two float32 is exact in float64; the sum is then rounded twice, which differs from a true
        # fma only where the float64 sum lies within 2^-53 of a float32 tie.
        d, a, b, c = operands
        if mods != ("rn", "f32"):
            raise ValueError
        a, b, c = (f"{self.value(x, 'f32')}.astype(f8)" for x in (a, b, c))
        self.result(d, f"({a} * {b} + {c}).astype(f4)", "f32")

    def op_div(self, ins, mods, operands):
        if mods[-1][0] in "us" and len(mods) == 1:
            return self.binary(ins, mods[-1], "ops.divide({a}, {b})")
        if mods == ("rn", "f32"):
            return self.binary(ins, "f32", "{a} / {b}")
        raise ValueError

    def op_rem(self, ins, mods, operands):
        self.binary(ins, mods[-1], "ops.remainder({a}, {b})")

    def op_min(self, ins, mods, operands):
        self.binary(ins, mods[-1], "np.fmin({a}, {b})" if mods[-1][0] == "f" else "np.minimum({a}, {b})")

    def op_max(self, ins, mods, operands):
        self.binary(ins, mods[-1], "np.fmax({a}, {b})" if mods[-1][0] == "f" else "np.maximum({a}, {b})")

    def logic(self, ins, mods):
        kind = mods[-1]
        self.binary(ins, kind, f"{{a}} {LOGIC[ins.op[0]]} {{b}}")

    def op_and(self, ins, mods, operands):
        self.logic(ins, mods)

    def op_or(self, ins, mods, operands):
        self.logic(ins, mods)

    def op_xor(self, ins, mods, operands):
        self.logic(ins, mods)

    def op_not(self, ins, mods, operands):
        self.result(operands[0], f"~{self.value(operands[1], mods[-1])}", mods[-1])

    def op_neg(self, ins, mods, operands):
        kind = mods[-1]
        self.result(operands[0], f"-{self.value(operands[1], kind)}", kind)

    def op_abs(self, ins, mods, operands):
        self.result(operands[0], f"np.abs({self.value(operands[1], mods[-1])})", mods[-1])

    def shift(self, ins, mods, symbol, function):
        d, a, b = ins.operands
        kind = mods[-1]
        if isinstance(b, Imm) and 0 <= b.value < width_of(kind):
            dtype = f"{'i' if kind[0] == 's' else 'u'}{width_of(kind) // 8}"
            return self.result(d, f"{self.value(a, kind)} {symbol} {self.constant(b.value, dtype)}", kind)
        return self.result(d, f"ops.{function}({self.value(a, kind)}, {self.value(b, 'u32')})", kind)

    def op_shl(self, ins, mods, operands):
        self.shift(ins, mods, "<<", "shift_left")

    def op_shr(self, ins, mods, operands):
        self.shift(ins, mods, ">>", "shift_right")

    def op_setp(self, ins, mods, operands):
        d, a, b, *combine = operands
        kind, compare = mods[-1], mods[0]
        if isinstance(d, Vector) or (len(mods) > 2 and mods[1] not in LOGIC):
            raise ValueError
        if compare in ("lo", "ls", "hi", "hs"):
            kind = "u" + kind[1:]
        text = f"{self.value(a, kind)} {COMPARE[compare]} {self.value(b, kind)}"
        if kind[0] == "f" and (compare == "ne" or (compare[-1] == "u" and compare != "neu")):
            nan = f"(np.isnan({self.value(a, kind)}) | np.isnan({self.value(b, kind)}))"
            text = f"({text}) & ~{nan}" if compare == "ne" else f"({text}) | {nan}"
        if combine:
            text = f"({text}) {LOGIC[mods[1]]} {self.value(combine[0], 'pred')}"
        self.assign(d, text)

    def op_selp(self, ins, mods, operands):
        d, a, b, p = operands
        kind = "b" + mods[-1][1:]
        self.result(d, f"where({self.value(p, 'pred')}, {self.value(a, kind)}, {self.value(b, kind)})", kind)

    def op_popc(self, ins, mods, operands):
        self.assign(operands[0], f"np.bitwise_count({self.value(operands[1], mods[-1])}).astype(u4)")

    # Warp level

    def op_shfl(self, ins, mods, operands):
        if mods[0] != "sync" or mods[-1] != "b32":
            raise ValueError
        d, a, b, c, members = operands
        self.out.append(f"g.converged({ins.index}, {self.value(members, 'u32')}, {self.mask})")
        text = f"ops.shuffle({mods[1]!r}, {self.value(a, 'u32')}, {self.value(b, 'u32')}, {self.value(c, 'u32')})"
        if isinstance(d, Vector):
            self.counter += 1
            self.out.append(f"w{self.counter} = {text}")
            self.assign(d.items[0], f"w{self.counter}[0]")
            self.assign(d.items[1], f"w{self.counter}[1]")
        else:
            self.assign(d, text + "[0]")

    def op_vote(self, ins, mods, operands):
        d, p, members = operands
        if mods[0] != "sync":
            raise ValueError
        text = f"ops.vote({mods[1]!r}, {self.value(p, 'pred')}, ops.lane_mask({self.value(members, 'u32')}))"
        self.assign(d, text)

    def op_elect(self, ins, mods, operands):
        pair, members = operands
        leader, elected = pair.items if isinstance(pair, Vector) else (Reg("_"), pair)
        self.counter += 1
        name = f"w{self.counter}"
        self.out.append(f"{name} = g.elect({ins.index}, {self.value(members, 'u32')}, {self.mask})")
        self.assign(leader, f"{name}[0]")
        self.assign(elected, f"{name}[1]")

    def op_ldmatrix(self, ins, mods, operands):
        if mods[:3] != ("sync", "aligned", "m8n8") or mods[-1] != "b16" or not mods[-2].startswith("shared"):
            raise ValueError
        d, a = operands
        count = int(mods[3][1:])
        if self.fusion and self.fusion.takes(ins):
            self.out.append(f"a{ins.index} = {self.address(a)}")
            return
        items = d.items if isinstance(d, Vector) else (d,)
        if len(items) != count:
            raise ValueError
        self.counter += 1
        name = f"w{self.counter}"
        transposed = "trans" in mods
        self.out.append(f"{name} = g.ldmatrix({ins.index}, {self.address(a)}, {count}, {transposed}, {self.mask})")
        for i, item in enumerate(items):
            self.assign(item, f"{name}[{i}]")

    def op_mma(self, ins, mods, operands):
        if mods != ("sync", "aligned", "m16n8k16", "row", "col", "f32", "bf16", "bf16", "f32"):
            raise ValueError
        d, a, b, c = operands
        if self.fusion:
            names = [self.local_name(r.name) if isinstance(r, Reg) else self.value(r, "b32") for r in c.items]
            if self.fusion.extend(ins, names):
                self.local.update(self.number[r.name] for r in d.items)
                return
        self.out.append(f"g.converged({ins.index}, {self.constant(0xFFFFFFFF, 'u4')}, {self.mask})")
        left, right = (
            f"ops.fragment(({', '.join(self.value(r, 'b32') for r in x.items)},), {rows})"
            for x, rows in ((a, 16), (b, 8))
        )
        acc = ", ".join(self.local_name(r.name) if isinstance(r, Reg) else self.value(r, "b32") for r in c.items)
        self.counter += 1
        name = f"w{self.counter}"
        self.out.append(f"{name} = mma({left}, {right}, ({acc},))")
        for i, item in enumerate(d.items):
            self.assign(item, f"{name}[{i}]")

    # Asynchronous copies and barriers

    def op_cp(self, ins, mods, operands):
        match mods:
            case ("async", "commit_group"):
                self.out.append("g.commit()")
            case ("async", "wait_group"):
                self.out.append(f"g.wait_groups({operands[0].value})")
            case ("async", "wait_all"):
                self.out.append("g.commit()")
                self.out.append("g.wait_groups(0)")
            case ("async", "mbarrier", "arrive", *rest):
                noinc = "noinc" in rest
                self.out.append(f"g.arrive_copies({ins.index}, {self.address(operands[0])}, {noinc}, {self.mask})")
            case ("async", "ca" | "cg", "shared" | "shared::cta", "global", *hints):
                dst, src, size, *rest = operands
                if "L2::cache_hint" in hints:
                    rest = rest[:-1]
                valid = "None"
                if rest:
                    valid = self.value(rest[0], "u32")
                text = f"{self.address(dst)}, {self.address(src, 64)}, {size.value}, {valid}, {self.mask}"
                self.out.append(f"g.copy_async({ins.index}, {text})")
            case _:
                raise ValueError

    def op_mbarrier(self, ins, mods, operands):
        shared = [m for m in mods if m in ("shared", "shared::cta")]
        if not shared or mods[-1] != "b64":
            raise ValueError
        match mods[0]:
            case "init":
                a, count = operands
                text = f"g.init_barrier({ins.index}, {self.address(a)}, {self.value(count, 'u32')}, {self.mask})"
                self.out.append(text)
            case "inval":
                self.out.append(f"g.invalidate_barrier({ins.index}, {self.address(operands[0])}, {self.mask})")
            case "expect_tx":
                a, tx = operands
                text = f"{self.address(a)}, {self.value(tx, 'u32')}, {self.mask}"
                self.out.append(f"g.expect_bytes({ins.index}, {text})")
            case "arrive":
                state, a, *count = operands
                count = self.value(count[0], "u32") if count else self.constant(1, "u4")
                if "expect_tx" in mods:
                    text = f"{self.address(a)}, {count}, {self.mask}"
                    self.out.append(f"g.expect_bytes({ins.index}, {text})")
                    count = self.constant(1, "u4")
                text = f"g.arrive({ins.index}, {self.address(a)}, {count}, {self.mask})"
                self.assign(state, text)
            case _:
                raise ValueError

    def op_bar(self, ins, mods, operands):
        if mods[0] == "warp":
            self.out.append(f"g.warp_sync({self.mask})")
            return
        if mods[0] != "arrive":
            raise ValueError
        number, count = operands
        text = f"{self.value(number, 'u32')}, {self.value(count, 'u32')}, {self.mask}"
        self.out.append(f"g.bar_arrive({ins.index}, {text})")

    def op_griddepcontrol(self, ins, mods, operands):
        if mods[0] == "wait":
            self.out.append(f"g.dependency_wait({self.mask})")


def unsupported(ins: Instruction) -> UnsupportedInstruction:
    return UnsupportedInstruction(
        f"PTX line {ins.line}: the interpreter does not execute {ins.opcode!r} (in {ins.text!r})."
    )
