"""How long one step of a control takes, computing and drawing together; the aim is under 150 ms.

`python tests/explore/benchmark.py` prints for each control the slowest step to a value not yet seen, then the median
and the slowest of as many steps back and forth. `python tests/explore/benchmark.py review` times only what has that in
its name. Controls whose step compiles a kernel or runs the interpreter are left out: it takes as long as it takes.
"""

import statistics
import sys
import time
from collections.abc import Iterator

from skinny_gemm import explore
from skinny_gemm.explore.tactic import SHOWN

STEPS = 12


def options(control) -> list:
    """The first values that `control` offers: a tactic field's, a list's or a slider's."""
    if hasattr(control, "options"):  # of (label, value) pairs, or of values
        pairs = [each if isinstance(each, tuple) else (each, each) for each in control.options]
        return [value for _, value in pairs][: STEPS + 1]
    return list(range(control.min, control.max + 1))[: STEPS + 1]


def steps(name: str, control, values=None) -> None:
    """Times setting `control` to each of `values`, there and back and there again."""
    values = list(values or options(control))
    if len(values) < 2:
        return
    control.value = values[0]
    wall = []
    for value in [*values[1:], *values[-2::-1], *values[1:]]:
        before = time.perf_counter()
        control.value = value
        wall.append(1e3 * (time.perf_counter() - before))
    first, warm = wall[: len(values) - 1], wall[len(values) - 1 :]
    print(f"{name:54} {max(first):7.0f} {statistics.median(warm):7.0f} {max(warm):7.0f}", flush=True)


def tactic() -> Iterator[tuple]:
    """Every kind of step of the tactic explorer, with every kernel and each kind of chart."""
    it = explore.TacticExplorer()
    for kernel, shape in (
        ("warp-splitk", None),
        ("balanced-splitk", None),
        ("wgmma-splitk", None),
        ("ws-gemm", (560, 7168)),
    ):
        if shape:
            it.model.value = None
            it.n.value, it.k.value = shape
        it.kernel.value = kernel
        for shown in SHOWN:
            it.shown.value, it.m.value = shown, 8
            it.take_default()
            for field in list(it.fields):
                yield f"{kernel}, {shown}: {field}", it.fields[field]
                it.take_default()
            yield f"{kernel}, {shown}: M", it.m, [*range(1, 10), 12, 16, 24, 32]
        it.m.value, it.shown.value = 8, SHOWN[0]
        yield f"{kernel}: charts", it.shown
        yield f"{kernel}: launches", it.mode
        if it.process.layout.display != "none":
            yield f"{kernel}: process", it.process
        yield f"{kernel}: device", it.device
        it.device.value, it.shown.value = "h200", SHOWN[0]
    yield "560x7168: kernel", it.kernel
    it.kernel.value, it.model.value = "warp-splitk", it.model.options[0][1]
    yield "warp-splitk: projection", it.projection
    it.kernel.value = "ws-gemm"
    yield "ws-gemm: projection", it.projection
    yield "model", it.model


def review() -> Iterator[tuple]:
    """Every kind of step of the design review."""
    it = explore.ReviewExplorer()
    for page in options(it.page):
        it.page.value = page
        yield f"{page}: M", it.m, [*range(1, 10), 12, 16, 24, 32]
    it.m.value = 8
    yield "page", it.page
    it.page.value = "comparison"
    for name in ("first", "mode", "device", "projection", "model"):
        yield name, getattr(it, name)


def others() -> Iterator[tuple]:
    """The controls of the other explorers that draw and run nothing."""
    drawn = {
        "SwizzleExplorer": ("operand", "swizzled", "k_tile", "warp", "phase", "lane", "bank"),
        "PipelineExplorer": ("view", "cursor"),
        "WeightStationaryExplorer": ("lane", "block", "cta", "warp", "k", "rt", "kq", "ks", "staged"),
        "ExposureExplorer": ("warp",),
        "WavesExplorer": ("n", "tile", "sms"),
        "WarpRingExplorer": ("view", "cursor"),
        "ScatterExplorer": ("view", "cursor", "fragment"),
        "GatherExplorer": ("block",),
        "SettleExplorer": ("view", "cta", "cursor"),
        "PitchExplorer": ("k", "ks"),
        "MailboxExplorer": ("cursor", "box", "token", "fragment"),
        "RunExplorer": ("m", "projection", "kernel"),
    }
    for kind, names in drawn.items():
        it = getattr(explore, kind)()
        for name in names:
            control = getattr(it, name)
            before = control.value
            yield f"{kind}: {name}", control
            if before in options(control):
                control.value = before


def main() -> None:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print(f"{'step, milliseconds':54} {'first':>7} {'median':>7} {'slowest':>7}")
    matched = False
    for group in (tactic, review, others):
        for name, *arguments in group():
            name = name if group is others else f"{group.__name__}, {name}"
            if wanted.lower() in name.lower():
                matched = True
                steps(name, *arguments)
    if not matched:
        sys.exit(f"no control's name holds {wanted!r}")


if __name__ == "__main__":
    main()
