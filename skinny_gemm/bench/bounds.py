"""What is launched to learn what the GPU can do at best; `rig` launches it, `plan` lists it.

The bounds of a problem are measured beside the kernels: `stream` reads its weight and does nothing with it,
`dependency-floor` is a chain of kernels that read x and no weight. The ceilings are measured once per campaign.
"""

from ..kernels.probes import Ring

#: Ring shapes tried for every weight: many small CTAs let the next kernel's weights fly early, few deep ones stream
#: large weights best.
RINGS = (Ring(528, 3, 8192), Ring(264, 6, 8192), Ring(132, 12, 16384), Ring(132, 6, 16384))
ASYMPTOTE_BYTES = 512 << 20
SLACK_BYTES = max(ring.chunk_bytes for ring in RINGS)  #: that the last, partial chunk may read past a weight

L2_RING = Ring(264, 6, 8192)
L2_BYTES, L2_ROUNDS = 16 << 20, 32  # 16 MB fit either half of the L2
MMA_REPEATS = 2048


def floor_ctas(n: int) -> list[int]:
    """Grid sizes whose dependency floor is measured for N outputs: those of output tiles of 32 and 16."""
    return sorted({n // tile for tile in (32, 16) if n % tile == 0})
