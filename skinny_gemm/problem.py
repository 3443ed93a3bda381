"""The problems: one skinny GEMM, and the MoE front of one tensor-parallel rank."""

from dataclasses import MISSING, dataclass, fields

from .checks import check_integer

BF16_BYTES = 2  #: x, the weight and the output are BF16


@dataclass(frozen=True)
class GemmProblem:
    """out[m, n] = x[m, k] @ weight[n, k]^T, everything BF16 and row-major. Raises ValueError unless all are >= 1."""

    m: int
    n: int
    k: int

    def __post_init__(self):
        for field in fields(self):  # NumPy's integers become Python's; a field with a default may be 0
            value = check_integer(field.name, getattr(self, field.name), 1 if field.default is MISSING else 0)
            object.__setattr__(self, field.name, value)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight `[n, k]`."""
        return BF16_BYTES * self.n * self.k

    @property
    def x_bytes(self) -> int:
        """Bytes of x `[m, k]`."""
        return BF16_BYTES * self.m * self.k

    @property
    def out_bytes(self) -> int:
        """Bytes of the output `[m, n]`."""
        return BF16_BYTES * self.m * self.n

    @property
    def bytes(self) -> int:
        """The least that must move: x and the weight read once, the output written once."""
        return self.weight_bytes + self.x_bytes + self.out_bytes

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiplication and an addition for each product."""
        return 2 * self.m * self.n * self.k

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes


KIMI_K3 = {"k": 7168, "latent": 3584, "experts": 896}  #: the MoE front of a layer, unsharded
FRONT_RANKS = (4, 8, 16)  #: tensor-parallel splits of it whose weights are recognised by (N, K)


@dataclass(frozen=True)
class FrontProblem(GemmProblem):
    """The MoE front of one tensor-parallel rank: its weight is [router shard ; latent-down shard].

    Of rows 0 to `split`-1, the router's, the first `valid` are its experts, the rest is padding; rows from `split` on
    make this rank's shard of the latent. The defaults (no router, one rank) make a plain GEMM. ValueError where the
    shards do not fit: valid must be a multiple of 4, split and the latent shard of 8, what a 16-byte store publishes.
    """

    split: int = 0
    valid: int = 0
    latent: int = 0  #: 0: this rank's shard is all
    experts: int = 0  #: 0: this rank's are all

    def __post_init__(self):
        super().__post_init__()
        if not self.valid <= self.split < self.n:
            rows = f"split is {self.split} and valid {self.valid}"
            raise ValueError(f"{rows}; needed is valid <= split < n, and n is {self.n}.")
        object.__setattr__(self, "latent", self.latent or self.shard)
        object.__setattr__(self, "experts", self.experts or self.valid)
        for name, value, multiple in (("valid", self.valid, 4), ("split", self.split, 8), ("n - split", self.shard, 8)):
            if value % multiple:
                raise ValueError(f"{name} is {value}; it must be a multiple of {multiple}.")
        if self.latent % self.shard or self.experts != self.ranks * self.valid:
            totals, own = f"latent is {self.latent} and experts {self.experts}", f"{self.shard} and {self.valid}"
            raise ValueError(f"{totals}; they must be the same multiple of this rank's {own}.")

    @classmethod
    def sharded(cls, m: int, k: int, latent: int, experts: int, ranks: int) -> "FrontProblem":
        """The problem of one of `ranks` equal ranks; its router rows are padded to a multiple of 16."""
        for name, value, least in (("latent", latent, 1), ("experts", experts, 0), ("ranks", ranks, 1)):
            check_integer(name, value, least)
        if latent % ranks or experts % ranks:
            raise ValueError(f"ranks is {ranks}; it must divide latent {latent} and experts {experts}.")
        valid = experts // ranks
        split = -(-valid // 16) * 16
        return cls(m, split + latent // ranks, k, split, valid, latent, experts)

    @classmethod
    def of(cls, problem: GemmProblem) -> "FrontProblem":
        """`problem` if it is a front; else Kimi K3's with its N and K (560x7168: of 8 ranks); else a plain GEMM."""
        if isinstance(problem, cls):
            return problem
        if not isinstance(problem, GemmProblem):
            raise ValueError(f"problem is {problem!r}; it must be a GemmProblem.")
        for ranks in FRONT_RANKS:
            front = cls.sharded(problem.m, ranks=ranks, **KIMI_K3)
            if (front.n, front.k) == (problem.n, problem.k):
                return front
        return cls(problem.m, problem.n, problem.k)

    @property
    def out_bytes(self) -> int:
        """What this rank publishes: BF16 latent and FP32 logits."""
        return self.m * (2 * self.shard + 4 * self.valid)

    @property
    def shard(self) -> int:
        """This rank's latent columns."""
        return self.n - self.split

    @property
    def ranks(self) -> int:
        """Tensor-parallel ranks."""
        return self.latent // self.shard

    @property
    def width(self) -> int:
        """BF16 columns of a mailbox row: the latent, then every logit as an FP32 word."""
        return self.latent + 2 * self.experts
