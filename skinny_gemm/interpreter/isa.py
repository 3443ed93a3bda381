"""The instruction set: one row an opcode, and everything that other modules ask about an instruction.

A key of `ISA` is an opcode in the notation of the PTX ISA: `{...}` may be left out, with a star also repeated, `(a|b)`
is one of them, ` | ` separates whole opcodes, and names in capitals are the sets of `WORDS`. A row says which operands
it takes, what it becomes, and what it does to memory and to its warp. What fits no row is refused by name and line.
A new opcode is a new row; a function in emitters.py where no template says what it becomes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ..layouts.fragments import MMA_K, WGMMA_M, WGMMA_N
from . import emitters as emit
from .emitters import CACHE_HINT, ORDERS, SPACES, access_bytes, line, nothing, space_of, value
from .parser import Address, Float, Imm, Instruction, Reg, Special, Target, Vector, unsupported
from .writer import Writer

BITS, INT, FLOAT = "b16|b32|b64", "u16|u32|u64|s16|s32|s64", "f32|f64"
PREFETCH, EVICT = "L2::64B|L2::128B|L2::256B", "L2::evict_last|L2::evict_normal|L2::evict_first"
#: What the names in a key stand for.
WORDS = {
    "SCOPE": "cta|cluster|gpu|sys",
    "NEAR": "cta|cluster",
    "SHARED": "shared|shared::cta",
    "ANYSHARED": "shared|shared::cta|shared::cluster",
    "BITS": BITS,
    "INT": INT,
    "INT8": f"u8|s8|{INT}",
    "PACKED": "u16x2|s16x2",
    "FLOAT": FLOAT,
    "TYPE": f"{BITS}|{INT}|{FLOAT}",
    "STORED": f"b8|u8|s8|{BITS}|{INT}|{FLOAT}",
    "HALVES": "f16|bf16|f16x2|bf16x2",
    "NARROW": "u16|u32|s16|s32",
    "PREFETCH": PREFETCH,
    "EVICT": f"{EVICT}|L2::evict_unchanged",
    "HINT": "cg|cs|L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate|"
    f"{EVICT}|{PREFETCH}|{CACHE_HINT}",
    "ORDER": "|".join(ORDERS),
    "SPACE": "|".join(SPACES),
    "COMPARE": "eq|ne|lt|le|gt|ge",
    "UNSIGNED": "lo|ls|hi|hs",
    "WGMMA": "|".join(f"m{WGMMA_M}n{n}k{MMA_K}" for n in WGMMA_N),
    "UNORDERED": "equ|neu|ltu|leu|gtu|geu|num|nan",
}
LETTERS = {Imm: "i", Float: "f", Special: "s", Address: "a", Target: "t"}  #: also r, p (predicate), m (parameter)
#: What the words of `Row.operands` stand for, as patterns of operands by their letters.
OPERANDS = {
    "d": "[r_]",  # a register that is written, or none
    "q": "[p_]",  # a predicate that is written, or none
    "P": "p",  # a predicate that is written
    "D": r"(?:[r_]|\([r_]{2,4}\))",  # one or several that are written
    "M": r"(?:[r_]|\([r_]{1,4}\))",  # matrix fragments that are written
    "W": r"\((?:rrrr)+\)",  # an accumulator of wgmma
    "d4": r"\([r_]{4}\)",
    "dq": r"\([r_][p_]\)",
    "v": "[rifs]",  # a value: register, integer, float, special register
    "V": r"(?:[rifs]|\([rifs]{1,4}\))",
    "v2": r"\([rifs]{2}\)",
    "v4": r"\([rifs]{4}\)",
    "w": "[ri]",  # a register or an integer
    "i": "i",
    "p": "[pi]",  # a predicate, or 0 or 1
    "a": "a",  # an address
    "m": "m",  # a parameter
    "t": "t",  # a label
}
RELAXED = ("ld", "st", "multimem", "cvt")  #: opcodes that take registers wider than their type
NAMED = "named"  #: the memory that a modifier names
POLLING = frozenset(("volatile", "relaxed", "acquire"))  #: modifiers of loads that other threads' stores may answer


@dataclass(frozen=True)
class Row:
    """What one opcode takes, becomes and does."""

    operands: str  #: see `OPERANDS`; in an opcode with a cache hint its policy follows them
    emit: Callable[[Writer, Instruction], None] = nothing
    reads: str = ""  #: memory it reads: shared, global, dsmem (shared memory of the cluster), or `NAMED`
    writes: str = ""  #: memory it writes, at once or later; a barrier's word counts
    bytes: int | None = 0  #: per lane, for the trace; None: the type's times the vector's, 0: an operand, or none
    updates: bool = False  #: the first operand is read as well as written
    whole: bool = False  #: all lanes of a warp execute it or none: no guard, and a branch around it parts only warps
    blocks: bool = False  #: its warp may have to wait for others: a block of its own, executed by the machine
    orders: bool = False  #: arrives or meets: what precedes it in the program may not happen after it
    jump: bool = False

    @property
    def result(self) -> bool:
        """Whether the first operand is written; all others are read."""
        return self.operands[:1] in ("d", "q", "P", "D", "M", "W")


ISA = {
    # Control
    "bra{.uni}": Row("t", jump=True),
    "ret{.uni}": Row("", jump=True),
    "exit": Row("", jump=True),
    # Data movement
    "mov.TYPE": Row("D v | d V", emit.move),
    "mov.pred": Row("q p", value("{a}")),
    "cvta{.to}.(global|local|const|param|ANYSHARED).u64": Row("d v", value("{a}")),
    "cvt.INT8.INT8": Row("d v", emit.convert_integer),
    "cvt.(rni|rzi|rmi|rpi).u32.f32": Row("d v", value("ops.to_integer({a}, {op[1]!r}, u4)", "u32")),
    "cvt.(rni|rzi|rmi|rpi).s32.f32": Row("d v", value("ops.to_integer({a}, {op[1]!r}, i4)", "s32")),
    "cvt.rn.f32.INT8 | cvt.rn.f32.f64": Row("d v", value("{a}.astype(f4)", "f32")),
    "cvt.f64.f32": Row("d v", value("{a}.astype(f8)", "f64")),
    "cvt.f32.bf16": Row("d v", value("{a:b16}.astype(u4) << u4(16)", "b32")),
    "cvt.rn.bf16.f32": Row("d v", value("ops.bf16_bits({a:b32}).astype(u2)", "b16")),
    "cvt.rn.bf16x2.f32": Row("d v v", value("ops.bf16x2({a:b32}, {b:b32})", "b32")),
    "ld.param.STORED": Row("d m", emit.load_parameter),
    "ld{.ORDER|.HINT}*.SPACE{.ORDER|.HINT}*{.v2|.v4}.STORED": Row("D a", emit.load, reads=NAMED, bytes=None),
    "st{.ORDER|.HINT}*.SPACE{.ORDER|.HINT}*{.v2|.v4}.STORED": Row("a V", emit.store, writes=NAMED, bytes=None),
    "multimem.st.(relaxed|release).SCOPE{.global}.(STORED|HALVES|(v2|v4).(f32|f16x2|bf16x2))": Row(
        "a V", emit.store, writes="global", bytes=None
    ),
    "st.async{.weak}.shared::cluster.mbarrier::complete_tx::bytes{.v2|.v4}.STORED": Row(
        "a V a", emit.store_async, writes="dsmem", bytes=None
    ),
    "mapa{.shared::cluster}.u32": Row("d v v", value("g.mapa({a}, {b})")),
    "createpolicy.fractional.EVICT{.EVICT}.b64": Row("d {v}", emit.policy),
    "createpolicy.range{.global}.EVICT{.EVICT}.b64": Row("d a v v", emit.policy),
    "createpolicy.cvt.L2.b64": Row("d v", emit.policy),
    # Integers, logic and floats
    "add.INT | add{.rn}.FLOAT": Row("d v v", value("{a:u} + {b:u}", "u")),
    "add.PACKED": Row("d v v", value("ops.packed(np.add, {a:u32}, {b:u32}, {op[1]!r})", "u32")),
    "sub.INT | sub{.rn}.FLOAT": Row("d v v", value("{a:u} - {b:u}", "u")),
    "mul.lo.INT | mul{.rn}.FLOAT": Row("d v v", value("{a:u} * {b:u}", "u")),
    "mul.hi.INT": Row("d v v", value("ops.multiply_high({a}, {b})")),
    "mul.wide.NARROW": Row("d v v", value("{a:widened} * {b:widened}", "wide")),
    "mad.lo.INT": Row("d v v v", value("{a:u} * {b:u} + {c:u}", "u")),
    "mad.wide.NARROW": Row("d v v v", value("{a:widened} * {b:widened} + {c:wide}", "wide")),
    # The product of two float32 is exact in float64; the sum is then rounded twice, which differs from a true fma only
    # where the float64 sum lies within 2^-53 of a float32 tie.
    "fma.rn.f32": Row("d v v v", value("({a}.astype(f8) * {b}.astype(f8) + {c}.astype(f8)).astype(f4)")),
    "div.INT": Row("d v v", value("ops.divide({a}, {b})")),
    "div.rn.f32": Row("d v v", value("{a} / {b}")),
    "rem.INT": Row("d v v", value("ops.remainder({a}, {b})")),
    "(min|max).INT | (min|max).NaN.f32": Row("d v v", value("np.{op[0]}imum({a}, {b})")),
    "(min|max).PACKED": Row("d v v", value("ops.packed(np.{op[0]}imum, {a:u32}, {b:u32}, {op[1]!r})", "u32")),
    "(min|max).FLOAT": Row("d v v", value("np.f{op[0]}({a}, {b})")),
    "neg.(s16|s32|s64|FLOAT)": Row("d v", value("-{a}")),
    "abs.(s16|s32|s64|FLOAT)": Row("d v", value("np.abs({a})")),
    "(and|or|xor).BITS": Row("d v v", value("{a} {sign} {b}")),
    "(and|or|xor).pred": Row("q p p", value("{a} {sign} {b}")),
    "not.BITS": Row("d v", value("~{a}")),
    "not.pred": Row("q p", value("~{a}")),
    "shl.BITS": Row("d v v", emit.shift),
    "shr.(BITS|INT)": Row("d v v", emit.shift),
    "shf.(l|r).(wrap|clamp).b32": Row("d v v v", value("ops.funnel_shift({a}, {b}, {c}, {op[1]!r}, {op[2]!r})")),
    "lop3.b32": Row("d v v v i", value("ops.lop3({a}, {b}, {c}, {d:literal})")),
    "prmt.b32": Row("d v v v", value("ops.permute_bytes({a}, {b}, {c})")),
    "bfe.(u32|s32|u64|s64)": Row("d v v v", value("ops.extract_bits({a}, {b:u32}, {c:u32})")),
    "bfi.(b32|b64)": Row("d v v v v", value("ops.insert_bits({a}, {b}, {c:u32}, {d:u32})")),
    "clz.(b32|b64)": Row("d v", value("ops.leading_zeros({a})", "u32")),
    "popc.(b32|b64)": Row("d v", value("np.bitwise_count({a}).astype(u4)", "u32")),
    "brev.(b32|b64)": Row("d v", value("ops.reverse_bits({a})")),
    "setp.(COMPARE|UNSIGNED).(BITS|INT) | setp.(COMPARE|UNORDERED).FLOAT": Row("q v v", emit.compare),
    "setp.(COMPARE|UNSIGNED).(and|or|xor).(BITS|INT) | setp.(COMPARE|UNORDERED).(and|or|xor).FLOAT": Row(
        "q v v p", emit.compare
    ),
    "selp.TYPE": Row("d v v p", value("where({c:pred}, {a:b}, {b:b})", "b")),
    # Warp level
    "shfl.sync.(idx|up|down|bfly).b32": Row("d v v v v | dq v v v v", emit.shuffle),
    "vote.sync.(any|all|uni).pred": Row("q p v", value("ops.vote({op[2]!r}, {a}, ops.lane_mask({b:u32}))")),
    "vote.sync.ballot.b32": Row("d p v", value("ops.vote('ballot', {a:pred}, ops.lane_mask({b:u32}))")),
    "redux.sync.(add|min|max).(u32|s32) | redux.sync.(and|or|xor).b32": Row("d v v", emit.reduce),
    "activemask.b32": Row("d", emit.active_lanes),
    "elect.sync": Row("dq v | q v", emit.elect),
    "ldmatrix.sync.aligned.m8n8.(x1|x2|x4){.trans}.SHARED.b16": Row("M a", emit.ldmatrix, reads="shared", bytes=16),
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": Row("d4 v4 v2 v4", emit.multiply_matrices),
    # A warpgroup's products
    "wgmma.fence.sync.aligned": Row("", line("g.wgmma_fence()"), whole=True),
    "wgmma.mma_async.sync.aligned.WGMMA.f32.(bf16.bf16|f16.f16)": Row(
        "W v v p i i i i", emit.multiply_in_warpgroup, reads="shared", updates=True, whole=True
    ),
    "wgmma.commit_group.sync.aligned": Row("", line("g.wgmma_commit()"), reads="shared", whole=True),
    "wgmma.wait_group.sync.aligned": Row("i", line("g.wgmma_wait({a:literal})"), reads="shared", whole=True),
    # Asynchronous copies
    "cp.async.(ca|cg).SHARED.global{.L2::cache_hint}{.PREFETCH}": Row(
        "a a i {v|p}", emit.copy_async, reads="global", writes="shared"
    ),
    "cp.async.commit_group": Row("", line("g.commit({mask})"), writes="shared"),
    "cp.async.wait_group": Row("i", line("g.wait_groups({a:literal}, {mask})"), writes="shared"),
    "cp.async.wait_all": Row("", line("g.commit({mask})\ng.wait_groups(0, {mask})"), writes="shared"),
    "cp.async.mbarrier.arrive{.noinc}{.SHARED}.b64": Row(
        "a", line("g.arrive_copies({index}, {a}, {has[noinc]}, {mask})"), writes="shared"
    ),
    "cp.async.bulk.(shared::cta|shared::cluster).global.mbarrier::complete_tx::bytes{.L2::cache_hint}": Row(
        "a a v a",
        line("g.transfer({index}, {a}, {d}, {mask}, {c:u32}, source={b:u64}, cluster={has[shared::cluster]})"),
        reads="global",
        writes="shared",
    ),
    # Barriers
    "mbarrier.init.SHARED.b64": Row("a v", line("g.init_barrier({index}, {a}, {b:u32}, {mask})"), writes="shared"),
    "mbarrier.inval.SHARED.b64": Row("a", line("g.invalidate_barrier({index}, {a}, {mask})"), writes="shared"),
    "mbarrier.expect_tx{.relaxed.NEAR}.ANYSHARED.b64": Row(
        "a v", line("g.expect_bytes({index}, {a}, {b:u32}, {mask}, {has[shared::cluster]})"), writes="shared"
    ),
    "mbarrier.arrive{.release.NEAR}.ANYSHARED.b64": Row("d a {v}", emit.arrive, writes="shared"),
    "mbarrier.arrive.expect_tx{.release.NEAR}.ANYSHARED.b64": Row("d a v", emit.arrive, writes="shared"),
    "mbarrier.(try_wait|test_wait){.parity}{.acquire.NEAR}.SHARED.b64": Row("P a w {w}", reads="shared", blocks=True),
    "bar.warp.sync": Row("v", line("g.warp_sync({mask})"), orders=True),
    "bar.sync{.aligned} | barrier.sync{.aligned}": Row("w {w}", blocks=True),
    "bar.arrive{.aligned} | barrier.arrive{.aligned}": Row(
        "v v", line("g.bar_arrive({index}, {a:u32}, {b:u32}, {mask})"), orders=True
    ),
    "barrier.cluster.arrive{.release}{.aligned}": Row(
        "", line("g.cluster_arrive({index}, True, {has[aligned]}, {mask})"), orders=True
    ),
    "barrier.cluster.arrive.relaxed{.aligned}": Row(
        "", line("g.cluster_arrive({index}, False, {has[aligned]}, {mask})"), orders=True
    ),
    "barrier.cluster.wait{.acquire}{.aligned}": Row("", blocks=True),
    # A fence alone lets nobody go on: that takes the store or the arrival after it, which ends a run of mma.
    "fence.mbarrier_init.release.cluster": Row("", line("g.fence('init', {mask})")),
    "fence.(acq_rel|sc).(cluster|gpu|sys) | fence.cluster.acq_rel": Row("", line("g.fence('cluster', {mask})")),
    "fence.proxy.async{.shared::cta}": Row("", line("g.fence('proxy', {mask})")),
    # Of one CTA, or for global memory: all see one memory here.
    "fence.(acq_rel|sc).cta | fence.proxy.async.global | membar.(cta|gl|sys)": Row(""),
    "griddepcontrol.wait": Row("", line("g.dependency_wait({mask})")),
    "griddepcontrol.launch_dependents": Row(""),
    # Time, and what has no effect here
    "nanosleep.u32": Row("v", line("g.sleep({a})")),
    "setmaxnreg.(inc|dec).sync.aligned.u32": Row("i"),
    "prefetch{.global|.local}.(L1|L2) | prefetch.global.(L2::evict_last|L2::evict_normal)": Row("a"),
    "prefetch{.const|.param}.tensormap": Row("a | m"),
    "discard{.global}.L2 | applypriority{.global}.L2::evict_normal": Row("a i"),
}


@cache
def opcodes(form: str) -> re.Pattern:
    """What matches the opcodes of a key of `ISA`."""
    text = form.replace(" ", "").replace(".", r"\.").replace("{", "(?:").replace("}*", ")*").replace("}", ")?")
    return re.compile(re.sub(rf"\b({'|'.join(WORDS)})\b", lambda word: f"(?:{WORDS[word[0]]})", text))


@cache
def operands(words: str) -> re.Pattern:
    """What matches the letters of a row's operands."""
    text = words.replace("{", "(?:").replace("}", ")?")
    return re.compile(re.sub(r"[a-zA-Z]\w*", lambda word: OPERANDS[word[0]], text).replace(" ", ""))


@cache
def _match(op: tuple[str, ...]) -> Row | None:
    likely = (form for form in ISA if op[0] in form)  # few patterns are ever compiled
    return next((ISA[form] for form in likely if opcodes(form).fullmatch(".".join(op))), None)


def row_of(ins: Instruction) -> Row:
    """The row of an opcode; raises `UnsupportedInstruction`."""
    row = _match(ins.op)
    if row is None:
        raise unsupported(ins)
    return row


def checked(ins: Instruction, widths: dict[str, int]) -> Row:
    """The row that opcode, operands and guard fit; raises `UnsupportedInstruction`. `widths`: bits of the registers."""
    row = row_of(ins)
    words = f"({row.operands}) w" if CACHE_HINT in ins.op else row.operands
    guarded_well = not ins.guard or (not row.blocks and not row.whole and widths.get(ins.guard[0].name) == 1)
    if not guarded_well or not operands(words).fullmatch(_letters(ins.operands, widths)):
        raise unsupported(ins)
    return row


def _letters(operands: tuple, widths: dict[str, int]) -> str:
    """What the patterns of `OPERANDS` match."""
    out = ""
    for operand in operands:
        kind = type(operand)
        if kind is Reg:
            out += "_" if operand.name == "_" else "p" if widths[operand.name] == 1 else "r"
        elif kind is Vector:
            out += f"({_letters(operand.items, widths)})"
        else:
            out += "m" if kind is Address and type(operand.base) is str else LETTERS[kind]
    return out


def _memory(memory: str, ins: Instruction) -> str:
    return space_of(ins) if memory == NAMED else memory


def changes_shared(ins: Instruction) -> bool:
    """Whether what precedes an instruction may not read shared memory after it: this ends a run of mma."""
    row = row_of(ins)
    return row.blocks or row.orders or _memory(row.writes, ins) in ("shared", "dsmem")


def polls(ins: Instruction) -> bool:
    """Whether an instruction reads, without waiting, what another thread may write meanwhile."""
    row = row_of(ins)
    return row.reads != "" and not row.blocks and not POLLING.isdisjoint(ins.op)


def access(ins: Instruction) -> tuple[str, int]:
    """(space, bytes per lane) of what an instruction accesses, as a trace tells it; of a copy where it lands."""
    row = row_of(ins)
    return _memory(row.writes or row.reads, ins), access_bytes(ins) if row.bytes is None else row.bytes
