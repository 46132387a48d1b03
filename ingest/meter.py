"""What came in, what was stored, what was turned away and how late, counted as it happens.

Must stay true: a count only grows, and every number shown elsewhere about losses comes from here.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import pyarrow as pa
from clickhouse_connect.driver.exceptions import DatabaseError

from ingest.errors import Unavailable
from ingest.store import Store

PREFIX = "stagescope_"
COUNTERS: Mapping[str, str] = {
    "received_requests": "export requests taken in",
    "received_bytes": "bytes of export requests as received",
    "refused_requests": "requests that can never be stored, by reason",
    "turned_away_requests": "requests told to come again later",
    "accepted": "spans, points and records put into the log",
    "rejected": "spans, points and records that can never be stored, by reason",
    "consumed_messages": "messages read from the log",
    "duplicate_messages": "messages seen before, byte for byte, and not stored again",
    "stored": "rows written to the store",
    "rejected_rows": "spans, points and records refused while writing",
    "dead_letters": "messages set aside in dead_letters",
    "blocks": "blocks written to the store",
    "repeated_blocks": "blocks written again after a restart, under the token they had",
    "store_away": "attempts that found the store or the log away",
    "commits_lost": "commits refused because the partition had moved to another consumer",
}
GAUGES: Mapping[str, str] = {
    "lag_messages": "messages in the log that are not yet read",
    "freshness_seconds": "age of the oldest message of the last block when it was stored",
    "block_seconds": "time the last block took from log to store",
    "last_stored_timestamp_seconds": "when a block was last stored",
}


class Meter:
    """Counters and gauges by name and labels. Thread-safe. `instance` tells copies of a process apart."""

    def __init__(self, instance: str = "") -> None:
        self.instance = instance or f"{socket.gethostname()}-{os.getpid()}"
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._gauges: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add `amount` (never below 0)."""
        key = (name, tuple(sorted(labels.items())))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0.0) + amount

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a value that goes up and down."""
        with self._lock:
            self._gauges[name, tuple(sorted(labels.items()))] = value

    def total(self, name: str, **labels: str) -> float:
        """Sum of a counter (or gauge) over all label sets that contain `labels`."""
        wanted = set(labels.items())
        with self._lock:
            items = [*self._counts.items(), *self._gauges.items()]
        return sum(value for (found, has), value in items if found == name and wanted <= set(has))

    def text(self) -> str:
        """Prometheus text format 0.0.4."""
        lines: list[str] = []
        with self._lock:
            groups = (("counter", "_total", COUNTERS, dict(self._counts)), ("gauge", "", GAUGES, dict(self._gauges)))
        for kind, suffix, known, values in groups:
            for name in sorted({name for name, _ in values} | set(known)):
                full = f"{PREFIX}{name}{suffix}"
                lines += [f"# HELP {full} {known.get(name, name.replace('_', ' '))}", f"# TYPE {full} {kind}"]
                lines += [
                    f"{full}{_labels(has)} {value:.17g}" for (n, has), value in sorted(values.items()) if n == name
                ]
        return "\n".join(lines) + "\n"

    def rows(self) -> pa.Table:
        """All values now, as rows of `ingest_meter`."""
        now = datetime.now(UTC)
        with self._lock:
            items = [*self._counts.items(), *self._gauges.items()]
        return pa.table(
            {
                "Timestamp": pa.array([now] * len(items), pa.timestamp("ms", "UTC")),
                "Instance": pa.array([self.instance] * len(items), pa.string()),
                "Name": pa.array([name for (name, _), _ in items], pa.string()),
                "Labels": pa.array([list(has) for (_, has), _ in items], pa.map_(pa.string(), pa.string())),
                "Value": pa.array([value for _, value in items], pa.float64()),
            }
        )

    def save(self, store: Store) -> None:
        """Append all values to `ingest_meter`. Raises Unavailable."""
        try:
            store.insert("ingest_meter", self.rows())
        except DatabaseError as err:
            raise Unavailable(f"the store cannot take its meter now: {str(err).strip()[:300]}", 2.0) from err


class Clockwork:
    """Saves a Meter every `every_s`, when asked often enough."""

    def __init__(self, meter: Meter, store: Store, every_s: float = 10.0) -> None:
        self._meter, self._store, self._every_s = meter, store, every_s
        self._due = time.monotonic()

    def tick(self) -> None:
        """Save if it is time. Raises Unavailable."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._every_s
            self._meter.save(self._store)


def _labels(has: tuple[tuple[str, str], ...]) -> str:
    if not has:
        return ""
    parts = [f'{name}="{_escape(value)}"' for name, value in has]
    return "{" + ",".join(parts) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
