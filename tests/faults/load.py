"""Requests whose rows can be counted exactly afterwards, and the counting."""

from __future__ import annotations

import time

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.store import Store

HOUR_NS = 3600 * 10**9
POISON = b"\xff\xff poison %d"


def spans(number: int, count: int = 20, late_ns: int = 0) -> bytes:
    """A request of `count` spans that no other number has."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = f"service {number % 3}"
    scope = resource.scope_spans.add()
    start = time.time_ns() - late_ns
    for index in range(count):
        scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=(number * 1000 + index + 1).to_bytes(8, "big"),
            name=f"step {index % 5}",
            start_time_unix_nano=start + index,
            end_time_unix_nano=start + index + 10**6,
        )
    return request.SerializeToString()


def logs(number: int, count: int = 5) -> bytes:
    """A request of `count` log records that no other number has."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for index in range(count):
        record = scope.log_records.add(time_unix_nano=time.time_ns(), severity_text="INFO")
        record.body.string_value = f"record {number} {index}"
    return request.SerializeToString()


def counted(store: Store, table: str) -> int:
    """Rows as readers see them."""
    return int(store.value(f"SELECT count() FROM {table}"))


def written(store: Store, table: str) -> int:
    """Rows as they lie there: a row that readers see once but that was written twice counts twice."""
    return int(store.command(f"SELECT count() FROM {table} SETTINGS final = 0"))
