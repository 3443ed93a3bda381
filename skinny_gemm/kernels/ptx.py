"""The PTX instructions that the kernels issue themselves, one function each.

Addresses are integers: shared memory as 32-bit `Int32`, global memory as 64-bit `Int64`. Everything is volatile and
keeps its program order; what orders it between threads is the caller's business.
"""

import cutlass.cute as cute
from cutlass import Float32, Int32, Int64
from cutlass._mlir.dialects import llvm

_ptx = cute.arch.inline_ptx


def cp_async(smem, gmem, predicate=None):
    """Copies 16 bytes global -> shared past L1 (`cp.async.cg`); skipped where `predicate` is false."""
    _ptx("cp.async.cg.shared.global [{$r0}], [{$r1}], 16;", read_only_args=[smem, gmem], predicate=predicate)


def cp_async_evict_first(smem, gmem, policy):
    """`cp_async` with an L2 cache policy (from `evict_first_policy`)."""
    _ptx(
        "cp.async.cg.shared.global.L2::cache_hint [{$r0}], [{$r1}], 16, {$r2};",
        read_only_args=[smem, gmem, policy],
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


def ldmatrix_x4(smem):
    """Four 8x8 BF16 matrices from shared memory, one 16-byte row address per lane; four 32-bit registers."""
    return _ptx(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];",
        write_only_types=[Int32] * 4,
        read_only_args=[smem],
    )


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


def store_shared_f32x2(smem, a, b):
    """Stores two FP32 words (8 bytes, aligned) to shared memory."""
    _ptx("st.shared.v2.f32 [{$r0}], {{$r1}, {$r2}};", read_only_args=[smem, a, b])


def load_shared_f32(smem):
    """Loads one FP32 word from shared memory."""
    return _ptx("ld.shared.f32 {$w0}, [{$r0}];", write_only_types=[Float32], read_only_args=[smem])


def pack_bf16x2(low, high):
    """Rounds two FP32 to nearest-even BF16 and packs them, `low` in the low half."""
    return _ptx("cvt.rn.bf16x2.f32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[high, low])


def store_global_b32x2(gmem, a, b):
    """Stores two 32-bit registers (8 bytes, aligned) to global memory."""
    _ptx("st.global.v2.b32 [{$r0}], {{$r1}, {$r2}};", read_only_args=[gmem, a, b])


def load_global_b32x2(gmem):
    """Loads two 32-bit registers (8 bytes, aligned) from global memory."""
    return _ptx("ld.global.v2.b32 {{$w0}, {$w1}}, [{$r0}];", write_only_types=[Int32] * 2, read_only_args=[gmem])


def unpack_bf16x2(pair):
    """The two BF16 of a 32-bit register as FP32, low half first."""
    return _bits_to_f32(pair << 16), _bits_to_f32(pair & Int32(-65536))


def _bits_to_f32(bits):
    return Float32(llvm.bitcast(Float32.mlir_type, bits.ir_value()))


def bulk_copy(smem, gmem, size, mbarrier, policy=None):
    """Copies `size` bytes (a multiple of 16) global -> shared by the bulk engine, counted on `mbarrier` (address)."""
    target = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    if policy is None:
        _ptx(target + " [{$r0}], [{$r1}], {$r2}, [{$r3}];", read_only_args=[smem, gmem, size, mbarrier])
    else:
        _ptx(
            target + ".L2::cache_hint [{$r0}], [{$r1}], {$r2}, [{$r3}], {$r4};",
            read_only_args=[smem, gmem, size, mbarrier, policy],
        )


def load_global_b32x4(gmem):
    """Loads four 32-bit registers (16 bytes, aligned) from global memory."""
    return _ptx(
        "ld.global.v4.b32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];", write_only_types=[Int32] * 4, read_only_args=[gmem]
    )


def store_global_b32(gmem, value):
    """Stores one 32-bit register to global memory."""
    _ptx("st.global.b32 [{$r0}], {$r1};", read_only_args=[gmem, value])


def store_shared_b32(smem, value):
    """Stores one 32-bit register to shared memory."""
    _ptx("st.shared.b32 [{$r0}], {$r1};", read_only_args=[smem, value])


def load_shared_b32(smem):
    """Loads one 32-bit register from shared memory."""
    return _ptx("ld.shared.b32 {$w0}, [{$r0}];", write_only_types=[Int32], read_only_args=[smem])


def load_weights_b32x4(gmem, policy):
    """Loads four 32-bit registers past L1, with an L2 cache policy.

    Not `.nc`: the assembler moves such loads behind `griddepcontrol.wait`, which undoes the preload.
    """
    return _ptx(
        "ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}], {$r1};",
        write_only_types=[Int32] * 4,
        read_only_args=[gmem, policy],
    )


def load_shared_b32x4(smem):
    """Loads four 32-bit registers (16 bytes, aligned) from shared memory."""
    return _ptx(
        "ld.shared.v4.b32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];", write_only_types=[Int32] * 4, read_only_args=[smem]
    )


def load_shared_f32x4(smem):
    """Loads four FP32 words (16 bytes, aligned) from shared memory."""
    return _ptx(
        "ld.shared.v4.f32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];",
        write_only_types=[Float32] * 4,
        read_only_args=[smem],
    )


def store_shared_f32x4(smem, words):
    """Stores four FP32 words (16 bytes, aligned) to shared memory."""
    _ptx("st.shared.v4.f32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}};", read_only_args=[smem, *words])


def cluster_address(smem, cta):
    """Where the shared-memory address `smem` of this CTA lies in CTA `cta` of its cluster."""
    return _ptx("mapa.shared::cluster.u32 {$w0}, {$r0}, {$r1};", write_only_types=[Int32], read_only_args=[smem, cta])


def load_cluster_f32x4(address):
    """Loads four FP32 words (16 bytes, aligned) from any CTA of the cluster; `address` from `cluster_address`."""
    return _ptx(
        "ld.shared::cluster.v4.f32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];",
        write_only_types=[Float32] * 4,
        read_only_args=[address],
    )


def store_cluster_async_f32x4(address, words, mbarrier):
    """Sends four FP32 words to a CTA of the cluster, which counts the 16 bytes on `mbarrier` of the same CTA."""
    _ptx(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}}, [{$r5}];",
        read_only_args=[address, *words, mbarrier],
    )


def mbarrier_wait_cluster(mbarrier, parity):
    """Waits for a phase of `mbarrier` that other CTAs of the cluster complete: acquires at cluster scope."""
    _ptx(
        "{.reg .pred done; again: "
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [{$r0}], {$r1}; "
        "@!done bra again;}",
        read_only_args=[mbarrier, parity],
    )


def without(word, sentinel):
    """`word` (32 bits), or 0 where it has exactly the bits of `sentinel`."""
    return _ptx(
        "{.reg .pred same; setp.eq.b32 same, {$r0}, {$r1}; selp.b32 {$w0}, 0, {$r0}, same;}",
        write_only_types=[Int32],
        read_only_args=[word, sentinel],
    )


def f32_bits(value):
    """The 32 bits of an FP32 word."""
    return Int32(llvm.bitcast(Int32.mlir_type, value.ir_value()))


def publish_gpu_b32x4(gmem, words):
    """Stores 16 bytes that a kernel of the same GPU polls for."""
    _ptx("st.relaxed.gpu.global.v4.b32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}};", read_only_args=[gmem, *words])


def publish_system_b32x4(gmem, words):
    """Stores 16 bytes that a kernel of any GPU polls for."""
    _ptx("st.relaxed.sys.global.v4.b32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}};", read_only_args=[gmem, *words])


def publish_multicast_b32x4(gmem, words):
    """Stores 16 bytes to every GPU behind a multicast address."""
    _ptx(
        "multimem.st.relaxed.sys.global.v4.f32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}};",
        read_only_args=[gmem, *(_bits_to_f32(word) for word in words)],
    )


def poll_b32x4(gmem):
    """Loads 16 bytes that another kernel may be publishing."""
    return _ptx(
        "ld.relaxed.sys.global.v4.b32 {{$w0}, {$w1}, {$w2}, {$w3}}, [{$r0}];",
        write_only_types=[Int32] * 4,
        read_only_args=[gmem],
    )


def nanoseconds():
    """The GPU's clock, in nanoseconds; it ticks about every microsecond."""
    # Not `_ptx`, which takes the percent sign for an operand.
    clock = llvm.inline_asm(Int64.mlir_type, [], "mov.u64 $0, %globaltimer;", "=l", has_side_effects=True)
    return Int64(clock)


def store_global_b32x4(gmem, words):
    """Stores four 32-bit registers (16 bytes, aligned) to global memory."""
    _ptx("st.global.v4.b32 [{$r0}], {{$r1}, {$r2}, {$r3}, {$r4}};", read_only_args=[gmem, *words])
