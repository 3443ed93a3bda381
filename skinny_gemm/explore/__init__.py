"""Explorers: ipywidgets around the functions in `skinny_gemm.figures`. Each draws itself when a cell ends with it."""

from importlib import import_module

_EXPORTS = {
    "ExposureExplorer": ".weights",
    "GatherExplorer": ".gather",
    "PitchExplorer": ".settle",
    "MailboxExplorer": ".mailbox",
    "PipelineExplorer": ".pipeline",
    "ReviewExplorer": ".review",
    "RunExplorer": ".run",
    "SettleExplorer": ".settle",
    "SwizzleExplorer": ".swizzle",
    "TacticExplorer": ".tactic",
    "WeightStationaryExplorer": ".weights",
    "broken_settle": ".mutants",
    "compare_with_fp64": ".start",
    "conflicts": ".bank_conflicts",
    "environment": ".start",
    "error_of": ".mailbox",
    "export_dir": ".places",
    "show": ".pictures",
    "show_verdicts": ".mutants",
    "shown": ".base",
    "without_barriers": ".mutants",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str):
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
