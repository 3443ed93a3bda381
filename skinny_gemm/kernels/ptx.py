"""The PTX instructions that the kernels issue themselves, one function each.

Addresses are integers: shared memory as 32-bit `Int32`, global memory as 64-bit `Int64`. Everything is volatile and
keeps its program order; what orders it between threads is the caller's business. The end of a name says what moves:
32-bit registers (`b32`) or FP32 words (`f32`), and how many of them; vectors are aligned to their size.
"""

from functools import partial

import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass._mlir.dialects import llvm

_ptx = cute.arch.inline_ptx


def _at(operand, offset):
    """The address in an operand, plus a constant."""
    return f"[{{$r{operand}}}+{offset}]" if offset else f"[{{$r{operand}}}]"


def _load(instruction, kind, count, address, *operands, offset=0):
    """`count` registers of type `kind` from [address + offset], `offset` a constant; `operands` follow the address."""
    registers = ", ".join(f"{{$w{i}}}" for i in range(count))
    registers = f"{{{registers}}}" if count > 1 else registers
    more = "".join(f", {{$r{i}}}" for i in range(1, 1 + len(operands)))
    text = f"{instruction} {registers}, {_at(0, offset)}{more};"
    return _ptx(text, write_only_types=[kind] * count, read_only_args=[address, *operands])


def _store(instruction, address, *words):
    """The registers `words` to [address]."""
    registers = ", ".join(f"{{$r{i}}}" for i in range(1, 1 + len(words)))
    registers = f"{{{registers}}}" if len(words) > 1 else registers
    _ptx(f"{instruction} [{{$r0}}], {registers};", read_only_args=[address, *words])


load_shared_b32 = partial(_load, "ld.shared.b32", Int32, 1)
load_shared_b16 = partial(_load, "ld.shared.b16", Int32, 1)  # into the low half, the high one is zero
load_shared_b32x4 = partial(_load, "ld.shared.v4.b32", Int32, 4)
# four 8x8 BF16 matrices, one 16-byte row address per lane
ldmatrix_x4 = partial(_load, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", Int32, 4)
load_shared_f32 = partial(_load, "ld.shared.f32", Float32, 1)
load_shared_f32x4 = partial(_load, "ld.shared.v4.f32", Float32, 4)
store_shared_b16 = partial(_store, "st.shared.b16")  # the low half
store_shared_b32 = partial(_store, "st.shared.b32")
store_shared_f32x2 = partial(_store, "st.shared.v2.f32")
store_shared_f32x4 = partial(_store, "st.shared.v4.f32")
# of another CTA of the cluster, at an address from `cluster_address`
load_cluster_f32x4 = partial(_load, "ld.shared::cluster.v4.f32", Float32, 4)
load_global_b32x2 = partial(_load, "ld.global.v2.b32", Int32, 2)
load_global_b32x4 = partial(_load, "ld.global.v4.b32", Int32, 4)
# past L1, with an L2 cache policy; not `.nc`, which the assembler moves behind `griddepcontrol.wait`: no preload
load_weights_b32x4 = partial(_load, "ld.global.L1::no_allocate.L2::cache_hint.v4.b32", Int32, 4)
load_global_b16 = partial(_load, "ld.global.b16", Int32, 1)  # into the low half, the high one is zero
store_global_b16 = partial(_store, "st.global.b16")  # the low half
store_global_b32 = partial(_store, "st.global.b32")
store_global_f32 = partial(_store, "st.global.f32")
store_global_b32x2 = partial(_store, "st.global.v2.b32")
store_global_b32x4 = partial(_store, "st.global.v4.b32")
# between kernels that run at the same time: what a kernel of the same or of any GPU polls for
poll_b32x4 = partial(_load, "ld.relaxed.sys.global.v4.b32", Int32, 4)
publish_gpu_b32x4 = partial(_store, "st.relaxed.gpu.global.v4.b32")
publish_system_b32x4 = partial(_store, "st.relaxed.sys.global.v4.b32")


def cp_async(smem, gmem, predicate=None, offsets=(0, 0)):
    """Copies 16 bytes global -> shared past L1 (`cp.async.cg`); skipped where `predicate` is false.

    Constant `offsets` are added to the addresses.
    """
    to, origin = (_at(operand, offset) for operand, offset in enumerate(offsets))
    text = f"cp.async.cg.shared.global {to}, {origin}, 16;"
    _ptx(text, read_only_args=[smem, gmem], predicate=predicate)


def cp_async_evict_first(smem, gmem, policy, predicate=None, offsets=(0, 0)):
    """`cp_async` with an L2 cache policy (from `evict_first_policy`)."""
    to, origin = (_at(operand, offset) for operand, offset in enumerate(offsets))
    text = f"cp.async.cg.shared.global.L2::cache_hint {to}, {origin}, 16, {{$r2}};"
    _ptx(text, read_only_args=[smem, gmem, policy], predicate=predicate)


def bulk_copy(smem, gmem, size, mbarrier, policy=None):
    """Copies `size` bytes (a multiple of 16) global -> shared by the bulk engine, counted on `mbarrier` (address)."""
    hint, more, operand = ("", [], "") if policy is None else (".L2::cache_hint", [policy], ", {$r4}")
    _ptx(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        f"{hint} [{{$r0}}], [{{$r1}}], {{$r2}}, [{{$r3}}]{operand};",
        read_only_args=[smem, gmem, size, mbarrier, *more],
    )


def evict_first_policy():
    """An L2 policy that makes the lines it loads the first to be evicted: weights are read once."""
    return _ptx("createpolicy.fractional.L2::evict_first.b64 {$w0}, 1.0;", write_only_types=[Int64])


def vector_register(value, lane):
    """A warp-uniform `Int32` that the assembler must keep in a vector register: it passes through a shuffle.

    With a uniform shared-memory base ptxas 13.4 emits hinted copies as `LDGSTS [R3+UR4], desc[UR5]`, whose odd
    descriptor is illegal. Each lane shuffles from itself a value that differs by lane, so nothing shows as uniform.
    """
    return cute.arch.shuffle_sync(value + lane, lane) - lane


def mma_bf16(acc, a, b):
    """acc + a @ b for one m16n8k16 fragment: `acc` 4 Float32, `a` 4 and `b` 2 registers of BF16 pairs; returns 4."""
    f32 = Float32.mlir_type
    # Not `_ptx`: it would put a `mov` in front of each of the four FP32 inputs of every mma.
    result = llvm.inline_asm(
        llvm.StructType.get_literal([f32] * 4),
        [value.ir_value() for value in (*a, *b, *acc)],
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};",
        "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
        has_side_effects=False,
    )
    return [Float32(llvm.extractvalue(f32, result, [i])) for i in range(4)]


def wgmma_bf16(acc, a, b, steps):
    """acc + a @ b^T over K steps of 16, waited for: m64nNk16 of a warpgroup with both operands in shared memory.

    `acc` N / 2 Float32; `a` and `b` descriptors (`Int64`) of their 64 and N rows, to which each of the constants
    `steps` is added for one `wgmma`. Returns the new accumulators. One block, so that nothing comes between that
    touches them.
    """
    f32, count = Float32.mlir_type, len(acc)
    registers = ", ".join(f"${i}" for i in range(count))
    instruction = f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.bf16.bf16 {{{registers}}}"
    moves = [f"add.s64 a, ${2 * count}, {step}; add.s64 b, ${2 * count + 1}, {step};" for step in steps]
    text = " ".join([
        "{.reg .pred p; .reg .b32 one; .reg .b64 a, b; mov.b32 one, 1; setp.ne.b32 p, one, 0;",
        "wgmma.fence.sync.aligned;",
        *(f"{move} {instruction}, a, b, p, 1, 1, 0, 0;" for move in moves),
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}",
    ])  # fmt: skip
    result = llvm.inline_asm(
        llvm.StructType.get_literal([f32] * count),
        [value.ir_value() for value in (*acc, a, b)],
        text,
        ",".join(["=f"] * count + [str(i) for i in range(count)] + ["l", "l"]),
        has_side_effects=True,
    )
    return [Float32(llvm.extractvalue(f32, result, [i])) for i in range(count)]


def fence_async_proxy():
    """Makes what this thread wrote to shared memory visible to `wgmma` and bulk copies, once they are ordered."""
    _ptx("fence.proxy.async.shared::cta;")


def cluster_address(smem, cta):
    """Where the shared-memory address `smem` of this CTA lies in CTA `cta` of its cluster."""
    return _ptx("mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[smem, cta])


def store_cluster_async_f32x4(address, words, mbarrier):
    """Sends four FP32 words to a CTA of the cluster, which counts the 16 bytes on `mbarrier` of the same CTA."""
    _ptx(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}}, [{$r5}];",
        read_only_args=[address, *words, mbarrier],
    )


def mbarrier_wait_cluster(mbarrier, parity):
    """Waits for a phase of `mbarrier` that other CTAs of the cluster complete: acquires at cluster scope."""
    attempt = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [{$r0}], {$r1};"
    _ptx(f"{{.reg .pred done; again: {attempt} @!done bra again;}}", read_only_args=[mbarrier, parity])


def publish_multicast_b32x4(gmem, *words):
    """Stores 16 bytes to every GPU behind a multicast address."""
    _store("multimem.st.relaxed.sys.global.v4.f32", gmem, *(bitcast(Float32, word) for word in words))


def nanoseconds():
    """The GPU's clock, in nanoseconds; it ticks about every microsecond."""
    # Not `_ptx`, which takes the percent sign for an operand.
    clock = llvm.inline_asm(Int64.mlir_type, [], "mov.u64 $0, %globaltimer;", "=l", has_side_effects=True)
    return Int64(clock)


def pack_bf16x2(low, high):
    """Rounds two FP32 to nearest-even BF16 and packs them, `low` in the low half."""
    return _ptx("cvt.rn.bf16x2.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[high, low])


def unpack_bf16x2(pair):
    """The two BF16 of a 32-bit register as FP32, low half first."""
    return bitcast(Float32, pair << 16), bitcast(Float32, pair & Int32(-65536))


def bitcast(kind, value):
    """The 32 bits of `value` as a `kind`, Int32 or Float32."""
    return kind(llvm.bitcast(kind.mlir_type, value.ir_value()))


def without(word, sentinel):
    """`word` (32 bits), or 0 where it has exactly the bits of `sentinel`."""
    text = "{.reg .pred same; setp.eq.b32 same, {$r0}, {$r1}; selp.b32 {$w0}, 0, {$r0}, same;}"
    return _ptx(text, write_only_types=[Int32], read_only_args=[word, sentinel])
