"""GemmProblem counts bytes and FLOP, fronts are sharded evenly, nonsense is refused; the catalogue is whole."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skinny_gemm import catalogue
from skinny_gemm.catalogue import shapes
from skinny_gemm.problem import FrontProblem, GemmProblem

extents = st.integers(1, 1 << 20)


@given(extents, extents, extents)
def test_bytes_and_flops_are_those_of_the_arrays(m, n, k):
    p = GemmProblem(m, n, k)
    assert (p.x_bytes, p.weight_bytes, p.out_bytes) == (2 * m * k, 2 * n * k, 2 * m * n)
    assert p.bytes == p.x_bytes + p.weight_bytes + p.out_bytes
    assert p.flops == 2 * m * n * k
    assert p.intensity < 2 * m, "each weight element of 2 bytes serves m multiply-adds and no more"


def test_numpy_integers_become_python_integers():
    p = GemmProblem(np.int64(8), np.int32(3584), np.uint16(7168))
    assert p == GemmProblem(8, 3584, 7168)
    assert all(type(value) is int for value in (p.m, p.n, p.k))


@pytest.mark.parametrize("value", [0, -8, 1.0, "8", None, True])
@pytest.mark.parametrize("field", ["m", "n", "k"])
def test_a_bad_extent_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=rf"^{field} is .*{value}.*, but must be an integer of at least 1$"):
        GemmProblem(**{"m": 8, "n": 16, "k": 32, field: value})


class TestFrontProblem:
    def test_the_fronts_of_kimi_k3(self):
        tp8, tp16 = (FrontProblem.sharded(4, 7168, 3584, 896, ranks) for ranks in (8, 16))
        assert (tp8.n, tp8.split, tp8.valid, tp8.shard, tp8.ranks, tp8.width) == (560, 112, 112, 448, 8, 5376)
        assert (tp16.n, tp16.split, tp16.valid, tp16.shard, tp16.ranks) == (288, 64, 56, 224, 16)
        assert FrontProblem.of(GemmProblem(4, 560, 7168)) == tp8 and FrontProblem.of(GemmProblem(4, 288, 7168)) == tp16

    def test_anything_else_is_a_plain_gemm(self):
        front = FrontProblem.of(GemmProblem(4, 3584, 7168))
        assert (front.split, front.experts, front.latent, front.ranks) == (0, 0, 3584, 1)
        assert FrontProblem.of(front) is front

    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ((1, 96, 256, 48, 49), "split is 48 and valid 49; needed is valid <= split < n, and n is 96."),
            ((1, 96, 256, 96, 48), "needed is valid <= split < n, and n is 96."),
            ((1, 96, 256, 48, 34), "valid is 34; it must be a multiple of 4."),
            ((1, 96, 256, 44, 40), "split is 44; it must be a multiple of 8."),
            ((1, 92, 256, 48, 48), "n - split is 44; it must be a multiple of 8."),
            ((1, 96, 256, 48, 36, 100, 72), "latent is 100 and experts 72; they must be the same multiple"),
            ((1, 96, 256, 48, 36, 96, 36), "they must be the same multiple of this rank's 48 and 36."),
            ((1, 96, 256, -8, 0), "split is -8, but must be an integer of at least 0"),
            ((0, 96, 256), "m is 0, but must be an integer of at least 1"),
        ],
    )
    def test_what_cannot_be_published_is_refused(self, fields, sentence):
        with pytest.raises(ValueError) as raised:
            FrontProblem(*fields)
        assert sentence in str(raised.value)

    def test_ranks_must_divide(self):
        with pytest.raises(ValueError, match="ranks is 3; it must divide latent 3584 and experts 896."):
            FrontProblem.sharded(1, 7168, 3584, 896, 3)

    def test_only_a_problem_can_be_a_front(self):
        with pytest.raises(ValueError, match="problem is 'x'; it must be a GemmProblem."):
            FrontProblem.of("x")

    def test_numpy_integers_shard_as_well(self):
        front = FrontProblem.sharded(1, 7168, np.int32(3584), np.int64(896), np.int64(8))
        assert front == FrontProblem.sharded(1, 7168, 3584, 896, 8) and type(front.latent) is int

    @pytest.mark.parametrize(
        ("latent", "experts", "ranks", "sentence"),
        [
            (3584, 896, True, "ranks is True, but must be an integer of at least 1"),
            (3584, 896, "8", "ranks is '8', but must be an integer of at least 1"),
            ("3584", 896, 8, "latent is '3584', but must be an integer of at least 1"),
            (-3584, 896, 8, "latent is -3584, but must be an integer of at least 1"),
            (3584, None, 8, "experts is None, but must be an integer of at least 0"),
            (3584, -896, 8, "experts is -896, but must be an integer of at least 0"),
        ],
    )
    def test_what_cannot_be_sharded_is_refused_by_name(self, latent, experts, ranks, sentence):
        with pytest.raises(ValueError) as raised:
            FrontProblem.sharded(1, 7168, latent, experts, ranks)
        assert str(raised.value) == sentence


def test_the_catalogue_has_every_model_and_variant():
    assert Counter((s.model, s.parallel) for s in shapes()) == {
        ("Kimi K3", "TP8"): 16,
        ("Kimi K3", "TP4"): 15,  # no MoE front
        ("Kimi K3", "TP16"): 16,
        ("DeepSeek V3", "TP8"): 9,
        ("Kimi K2", "TP8"): 4,
        ("GLM-5.2", "TP8"): 5,
        ("Qwen3-Next", "TP1"): 4,
        ("gpt-oss", "TP1"): 1,
        ("Dense 8B", "TP1"): 4,
    }
    assert len({(s.model, s.parallel, s.projection) for s in shapes()}) == len(shapes())


@pytest.mark.parametrize(
    "label",
    [
        "Kimi K3 TP8 latent_down 3584x7168",
        "Kimi K3 TP4 in_proj_qkvgfab 12448x7168",
        "Kimi K3 TP16 dense_down 7168x2112",
        "Kimi K3 TP8 moe_front 560x7168",
        "Kimi K3 TP4 f_b 3072x128",
        "DeepSeek V3 TP8 lm_head 16160x7168",
        "Kimi K2 TP8 router 384x7168",
        "GLM-5.2 TP8 eh_proj 6144x12288",
        "Qwen3-Next TP1 lm_head 151936x2048",
        "gpt-oss TP1 router 128x2880",
        "Dense 8B TP1 gate_up 24576x4096",
        "Dense 8B TP1 down 4096x12288",
    ],
)
def test_the_catalogue_has_known_shapes(label):
    assert label in {s.label for s in shapes()}


def test_tensor_parallelism_halves_or_replicates():
    """From TP8 to TP16 a weight keeps its size or loses half of one extent (the MoE front keeps its latent rows)."""
    sizes = {(s.parallel, s.projection): (s.n, s.k) for s in shapes() if s.model == "Kimi K3"}
    for (parallel, projection), (n, k) in sizes.items():
        if parallel == "TP8" and projection not in ("moe_front", "in_proj_qkvgfab"):
            assert sizes["TP16", projection] in {(n, k), (n // 2, k), (n, k // 2)}, projection


def test_a_broken_catalogue_names_the_entry(tmp_path, monkeypatch):
    (tmp_path / "shapes.csv").write_text("model,parallel,projection,n,k\nA,TP1,x,16,32\nB,TP1,y,-16,32\n")
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=r"shapes\.csv, entry 2 .*n is -16"):
        shapes()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\xff\n", "decode"), (b"", "lists no shape"), (b"model,k\nA,32\n", "has no column 'n'")],
)
def test_a_damaged_catalogue_is_named(tmp_path, monkeypatch, content, words):
    if content is not None:
        (tmp_path / "shapes.csv").write_bytes(content)
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=rf"shapes\.csv.*{words}"):
        shapes()


def test_a_missing_data_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="No data folder at .*absent"):
        catalogue.data_dir()
