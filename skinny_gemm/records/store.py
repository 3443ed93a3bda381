"""Measurements on disk: one folder per campaign under data/campaigns, written once and never changed afterwards.

    <campaign id>/records.csv      one row per measurement, the columns of `COLUMNS`
    <campaign id>/samples.csv.gz   the raw samples of each row, in the same order: microseconds, separated by spaces
    <campaign id>/campaign.json    the GPU, versions, commit, clocks, ceilings and command (`Campaign`)

A row's `kernel` is one of ours ("warp-splitk"), a peer (`PEERS`) or a bound (`BOUNDS`). For a bound `tactic` names the
probe's shape and `m` is 0 where there are no tokens. `mode` is "isolated" (no PDL between launches), "chained" (PDL,
back to back) or "exposed" (what a launch adds to a kernel before it that produces x); `weights` is "cold" (rotating
through more than 5x L2) or "warm". Times are microseconds per launch. The samples of an exposed row are those of
producer and kernel together, then as many of the producer alone; its time is the difference of the two medians. A
kernel of several results has the largest of their errors.

Reading checks every row and names the file and the line that is wrong. What reads one campaign raises that sentence;
what reads all of them leaves the broken one out with a `BrokenCampaign` warning, and `problems` lists the sentences.
"""

import csv
import gzip
import io
import json
import math
import os
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, get_origin

from ..tactics import KERNELS
from .statistics import MINIMUM_SAMPLES, Interval, difference_interval, median_interval

PEERS = ("cublas", "triton", "flashinfer")
BOUNDS = ("stream", "dependency-floor")
MODES = ("isolated", "chained", "exposed")
WEIGHTS = ("cold", "warm")
MOST = 2**53  #: integers from there on are not all exact in a plot
DROP = 0.95  #: a busy SM clock below this part of its highest counts as dropped


@dataclass(frozen=True)
class Point:
    """What is measured once: the key of a record within its campaign."""

    kernel: str
    n: int
    k: int
    m: int
    tactic: str = ""
    mode: str = "chained"
    weights: str = "cold"

    def __str__(self) -> str:
        tactic = f" [{self.tactic}]" if self.tactic else ""
        return f"{self.kernel}{tactic} {self.n}x{self.k} M={self.m} {self.mode} {self.weights}"


@dataclass(frozen=True)
class Record:
    """One row of records.csv."""

    campaign: str
    device: str
    kernel: str
    n: int
    k: int
    m: int
    tactic: str
    mode: str
    weights: str
    median_us: float
    low_us: float  #: low and high end of the median's 95 % interval
    high_us: float
    samples: int
    relative_error: float  #: relative Frobenius error against FP64; NaN for a bound, which computes no product
    bytes: int  #: that one launch must move

    @property
    def is_peer(self) -> bool:
        """Whether this is the time of a peer's kernel."""
        return self.kernel in PEERS

    @property
    def is_bound(self) -> bool:
        """Whether this is the time of a probe, which computes no product."""
        return self.kernel in BOUNDS

    @property
    def is_ours(self) -> bool:
        """Whether this is the time of a kernel of this package."""
        return not (self.is_peer or self.is_bound)

    @property
    def point(self) -> Point:
        """What was measured."""
        return Point(self.kernel, self.n, self.k, self.m, self.tactic, self.mode, self.weights)


COLUMNS = tuple(f.name for f in fields(Record))


def fastest(rows: Iterable[Record]) -> Record | None:
    """The one of `rows` with the least median, the first of equals; None of none."""
    return min(rows, key=lambda row: row.median_us, default=None)


@dataclass(frozen=True)
class Campaign:
    """What one campaign ran on and how; the content of campaign.json."""

    id: str
    device: str  #: catalogue name, such as "h200"
    gpu: str  #: as the driver names it
    driver: str
    cuda: str
    torch: str
    dsl: str
    commit: str
    dirty: bool  #: uncommitted changes in the working tree
    date: str  #: UTC, ISO 8601
    command: str  #: reproduces the campaign
    ceilings: Mapping[str, float] = field(default_factory=dict)  #: measured in this campaign; names as in `device`
    clocks: Mapping[str, Any] = field(default_factory=dict)  #: from NVML; `dropped` flags a slow run
    method: Mapping[str, Any] = field(default_factory=dict)  #: replays, rotation, seeds
    failures: Sequence[Mapping[str, Any]] = ()  #: points that could not be measured, each with its `reason` in words
    complete: bool = False  #: False while it runs, and after an interrupt
    board: str = ""  #: UUID of the GPU, of several after a resume on another one; "" if unknown

    @cached_property
    def slow(self) -> frozenset[tuple[int, int, int]]:
        """The (n, k, m) in whose measuring the SM clock was seen dropped; a bound has m = 0. See `DROP`."""
        busy = [s for s in self.clocks.get("samples", ()) if s.get("when") == "during" and "n" in s]
        least = DROP * max((s["sm_mhz"] for s in busy), default=0)
        return frozenset((s["n"], s["k"], s["m"]) for s in busy if s["sm_mhz"] < least)


def interval_of(mode: str, samples_us: Sequence[float]) -> Interval:
    """The time that a record of `mode` states of its samples, and its 95 % interval."""
    if mode != "exposed":
        return median_interval(samples_us)
    half = len(samples_us) // 2
    return difference_interval(samples_us[:half], samples_us[half:])


class CampaignWriter:
    """Writes one campaign's folder; whole files, atomically, so that a crash loses at most what was not saved.

    A new campaign refuses a folder that exists. `resume=True` continues one that is not complete, and refuses if GPU,
    versions or commit changed since.
    """

    _SAME = ("device", "gpu", "driver", "cuda", "torch", "dsl", "commit", "dirty")

    def __init__(self, folder: Path, campaign: Campaign, resume: bool = False):
        self.folder = Path(folder)
        self.campaign = campaign
        self.rows: list[Record] = []
        self._samples: list[str] = []
        if resume:
            self._resume()
        else:
            try:
                self.folder.mkdir(parents=True)
            except FileExistsError:
                raise ValueError(
                    f"{self.folder} exists; records are never overwritten: choose another folder, or resume."
                ) from None
        #: points that have a row or a recorded failure: a resumed campaign skips them
        self.done = {row.point for row in self.rows} | {failed_point(failure) for failure in self.campaign.failures}

    def _resume(self) -> None:
        earlier = load_campaign(self.folder)
        if earlier.complete:
            raise ValueError(f"{self.folder} is complete; there is nothing to resume.")
        for name in self._SAME:
            if getattr(earlier, name) != getattr(self.campaign, name):
                raise ValueError(
                    f"Cannot resume {self.folder}: its {name} is {getattr(earlier, name)!r}, "
                    f"now it is {getattr(self.campaign, name)!r}."
                )
        self.campaign = earlier
        self.rows = read_rows(self.folder / "records.csv")
        self._samples = _read_samples(self.folder / "samples.csv.gz", len(self.rows))

    def add(self, point: Point, samples_us: Sequence[float], relative_error: float, bytes_moved: int) -> Record:
        """Adds one measurement: at least 6 samples in microseconds per launch, of an exposed one twice as many."""
        interval = interval_of(point.mode, samples_us)
        record = Record(
            campaign=self.campaign.id,
            device=self.campaign.device,
            **asdict(point),
            median_us=round(interval.median, 3),
            low_us=round(interval.low, 3),
            high_us=round(interval.high, 3),
            samples=len(samples_us),
            relative_error=float(f"{relative_error:.3g}"),
            bytes=bytes_moved,
        )
        if reason := _wrong(record):
            raise ValueError(f"{point}: {reason}")
        if point in self.done:
            raise ValueError(f"{point} is already recorded in {self.folder}.")
        self.done.add(point)
        self.rows.append(record)
        self._samples.append(" ".join(f"{sample:.3f}" for sample in samples_us))
        return record

    def fail(self, point: Point, reason: str) -> None:
        """Records in words that `point` could not be measured."""
        self.done.add(point)
        self.update(failures=(*self.campaign.failures, {**asdict(point), "reason": reason}))

    def update(self, **changes) -> None:
        """Replaces fields of the campaign, such as `clocks` or `complete`; `save` writes them."""
        self.campaign = Campaign(**{**_shallow(self.campaign), **changes})

    def save(self) -> None:
        """Writes the three files."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        table.writerows([_cell(getattr(row, name)) for name in COLUMNS] for row in self.rows)
        samples = "samples_us\n" + "".join(line + "\n" for line in self._samples)
        write_whole(self.folder / "samples.csv.gz", gzip.compress(samples.encode(), mtime=0))
        write_whole(self.folder / "records.csv", text.getvalue().encode())
        write_whole(self.folder / "campaign.json", (json.dumps(_shallow(self.campaign), indent=1) + "\n").encode())


class BrokenCampaign(UserWarning):
    """A campaign is left out, since its files are not what they should be."""


def rows(data_dir: str | Path | None = None) -> list[Record]:
    """All records, oldest campaign first; needs no pandas.

    Whoever takes the newest record of a point takes the last one. Those measured at a dropped SM clock therefore come
    before all others: they count where there is no other. `data_dir` holds `campaigns/` (the repository's data/ by
    default). A broken campaign is left out with a warning.
    """
    found = [(is_slow(row, campaign), row) for campaign, rows in _readable(data_dir) for row in rows]
    return [row for _, row in sorted(found, key=lambda pair: not pair[0])]


def is_slow(row: Record, campaign: Campaign) -> bool:
    """Whether `row` was measured while the SM clock had dropped."""
    return (row.n, row.k, row.m) in campaign.slow


def load(data_dir: str | Path | None = None):
    """`rows` as a pandas DataFrame with `COLUMNS`."""
    import pandas

    frame = pandas.DataFrame([vars(row) for row in rows(data_dir)], columns=COLUMNS)
    types = {f.name: {str: "str", int: "int64", float: "float64"}[f.type] for f in fields(Record)}
    return frame.astype({name: kind for name, kind in types.items() if kind != "str"})


def campaigns(data_dir: str | Path | None = None) -> dict[str, Campaign]:
    """The readable campaigns by id, oldest first; a broken one is left out with a warning."""
    return {campaign.id: campaign for campaign, _ in _readable(data_dir)}


def problems(data_dir: str | Path | None = None) -> dict[str, str]:
    """For each broken campaign's id the sentence that names the file, the line and what is wrong; {} if all is well."""
    return _read_all(data_dir)[1]


def check(data_dir: str | Path | None = None) -> None:
    """ValueError with the sentence of `problems` if a campaign is broken: for what must not be made of half of them."""
    for sentence in problems(data_dir).values():
        raise ValueError(sentence)


def samples(campaign: str, data_dir: str | Path | None = None) -> dict[Point, list[float]]:
    """The raw samples of one campaign, microseconds per launch."""
    for folder in _folders(data_dir):
        if folder.name == campaign:
            path, (_, rows) = folder / "samples.csv.gz", _read(folder, _state(folder))
            lines = _read_samples(path, len(rows))
            try:
                return {row.point: [float(s) for s in line.split()] for row, line in zip(rows, lines, strict=True)}
            except ValueError as error:
                raise ValueError(f"{path}: {error}.") from error
    raise ValueError(f"No campaign {campaign!r}; recorded are: {', '.join(campaigns(data_dir)) or 'none'}.")


def read_campaign(folder: Path) -> tuple[Campaign, tuple[Record, ...]]:
    """One campaign and its rows; ValueError names the file, the line and what is wrong."""
    campaign, path = load_campaign(folder), Path(folder) / "records.csv"
    rows = read_rows(path)
    for line, row in enumerate(rows, 2):
        if row.campaign != campaign.id:
            raise ValueError(f"{path}, line {line}: campaign is {row.campaign!r}, but the folder is {campaign.id!r}.")
    return campaign, tuple(rows)


def load_campaign(folder: Path) -> Campaign:
    """The campaign described by `folder`/campaign.json; ValueError names the file and what is wrong."""
    path = Path(folder) / "campaign.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        campaign = Campaign(**{**content, "failures": tuple(content["failures"])})
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path}: {type(error).__name__} {error}.") from error
    if reason := _wrong_campaign(campaign):
        raise ValueError(f"{path}: {reason}")
    if campaign.id != path.parent.name:
        raise ValueError(f"{path}: id is {campaign.id!r}, but must be the folder's name {path.parent.name!r}.")
    return campaign


def read_rows(path: Path) -> list[Record]:
    """The validated rows of one records.csv; ValueError names the file and line of the first bad row."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            table = csv.reader(file)
            header = tuple(next(table, ()))
            if header != COLUMNS:
                raise ValueError(f"{path}, line 1: columns are {', '.join(header)}; they must be {', '.join(COLUMNS)}.")
            rows, seen = [], {}
            for cells in table:
                line = table.line_num
                row = _parse(cells, f"{path}, line {line}")
                if first := seen.get(row.point):
                    raise ValueError(f"{path}, line {line}: {row.point} is already on line {first}.")
                seen[row.point] = line
                rows.append(row)
            return rows
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: {error}.") from error


def _parse(cells: Sequence[str], where: str) -> Record:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{where}: {len(cells)} cells, but there are {len(COLUMNS)} columns.")
    values = {}
    for column, text in zip(fields(Record), cells, strict=True):
        try:
            values[column.name] = math.nan if column.name == "relative_error" and not text else column.type(text)
        except ValueError:
            kind = {int: "an integer", float: "a number"}[column.type]
            raise ValueError(f"{where}: {column.name} is {text!r}, but must be {kind}.") from None
    record = Record(**values)
    if reason := _wrong(record):
        raise ValueError(f"{where}: {reason}")
    return record


def _wrong(row: Record) -> str | None:
    """What breaks the schema in this row, as a sentence."""
    for name in ("campaign", "device", "kernel"):
        if not getattr(row, name):
            return f"{name} is empty."
    for name, allowed in (("mode", MODES), ("weights", WEIGHTS)):
        if getattr(row, name) not in allowed:
            return f"{name} is {getattr(row, name)!r}, but must be one of {', '.join(allowed)}."
    least = {"n": 1, "k": 1, "m": 0 if row.kernel in BOUNDS else 1, "samples": MINIMUM_SAMPLES, "bytes": 1}
    for name, minimum in least.items():
        if not minimum <= getattr(row, name) < MOST:
            return f"{name} is {getattr(row, name)}, but must be at least {minimum} and below 2^53."
    if row.kernel not in (*KERNELS, *PEERS, *BOUNDS):
        return f"kernel is {row.kernel!r}, but must be one of {', '.join((*KERNELS, *PEERS, *BOUNDS))}."
    least_us = -math.inf if row.mode == "exposed" else 0  # the interval of a difference may reach below zero
    if not (least_us < row.low_us <= row.median_us <= row.high_us < math.inf and row.median_us > 0):
        times = f"{row.low_us}, {row.median_us}, {row.high_us}"
        return f"low_us, median_us, high_us are {times}, but must be positive and ascend."
    if not (row.relative_error >= 0 or row.kernel in BOUNDS):
        return f"relative_error is {row.relative_error}, but must be a number of at least 0 for {row.kernel}."
    return None


def _wrong_campaign(campaign: Campaign) -> str | None:
    """What breaks the schema in campaign.json, as a sentence."""
    for column in fields(Campaign):
        value, kind = getattr(campaign, column.name), get_origin(column.type) or column.type
        if not isinstance(value, kind):
            return f"{column.name} is {value!r}, but must be a {kind.__name__}."
    for name, value in campaign.ceilings.items():
        if not isinstance(value, int | float):
            return f"ceiling {name} is {value!r}, but must be a number."
    try:
        for failure in campaign.failures:
            failed_point(failure)
    except (TypeError, KeyError):
        return f"failure {failure!r} does not name a point."
    try:
        _ = campaign.slow
    except (TypeError, KeyError, AttributeError):
        return "the samples of clocks are not such as this program writes."
    return None


def _readable(data_dir: str | Path | None) -> list[tuple[Campaign, tuple[Record, ...]]]:
    """The campaigns that can be read, with a warning for each other one."""
    readable, broken = _read_all(data_dir)
    for sentence in broken.values():
        warnings.warn(sentence, BrokenCampaign, stacklevel=3)
    return readable


def _read_all(data_dir: str | Path | None) -> tuple[list[tuple[Campaign, tuple[Record, ...]]], dict[str, str]]:
    """The readable campaigns with their rows, oldest first, and what is wrong with each other one."""
    readable, broken = [], {}
    for folder in _folders(data_dir):
        try:
            readable.append(_read(folder, _state(folder)))
        except (ValueError, OSError) as error:
            broken[folder.name] = str(error)
    return sorted(readable, key=lambda entry: (entry[0].date, entry[0].id)), broken


def _state(folder: Path) -> tuple:
    """Changes whenever the campaign's files do."""
    files = [folder / name for name in ("campaign.json", "records.csv")]
    return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for file in files if file.exists() for s in [file.stat()])


@lru_cache(maxsize=64)
def _read(folder: Path, state: tuple) -> tuple[Campaign, tuple[Record, ...]]:
    """`read_campaign`, remembered as long as `state` is the same."""
    return read_campaign(folder)


def _folders(data_dir: str | Path | None) -> list[Path]:
    if data_dir is None:
        from ..catalogue import data_dir as default

        data_dir = default()
    root = Path(data_dir) / "campaigns"
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] != ".") if root.is_dir() else []


def _read_samples(path: Path, rows: int) -> list[str]:
    try:
        header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ValueError(f"{path}: {error}.") from error
    if header != "samples_us" or len(lines) < rows:
        raise ValueError(f"{path}: {len(lines)} lines of samples for {rows} rows of records.csv.")
    return lines[:rows]  # a crash between the two writes leaves samples whose rows were not saved


def failed_point(failure: Mapping[str, Any]) -> Point:
    return Point(**{f.name: failure[f.name] for f in fields(Point)})


def _shallow(campaign: Campaign) -> dict[str, Any]:
    return {f.name: getattr(campaign, f.name) for f in fields(Campaign)}


def _cell(value) -> str:
    return "" if isinstance(value, float) and math.isnan(value) else str(value)


def write_whole(path: Path, content: bytes) -> None:
    """Replaces a file whole, so that a reader or a crash never meets half of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        file.write(content)
    try:
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except BaseException:
        os.unlink(file.name)
        raise
