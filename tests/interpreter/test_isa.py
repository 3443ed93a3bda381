"""The table of the instruction set: what a row says is what its emitter does, and nothing else knows opcodes.

- no opcode has two rows, and every row takes a real instruction;
- registers, memory and blocks of the generated code are those of the row;
- what does not fit a row is refused by opcode and line, whatever it looks like; an emitter's own mistake is not;
- no other module lists opcodes;
- only what changes shared memory, or lets others do so, ends a run of mma.
"""

import ast
import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skinny_gemm import interpreter
from skinny_gemm.interpreter import codegen, flow, isa, parser

PTX = """.visible .entry k(.param .u64 a, .param .u32 b)
{{
.reg .pred %p<9>; .reg .b32 %r<199>; .reg .b64 %rd<199>;
L: {line};
ret;
}}"""
LINE = 4
#: Text of the operands that the letters of `isa.OPERANDS` stand for.
TEXT = {
    "r": "%r1",
    "p": "%p1",
    "_": "_",
    "i": "4",
    "f": "0f3F800000",
    "s": "%tid.x",
    "a": "[%r2]",
    "m": "[a]",
    "t": "L",
}
FORMS = sorted(isa.ISA)
few = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def written(op: str, letters: str, guard: str = "") -> str:
    """An instruction as PTX text; each of its 32-bit registers is another."""
    numbers = iter(range(10, 199))
    operands = ", ".join(f"%r{next(numbers)}" if letter == "r" else TEXT.get(letter, letter) for letter in letters)
    operands = operands.replace("(, ", "{").replace(", )", "}")
    if op.startswith("wgmma.mma_async") and operands.endswith(", 4, 4, 4, 4"):  # signs, and what is transposed
        operands = operands.removesuffix("4, 4, 4, 4") + "1, -1, 0, 0"
    return f"{guard}{op} {operands}"


def flow_of(line: str) -> flow.Flow:
    return flow.analyse(parser.parse(PTX.format(line=line))["k"])


def generated(line: str) -> codegen.Program:
    return codegen.generate(flow_of(line))


def drawn(form: str, data) -> tuple[str, str]:
    """(opcode, letters of its operands) that a row takes, a policy included where the opcode asks for one."""
    op = data.draw(st.from_regex(isa.opcodes(form), fullmatch=True))
    policy = "r" if "L2::cache_hint" in op else ""
    letters = data.draw(st.from_regex(isa.operands(isa.ISA[form].operands), fullmatch=True)) + policy
    if shape := re.search(r"\.m64n(\d+)k16", op):  # as many registers as the accumulator takes
        letters = re.sub(r"\(r+\)", f"({'r' * (int(shape[1]) // 2)})", letters, count=1)
    return op, letters


def assert_refused(line: str, op: str):
    with pytest.raises(interpreter.UnsupportedInstruction, match=rf"PTX line {LINE}: .*{re.escape(repr(op))}"):
        generated(line)


@pytest.mark.parametrize("form", FORMS)
@few
@given(data=st.data())
def test_an_opcode_has_one_row(form, data):
    op = data.draw(st.from_regex(isa.opcodes(form), fullmatch=True))
    assert [other for other in FORMS if isa.opcodes(other).fullmatch(op)] == [form]


@pytest.mark.parametrize("form", FORMS)
def test_a_row_is_what_its_emitter_does(form):
    row, accepted = isa.ISA[form], []

    @settings(few, max_examples=40)
    @given(data=st.data())
    def run(data):
        op, letters = drawn(form, data)
        line, wide = written(op, letters), data.draw(st.sets(st.integers(0, 3)))
        line = re.sub(r"%r(\d\d)", lambda r: f"%rd{r[1]}" if int(r[1]) - 10 in wide else r[0], line)
        try:
            program = generated(line)
        except interpreter.UnsupportedInstruction:  # a form beyond the row, such as two registers for v4, or a width
            return
        accepted.append(op)
        ins, flow = program.flow.kernel.instructions[0], program.flow
        assert flow.blocks[0].waits == row.blocks and (flow.blocks[0].branch is ins) == row.jump
        assert bool(flow.writes[0]) <= row.result
        if row.blocks:
            assert flow.blocks[0].stop == 1 and program.functions[0] is None and isa.changes_shared(ins)
            return
        lines = [line for line in program.source.split("\n") if not re.match(r" (v\d+ = )?R\[|def | v\d+ = R", line)]
        assigned = {name for line in lines if (m := re.match(r" (v\d+) = ", line)) for name in m.groups()}
        assert assigned == {f"v{flow.number[name]}" for name in flow.writes[0]}
        called = set(re.findall(r"g\.(\w+)", program.source)) - QUIET
        space, size = isa.access(ins)
        assert bool(called) == bool(row.reads or row.writes), called
        assert not called or called <= CALLS[space], called
        if row.bytes is None:
            assert f", {size}, " in program.source or size == width_of_stored(program.source, ins)
        assert isa.changes_shared(ins) or not called & CHANGES

    run()
    assert accepted


#: Methods of a group that touch no memory that the table knows.
QUIET = {"parameter", "special", "clock", "mapa", "converged", "elect", "warp_sync", "bar_arrive", "cluster_arrive",
         "fence", "sleep", "dependency_wait", "wgmma_fence"}  # fmt: skip
#: Those that do, by the memory that a row names.
CALLS = {
    "global": {"load_global", "store_global", "store_multicast"},
    "dsmem": {"load_cluster", "store_cluster", "transfer"},
    "shared": {
        "load_shared",
        "store_shared",
        "ldmatrix",
        "copy_async",
        "transfer",
        "commit",
        "wait_groups",
        "arrive",
        "arrive_copies",
        "init_barrier",
        "invalidate_barrier",
        "expect_bytes",
        "wgmma",
        "wgmma_commit",
        "wgmma_wait",
    },  # fmt: skip
}
READS = {"load_shared", "load_cluster", "ldmatrix", "wgmma", "wgmma_commit", "wgmma_wait"}
CHANGES = (CALLS["shared"] | CALLS["dsmem"]) - READS


def width_of_stored(source: str, ins) -> int:
    """Bytes of the words `(a, b,)` that a store is given."""
    words = re.search(r"\((?!\d+, v|\d+, K)([^()]*(?:\([^()]*\)[^()]*)*),\)", source)[1]
    return len(re.findall(r"[vK]\d+|g\.special", words)) * parser.width_of(ins.op[-1]) // 8


@pytest.mark.parametrize("form", FORMS)
@few
@given(data=st.data())
def test_what_does_not_fit_its_row_is_refused_by_opcode_and_line(form, data):
    op, letters = drawn(form, data)
    parts = op.split(".")
    place = data.draw(st.integers(1, len(parts)))
    for wrong in (parts[:place] + ["bogus"] + parts[place:], [*parts[: max(len(parts) - 1, 1)], "x99"]):
        assert_refused(written(".".join(wrong), letters), ".".join(wrong))
    assert_refused(written(op, letters, "@%r9 "), op)
    if "t" in letters:  # the parser finds labels
        return
    other = data.draw(st.text("rpifsam", max_size=7))
    for wrong in (letters + "r", letters + "f", letters[:-1] if letters[-1:] != ")" else "", other):
        if not any(isa.operands(isa.ISA[form].operands).fullmatch(w) for w in (wrong, wrong.removesuffix("r"))):
            assert_refused(written(op, wrong), op)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mov.b32 %r1, %rd1", "%rd1 has 64 bits where 'mov.b32' takes 32"),
        ("add.s32 %r1, %rd1, %r2", "%rd1 has 64 bits where 'add.s32' takes 32"),
        ("add.s32 %rd1, %r1, %r2", "%rd1 has 64 bits where 'add.s32' takes 32"),
        ("add.s64 %rd1, %r1, %rd2", "%r1 has 32 bits where 'add.s64' takes 64"),
        ("mul.wide.u32 %r1, %r2, %r3", "%r1 has 32 bits where 'mul.wide.u32' takes 64"),
        ("shl.b64 %rd1, %rd2, %rd3", "%rd3 has 64 bits where 'shl.b64' takes 32"),
        ("ld.shared.b64 %r1, [%r2]", "%r1 has 32 bits where 'ld.shared.b64' takes 64"),
        ("cvt.s64.s32 %r1, %r2", "%r1 has 32 bits where 'cvt.s64.s32' takes 64"),
    ],
)
def test_a_register_is_as_wide_as_the_type_or_wider_where_memory_or_a_conversion_is_concerned(line, words):
    with pytest.raises(interpreter.UnsupportedInstruction, match=f"PTX line {LINE}: {words}"):
        generated(line)
    generated("; ".join(("ld.shared.u8 %rd1, [%r2]", "st.shared.b32 [%r2], %rd1", "cvt.u32.u16 %rd1, %r1")))


@pytest.mark.parametrize("op", ["sub.u16x2 %r1, %r2, %r3", "mul.lo.s16x2 %r1, %r2, %r3", "griddepcontrol.foo"])
def test_a_form_that_ptx_does_not_have_is_refused(op):
    assert_refused(op, op.split()[0])


@settings(few, max_examples=200)
@given(form=st.sampled_from(FORMS), letters=st.text("rp_ifsamt", max_size=5), data=st.data())
def test_any_operands_become_code_or_a_refusal(form, letters, data):
    op = data.draw(st.from_regex(isa.opcodes(form), fullmatch=True))
    guard = data.draw(st.sampled_from(["", "@%p2 ", "@!%p2 "]))
    try:
        generated(written(op, letters, guard))
    except interpreter.InterpreterError:
        pass


@settings(few, max_examples=200)
@given(
    text=st.text("%r1p_[]{}()+-|,.@!:0fxLab \n", max_size=30),
    op=st.sampled_from(["", "mov.b32 ", "bra ", "ret ", "@%p1 "]),
)
def test_any_text_becomes_code_or_an_error_of_the_kernel(text, op):
    try:
        generated(op + text)
    except interpreter.InterpreterError:
        pass


@pytest.mark.parametrize("error", [TypeError, AttributeError, KeyError, ValueError])
def test_a_mistake_of_an_emitter_is_not_called_an_unsupported_instruction(error, monkeypatch):
    def broken(writer, ins):
        raise error("broken")

    analysed = flow_of("add.s32 %r1, %r2, %r3")
    analysed.rows[0] = dataclasses.replace(analysed.rows[0], emit=broken)
    with pytest.raises(error, match="broken"):
        codegen.generate(analysed)


#: What can be combined by `redux` and in `setp` has the names of opcodes.
COMBINATIONS = {"add", "min", "max", "and", "or", "xor"}


def test_no_other_module_lists_opcodes():
    heads = {head for form in FORMS for op in form.split(" | ") for head in re.findall(r"\w+", op.split(".")[0])}
    folder = Path(isa.__file__).parent
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = {
                child.value.split(".")[0]
                for child in ast.iter_child_nodes(node)
                if isinstance(child, ast.Constant) and isinstance(child.value, str)
            }
            listed = names & heads
            assert path.name == "isa.py" or len(listed) < 3 or listed <= COMBINATIONS, (path.name, listed)


ENDS = {
    True: """st.shared.b32 [%r1], %r2 | st.shared::cluster.b32 [%r1], %r2 | bar.sync 0 | bar.warp.sync -1
        | bar.arrive 1, 64 | barrier.cluster.arrive | barrier.cluster.wait | mbarrier.arrive.shared.b64 %rd1, [%r1]
        | mbarrier.init.shared.b64 [%r1], 1 | mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0
        | st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], %r2, [%r3] | cp.async.commit_group
        | cp.async.ca.shared.global [%r1], [%rd1], 4 | cp.async.wait_group 0 | cp.async.wait_all
        | cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]
        | cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2]""",
    False: """lop3.b32 %r1, %r2, %r3, %r4, 1 | prmt.b32 %r1, %r2, %r3, %r4 | bfe.u32 %r1, %r2, 0, 4
        | bfi.b32 %r1, %r2, %r3, 0, 4 | shf.l.wrap.b32 %r1, %r2, %r3, %r4 | mapa.shared::cluster.u32 %r1, %r2, 0
        | clz.b32 %r1, %r2 | brev.b32 %r1, %r2 | activemask.b32 %r1 | nanosleep.u32 4 | redux.sync.add.u32 %r1, %r2, -1
        | ld.shared.b32 %r1, [%r2] | ld.volatile.shared.b32 %r1, [%r2] | ld.global.b32 %r1, [%rd1]
        | ld.param.b64 %rd1, [a] | st.global.b32 [%rd1], %r1 | multimem.st.relaxed.sys.global.b32 [%rd1], %r1
        | wgmma.fence.sync.aligned | wgmma.commit_group.sync.aligned | wgmma.wait_group.sync.aligned 0
        | fence.proxy.async | fence.acq_rel.cluster | membar.gl | griddepcontrol.wait | prefetch.global.L2 [%rd1]
        | add.s32 %r1, %r2, %r3
        | setmaxnreg.inc.sync.aligned.u32 40 | shfl.sync.idx.b32 %r1, %r2, 0, 31, -1 | elect.sync %r1|%p1, -1""",
}


@pytest.mark.parametrize("ends", ENDS)
def test_only_what_changes_shared_memory_or_lets_others_run_ends_a_run_of_mma(ends):
    for line in re.split(r"\s+\|\s+", ENDS[ends]):
        assert isa.changes_shared(flow_of(line).kernel.instructions[0]) == ends, line


@pytest.mark.parametrize("ends", ENDS)
def test_a_run_of_mma_goes_on_across_what_leaves_shared_memory_alone(ends):
    accumulators = [f"{{{', '.join(f'%r{n}' for n in range(first, first + 4))}}}" for first in (10, 14, 18)]
    steps = []
    for step, (c, d) in enumerate(zip(accumulators, accumulators[1:], strict=False)):
        a, b = (f"{{{', '.join(f'%r{20 + 10 * (step + 1) + i}' for i in part)}}}" for part in (range(4), range(4, 6)))
        steps.append(
            f"""ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a}, [%r5]; ldmatrix.sync.aligned.m8n8.x2.shared.b16
            {b}, [%r6]; mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {d}, {a}, {b}, {c}""".replace("\n", " ")
        )
    between = "st.shared.b32 [%r7], %r8" if ends else "lop3.b32 %r7, %r8, %r9, %r8, 150"
    source = generated("; ".join([steps[0], between, steps[1], "st.shared.b32 [%r9], %r18"])).source
    assert source.count("mma(") == 1 + ends and source.count("g.gather(") == 2 * (1 + ends)


def test_an_mma_of_constants_belongs_to_no_run():
    op, d = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "{%r10, %r11, %r12, %r13}"
    source = generated(f"{op} {d}, {{4, 4, 4, 4}}, {{4, 4}}, {{0, 0, 0, 0}}").source
    assert "ops.fragment(" in source and "g.gather(" not in source
