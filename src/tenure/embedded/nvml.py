"""This machine as a node, from its NVIDIA driver.

NVML lists the GPUs in the order of their PCI bus ids. A lease names GPUs by that index, and a process is
given them with ``CUDA_VISIBLE_DEVICES``; CUDA's own order may differ (fastest first), so pods also get
``CUDA_DEVICE_ORDER=PCI_BUS_ID``, unless they set it themselves, and both mean the same device.

A node has one flavor: ``<model>-<memory>GB``. The model is the product name without the vendor's and brand
names and without words that tell memory or form; the memory is what NVML counts, in GiB, rounded up, since
a driver keeps a little for itself:

>>> flavor_of("NVIDIA H100 80GB HBM3", 81_559 * 2**20)
'H100-80GB'
>>> flavor_of("NVIDIA H200", 143_771 * 2**20), flavor_of("NVIDIA A100-SXM4-40GB", 40_536 * 2**20)
('H200-141GB', 'A100-40GB')
>>> flavor_of("NVIDIA GeForce RTX 4090", 24_564 * 2**20)
'RTX-4090-24GB'

Should there be GPUs of several flavors in the machine, the node has those of the first GPU's flavor, up to
the first of another: an index must mean the same device to everybody. A GPU in MIG mode counts as one.
"""

from __future__ import annotations

import contextlib
import re
import socket
from typing import Any

from tenure.api.core import Node, NodeStatus
from tenure.api.meta import ObjectMeta

_SPLIT = re.compile(r"[^A-Za-z0-9.]+")
_BRANDS = re.compile(r"nvidia|tesla|geforce|quadro", re.IGNORECASE)
_FORMS = re.compile(r"\d+gb|hbm\d?e?|sxm\d?|pcie?|nvl\d*|gddr\d\w?", re.IGNORECASE)
_GIB = 2**30


def local_node(gpu_resource: str = "nvidia.com/gpu", *, hostname: str | None = None) -> Node | None:
    """This machine with its GPUs; None without a driver, without a GPU, or without the ``nvml`` extra."""
    flavors = _flavors()
    if not flavors:
        return None
    count = next((index for index, each in enumerate(flavors) if each != flavors[0]), len(flavors))
    name = node_name(socket.gethostname() if hostname is None else hostname)
    labels = {"region": "local", "cluster": name, "fabric.domain": name, "gpu.flavor": flavors[0]}
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        status=NodeStatus(allocatable={gpu_resource: str(count)}),
    )


def node_name(hostname: str) -> str:
    """A host's name as a node's: what comes before the first dot, in letters, digits and dashes.

    >>> node_name("GPU_Box-7.example.org"), node_name("...")
    ('gpu-box-7', 'local')
    """
    short = re.sub(r"[^a-z0-9]+", "-", hostname.partition(".")[0].lower(), flags=re.ASCII)
    return short[:63].strip("-") or "local"


def flavor_of(product: str, memory: int) -> str:
    """A product name and its bytes of memory as a flavor."""
    words = [word for word in _SPLIT.split(product) if word and not _BRANDS.fullmatch(word)]
    model = [word for word in words if not _FORMS.fullmatch(word)] or ["GPU"]
    return f"{'-'.join(model)[:48].strip('-.')}-{-(-memory // _GIB)}GB"


def _flavors() -> list[str]:
    """The flavor of each GPU, in NVML's order; none if NVML cannot tell, for whatever reason."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except Exception:  # no driver, no device node, a driver of another version: there is no GPU for us
        return []
    try:
        return [_flavor(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except Exception:  # a GPU that has fallen off the bus makes the count and every query raise
        return []
    finally:
        _shut_down(pynvml)


def _flavor(pynvml: Any, index: int) -> str:
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    product = pynvml.nvmlDeviceGetName(device)
    if isinstance(product, bytes):  # releases of the bindings before 12
        product = product.decode(errors="replace")
    return flavor_of(product, int(pynvml.nvmlDeviceGetMemoryInfo(device).total))


def _shut_down(pynvml: Any) -> None:
    with contextlib.suppress(Exception):  # we have what we wanted
        pynvml.nvmlShutdown()
