"""How long the interpreter takes; run it by hand: `python tests/interpreter/benchmark.py`.

Prints, per case and per kind of run, the best wall and CPU seconds of several runs and those of the first one, which
parses the PTX and generates code. Compiling the kernel is not counted.
"""

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from skinny_gemm import interpreter  # noqa: E402
from skinny_gemm.problem import GemmProblem  # noqa: E402
from skinny_gemm.runtime import compile_kernel  # noqa: E402
from skinny_gemm.tactics import WarpSplitKTactic  # noqa: E402
from tests.interpreter.programs import Front, Gemm  # noqa: E402

WARP_SPLITK = ((64, 1024, 8, "16,8,256,2,1"), (3584, 7168, 8, "16,8,256,8,2"), (3584, 7168, 32, "16,32,256,4,2"))
WS_GEMM = ((16, "5,1,16,0,0,1"), (16, "5,2,16,0,16,2"), (64, "5,1,16,6,16,2"))  # N = 560, K = 7168
KINDS = {
    "plain": {"checks": False},
    "checks": {},
    "checks and races": {"races": True},
    "traced": {"trace": interpreter.Trace},
    "adversarial": {"schedule": interpreter.adversarial(1)},
}


def launches():
    """(name, function that runs it with options) of every case."""
    for n, k, m, text in WARP_SPLITK:
        tactic = WarpSplitKTactic.parse(text)
        kernel, gemm = compile_kernel(tactic, GemmProblem(1, n, k)), Gemm(m, n, k)
        yield f"{n}x{k} M={m}", lambda **options: gemm.run(kernel, tactic, **options)[1]  # noqa: B023
    for m, text in WS_GEMM:
        front = Front(m, text, 7168, 3584, 896, 8)
        yield f"front M={m} {text}", lambda **options: (front.run(**options), front.result)[1]  # noqa: B023


def main(repeat: int = 4):
    for case, launch in launches():
        first = None
        for name, options in KINDS.items():
            walls, cpus = [], []
            for _ in range(repeat):
                wall, cpu = time.perf_counter(), time.process_time()
                result = launch(**{key: value() if key == "trace" else value for key, value in options.items()})
                walls.append(time.perf_counter() - wall)
                cpus.append(time.process_time() - cpu)
                if first is None:
                    first = f"first run {walls[0]:.3f} s, of it {result.prepare_seconds:.3f} s to read the PTX"
            print(f"{case:27s} {name:17s} wall {min(walls):.3f} s  cpu {min(cpus):.3f} s  {first}")
            first = ""
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB, weights included")


if __name__ == "__main__":
    main()
