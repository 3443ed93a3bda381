"""What the first notebook shows: the environment, and a result beside FP64."""

import html

from ..analysis.errors import error_table
from ..figures import errors
from ..figures.export import provenance


def environment():
    """What is here and what will run the kernels, as a table for a notebook's output."""
    from IPython.display import HTML

    from ..runtime.doctor import doctor

    report = doctor()
    packages = report.pop("packages")
    campaigns = report.pop("campaigns")
    rows = {name.replace("_", " "): value or "none" for name, value in report.items()}
    rows["packages"] = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
    rows["recorded data"] = "; ".join(f"{name} ({where})" for name, where in campaigns.items()) or "no campaign yet"
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td style='text-align:left'><b>{html.escape(str(value))}</b></td></tr>"
        for name, value in rows.items()
    )
    return HTML(f"<table>{cells}</table>")


def compare(out, x, weight):
    """(figure, data, provenance): the errors of `out` `[M, N]` against x @ weight^T in FP64; torch tensors."""
    import numpy as np

    reference = (x.double() @ weight.double().T).cpu().numpy()
    values = out.double().cpu().numpy()
    data = error_table(values, reference)
    relative = float(np.linalg.norm(values - reference) / np.linalg.norm(reference))
    gpu = None
    if out.is_cuda:
        import torch

        gpu = torch.cuda.get_device_name(out.device)
    shape = dict(m=x.shape[0], n=weight.shape[0], k=weight.shape[1])
    facts = provenance("live" if gpu else "interpreter", device=gpu, kernel="warp-splitk", **shape)
    return errors.error_histogram(data, relative), data, facts
