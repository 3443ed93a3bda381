"""The problems: one skinny GEMM, and the catalogue of projections that decode runs (data/shapes.csv)."""

import csv
import os
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path

BF16_BYTES = 2  #: x, the weight and the output are BF16


@dataclass(frozen=True)
class GemmProblem:
    """out[m, n] = x[m, k] @ weight[n, k]^T, everything BF16 and row-major. Raises ValueError unless all are >= 1."""

    m: int
    n: int
    k: int

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{field.name} is {value!r}; it must be a positive integer.")
            object.__setattr__(self, field.name, int(value))  # NumPy integers become Python's

    @property
    def weight_bytes(self) -> int:
        return BF16_BYTES * self.n * self.k

    @property
    def x_bytes(self) -> int:
        return BF16_BYTES * self.m * self.k

    @property
    def out_bytes(self) -> int:
        return BF16_BYTES * self.m * self.n

    @property
    def bytes(self) -> int:
        """The least that must move: x and the weight read once, the output written once."""
        return self.weight_bytes + self.x_bytes + self.out_bytes

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Shape:
    """One weight of one model as a GPU of a tensor-parallel group holds it: `n` outputs by `k` inputs."""

    model: str
    parallel: str  #: "TP8": the weight of one of eight ranks; a replicated weight is listed under each
    projection: str
    n: int
    k: int

    @property
    def label(self) -> str:
        return f"{self.model} {self.parallel} {self.projection} {self.n}x{self.k}"


def data_dir() -> Path:
    """The folder of catalogues and campaigns: $SKINNY_GEMM_DATA, or data/ of the repository."""
    override = os.environ.get("SKINNY_GEMM_DATA")
    folder = Path(override) if override else Path(__file__).resolve().parents[1] / "data"
    if not folder.is_dir():
        raise ValueError(f"No data folder at {folder}: set SKINNY_GEMM_DATA to the data/ of the repository.")
    return folder


def shapes() -> list[Shape]:
    """The catalogue, in the file's order. It also holds shapes that no kernel here takes: their tactics say why."""
    path = data_dir() / "shapes.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a catalogue of shapes: {error}.") from error
    if not rows:
        raise ValueError(f"{path} lists no shape.")
    catalogue = []
    for row in rows:
        try:
            problem = GemmProblem(m=1, n=int(row["n"]), k=int(row["k"]))
            catalogue.append(Shape(row["model"], row["parallel"], row["projection"], problem.n, problem.k))
        except KeyError as error:
            raise ValueError(f"{path} has no column {error}.") from error
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path.name}, entry {len(catalogue) + 1} ({row}): {error}") from error
    return catalogue
