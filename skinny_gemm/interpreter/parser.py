"""PTX text -> instructions, with the names of nested scopes resolved.

Covers the PTX that the CuTe DSL emits: one module with one or more `.entry` functions, `.shared` variables, `.reg`
declarations, labels, guards, and inline-assembly blocks that open a scope and re-declare registers and labels.
"""

import re
import struct
from functools import cache
from typing import Any, NamedTuple

from .errors import PtxSyntaxError

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


class Parameter(NamedTuple):
    """One entry parameter: its name, byte offset in the parameter space and size in bytes."""

    name: str
    offset: int
    size: int


class Kernel(NamedTuple):
    """One entry function. `widths` maps register names to bits (1 for predicates)."""

    name: str
    parameters: tuple[Parameter, ...]
    instructions: tuple[Instruction, ...]
    widths: dict[str, int]
    shared_bytes: int  #: statically declared, from `SHARED_BASE` on; dynamic shared memory follows
    dynamic_base: int  #: address of the first byte of dynamic shared memory


_LINE_COMMENT = re.compile(r"//[^\n]*")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)([^{]*)\{", re.S)
_PARAM = re.compile(r"\.param\s+\.([a-z]\d+)\b.*?([\w$]+)\s*$", re.S)
_SHARED = re.compile(
    r"(?P<extern>\.extern\s+)?\.shared\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>[a-z]+\d+)\s+(?P<name>[\w$]+)"
    r"\s*(?:\[(?P<count>\d*)\])?\s*;"
)
_LABEL = re.compile(r"\s*([\w$]+)\s*:(?!:)")
_GUARD = re.compile(r"@(!?)\s*([%\w$]+)\s+")
_REG_DECL = re.compile(r"\.reg\s+\.(pred|[a-z]+\d+)\s+(.*)", re.S)
_REG_RANGE = re.compile(r"([%\w$]+?)<(\d+)>$")
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\||[^\s,|]+")
_PIECE = re.compile(r"[^;{}\n]*(?:\{[^{}\n;]*\}[^;{}\n]*)*;|[{}]|[^;{}\s][^;{}\n]*|\n")
_FLOAT = re.compile(r"0(?:[fF]([0-9a-fA-F]{8})|[dD][0-9a-fA-F]{16})")
_SPECIAL = ("%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid", "%nwarpid", "%cluster", "%ncluster",
            "%is_explicit", "%smid", "%clock", "%globaltimer")  # fmt: skip


def parse(text: str) -> dict[str, Kernel]:
    """All entry functions of a PTX module, by name. Raises `PtxSyntaxError`, naming the line."""
    clean = _LINE_COMMENT.sub("", text)
    clean = _BLOCK_COMMENT.sub(lambda m: "\n" * m.group().count("\n"), clean)
    kernels = {}
    first_entry = _ENTRY.search(clean)
    header = clean[: first_entry.start()] if first_entry else clean
    for match in _ENTRY.finditer(clean):
        end = _matching_brace(clean, match.end() - 1)
        after = _ENTRY.search(clean, end)
        between = clean[end + 1 : after.start() if after else len(clean)]
        if between.count("}") > between.count("{"):
            line = clean.count("\n", 0, end) + 1
            raise PtxSyntaxError(f"A closing brace is too many: the function {match.group(1)} ends in line {line}.")
        kernels[match.group(1)] = _Function(clean, text, match, end, header).kernel()
    if not kernels:
        raise PtxSyntaxError("The PTX text holds no .entry function.")
    return kernels


def _matching_brace(text, start):
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.start()
    raise PtxSyntaxError("The PTX text ends inside a function: a closing brace is missing.")


@cache
def width_of(kind: str) -> int:
    """Bits of a PTX type such as `u32` or `bf16x2`; a predicate has one."""
    if kind.endswith("x2"):
        return 2 * width_of(kind[:-2])
    return 1 if kind == "pred" else int(re.sub(r"\D", "", kind))


@cache
def _split(opcode: str) -> tuple[str, ...]:
    return tuple(opcode.split("."))


def registers(operand) -> list[str]:
    """Names of the registers an operand mentions."""
    kind = type(operand)
    if kind is Reg:
        return [operand.name] if operand.name != "_" else []
    if kind is Address:
        return [operand.base.name] if type(operand.base) is Reg else []
    if kind is Vector:
        return [name for item in operand.items for name in registers(item)]
    return []


class _Scope:
    def __init__(self, parent, number):
        self.parent, self.number, self.names, self.labels = parent, number, {}, {}
        self.memo = {}  # operands as written -> parsed


class _Function:
    """The parser's state for one function body."""

    def __init__(self, clean, text, match, end, header):
        self.name = match.group(1)
        self.body = clean[match.end() : end]
        self.line = clean.count("\n", 0, match.end()) + 1
        self.widths, self.symbols, self.raw = {}, {}, []
        self.scopes, self.shared_end, self.extern = 0, SHARED_BASE, None
        self.parameters = tuple(self.read_parameters(match.group(2)))
        for declaration in _SHARED.finditer(header):
            self.declare_shared(declaration)

    def read_parameters(self, text):
        offset = 0
        for part in filter(str.strip, text.split(",")):
            match = _PARAM.match(part.strip())
            if not match:
                raise PtxSyntaxError(f"Line {self.line}: cannot read the parameter declaration {part.strip()!r}.")
            size = width_of(match.group(1)) // 8
            offset = -(-offset // size) * size
            yield Parameter(match.group(2), offset, size)
            offset += size

    def declare_shared(self, match):
        if match["extern"]:
            self.extern = match["name"], int(match["align"] or 16)
            return
        size = width_of(match["type"]) // 8
        align = int(match["align"] or size)
        self.shared_end = -(-self.shared_end // align) * align
        self.symbols[match["name"]] = self.shared_end
        self.shared_end += size * int(match["count"] or 1)

    def kernel(self) -> Kernel:
        for match in _SHARED.finditer(self.body):
            self.declare_shared(match)
        name, align = self.extern or (None, 16)
        dynamic = -(-self.shared_end // align) * align
        if name:
            self.symbols[name] = dynamic
        self.read_body()
        instructions = tuple(self.resolve(*raw) for raw in self.raw)
        static = self.shared_end - SHARED_BASE
        return Kernel(self.name, self.parameters, instructions, self.widths, static, dynamic)

    def read_body(self):
        scope = _Scope(None, 0)
        for match in _PIECE.finditer(self.body):
            piece = match.group()
            if piece == "\n":
                self.line += 1
                continue
            if piece == "{":
                self.scopes += 1
                scope = _Scope(scope, self.scopes)
                continue
            if piece == "}":
                scope = scope.parent
                continue
            piece = piece.strip()
            label = _LABEL.match(piece)
            while label:
                scope.labels[label.group(1)] = len(self.raw)
                piece = piece[label.end() :].strip()
                label = _LABEL.match(piece)
            ended = piece.endswith(";")
            piece = piece.rstrip("; \t\r")
            if piece and not ended and not piece.startswith(".loc"):
                raise PtxSyntaxError(f"Line {self.line}: no semicolon ends {piece!r}.")
            if not piece:
                continue
            if piece[0] == ".":
                self.directive(piece, scope)
            else:
                self.raw.append((len(self.raw), self.line, piece, scope))

    def directive(self, piece, scope):
        if not piece.startswith(".reg"):
            if piece.startswith((".pragma", ".loc", ".shared", ".extern")):
                return
            raise PtxSyntaxError(f"Line {self.line}: the directive {piece!r} is not understood.")
        match = _REG_DECL.match(piece)
        if not match:
            raise PtxSyntaxError(f"Line {self.line}: cannot read the register declaration {piece!r}.")
        kind, names = match.groups()
        for name in (n.strip() for n in names.split(",")):
            numbered = _REG_RANGE.match(name)
            declared = [f"{numbered[1]}{i}" for i in range(int(numbered[2]))] if numbered else [name]
            suffix = f"@{scope.number}" if scope.parent else ""
            for register in declared:
                scope.names[register] = register + suffix
                self.widths[register + suffix] = width_of(kind)

    def resolve(self, index, line, piece, scope) -> Instruction:
        self.line, text = line, piece
        guard = None
        if piece[0] == "@":
            match = _GUARD.match(piece)
            register = self.operand(match.group(2), scope) if match else None
            if match is None or not isinstance(register, Reg):
                raise PtxSyntaxError(f"Line {line}: cannot read the guard of {piece!r}.")
            guard = register, bool(match.group(1))
            piece = piece[match.end() :]
        opcode, *rest = piece.split(None, 1)
        rest = rest[0] if rest else ""
        op = _split(opcode)
        operands = (self.target(rest, scope),) if op[0] == "bra" else self.operands(rest, scope)
        return Instruction(index, line, text, op, guard, operands)

    def target(self, name, scope) -> Target:
        while scope:
            if name in scope.labels:
                return Target(scope.labels[name])
            scope = scope.parent
        raise PtxSyntaxError(f"Line {self.line}: the label {name!r} is not defined.")

    def operands(self, text, scope) -> tuple:
        out: list[Any] = []
        memo, pair = scope.memo, False
        for token in _OPERAND.findall(text):
            if token == "|":
                if not out:
                    raise PtxSyntaxError(f"Line {self.line}: nothing stands in front of the | in {text!r}.")
                pair = True
                continue
            operand = memo.get(token)
            if operand is None:
                operand = memo[token] = self.compound(token, scope)
            if pair:
                operand, pair = Vector((out.pop(), operand)), False
            out.append(operand)
        return tuple(out)

    def compound(self, token, scope):
        """An operand of any form: `{...}`, `[...]` or a simple one."""
        if token[0] == "{":
            return Vector(tuple(self.operand(t.strip(), scope) for t in token[1:-1].split(",")))
        if token[0] == "[":
            return self.address(token[1:-1].replace(" ", ""), scope)
        return self.operand(token, scope)

    def operand(self, token, scope):
        while scope:
            if token in scope.names:
                return Reg(scope.names[token])
            scope = scope.parent
        return self.constant(token)

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
            return Float(struct.unpack("<Q", struct.pack("<d", float(token)))[0], 64)
        except ValueError:
            raise PtxSyntaxError(f"Line {self.line}: the operand {token!r} is not declared.") from None

    def integer(self, text: str) -> int:
        try:
            return int(text, 0)
        except ValueError:
            raise PtxSyntaxError(f"Line {self.line}: {text!r} is no integer.") from None

    def address(self, token, scope) -> Address:
        base, sign, offset = token.partition("+")
        value = self.integer(offset or "0")
        if not sign and "-" in token[1:]:
            base, _, offset = token.rpartition("-")
            value = -self.integer(offset)
        if any(base == p.name for p in self.parameters):
            return Address(base, value)
        operand = self.operand(base, scope)
        if not isinstance(operand, Reg | Imm):
            raise PtxSyntaxError(f"Line {self.line}: {base!r} is no address.")
        return Address(operand, value) if isinstance(operand, Reg) else Address(None, operand.value + value)
