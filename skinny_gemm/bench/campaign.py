"""A campaign: every kernel, peer and bound of some problems, measured in one go and kept under data/campaigns.

`plan` lists the points, `run_campaign` measures them, `bench` is the front door with plain arguments. What has been
measured survives an interrupt or a crash; `resume` continues from there and skips points that failed. Points are
measured in a process of its own (`worker`), so that one that hangs or crashes costs nothing but itself.
"""

import functools
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from ..device import Device
from ..problem import GemmProblem
from ..records import MODES, PEERS, WEIGHTS, Campaign, CampaignWriter, Point
from ..tactics import Tactic, sweep, tactic_type
from . import clocks, graphs
from .machine import Machine, Progress, compile_all
from .worker import LIMIT_S, Failed, Worker

MS = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_MODES = ("isolated", "chained")
SAVE_EVERY_S = 5.0  #: a crash of the process loses at most this much
DEFAULT_ONLY = ":default"  #: behind a mode
COMMIT_VARIABLE = "SKINNY_GEMM_COMMIT"  #: commit of a tree that came without its git: a hash, "-dirty" behind it or not


def plan(
    kernel: str,
    shapes: Iterable[tuple[int, int]],
    ms: Iterable[int],
    device: Device,
    tactics: str | Sequence[str] = "default",
    modes: Sequence[str] = DEFAULT_MODES,
    peers: Sequence[str] = (),
    bounds: bool = False,
    weights: str = "cold",
) -> tuple[list[Point], list[str]]:
    """The points to measure, shape by shape, and one sentence for each problem that a kernel or peer cannot take.

    Beside `kernel` stand its baselines (`Tactic.baselines`) at their default tactics, then the peers. `shapes` are
    (N, K) pairs; duplicates count once. A mode written "isolated:default" is measured with the default tactic only.
    ValueError for an unknown kernel, mode, peer or tactic choice.
    """
    of_default = {mode.removesuffix(DEFAULT_ONLY) for mode in modes if mode.endswith(DEFAULT_ONLY)}
    modes = list(dict.fromkeys(mode.removesuffix(DEFAULT_ONLY) for mode in modes))
    for name, values, allowed in (("mode", modes, MODES), ("peer", peers, PEERS), ("weights", [weights], WEIGHTS)):
        if unknown := set(values) - set(allowed):
            raise ValueError(f"{name} is {sorted(unknown)[0]!r}, but must be one of {', '.join(allowed)}.")
    kind = tactic_type(kernel)
    choice: str | list[Tactic] = tactics if isinstance(tactics, str) else [kind.parse(text) for text in tactics]
    if isinstance(choice, str):
        sweep.check(choice)
    points, left_out = [], []
    for n, k in dict.fromkeys(shapes):
        ours = []
        for m in dict.fromkeys(ms):
            problem = GemmProblem(m, n, k)
            try:
                chosen = {mode: sweep.select(kernel, problem, device, choice) for mode in set(modes) - of_default}
                chosen |= {mode: sweep.select(kernel, problem, device, "default") for mode in of_default}
            except ValueError as error:
                left_out.append(f"{n}x{k} M={m}: {error}")
                continue
            ours += [Point(kernel, n, k, m, str(tactic), mode, weights) for mode in modes for tactic in chosen[mode]]
            for name in (*kind.baselines, *peers):
                try:
                    theirs = _rival_tactics(name, problem, device)
                    ours += [Point(name, n, k, m, str(tactic), mode, weights) for tactic in theirs for mode in modes]
                except ValueError as error:
                    left_out.append(f"{name} {n}x{k} M={m}: {error}")
        if ours and bounds:
            points += _bound_points(n, k, modes, weights)
        points += ours
    return points, left_out


class _Late(Exception):
    """The deadline passed while compiling."""


def run_campaign(
    writer: CampaignWriter,
    points: Sequence[Point],
    machine: Worker,
    prepare: Callable[[Sequence[Point], Progress], Mapping[Point, str]] = lambda points, progress: {},
    ceilings: bool = False,
    deadline: float | None = None,
    progress: Progress = lambda what, done, total: None,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Measures the points that `writer` does not have yet; the folder is saved whatever happens.

    `prepare` compiles points and returns why, for each that cannot be. A point that fails is recorded in words and
    passed over. Stops early, incomplete, when `now()` passes `deadline`. RuntimeError if `machine` is lost for good.
    """
    earlier = list(writer.campaign.clocks.get("samples", ()))

    def late() -> bool:
        return deadline is not None and now() > deadline

    def compiling(what: str, done: int, total: int) -> None:
        progress(what, done, total)
        if late():
            raise _Late

    def save() -> None:
        writer.update(clocks=clocks.summary([*earlier, *machine.clock_samples]))
        writer.save()

    save()
    try:
        todo = [point for point in points if point not in writer.done]
        for point, reason in prepare(todo, compiling).items():
            writer.fail(point, reason)
        _sample_clocks(machine, "before")
        if ceilings and not writer.campaign.ceilings:
            _ceilings(writer, machine)
        saved = now()
        for done, point in enumerate(todo, 1):
            if late():
                return
            if point not in writer.done:
                _measure(writer, point, machine)
            progress("measure", done, len(todo))
            if now() - saved > SAVE_EVERY_S:
                save()
                saved = now()
        _sample_clocks(machine, "after")
        writer.update(complete=True)
    except _Late:  # what is compiled is in the cache
        pass
    finally:
        save()


def bench(
    kernel: str,
    shapes: Iterable[tuple[int, int]],
    ms: Iterable[int] = MS,
    tactics: str | Sequence[str] = "default",
    modes: Sequence[str] = DEFAULT_MODES,
    out: str | Path | None = None,
    peers: bool | Sequence[str] = True,
    bounds: bool = True,
    weights: str = "cold",
    resume: bool = False,
    seconds_budget: float | None = None,
    replays: int = graphs.REPLAYS,
    limit_s: float = LIMIT_S,
    progress: bool = True,
    fronts: Mapping[tuple[int, int], GemmProblem] | None = None,
) -> Path:
    """Runs a campaign on the visible GPU and returns its folder (by default data/campaigns/<date>-<device>-<commit>).

    `shapes`: (N, K) pairs. `tactics`: "default", "coarse", "full" (see `sweep`) or a list of tactics as text. `peers`:
    all that can run here, none, or the ones named. `bounds`: also the streaming bound, the dependency floor and the
    ceilings. `weights`: "cold" (rotating through more than 5x L2) or "warm" (one copy). `modes`: of "isolated",
    "chained" and "exposed", see `plan`. `limit_s`: seconds for one point, then it has failed. `fronts` maps (N, K) to
    what a weight is where its shape does not tell (a `FrontProblem` of any M); it is kept in campaign.json.
    `resume` continues `out`. After `seconds_budget` (compilation included) it stops, to be resumed. A folder that
    exists is refused otherwise. ValueError for bad arguments and where there is no GPU.
    """
    from .. import device as devices

    started = time.monotonic()
    if resume and out is None:
        raise ValueError("To resume, name the campaign's folder as out.")
    if seconds_budget is not None and not seconds_budget > 0:
        raise ValueError(f"The budget is {seconds_budget} seconds, but must be positive.")
    if not limit_s > 0:
        raise ValueError(f"The limit for a point is {limit_s} seconds, but must be positive.")
    gpu = devices.current()
    shapes, ms = list(dict.fromkeys(shapes)), list(ms)
    names, absent = _peers(peers)
    # Planned even without a GPU, so that what is wrong with the arguments is said first.
    device = gpu or devices.get("h200")
    points, left_out = plan(kernel, shapes, ms, device, tactics, modes, names, bounds, weights)
    if not points:
        reason = left_out[0] if left_out else "no shapes or no Ms given"
        raise ValueError(f"Nothing to measure: {reason.removesuffix('.')}.")
    if gpu is None:
        raise ValueError("bench measures on a GPU, and no CUDA GPU is visible here.")
    commit, dirty = git_commit()
    date = datetime.now(UTC)
    folder = Path(out) if out else _campaigns_dir() / f"{date:%Y-%m-%d}-{device.name}-{commit[:7]}"
    if folder.exists() and not resume:
        raise ValueError(f"{folder} exists; records are never overwritten: choose another folder, or resume.")
    seed = secrets.randbits(32)
    make = functools.partial(Machine, device, {(p.n, p.k) for p in points}, seed, replays, fronts=fronts)
    method = {
        "replays": replays,
        "replays_batch": graphs.BATCH,
        "interval_width": graphs.WIDTH,
        "warm_up_replays": graphs.WARM_UP,
        "graph_us": graphs.TARGET_US,
        "rotation_over_l2": graphs.COLD_ROTATION,
        "rotation_launches": graphs.COLD_LAUNCHES,
        "l2_bytes": device.l2_bytes,
        "limit_s": limit_s,
        "seeds": [seed],
        "left_out": left_out,
        "peers_absent": absent,
        "fronts": [_front(problem) for problem in (fronts or {}).values()],
    }
    with Worker(make, limit_s) as machine:
        campaign = Campaign(
            id=folder.name,
            device=device.name,
            **machine.describe(),
            commit=commit,
            dirty=dirty,
            date=date.isoformat(timespec="seconds"),
            command=shlex.join(["python", "-m", "skinny_gemm", *sys.argv[1:]]),
            method=method,
        )
        writer = CampaignWriter(folder, campaign, resume)
        if resume:
            earlier = writer.campaign.method
            if earlier.get("fronts", []) != method["fronts"]:
                raise ValueError(f"Cannot resume {folder}: its --split and --valid were others.")
            boards = dict.fromkeys([*writer.campaign.board.split(), *campaign.board.split()])
            writer.update(method={**earlier, "seeds": [*earlier["seeds"], seed]}, board=" ".join(boards))
        deadline = None if seconds_budget is None else started + seconds_budget
        prepare = functools.partial(compile_all, device.arch, fronts)
        with _reporter(progress) as report:
            run_campaign(writer, points, machine, prepare, bounds, deadline, report)
    return folder


def git_commit() -> tuple[str, bool]:
    """The commit of the source and whether the working tree differs from it; $SKINNY_GEMM_COMMIT overrides git."""
    if given := os.environ.get(COMMIT_VARIABLE):
        return given.removesuffix("-dirty"), given.endswith("-dirty")

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain"))
    except (OSError, subprocess.SubprocessError):
        return "unknown", True


def _measure(writer: CampaignWriter, point: Point, machine: Worker) -> None:
    try:
        result = machine.measure(point)
        writer.add(point, result.samples_us, result.relative_error, result.bytes)
    except (Failed, ValueError) as error:
        writer.fail(point, str(error))


def _ceilings(writer: CampaignWriter, machine: Worker) -> None:
    try:
        writer.update(ceilings=machine.ceilings())
    except Failed as error:
        writer.update(method={**writer.campaign.method, "ceilings_failed": str(error)})


def _sample_clocks(machine: Worker, when: str) -> None:
    with suppress(Failed):  # never a reason to lose a campaign
        machine.sample_clocks(when)


def _bound_points(n: int, k: int, modes: Sequence[str], weights: str) -> list[Point]:
    from . import bounds

    timed = [mode for mode in modes if mode != "exposed"]
    streams = [Point("stream", n, k, 0, str(ring), mode, weights) for ring in bounds.RINGS for mode in timed]
    floors = [Point("dependency-floor", n, k, 1, str(ctas), "chained", weights) for ctas in bounds.floor_ctas(n)]
    return streams + (floors if "chained" in modes else [])


def _peers(wanted: bool | Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The peers to measure, and why the others of those wanted cannot run."""
    from . import peers

    if wanted is False:
        return [], {}
    reasons = peers.available()
    names = list(reasons) if wanted is True else list(wanted)
    return [p for p in names if reasons.get(p) is None], {p: reasons[p] for p in names if reasons.get(p)}


def _rival_tactics(name: str, problem: GemmProblem, device: Device) -> list:
    """What to measure of a peer or a baseline. ValueError in words where it cannot take `problem`."""
    from . import peers

    return peers.tactics(name, problem) if name in PEERS else sweep.select(name, problem, device, "default")


def _front(problem: GemmProblem) -> dict[str, int]:
    """What tells a front from another of the same weight shape."""
    return {name: value for name, value in asdict(problem).items() if name != "m"}


def _campaigns_dir() -> Path:
    from ..catalogue import data_dir

    return data_dir() / "campaigns"


@contextmanager
def _reporter(wanted: bool):
    """A progress function: bars on a terminal, a line now and then on anything else."""
    if not wanted:
        yield lambda what, done, total: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True)) as bars:
            tasks = {}

            def show(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = bars.add_task(what, total=total)
                bars.update(tasks[what], completed=done)

            yield show
    else:
        started = time.monotonic()

        def line(what: str, done: int, total: int) -> None:
            if done == total or done % max(1, total // 20) == 0:
                print(f"{time.monotonic() - started:6.1f} s  {what} {done}/{total}", file=sys.stderr, flush=True)

        yield line
