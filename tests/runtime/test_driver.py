"""Loading and launching through the CUDA driver, with a stand-in for it.

Properties: what a device cannot run is refused before a launch; arguments are passed as the kernel's ABI has them.
"""

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import pytest
from cuda.bindings import driver as cuda

from skinny_gemm.artifact import CompiledKernel, LaunchArguments, Parameter, Resources
from skinny_gemm.runtime import driver


def kernel(cluster: int) -> CompiledKernel:
    return CompiledKernel(
        "ws-gemm", "entry", "sm_90a", "", bytes([cluster]), (), (160, 1, 1), (cluster, 1, 1), 40_000, True,
        Resources(32, 0, 0, 0),
    )  # fmt: skip


@pytest.fixture
def device(monkeypatch):
    """A device that allows clusters up to `largest`; records whether it was asked for a non-portable size."""
    state = SimpleNamespace(largest=16, non_portable=False, launched=[])
    success, failure = cuda.CUresult.CUDA_SUCCESS, cuda.CUresult.CUDA_ERROR_INVALID_CLUSTER_SIZE

    def attribute(function, name, value):
        state.non_portable |= name == cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        return (success,)

    def occupancy(function, config):
        (only,) = config.attrs
        size = only.value.clusterDim.x
        assert config.gridDimX == size and config.sharedMemBytes == 40_000 and config.blockDimX == 160
        if size > 8 and not state.non_portable:
            return failure, 0
        return success, 3 if size <= state.largest else 0

    for name, result in (
        ("cuInit", (success,)), ("cuDeviceGet", (success, 0)), ("cuDevicePrimaryCtxRetain", (success, 1)),
        ("cuCtxSetCurrent", (success,)), ("cuModuleLoadData", (success, 2)), ("cuModuleGetFunction", (success, 3)),
    ):  # fmt: skip
        monkeypatch.setattr(cuda, name, lambda *_, result=result: result)
    monkeypatch.setattr(cuda, "cuFuncSetAttribute", attribute)
    monkeypatch.setattr(cuda, "cuOccupancyMaxActiveClusters", occupancy)
    monkeypatch.setattr(cuda, "cuLaunchKernelEx", lambda *arguments: state.launched.append(arguments) or (success,))
    driver._function.cache_clear()
    yield state
    driver._function.cache_clear()


@pytest.mark.parametrize("cluster", [1, 2, 8, 16])
def test_a_cluster_that_fits_loads(device, cluster):
    assert driver.load(kernel(cluster)) == 3
    assert device.non_portable == (cluster > 8)


@pytest.mark.parametrize(("largest", "cluster"), [(8, 16), (4, 8), (1, 2)])
def test_a_cluster_that_does_not_fit_is_refused_in_words_before_the_launch(device, largest, cluster):
    device.largest = largest
    with pytest.raises(
        ValueError, match=f"clusters of {cluster} CTAs, but this device allows clusters up to {largest} "
    ):
        driver.launch(kernel(cluster), LaunchArguments((cluster, 1, 1), ()), stream=0)
    assert not device.launched


def test_joined_parameters_are_one_structure_and_others_stay_alone(device):
    pointer, size = Parameter("x", "pointer"), Parameter("m", "i32")
    stride = Parameter("stride", "i64", joined=True)
    parameters = pointer, replace(size, joined=True), stride, size, pointer
    compiled = replace(kernel(1), parameters=parameters)
    driver.launch(compiled, LaunchArguments((1, 1, 1), (1 << 40, 7, 1 << 33, -3, None)), stream=0)
    ((_, _, (values, types), _),) = device.launched
    tensor, *others = values
    assert bytes(tensor) == bytes(ctypes.c_int64(1 << 40)) + bytes(ctypes.c_int64(7)) + bytes(ctypes.c_int64(1 << 33))
    assert others == [-3, 0] and types == (None, ctypes.c_int32, ctypes.c_void_p)
