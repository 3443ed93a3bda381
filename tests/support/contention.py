"""What a spawned process does to contend for an entry of the cache; a module of its own, so that it starts quickly."""

from skinny_gemm.artifact import CompiledKernel
from skinny_gemm.runtime import cache


def store_and_load(compiled: CompiledKernel, rounds: int) -> bool:
    """Whether what was loaded was always whole."""
    for _ in range(rounds):
        cache.store("contended", compiled)
        if cache.load("contended") != compiled:
            return False
    return True
