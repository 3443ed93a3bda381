"""The tables of notebook 03, and their pictures, say what the layouts and the compiled kernel do.

- the permutation of K is one permutation, of every row of W and of x: sums of products stay what they were;
- every weight of a cluster is somewhere, once, and staged ones do not overlap;
- a warp's steps, read off a trace, have all loads of weights before the wait, and as many chains as the tactic says;
- a kernel that waits too early is seen to.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skinny_gemm.analysis import stationary
from skinny_gemm.figures import stationary as figures
from skinny_gemm.figures import style
from skinny_gemm.interpreter import Trace
from skinny_gemm.layouts import fragments
from skinny_gemm.layouts import ws_gemm as layout
from skinny_gemm.problem import GemmProblem
from skinny_gemm.runtime.trials import traced, trial
from skinny_gemm.tactics import WsGemmTactic
from tests.support.drawings import rectangles, texts

TABLE = stationary.fragment_table()
PROBLEM = GemmProblem(8, 64, 1024)


@pytest.mark.parametrize(("operand", "rows"), [("W", 16), ("x", 8)])
def test_every_word_of_a_block_is_in_one_fragment(operand, rows):
    mine = TABLE[TABLE.operand == operand]
    assert len(mine) == len(mine.drop_duplicates(["row", "element"])) == rows * 16
    assert len(mine.drop_duplicates(["mma", "row", "k"])) == rows * 16
    assert (mine.element == fragments.k_element(mine.mma.to_numpy(), mine.k.to_numpy())).all(), "whatever the row"
    assert (mine.row % 8 == fragments.load_row(mine.lane.to_numpy())).all()


def test_permuting_both_operands_leaves_the_products_alone():
    generator = np.random.default_rng(0)
    w, x = generator.integers(-9, 9, (16, 32)), generator.integers(-9, 9, (8, 32))
    total = np.zeros((16, 8), int)
    for mma in (0, 1):
        fragments = []
        for operand, matrix in (("W", w), ("x", x)):
            mine = TABLE[(TABLE.operand == operand) & (TABLE.mma == mma)]
            fragment = np.zeros((len(matrix), 16), int)
            for half in (0, 1):
                fragment[mine.row, mine.k + half] = matrix[mine.row, mine.element + half]
            fragments.append(fragment)
        total += fragments[0] @ fragments[1].T
    assert (total == w @ x.T).all()


def test_a_lane_is_told_in_words_and_lit():
    said = texts(figures.permutation_view(TABLE, lane=13, column=64))
    assert "lane 13  →  16 bytes each of weight rows 3 and 11 and of token 3: K 72 to 79" in said
    assert any(t.startswith("word 0 is k 2, 3 of mma 0 (B register 0);  word 1 is k 10, 11 of mma 0") for t in said)
    assert said.count("13") == 3 * 2 * 2 + 3 + 2, "words of A and B, three loads, element 13"


cuts = st.tuples(*(st.sampled_from([1, 2, 4]) for _ in range(2)), st.sampled_from([1, 2, 8]), st.integers(1, 6))


@settings(deadline=None, max_examples=30)
@given(cuts, st.data())
def test_every_weight_of_a_cluster_waits_somewhere(cut, data):
    rt, kq, ks, kb = cut
    staged = data.draw(st.integers(0, kb))
    table = stationary.placement_table(rt, kq, ks, kb, staged)
    for _, tile in table.groupby("row_tile"):
        assert sorted(tile.column) == list(range(0, 32 * kb * kq * ks, 32))
    assert (table.place == stationary.STAGED).sum() == rt * kq * ks * staged
    regions = {name: size for name, _, size in layout.smem_regions(8, 32 * kb * kq * ks, rt, kq, ks, staged, 0)}
    for _, cta in table[table.offset >= 0].groupby("cta"):
        assert sorted(cta.offset) == list(range(0, regions["stages"], 2 * layout.FRAGMENT_BYTES))
    cta, warp = data.draw(st.integers(0, ks - 1)), data.draw(st.integers(0, rt * kq - 1))
    fig = figures.placement_view(table, cta, warp)
    assert rectangles(fig, style.LIGHT.blue) == (rt * kq * ks + 1) * (kb - staged) + (staged >= 0)
    said = next(t for t in texts(fig) if t.startswith(f"warp {warp} of CTA {cta}  →  row tile {warp // kq}, K "))
    assert (f"{8 * (kb - staged)} registers" in said) == (staged < kb)


def steps(tactic, problem=PROBLEM, ptx=None, warp=0):
    run = traced(tactic, problem, "sm_90a", "in_order", stationary.OPCODES)
    table = run.table
    if ptx is not None:
        trace = Trace(opcodes=stationary.OPCODES, ctas=[0])
        table = trial(replace(run.compiled, ptx=ptx(run.compiled.ptx)), tactic, problem, trace=trace).table
    return stationary.warp_steps(
        table[(table.cta == 0) & (table.warp == warp)], run.compiled.ptx, tactic.smem_regions(problem)
    )


@pytest.mark.parametrize("text", ["1,2,2,0,0,1", "1,2,2,3,0,4", "2,1,4,8,0,0", "2,2,2,2,8,2"])
def test_all_weights_come_before_the_wait(text):
    tactic = WsGemmTactic.parse(text)
    table, blocks = steps(tactic), tactic.blocks(PROBLEM)
    loads = table[table.kind.isin([stationary.HELD, stationary.COPIED])]
    assert not loads.exposed.any() and len(loads) == 2 * blocks and loads.bytes.sum() == blocks * 1024
    assert (table.kind == stationary.COPIED).sum() == (table.kind == stationary.BACK).sum() == 2 * tactic.staged
    late = table[table.kind.isin([stationary.X, stationary.MMA, stationary.SUMS, stationary.PUBLISH])]
    assert late.exposed.all()
    chains = stationary.chain_table(table)
    assert len(chains) == tactic.chains(PROBLEM) and chains.mma.sum() == 2 * blocks
    assert chains.mma.max() == 2 * blocks // len(chains)
    said = texts(figures.exposure_view(table))
    assert f"before the wait: {2 * blocks} loads of {1024 * blocks:,} B of weights, all that the warp needs" in said
    assert f"mma, chain {len(chains) - 1}" in said


def test_a_wait_that_comes_too_early_shows():
    def early(ptx):
        lines = ptx.split("\n")
        wait = lines.index("\tgriddepcontrol.wait;")
        first = next(i for i, line in enumerate(lines) if "L1::no_allocate" in line)
        lines[wait] = ""
        lines[first] = "griddepcontrol.wait; " + lines[first]
        return "\n".join(lines)

    tactic = WsGemmTactic(1, 2, 2, 0, 0, 2)
    table = steps(tactic, ptx=early)
    assert table[table.kind == stationary.HELD].exposed.all()
    assert "16 loads of weights" in stationary.exposure_sentences(table)[1]


def test_more_tokens_need_no_more_weights():
    """What notebook 03 answers on M = 16."""
    tactic = WsGemmTactic(1, 2, 2, 2, 0, 2)
    one, two = steps(tactic), steps(tactic, replace(PROBLEM, m=16))
    for kind, factor in ((stationary.HELD, 1), (stationary.COPIED, 1), (stationary.X, 2), (stationary.MMA, 2)):
        assert (two.kind == kind).sum() == factor * (one.kind == kind).sum(), kind
