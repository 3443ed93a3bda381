"""Launches compiled kernels on a GPU through the CUDA driver API."""

import ctypes
import functools
import itertools
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from cuda.bindings import driver as cuda

from ..artifact import CompiledKernel, LaunchArguments, Parameter, arguments_of

_PARAMETER_TYPES = {"pointer": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64}


def check(result: tuple) -> Any:
    """The values of a driver call's result; RuntimeError names the CUDA error otherwise."""
    status, *values = result
    if status != cuda.CUresult.CUDA_SUCCESS:
        _, name = cuda.cuGetErrorName(status)
        _, text = cuda.cuGetErrorString(status)
        raise RuntimeError(f"CUDA driver: {name.decode()}: {text.decode()}")
    return values[0] if len(values) == 1 else values


def _primary_context(ordinal: int) -> Any:
    """The context of device `ordinal` that PyTorch uses too."""
    check(cuda.cuInit(0))
    return check(cuda.cuDevicePrimaryCtxRetain(check(cuda.cuDeviceGet(ordinal))))


@functools.lru_cache(maxsize=1024)
def _function(cubin: bytes, entry: str, smem_bytes: int, block: tuple, cluster: tuple, ordinal: int):
    """The loaded function of a cubin on device `ordinal`, allowed its shared memory and cluster size."""
    check(cuda.cuCtxSetCurrent(_primary_context(ordinal)))
    function = check(cuda.cuModuleGetFunction(check(cuda.cuModuleLoadData(cubin)), entry.encode()))
    attribute = cuda.CUfunction_attribute
    check(cuda.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes))
    size = prod(cluster)
    if size > 8:  # CTAs, the portable size; not every device has larger ones
        check(cuda.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
    if size > 1 and not _resident_clusters(function, block, size, smem_bytes):
        fits = next((s for s in range(size - 1, 1, -1) if _resident_clusters(function, block, s, smem_bytes)), 1)
        raise ValueError(
            f"the kernel needs clusters of {size} CTAs, but this device allows clusters up to {fits} "
            f"of CTAs with {smem_bytes:,} B of shared memory and {prod(block)} threads"
        )
    return function


def _resident_clusters(function, block: tuple, size: int, smem_bytes: int) -> int:
    """How many clusters of `size` such CTAs the current device runs at a time; 0 where it cannot run one."""
    config = _configuration((size, 1, 1), block, smem_bytes, (size, 1, 1), pdl=False)
    answer = cuda.cuOccupancyMaxActiveClusters(function, config)
    return 0 if answer[0] == cuda.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE else check(answer)


def _configuration(grid: tuple, block: tuple, smem_bytes: int, cluster: tuple, pdl: bool):
    config, attributes = cuda.CUlaunchConfig(), []
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = smem_bytes
    if pdl:
        attributes.append(attribute := cuda.CUlaunchAttribute())
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
    if cluster != (1, 1, 1):
        attributes.append(attribute := cuda.CUlaunchAttribute())
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def load(compiled: CompiledKernel, ordinal: int = 0) -> Any:
    """The function of `compiled` on CUDA device `ordinal`, so that a later `launch` only enqueues.

    ValueError, saying how large they may be, if the device cannot run clusters of its size.
    """
    return _function(compiled.cubin, compiled.entry, compiled.smem_bytes, compiled.block, compiled.cluster, ordinal)


def launch(
    compiled: CompiledKernel, arguments: LaunchArguments, stream: Any = None, pdl: bool | None = None, ordinal: int = 0
) -> None:
    """Enqueues one launch on `stream` (a raw handle, or None for PyTorch's current one) of device `ordinal`.

    `pdl` sets the programmatic-stream-serialization attribute (default: as compiled): the kernel may then start before
    its predecessor on the stream has finished, and itself waits before it reads what the predecessor wrote. Without
    the attribute the kernel's own PDL instructions do nothing.
    """
    if stream is None:
        import torch

        stream = torch.cuda.current_stream(ordinal).cuda_stream
    pdl = compiled.pdl if pdl is None else pdl
    config = _configuration(arguments.grid, compiled.block, compiled.smem_bytes, compiled.cluster, pdl)
    config.hStream = cuda.CUstream(int(stream))
    values = [value.data_ptr() if hasattr(value, "data_ptr") else value or 0 for value in arguments.values]
    check(cuda.cuLaunchKernelEx(config, load(compiled, ordinal), _passed(compiled.parameters, values), 0))


def _passed(parameters: Sequence[Parameter], values: Sequence[int]) -> tuple[tuple, tuple]:
    """The kernel's arguments and their types as `cuLaunchKernelEx` takes them; a structure has none but its own."""
    passed: list[Any] = []
    types: list[Any] = []
    left = iter(values)
    for argument in arguments_of(parameters):
        members = tuple(_PARAMETER_TYPES[parameter.kind] for parameter in argument)
        if len(members) == 1:
            passed.append(next(left))
            types.append(members[0])
        else:
            passed.append(_structure(members)(*itertools.islice(left, len(members))))
            types.append(None)
    return tuple(passed), tuple(types)


@functools.cache
def _structure(members: tuple) -> type[ctypes.Structure]:
    return type("Argument", (ctypes.Structure,), {"_fields_": [(f"_{i}", kind) for i, kind in enumerate(members)]})


def run_on_host_arrays(compiled: CompiledKernel, arguments: LaunchArguments) -> None:
    """`launch` for NumPy arrays: copies them to the GPU, runs, waits, and copies what the kernel may write back.

    Needs no PyTorch, so that profilers and sanitizers start fast and see this kernel only.
    """
    load(compiled)
    arrays = {i: value for i, value in enumerate(arguments.values) if hasattr(value, "nbytes")}
    copies = {i: check(cuda.cuMemAlloc(array.nbytes)) for i, array in arrays.items()}
    try:
        for i, pointer in copies.items():
            check(cuda.cuMemcpyHtoD(pointer, arrays[i].ctypes.data, arrays[i].nbytes))
        values = tuple(int(copies[i]) if i in copies else value for i, value in enumerate(arguments.values))
        launch(compiled, LaunchArguments(arguments.grid, values), stream=0)
        check(cuda.cuCtxSynchronize())
        for i, pointer in copies.items():
            if compiled.parameters[i].written:
                check(cuda.cuMemcpyDtoH(arrays[i].ctypes.data, pointer, arrays[i].nbytes))
    finally:
        for pointer in copies.values():
            cuda.cuMemFree(pointer)  # unchecked: an error above is the one to report


def enable_peers(ordinals: Iterable[int]) -> None:
    """Lets every CUDA device of `ordinals` store to the others; ValueError where one cannot."""
    for storing, peer in itertools.permutations(sorted(ordinals), 2):
        if not check(cuda.cuDeviceCanAccessPeer(*(check(cuda.cuDeviceGet(ordinal)) for ordinal in (storing, peer)))):
            raise ValueError(f"cuda:{storing} cannot store to cuda:{peer}: peers need GPUs with P2P access")
        check(cuda.cuCtxPushCurrent(_primary_context(storing)))
        status = cuda.cuCtxEnablePeerAccess(_primary_context(peer), 0)
        check(cuda.cuCtxPopCurrent())
        if status[0] != cuda.CUresult.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
            check(status)
