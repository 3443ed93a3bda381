"""Launches compiled kernels on a GPU through the CUDA driver API."""

import ctypes
import functools
from math import prod
from typing import Any

from ..artifact import CompiledKernel, LaunchArguments

PORTABLE_CLUSTER = 8  #: CTAs; larger clusters need a kernel attribute, and not every device has them
_PARAMETER_TYPES = {"pointer": ctypes.c_void_p, "i32": ctypes.c_int32, "i64": ctypes.c_int64}


def check(result: tuple) -> Any:
    """The values of a driver call's result; RuntimeError names the CUDA error otherwise."""
    from cuda.bindings import driver

    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        _, name = driver.cuGetErrorName(status)
        _, text = driver.cuGetErrorString(status)
        raise RuntimeError(f"CUDA driver: {name.decode()}: {text.decode()}")
    return values[0] if len(values) == 1 else values


@functools.lru_cache(maxsize=1024)
def _function(cubin: bytes, entry: str, smem_bytes: int, block: tuple, cluster: tuple, ordinal: int):
    """The loaded function of a cubin on device `ordinal`, allowed its shared memory and cluster size.

    ValueError if the device cannot run clusters of that size with that much shared memory.
    """
    from cuda.bindings import driver

    check(driver.cuInit(0))
    # The primary context is the one PyTorch uses.
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(ordinal))))
    check(driver.cuCtxSetCurrent(context))
    function = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(cubin)), entry.encode()))
    attribute = driver.CUfunction_attribute
    check(driver.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, smem_bytes))
    size = prod(cluster)
    if size > PORTABLE_CLUSTER:
        check(driver.cuFuncSetAttribute(function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
    if size > 1 and not _resident_clusters(function, block, size, smem_bytes):
        fits = next((s for s in range(size - 1, 1, -1) if _resident_clusters(function, block, s, smem_bytes)), 1)
        raise ValueError(
            f"the kernel needs clusters of {size} CTAs, but this device allows clusters up to {fits} "
            f"of CTAs with {smem_bytes:,} B of shared memory and {prod(block)} threads"
        )
    return function


def _resident_clusters(function, block: tuple, size: int, smem_bytes: int) -> int:
    """How many clusters of `size` such CTAs the current device runs at a time; 0 where it cannot run one."""
    from cuda.bindings import driver

    config = _configuration((size, 1, 1), block, smem_bytes, [_cluster_attribute((size, 1, 1))])
    status, clusters = driver.cuOccupancyMaxActiveClusters(function, config)
    if status == driver.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE:
        return 0
    return check((status, clusters))


def _configuration(grid: tuple, block: tuple, smem_bytes: int, attributes: list):
    from cuda.bindings import driver

    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = smem_bytes
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _cluster_attribute(cluster: tuple):
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster
    return attribute


def load(compiled: CompiledKernel, ordinal: int = 0) -> Any:
    """Loads `compiled` on CUDA device `ordinal`, so that a later `launch` only enqueues; returns the function.

    ValueError, saying how large they may be, if the device cannot run clusters of its size.
    """
    return _function(compiled.cubin, compiled.entry, compiled.smem_bytes, compiled.block, compiled.cluster, ordinal)


def launch(
    compiled: CompiledKernel,
    arguments: LaunchArguments,
    stream: Any = None,
    pdl: bool | None = None,
    ordinal: int = 0,
) -> None:
    """Enqueues one launch on `stream` (a raw handle, or None for PyTorch's current one) of device `ordinal`.

    `pdl` sets the programmatic-stream-serialization attribute (default: as compiled): the kernel may then start before
    its predecessor on the stream has finished, and itself waits before it reads what the predecessor wrote. Without
    the attribute the kernel's own PDL instructions do nothing.
    """
    from cuda.bindings import driver

    if stream is None:
        import torch

        stream = torch.cuda.current_stream(ordinal).cuda_stream
    attributes = []
    if compiled.pdl if pdl is None else pdl:
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        attributes.append(attribute)
    if compiled.cluster != (1, 1, 1):
        attributes.append(_cluster_attribute(compiled.cluster))
    config = _configuration(arguments.grid, compiled.block, compiled.smem_bytes, attributes)
    config.hStream = driver.CUstream(int(stream))
    values = tuple(value.data_ptr() if hasattr(value, "data_ptr") else value or 0 for value in arguments.values)
    types = tuple(_PARAMETER_TYPES[parameter.kind] for parameter in compiled.parameters)
    check(driver.cuLaunchKernelEx(config, load(compiled, ordinal), (values, types), 0))


def run_on_host_arrays(compiled: CompiledKernel, arguments: LaunchArguments) -> None:
    """`launch` for NumPy arrays: copies them to the GPU, runs, waits, and copies what the kernel may write back.

    Needs no PyTorch, so that profilers and sanitizers start fast and see this kernel only.
    """
    from cuda.bindings import driver

    load(compiled)
    arrays = {i: value for i, value in enumerate(arguments.values) if hasattr(value, "nbytes")}
    copies = {i: check(driver.cuMemAlloc(array.nbytes)) for i, array in arrays.items()}
    try:
        for i, pointer in copies.items():
            check(driver.cuMemcpyHtoD(pointer, arrays[i].ctypes.data, arrays[i].nbytes))
        values = tuple(int(copies[i]) if i in copies else value for i, value in enumerate(arguments.values))
        launch(compiled, LaunchArguments(arguments.grid, values), stream=0)
        check(driver.cuCtxSynchronize())
        for i, pointer in copies.items():
            if compiled.parameters[i].written:
                check(driver.cuMemcpyDtoH(arrays[i].ctypes.data, pointer, arrays[i].nbytes))
    finally:
        for pointer in copies.values():
            driver.cuMemFree(pointer)  # unchecked: an error above is the one to report
