"""The mailbox of the MoE front as tables: what lies where in a token's row, and what its bits say was published."""

from typing import Any

import numpy as np
import pandas as pd

from ..layouts import mailbox as layout
from ..problem import FrontProblem
from ..runtime.bfloat16 import from_bits

STATES = ("empty", "partial", "published")


def row_table(front: FrontProblem) -> pd.DataFrame:
    """What a row holds, a line per part (latent, logits) and rank: part, rank, column (first, BF16), values, bytes."""
    s, v, ranks = front.shard, front.valid, range(front.ranks)
    rows = [("latent", rank, layout.latent_column(rank, s, 0), s, 2 * s) for rank in ranks]
    rows += [("logits", rank, layout.logit_column(rank, v, 0, front.latent), v, 4 * v) for rank in ranks if v]
    return pd.DataFrame(rows, columns=["part", "rank", "column", "values", "bytes"])


def state_table(bits: np.ndarray, front: FrontProblem) -> pd.DataFrame:
    """Every fragment of a mailbox, read from its `bits` (uint16 `[buffers, tokens, width]`).

    Columns: buffer, token, fragment, column (its first, BF16), part, rank (its publisher), state (of `STATES`), words
    (its four 32-bit words).
    """
    buffers, tokens, width = bits.shape
    words = np.ascontiguousarray(bits).view(np.uint32).reshape(buffers, tokens, -1, 4)
    column = np.arange(layout.fragments(width)) * (layout.FRAGMENT_BYTES // 2)
    latent = column < front.latent
    sentinel = np.where(latent, layout.LATENT_SENTINEL, layout.LOGIT_SENTINEL).astype(np.uint32)
    missing = (words == sentinel[:, None]).sum(-1)
    publisher = [layout.publisher(int(c), front.latent, front.shard, front.valid) for c in column]
    buffer, token, fragment = np.indices(missing.shape).reshape(3, -1)
    place = dict(buffer=buffer, token=token, fragment=fragment, column=column[fragment])
    part, rank = np.where(latent, "latent", "logits")[fragment], np.array(publisher)[fragment]
    state = np.array(STATES)[np.select([missing == 0, missing == 4], [2, 0], 1)].reshape(-1)
    return pd.DataFrame(place | dict(part=part, rank=rank, state=state, words=list(words.reshape(-1, 4))))


def fragment_sentence(fragment: Any) -> str:
    """One line of `state_table` in words: where it lies, who publishes it, the bits and what they mean."""
    bits, latent = np.ascontiguousarray(fragment.words), fragment.part == "latent"
    values, unit = (from_bits(bits.view(np.uint16)), "8 BF16") if latent else (bits.view(np.float32), "4 FP32")
    first = f"{'latent ' if latent else ''}columns {fragment.column} to {fragment.column + 7}"
    words = " ".join(f"{int(word):08x}" for word in bits)
    meaning = "the sentinel: nothing yet" if fragment.state == "empty" else " ".join(f"{v:.3g}" for v in values)
    return (
        f"buffer {fragment.buffer}, token {fragment.token}, fragment {fragment.fragment}  →  {first} of the row  →  "
        f"rank {fragment.rank} publishes {unit}  →  {words}  →  {meaning}"
    )
