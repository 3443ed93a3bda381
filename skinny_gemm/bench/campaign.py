"""A campaign: every kernel, peer and bound of some problems, measured in one go and kept under data/campaigns.

What is asked for in a quiet and in a busy process is measured in one of each, the quiet one first.

What has been measured survives an interrupt or a crash; `resume` continues from there and skips points that failed.
"""

import functools
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import device as devices
from ..commit import commit
from ..problem import GemmProblem
from ..records import BOUNDS, PROCESSES, Campaign, CampaignWriter, Point
from ..records.store import campaigns_dir
from . import clocks, graphs, peers
from . import process as processes
from .plan import Request, plan
from .task import Compilation, Progress, Task, compile_all
from .worker import LIMIT_S, Failed, Worker

SAVE_EVERY_S = 5.0  #: a crash of the process loses at most this much


class _Late(Exception):
    """The deadline has passed."""


def run_campaign(
    writer: CampaignWriter, tasks: Sequence[Task], worker: Worker,
    compiling: Callable[[Sequence[Task]], AbstractContextManager[Any]] = lambda tasks: Compilation("", ()),
    ceilings: bool = False, deadline: float | None = None, most: int | None = None,
    progress: Progress = lambda what, done, total: None, now: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Measures the tasks whose points `writer` does not have yet; the folder is saved whatever happens.

    `compiling` makes their `Compilation`, which goes on while those that are compiled are measured. Those of a quiet
    process come first; before all, `ceilings` in the state that `worker` is in. A point that fails is recorded in words
    and passed over. Stops early, incomplete, when `now()` passes `deadline`. RuntimeError if `worker` is lost for good.
    Of more than `most` tactics of one kernel for one problem, mode and process, a brief look at each chooses `most`:
    the others are neither measured nor failed, and "screened_out" of the method says what the look gave. A tactic that
    the worker does not have leaves no trace.
    """
    earlier = list(writer.campaign.clocks.get("samples", ()))

    def check_deadline() -> None:
        if deadline is not None and now() > deadline:
            raise _Late

    def measure(task: Task) -> None:
        try:
            if result := worker.measure(task):
                writer.add(task.point, result.samples_us, result.relative_error, result.bytes)
        except (Failed, ValueError) as error:
            writer.fail(task.point, str(error))

    def screen(group: list[Task]) -> None:
        looks: dict[Point, float] = {}
        for task in group:
            check_deadline()
            try:
                look = worker.screen(task)
            except Failed as error:
                writer.fail(task.point, str(error))
                continue
            if look is not None:
                looks[task.point] = look
        slower = sorted(looks, key=looks.__getitem__)[most:]
        screened_out.update({str(point): round(looks[point], 3) for point in slower})
        writer.update(method={**writer.campaign.method, "screened_out": screened_out})

    def save() -> None:
        writer.update(clocks=clocks.summary([*earlier, *worker.clock_samples]))
        writer.save()

    save()
    screened_out: dict[str, float] = dict(writer.campaign.method.get("screened_out", {}))
    try:
        todo = [task for task in tasks if task.point not in writer.done and str(task.point) not in screened_out]
        with suppress(Failed):  # never a reason to lose a campaign
            worker.sample_clocks("before")
        if ceilings and not writer.campaign.ceilings:
            try:
                writer.update(ceilings=worker.ceilings())
            except Failed as error:
                writer.update(method={**writer.campaign.method, "ceilings_failed": str(error)})
        groups: dict[Point, list[Task]] = {}  # tasks that differ in their tactics only
        for task in todo:
            if task.point not in writer.done and task.point.kernel not in BOUNDS:
                groups.setdefault(replace(task.point, tactic=""), []).append(task)
        saved = now()
        with compiling(todo) as compilation:
            for process in PROCESSES:
                here = [task for task in todo if task.point.process == process]
                if here:
                    worker.enter(process)
                for done, task in enumerate(here, 1):
                    check_deadline()
                    group = groups.pop(replace(task.point, tactic=""), [])
                    for member in group or [task]:
                        if member.point not in writer.done and (reason := compilation.wait(member)):
                            writer.fail(member.point, reason)
                    group = [member for member in group if member.point not in writer.done]
                    if most is not None and len(group) > most:
                        screen(group)
                    # It is done if it did not compile.
                    if task.point not in writer.done and str(task.point) not in screened_out:
                        measure(task)
                    progress(f"measure {process}", done, len(here))
                    if now() - saved > SAVE_EVERY_S:
                        save()
                        saved = now()
        with suppress(Failed):
            worker.sample_clocks("after")
        writer.update(complete=True)
    except _Late:  # what is compiled is in the cache
        pass
    finally:
        save()


def bench(
    request: Request, out: str | Path | None = None, resume: bool = False, seconds_budget: float | None = None,
    limit_s: float = LIMIT_S, progress: Progress = lambda what, done, total: None,
) -> Path:  # fmt: skip
    """Runs a campaign on the visible GPU and returns its folder (by default data/campaigns/<date>-<device>-<commit>).

    Of the peers asked for, those that cannot run here are left out. `limit_s`: seconds for one point, then it has
    failed. `resume` continues `out`. After `seconds_budget` (compilation included) it stops, to be resumed. A folder
    that exists is refused otherwise. ValueError for bad arguments and where there is no GPU.
    """
    started = time.monotonic()
    if resume and out is None:
        raise ValueError("To resume, name the campaign's folder as out.")
    if seconds_budget is not None and not seconds_budget > 0:
        raise ValueError(f"The budget is {seconds_budget} seconds, but must be positive.")
    if not limit_s > 0:
        raise ValueError(f"The limit for a point is {limit_s} seconds, but must be positive.")
    gpu = devices.current()
    device = gpu or devices.reference()
    # Planned even without a GPU, so that what is wrong with the arguments is said first.
    tasks, left_out, absent = _planned(request, device)
    if gpu is None:
        raise ValueError("bench measures on a GPU, and no CUDA GPU is visible here.")
    source, dirty = commit()
    date = datetime.now(UTC)
    folder = Path(out) if out else campaigns_dir() / f"{date:%Y-%m-%d}-{device.name}-{source[:7]}"
    if folder.exists() and not resume:
        raise ValueError(f"{folder} exists; records are never overwritten: choose another folder, or resume.")
    seed = secrets.randbits(32)
    # What tells a front from another of the same weight shape; a plain problem is its weight shape.
    fronts = [asdict(problem) for problem in request.problems if type(problem) is not GemmProblem]
    method: dict[str, Any] = dict(
        replays=graphs.REPLAYS, replays_batch=graphs.BATCH, interval_width=graphs.WIDTH, warm_up_replays=graphs.WARM_UP,
        graph_us=graphs.TARGET_US, rotation_over_l2=graphs.COLD_ROTATION, rotation_launches=graphs.COLD_LAUNCHES,
        l2_bytes=device.l2_bytes, limit_s=limit_s, most=request.most, seeds=[seed], left_out=left_out,
        peers_absent=absent,
        fronts=[{name: value for name, value in front.items() if name != "m"} for front in fronts],
        processes={process: processes.MEANINGS[process] for process in request.processes},
    )  # fmt: skip
    shapes = {(task.point.n, task.point.k) for task in tasks}
    with Worker(functools.partial(make_rig, device, shapes, seed), limit_s, tasks[0].point.process) as worker:
        campaign = Campaign(
            id=folder.name, device=device.name, **worker.describe(), commit=source, dirty=dirty, method=method,
            date=date.isoformat(timespec="seconds"), command=shlex.join(["python", "-m", "skinny_gemm", *sys.argv[1:]]),
        )  # fmt: skip
        writer = CampaignWriter(folder, campaign, resume)
        if resume:
            _resumed(writer, campaign)
        deadline = None if seconds_budget is None else started + seconds_budget
        compiling = functools.partial(Compilation, device.arch)
        run_campaign(writer, tasks, worker, compiling, request.bounds, deadline, request.most, progress)
    return folder


def compile_only(
    request: Request, device: devices.Device, progress: Progress = lambda what, done, total: None
) -> tuple[dict[Point, str], list[str]]:
    """Compiles all that `bench` of `request` would compile on `device` into the cache, on a machine without a GPU too.

    Returns why, for each point that does not compile, and a sentence for each problem or peer that is left out.
    ValueError as `bench`.
    """
    tasks, left_out, absent = _planned(request, device)
    wrong = compile_all(device.arch, tasks, progress)
    return wrong, [*left_out, *(f"{peer}: {reason}" for peer, reason in absent.items())]


def _planned(request: Request, device: devices.Device) -> tuple[list[Task], list[str], dict[str, str]]:
    """The plan, without the peers that cannot run here, and why each of those cannot. ValueError if it is empty."""
    reasons = peers.available() if request.peers else {}
    absent = {peer: reason for peer in request.peers if (reason := reasons[peer])}
    tasks, left_out = plan(replace(request, peers=[peer for peer in request.peers if peer not in absent]), device)
    if not tasks:
        reason = left_out[0] if left_out else "no shapes or no Ms given"
        raise ValueError(f"Nothing to measure: {reason.removesuffix('.')}.")
    return tasks, left_out, absent


def make_rig(device: devices.Device, shapes: Iterable[tuple[int, int]], seed: int, process: str) -> Any:
    """The rig of a campaign, made in the measuring process: only that one loads PyTorch."""
    from .rig import Rig

    return Rig(device, shapes, seed, process)


def _resumed(writer: CampaignWriter, campaign: Campaign) -> None:
    """Notes in the campaign of `writer` what the run described by `campaign` adds. ValueError if the fronts differ."""
    earlier = writer.campaign.method
    if earlier.get("fronts", []) != campaign.method["fronts"]:
        raise ValueError(f"Cannot resume {writer.folder}: its --split and --valid were others.")
    boards = dict.fromkeys([*writer.campaign.board.split(), *campaign.board.split()])
    added = {"seeds": [*earlier["seeds"], *campaign.method["seeds"]]}
    added["processes"] = earlier.get("processes", {}) | campaign.method["processes"]
    writer.update(method={**earlier, **added}, board=" ".join(boards))
