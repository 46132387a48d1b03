"""Cleaned OTLP spans and log records as Arrow tables with the columns of the Collector's ClickHouse tables.

Must stay true: the rows equal those that decode_traces.sql makes of the same bytes inside ClickHouse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest.otlp_clean import MARKS
from ingest.otlp_text import value_text

TIME = pa.timestamp("ns", tz="UTC")
MAP = pa.map_(pa.string(), pa.string())
KINDS = {0: "Unspecified", 1: "Internal", 2: "Server", 3: "Client", 4: "Producer", 5: "Consumer"}
STATUSES = {0: "Unset", 1: "Ok", 2: "Error"}
Pairs = list[tuple[str, str]]

TRACES = pa.schema(
    [
        ("Timestamp", TIME),
        ("TraceId", pa.string()),
        ("SpanId", pa.string()),
        ("ParentSpanId", pa.string()),
        ("TraceState", pa.string()),
        ("SpanName", pa.string()),
        ("SpanKind", pa.string()),
        ("ServiceName", pa.string()),
        ("ResourceAttributes", MAP),
        ("ScopeName", pa.string()),
        ("ScopeVersion", pa.string()),
        ("SpanAttributes", MAP),
        ("Duration", pa.uint64()),
        ("StatusCode", pa.string()),
        ("StatusMessage", pa.string()),
        ("Events.Timestamp", pa.list_(TIME)),
        ("Events.Name", pa.list_(pa.string())),
        ("Events.Attributes", pa.list_(MAP)),
        ("Links.TraceId", pa.list_(pa.string())),
        ("Links.SpanId", pa.list_(pa.string())),
        ("Links.TraceState", pa.list_(pa.string())),
        ("Links.Attributes", pa.list_(MAP)),
        ("Marks", pa.string()),
    ]
)
LOGS = pa.schema(
    [
        ("Timestamp", TIME),
        ("TraceId", pa.string()),
        ("SpanId", pa.string()),
        ("TraceFlags", pa.uint8()),
        ("SeverityText", pa.string()),
        ("SeverityNumber", pa.uint8()),
        ("ServiceName", pa.string()),
        ("Body", pa.string()),
        ("ResourceSchemaUrl", pa.string()),
        ("ResourceAttributes", MAP),
        ("ScopeSchemaUrl", pa.string()),
        ("ScopeName", pa.string()),
        ("ScopeVersion", pa.string()),
        ("ScopeAttributes", MAP),
        ("LogAttributes", MAP),
        ("EventName", pa.string()),
    ]
)


def pairs(attributes: Any) -> Pairs:
    """Attributes as (key, text) in their order."""
    return [(item.key, value_text(item.value)) for item in attributes]


def first(found: Pairs, key: str) -> str:
    """The text of the first attribute named `key`, or ''."""
    return next((value for name, value in found if name == key), "")


def table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table; `rows` may be empty."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(column, item.type) for column, item in zip(columns, schema, strict=True)], schema=schema)


def trace_rows(request: ExportTraceServiceRequest) -> list[tuple[Any, ...]]:
    """One row a span, in the order of TRACES."""
    rows = []
    for resource in request.resource_spans:
        about = pairs(resource.resource.attributes)
        service = first(about, "service.name")
        for scope in resource.scope_spans:
            place = (service, about, scope.scope.name, scope.scope.version)
            rows += [_span_row(span, place) for span in scope.spans]
    return rows


def _span_row(span: Any, place: tuple[str, Pairs, str, str]) -> tuple[Any, ...]:
    attributes = pairs(span.attributes)
    return (
        span.start_time_unix_nano,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.trace_state,
        span.name,
        KINDS.get(span.kind, ""),
        *place,
        attributes,
        span.end_time_unix_nano - span.start_time_unix_nano,
        STATUSES.get(span.status.code, ""),
        span.status.message,
        [event.time_unix_nano for event in span.events],
        [event.name for event in span.events],
        [pairs(event.attributes) for event in span.events],
        [link.trace_id.hex() for link in span.links],
        [link.span_id.hex() for link in span.links],
        [link.trace_state for link in span.links],
        [pairs(link.attributes) for link in span.links],
        first(attributes, MARKS),
    )


def log_rows(request: ExportLogsServiceRequest) -> list[tuple[Any, ...]]:
    """One row a log record, in the order of LOGS; without a time of its own it has the time it was observed."""
    rows = []
    for resource in request.resource_logs:
        about = pairs(resource.resource.attributes)
        place = (first(about, "service.name"), resource.schema_url, about)
        for group in resource.scope_logs:
            scope = (group.schema_url, group.scope.name, group.scope.version, pairs(group.scope.attributes))
            rows += [_log_row(record, place, scope) for record in group.log_records]
    return rows


def _log_row(record: Any, place: tuple[str, str, Pairs], scope: tuple[str, str, str, Pairs]) -> tuple[Any, ...]:
    service, resource_url, about = place
    return (
        record.time_unix_nano or record.observed_time_unix_nano,
        record.trace_id.hex(),
        record.span_id.hex(),
        record.flags & 0xFF,
        record.severity_text,
        record.severity_number & 0xFF,
        service,
        value_text(record.body),
        resource_url,
        about,
        *scope,
        pairs(record.attributes),
        record.event_name,
    )
