"""Who watches a run: the events of the machine, and the base class of everything that subscribes to them.

- `poison` compares the twins of every CTA, whose uninitialised bytes differ;
- `dependency` looks for reads of what a preceding kernel may still be writing;
- `clocks` and `races` look for accesses of shared memory that nothing orders;
- `trace` records what happens as a table.

An observer overrides the events that it wants to hear; an `InterpreterError` that it raises ends the run. Unless an
event says otherwise, `place` stands for some warps of some CTAs, `index` for an instruction, `addresses` for an array
(CTAs | 1, warps | 1, lanes | 1) of shared addresses, and `mask` for the lanes in which it happens (None: all).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from ..place import Array, Mask, Place

if TYPE_CHECKING:
    from ..barriers import MBarrier, NamedBarrier, Rows
    from ..buffers import Buffer
    from ..complete_tx import Transfer
    from ..cp_async import Batch, Copy
    from ..group import Group
    from ..machine import Machine


class Observer:
    """Hears every event and does nothing."""

    def start(self, machine: "Machine") -> Optional["Observer"]:
        """A chunk of CTAs is about to run: who shall hear its events, if anyone. It must not know earlier chunks."""
        return self

    # Values and global memory

    def decides(self, place: Place, index: int, values: Array, what: str, mask: Mask = None) -> None:
        """`values` decide `what` of an instruction: which way a branch goes, an address of a barrier, a count."""

    def faulted(self, place: Place, index: int, addresses: Array, space: str) -> None:
        """Some of the `addresses` in `space` (shared or global) are bad; an error that says so comes next."""

    def global_read(self, group: "Group", index: int, addresses: Array, mask: Mask) -> None:
        """Global `addresses` will be read, or a copy from there starts."""

    def global_write(self, place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask) -> None:
        """A store of `words` to global `addresses` is about to happen."""

    def output(self, name: str, buffers: Sequence["Buffer"]) -> None:
        """The run is over; `buffers` hold what it stored through a parameter, one for each fill pattern."""

    # Accesses of shared memory, within bounds

    def access(
        self, place: Place, index: int, addresses: Array, width: int, mask: Mask, write: bool, rows: Array | None = None
    ) -> None:
        """Every lane reads or writes `width` bytes, in its own CTA or in those of `rows`."""

    def store(self, place: Place, index: int, addresses: Array, words: Sequence[Array], mask: Mask,
              rows: Array | None = None) -> None:  # fmt: skip
        """What the lanes of a store write, after its `access`."""

    # Asynchronous copies and transfers

    def copy_issued(self, place: Place, copy: "Copy") -> None:
        """A `cp.async` begins. If the place is split later, parts of the copy land apart (see `Copy.origin`)."""

    def copies_committed(self, place: Place) -> None:
        """The copies that a place has issued since the last such event form a group."""

    def copies_waited(self, place: Place, keep: int) -> None:
        """All groups of a place's copies but the latest `keep` have landed and are visible to it."""

    def copies_tied(self, place: Place, batch: "Batch") -> None:
        """The copies that a place has issued since the last such event, or commit, will arrive at an mbarrier."""

    def copies_landed(self, place: Place, copies: Sequence["Copy"]) -> None:
        """The bytes of some copies have appeared."""

    def copies_arrive(self, batch: "Batch", barrier: "MBarrier") -> None:
        """A batch that has landed arrives at its mbarrier."""

    def transfer_issued(self, place: Place, parts: Sequence["Transfer"], addresses: Array, mask: Mask, rows: Array
                        ) -> None:  # fmt: skip
        """A bulk copy or `st.async` begins; its `parts` land apart. `addresses` in `rows` are its mbarriers."""

    def transfer_landed(self, transfer: "Transfer") -> None:
        """The bytes of a part of a transfer have appeared; it will be counted at its mbarriers next."""

    def landed(self, flight: "Batch | Transfer", barrier: "MBarrier") -> None:
        """What has landed has been counted at an mbarrier."""

    # Synchronisation

    def initialised(self, place: Place, index: int, addresses: Array, mask: Mask) -> None:
        """Lanes have initialised mbarriers."""

    def arrives(self, place: Place, barrier: "MBarrier | NamedBarrier", mask: Mask, addresses: Array | None = None,
                scope: str = "cta") -> None:  # fmt: skip
        """Lanes arrive at a barrier of their own CTA, or of those that shared::cluster `addresses` name; `scope` is
        that of the release."""

    def completed(self, barrier: "MBarrier | NamedBarrier", rows: "Rows", opened: Array) -> None:
        """A barrier's counts have changed; `opened` says in which of `rows` that completes a phase."""

    def acquired(self, place: Place, barrier: "MBarrier | NamedBarrier", scope: str = "cta") -> None:
        """A place has seen that a barrier's phase is complete, by a wait of some scope."""

    def cluster_arrives(self, place: Place, mask: Mask, release: bool) -> None:
        """Lanes arrive at the cluster barrier, by a release or relaxed."""

    def cluster_completed(self, clusters: Array) -> None:
        """A phase of the cluster barrier is complete in those `clusters` where this is true."""

    def cluster_acquired(self, place: Place) -> None:
        """A place has passed the cluster barrier."""

    def fence(self, place: Place, kind: str, mask: Mask) -> None:
        """Lanes execute `fence.mbarrier_init` (`kind` init) or `fence.acq_rel` of at least cluster scope (cluster)."""

    def warp_sync(self, place: Place, mask: Mask) -> None:
        """`bar.warp.sync`."""

    def exited(self, place: Place) -> None:
        """All threads of a place are gone."""

    # Execution

    def executed(self, place: Place, index: int, mask: Mask, addresses: Array | None, source: Array | None,
                 size: Array | None) -> None:  # fmt: skip
        """An instruction that `Trace.wants` is executed. Of an mbarrier instruction `addresses` are the mbarriers; a
        copy has global `source` addresses and a `size`."""

    def blocked(self, place: Place, index: int, barrier: Any) -> None:
        """A place reaches a blocking instruction and cannot pass yet."""

    def resumed(self, place: Place, index: int, barrier: Any) -> None:
        """A place passes a blocking instruction; a `try_wait` may have failed."""


class Events(Observer):
    """What the machine calls: each event reaches those of `observers` that override it, and otherwise nobody."""

    def __init__(self, observers: Sequence[Observer]):
        for name, silent in vars(Observer).items():
            listeners = [getattr(o, name) for o in observers if getattr(type(o), name) is not silent]
            if name != "start" and not name.startswith("_") and listeners:
                setattr(self, name, listeners[0] if len(listeners) == 1 else _fan_out(listeners))


def _fan_out(listeners: Sequence[Any]) -> Any:
    def tell(*args: Any, **named: Any) -> None:
        for listener in listeners:
            listener(*args, **named)

    return tell
