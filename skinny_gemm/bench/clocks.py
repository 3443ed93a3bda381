"""Clocks, power, temperature and throttling of the GPU, read through NVML and never changed."""

from collections.abc import Mapping, Sequence
from typing import Any

from cuda.bindings import driver

from ..records.schema import DROP
from ..runtime.compile import dsl_version
from ..runtime.driver import check

_THROTTLES = {  # bits of nvmlDeviceGetCurrentClocksThrottleReasons that slow a busy GPU
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class Nvml:
    """Reads one GPU, named by its PCI bus id. ImportError or `pynvml.NVMLError` where NVML is not to be had."""

    def __init__(self, bus_id: str):
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        self.gpu = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())

    @classmethod
    def of_first_gpu(cls) -> "Nvml":
        """Of the GPU that the CUDA driver, initialised before, shows first."""
        bus_id = check(driver.cuDeviceGetPCIBusId(32, check(driver.cuDeviceGet(0))))
        return cls(bus_id.split(b"\0")[0].decode())

    def describe(self) -> dict[str, str]:
        """Which of all GPUs this one is, and the driver's version, as `Campaign` names them."""
        return {"board": self.nvml.nvmlDeviceGetUUID(self.gpu), "driver": self.nvml.nvmlSystemGetDriverVersion()}

    def sample(self) -> dict[str, Any]:
        """SM and memory clock (MHz), power (W), temperature (C), and what slows the GPU down just now."""
        nvml, gpu = self.nvml, self.gpu
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
        return {
            "sm_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
            "power_w": round(nvml.nvmlDeviceGetPowerUsage(gpu) / 1000, 1),
            "temperature_c": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
            "throttle": [name for bit, name in _THROTTLES.items() if reasons & bit],
        }


def describe(nvml: Nvml | None) -> dict[str, Any]:
    """Name of the first GPU and versions, as `Campaign` names them."""
    import torch

    return {
        "gpu": torch.cuda.get_device_name(0),
        **(nvml.describe() if nvml else {"board": "", "driver": "unknown"}),
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "dsl": dsl_version(),
    }


def summary(samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the records keep: samples, with `when` each was taken, and whether the SM clock dropped "during" a run."""
    busy = [sample["sm_mhz"] for sample in samples if sample["when"] == "during"]
    return {
        "samples": list(samples),
        "sm_mhz_low": min(busy, default=None),
        "sm_mhz_high": max(busy, default=None),
        "dropped": bool(busy) and min(busy) < DROP * max(busy),
        "throttle": sorted({reason for sample in samples for reason in sample["throttle"]}),
    }
