"""The tensors behind a `Mailbox`: BF16 `[2, capacity, width]`, the sentinel wherever nobody has published."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check_integer
from ..layouts import mailbox as layout
from ..problem import FrontProblem
from ..tactics import MAX_M
from . import driver
from .tensors import check_tensor, overlap

BUFFERS = 2  #: used in turn
ALIGNMENT = 16  #: bytes, of a mailbox: what one store publishes


def allocate(front: FrontProblem, device: Any, capacity: int) -> Any:
    """An empty mailbox tensor of `front` on `device`; ValueError for a capacity or a device that there is not."""
    import torch

    check_integer("capacity", capacity, 1, MAX_M)
    box = torch.empty((BUFFERS, capacity, front.width), dtype=torch.bfloat16, device=_device(device))
    arm(box, front)
    return box


def arm(box: Any, front: FrontProblem) -> None:
    """Puts the sentinel everywhere, as bits: a conversion might lose the sign of a zero."""
    import torch

    box.view(torch.int16).copy_(_sentinels(box, front))


def check_armed(box: Any, front: FrontProblem, rank: int) -> None:
    """ValueError unless the sentinel is everywhere."""
    import torch

    if (box.view(torch.int16) != _sentinels(box, front)).any():
        raise ValueError(
            f"the mailbox of rank {rank} is not empty, but must be new from Mailbox.allocate, or filled from such a "
            "tensor with copy_, and nobody may have published into it yet"
        )


def check_boxes(front: FrontProblem, boxes: Sequence, some: bool = False) -> None:
    """ValueError unless `boxes` has a mailbox for every rank (with `some`: for at least one, None for others)."""
    if not isinstance(boxes, list | tuple) or len(boxes) != front.ranks:
        count = f"{len(boxes)} tensors" if isinstance(boxes, list | tuple) else f"a {type(boxes).__name__}"
        raise ValueError(f"boxes is {count}, but must be a list of {front.ranks}, one per rank")
    own = {rank: box for rank, box in enumerate(boxes) if not (some and box is None)}
    if not own:
        raise ValueError("boxes has no tensor, but some rank of this process must collect")
    capacity: int | str = "capacity"  # any, but the same of all
    for rank, box in own.items():
        name = f"the mailbox of rank {rank}"
        check_tensor(name, box, (BUFFERS, capacity, front.width), ALIGNMENT)
        capacity = check_integer(f"the capacity of {name}", box.shape[1], 1, MAX_M)
        if box.is_cuda != next(iter(own.values())).is_cuda:
            raise ValueError(f"{name} is on {box.device}, but all must be on CUDA devices or all on the CPU")
        for other, earlier in own.items():
            if other < rank and box.device == earlier.device and overlap(box, earlier):
                raise ValueError(f"{name} overlaps that of rank {other}, but must have memory of its own")


def enable_peers(boxes: Sequence) -> None:
    """Lets every GPU that holds one of `boxes` store to the others; ValueError where one cannot."""
    from cuda.bindings import driver as cuda

    ordinals = sorted({box.device.index for box in boxes if box.is_cuda})
    if len(ordinals) < 2:
        return
    driver.check(cuda.cuInit(0))
    handles = {ordinal: driver.check(cuda.cuDeviceGet(ordinal)) for ordinal in ordinals}
    contexts = {ordinal: driver.check(cuda.cuDevicePrimaryCtxRetain(handle)) for ordinal, handle in handles.items()}
    for storing in ordinals:
        driver.check(cuda.cuCtxPushCurrent(contexts[storing]))
        try:
            for peer in ordinals:
                if peer == storing:
                    continue
                if not driver.check(cuda.cuDeviceCanAccessPeer(handles[storing], handles[peer])):
                    raise ValueError(f"cuda:{storing} cannot store to cuda:{peer}: peers need GPUs with P2P access")
                status = cuda.cuCtxEnablePeerAccess(contexts[peer], 0)
                if status[0] != cuda.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
                    driver.check(status)
        finally:
            driver.check(cuda.cuCtxPopCurrent())


def _sentinels(box: Any, front: FrontProblem) -> Any:
    """The bits of an empty row, int16 `[width]`, on the device of `box`."""
    import torch

    return torch.from_numpy(layout.empty(1, front.latent, front.experts).view(np.int16)[0]).to(box.device)


def _device(device: Any) -> Any:
    """`device` as PyTorch's; ValueError unless it is the CPU or a CUDA device of this machine."""
    import torch

    gpus = torch.cuda.device_count()
    try:
        known = torch.device(device)
    except (RuntimeError, TypeError):
        known = None
    if known is None or known.type not in ("cpu", "cuda") or (known.type == "cuda" and (known.index or 0) >= gpus):
        raise ValueError(f"device is {device!r}, but must be a CUDA device or the CPU (GPUs visible: {gpus})")
    return torch.device("cpu") if known.type == "cpu" else known  # without an index, like every CPU tensor's
