"""A rig in a process of its own: a tactic that hangs, crashes or ruins the GPU context costs its own point only.

One process measures many points and holds context and buffers; after such a point it is killed and the next is new.
"""

import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from .task import Measurement, Task, sentence

LIMIT_S = 120.0  #: for one point; the first of a shape computes its reference, peers compile at their first launch
START_S = 300.0  #: for loading PyTorch, making a context and filling the buffers
KILL_S = 60.0  #: the driver must first abandon a kernel that hangs


class Failed(Exception):
    """A measurement that failed; its text says how."""


class Worker(AbstractContextManager["Worker"]):
    """The `Rig` that `make(process)`, which is pickled, builds in a spawned process; `limit_s` bounds every call.

    `process` is the state that it starts in, see `enter`. What the rig raises becomes `Failed`; a process that cannot
    be started or killed is RuntimeError.
    """

    def __init__(self, make: Callable[[str], Any], limit_s: float = LIMIT_S, process: str = "quiet"):
        self.make, self.limit_s, self.state = make, limit_s, process
        self.clock_samples: list[dict] = []
        self._process: BaseProcess | None = None
        self._connection: Connection

    def enter(self, process: str) -> None:
        """Measures in a `quiet` or `busy` process from here on: in a new one, if this was in the other state."""
        if process != self.state:
            self.close()
        self.state = process

    def describe(self) -> dict[str, Any]:
        """See `Rig.describe`."""
        return self._call("describe")

    def screen(self, task: Task) -> float | None:
        """See `Rig.screen`."""
        return self._call("screen", task)

    def measure(self, task: Task) -> Measurement | None:
        """See `Rig.measure`."""
        return self._call("measure", task)

    def ceilings(self) -> dict[str, float]:
        """See `Rig.ceilings`."""
        return self._call("ceilings")

    def sample_clocks(self, when: str) -> None:
        """See `Rig.sample_clocks`."""
        self._call("sample_clocks", when)

    def close(self) -> None:
        """Kills the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            self._connection.close()
            process.kill()
            process.join(KILL_S)
            if process.is_alive():
                raise RuntimeError(f"Process {process.pid} hangs on the GPU and cannot be killed.")

    def __exit__(self, *_) -> None:
        self.close()

    def _call(self, method: str, *arguments: Any) -> Any:
        process = self._process or self._start()
        with suppress(ConnectionError):  # the process has died since its last answer: said below
            self._connection.send((method, arguments))
        answer, failure, samples, lost = self._answer(process, self.limit_s)
        self.clock_samples += samples
        if lost:
            self.close()
        if failure:
            raise Failed(f"{failure} (the GPU context was lost)" if lost else failure)
        return answer

    def _start(self) -> BaseProcess:
        spawn = get_context("spawn")
        self._connection, other = spawn.Pipe()
        arguments = other, self.make, self.state
        process = spawn.Process(target=_serve, args=arguments, name="skinny-gemm bench", daemon=False)
        process.start()
        self._process = process
        other.close()  # so that the end of the process ends the pipe
        try:
            _, failure, *_ = self._answer(process, START_S)
        except Failed as error:
            failure = str(error)
        if failure:
            self.close()
            raise RuntimeError(f"The measuring process does not start: {failure}")
        return process

    def _answer(self, process: BaseProcess, limit_s: float) -> tuple:
        try:
            if self._connection.poll(limit_s):
                return self._connection.recv()
        except (EOFError, OSError):
            process.join(KILL_S)
            code = process.exitcode
            self.close()
            how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit status {code}"
            raise Failed(f"the measuring process ended {how}") from None
        self.close()
        raise Failed(f"no result after {limit_s:g} s: killed")


def _serve(connection: Connection, make: Callable[[str], Any], process: str) -> None:
    """Answers calls until the other end closes: (result, failure in words or None, new clock samples, context lost)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the campaign's to handle
    try:
        rig = make(process)
    except Exception as error:
        connection.send((None, sentence(error), [], True))
        sys.exit(1)
    connection.send((None, None, [], False))
    with suppress(EOFError, ConnectionError):
        while True:
            method, arguments = connection.recv()
            try:
                result, failure, lost = getattr(rig, method)(*arguments), None, False
            except Exception as error:
                result, failure, lost = None, sentence(error), rig.lost()
            samples, rig.clock_samples = rig.clock_samples, []
            connection.send((result, failure, samples, lost))
