"""PTX text -> instructions, with the names of nested scopes resolved.

Covers the PTX that the CuTe DSL emits: one module with one or more `.entry` functions, `.shared` variables, `.reg`
declarations, labels, guards, and inline-assembly blocks that open a scope and re-declare registers and labels.
"""

import re
from collections import ChainMap
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from .errors import PtxSyntaxError, UnsupportedInstruction

SHARED_BASE = 1024  #: first shared-memory address: below lie the 1,024 bytes that the system reserves per CTA


class Reg(NamedTuple):
    """A register; `name` is unique in the function, whatever the scope that declared it."""

    name: str


class Imm(NamedTuple):
    """An integer; for a symbol such as a shared variable, its address plus the offset."""

    value: int


class Float(NamedTuple):
    """A floating-point literal by its bit `pattern`, `bits` wide: 32 (`0f...`) or 64 (`0d...`, decimal)."""

    pattern: int
    bits: int


class Address(NamedTuple):
    """`[base + offset]`: `base` is a register, None for an absolute address, or the name of a parameter."""

    base: Reg | str | None
    offset: int


class Vector(NamedTuple):
    """`{a, b, ...}`, and the pair `a|b`."""

    items: tuple


class Special(NamedTuple):
    """A special register such as `%tid.x`."""

    name: str


class Target(NamedTuple):
    """A label, by the index of the instruction it marks."""

    index: int  # type: ignore[assignment]


class Instruction(NamedTuple):
    """One instruction: `op` is split at the dots, `guard` is `(register, negated)` or None, `line` counts from 1."""

    index: int  # type: ignore[assignment]
    line: int
    text: str
    op: tuple[str, ...]
    guard: tuple[Reg, bool] | None
    operands: tuple

    @property
    def opcode(self) -> str:
        return ".".join(self.op)


def unsupported(ins: Instruction) -> UnsupportedInstruction:
    """The error for an instruction that is no form that the interpreter executes."""
    text = f"PTX line {ins.line}: the interpreter does not execute {ins.opcode!r} (in {ins.text!r})."
    return UnsupportedInstruction(text)


class Parameter(NamedTuple):
    """One entry parameter: its name, byte offset in the parameter space and size in bytes."""

    name: str
    offset: int
    size: int
    packed: bool = False  #: an array of bytes, whose parts are loaded one by one


class Kernel(NamedTuple):
    """One entry function. `widths` maps register names to bits (1 for predicates)."""

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    widths: dict[str, int]
    shared_bytes: int  #: statically declared, from `SHARED_BASE` on; dynamic shared memory follows
    dynamic_base: int  #: address of the first byte of dynamic shared memory


_COMMENT = re.compile(r"/(?:/[^\n]*|\*.*?\*/)", re.S)
_BRACE = re.compile(r"[{}]")
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{", re.S)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]\d+)\b.*?([\w$]+)\s*(?:\[(\d+)\])?$", re.S)
_SHARED = re.compile(
    r"\.(?P<extern>extern\s+\.)?shared\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]+\d+)\s+(?P<name>[\w$]+)"
    r"\s*(?:\[(?P<count>\d*)\])?\s*;"
)
_LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)\s*([%\w$]+)\s+")
_REG_DECL = re.compile(r"\.reg\s+\.(pred|[a-z]+\d+)\s+(.*)", re.S)
_REG_RANGE = re.compile(r"([%\w$]+?)<(\d+)>$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^\s,|]+(?:\s*\|\s*[^\s,|]+)?|\|")
_PIECE = re.compile(r"[^;{}\n]*(?:\s*\{[^{}\n;]*\}[^;{}\n]*)*;|[{}]|[^;{}\s][^;{}\n]*|\n")
_FLOAT = re.compile(r"0(?:[fF]([0-9a-fA-F]{8})|[dD][0-9a-fA-F]{16})")
_SPECIAL = ("%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%cluster", "%ncluster",
            "%is_explicit", "%smid", "%clock", "%globaltimer")  # fmt: skip

_split = cache(lambda opcode: tuple(opcode.split(".")))


def parse(text: str) -> dict[str, Kernel]:
    """All entry functions of a PTX module, by name. Raises `PtxSyntaxError`, naming the line."""
    clean = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
    entries = list(_ENTRY.finditer(clean))
    if not entries:
        raise PtxSyntaxError("The PTX text holds no .entry function.")
    kernels = {}
    for entry, after in zip_longest(entries, entries[1:]):
        depth = 1
        for brace in _BRACE.finditer(clean, entry.end()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                break
        else:
            raise PtxSyntaxError("The PTX text ends inside a function: a closing brace is missing.")
        between = clean[brace.end() : after.start() if after else len(clean)]
        if between.count("}") > between.count("{"):
            line = clean.count("\n", 0, brace.start()) + 1
            raise PtxSyntaxError(f"A closing brace is too many: the function {entry[1]} ends in line {line}.")
        kernels[entry[1]] = _Function(clean, entry, brace.start(), clean[: entries[0].start()]).kernel
    return kernels


def parameters_of(text: str) -> tuple[Parameter, ...]:
    """The parameters of the first entry function of a PTX module. Raises `PtxSyntaxError` without one."""
    entry = _ENTRY.search(text)
    if not entry:
        raise PtxSyntaxError("The PTX text holds no .entry function.")
    return tuple(_parameters(entry[2], text.count("\n", 0, entry.end()) + 1))


@cache
def width_of(kind: str) -> int:
    """Bits of a PTX type such as `u32` or `bf16x2`; a predicate has one."""
    if kind.endswith("x2"):
        return 2 * width_of(kind[:-2])
    return 1 if kind == "pred" else int(re.sub(r"\D", "", kind))


def registers(operand: Any) -> list[str]:
    """Names of the registers an operand mentions."""
    kind = type(operand)
    if kind is Reg:
        return [operand.name] if operand.name != "_" else []
    if kind is Vector:
        return [name for item in operand.items for name in registers(item)]
    return registers(operand.base) if kind is Address else []


def _aligned(offset: int, size: int) -> int:
    return -(-offset // size) * size


def _parameters(declarations: str, line: int) -> Iterator[Parameter]:
    offset = 0
    for part in filter(None, map(str.strip, declarations.split(","))):
        match = _PARAM.match(part)
        if not match:
            raise PtxSyntaxError(f"Line {line}: cannot read the parameter declaration {part!r}.")
        align, kind, name, count = match.groups()
        size = width_of(kind) // 8
        offset = _aligned(offset, int(align or size))
        yield Parameter(name, offset, size * int(count or 1), count is not None)
        offset += size * int(count or 1)


class _Scope(dict[str, Any]):
    """A body or a block in it: its operands as written -> parsed, its registers, labels and those around it."""

    def __init__(self, function: "_Function", parent: "_Scope | None" = None, suffix: str = ""):
        self.function, self.parent, self.suffix = function, parent, suffix
        self.names: dict[str, str] = {} if parent is None else parent.names.copy()
        self.labels: ChainMap[str, int] = ChainMap() if parent is None else parent.labels.new_child()

    def __missing__(self, token):
        operand = self[token] = self.function.compound(token, self)
        return operand


class _Function:
    """Reads one function, whose body lies between `entry` and `end`; `line` is the one at hand."""

    def __init__(self, clean: str, entry: re.Match, end: int, header: str):
        self.line = clean.count("\n", 0, entry.end()) + 1
        self.parameters = tuple(_parameters(entry[2], self.line))
        self.widths: dict[str, int] = {}
        self.symbols: dict[str, int] = {}
        self.raw: list[tuple[int, int, str, _Scope]] = []  # instructions before their operands are resolved
        body = clean[entry.end() : end]
        static, dynamic = self.place_shared(f"{header}\n{body}")
        self.read_body(body)
        instructions = tuple(self.resolve(*raw) for raw in self.raw)
        self.kernel = Kernel(entry[1], self.parameters, instructions, self.widths, static, dynamic)

    def place_shared(self, text) -> tuple[int, int]:
        """(static bytes, address of the dynamic ones) of the shared variables that `text` declares."""
        end, extern, extern_align = SHARED_BASE, None, 16
        for match in _SHARED.finditer(text):
            if match["extern"]:
                extern, extern_align = match["name"], int(match["align"] or 16)
                continue
            size = width_of(match["type"]) // 8
            self.symbols[match["name"]] = start = _aligned(end, int(match["align"] or size))
            end = start + size * int(match["count"] or 1)
        dynamic = _aligned(end, extern_align)
        if extern:
            self.symbols[extern] = dynamic
        return end - SHARED_BASE, dynamic

    def read_body(self, body):
        scope: Any = _Scope(self)
        scopes = 0
        for match in _PIECE.finditer(body):
            piece = match[0]
            if piece == "\n":
                self.line += 1
            elif piece == "{":
                scopes += 1
                scope = _Scope(self, scope, f"@{scopes}")
            elif piece == "}":
                scope = scope.parent
            else:
                lines = piece.count("\n")  # operands in braces may stand on lines of their own
                self.read_piece(" ".join(piece.split()) if lines else piece.strip(), scope)
                self.line += lines

    def read_piece(self, piece, scope):
        while label := _LABEL.match(piece):
            scope.labels[label[1]] = len(self.raw)
            piece = piece[label.end() :].strip()
        ended = piece.endswith(";")
        piece = piece.rstrip("; \t\r")
        if not piece:
            return
        if not ended and not piece.startswith(".loc"):
            raise PtxSyntaxError(f"Line {self.line}: no semicolon ends {piece!r}.")
        if piece[0] != ".":
            self.raw.append((len(self.raw), self.line, piece, scope))
        elif piece.startswith(".reg"):
            self.declare(piece, scope)
        elif not piece.startswith((".pragma", ".loc", ".shared", ".extern")):
            raise PtxSyntaxError(f"Line {self.line}: the directive {piece!r} is not understood.")

    def declare(self, piece, scope):
        match = _REG_DECL.match(piece)
        if not match:
            raise PtxSyntaxError(f"Line {self.line}: cannot read the register declaration {piece!r}.")
        for name in map(str.strip, match[2].split(",")):
            numbered = _REG_RANGE.match(name)
            for register in [f"{numbered[1]}{i}" for i in range(int(numbered[2]))] if numbered else [name]:
                scope.names[register] = register + scope.suffix
                self.widths[register + scope.suffix] = width_of(match[1])

    def resolve(self, index, line, piece, scope) -> Instruction:
        self.line, text, guard = line, piece, None
        if piece[0] == "@":
            match = _GUARD.match(piece)
            register = self.operand(match[2], scope) if match else None
            if not match or not isinstance(register, Reg):
                raise PtxSyntaxError(f"Line {line}: cannot read the guard of {piece!r}.")
            guard = register, bool(match[1])
            piece = piece[match.end() :]
        opcode, rest = (*piece.split(None, 1), "")[:2]
        op = _split(opcode)
        operands = (self.target(rest, scope),) if op[0] == "bra" else map(scope.__getitem__, _OPERAND.findall(rest))
        return Instruction(index, line, text, op, guard, tuple(operands))

    def target(self, name, scope) -> Target:
        if name not in scope.labels:
            raise PtxSyntaxError(f"Line {self.line}: the label {name!r} is not defined.")
        return Target(scope.labels[name])

    def compound(self, token, scope):
        """An operand of any form: `{...}`, `[...]`, `a|b` or a simple one."""
        if token[0] == "[":
            return self.address(token[1:-1].replace(" ", ""), scope)
        if token[0] != "{" and "|" not in token:
            return self.operand(token, scope)
        if token == "|":
            raise PtxSyntaxError(f"Line {self.line}: nothing stands on one side of the |.")
        items = token[1:-1].split(",") if token[0] == "{" else token.split("|")
        return Vector(tuple(self.operand(item.strip(), scope) for item in items))

    def operand(self, token, scope):
        return Reg(scope.names[token]) if token in scope.names else self.constant(token)

    def constant(self, token):
        if token.startswith(_SPECIAL):
            return Special(token[1:])
        if literal := _FLOAT.fullmatch(token):
            return Float(int(token[2:], 16), 32 if literal[1] else 64)
        base, _, offset = token.partition("+")
        if base in self.symbols:
            return Imm(self.symbols[base] + self.integer(offset or "0"))
        if base == "_":
            return Reg("_")
        try:
            return Imm(int(token.rstrip("U"), 0))
        except ValueError:
            pass
        try:
            return Float(int(np.float64(token).view(np.uint64)), 64)
        except ValueError:
            raise PtxSyntaxError(f"Line {self.line}: the operand {token!r} is not declared.") from None

    def integer(self, text: str) -> int:
        try:
            return int(text, 0)
        except ValueError:
            raise PtxSyntaxError(f"Line {self.line}: {text!r} is no integer.") from None

    def address(self, token, scope) -> Address:
        base, _, offset = token[1:].replace("+-", "-").replace("-", "+-").partition("+")
        base, value = token[:1] + base, self.integer(offset or "0")
        if any(base == p.name for p in self.parameters):
            return Address(base, value)
        operand = self.operand(base, scope)
        if isinstance(operand, Imm):
            return Address(None, operand.value + value)
        if not isinstance(operand, Reg) or self.widths.get(operand.name, 1) == 1:  # of a predicate, and of `_`
            raise PtxSyntaxError(f"Line {self.line}: {base!r} is no address.")
        return Address(operand, value)
