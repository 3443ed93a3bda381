"""Basic blocks -> Python functions over NumPy arrays.

Every block becomes `b<n>(g, R)` for a group `g` of warps that execute it together (`R` is the list of registers), and
on demand `m<n>(g, R, M)` for the lanes in the mask `M` only. A block that ends in a conditional branch returns the
array "branch is taken". Reading the generated text (`Program.source`) is the best documentation of this file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from . import isa
from .flow import Block, Flow
from .fuse import MmaFusion
from .parser import Address, Instruction
from .writer import Writer


@dataclass
class Program:
    """The generated functions of one kernel; `masked(n)` compiles on first use."""

    flow: Flow
    functions: list
    source: str
    generator: "Generator"
    masks: dict

    def masked(self, number: int) -> Callable:
        """The function of block `number` for some lanes only."""
        if number not in self.masks:
            text = "\n".join(self.generator.block(self.flow.blocks[number], masked=True))
            self.masks[number] = self.generator.compile(text)[f"m{number}"]
        return self.masks[number]


def generate(flow: Flow, traced: Callable[[Instruction], bool] | None = None) -> Program:
    """The program of a kernel; with `traced`, a predicate on instructions, those report to the group's trace.

    Raises `UnsupportedInstruction`.
    """
    generator = Generator(flow, traced)
    text = "\n".join(line for block in flow.blocks if not block.waits for line in generator.block(block, masked=False))
    names = generator.compile(text)
    functions = [names.get(f"b{block.number}") for block in flow.blocks]
    return Program(flow, functions, text, generator, {})


class Generator(Writer):
    """Writes the functions of a kernel's blocks."""

    def __init__(self, flow: Flow, traced: Callable[[Instruction], bool] | None):
        code = flow.kernel.instructions
        super().__init__(flow.kernel, flow.number, _lazy(flow))
        self.flow, self.traced, self.code = flow, traced, code
        #: Registers of wgmma's accumulators, as bits; those of them that the block has reported as touched.
        self.accumulators = self._bits(
            n for row, names in zip(flow.rows, flow.writes, strict=True) if row.updates for n in names
        )
        self.touched = 0

    def _bits(self, names: Iterable[str]) -> int:
        return reduce(or_, (1 << self.number[name] for name in names), 0)

    def compile(self, text: str) -> dict[str, Callable]:
        """The functions that `text` defines."""
        functions: dict[str, Callable] = {}
        exec(compile(text, "<ptx>", "exec"), self.names, functions)
        return functions

    def block(self, block: Block, masked: bool) -> list[str]:
        """The lines of a block's function."""
        self.start(None if masked else MmaFusion(self.flow, block, self.intern))
        self.masked, self.touched = masked, 0
        code = self.code[block.start : block.stop]
        for ins in code:
            self.emit(ins)
        if self.fusion:
            self.out += self.fusion.close_all()
        written, read = (
            sorted({self.number[name] for ins in code for name in names[ins.index]})
            for names in (self.flow.writes, self.flow.reads)
        )
        new = "merge(M, v{0}, R[{0}])" if masked else "v{0}"
        tail = [f"R[{n}] = {new.format(n)}" for n in written if block.live_out >> n & 1]
        if not masked:  # in a masked region another path may still need them
            dead = block.live_in & ~block.live_out  # all of them are read here
            tail += [f"R[{n}] = None" for n in read if dead >> n & 1]
        if block.branch is not None and block.branch.guard:
            tail.append(f"return {self.predicate(block.branch.guard)}")
        head = f"def m{block.number}(g, R, M):" if masked else f"def b{block.number}(g, R):"
        loads = [f"v{n} = R[{n}]" for n in self.read_first]
        return [head] + [" " + line for line in loads + self.out + tail or ["pass"]]

    def emit(self, ins: Instruction) -> None:
        """Writes the lines of one instruction."""
        row = self.flow.rows[ins.index]
        if row.jump:
            return
        if self.fusion:
            self.out += self.fusion.before(ins)
        self.ins, self.mask, self.relaxed = ins, "M" if self.masked else "None", ins.op[0] in isa.RELAXED
        if ins.guard:
            self.mask = f"({self.predicate(ins.guard)} & M)" if self.masked else f"({self.predicate(ins.guard)})"
        if row.whole:
            self.touched = 0  # from here on it may be another matter
        else:
            names = self.flow.reads[ins.index] + self.flow.writes[ins.index]
            touched = self.accumulators and self._bits(names) & self.accumulators & ~self.touched
            if touched:
                self.touched |= touched
                self.line(f"g.touch({ins.index}, {touched})")
        traced = self.traced is not None and self.traced(ins)
        if traced and "mbarrier" not in ins.op:
            self.trace(ins)
        row.emit(self, ins)
        if traced and "mbarrier" in ins.op:  # afterwards: the table shows what the event made of the barrier
            self.trace(ins)

    def trace(self, ins: Instruction) -> None:
        """Reports an instruction to the trace: its first address and, of a copy, the source and the bytes."""
        address = next((o for o in ins.operands if isinstance(o, Address) and not isinstance(o.base, str)), None)
        wide = isa.access(ins)[0] == "global"
        where = self.address(address, 64 if wide else 32) if address else "None"
        if ins.op[:2] == ("cp", "async") and len(ins.operands) > 1:
            size = self.value(ins.operands[2], "u32")
            self.line(f"g.trace_source({self.address(ins.operands[1], 64)}, {size})")
        self.line(f"g.trace({ins.index}, {self.mask}, {where})")


def _lazy(flow: Flow) -> set[str]:
    """Registers that may hold a `Word`: those of products, and those that such a one is moved to."""
    code = flow.kernel.instructions
    lazy = {name for ins in code if ins.op[0] in ("mma", "wgmma") for name in flow.writes[ins.index]}
    moves = [(*flow.writes[ins.index], *flow.reads[ins.index]) for ins in code if ins.op[0] == "mov"]
    moves = [move for move in moves if len(move) == 2 and all(flow.kernel.widths[name] == 32 for name in move)]
    while more := {to for to, source in moves if source in lazy} - lazy:
        lazy |= more
    return lazy
