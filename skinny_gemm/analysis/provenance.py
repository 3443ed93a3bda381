"""Where numbers come from: the facts that go with every figure and table, and one line of them for people."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from ..checks import check_choice
from ..commit import commit
from ..records import Campaign

SOURCES = ("recorded", "live", "interpreter", "model")


def short(commit: str, changed: bool) -> str:
    """A commit as figures name it: eight characters, and "+" where there were uncommitted changes."""
    return commit[:8] + "+" * changed


def commit_of(campaign: Campaign) -> str:
    """The commit that the campaign measured, as `short` has it."""
    return short(campaign.commit, campaign.dirty)


@cache
def drawn_at() -> str:
    """The commit of this working tree, as `short` has it; "unknown" outside a repository."""
    name, changed = commit(untracked=False)
    return short(name, changed and name != "unknown")


def state_named(process: str) -> str | None:
    """The state of the process as figures name it: only if it is busy, what was measured before was all quiet."""
    return process if process == "busy" else None


def provenance(source: str, **facts: Any) -> dict[str, Any]:
    """Where a figure's numbers come from: `source` is recorded, live, interpreter or model, else ValueError.

    `facts` are device, campaign, commit (of the campaign, else this working tree's), launches, process, kernel, n, k,
    m, tactic; None ones drop.
    """
    check_choice("source", source, SOURCES)
    return {"source": source, "commit": drawn_at()} | {k: v for k, v in facts.items() if v is not None}


def one_line(facts: Mapping[str, Any]) -> str:
    """The footer: device, source and campaign, kernel and tactic, shape, commit, as far as known."""
    process = "process" in facts and f"{facts['process']} process"
    source = [facts.get("source"), facts.get("launches"), process, facts.get("schedule")]
    if "campaign" in facts:
        others = len(facts.get("campaigns", ())) - 1
        source.append(f"campaign {facts['campaign']}" + (f" and {others} more" if others > 0 else ""))
    if facts.get("live_points") and facts["source"] != "live":
        source.append(f"{facts['live_points']} live points")
    if "model" in facts and facts["source"] != "model":
        source.append("dotted: model")
    kernel = " ".join(str(facts[name]) for name in ("kernel", "tactic") if name in facts)
    shape = " ".join(f"{name.upper()}={facts[name]}" for name in ("m", "n", "k") if name in facts)
    commit = f"commit {facts['commit']}" if "commit" in facts else None
    parts = [facts.get("device"), ", ".join(part for part in source if part), kernel, shape, commit]
    return "  |  ".join(str(part) for part in parts if part)
