"""Instructions -> basic blocks, with successors, post-dominators and liveness.

An instruction that can block (a barrier, an mbarrier wait) is a block of its own, so that a warp can stop in front of
it and come back. Block numbers count in program order; `EXIT` stands for the end of the kernel.
"""

from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, pairwise
from operator import and_, or_

from . import isa
from .parser import Instruction, Kernel, Target, registers

EXIT = -1


@dataclass
class Block:
    """Straight-line code, instructions `start` to `stop`; `branch` is its last instruction if that is a jump."""

    number: int
    start: int
    stop: int
    waits: bool = False  #: the block is one instruction that can block
    branch: Instruction | None = None
    taken: int | None = None  #: successor when the branch is taken
    next: int | None = None  #: successor otherwise
    join: int = EXIT  #: immediate post-dominator
    live_in: int = 0  #: registers, as bits by their number
    live_out: int = 0
    region: frozenset = field(default_factory=frozenset)  #: of a two-way branch: the blocks up to the join
    region_waits: bool = False  #: a block of the region waits, or needs its warps whole
    region_polls: bool = False  #: a loop of the region reads what another thread may write meanwhile

    @property
    def successors(self) -> list[int]:
        return [s for s in (self.taken, self.next) if s is not None]


@dataclass
class Flow:
    """A kernel's blocks; `number` gives each register its index, `entry_live` are those read before any write."""

    kernel: Kernel
    rows: list[isa.Row]  #: per instruction
    blocks: list[Block]
    reads: list[list[str]]  #: per instruction, the registers it reads
    writes: list[list[str]]
    number: dict[str, int]
    entry_live: list[str]


def analyse(kernel: Kernel) -> Flow:
    """The control-flow graph of `kernel`. Raises `UnsupportedInstruction` where an instruction fits no row."""
    code = kernel.instructions
    rows = [isa.checked(ins, kernel.widths) for ins in code]
    reads, writes = [], []
    for ins, row in zip(code, rows, strict=True):
        names = [registers(operand) for operand in ins.operands]
        writes.append(names.pop(0) if row.result else [])
        reads.append([name for group in names for name in group] + (writes[-1] if row.updates else []))
        if ins.guard:
            reads[-1].append(ins.guard[0].name)
    blocks = _blocks(code, rows)
    in_order = chain.from_iterable(chain.from_iterable(zip(writes, reads, strict=True)))
    number = {name: n for n, name in enumerate(dict.fromkeys(in_order))}
    _liveness(code, blocks, reads, writes, number)
    _post_dominators(code, blocks, rows)
    live = blocks[0].live_in if blocks else 0
    return Flow(kernel, rows, blocks, reads, writes, number, [name for name, n in number.items() if live >> n & 1])


def _blocks(code, rows) -> list[Block]:
    leaders = {0}
    for ins in code:
        row = rows[ins.index]
        if row.jump:
            leaders.add(ins.index + 1)
            leaders.update(o.index for o in ins.operands if isinstance(o, Target))
        elif row.blocks:
            leaders.update((ins.index, ins.index + 1))
    starts = sorted(leaders - {len(code)})
    at = {start: number for number, start in enumerate(starts)} | {len(code): EXIT}
    blocks = []
    for number, (start, stop) in enumerate(pairwise([*starts, len(code)])):
        last, row = code[stop - 1], rows[stop - 1]
        block = Block(number, start, stop, waits=row.blocks)
        if row.jump:
            block.branch = last
            block.taken = at[last.operands[0].index] if last.operands else EXIT
        if not row.jump or last.guard:
            block.next = at[stop]
        blocks.append(block)
    # Jumps to a bare `ret` leave at once, so that regions up to it end at EXIT.
    bare = {b.number for b in blocks if b.stop - b.start == 1 and b.taken == EXIT and b.next is None}
    for block in blocks:
        block.taken = EXIT if block.taken in bare else block.taken
        block.next = EXIT if block.next in bare else block.next
    return blocks


def _liveness(code, blocks, reads, writes, number):
    uses, defs = [], []
    bit_of = {name: 1 << n for name, n in number.items()}
    for block in blocks:
        use = define = 0
        for i in range(block.start, block.stop):
            # Under a guard the other lanes keep the old value.
            for name in reads[i] + writes[i] if code[i].guard else reads[i]:
                use |= bit_of[name] & ~define
            for name in writes[i]:
                define |= bit_of[name]
        uses.append(use)
        defs.append(define)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = reduce(or_, (blocks[s].live_in for s in block.successors if s != EXIT), 0)
            live = uses[block.number] | out & ~defs[block.number]
            changed |= (live, out) != (block.live_in, block.live_out)
            block.live_in, block.live_out = live, out


def _post_dominators(code, blocks, rows):
    # The post-dominators of a block, a bit each: itself and what post-dominates all its successors. They form a chain,
    # so that those of the next one, the immediate post-dominator, are all but the block itself.
    exit_bit, everything = 1 << len(blocks), (2 << len(blocks)) - 1
    above, changed = [everything] * len(blocks) + [exit_bit], True  # the last is EXIT
    while changed:
        changed = False
        for block in reversed(blocks):
            common = reduce(and_, (above[s] for s in block.successors), everything) | 1 << block.number
            changed |= common != above[block.number]
            above[block.number] = common
    immediate = {bits: number for number, bits in enumerate(above[:-1]) if bits != everything}
    for block in blocks:
        block.join = immediate.get(above[block.number] & ~(1 << block.number), EXIT)
        if block.taken is not None and block.next is not None:
            region, todo = set(), [block.taken, block.next]
            while todo:
                node = todo.pop()
                if node not in region and node not in (block.join, EXIT):
                    region.add(node)
                    todo += blocks[node].successors
            block.region = frozenset(region)
            block.region_waits = any(
                row.blocks or row.whole for n in region for row in rows[blocks[n].start : blocks[n].stop]
            )
            loops = any(s in region and s <= n for n in region for s in blocks[n].successors)
            block.region_polls = loops and any(
                isa.polls(ins) for n in region for ins in code[blocks[n].start : blocks[n].stop]
            )
