"""The device catalogue is complete and consistent, and says where each number comes from."""

import ctypes.util

import pytest

from skinny_gemm import device


@pytest.mark.parametrize("name", device.names())
def test_a_device_is_complete_and_says_where_its_numbers_come_from(name):
    d = device.get(name)
    assert d.name == name
    assert d.smem_per_cta + d.smem_reserved_per_cta <= d.smem_per_sm
    assert d.threads_per_sm >= d.ctas_per_sm * 32
    assert {"hbm_read_tbs", "bf16_tflops"} <= d.ceilings.keys()
    assert set(d.source.values()) <= {"measured", "datasheet"}
    assert d.source.keys() >= {"sms", "smem_per_cta", "l2_bytes", *d.ceilings}


def test_only_the_h200_claims_measurements():
    assert [n for n in device.names() if "measured" in device.get(n).source.values()] == ["h200"]
    h200 = device.get("h200")
    assert (h200.sms, h200.smem_per_cta, h200.l2_bytes) == (132, 232_448, 60 << 20)
    assert h200.ceilings["hbm_read_tbs"] < h200.ceilings["hbm_peak_tbs"], "measured stays below the datasheet"
    assert h200.ceilings["bf16_tflops"] < h200.ceilings["bf16_peak_tflops"]


@pytest.mark.parametrize("name", ["h20", "", None, ["h200"]])
def test_an_unknown_device_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=r"^Unknown device .*; known: h200, h100, b200, b300, rtx5090\.$"):
        device.get(name)


def test_a_device_with_a_missing_or_senseless_fact_is_refused():
    entry = {"title": "X", "arch": "sm_90a", "datasheet": {"sms": 0}}
    with pytest.raises(ValueError, match=r"devices\.json, x: missing .*'l2_bytes'.* not positive numbers \['sms'\]"):
        device._from_entry("x", entry)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"x": 5}', '{"x": {}}', b"\xff"])
def test_a_damaged_catalogue_is_named(tmp_path, monkeypatch, text):
    if text is not None:
        (tmp_path / "devices.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setenv("SKINNY_GEMM_DATA", str(tmp_path))
    monkeypatch.setattr(device, "_catalogue", device._catalogue.__wrapped__)
    with pytest.raises(ValueError, match=r"devices\.json"):
        device.names()


@pytest.mark.skipif(ctypes.util.find_library("cuda") is not None, reason="this machine has a CUDA driver")
def test_without_a_driver_there_is_no_current_device():
    assert device.current() is None


@pytest.mark.parametrize("title, known", [("NVIDIA H200", True), ("NVIDIA H200 MIG 1g.18gb", False), ("X 1", False)])
def test_the_current_device_is_the_catalogued_one_or_what_the_driver_says(monkeypatch, title, known):
    """As the driver API answers it on a GPU: an H200 with all of its SMs is the catalogue's, anything else its own."""
    from cuda.bindings import driver

    h200, attributes = device.get("h200"), driver.CUdevice_attribute
    facts = {
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9,
        attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: 0,
        attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: h200.sms if known else 16,
    }
    ok = driver.CUresult.CUDA_SUCCESS
    monkeypatch.setattr(driver, "cuInit", lambda flags: (ok,))
    monkeypatch.setattr(driver, "cuDeviceGetCount", lambda: (ok, 1))
    monkeypatch.setattr(driver, "cuDeviceGet", lambda ordinal: (ok, 7))
    monkeypatch.setattr(driver, "cuDeviceGetName", lambda size, handle: (ok, title.encode().ljust(size, b"\0")))
    monkeypatch.setattr(driver, "cuDeviceGetAttribute", lambda which, handle: (ok, facts.get(which, 1)))
    found = device.current.__wrapped__()
    if known:
        assert found is h200
    else:
        assert (found.arch, found.sms, found.title, dict(found.ceilings)) == ("sm_90a", 16, title, {})
        assert set(found.source.values()) == {"queried"} and found.max_cluster == 8
