"""The one runner: arguments decide the machine, a name insists on one, and what ran is told."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from skinny_gemm import WarpSplitKTactic, device, interpreter
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import compile_kernel, driver, run, runner, trials

TACTIC, PROBLEM = WarpSplitKTactic(16, 8, 128, 2, 1), GemmProblem(3, 64, 512)


@pytest.fixture
def launched(monkeypatch):
    """What a stand-in for the driver is asked to launch."""
    calls = []
    monkeypatch.setattr(driver, "load", lambda *_: None)
    monkeypatch.setattr(driver, "run_on_host_arrays", lambda *arguments: calls.append(arguments))
    return calls


def arguments(compiled, kind=np.asarray):
    operands = trials.remembered_operands(PROBLEM)
    out = TACTIC.output(PROBLEM)
    x, weight, out = (kind(array) for array in (operands.x, operands.weight, out))
    return out, runner.bind(compiled, TACTIC, x, weight, out)


def as_torch(bits):
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)


def test_numpy_and_cpu_tensors_run_in_the_interpreter_with_the_same_bits():
    compiled = compile_kernel(TACTIC, PROBLEM)
    (array, of_arrays), (tensor, of_tensors) = arguments(compiled), arguments(compiled, as_torch)
    ran = run(compiled, of_arrays, schedule=interpreter.adversarial(1))
    assert ran.result.schedule == "adversarial(1)" and ran.seconds == ran.result.seconds > 0
    run(compiled, of_tensors)
    assert (tensor.view(torch.int16).numpy().view(np.uint16) == array).all()


def test_numpy_goes_to_a_gpu_by_name_only(launched):
    compiled = compile_kernel(TACTIC, PROBLEM)
    _, bound = arguments(compiled)
    ran = run(compiled, bound, "cuda", schedule="adversarial(0)")
    assert launched == [(compiled, bound)] and ran.result is None and ran.seconds >= 0


@pytest.mark.parametrize("gpu", [None, SimpleNamespace(arch="sm_90a")])
def test_a_machine_is_chosen_by_what_there_is(monkeypatch, gpu):
    monkeypatch.setattr(device, "current", lambda: gpu)
    assert runner.choose("interpreter") == ("interpreter", device.reference())
    assert runner.choose("auto") == (("cuda", gpu) if gpu else ("interpreter", device.reference()))
    if gpu is None:
        with pytest.raises(ValueError, match="backend is 'cuda', but no GPU is visible: use 'interpreter'"):
            runner.choose("cuda")
    with pytest.raises(ValueError, match="backend is 'tpu', but must be one of auto, interpreter, cuda"):
        runner.choose("tpu")
