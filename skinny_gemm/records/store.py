"""Measurements on disk: one folder per campaign under data/campaigns, written once and never changed afterwards.

    <campaign id>/records.csv      one row per measurement, the columns of `schema.COLUMNS` (or `EARLIER_COLUMNS`)
    <campaign id>/samples.csv.gz   the raw samples of each row, in the same order: microseconds, separated by spaces;
                                   of an exposed row those of producer and launch together, then those of the producer
    <campaign id>/campaign.json    the GPU, versions, commit, clocks, ceilings and command (`schema.Campaign`)

Reading checks every row. What reads one campaign raises a ValueError that names the file and the line that is wrong;
what reads all of them leaves the broken one out with a `BrokenCampaign` warning, and `problems` lists the sentences.
"""

import csv
import gzip
import io
import json
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import catalogue
from ..files import write_whole
from .schema import (
    COLUMNS,
    EARLIER_COLUMNS,
    TYPES,
    Campaign,
    Point,
    Record,
    check_campaign,
    check_record,
    failed_point,
    is_slow,
)
from .statistics import ExposedSamples, Samples, interval_of

if TYPE_CHECKING:
    import pandas

SAMPLES_HEADER = "samples_us"


class CampaignWriter:
    """Writes a new campaign's folder, or resumes one not complete, on the same GPU and versions; else ValueError."""

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
                cure = "records are never overwritten: choose another folder, or resume"
                raise ValueError(f"{self.folder} exists; {cure}.") from None
        #: points that have a row or a recorded failure: a resumed campaign skips them
        self.done = {row.point for row in self.rows} | {failed_point(failure) for failure in self.campaign.failures}

    def _resume(self) -> None:
        earlier = load_campaign(self.folder)
        if earlier.complete:
            raise ValueError(f"{self.folder} is complete; there is nothing to resume.")
        for name in ("device", "gpu", "driver", "cuda", "torch", "dsl", "commit", "dirty"):
            before, now = getattr(earlier, name), getattr(self.campaign, name)
            if before != now:
                raise ValueError(f"Cannot resume {self.folder}: its {name} is {before!r}, now it is {now!r}.")
        self.campaign = earlier
        self.rows = read_rows(self.folder / "records.csv")
        self._samples = _read_samples(self.folder / "samples.csv.gz", len(self.rows))

    def add(self, point: Point, samples_us: Samples, relative_error: float, bytes_moved: int) -> Record:
        """Adds one measurement: at least 6 samples in microseconds per launch, of an exposed one `ExposedSamples`."""
        if (point.mode == "exposed") != isinstance(samples_us, ExposedSamples):
            raise ValueError(f"{point}: an exposed launch, and no other, has ExposedSamples.")
        values = {f"{name}_us": round(value, 3) for name, value in asdict(interval_of(samples_us)).items()}
        values |= {"samples": len(samples_us), "relative_error": float(f"{relative_error:.3g}"), "bytes": bytes_moved}
        record = Record(self.campaign.id, self.campaign.device, **asdict(point), **values)
        try:
            check_record(record)
        except ValueError as error:
            raise ValueError(f"{point}: {error}.") from None
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

    def update(self, **changes: Any) -> None:
        """Replaces fields of the campaign, such as `clocks` or `complete`; `save` writes them."""
        self.campaign = replace(self.campaign, **changes)

    def save(self) -> None:
        """Writes the three files."""
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in self.rows:
            table.writerow(["" if value != value else value for value in vars(row).values()])  # NaN is empty
        samples = "".join(f"{line}\n" for line in (SAMPLES_HEADER, *self._samples))
        write_whole(self.folder / "samples.csv.gz", gzip.compress(samples.encode(), mtime=0))
        write_whole(self.folder / "records.csv", text.getvalue().encode())
        write_whole(self.folder / "campaign.json", (json.dumps(asdict(self.campaign), indent=1) + "\n").encode())


class BrokenCampaign(UserWarning):
    """A campaign is left out, since its files are not what they should be."""


def rows(data_dir: str | Path | None = None) -> list[Record]:
    """All records, by default the repository's; the last one of a point is the one to go by.

    Those measured at a dropped SM clock come first, then the oldest. A broken campaign is left out with a warning.
    """
    recorded = [(row, campaign) for campaign, rows in _readable(data_dir) for row in rows]
    return [row for row, _ in sorted(recorded, key=lambda entry: not is_slow(*entry))]


def load(data_dir: str | Path | None = None) -> "pandas.DataFrame":
    """`rows` as a pandas DataFrame with `COLUMNS`."""
    import pandas

    frame = pandas.DataFrame([vars(row) for row in rows(data_dir)], columns=COLUMNS)
    return frame.astype({name: kind for name, kind in TYPES.items() if kind is not str})


def campaigns(data_dir: str | Path | None = None) -> dict[str, Campaign]:
    """The readable campaigns by id, oldest first; a broken one is left out with a warning."""
    return {campaign.id: campaign for campaign, _ in _readable(data_dir)}


def problems(data_dir: str | Path | None = None) -> dict[str, str]:
    """For each broken campaign's id the sentence that names the file, the line and what is wrong; {} if all is well."""
    return _read_all(data_dir)[1]


def check() -> None:
    """ValueError with the sentence of `problems` if a campaign is broken: for what must not be made of half of them."""
    for sentence in problems().values():
        raise ValueError(sentence)


def samples(campaign: str, data_dir: str | Path | None = None) -> dict[Point, Samples]:
    """The raw samples of one campaign, microseconds per launch."""
    folder = campaigns_dir(data_dir) / campaign
    if folder not in _folders(data_dir):
        raise ValueError(f"No campaign {campaign!r}; recorded are: {', '.join(campaigns(data_dir)) or 'none'}.")
    path, (_, rows) = folder / "samples.csv.gz", _read(folder, _state(folder))
    lines = _read_samples(path, len(rows))
    recorded: dict[Point, Samples] = {}
    with _reading(path):
        for row, line in zip(rows, lines, strict=True):
            values = [float(text) for text in line.split()]
            half = len(values) // 2
            recorded[row.point] = ExposedSamples(values[:half], values[half:]) if row.mode == "exposed" else values
    return recorded


def campaigns_dir(data_dir: str | Path | None = None) -> Path:
    """The folder of all campaigns, of the repository by default."""
    return (catalogue.data_dir() if data_dir is None else Path(data_dir)) / "campaigns"


def campaign_folder(name: str | Path) -> Path:
    """The folder of a campaign, named by its id under data/campaigns or by its path; ValueError lists the known ids."""
    for folder in (campaigns_dir() / name, Path(name)):
        if folder.is_dir():
            return folder
    known = ", ".join(folder.name for folder in _folders(None))
    raise ValueError(f"There is no campaign {str(name)!r}: recorded are {known or 'none'}.")


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
    with _reading(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        campaign = Campaign(**{**content, "failures": tuple(content["failures"])})
        check_campaign(campaign)
    if campaign.id != path.parent.name:
        raise ValueError(f"{path}: id is {campaign.id!r}, but must be the folder's name {path.parent.name!r}.")
    return campaign


def read_rows(path: Path) -> list[Record]:
    """The validated rows of one records.csv; ValueError names the file and line of the first bad row."""
    with _reading(path), open(path, newline="", encoding="utf-8") as file:
        table = csv.reader(file)
        (_, header), *lines = [(table.line_num, tuple(cells)) for cells in table] or [(1, ())]
    if header not in (COLUMNS, EARLIER_COLUMNS):
        raise ValueError(f"{path}, line 1: columns are {', '.join(header)}; they must be {', '.join(COLUMNS)}.")
    rows: list[Record] = []
    seen: dict[Point, int] = {}
    for line, cells in lines:
        try:
            row = _parse_row(header, cells)
            if row.point in seen:
                raise ValueError(f"{row.point} is already on line {seen[row.point]}")
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: {error}.") from None
        seen[row.point] = line
        rows.append(row)
    return rows


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever goes wrong in reading a file becomes a ValueError that names it."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"{path} is missing.") from None
    except (OSError, EOFError, ValueError, TypeError, KeyError, RecursionError, csv.Error, zlib.error) as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__} "
        raise ValueError(f"{path}: {kind}{error}.") from error


def _parse_row(columns: Sequence[str], cells: Sequence[str]) -> Record:
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} cells, but there are {len(columns)} columns")
    values: dict[str, Any] = {}
    for name, text in zip(columns, cells, strict=True):
        kind = TYPES[name]
        try:
            values[name] = math.nan if name == "relative_error" and not text else kind(text)
        except ValueError:
            words = {int: "an integer", float: "a number"}[kind]
            raise ValueError(f"{name} is {text!r}, but must be {words}") from None
    record = Record(**values)
    check_record(record)
    return record


def _readable(data_dir: str | Path | None) -> list[tuple[Campaign, tuple[Record, ...]]]:
    """What of `_read_all` could be read, with a warning for each campaign that could not."""
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
    root = campaigns_dir(data_dir)
    return sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] != ".") if root.is_dir() else []


def _read_samples(path: Path, rows: int) -> list[str]:
    with _reading(path):
        header, *lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    if header != SAMPLES_HEADER or len(lines) < rows:
        raise ValueError(f"{path}: {len(lines)} lines of samples for {rows} rows of records.csv.")
    return lines[:rows]  # a crash between the two writes leaves samples whose rows were not saved
