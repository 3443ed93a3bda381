from dataclasses import dataclass
@dataclass(frozen=True)
class WarpSplitKTactic:
    output_tile: int
    token_tile: int
    k_tile: int
    stages: int
    b_loader_warps: int
    @property
    def threads(self): return 32*(4+2+self.b_loader_warps)
