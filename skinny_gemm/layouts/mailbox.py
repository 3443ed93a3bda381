"""The mailbox of the MoE front: one row per token of `latent` BF16 values, then `experts` FP32 logits.

What nobody has published yet is the sentinel -0.0, of each part in its own format; published values never are. All is
compared as bits: as floats -0.0 == +0.0, and a flushed negative subnormal would become the sentinel.
"""

import numpy as np

from . import Index

BF16_SENTINEL = 0x8000  #: -0.0; an unpublished latent word is two of them
LATENT_SENTINEL = 0x80008000  #: a 32-bit word of the latent part that holds nothing yet
LOGIT_SENTINEL = 0x80000000  #: FP32 -0.0
FRAGMENT_BYTES = 16  #: what one store publishes and one poll reads
COLLECT_THREADS = 96  #: of a consumer's CTA: Kimi K3's row of 672 fragments makes 7 whole CTAs


def latent_column(rank: Index, shard: int, column: Index) -> Index:
    """BF16 column of latent `column` 0..shard-1 of the shard that `rank` computes."""
    return rank * shard + column


def logit_column(rank: Index, valid: int, row: Index, latent: int) -> Index:
    """First of the two BF16 columns of the FP32 logit of router `row` 0..valid-1 of `rank`."""
    return latent + 2 * (rank * valid + row)


def offset(buffer: Index, token: Index, column: Index, capacity: int, width: int) -> Index:
    """Bytes from the start of a mailbox to (token, BF16 column) of `buffer` 0 or 1."""
    return ((buffer * capacity + token) * width + column) * 2


def publisher(column: Index, latent: int, shard: int, valid: int) -> Index:
    """The rank that publishes BF16 `column` of a row (plain integers)."""
    return column // shard if column < latent else (column - latent) // 2 // valid


def fragments(width: int) -> int:
    """16-byte fragments of a row of `width` BF16 columns."""
    return 2 * width // FRAGMENT_BYTES


def status_words(tokens: int, width: int) -> int:
    """32-bit words of a consumer's status: a header of 4 on the collect that failed, then one per fragment."""
    return 4 + tokens * fragments(width)


def status_offset(token: Index, fragment: Index, width: int) -> Index:
    """Bytes from the start of a status to the word that says whether a fragment did not arrive."""
    return (4 + token * fragments(width) + fragment) * 4


def collect_grid(tokens: int, width: int) -> tuple[int, int, int]:
    """CTAs of the consumer, along x, y and z: a thread per fragment of a row, a row of CTAs per token."""
    return -(-fragments(width) // COLLECT_THREADS), tokens, 1


def empty(tokens: int, latent: int, experts: int) -> np.ndarray:
    """Rows of a mailbox that nobody has published to: BF16 bits, uint16 `[tokens, latent + 2 * experts]`."""
    latents = np.full((tokens, latent), BF16_SENTINEL, np.uint16)
    logits = np.full((tokens, experts), LOGIT_SENTINEL, np.uint32)
    return np.concatenate([latents, logits.view(np.uint16)], axis=1)
