"""What the first notebook shows: the environment, and a result beside FP64."""

from typing import Any

from ..analysis.performance import error_table
from ..figures.charts import error_histogram
from ..figures.export import provenance
from ..runtime.trials import relative_error
from ..tactics import WarpSplitKTactic
from . import markup
from .base import Shown


def environment() -> Any:
    """What is here and what will run the kernels, as a table for a notebook's output."""
    from IPython.display import HTML

    from ..runtime.doctor import doctor

    report = doctor()
    packages = report.pop("packages")
    campaigns = report.pop("campaigns")
    rows = {name.replace("_", " "): value or "none" for name, value in report.items()}
    rows["packages"] = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
    rows["recorded data"] = "; ".join(f"{name} ({where})" for name, where in campaigns.items()) or "no campaign yet"
    return HTML(markup.facts(rows))


def compare_with_fp64(out: Any, x: Any, weight: Any) -> Shown:
    """The errors of `out` `[M, N]` against x `[M, K]` @ weight `[N, K]`^T in FP64; torch tensors."""
    reference = (x.double() @ weight.double().T).cpu().numpy()
    values = out.double().cpu().numpy()
    data = error_table(values, reference)
    gpu = None
    if out.is_cuda:
        import torch

        gpu = torch.cuda.get_device_name(out.device)
    shape = dict(m=x.shape[0], n=weight.shape[0], k=weight.shape[1])
    facts = provenance("live" if gpu else "interpreter", device=gpu, kernel=WarpSplitKTactic.kernel, **shape)
    return error_histogram(data, relative_error(values, reference)), data, facts
