"""The host beside the traces: CPU, memory, disk queue and rate, and the round trip to named hosts.

Must stay true: rates are over the time since the last reading, so the first reading has none; a peer that does not answer has no
round trip, not 0.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from ingest.errors import BadSetting

CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    busy_s: float
    cpu_s: float
    operations: float
    weighted_s: float
    disk_busy_s: float


@dataclass(slots=True)
class Host:
    """Reads the host; `peers` maps a name to (host, port) whose TCP connect time is measured."""

    peers: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    last: _Reading | None = None

    def read(self) -> list[Metric]:
        """Gauge families; `stagescope.host.*` where no convention has a name."""
        now, before = _reading(), self.last
        self.last = now
        found = [
            _gauge("stagescope.host.load_per_cpu", os.getloadavg()[0] / (psutil.cpu_count() or 1)),
            _gauge("system.memory.utilization", psutil.virtual_memory().percent / 100),
        ]
        if before is not None and (span_s := now.at_s - before.at_s) > 0:
            if (cpu_s := now.cpu_s - before.cpu_s) > 0:
                found.append(_gauge("system.cpu.utilization", min(1.0, max(0.0, (now.busy_s - before.busy_s) / cpu_s))))
            found += [
                _gauge("stagescope.host.disk.iops", max(0.0, now.operations - before.operations) / span_s),
                _gauge("stagescope.host.disk.queue", max(0.0, now.weighted_s - before.weighted_s) / span_s),
                _gauge("stagescope.host.disk.busy", min(1.0, max(0.0, now.disk_busy_s - before.disk_busy_s) / span_s)),
            ]
        trips = GaugeMetricFamily("stagescope.host.net.rtt_ms", "TCP connect time", labels=("peer",))
        for name, address in self.peers.items():
            if (trip_ms := connect_ms(address)) is not None:
                trips.add_metric([name], trip_ms)
        return [*found, trips] if trips.samples else found


def parse_peers(text: str) -> Mapping[str, tuple[str, int]]:
    """`name=host:port,…`. Raises BadSetting."""
    found: dict[str, tuple[str, int]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, address = part.partition("=")
        host, _, port = address.rpartition(":")
        if not (name and host and port.isdecimal() and 0 < int(port) < 65536):
            raise BadSetting("STAGESCOPE_SCRAPE_PEERS", part, "name=host:port, separated by commas")
        found[name] = (host.strip("[]"), int(port))
    return found


def connect_ms(address: tuple[str, int], timeout_s: float = CONNECT_TIMEOUT_S) -> float | None:
    """Milliseconds until a TCP connection stands: one round trip; None when it does not."""
    try:
        where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        with socket.socket(where[0], where[1]) as connection:
            connection.settimeout(timeout_s)
            start_s = time.perf_counter()
            connection.connect(where[4])
            return (time.perf_counter() - start_s) * 1000
    except OSError:
        return None


def _gauge(name: str, value: float) -> Metric:
    family = GaugeMetricFamily("value", "")
    family.name = name
    family.add_metric([], value)
    family.samples = [sample._replace(name=name) for sample in family.samples]
    return family


def _reading() -> _Reading:
    """Sums since boot. Disk queue = growth of weighted I/O time per second (Linux, /proc/diskstats field 11)."""
    cpu = psutil.cpu_times()
    total = sum(cpu) - getattr(cpu, "guest", 0.0) - getattr(cpu, "guest_nice", 0.0)
    idle = cpu.idle + getattr(cpu, "iowait", 0.0)
    disks = psutil.disk_io_counters()
    operations = float(disks.read_count + disks.write_count) if disks else 0.0
    weighted_s = (disks.read_time + disks.write_time) / 1000 if disks else 0.0
    busy_s = (
        getattr(disks, "busy_time", 0) / 1000 / max(1, len(psutil.disk_io_counters(perdisk=True) or {}))
        if disks
        else 0.0
    )
    return _Reading(time.monotonic(), total - idle, total, operations, weighted_s, busy_s)
