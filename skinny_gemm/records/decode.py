"""Recorded decode steps, with our kernels and with PyTorch's linear: files in data/decode, each written once.

{"campaign": the GPU, versions, commit, clocks and command, as in campaign.json, "steps": a list of `Step`}
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from .. import catalogue
from ..checks import check_integer
from ..files import write_whole
from .schema import Campaign, check_campaign
from .statistics import Interval, median_interval, verdict

VARIANTS = ("torch", "skinny_gemm")  #: what is compared with, and ours
METHOD = {"model", "parallel", "layers", "weight_bytes"}  #: what `Campaign.method` says of the step, at the least


@dataclass(frozen=True)
class Step:
    """One variant's decode step for M tokens."""

    m: int
    variant: str  #: of `VARIANTS`
    samples_us: Sequence[float]  #: microseconds of a step, one sample a replay of its graph
    relative_error: float  #: relative Frobenius error against FP64, of the worst of the step's results
    difference: float  #: the same against PyTorch's results; 0 of PyTorch's own
    tactics: Mapping[str, str] = field(default_factory=dict)  #: of ours: projection to kernel and tactic

    @cached_property
    def interval(self) -> Interval:
        """The median time and its 95 % interval, microseconds."""
        return median_interval(self.samples_us)

    @property
    def low_us(self) -> float:
        return self.interval.low

    @property
    def high_us(self) -> float:
        return self.interval.high


def folder() -> Path:
    """Where the runs are, unless they were written elsewhere."""
    return catalogue.data_dir() / "decode"


def write(path: Path, campaign: Campaign, steps: Sequence[Step]) -> Path:
    """Writes a run; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(asdict(step)) for step in steps)  # a line each
    text = f'{{"campaign": {json.dumps(asdict(campaign), indent=1)},\n"steps": [\n{rows}\n]}}\n'
    return write_whole(path, text.encode())


def read(path: Path) -> tuple[Campaign, list[Step]]:
    """A run; ValueError names the file and what of it is wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        campaign = Campaign(**{**content["campaign"], "failures": tuple(content["campaign"]["failures"])})
        check_campaign(campaign)
        if missing := METHOD - campaign.method.keys():
            raise ValueError(f"method lacks {', '.join(sorted(missing))}")
        steps = [Step(**step) for step in content["steps"]]
        ms = [step.m for step in steps[::2]]
        if not ms or [(step.m, step.variant) for step in steps] != [(m, name) for m in ms for name in VARIANTS]:
            raise ValueError(f"the steps are not, for each M, one of {' and one of '.join(VARIANTS)}")
        for step in steps:
            check_integer("m", step.m, 1)
            if step.interval.low <= 0:  # raises too if the samples are too few, or no numbers
                raise ValueError(f"samples_us of {step.variant} at M = {step.m} are not positive")
        if campaign.id != path.stem:
            raise ValueError(f"id is {campaign.id!r}, but must be the file's name {path.stem!r}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is not a recorded decode step: {error}.") from error
    return campaign, steps


def find(name: str | Path) -> Path:
    """The file of a run, named by its id in data/decode or by its path; ValueError lists the known ids."""
    for path in (folder() / f"{name}.json", Path(name)):
        if path.is_file():
            return path
    known = ", ".join(path.stem for path in sorted(folder().glob("*.json")))
    raise ValueError(f"There is no decode step {str(name)!r}: recorded are {known or 'none'}.")


def lines(campaign: Campaign, steps: Sequence[Step]) -> list[str]:
    """A run as text: what was measured where, then for each M both variants, speed-up, verdict and errors."""
    method, versions = campaign.method, f"driver {campaign.driver}, CUDA {campaign.cuda}, PyTorch {campaign.torch}"
    layers = f"{method['layers']} layers, {method['weight_bytes'] / 1e9:.1f} GB of weights"
    clocks = {name: value for name, value in campaign.clocks.items() if name != "samples"}
    table = [
        f"{campaign.id}: {campaign.gpu}, {versions}, {campaign.commit}{' with changes' if campaign.dirty else ''}",
        f"clocks: {clocks}",
        f"{method['model']} {method['parallel']}, {layers}: microseconds a step, and errors against FP64",
        f"{'M':>3} {'torch':>9} {'ours':>9} {'speed-up':>8}  {'verdict':9} {'torch':>7} {'ours':>7} {'apart':>7}",
    ]
    for theirs, ours in zip(steps[::2], steps[1::2], strict=True):
        times = theirs.interval.median, ours.interval.median
        errors = theirs.relative_error, ours.relative_error, ours.difference
        text = f"{ours.m:3} {times[0]:9.1f} {times[1]:9.1f} {times[0] / times[1]:8.3f}  {verdict(ours, theirs):9}"
        table.append(text + "".join(f" {error:7.1e}" for error in errors))
    return table
