"""How far a long command is, on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str, float, float], None]  #: (what, done, of how much)


@contextmanager
def progress(log: bool = False) -> Iterator[Report]:
    """A function to report with: bars on a terminal, from the first report on; elsewhere nothing.

    With `log`, for what takes minutes, the bars stay on the terminal, and elsewhere a line tells every twentieth.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(),
        )
        bars = Progress(*columns, console=Console(stderr=True), transient=not log)
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: float, total: float) -> None:
            if not tasks:
                bars.start()
            count = f"{done:.0f}/{total:.0f}" if total > 1 else f"{done / total:.0%}"
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total, count=count)
            bars.update(tasks[what], completed=done, count=count)

        try:
            yield show
        finally:
            bars.stop()
    elif log:
        started = time.monotonic()

        def line(what: str, done: float, total: float) -> None:
            if done == total or done % max(1, total // 20) == 0:
                print(f"{time.monotonic() - started:6.1f} s  {what} {done}/{total}", file=sys.stderr, flush=True)

        yield line
    else:
        yield lambda what, done, total: None


def fraction(report: Report, what: str) -> Callable[[float], None]:
    """A function that reports of `what` the fraction that is done."""
    return lambda done: report(what, done, 1.0)
