"""Which tactics a sweep tries: the default, a grid pruned by reason, or all.

The grid is a couple of dozen for one problem, for a front up to eighty. What pruning costs is measured by a full sweep:
`pruning` reads it.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

from ..device import Device
from ..problem import GemmProblem
from . import KERNELS, Tactic, tactic_type
from .warp_splitk import MAX_STAGES, TOKEN_TILES, WarpSplitKTactic
from .ws_gemm import WsGemmTactic

STAGES = (2, 4, 6, 8, 12, MAX_STAGES)
K_BLOCKS = (7, 14)  #: of a warp of the weight-stationary GEMM, as near as K allows
CHOICES = ("default", "coarse", "full")
FULL_MOST = 1000  #: tactics of one problem in a full sweep: warp split-K has up to 300, the front kernel thousands
BASELINES = {WsGemmTactic.kernel: (WarpSplitKTactic.kernel,)}  #: what a campaign of a kernel measures beside it


def check(choice: str) -> None:
    """ValueError unless `choice` is one of `CHOICES`."""
    if choice not in CHOICES:
        raise ValueError(f"tactics is {choice!r}, but must be {', '.join(map(repr, CHOICES))} or a list of tactics.")


def select(kernel: str, problem: GemmProblem, device: Device, choice: str | Sequence[Tactic]) -> list[Tactic]:
    """The tactics to measure: of one of `CHOICES`, or the legal ones of a list. ValueError where none is legal.

    "default" is the one; "coarse" adds the pruned grid; "full" is every legal one, the default first, and ValueError
    where they are more than `FULL_MOST`.
    """
    kind = tactic_type(kernel)
    if not isinstance(choice, str):
        legal = [tactic for tactic in choice if tactic.why_not(problem, device) is None]
        if not legal:
            raise ValueError(f"None of the tactics listed can run {problem.n}x{problem.k} at M = {problem.m}.")
        return legal
    check(choice)
    more = []
    default = kind.default(problem, device)
    if choice == "coarse":
        more = coarse(kernel, problem, device)
    elif choice == "full":
        more = kind.enumerate(problem, device)
        if len(more) > FULL_MOST:
            raise ValueError(
                f"{kernel} has {len(more):,} tactics for {problem.n}x{problem.k} at M = {problem.m}, and a full sweep "
                f"takes at most {FULL_MOST:,}: choose 'coarse', or list tactics."
            )
    return list(dict.fromkeys([default, *more]))


def coarse(kernel: str, problem: GemmProblem, device: Device) -> list[Tactic]:
    """The heuristic tactic and those around it, pruned by reason; it does not depend on what was recorded."""
    start = tactic_type(kernel).heuristic(problem, device)
    grid = {WarpSplitKTactic.kernel: _warp_splitk, WsGemmTactic.kernel: _ws_gemm}.get(kernel, _neighbours)
    return list(dict.fromkeys([start, *grid(start, problem, device)]))


def _warp_splitk(start: WarpSplitKTactic, problem: GemmProblem, device: Device) -> list[WarpSplitKTactic]:
    """About a dozen tactics around the heuristic one, for the widest token tile two dozen.

    - Stages decide the bytes in flight, the strongest lever: six depths from 2 to 16 with the start's output tile.
    - The other output tile trades CTAs against reads of x; its best depth differs: shallow, middle and deepest ring.
    - The other K tile, at the stage count with the same bytes and at the deepest: it changes barriers per byte only.
    - Half the token tile doubles the CTAs and is only worth it where the grid is small: two depths. A token tile beyond
      M multiplies rows that do not exist and is left out; below half of M it reads the weights more than twice.
    - The other number of activation loaders matters little: once, at the start.
    - With 32 tokens to a tile time does not follow depth smoothly (2112x7168, M = 32: 9.31, 8.91 and 9.43 us with 6, 7
      and 8 stages of 256; the few depths above cost 5 %): every depth of both K tiles.
    - Left out: other depths in between, since time follows depth smoothly, and two changes at once, since what one
      lever gains hardly depends on the others. A full sweep tells what that costs, see `pruning`.
    """
    other = {"output_tile": {16: 32, 32: 16}, "k_tile": {128: 256, 256: 128}, "b_loader_warps": {1: 2, 2: 1}}

    def flipped(field: str) -> WarpSplitKTactic:
        return replace(start, **{field: other[field][getattr(start, field)]})

    def at(tactic: WarpSplitKTactic, stages: Sequence[int]) -> list[WarpSplitKTactic]:
        """The legal ones of these depths; one that does not fit becomes the deepest that does."""
        deepest = max(
            (s for s in range(1, MAX_STAGES + 1) if replace(tactic, stages=s).why_not(problem, device) is None),
            default=0,
        )
        depths = {min(s, deepest) for s in stages}
        return [t for s in sorted(depths) if (t := replace(tactic, stages=s)).why_not(problem, device) is None]

    covering = next((tile for tile in TOKEN_TILES if tile >= problem.m), TOKEN_TILES[-1])
    tokens = {covering, max(covering // 2, TOKEN_TILES[0])} - {start.token_tile}
    same_bytes = start.stages * start.k_tile // flipped("k_tile").k_tile
    every = range(1, MAX_STAGES + 1) if start.token_tile == TOKEN_TILES[-1] else ()
    return [
        *at(start, (*STAGES, *every)),
        *at(flipped("output_tile"), (4, 8, MAX_STAGES)),
        *at(flipped("k_tile"), (same_bytes, MAX_STAGES, *every)),
        *(tactic for tile in sorted(tokens) for tactic in at(replace(start, token_tile=tile), (4, MAX_STAGES))),
        *at(flipped("b_loader_warps"), (start.stages,)),
    ]


def _ws_gemm(start: WsGemmTactic, problem: GemmProblem, device: Device) -> list[WsGemmTactic]:
    """Thirty to eighty tactics of a front; on H200 the best ones of a wider search were all of this kind.

    - All weights must be resident at once for their loads to run ahead of x: one wave, on at least a fourth of the SMs.
    - Each CTA reads its part of x for all its row tiles, and a launch costs time per CTA: the two widest rt, at most
      a CTA per SM.
    - A warp multiplies about 7 or 14 K blocks: more make a long chain behind the wait, fewer more parts to add up.
    - Weights in registers are at hand: `staged` only as far as they do not fit, which is also the least shared memory.
    - Clusters take token groups, up to four of them: even where one group is all there is, pushing the parts was 0.7 us
      faster than a single pass at M = 1, 1.3 us at M = 32. A single pass is tried with the longer K cut.
    - Chains: one, which takes the fewest registers, or as many as hide the latency of mma.
    """
    tiles = -(-problem.m // 8)
    groups = [tg for tg in (8, 16, 32) if tg // 8 <= tiles <= 4 * (tg // 8)]
    warps: dict[tuple[int, int], set[int]] = {}
    for tactic in WsGemmTactic.enumerate(problem, device):
        warps.setdefault((tactic.rt, tactic.ks), set()).add(tactic.kq)
    found = []
    widest = sorted({rt for rt, _ in warps})[-2:]
    for (rt, ks), allowed in warps.items():
        if rt not in widest:
            continue
        blocks = {WsGemmTactic(rt, kq, ks, 0, 0, 1).blocks(problem): kq for kq in allowed}
        near = sorted({min(blocks, key=lambda b, wanted=wanted: abs(b - wanted)) for wanted in K_BLOCKS})
        cuts = [(kb, tg) for kb in near for tg in groups if ks > 1] + [(near[-1], 0)]
        for kb, tg in cuts:
            some = WsGemmTactic(rt, blocks[kb], ks, 0, tg, 0)
            for ch in sorted({1, some.chains(problem)} if tg else {some.chains(problem)}):
                staged = (replace(some, ch=ch, staged=s) for s in range(kb + 1))
                least = next((t for t in staged if t.why_not(problem, device) is None), None)
                if least and _resident(least, problem, device):
                    found.append(least)
    return found


def _resident(tactic: Tactic, problem: GemmProblem, device: Device) -> bool:
    footprint = tactic.footprint(problem, device)
    return footprint.waves == 1 and device.sms / 4 <= footprint.ctas <= device.sms


def _neighbours(start: Tactic, problem: GemmProblem, device: Device) -> list[Tactic]:
    """For a kernel without a grid of its own: every legal tactic that differs from the heuristic one in one field."""
    choices = KERNELS[start.kernel].choices(problem, device)
    changed = (replace(start, **{f.name: value}) for f in fields(start) for value in choices[f.name])
    return [tactic for tactic in changed if tactic.why_not(problem, device) is None]
