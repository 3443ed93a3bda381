"""What is launched to learn what the GPU can do at best: bounds beside a problem's kernels, ceilings once a campaign.

`stream` reads a problem's weight and does nothing with it, `dependency-floor` chains kernels that read x and no weight.
"""

from ..kernels.probes import Ring

#: Tried for every weight: many small CTAs let the next weights fly early, few deep ones stream large weights best.
RINGS = (Ring(528, 3, 8192), Ring(264, 6, 8192), Ring(132, 12, 16384), Ring(132, 6, 16384))
ASYMPTOTE_BYTES = 512 << 20
SLACK_BYTES = max(ring.chunk_bytes for ring in RINGS)  #: that the last, partial chunk may read past a weight

L2_RING = Ring(264, 6, 8192)
L2_BYTES, L2_ROUNDS = 16 << 20, 32  # 16 MB fit either half of the L2
MMA_REPEATS = 2048
FLOOR_TILES = (32, 16)  #: output tiles whose grids the dependency floor is measured for
