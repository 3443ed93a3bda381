"""What can go wrong in an interpreted kernel, one class per kind. A message is one sentence that names the place."""


class InterpreterError(Exception):
    """Anything the interpreter reports about a kernel."""


class PtxSyntaxError(InterpreterError):
    """The PTX text is not what the parser understands."""


class UnsupportedInstruction(InterpreterError):
    """The PTX holds an instruction that the interpreter does not execute."""


class MemoryAccessError(InterpreterError):
    """An access is out of bounds or misaligned, or a shared-memory address is no barrier."""


class ReadOnlyError(InterpreterError):
    """The kernel stores through a parameter that is not declared `written`."""


class PoisonError(InterpreterError):
    """Uninitialised memory or an undefined register decides a branch, a store's address or a stored value."""


class BarrierError(InterpreterError):
    """A barrier is used against its rules: not initialised, too many arrivals, an impossible count."""


class ClusterError(InterpreterError):
    """An instruction needs a launch with clusters."""


class DivergenceError(InterpreterError):
    """Lanes of one warp are apart at an instruction that blocks or that needs the whole warp."""


class WarpgroupError(InterpreterError):
    """`wgmma` is used against its rules: registers before it is done, no `wgmma.fence`, warps of a warpgroup apart."""


class DeadlockError(InterpreterError):
    """No warp can run and nothing is in flight."""


class RaceError(InterpreterError):
    """Two accesses of one shared word conflict, and no barrier or wait orders them."""


class DependencyError(InterpreterError):
    """A thread reads what the preceding kernel writes before it has executed `griddepcontrol.wait`."""
