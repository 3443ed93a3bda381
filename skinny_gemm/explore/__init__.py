"""Explorers: ipywidgets around the functions in `skinny_gemm.figures`. Each draws itself when a cell ends with it."""

from importlib import import_module

_NAMES = {
    "balanced_splitk": "ScatterExplorer WarpRingExplorer WavesExplorer WgmmaStageExplorer",
    "base": "export_dir shown",
    "cells": "broken_ring broken_settle compare_with_fp64 conflicts environment show show_verdicts without_barriers",
    "mailbox": "MailboxExplorer error_of",
    "review": "ReviewExplorer",
    "run": "RunExplorer",
    "tactic": "TacticExplorer",
    "warp_splitk": "PipelineExplorer SwizzleExplorer",
    "ws_gemm": "ExposureExplorer GatherExplorer PitchExplorer SettleExplorer WeightStationaryExplorer",
}
_MODULES = {name: f".{module}" for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name in _MODULES:
        return getattr(import_module(_MODULES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
