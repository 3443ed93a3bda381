"""The mailbox, event by event: virtual ranks publish and consumers gather in the interpreter; and ways to break it."""

import html
import re
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..analysis.mailbox import fragment_sentence, state_table
from ..artifact import CompiledKernel
from ..figures import mailbox as figures
from ..layouts import mailbox as layout
from ..problem import FrontProblem
from ..runtime import Mailbox, MissingPublisher, PreparedWsGemm
from ..tactics import WsGemmTactic
from . import markup
from .base import Cursor, Picture, View, ViewExplorer, facts_of
from .controls import dropdown, slider, toggles

TACTIC = WsGemmTactic(rt=1, kq=2, ks=1, staged=0, tg=0, ch=1)
K, SHARD, VALID = 64, 16, 8  #: of a rank: two fragments of latent and two of logits
STEPS = 3
BREAKS = ("nothing", "rank 1 never publishes", "no sanitising", "rank 1 publishes twice")


class Event(NamedTuple):
    """What happened, and every mailbox's bits (uint16 `[2, tokens, width]`) after it; `error` is what was raised."""

    text: str
    bits: tuple[np.ndarray, ...]
    error: str | None = None


def front_of(ranks: int, m: int) -> FrontProblem:
    """A front small enough to see every fragment of."""
    return FrontProblem.sharded(m, K, SHARD * ranks, VALID * ranks, ranks)


@lru_cache(maxsize=32)
def events(ranks: int, m: int, transport: str, broken: str) -> tuple[Event, ...]:
    """The mailboxes after every event of three steps; peers publish one as soon as they have collected that before."""
    import torch

    front = front_of(ranks, m)
    generator = torch.Generator().manual_seed(0)
    xs = [(torch.rand(m, K, generator=generator) * 2.0**-8).bfloat16() for _ in range(STEPS)]
    router, down = (torch.randn(n, K, generator=generator).bfloat16() for n in (front.experts, front.latent))
    down[SHARD : SHARD + 8] = -(2.0**-133)  # the smallest BF16: of rank 1, sums of x times that round to -0.0
    mailbox = getattr(Mailbox, transport)(front, capacity=m)
    packed = [PreparedWsGemm.pack(router, down, front, rank) for rank in range(ranks)]
    prepared = [PreparedWsGemm(weight, front, {m: TACTIC}, mailbox) for weight in packed]
    if broken == "no sanitising":
        prepared = [publisher.edited(unsanitised) for publisher in prepared]
    happened = []

    def note(text: str, error: Exception | None = None) -> None:
        bits = tuple(box.view(torch.int16).numpy().view(np.uint16).copy() for box in mailbox.boxes)
        happened.append(Event(text, bits, str(error) if error else None))

    def publish(rank: int) -> None:
        step, breaks = mailbox.step(rank), broken if rank == 1 else "nothing"
        if step == STEPS or breaks == "rank 1 never publishes":
            return
        for again in range(2 if breaks == "rank 1 publishes twice" and step == 0 else 1):
            try:
                prepared[rank].run(xs[step], rank)
                note(f"rank {rank} publishes step {step} into buffer {step % 2}")
            except ValueError as error:
                note(f"rank {rank} publishes step {step} {'again' if again else ''}", error)

    note("everything is empty")
    try:
        for rank in range(ranks):
            publish(rank)
        for step, consumer in product(range(STEPS), range(len(mailbox.boxes))):
            latent, logits = mailbox.collect(consumer)
            whose = "" if transport == "local" else f" of rank {consumer}"
            note(
                f"collect{whose}, step {step}: relative error {error_of(latent, xs[step], down):.1e} of the latent, "
                f"{error_of(logits, xs[step], router):.1e} of the logits; buffer {step % 2} is empty again"
            )
            for rank in range(ranks) if transport == "local" else [consumer]:
                publish(rank)
    except MissingPublisher as error:
        note("collect gives up", error)
        mailbox.reset()
        note("reset empties both buffers and begins at step 0")
    return tuple(happened)


def unsanitised(compiled: CompiledKernel) -> CompiledKernel:
    """The publisher without its rule that no published word may be the sentinel: a mutant, by editing its PTX."""
    ptx = re.sub(r"selp\.b32 (\S+), 0, (\S+), same", r"mov.b32 \1, \2", compiled.ptx)
    return replace(compiled, ptx=ptx)


def error_of(out: Any, x: Any, weight: Any) -> float:
    """Relative Frobenius error of `out` `[M, N]` against x `[M, K]` @ weight `[N, K]`^T in FP64; torch tensors."""
    expected = x.double() @ weight.double().T
    return float((out.double() - expected).norm() / expected.norm())


class MailboxExplorer(ViewExplorer):
    """Ranks publish one by one, consumers collect: step through the events, look at any fragment, break it."""

    def __init__(self) -> None:
        self.ranks = toggles("ranks", [2, 4, 8], 4)
        self.m = slider("M", 1, 4, 2, "200px")
        self.transport = toggles("transport", ["local", "peers", "multicast"], "local")
        self.broken = dropdown("break it:", BREAKS, BREAKS[0])
        self.cursor = Cursor(self, "event", 3, lambda: range(len(self.events)))
        self.box = slider("mailbox of rank", 0, 1, 0, "260px")
        self.token, self.fragment = slider("token", 0, 1, 0, "200px"), slider("fragment", 0, 99, 2, "340px")
        self.heading, self.picture, self.words = widgets.HTML(), Picture(), widgets.HTML()
        drawn = layout.latent_column, layout.logit_column, layout.publisher, layout.offset
        pictures = [self.heading, self.picture, self.words, widgets.HTML(markup.source_of(*drawn))]
        of_run = self.ranks, self.m, self.transport, self.broken
        super().__init__([of_run, (*self.cursor.row, self.box), (self.token, self.fragment)], pictures)

    @property
    def front(self) -> FrontProblem:
        return front_of(self.ranks.value, self.m.value)

    @property
    def events(self) -> tuple[Event, ...]:
        return events(self.ranks.value, self.m.value, self.transport.value, self.broken.value)

    def table(self) -> pd.DataFrame:
        """Every fragment (`state_table`) of the chosen mailbox after the chosen event."""
        return state_table(self.events[self.cursor.value].bits[self.box.value], self.front)

    def draw(self) -> None:
        happened, front = self.events, self.front
        with self.quietly():
            self.cursor.max = len(happened) - 1
            self.token.max = self.m.value - 1
            self.token.layout.display = "none" if self.m.value == 1 else ""
            self.fragment.max = layout.fragments(front.width) - 1
            self.box.max = len(happened[0].bits) - 1
            self.box.layout.display = "none" if self.transport.value == "local" else ""
        event = happened[self.cursor.value]
        error = markup.marked(f"<b>{html.escape(event.error)}</b>") if event.error else ""
        self.heading.value = f"event {self.cursor.value} of {len(happened) - 1}: {html.escape(event.text)}{error}"
        super().draw()
        table = self.table()
        chosen = table[(table.token == self.token.value) & (table.fragment == self.fragment.value)]
        self.words.value = "<br>".join(html.escape(fragment_sentence(row)) for row in chosen.itertuples())

    def views(self) -> list[View]:
        front, transport, broken = self.front, self.transport.value, self.broken.value
        at = dict(event=self.cursor.value, mailbox=self.box.value, fragment=self.fragment.value, token=self.token.value)
        run = dict(ranks=front.ranks, transport=transport, broken=broken)
        facts, table = facts_of("interpreter", TACTIC, front, **run, **at), self.table()
        words = table.words.map(lambda words: " ".join(f"{int(word):08x}" for word in words))
        stem = f"mailbox-{front.ranks}x{front.m}-{transport}-{broken.replace(' ', '-')}-event{self.cursor.value}"
        if transport != "local":
            stem += f"-rank{self.box.value}"
        return [View(self.picture, stem, self._figure, table.assign(words=words), facts)]

    def _figure(self) -> Figure:
        table = self.table()
        titles = []
        for buffer, rows in table.groupby("buffer"):
            whole = rows.groupby("rank").state.agg(lambda states: (states == "published").all())
            published, ranks = ", ".join(map(str, whole.index[whole])), "rank" if whole.sum() == 1 else "ranks"
            held = f"{ranks} {published} published" if published else "nobody has published all of its part"
            titles.append(f"buffer {buffer}: {held}" if (rows.state != "empty").any() else f"buffer {buffer}: empty")
        return figures.mailbox_view(table, tuple(titles), self.token.value, self.fragment.value)
