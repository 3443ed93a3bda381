"""Finds unbroken runs of `mma` fed by `ldmatrix` in one block, so that each run is one batched matrix product.

The fragments never take the shape of registers: the run's `ldmatrix` addresses are gathered at once, straight into
matrices. A run ends where an accumulator is read, shared memory changes, or the block ends.
"""

import numpy as np

from . import isa
from .flow import Block, Flow
from .parser import Instruction, registers


class Run:
    """A chain of mma on one accumulator: `steps` are (A pieces, B pieces), a piece is (ldmatrix index, matrix)."""

    def __init__(self, start: list[str], registers: list[str]):
        self.start = start  # expressions of the four accumulator registers it begins with
        self.kept = set(registers)  # these may not change while the run is open
        self.steps, self.results = [], []


class MmaFusion:
    """The open runs of one block while its code is generated; `intern` names a constant array."""

    def __init__(self, flow: Flow, block: Block, intern):
        self.live_out, self.number, self.intern = block.live_out, flow.number, intern
        self.sources, self.results = flow.reads, flow.writes
        code = flow.kernel.instructions[block.start : block.stop]
        live_out, number = self.live_out, self.number
        self.runs: list[Run] = []
        self.pieces = {}  # register -> (ldmatrix index, matrix) it holds now
        self.tiles = {}  # what has been gathered already -> variable
        self.counter = 0
        self.fused = set()
        self.active = any(ins.op[0] == "mma" for ins in code)
        if not self.active:
            return
        self.reads, self.writes = {}, {}
        for ins in code:
            for name in self.sources[ins.index]:
                self.reads.setdefault(name, []).append(ins.index)
            for name in self.results[ins.index]:
                self.writes.setdefault(name, []).append(ins.index)
        mma_operands = {}
        for ins in code:
            if ins.op[0] == "mma":
                for operand in ins.operands[1:3]:
                    for name in registers(operand):
                        mma_operands.setdefault(name, set()).add(ins.index)
        segment, number_of = {}, 0  # shared memory does not change within a segment
        for ins in code:
            number_of += isa.changes_shared(ins)
            segment[ins.index] = number_of
        for ins in code:
            if ins.op[0] == "ldmatrix" and "trans" not in ins.op and not ins.guard:
                names = self.results[ins.index]
                only_mma = all(
                    len(self.writes[n]) == 1
                    and set(self.reads.get(n, ())) == mma_operands.get(n, set())
                    and not live_out >> number[n] & 1
                    and all(segment[r] == segment[ins.index] for r in self.reads.get(n, ()))
                    for n in names
                )
                if only_mma and self._all_fusable(code, names):
                    self.fused.add(ins.index)
        self._settle(code)

    def _all_fusable(self, code, names):
        return all(not ins.guard for ins in code if ins.op[0] == "mma" and set(self.sources[ins.index]) & set(names))

    def _settle(self, code):
        """Keeps only `ldmatrix` whose every mma takes all six fragments from kept `ldmatrix`."""
        owner = {n: ins.index for ins in code if ins.index in self.fused for n in self.results[ins.index]}
        while True:
            drop = set()
            for ins in code:
                if ins.op[0] == "mma":
                    owners = [owner.get(n) for operand in ins.operands[1:3] for n in registers(operand)]
                    if any(o not in self.fused for o in owners) or len(owners) != 6:
                        drop.update(o for o in owners if o in self.fused)
            if not drop:
                return
            self.fused -= drop

    def takes(self, ins: Instruction) -> bool:
        """Whether this `ldmatrix` only records its address."""
        if ins.index not in self.fused:
            return False
        for matrix, name in enumerate(self.results[ins.index]):
            self.pieces[name] = ins.index, matrix
        return True

    def extends(self, ins: Instruction, start: list[str]) -> bool:
        """Adds an mma to the run that it continues, or to a new one; False if it must be executed alone."""
        d, a, b, c = (registers(operand) for operand in ins.operands)
        if any(name not in self.pieces for name in a + b) or len(d) != 4:
            return False
        run = next((r for r in self.runs if r.results == c), None)
        if run is None:
            run = Run(start, c)
            self.runs.append(run)
        run.steps.append((tuple(self.pieces[n] for n in a), tuple(self.pieces[n] for n in b)))
        run.results = d
        return True

    def before(self, ins: Instruction) -> list[str]:
        """Lines that must come before `ins`: the runs that it ends."""
        if not self.runs and not self.tiles:
            return []
        if isa.changes_shared(ins):
            return self.close_all()
        lines = []
        written = set(self.results[ins.index])
        touched = written | set(self.sources[ins.index])
        for run in list(self.runs):
            if not touched & set(run.results) and not written & run.kept:
                continue
            c = registers(ins.operands[3]) if ins.op[0] == "mma" else None
            if c == run.results and not self._needed_later(run, ins):
                continue
            lines += self.close(run)
        return lines

    def _needed_later(self, run, ins):
        """Whether a result of the run is read by anything but `ins`, which continues it."""
        written = set(self.results[ins.index])
        others = set(registers(ins.operands[1])) | set(registers(ins.operands[2]))
        for name in run.results:
            if name in others:
                return True
            if name in written:
                continue
            next_write = min((w for w in self.writes[name] if w > ins.index), default=None)
            if any(r > ins.index and (next_write is None or r <= next_write) for r in self.reads.get(name, ())):
                return True
            if next_write is None and self.live_out >> self.number[name] & 1:
                return True
        return False

    def close_all(self) -> list[str]:
        lines = [line for run in list(self.runs) for line in self.close(run)]
        self.tiles.clear()
        return lines

    def close(self, run: Run) -> list[str]:
        lines = []
        names = []
        for side, rows in ((0, 16), (1, 8)):
            pieces = tuple(step[side] for step in run.steps)
            key = side, pieces
            if key not in self.tiles:
                name = self.tiles[key] = f"t{self.counter}"
                loads = list(dict.fromkeys(load for step in pieces for load, _ in step))
                order = self.intern(self._order(pieces, loads, rows))
                addresses = ", ".join(f"a{i}" for i in loads)
                lines.append(f"{name} = g.gather({tuple(loads)}, ({addresses},), {order}, {self.counter})")
                self.counter += 1
            names.append(self.tiles[key])
        targets = ", ".join(f"v{self.number[n]}" for n in run.results)
        lines.append(f"{targets} = mma({names[0]}, {names[1]}, ({', '.join(run.start)},))")
        self.runs.remove(run)
        return lines

    def _order(self, pieces, loads, rows):
        """(rows, 16-byte halves of K) -> which lane of the concatenated loads addresses it."""
        lanes = []
        for row in range(rows):
            for step in pieces:
                for half in range(2):
                    load, matrix = step[2 * half + row // 8] if rows == 16 else step[half]
                    lanes.append(32 * loads.index(load) + 8 * matrix + row % 8)
        return np.array(lanes).reshape(rows, -1)
