"""How far a long command is, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[..., None]  #: (what, done, of how much: 1.0)


@contextmanager
def progress(log: bool = False) -> Iterator[Report]:
    """A function to report with: bars on a terminal, elsewhere nothing; with `log` bars that stay, elsewhere lines."""
    if sys.stderr.isatty():
        from rich import progress as rich
        from rich.console import Console

        texts = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TextColumn("{task.fields[count]}")
        bars = rich.Progress(*texts, rich.TimeRemainingColumn(), console=Console(stderr=True), transient=not log)
        tasks: dict[str, rich.TaskID] = {}

        def show(what: str, done: float, total: float = 1.0) -> None:
            bars.start()
            count = f"{done:.0f}/{total:.0f}" if total > 1 else f"{done / total:.0%}"
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, count=count)
            bars.update(tasks[what], completed=done, count=count)

        try:
            yield show
        finally:
            bars.stop()
    else:
        started = time.monotonic()

        def line(what: str, done: float, total: float = 1.0) -> None:
            if log and (done == total or done % max(1, total // 20) == 0):
                print(f"{time.monotonic() - started:6.1f} s  {what} {done}/{total}", file=sys.stderr, flush=True)

        yield line
