"""The weights that decode multiplies by, model by model (data/shapes.csv), and where the data folder is."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from .problem import GemmProblem


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
    folder = Path(os.environ.get("SKINNY_GEMM_DATA") or Path(__file__).resolve().parents[1] / "data")
    if not folder.is_dir():
        raise ValueError(f"No data folder at {folder}: set SKINNY_GEMM_DATA to the data/ of the repository.")
    return folder


def shapes() -> list[Shape]:
    """The catalogue, in the file's order. It also holds shapes that no kernel here takes: their tactics say why."""
    path = data_dir() / "shapes.csv"
    catalogue: list[Shape] = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                problem = GemmProblem(m=1, n=int(row["n"]), k=int(row["k"]))
                catalogue.append(Shape(row["model"], row["parallel"], row["projection"], problem.n, problem.k))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a catalogue of shapes: {error}.") from error
    except KeyError as error:
        raise ValueError(f"{path} has no column {error}.") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}, entry {len(catalogue) + 1} ({row}): {error}") from error
    if not catalogue:
        raise ValueError(f"{path} lists no shape.")
    return catalogue
