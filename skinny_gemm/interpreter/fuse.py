"""Finds unbroken runs of `mma` fed by `ldmatrix` in one block, so that each run is one batched matrix product.

The fragments never take the shape of registers: the run's `ldmatrix` addresses are gathered at once, straight into
matrices. A run ends where an accumulator is read, shared memory changes, or the block ends.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import numpy as np

from . import isa
from .flow import Block, Flow
from .parser import Instruction, registers


@dataclass
class Run:
    """A chain of mma on one accumulator: `steps` are (A pieces, B pieces), a piece is (ldmatrix index, matrix)."""

    start: list[str]  #: expressions of the four accumulator registers it begins with
    kept: set[str]  #: registers that may not change while the run is open
    steps: list[tuple] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


class MmaFusion:
    """The open runs of one block while its code is generated; `intern` names a constant array."""

    def __init__(self, flow: Flow, block: Block, intern: Callable[[np.ndarray], str]):
        self.live_out, self.number, self.intern = block.live_out, flow.number, intern
        self.sources, self.results = flow.reads, flow.writes
        self.runs: list[Run] = []
        self.pieces: dict[str, tuple] = {}  # register -> (ldmatrix index, matrix) it holds now
        self.tiles: dict[tuple, str] = {}  # what has been gathered already -> variable
        self.counter = 0
        self.reads: dict[str, list[int]] = defaultdict(list)  # register -> indices of instructions
        self.writes: dict[str, list[int]] = defaultdict(list)
        code = flow.kernel.instructions[block.start : block.stop]
        mma = [ins for ins in code if ins.op[0] == "mma"]
        self.fused = self._fusable(code, mma) if mma else set()

    def _fusable(self, code, mma) -> set[int]:
        """The `ldmatrix` whose registers nothing reads but mma that take all six fragments from such `ldmatrix`, with
        shared memory the same at both."""
        segment = dict(zip((ins.index for ins in code), accumulate(map(isa.changes_shared, code)), strict=True))
        for ins in code:
            for name in self.sources[ins.index]:
                self.reads[name].append(ins.index)
            for name in self.results[ins.index]:
                self.writes[name].append(ins.index)
        fragments = {ins.index: [name for operand in ins.operands[1:3] for name in registers(operand)] for ins in mma}
        guarded = {ins.index for ins in mma if ins.guard}
        owner: dict[str, int] = {}  # register -> the ldmatrix that loads it
        for ins in code:
            if ins.op[0] != "ldmatrix" or "trans" in ins.op or ins.guard:
                continue
            names = self.results[ins.index]
            if all(
                len(self.writes[name]) == 1
                and not self.live_out >> self.number[name] & 1
                and all(
                    name in fragments.get(r, ()) and r not in guarded and segment[r] == segment[ins.index]
                    for r in self.reads[name]
                )
                for name in names
            ):
                owner |= dict.fromkeys(names, ins.index)
        while True:
            loads = [[owner.get(name) for name in names] for names in fragments.values()]
            incomplete = {load for six in loads if len(six) != 6 or None in six for load in six} - {None}
            if not incomplete:
                return set(owner.values())
            owner = {name: load for name, load in owner.items() if load not in incomplete}

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
        if len(a + b) != 6 or any(name not in self.pieces for name in a + b) or len(d) != 4:
            return False
        run = next((r for r in self.runs if r.results == c), None)
        if run is None:
            run = Run(start, set(c))
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
            if touched & set(run.results) or written & run.kept:
                continues = ins.op[0] == "mma" and registers(ins.operands[3]) == run.results
                if not continues or self._needed_later(run, ins):
                    lines += self.close(run)
        return lines

    def _needed_later(self, run, ins):
        """Whether a result of the run is read by anything but `ins`, which continues it."""
        others = {name for operand in ins.operands[1:3] for name in registers(operand)}
        for name in run.results:
            if name in others:
                return True
            if name not in self.results[ins.index]:
                next_write = min((w for w in self.writes[name] if w > ins.index), default=inf)
                read = any(ins.index < r <= next_write for r in self.reads[name])
                if read or (next_write == inf and self.live_out >> self.number[name] & 1):
                    return True
        return False

    def close_all(self) -> list[str]:
        """The lines that compute all open runs."""
        lines = [line for run in list(self.runs) for line in self.close(run)]
        self.tiles.clear()
        return lines

    def close(self, run: Run) -> list[str]:
        """The lines that compute a run."""
        lines, names = [], []
        for side, rows in ((0, 16), (1, 8)):
            pieces = tuple(step[side] for step in run.steps)
            key = side, pieces
            if key not in self.tiles:
                name = self.tiles[key] = f"t{self.counter}"
                loads = list(dict.fromkeys(load for step in pieces for load, _ in step))
                lanes = np.array([[32 * loads.index(load) + 8 * matrix for load, matrix in step] for step in pieces])
                lanes = lanes.reshape(-1, 2, rows // 8).transpose(2, 0, 1).reshape(rows // 8, 1, -1)
                # (rows, 16-byte halves of K) -> which lane of the concatenated loads addresses it
                order = self.intern((lanes + np.arange(8)[:, None]).reshape(rows, -1))
                addresses = ", ".join(f"a{i}" for i in loads)
                lines.append(f"{name} = g.gather({tuple(loads)}, ({addresses},), {order}, {self.counter})")
                self.counter += 1
            names.append(self.tiles[key])
        targets = ", ".join(f"v{self.number[n]}" for n in run.results)
        lines.append(f"{targets} = mma({names[0]}, {names[1]}, ({', '.join(run.start)},))")
        self.runs.remove(run)
        return lines
