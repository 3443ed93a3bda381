"""The disk cache of compiled kernels: what decides the code decides the entry; it survives damage and concurrency."""

import dataclasses
import json
import multiprocessing
import zipfile

import pytest

from skinny_gemm import WarpSplitKTactic, runtime
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime import cache, compile_kernel
from tests.support import contention

TACTIC = WarpSplitKTactic(16, 8, 128, 2, 1)
N, K = 64, 512


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_CACHE", str(tmp_path))
    monkeypatch.setattr(runtime.compile, "_memory", {})
    return tmp_path


class TestCache:
    def test_a_second_process_reads_what_the_first_compiled(self, fresh_cache, monkeypatch):
        compiled = compile_kernel(TACTIC, GemmProblem(1, N, K))
        (entry,) = fresh_cache.iterdir()
        monkeypatch.setattr(runtime.compile, "_memory", {})
        monkeypatch.setattr(runtime.compile, "compile_jit", lambda *_: pytest.fail("compiled again"))
        assert compile_kernel(TACTIC, GemmProblem(1, N, K)) == compiled
        assert set(zipfile.ZipFile(entry).namelist()) == {"kernel.json", "kernel.ptx", "kernel.cubin"}

    def test_what_decides_the_code_decides_the_entry(self, fresh_cache):
        for tactic, k in ((TACTIC, K), (TACTIC, 256), (dataclasses.replace(TACTIC, stages=3), K)):
            compile_kernel(tactic, GemmProblem(1, N, k))
        compile_kernel(TACTIC, GemmProblem(1, N, K), arch="sm_100a")
        compile_kernel(TACTIC, GemmProblem(1, N, K), pdl=False)
        assert len(list(fresh_cache.iterdir())) == 5

    @pytest.mark.parametrize("damage", ["truncate", "flip", "deflate", "encrypt", "empty", "json", "directory"])
    def test_a_damaged_entry_is_replaced(self, fresh_cache, monkeypatch, damage):
        compiled = compile_kernel(TACTIC, GemmProblem(1, N, K))
        (entry,) = fresh_cache.iterdir()
        content = entry.read_bytes()
        middle = len(content) // 2
        if damage == "json":
            with zipfile.ZipFile(entry, "w") as broken:
                broken.writestr("kernel.json", json.dumps({"kernel": "warp-splitk"}))
                broken.writestr("kernel.ptx", "")
                broken.writestr("kernel.cubin", b"")
        elif damage == "directory":
            entry.unlink()
            entry.mkdir()
        else:
            flipped = content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]
            names = content.index(b"kernel.ptx") + len(b"kernel.ptx")
            deflate = content[:names] + bytes(64) + content[names + 64 :]
            flags = content.rindex(b"PK\x01\x02", 0, content.rindex(b"kernel.ptx")) + 8
            encrypt = content[:flags] + bytes([content[flags] | 1]) + content[flags + 1 :]
            damaged = {"truncate": content[:middle], "flip": flipped, "deflate": deflate, "encrypt": encrypt}
            entry.write_bytes(damaged.get(damage, b""))
        monkeypatch.setattr(runtime.compile, "_memory", {})
        again = compile_kernel(TACTIC, GemmProblem(1, N, K))
        assert (again.ptx, again.smem_bytes) == (compiled.ptx, compiled.smem_bytes)
        if damage != "directory":
            assert cache.load(entry.stem) == again

    def test_an_entry_of_another_kernel_is_replaced(self, fresh_cache, monkeypatch):
        other = compile_kernel(dataclasses.replace(TACTIC, stages=3), GemmProblem(1, N, K))
        (others_entry,) = fresh_cache.iterdir()
        compiled = compile_kernel(TACTIC, GemmProblem(1, N, K))
        own_entry = next(path for path in fresh_cache.iterdir() if path != others_entry)
        own_entry.write_bytes(others_entry.read_bytes())
        assert cache.load(own_entry.stem) == other
        monkeypatch.setattr(runtime.compile, "_memory", {})
        assert compile_kernel(TACTIC, GemmProblem(1, N, K)).facts == compiled.facts
        assert cache.load(own_entry.stem).facts == compiled.facts

    def test_no_writable_cache_costs_only_the_cache(self, fresh_cache, monkeypatch):
        (fresh_cache / "file").write_text("")
        monkeypatch.setenv("SKINNY_GEMM_CACHE", str(fresh_cache / "file" / "below"))
        assert compile_kernel(TACTIC, GemmProblem(1, N, K)).ptx

    def test_concurrent_writers_and_readers_never_see_half_an_entry(self, fresh_cache):
        compiled = compile_kernel(TACTIC, GemmProblem(1, N, K))
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            assert all(pool.starmap(contention.store_and_load, [(compiled, 40)] * 2))
        assert not [path for path in fresh_cache.iterdir() if path.name.startswith(".")]
