"""This machine as a node, as NVML sees it: with a driver, without one, and with a broken one."""

from __future__ import annotations

import shutil
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tenure.api.formats import FORMATS
from tenure.api.validate import validate
from tenure.embedded.nvml import flavor_of, local_node, node_name

MIB = 2**20
H100 = ("NVIDIA H100 80GB HBM3", 81_559 * MIB)
T1000 = ("NVIDIA T1000", 4_096 * MIB)


class FakeNvml(ModuleType):
    """The part of the bindings that is used. A call named in ``broken`` raises."""

    def __init__(self, gpus: list[tuple[Any, int]], *, broken: str = "") -> None:
        super().__init__("pynvml")
        self._gpus = gpus
        self._broken = broken
        self.initialized = 0

    def _call(self, name: str) -> None:
        if name == self._broken:
            raise RuntimeError(f"{name}: Driver Not Loaded")

    def nvmlInit(self) -> None:  # noqa: N802 - their spelling
        self._call("nvmlInit")
        self.initialized += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.initialized -= 1
        self._call("nvmlShutdown")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._call("nvmlDeviceGetCount")
        return len(self._gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._call("nvmlDeviceGetHandleByIndex")
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        self._call("nvmlDeviceGetName")
        return self._gpus[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        self._call("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(total=self._gpus[handle][1])


def install(monkeypatch: pytest.MonkeyPatch, gpus: list[tuple[Any, int]], *, broken: str = "") -> FakeNvml:
    fake = FakeNvml(gpus, broken=broken)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_a_machine_with_gpus_is_one_node_in_a_domain_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = install(monkeypatch, [H100] * 8)
    node = local_node(hostname="DGX_01.example.org")
    assert node is not None
    assert node.metadata.name == "dgx-01"
    assert node.status.allocatable == {"nvidia.com/gpu": "8"}
    assert node.metadata.labels == {
        "region": "local",
        "cluster": "dgx-01",
        "fabric.domain": "dgx-01",
        "gpu.flavor": "H100-80GB",
    }
    assert validate(node) == []
    assert fake.initialized == 0


def test_the_resource_that_counts_gpus_is_the_policys(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [H100])
    node = local_node("example.com/gpu")
    assert node is not None
    assert node.status.allocatable == {"example.com/gpu": "1"}


def test_in_a_mixed_machine_the_node_has_the_first_gpus_of_one_flavor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, [H100, H100, T1000, H100])
    node = local_node()
    assert node is not None
    assert node.status.allocatable == {"nvidia.com/gpu": "2"}
    assert node.metadata.labels["gpu.flavor"] == "H100-80GB"


def test_names_in_bytes_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [(b"NVIDIA H200", 143_771 * MIB)])
    node = local_node()
    assert node is not None
    assert node.metadata.labels["gpu.flavor"] == "H200-141GB"


def test_without_a_gpu_there_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [])
    assert local_node() is None


def test_without_the_bindings_there_is_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert local_node() is None


@pytest.mark.parametrize(
    "broken",
    [
        "nvmlInit",
        "nvmlDeviceGetCount",
        "nvmlDeviceGetHandleByIndex",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMemoryInfo",
    ],
)
def test_a_driver_that_fails_is_no_node_and_no_exception(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    fake = install(monkeypatch, [H100], broken=broken)
    assert local_node() is None
    assert fake.initialized == 0


def test_a_driver_that_fails_to_shut_down_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [H100], broken="nvmlShutdown")
    assert local_node() is not None


@pytest.mark.parametrize(
    ("product", "mebibytes", "flavor"),
    [
        ("NVIDIA H100 80GB HBM3", 81_559, "H100-80GB"),
        ("NVIDIA H100 PCIe", 81_559, "H100-80GB"),
        ("NVIDIA H100 NVL", 95_830, "H100-94GB"),
        ("NVIDIA H200", 143_771, "H200-141GB"),
        ("NVIDIA B200", 183_359, "B200-180GB"),
        ("NVIDIA GH200 480GB", 97_871, "GH200-96GB"),
        ("NVIDIA A100-SXM4-40GB", 40_536, "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", 81_920, "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", 81_920, "A100-80GB"),
        ("Tesla V100-SXM2-16GB", 16_160, "V100-16GB"),
        ("Tesla T4", 15_360, "T4-15GB"),
        ("NVIDIA L40S", 46_068, "L40S-45GB"),
        ("NVIDIA GeForce RTX 4090", 24_564, "RTX-4090-24GB"),
        ("NVIDIA RTX A6000", 49_140, "RTX-A6000-48GB"),
        ("NVIDIA RTX 6000 Ada Generation", 49_140, "RTX-6000-Ada-Generation-48GB"),
        ("NVIDIA", 8_192, "GPU-8GB"),
        ("N" * 300, 8_192, "N" * 48 + "-8GB"),
    ],
)
def test_a_flavor_is_the_model_and_the_memory(product: str, mebibytes: int, flavor: str) -> None:
    assert flavor_of(product, mebibytes * MIB) == flavor
    assert FORMATS["label-value"].accepts(flavor)


@pytest.mark.parametrize(
    ("hostname", "name"),
    [
        ("gpu-7", "gpu-7"),
        ("Gpu_7.lab.example.org", "gpu-7"),
        ("-odd-", "odd"),
        ("", "local"),
        ("\N{SNOWMAN}", "local"),
        ("h" * 80, "h" * 63),
    ],
)
def test_any_hostname_gives_a_name_for_a_node(hostname: str, name: str) -> None:
    assert node_name(hostname) == name
    assert FORMATS["name"].accepts(node_name(hostname))


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA driver on this machine")
def test_this_machines_own_gpus_are_seen() -> None:
    """The contract with the real driver. Everything else here runs on a fake."""
    pytest.importorskip("pynvml", reason="the extra nvml is not installed")
    node = local_node()
    assert node is not None
    assert int(node.status.allocatable["nvidia.com/gpu"]) >= 1
    assert validate(node) == []
