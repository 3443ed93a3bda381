"""What instructions become: functions that write the lines of one instruction with a `Writer`.

The lines call the group of warps (`g`), NumPy or `arithmetic` (`ops`). Opcode and operands fit the instruction's row
(isa.py) already; what a function cannot match beyond that it refuses.
"""

from collections import defaultdict
from collections.abc import Callable

from .errors import UnsupportedInstruction
from .parser import Address, Imm, Instruction, Reg, Vector, unsupported, width_of
from .writer import Writer, dtype_of

COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
           "hs": ">=", "equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}  # fmt: skip
SIGNS = {"and": "&", "or": "|", "xor": "^"}
#: Orders and scopes that loads and stores may name: memory is coherent here.
ORDERS = ("weak", "relaxed", "acquire", "release", "volatile", "nc", "cta", "cluster", "gpu", "sys")
#: The memory that a modifier names; `dsmem` is the shared memory of the cluster.
SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared", "shared::cluster": "dsmem"}
CACHE_HINT = "L2::cache_hint"  #: asks for a policy as a last operand; hints change nothing here
COPY_BYTES = {"ca": (4, 8, 16), "cg": (16,)}  #: of one cp.async, by the cache that keeps the line


# Templates


def value(template: str, kind: str = "") -> Callable[[Writer, Instruction], None]:
    """An emitter: the first operand becomes `template` of the others, `a` to `d`, computed as `kind`.

    `{a}` is an operand as the opcode's type, `{sign}` the opcode as an operator; see `typed` for `{a:u}` and `kind`.
    """

    def emit(w: Writer, ins: Instruction):
        names = {"op": ins.op, "sign": SIGNS.get(ins.op[0]), "index": ins.index, "mask": w.mask}
        text = template.format(**names, **_named(w, ins, ins.operands[1:]))
        w.result(ins.operands[0], text, typed(kind, ins.op[-1]))

    return emit


def line(template: str) -> Callable[[Writer, Instruction], None]:
    """An emitter of lines in which `a` to `d` are the operands and `has[x]` says whether the opcode has a modifier."""

    def emit(w: Writer, ins: Instruction):
        has = defaultdict(bool, dict.fromkeys(ins.op, True))
        text = template.format(index=ins.index, mask=w.mask, has=has, **_named(w, ins, ins.operands))
        w.out += text.split("\n")

    return emit


def nothing(w: Writer, ins: Instruction) -> None:
    """No code: what has no effect here, jumps, and what the machine executes."""


def typed(name: str, kind: str) -> str:
    """A type by its `name` in a template: "" is the opcode's own (`kind`), `u` that without its sign, `b` its bits,
    `wide` twice as wide, and any other stands for itself."""
    if name == "wide":
        return kind[0] + str(2 * width_of(kind))
    return {"": kind, "u": kind.replace("s", "u"), "b": "b" + kind[1:]}.get(name, name)


class _Operand:
    """An operand in a template."""

    def __init__(self, w: Writer, operand, kind: str):
        self.w, self.operand, self.kind = w, operand, kind

    def __format__(self, name: str) -> str:
        if name == "literal":
            return str(self.operand.value)
        if isinstance(self.operand, Address):
            return self.w.address(self.operand, width_of(name) if name else 32)
        if name == "widened":
            return f"{self.w.value(self.operand, self.kind)}.astype({dtype_of(typed('wide', self.kind))})"
        return self.w.value(self.operand, typed(name, self.kind))


def _named(w: Writer, ins: Instruction, operands: tuple) -> dict[str, _Operand]:
    return {name: _Operand(w, operand, ins.op[-1]) for name, operand in zip("abcd", operands, strict=False)}


def _items(operand) -> tuple:
    return operand.items if isinstance(operand, Vector) else (operand,)


# Data movement


def move(w: Writer, ins: Instruction) -> None:
    d, a = ins.operands
    kind = ins.op[-1]
    parts = d if isinstance(d, Vector) else a
    if not isinstance(parts, Vector):
        if isinstance(a, Reg) and {a.name, d.name} <= w.lazy:
            return w.result(d, w.register(a.name), typed("b", kind))
        return w.result(d, w.value(a, typed("b", kind)), typed("b", kind))
    part, wide = width_of(kind) // len(parts.items), f"u{width_of(kind) // 8}"
    if kind[0] != "b" or part * len(parts.items) != width_of(kind) or part < 8:
        w.refuse()
    if parts is a:
        values = (f"{w.value(item, f'b{part}')}.astype({wide})" for item in a.items)
        terms = (f"({value} << {w.constant(i * part, wide)})" for i, value in enumerate(values))
        return w.result(d, " | ".join(terms), kind)
    for i, item in enumerate(d.items):  # low first
        w.result(item, f"({w.value(a, kind)} >> {w.constant(i * part, wide)}).astype(u{part // 8})", f"b{part}")


def convert_integer(w: Writer, ins: Instruction) -> None:
    to, source = ins.op[1:]
    d, a = ins.operands
    step = f"{source[0].replace('s', 'i')}{width_of(to) // 8}"  # the source's sign says how it widens
    w.result(d, f"{w.value(a, source)}.astype({step}).view({dtype_of(to)})", to)


def load_parameter(w: Writer, ins: Instruction) -> None:
    d, a = ins.operands
    kind, whole = ins.op[-1], w.parameters[a.base]
    offset, size = whole.offset + a.offset, width_of(kind) // 8
    if not 0 <= a.offset <= whole.size - size or offset % size:
        w.refuse()
    w.result(d, f"g.parameter({offset}, {size}).view({dtype_of(kind)})", kind)


def access_bytes(ins: Instruction) -> int:
    """Bytes per lane of a load or store, at most 16."""
    size = width_of(ins.op[-1]) // 8 * (2 if "v2" in ins.op else 4 if "v4" in ins.op else 1)
    if size > 16:
        raise unsupported(ins)
    return size


def _elements(w: Writer, operand) -> tuple:
    """What a load or store moves, as many as its opcode says."""
    items = _items(operand)
    if len(items) * width_of(w.ins.op[-1]) != 8 * access_bytes(w.ins):
        w.refuse()
    return items


def space_of(ins: Instruction) -> str:
    """The memory that an opcode names."""
    return next(SPACES[modifier] for modifier in ins.op if modifier in SPACES)


def _call(how: str, w: Writer, ins: Instruction, address: Address) -> str:
    """The start of a call of the group's method for a load or store."""
    space = "multicast" if ins.op[0] == "multimem" else space_of(ins)
    at = w.address(address, 32 if space in ("shared", "dsmem") else 64)
    return f"g.{how}_{'cluster' if space == 'dsmem' else space}({ins.index}, {at}"


def load(w: Writer, ins: Instruction) -> None:
    d, a = ins.operands[:2]
    bits, registers = width_of(ins.op[-1]), _elements(w, d)
    text = f"{_call('load', w, ins, a)}, {access_bytes(ins)}, {w.mask})"
    if len(registers) == 1:
        kind = f"s{bits}" if ins.op[-1][0] == "s" else f"u{bits}"
        return w.result(registers[0], f"{text}.view({dtype_of(kind)})", kind)
    w.spread(f"ops.words({text}, {len(registers)}, u{bits // 8})", registers, [f"u{bits}"] * len(registers))


def _words(w: Writer, ins: Instruction) -> str:
    """The words that a store stores, its second operand."""
    kind = f"b{width_of(ins.op[-1])}"
    return f"({', '.join(w.value(item, kind) for item in _elements(w, ins.operands[1]))},)"


def store(w: Writer, ins: Instruction) -> None:
    w.line(f"{_call('store', w, ins, ins.operands[0])}, {_words(w, ins)}, {w.mask})")


def store_async(w: Writer, ins: Instruction) -> None:
    a, _, barrier = ins.operands
    text = f"{w.address(a)}, {w.address(barrier)}, {w.mask}, {access_bytes(ins)}"
    w.line(f"g.transfer({ins.index}, {text}, words={_words(w, ins)})")


def policy(w: Writer, ins: Instruction) -> None:
    w.result(ins.operands[0], w.constant(0, "u8"), "b64")


# Integers and logic


def shift(w: Writer, ins: Instruction) -> None:
    d, a, b = ins.operands
    kind, left = ins.op[-1], ins.op[0] == "shl"
    if isinstance(b, Imm) and 0 <= b.value < width_of(kind):
        text = f"{w.value(a, kind)} {'<<' if left else '>>'} {w.constant(b.value, dtype_of(kind))}"
    else:
        text = f"ops.shift_{'left' if left else 'right'}({w.value(a, kind)}, {w.value(b, 'u32')})"
    w.result(d, text, kind)


def compare(w: Writer, ins: Instruction) -> None:
    d, a, b, *combine = ins.operands
    how, kind = ins.op[1], ins.op[-1]
    if how in ("lo", "ls", "hi", "hs"):
        kind = "u" + kind[1:]
    nan = f"(np.isnan({w.value(a, kind)}) | np.isnan({w.value(b, kind)}))" if kind[0] == "f" else ""
    if how in ("num", "nan"):
        text = nan if how == "nan" else f"~{nan}"
    else:
        text = f"{w.value(a, kind)} {COMPARE[how]} {w.value(b, kind)}"
        if nan and how == "ne":
            text = f"({text}) & ~{nan}"
        elif nan and how[-1] == "u" and how != "neu":
            text = f"({text}) | {nan}"
    if combine:
        text = f"({text}) {SIGNS[ins.op[2]]} {w.value(combine[0], 'pred')}"
    w.result(d, text, "pred")


# Warp level


def shuffle(w: Writer, ins: Instruction) -> None:
    d, a, b, c, members = ins.operands
    w.line(f"g.converged({ins.index}, {w.value(members, 'u32')}, {w.mask})")
    text = f"ops.shuffle({ins.op[2]!r}, {w.value(a, 'b32')}, {w.value(b, 'u32')}, {w.value(c, 'u32')})"
    if isinstance(d, Reg):
        return w.result(d, text + "[0]", "b32")
    w.spread(text, d.items, ["b32", "pred"])


def reduce(w: Writer, ins: Instruction) -> None:
    d, a, members = ins.operands
    name, kind = ins.op[2:]
    lanes = w.value(members, "u32")
    w.line(f"g.converged({ins.index}, {lanes}, {w.mask})")
    w.result(d, f"ops.reduce_lanes({name!r}, {w.value(a, kind)}, ops.lane_mask({lanes}))", kind)


def active_lanes(w: Writer, ins: Instruction) -> None:
    mask = "TRUE" if w.mask == "None" else w.mask
    w.result(ins.operands[0], f"ops.vote('ballot', {mask}, TRUE)", "b32")


def elect(w: Writer, ins: Instruction) -> None:
    elected, members = ins.operands
    leader, elected = elected.items if isinstance(elected, Vector) else (Reg("_"), elected)
    w.spread(f"g.elect({ins.index}, {w.value(members, 'u32')}, {w.mask})", (leader, elected), ["b32", "pred"])


def ldmatrix(w: Writer, ins: Instruction) -> None:
    d, a = ins.operands
    registers, count = _items(d), int(ins.op[4][1:])
    if len(registers) != count:
        w.refuse()
    if w.fusion and w.fusion.takes(ins):
        return w.line(f"a{ins.index} = {w.address(a)}")
    text = f"g.ldmatrix({ins.index}, {w.address(a)}, {count}, {'trans' in ins.op}, {w.mask})"
    w.spread(text, registers, ["b32"] * count)


def multiply_matrices(w: Writer, ins: Instruction) -> None:
    d, a, b, c = ins.operands
    if any(w.widths.get(r.name, 32) != 32 for r in d.items):
        w.refuse()
    start = [w.register(r.name) if isinstance(r, Reg) else w.value(r, "b32") for r in c.items]
    if w.fusion and w.fusion.extends(ins, start):
        w.local.update(w.number[r.name] for r in d.items)
        return
    w.line(f"g.converged({ins.index}, {w.constant(0xFFFFFFFF, 'u4')}, {w.mask})")
    left, right = (", ".join(w.value(r, "b32") for r in fragment.items) for fragment in (a, b))
    text = f"mma(ops.fragment(({left},), 16), ops.fragment(({right},), 8), ({', '.join(start)},))"
    w.spread(text, d.items, ["b32"] * 4)


def multiply_in_warpgroup(w: Writer, ins: Instruction) -> None:
    d, a, b, adds, scale_a, scale_b, *transposed = ins.operands
    columns = int(ins.op[4].split("n")[1].split("k")[0])
    signs = scale_a.value, scale_b.value
    fits = 2 * len(d.items) == columns and all(w.widths[r.name] == 32 for r in d.items)
    if not fits or any(sign not in (1, -1) for sign in signs) or any(flag.value for flag in transposed):
        w.refuse()
    words = ", ".join(w.register(r.name) for r in d.items)
    operands = f"{w.value(a, 'b64')}, {w.value(b, 'b64')}, {w.value(adds, 'pred')}, {signs[0] * signs[1]}"
    registers = sum(1 << w.number[r.name] for r in d.items)
    text = f"g.wgmma({ins.index}, ({words},), {operands}, {registers})"
    w.spread(text, d.items, ["b32"] * len(d.items))


# Asynchronous copies and barriers


def copy_async(w: Writer, ins: Instruction) -> None:
    dst, src, size, *source = ins.operands[:-1] if CACHE_HINT in ins.op else ins.operands
    allowed = COPY_BYTES[ins.op[2]]
    if size.value not in allowed:
        what = f"cp.async.{ins.op[2]} copies {' or '.join(map(str, allowed))} bytes, not {size.value}"
        raise UnsupportedInstruction(f"PTX line {ins.line}: {what} (in {ins.text!r}).")
    valid = "None"
    if source and isinstance(source[0], Reg) and w.widths[source[0].name] == 1:  # ignore-src: nothing is read
        valid = f"where({w.value(source[0], 'pred')}, {w.constant(0, 'u4')}, {w.constant(size.value, 'u4')})"
    elif source:
        if isinstance(source[0], Reg) and w.widths[source[0].name] != 32:
            w.refuse()
        valid = w.value(source[0], "u32")
    w.line(f"g.copy_async({ins.index}, {w.address(dst)}, {w.address(src, 64)}, {size.value}, {valid}, {w.mask})")


def arrive(w: Writer, ins: Instruction) -> None:
    state, a, *count = ins.operands
    cluster = "shared::cluster" in ins.op
    if cluster and state != Reg("_"):
        w.refuse()
    arrivals = w.value(count[0], "u32") if count else w.constant(1, "u4")
    if "expect_tx" in ins.op:
        w.line(f"g.expect_bytes({ins.index}, {w.address(a)}, {arrivals}, {w.mask}, {cluster})")
        arrivals = w.constant(1, "u4")
    scope = ins.op[ins.op.index("release") + 1] if "release" in ins.op else "cta"
    w.result(state, f"g.arrive({ins.index}, {w.address(a)}, {arrivals}, {w.mask}, {scope!r}, {cluster})", "b64")
