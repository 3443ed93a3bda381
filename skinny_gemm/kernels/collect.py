"""The consumer of the mailbox: gathers every rank's part of the latent and the logits, and re-arms what it read.

A thread polls one 16-byte fragment of a token's row until none of its words is the sentinel, stores it to `latent` or
`logits`, and puts the sentinel back for the step after the next. After `timeout_ns` it notes in `status` that the
fragment is missing: a 1 for it, and the collect's step + 1 and timeout in the header, the same from every thread. Later
collects add nothing until the host zeroes the status.
"""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64

from ..artifact import Parameter
from ..layouts import mailbox as mail
from . import ptx


class Collect:
    """The consumer for rows of `latent` BF16 and `experts` FP32, and any M; `pdl` compiles PDL in or out."""

    parameters = (
        Parameter("mailbox", "pointer", written=True, alignment=16),  # this step's buffer
        Parameter("latent", "pointer", written=True, alignment=16),
        Parameter("logits", "pointer", written=True, optional=True, dtype="Float32", alignment=16),
        Parameter("status", "pointer", written=True, dtype="Int32", alignment=16),  # `mail.status_words`
        Parameter("timeout_ns", "i64"),
        Parameter("step", "i32"),
    )
    block, cluster, smem_bytes = (mail.COLLECT_THREADS, 1, 1), (1, 1, 1), 0

    def __init__(self, latent: int, experts: int, pdl: bool):
        self.latent, self.experts, self.pdl = latent, experts, pdl
        self.width = latent + 2 * experts

    @cute.jit
    def __call__(self, *values):
        grid = mail.collect_grid(1, self.width)  # only traced: a launch takes that of its own M
        self.kernel(*values).launch(grid=grid, block=self.block, use_pdl=self.pdl)

    @cute.kernel
    def kernel(self, mailbox, latent, logits, status, timeout_ns, step):
        if cutlass.const_expr(self.pdl):
            # Whoever still reads the last step's outputs has finished. Dependents are not launched early: the next
            # step's publishers count on the re-armed mailbox.
            cute.arch.griddepcontrol_wait()
        thread, _, _ = cute.arch.thread_idx()
        chunk, token, _ = cute.arch.block_idx()
        fragment = chunk * mail.COLLECT_THREADS + thread
        if fragment < mail.fragments(self.width):
            column = fragment * (mail.FRAGMENT_BYTES // 2)
            source = mailbox.toint() + Int64(mail.offset(0, token, column, 0, self.width))
            sentinel = Int32(mail.LATENT_SENTINEL - (1 << 32))
            target = latent.toint() + (Int64(token) * self.latent + column) * 2
            if column >= self.latent:
                sentinel = Int32(mail.LOGIT_SENTINEL - (1 << 32))
                target = logits.toint() + Int64(token) * self.experts * 4 + Int64(column - self.latent) * 2
            a, b, c, d = ptx.poll_b32x4(source)
            start, waited = ptx.nanoseconds(), Int64(0)
            while (a == sentinel or b == sentinel or c == sentinel or d == sentinel) and waited < timeout_ns:
                a, b, c, d = ptx.poll_b32x4(source)
                waited = ptx.nanoseconds() - start
            if a == sentinel or b == sentinel or c == sentinel or d == sentinel:
                failed, _ = ptx.load_global_b32x2(status.toint())
                if failed == 0 or failed == step + 1:
                    limit = Int32(timeout_ns), Int32(timeout_ns >> 32)
                    ptx.store_global_b32x4(status.toint(), step + 1, *limit, Int32(0))
                    ptx.store_global_b32(status.toint() + mail.status_offset(token, fragment, self.width), Int32(1))
            else:
                ptx.store_global_b32x4(target, a, b, c, d)
                # Like a publisher's store: the one of two steps later goes to the same address from another GPU.
                ptx.publish_system_b32x4(source, *[sentinel] * 4)

    kernel.set_name_prefix("collect", remove_cutlass_symbol=True, keep_mangled_name=False)


build = Collect
