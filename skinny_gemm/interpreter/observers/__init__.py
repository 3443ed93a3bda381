"""Who watches a run: the events of the machine, and the base class of everything that subscribes to them.

- `poison` looks for uses of data that is not there yet: uninitialised, or still to come from a preceding kernel;
- `clocks` and `races` look for accesses of shared memory that nothing orders;
- `trace` records what happens as a table.

An `InterpreterError` that an observer raises ends the run.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from ..place import Array, Mask, Place

if TYPE_CHECKING:
    from ..asynchronous import Batch, Copy, Transfer
    from ..barriers import Barrier, MBarrier, Rows
    from ..machine import Machine
    from ..memory import Buffer


class Observer:
    """Hears every event and does nothing; an observer overrides those that it wants to hear.

    Unless an event says otherwise, `place` is some warps of some CTAs, `index` an instruction, `addresses` an array
    (CTAs | 1, warps | 1, lanes | 1) of shared addresses, in their own CTA or in those of `rows`, and `mask` the lanes
    in which it happens (None: all).
    """

    def start(self, machine: "Machine") -> Optional["Observer"]:
        """A chunk of CTAs is about to run: who shall hear its events, if anyone. It must forget earlier chunks."""
        return self

    # Values and global memory

    #: `values` decide `what` of an instruction: which way a branch goes, an address of a barrier, a count.
    def decides(self, place: Place, index: int, values: Array, what: str, mask: Mask = None) -> None: ...
    #: Some of the `addresses` in `space` (shared or global) are bad; an error that says so comes next.
    def faulted(self, place: Place, index: int, addresses: Array, space: str) -> None: ...
    #: Global `addresses` will be read, or a copy from there starts.
    def global_read(self, place: Place, index: int, addresses: Array, mask: Mask) -> None: ...
    #: A store of `words` to global `addresses` is about to happen.
    def global_write(self, place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None: ...
    #: The run is over; `buffers` hold what it stored through a parameter, one for each fill pattern.
    def output(self, name: str, buffers: "Sequence[Buffer]") -> None: ...

    # Shared memory

    #: Every lane reads or writes `width` bytes, within bounds.
    def access(self, place: Place, index: int, addresses: Array, width: int, mask: Mask, write: bool,
               rows: Array | None = None) -> None: ...  # fmt: skip
    #: What the lanes of a store write, after its `access`.
    def store(self, place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask,
              rows: Array | None = None) -> None: ...  # fmt: skip

    # Asynchronous copies and transfers

    #: A `cp.async` begins. If the place is split later, parts of the copy land apart (see `Copy.origin`).
    def copy_issued(self, place: Place, copy: "Copy") -> None: ...
    #: The copies that each lane has issued since its last such event form a group.
    def copies_committed(self, place: Place, mask: Mask) -> None: ...
    #: All groups of each lane's copies but the latest `keep` have landed and are visible to it.
    def copies_waited(self, place: Place, keep: int, mask: Mask) -> None: ...
    #: The copies that the lanes of a batch have issued and not waited for will arrive at an mbarrier.
    def copies_tied(self, place: Place, batch: "Batch") -> None: ...
    #: The bytes of some copies have appeared.
    def copies_landed(self, place: Place, copies: "Sequence[Copy]") -> None: ...
    #: A batch that has landed arrives at its mbarrier.
    def copies_arrive(self, batch: "Batch", barrier: "MBarrier") -> None: ...
    #: A bulk copy or `st.async` begins; its `parts` land apart. `addresses` in `rows` are its mbarriers.
    def transfer_issued(self, place: Place, parts: "Sequence[Transfer]", addresses: Array, mask: Mask,
                        rows: Array) -> None: ...  # fmt: skip
    #: The bytes of a part of a transfer have appeared; they will be counted at its mbarriers next.
    def transfer_landed(self, transfer: "Transfer") -> None: ...
    #: What has landed has been counted at an mbarrier.
    def landed(self, flight: "Batch | Transfer", barrier: "MBarrier") -> None: ...

    # Products of warpgroups

    #: Warps issue a wgmma that reads the 16-byte chunks at `addresses` (CTAs | 1, warps | 1, chunks).
    def product_reads(self, place: Place, index: int, addresses: Array) -> None: ...
    #: The wgmma that a place has issued since the last such event form a group.
    def products_committed(self, place: Place) -> None: ...
    #: All groups of a place's wgmma but the latest `keep` are done.
    def products_waited(self, place: Place, keep: int) -> None: ...

    # Synchronisation

    #: Lanes have initialised mbarriers.
    def initialised(self, place: Place, index: int, addresses: Array, mask: Mask) -> None: ...
    #: Lanes arrive, with a scope, at a barrier of their own CTA or of those that shared::cluster `addresses` name.
    def arrives(self, place: Place, barrier: "Barrier", mask: Mask, addresses: Array | None = None,
                scope: str = "cta") -> None: ...  # fmt: skip
    #: A barrier's counts have changed; `opened` says in which of `rows` that completes a phase.
    def completed(self, barrier: "Barrier", rows: "Rows", opened: Array) -> None: ...
    #: A place has seen that a barrier's phase is complete, by a wait of some scope.
    def acquired(self, place: Place, barrier: "Barrier", scope: str = "cta") -> None: ...
    #: Lanes arrive at the cluster barrier, by a release or relaxed.
    def cluster_arrives(self, place: Place, mask: Mask, release: bool) -> None: ...
    #: A phase of the cluster barrier is complete in those `clusters` where this is true.
    def cluster_completed(self, clusters: Array) -> None: ...
    #: A place has passed the cluster barrier.
    def cluster_acquired(self, place: Place) -> None: ...
    #: Lanes execute `fence.mbarrier_init` (`kind` init), `fence.acq_rel` of at least cluster scope (cluster) or
    #: `fence.proxy.async` (proxy).
    def fence(self, place: Place, kind: str, mask: Mask) -> None: ...
    #: Lanes execute `bar.warp.sync`.
    def warp_sync(self, place: Place, mask: Mask) -> None: ...
    #: All threads of a place are gone.
    def exited(self, place: Place) -> None: ...

    # Execution

    #: An instruction that `Trace.wants` is executed; a copy has global `source` addresses and a `size` in bytes.
    def executed(self, place: Place, index: int, mask: Mask, addresses: Array | None, source: Array | None,
                 size: Array | None) -> None: ...  # fmt: skip
    #: A place reaches a blocking instruction and cannot pass yet.
    def blocked(self, place: Place, index: int, barrier: Any) -> None: ...
    #: A place passes a blocking instruction; a `try_wait` may have failed.
    def resumed(self, place: Place, index: int, barrier: Any) -> None: ...


EVENTS = [name for name in vars(Observer) if not name.startswith("_") and name != "start"]


class Events(Observer):
    """What the machine calls: an event reaches those of `observers` that override it, and otherwise nobody."""

    def __init__(self, observers: Sequence[Observer]):
        for name in EVENTS:
            listeners = [getattr(o, name) for o in observers if getattr(type(o), name) is not getattr(Observer, name)]
            if listeners:
                setattr(self, name, listeners[0] if len(listeners) == 1 else _all_of(listeners))


def _all_of(listeners):
    def tell(*arguments, **named):
        for listener in listeners:
            listener(*arguments, **named)

    return tell
