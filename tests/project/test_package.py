"""Importing the package is quick and light, and its public names are there."""

import subprocess
import sys

import skinny_gemm


def test_import_is_quick_and_loads_neither_torch_nor_the_compiler():
    code = """if True:
        import sys, time
        start = time.perf_counter()
        import skinny_gemm
        skinny_gemm.GemmProblem(8, 3584, 7168)
        seconds = time.perf_counter() - start
        print(seconds, *sorted({"torch", "cutlass", "cuda", "numpy", "pandas", "matplotlib"} & set(sys.modules)))
    """
    seconds, *heavy = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert heavy == []
    assert float(seconds) < 0.3


def test_every_public_name_resolves():
    for name in skinny_gemm.__all__:
        assert getattr(skinny_gemm, name) is not None
        assert name in dir(skinny_gemm)
