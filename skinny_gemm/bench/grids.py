"""Which tactics a sweep tries: pruned by reason, a couple of dozen at most for one problem."""

from collections.abc import Sequence
from dataclasses import fields, replace

from ..device import Device
from ..problem import GemmProblem
from ..tactics import KERNELS, Tactic, tactic_type
from ..tactics.warp_splitk import MAX_STAGES, TOKEN_TILES, WarpSplitKTactic

STAGES = (2, 4, 6, 8, 12, MAX_STAGES)


def select(kernel: str, problem: GemmProblem, device: Device, choice: str | Sequence[Tactic]) -> list[Tactic]:
    """The tactics to measure: "default", "coarse", or the legal ones of a list. ValueError where none is legal."""
    default = tactic_type(kernel).default(problem, device)
    if choice == "default":
        return [default]
    if choice == "coarse":
        grid = _warp_splitk if kernel == WarpSplitKTactic.kernel else _neighbours
        return list(dict.fromkeys([default, *grid(default, problem, device)]))
    if isinstance(choice, str):
        raise ValueError(f"tactics is {choice!r}, but must be 'default', 'coarse' or a list of tactics.")
    legal = [tactic for tactic in choice if tactic.why_not(problem, device) is None]
    if not legal:
        raise ValueError(f"None of the tactics listed can run {problem.n}x{problem.k} at M = {problem.m}.")
    return legal


def _warp_splitk(default: WarpSplitKTactic, problem: GemmProblem, device: Device) -> list[WarpSplitKTactic]:
    """About a dozen tactics around the default.

    - Stages decide the bytes in flight, the strongest lever: six depths from 2 to 16 with the default's output tile.
    - The other output tile trades CTAs against reads of x; its best depth differs: shallow, middle and deepest ring.
    - The other K tile, at the stage count with the same bytes and at the deepest: it changes barriers per byte only.
    - Half the token tile doubles the CTAs and is only worth it where the grid is small: two depths. A token tile beyond
      M multiplies rows that do not exist and is left out; below half of M it reads the weights more than twice.
    - The other number of activation loaders matters little: once, at the default.
    """
    other = {"output_tile": {16: 32, 32: 16}, "k_tile": {128: 256, 256: 128}, "b_loader_warps": {1: 2, 2: 1}}

    def flipped(field: str) -> WarpSplitKTactic:
        return replace(default, **{field: other[field][getattr(default, field)]})

    def at(tactic: WarpSplitKTactic, stages: Sequence[int]) -> list[WarpSplitKTactic]:
        """The legal ones of these depths; one that does not fit becomes the deepest that does."""
        deepest = max(
            (s for s in range(1, MAX_STAGES + 1) if replace(tactic, stages=s).why_not(problem, device) is None),
            default=0,
        )
        depths = {min(s, deepest) for s in stages}
        return [t for s in sorted(depths) if (t := replace(tactic, stages=s)).why_not(problem, device) is None]

    covering = next((tile for tile in TOKEN_TILES if tile >= problem.m), TOKEN_TILES[-1])
    tokens = {covering, max(covering // 2, TOKEN_TILES[0])} - {default.token_tile}
    same_bytes = default.stages * default.k_tile // flipped("k_tile").k_tile
    return [
        *at(default, STAGES),
        *at(flipped("output_tile"), (4, 8, MAX_STAGES)),
        *at(flipped("k_tile"), (same_bytes, MAX_STAGES)),
        *(tactic for tile in sorted(tokens) for tactic in at(replace(default, token_tile=tile), (4, MAX_STAGES))),
        *at(flipped("b_loader_warps"), (default.stages,)),
    ]


def _neighbours(default: Tactic, problem: GemmProblem, device: Device) -> list[Tactic]:
    """For a kernel without a grid of its own: every legal tactic that differs from the default in one field."""
    choices = KERNELS[default.kernel].choices(problem, device)
    changed = (replace(default, **{f.name: value}) for f in fields(default) for value in choices[f.name])
    return [tactic for tactic in changed if tactic.why_not(problem, device) is None]
