"""What the runtime asks of its callers' torch tensors, each refusal in one sentence."""

from typing import Any

from .. import device as devices

NAMES = {"bfloat16": "BF16", "float32": "FP32"}  #: of PyTorch's dtypes, for people


def device_of(tensor: Any) -> devices.Device:
    """The GPU whose limits apply: the tensor's own, or the reference for CPU tensors, which the interpreter serves."""
    if not tensor.is_cuda:
        return devices.reference()
    gpu = devices.current()
    if gpu is None:
        raise ValueError("the tensors are on a GPU that the CUDA driver API does not show")
    return gpu


def check_tensor(
    name: str, tensor: Any, shape: tuple[int | str, ...], alignment: int, like: Any = None, dtype: str = "bfloat16"
) -> None:
    """ValueError unless `tensor` is of a dtype and shape (strings: any size), packed row-major, aligned, by `like`."""
    import torch

    wanted = f"[{', '.join(map(str, shape))}]"
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}, but must be a {NAMES[dtype]} torch tensor {wanted}")
    if tensor.ndim != len(shape):
        raise ValueError(f"{name} has {tensor.ndim} dimensions {tuple(tensor.shape)}, but must be {wanted}")
    if tensor.dtype != getattr(torch, dtype):
        raise ValueError(f"{name} is {tensor.dtype}, but must be torch.{dtype}")
    if tensor.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must not be empty")
    if any(isinstance(want, int) and want != got for want, got in zip(shape, tensor.shape, strict=True)):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but must be {wanted}")
    if tensor.device.type not in ("cuda", "cpu"):
        raise ValueError(f"{name} is on {tensor.device}, but must be on a CUDA device or the CPU")
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device}, but must be on {like.device} with weight")
    if tensor.layout != torch.strided or tensor.is_neg():
        kind = "a lazily negated view" if tensor.is_neg() else tensor.layout
        raise ValueError(f"{name} is {kind}, but must be packed row-major")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}, but must be packed row-major (call .contiguous())")
    if tensor.data_ptr() % alignment:
        raise ValueError(f"{name} starts at {tensor.data_ptr():#x}, but must be {alignment}-byte aligned")


def overlap(a: Any, b: Any) -> bool:
    """Whether two packed tensors share memory."""
    a_start, b_start = a.data_ptr(), b.data_ptr()
    return a_start < b_start + b.numel() * b.element_size() and b_start < a_start + a.numel() * a.element_size()


def known_device(device: Any) -> Any:
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
