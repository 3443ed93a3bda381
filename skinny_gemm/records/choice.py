"""Which kernel and tactic multiply by a weight, and why: what was recorded decides, else the model, else reasoning."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ..device import Device
from ..problem import GemmProblem
from ..tactics import Tactic, defaults, plain_kernels
from . import model, store
from .best import answering, competing, weight_rows
from .schema import Record

MODE = "chained"  #: the launches of decode: what data/best.csv holds and the model is asked for


@dataclass(frozen=True)
class Choice:
    """A tactic, and with it a kernel, for one problem."""

    tactic: Tactic
    why: str  #: for people: each kernel's time and the campaign that recorded it, or what stands in for them


def choose(problem: GemmProblem, device: Device, output: str = "bf16") -> Choice:
    """The fastest plain kernel (`Tactic.is_plain`) and its tactic, for cold weights and chained launches on `device`.

    - Recorded, in data/best.csv at this M or the next M above: each kernel that is recorded has its tactic there. They
      compete at the least M that all of them have, by the newest campaign that holds all of them at that M, since two
      campaigns differ by some percent of noise; where none does, by their medians in data/best.csv. All that is of one
      state of the process, the one that is `answering`.
    - Else the performance model's choice, of a quiet process, from the coarse grids of the kernels that have a model.
    - Else the heuristic tactic of the first kernel that takes the problem.

    `output` "f32" leaves out the kernels that cannot store it; the times are those of BF16 results.

    Equal times go to the first in `KERNELS`. ValueError, with every kernel's reason, if none takes the problem.
    """
    kinds = plain_kernels(output)
    refusals = {name: kind.unsupported(problem, device) for name, kind in kinds.items()}
    able = {name: kind for name, kind in kinds.items() if refusals[name] is None}
    if not able:
        raise ValueError(f"no kernel takes it: {'; '.join(f'not {name}, {why}' for name, why in refusals.items())}")
    if recorded := {name: tactic for name, kind in able.items() if (tactic := kind.recorded(problem, device))}:
        rows = _comparable(recorded, problem, device)
        times = (f"{name} {row.median_us:.2f} us at M = {row.m} in {row.campaign}" for name, row in rows.items())
        winner = min(rows, key=lambda name: rows[name].median_us)
        return Choice(recorded[winner], f"recorded: {', '.join(times)}")
    if grids := {name: kind.coarse(problem, device) for name, kind in able.items() if _has_model(name, device)}:
        predicted = {name: model.times(grid, [problem] * len(grid), device, MODE) for name, grid in grids.items()}
        times = (f"{name} {of_grid.min():.2f} us" for name, of_grid in predicted.items())
        winner = min(predicted, key=lambda name: predicted[name].min())
        return Choice(grids[winner][predicted[winner].argmin()], f"not recorded; by the model {', '.join(times)}")
    first = next(iter(able))
    return Choice(able[first].heuristic(problem, device), f"neither recorded nor modelled; the heuristic of {first}")


def _has_model(kernel: str, device: Device) -> bool:
    return model.why_not(kernel, MODE, device) is None


def _comparable(kernels: Collection[str], problem: GemmProblem, device: Device) -> Mapping[str, defaults.Row | Record]:
    """A row of each of `kernels`, all in data/best.csv at this M or above: those that `choose` compares."""
    rows = {name: {row.m: row for row in defaults.covering(device.name, name, problem)} for name in kernels}
    shared = set.intersection(*map(set, rows.values()))
    compared = {name: of_kernel[min(shared or of_kernel)] for name, of_kernel in rows.items()}
    if shared and len({row.campaign for row in compared.values()}) > 1:
        return _of_one_campaign(kernels, replace(problem, m=min(shared)), device) or compared
    return compared


def _of_one_campaign(kernels: Collection[str], problem: GemmProblem, device: Device) -> dict[str, Record]:
    """The fastest row of each of `kernels` in the newest campaign that holds all of them; {} if none does."""
    groups: dict[object, dict[str, Record]] = {}
    of_weight = weight_rows(problem.n, problem.k, MODE, device.name)
    process = answering(competing(row for row in of_weight if row.m == problem.m))  # as data/best.csv has it
    wanted = (problem.n, problem.k, problem.m, device.name, MODE, "cold", process)
    for row in store.rows():
        point = (row.n, row.k, row.m, row.device, row.mode, row.weights, row.process)
        if row.kernel in kernels and point == wanted:
            alike = row.campaign, replace(row.point, kernel="", tactic="")  # in all else, whatever a point has
            best = groups.setdefault(alike, {})
            best[row.kernel] = min(best.get(row.kernel, row), row, key=lambda row: row.median_us)
    complete = [best for best in groups.values() if len(best) == len(kernels)]
    return {name: complete[-1][name] for name in kernels} if complete else {}
