"""What a GPU offers a kernel: SMs, shared memory, clusters, ceilings; from data/devices.json or asked of the driver."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from .catalogue import data_dir

REFERENCE = "h200"  #: whose limits apply where no GPU is in sight, and that most records are of


@dataclass(frozen=True)
class Device:
    """One kind of GPU. `source` says of each fact and ceiling whether it is `measured`, `datasheet` or `queried`.

    Ceilings, by name: `hbm_read_tbs` (streaming read, 1e12 B/s), `copy_tbs` (device copy, bytes read plus written),
    `bf16_tflops` (dense, FP32 accumulate; where measured, of `mma.sync`, which Hopper runs below its `wgmma` rate);
    `hbm_peak_tbs` and `bf16_peak_tflops` are the vendor's numbers where the former were measured. A ceiling that nobody
    measured or published is absent.
    """

    name: str
    title: str  #: as the driver names it, or the start of that
    arch: str  #: compilation target, such as "sm_90a"
    sms: int
    smem_per_cta: int  #: bytes, with the opt-in above 48 KB
    smem_per_sm: int
    threads_per_sm: int
    ctas_per_sm: int
    registers_per_sm: int  #: 32-bit each
    l2_bytes: int
    max_cluster: int  #: CTAs, with the non-portable opt-in where there is one
    smem_reserved_per_cta: int = 1024  #: bytes the hardware keeps of each resident CTA's shared memory
    clusters: tuple[int, ...] = ()  #: how many clusters of 1, 2, 3 ... CTAs run at once, one CTA an SM; measured, or ()
    ceilings: Mapping[str, float] = field(default_factory=dict, hash=False)
    source: Mapping[str, str] = field(default_factory=dict, hash=False)

    def resident_clusters(self, size: int) -> int:
        """Clusters of `size` CTAs that run at once with one CTA an SM: measured, or as if all SMs were one group."""
        return self.clusters[size - 1] if size <= len(self.clusters) else self.sms // size


_FACTS = {f.name for f in fields(Device)} - {"name", "title", "arch", "clusters", "ceilings", "source"}


def _from_entry(name: str, entry: dict) -> Device:
    values = {**entry.get("datasheet", {}), **entry.get("measured", {})}
    source = {key: "measured" if key in entry.get("measured", {}) else "datasheet" for key in values}
    wrong = [key for key, value in values.items() if not isinstance(value, (int, float)) or not 0 < value < math.inf]
    missing = sorted(_FACTS - values.keys())
    if wrong or missing:
        raise ValueError(f"devices.json, {name}: missing {missing}, not positive numbers {wrong}; neither may occur.")
    facts = {key: values.pop(key) for key in _FACTS}
    clusters = tuple(entry.get("clusters", ()))
    if not all(isinstance(count, int) and count > 0 for count in clusters):
        raise ValueError(f"devices.json, {name}: clusters is {clusters}, but must be positive integers.")
    return Device(name, entry["title"], entry["arch"], **facts, clusters=clusters, ceilings=values, source=source)


@cache
def _catalogue() -> dict[str, Device]:
    path = data_dir() / "devices.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {name: _from_entry(name, entry) for name, entry in entries.items()}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a catalogue of devices: {type(error).__name__} {error}.") from error


def names() -> list[str]:
    """The catalogued devices, `h200` first."""
    return list(_catalogue())


def get(name: str) -> Device:
    """The catalogued device of that name; ValueError with the known names otherwise."""
    if name not in names():
        raise ValueError(f"Unknown device {name!r}; known: {', '.join(names())}.")
    return _catalogue()[name]


def reference() -> Device:
    """The device that everything is explained on, where there is no GPU."""
    return get(REFERENCE)


def architectures() -> tuple[str, ...]:
    """What the kernels are compiled and tested for: the catalogued devices' architectures, such as "sm_90a"."""
    return tuple(dict.fromkeys(device.arch for device in _catalogue().values()))


@cache
def current() -> Device | None:
    """The first GPU that the CUDA driver shows, or None without a driver or a GPU.

    One with title, architecture and SMs of a catalogued one is that one; the driver describes any other, no ceilings.
    """
    from cuda.bindings import driver

    def ask(call, *arguments):
        status, *values = call(*arguments)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{call.__name__}: {status.name}")
        return values[0] if values else None

    try:  # without libcuda the first call itself raises RuntimeError
        ask(driver.cuInit, 0)
        if not ask(driver.cuDeviceGetCount):
            return None
        handle = ask(driver.cuDeviceGet, 0)
    except RuntimeError:
        return None

    def attribute(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return ask(driver.cuDeviceGetAttribute, which, handle)

    title = ask(driver.cuDeviceGetName, 128, handle).split(b"\0")[0].decode()
    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    arch = f"sm_{major}{minor}" + ("a" if major >= 9 else "")  # "a": the full instruction set, from Hopper on
    sms = attribute("MULTIPROCESSOR_COUNT")
    for device in _catalogue().values():
        if title.startswith(device.title) and (arch, sms) == (device.arch, device.sms):
            return device
    facts: dict[str, Any] = {
        "sms": sms,
        "smem_per_cta": attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        "smem_per_sm": attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        "smem_reserved_per_cta": attribute("RESERVED_SHARED_MEMORY_PER_BLOCK"),
        "threads_per_sm": attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        "ctas_per_sm": attribute("MAX_BLOCKS_PER_MULTIPROCESSOR"),
        "registers_per_sm": attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        "l2_bytes": attribute("L2_CACHE_SIZE"),
        # the driver gives the largest cluster per kernel only; 8 is the portable size of every GPU that has clusters
        "max_cluster": 8 if attribute("CLUSTER_LAUNCH") else 1,
    }
    name = title.removeprefix("NVIDIA ").lower().replace(" ", "-")
    return Device(name=name, title=title, arch=arch, **facts, source=dict.fromkeys(facts, "queried"))
