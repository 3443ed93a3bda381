"""`wgmma`: products of a warpgroup, which are four warps in a row, from their issue to their completion.

- Each warp computes its 16 of the 64 rows, at its own pace. That the four have executed the same is checked when the
  CTA's last warp exits.
- A product is computed once `wait_group` covers it, from what shared memory holds then, or as soon as it is committed:
  that is the schedule's choice.
- Until the wait nothing but the next wgmma may touch its accumulator, and `wgmma.fence` must stand between any other
  access of an accumulator's registers and a wgmma on them.
"""

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ..layouts import descriptors
from ..layouts.fragments import MMA_M, WARPGROUP, WGMMA_M
from . import arithmetic as ops
from .errors import UnsupportedInstruction, WarpgroupError
from .place import Array, Place
from .shared_memory import elements

if TYPE_CHECKING:
    from .group import Group
    from .machine import Machine

HALVES = np.arange(2)  #: 16-byte chunks of a row's k16
MIX = np.uint64(0x9E3779B97F4A7C15)  #: any odd number of 64 bits


@dataclass(eq=False)
class Step:
    """One wgmma: addresses (CTAs | 1, warps | 1, rows, 2) of the chunks of A (64 rows) and B (N), and whether it adds
    to the accumulator (CTAs | 1, warps | 1; True or False for all)."""

    index: int
    number: int  #: of its group, as committed
    a: Array
    b: Array
    adds: Array | bool
    sign: int  #: of the product

    def select(self, rows: Array | None, warps: Array | None) -> "Step":
        """The part of some rows and warps."""
        a, b = (ops.select(x, rows, warps) for x in (self.a, self.b))
        adds = self.adds if isinstance(self.adds, bool) else ops.select(self.adds, rows, warps)
        return replace(self, a=a, b=b, adds=adds)


class Product(ops.Accumulator):
    """An accumulator to which wgmma add: `steps` are those that have not been computed."""

    __slots__ = ("columns", "number", "registers", "steps")

    def __init__(self, tile: Array | None, columns: int, registers: int):
        self.tile, self.words = tile, None
        self.columns, self.registers = columns, registers  # the registers as bits by their number
        self.steps: list[Step] = []
        self.number = 0  # of the group of the latest step

    def select(self, rows: Array | None, warps: Array | None) -> "Product":
        """See `ops.select`."""
        tile = None if self.tile is None else ops.select(self.tile, rows, warps)
        part = Product(tile, self.columns, self.registers)
        part.steps, part.number = [step.select(rows, warps) for step in self.steps], self.number
        return part


@dataclass
class Issued:
    """What a group of warps has issued."""

    flying: list[Product]  #: not waited for
    committed: int = 0  #: groups
    unfenced: int = -1  #: registers, as bits, that a wgmma may not touch before the next `wgmma.fence`

    def select(
        self, rows: Array | None, warps: Array | None, parts: dict[ops.Accumulator, ops.Accumulator]
    ) -> "Issued":
        """The part of some rows and warps; `parts` are the accumulators of their registers by the whole ones."""
        for product in self.flying:
            if product not in parts:
                parts[product] = product.select(rows, warps)
        return replace(self, flying=[part for whole in self.flying if isinstance(part := parts[whole], Product)])


def multiply(
    group: "Group", index: int, words: tuple, a: Array, b: Array, adds: Array, sign: int, registers: int
) -> list[ops.Word]:
    """`wgmma.mma_async` on the accumulator `words`, the registers `registers`, of what descriptors `a` and `b` name."""
    issued = group.issued
    product = ops.accumulator_of(words)
    if product not in issued.flying:  # else it goes on: no fence needed
        _check_done(group, index, registers)
        if registers & issued.unfenced:
            what = "No wgmma.fence lies between this wgmma and what was done to its accumulator's registers before"
            raise group.error(WarpgroupError, what, index)
        product = Product(ops.accumulator_tile(words), 2 * len(words), registers)
        issued.flying.append(product)
    assert isinstance(product, Product)
    at_a, at_b = (_chunks(group, index, x, rows) for x, rows in ((a, WGMMA_M), (b, product.columns)))
    _count(group, index, a, b)
    adds = _uniform(group, index, adds, "the predicate scale-d")
    whether = bool(adds.flat[0]) if (adds == adds.flat[0]).all() else adds
    product.steps.append(Step(index, issued.committed, at_a, at_b, whether, sign))
    product.number = issued.committed
    for at in (at_a, at_b):
        group.events.product_reads(group, index, at.reshape(*at.shape[:2], -1))
    return [ops.Word(product, v) for v in range(len(words))]


def fence(group: "Group") -> None:
    """`wgmma.fence`."""
    group.issued.unfenced = 0


def touch(group: "Group", index: int, registers: int) -> None:
    """An instruction accesses some registers of accumulators: see `Issued.unfenced`."""
    _check_done(group, index, registers)
    group.issued.unfenced |= registers


def commit(group: "Group") -> None:
    """`wgmma.commit_group`."""
    group.issued.committed += 1
    group.events.products_committed(group)
    if group.machine.schedule.dares("land"):
        _compute(group, group.issued.committed)


def wait(group: "Group", keep: int) -> None:
    """`wgmma.wait_group`: all but the latest `keep` groups are done."""
    issued = group.issued
    done = issued.committed - keep
    _compute(group, done)
    issued.flying = [product for product in issued.flying if product.number >= done]
    group.events.products_waited(group, keep)


def exited(machine: "Machine", rows: Array) -> None:
    """The last warps of the CTAs `rows` are gone: raises WarpgroupError if the warps of a warpgroup were apart."""
    groups = machine.products.shape[2] // WARPGROUP
    each = machine.products[:, rows, : groups * WARPGROUP].reshape(3, len(rows), groups, WARPGROUP)
    apart = (each != each[..., :1]).any(axis=(0, 3))
    for row, i in np.argwhere(apart).tolist():
        counts, _, latest = each[:, row, i]
        lines = ", ".join(
            str(machine.code[int(at)].line) if n else "none" for n, at in zip(counts, latest, strict=True)
        )
        raise WarpgroupError(
            f"Warps {WARPGROUP * i} to {WARPGROUP * i + WARPGROUP - 1} of CTA {machine.cta_of(rows[row])} are a "
            f"warpgroup and must execute the same wgmma.mma_async on the same descriptors, but they executed "
            f"{', '.join(map(str, counts.tolist()))} of them, the last in PTX lines {lines}."
        )


def _check_done(group: "Group", index: int, registers: int) -> None:
    """Raises WarpgroupError if a product may still use some of `registers`."""
    if any(product.registers & registers for product in group.issued.flying):
        what = "A register of an accumulator is used, and no wgmma.wait_group says that wgmma is done with it"
        raise group.error(WarpgroupError, what, index)


def _count(group: "Group", index: int, a: Array, b: Array) -> None:
    """Counts a wgmma of the descriptors `a` and `b`: see `Machine.products`."""
    warps = group.machine.context.warps
    if group.warps.max() >= warps // WARPGROUP * WARPGROUP:
        what = f"A warpgroup is {WARPGROUP} warps, and the last of the CTA's {warps} belong to none"
        raise group.error(WarpgroupError, what, index)
    count, mixed, latest = (array[np.ix_(group.rows, group.warps)] for array in group.machine.products)
    for value in (np.uint64(index), a[:, :, 0], b[:, :, 0]):
        mixed = (mixed + value) * MIX
    group.machine.products[:, group.rows[:, None], group.warps] = (
        count + np.uint64(1),
        mixed,
        np.full_like(latest, index),
    )


def _uniform(group: "Group", index: int, values: Array, what: str) -> Array:
    """`values`, which the lanes of a warp must have in common, as (CTAs | 1, warps | 1)."""
    group.events.decides(group, index, values, what)
    if (values != values[:, :, :1]).any():
        raise group.error(WarpgroupError, f"Lanes of one warp differ in {what}", index, values != values[:, :, :1])
    return values[:, :, 0]


def _chunks(group: "Group", index: int, descriptor: Array, rows: int) -> Array:
    """Addresses (CTAs | 1, warps | 1, rows, 2) of an operand's chunks, after checking their bounds."""
    bits = _uniform(group, index, descriptor, "a matrix descriptor").astype(np.int64)
    fields = descriptors.decoded(bits)
    for bad, what in ((bits & descriptors.RESERVED, "reserved bits"), (fields.base, "a base offset")):
        if np.any(bad):
            example = int(np.broadcast_to(bits, bad.shape)[bad != 0][0]) & (1 << 64) - 1
            what = f"The matrix descriptor {example:#018x} has {what}; the interpreter takes those with 0 there"
            raise group.error(UnsupportedInstruction, what, index)
    start, leading, stride, mode = (
        x[..., None, None] for x in (fields.start, fields.leading, fields.stride, fields.mode)
    )
    width = np.array(descriptors.WIDTHS)[mode]
    step = np.where(width == descriptors.CHUNK_BYTES, leading, descriptors.CHUNK_BYTES)
    at = descriptors.chunk_address(np.arange(rows)[:, None], HALVES, start, step, stride, width)
    for most in (at.min(axis=(2, 3)), at.max(axis=(2, 3))):
        elements(group, index, most[..., None], descriptors.CHUNK_BYTES)
    return at


def _compute(group: "Group", stop: int) -> None:
    """Computes the products of all groups before number `stop`.

    The order of the additions: what one group adds to an accumulator, from a step that does not add on, is one float32
    dot product in the order of the host's BLAS.
    """
    for product in group.issued.flying:
        due = [step for step in product.steps if step.number < stop]
        product.steps = product.steps[len(due) :]
        for _, steps in groupby(due, lambda step: step.number):
            runs: list[list[Step]] = []
            for step in steps:
                if runs and step.adds is True:
                    runs[-1].append(step)
                else:
                    runs.append([step])
            for run in runs:
                _add(group, product, run)


def _add(place: Place, product: Product, run: list[Step]) -> None:
    """Adds what a run of steps multiplies to the tile of their product."""
    warps, machine = place.warps, place.machine
    whole = len(warps) % WARPGROUP == 0 and (warps == warps[0] // WARPGROUP * WARPGROUP + np.arange(len(warps))).all()
    matrices = []
    for slot, chunks in enumerate(([step.a for step in run], [step.b for step in run])):
        at = np.concatenate(np.broadcast_arrays(*chunks), axis=3)
        if whole:
            at = at[:, ::WARPGROUP]  # one for all warps stays one
        elif slot == 0:
            parts = at.reshape(*at.shape[:2], WARPGROUP, MMA_M, -1)
            own = np.arange(len(warps)) if at.shape[1] > 1 else np.zeros(len(warps), int)
            at = parts[:, own, warps % WARPGROUP]
        raw = machine.load_shared(place.rows[:, None, None, None], at >> 4, descriptors.CHUNK_BYTES)
        if machine.code[run[0].index].op[-1] == "f16":
            matrices.append(raw.view(np.float16).astype(np.float32))
            continue
        wide = machine.scratch(-1 - slot, (*raw.shape[:3], raw.shape[3] * 8))
        np.copyto(wide, raw.view(np.uint16))
        wide <<= 16
        matrices.append(wide.view(np.float32))
    a, b = matrices
    if any(step.sign < 0 for step in run):
        a *= np.repeat(np.array([step.sign for step in run], np.float32), 16)
    # A warp's 16 rows at a time, whoever runs with it: so the order of the additions is the same in any schedule.
    a = a.reshape(*a.shape[:2], -1, MMA_M, a.shape[3])
    tile = np.matmul(a, b[:, :, None].swapaxes(-1, -2))
    rows = len(warps) // tile.shape[2]
    tile = np.broadcast_to(tile, (len(tile), rows, *tile.shape[2:])).reshape(len(tile), len(warps), MMA_M, -1)
    adds = run[0].adds
    if adds is not False and product.tile is not None:
        total = tile + product.tile
        tile = total if adds is True else np.where(adds[..., None, None], total, tile)
    product.tile, product.words = tile, None
