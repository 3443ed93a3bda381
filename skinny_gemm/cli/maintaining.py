"""What is made from the records and committed beside them: `defaults` (data/best.csv) and `fit` (data/model.json)."""

from dataclasses import asdict

import click

from . import options


@click.command()
@options.json_switch
def defaults(as_json: bool) -> None:
    """Write data/best.csv, the default tactics, anew from the records."""
    from ..records.best import write_defaults

    path = write_defaults()
    options.show(as_json, {"file": str(path)}, f"wrote {path}")


@click.command()
@click.option("--show", "only_show", is_flag=True, help="Print the model that is there instead, and its error.")
@options.json_switch
def fit(only_show: bool, as_json: bool) -> None:
    """Fit the performance model to the records and write it to data/model.json."""
    from ..records import fit, model

    if only_show:
        fits = [{"kernel": kernel, "mode": mode, **asdict(found)} for (kernel, mode), found in model.fits().items()]
        options.show(as_json, fits, "\n".join(fit.lines()))
    else:
        path = fit.write_fit()
        options.show(as_json, {"file": str(path)}, f"wrote {path}")
