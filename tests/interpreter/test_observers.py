"""Observers: the machine emits every event, each reaches whoever overrides it and nobody else, and no check of values,
races or traces is anywhere but in an observer."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from skinny_gemm import interpreter
from skinny_gemm.interpreter import observers
from tests.interpreter.programs import SMALL, Gemm, compiled, kernel, run
from tests.support.clusters import PUSH, SYNC, launch


def counting():
    """A trace that hears every event and counts them by name."""
    heard = Counter()

    def listener(name):
        return lambda self, *arguments, **named: heard.update([name])

    kind = type("Counting", (interpreter.Trace,), {name: listener(name) for name in observers.EVENTS})
    return kind(), heard


def test_the_machine_emits_every_event():
    trace, heard = counting()
    program, tactic = compiled(*SMALL)
    Gemm(7, *SMALL[:2]).run(program, tactic, trace=trace)
    launch(f"{SYNC} fence.acq_rel.cluster;" + PUSH, 8, 4, 64, 16 + 4 * 64 * 4, trace=trace)
    product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, 64, 64, 0, 1, 1, 0, 0;"
    product += "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    run(kernel(f"wgmma.fence.sync.aligned; {product}", "", 128, shared=4096), trace=trace)
    with pytest.raises(interpreter.MemoryAccessError):
        run(
            kernel("cp.async.wait_all; ld.shared.b32 %r1, [smem+64];", "out", shared=64),
            np.zeros(1, np.uint32),
            trace=trace,
        )
    assert set(heard) == set(observers.EVENTS)


def test_an_event_reaches_those_who_override_it_in_order_and_nobody_else():
    heard = []

    class Fences(observers.Observer):
        def __init__(self, name):
            self.name = name

        def fence(self, place, kind, mask):
            heard.append((self.name, kind))

    events = observers.Events([Fences("first"), observers.Observer(), Fences("second")])
    events.fence(None, "init", None)
    assert heard == [("first", "init"), ("second", "init")]
    assert set(vars(events)) == {"fence"}  # all others are the empty methods of the base class
    assert not vars(observers.Events([])) and not vars(observers.Events([observers.Observer()]))


def test_an_observer_that_stays_out_of_a_chunk_hears_nothing_of_it():
    trace, heard = counting()
    type(trace).start = lambda self, machine: None
    run(kernel("st.global.b32 [%rd0], 1;", "out"), np.zeros(1, np.uint32), trace=trace)
    assert set(heard) == {"output"}


def test_the_machine_knows_no_observer():
    package = Path(observers.__file__).parents[1]
    for path in package.glob("*.py"):
        text = path.read_text()
        if path.name not in ("launch.py", "__init__.py"):  # which choose the observers, and offer `Trace`
            assert "observers." not in text.replace("context.observers", ""), path.name
            assert "PoisonError" not in text or path.name == "errors.py", path.name
