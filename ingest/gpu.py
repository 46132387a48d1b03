"""GPUs seen through NVIDIA's management library, for hosts that have a GPU and no dcgm-exporter.

Must stay true: series carry dcgm-exporter's names and units, so that both ways end in the same rows; what a device does not
support is left out, never 0.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from ingest.errors import Unavailable

MIB = 1048576
LABELS = ("gpu", "UUID", "modelName", "Hostname", "GPU_I_ID")
Read = Callable[[Any], float]
READS: tuple[tuple[str, Read], ...] = (
    ("DCGM_FI_DEV_FB_USED", lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used / MIB),
    ("DCGM_FI_DEV_FB_TOTAL", lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).total / MIB),
    ("DCGM_FI_DEV_GPU_UTIL", lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
    ("DCGM_FI_DEV_POWER_USAGE", lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
    ("DCGM_FI_DEV_GPU_TEMP", lambda gpu: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU)),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", lambda gpu: pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_TX_BYTES) * 1000),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", lambda gpu: pynvml.nvmlDeviceGetPcieThroughput(gpu, pynvml.NVML_PCIE_UTIL_RX_BYTES) * 1000),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_GEN", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
    ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
)  # fmt: skip


def read(host: str = "") -> list[Metric]:
    """One family a quantity, one sample a device. SM activity is not among them: the library's utilisation only says that some
    kernel ran. Raises Unavailable where there is no driver.
    """
    name = host or socket.gethostname()
    with _library():
        devices = [_device(number, name) for number in range(pynvml.nvmlDeviceGetCount())]
        families = []
        for metric, function in READS:
            family = GaugeMetricFamily(metric, "read through NVML", labels=LABELS)
            for labels, handle in devices:
                value = _value(function, handle)
                if value is not None:
                    family.add_metric(labels, value)
            families.append(family)
    return [family for family in families if family.samples]


@contextmanager
def _library() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as err:
        raise Unavailable(
            f"no NVIDIA driver answers on this host ({err}): scrape a dcgm-exporter with STAGESCOPE_SCRAPE, or go without"
        ) from None
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _device(number: int, host: str) -> tuple[list[str], Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    texts = [pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)]
    uuid, model = (text.decode() if isinstance(text, bytes) else str(text) for text in texts)
    return [str(number), uuid, model, host, ""], handle


def _value(function: Read, handle: Any) -> float | None:
    """None where the device does not support the question (MIG, virtual GPUs, permissions)."""
    try:
        return float(function(handle))
    except pynvml.NVMLError:
        return None
