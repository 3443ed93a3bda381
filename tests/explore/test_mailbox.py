"""The mailbox explorer and its figures: pictures say what the mailbox's bits say, and what breaks is told in words."""

import re

import numpy as np
import pytest

from skinny_gemm.analysis.mailbox import fragment_sentence, row_table, state_table
from skinny_gemm.explore import MailboxExplorer
from skinny_gemm.explore.mailbox import BREAKS, STEPS, events, front_of
from skinny_gemm.figures import mailbox as figures
from skinny_gemm.figures import style
from skinny_gemm.layouts import mailbox as layout
from skinny_gemm.problem import KIMI_K3, FrontProblem
from tests.support.drawings import rectangles, texts
from tests.support.widgets import text


def test_a_row_is_divided_among_ranks_without_gap_or_overlap():
    front = FrontProblem.sharded(1, ranks=16, **KIMI_K3)
    table = row_table(front)
    assert table.bytes.sum() == 2 * front.width
    assert (table.column[1:].to_numpy() == (table.column + table.bytes // 2)[:-1]).all()
    said = texts(figures.row_map(front))
    assert "one token's row: 10,752 bytes, 672 fragments of 16, by rank" in said
    assert said.count("8000") == 8 and said.count("80000000") == 4 and said.count("15") == 2


def test_the_state_is_read_from_the_bits():
    front = front_of(4, 3)
    bits = np.stack([layout.empty(3, front.latent, front.experts)] * 2)
    bits[1, 2, 16:24] = 0x3F80  # rank 1, whole fragment
    bits[0, 1, front.latent + 2] = 1  # rank 0, one word of a logit fragment
    table = state_table(bits, front)
    assert len(table) == 2 * 3 * layout.fragments(front.width)
    there = table[table.state != "empty"]
    assert there[["buffer", "token", "fragment", "part", "rank", "state"]].to_numpy().tolist() == [
        [0, 1, front.latent // 8, "logits", 0, "partial"],
        [1, 2, 2, "latent", 1, "published"],
    ]
    sentence = fragment_sentence(next(there[there.state == "published"].itertuples()))
    assert "latent columns 16 to 23" in sentence and "3f803f80" in sentence and "1 1 1 1 1 1 1 1" in sentence
    fig = figures.mailbox_view(table, ("a", "b"))
    assert rectangles(fig, style.BANK_GROUPS[1]) == 1 and texts(fig).count("-0") == len(table) - 2


@pytest.mark.parametrize("transport", ["local", "peers", "multicast"])
def test_every_step_is_published_and_collected(transport):
    ranks, m = 4, 2
    front, happened = front_of(ranks, m), events(4, 2, transport, "nothing")
    consumers = 1 if transport == "local" else ranks
    assert len(happened) == 1 + STEPS * (ranks + consumers) and not any(event.error for event in happened)
    assert all((bits == layout.empty(1, front.latent, front.experts)).all() for bits in happened[-1].bits)
    errors = [float(e) for event in happened for e in re.findall(r"relative error (\S+) of the latent", event.text)]
    assert len(errors) == STEPS * consumers and max(errors) < 4e-3


def test_a_fast_rank_fills_the_other_buffer():
    happened, front = events(4, 2, "peers", "nothing"), front_of(4, 2)
    number = next(i for i, e in enumerate(happened) if e.text == "rank 0 publishes step 1 into buffer 1")
    table = state_table(happened[number].bits[1], front)
    full = table[table.state == "published"]
    assert set(full["rank"][full.buffer == 0]) == {0, 1, 2, 3} and set(full["rank"][full.buffer == 1]) == {0}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (BREAKS[1], "rank 1 did not publish .* of token 0 .* in step 0 within 1 s"),
        (BREAKS[2], "rank 1 did not publish latent column 16 of token 0 .* in step 0 within 1 s"),
        (BREAKS[3], "rank 1 has published step 0 already: collect it before the next step"),
    ],
)
def test_what_breaks_is_told(broken, words):
    explorer = MailboxExplorer()
    explorer.broken.value = broken
    seen = []
    for number in range(explorer.cursor.max + 1):
        explorer.cursor.value = number
        assert explorer.trouble.value == ""
        seen.append(text(explorer.heading))
    assert any(re.search(words, line) for line in seen)


def test_sanitising_is_what_makes_the_difference():
    front = front_of(4, 2)
    for broken, state, word in (("nothing", "published", 0), ("no sanitising", "empty", layout.LATENT_SENTINEL)):
        last = [e for e in events(4, 2, "local", broken) if e.text == "rank 3 publishes step 0 into buffer 0"][0]
        table = state_table(last.bits[0], front)
        fragment = table[(table.buffer == 0) & (table.fragment == 2)]
        assert set(fragment.state) == {state} and all((words == word).all() for words in fragment.words)


def test_it_steps_and_exports(tmp_path):
    explorer = MailboxExplorer()
    explorer.cursor.value = 0
    explorer.cursor.go(-1)
    assert explorer.cursor.value == 0 and "everything is empty" in text(explorer.heading)
    explorer.cursor.go(+1)
    assert "rank 0 publishes step 0 into buffer 0" in text(explorer.heading)
    assert explorer.picture.value.count("-0") > 10
    explorer.ranks.value, explorer.m.value = 2, 1
    explorer.cursor.value = explorer.cursor.max
    explorer.transport.value = "multicast"
    assert explorer.trouble.value == "" and explorer.box.max == 1
    paths = explorer.export(tmp_path)
    assert {path.suffix for path in paths} == {".svg", ".pdf", ".png", ".csv", ".json"}
    (table,) = [path.read_text() for path in paths if path.suffix == ".csv"]
    assert "80008000 80008000 80008000 80008000" in table
