"""Which format a document is in, by its shape. A document of no known shape is refused, naming what was seen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ingest import log
from ingest.errors import BadInput

OTLP_TOPICS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        log.TRACES: ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "instrumentationLibrarySpans"),
        log.LOGS: ("resourceLogs", "resource_logs", "scopeLogs", "scope_logs"),
        log.METRICS: ("resourceMetrics", "resource_metrics", "scopeMetrics", "scope_metrics"),
    }
)
KNOWN = "OTLP JSON or protobuf, Jaeger JSON, Zipkin v2 JSON, Langfuse export, spans printed by an OpenTelemetry SDK"


def classify(document: Any) -> str:
    """`otlp-json`, `jaeger`, `zipkin`, `langfuse` or `spans`. Raises BadInput(unknown-format)."""
    sample = document
    for _ in range(2):  # Zipkin answers with lists of lists
        if isinstance(sample, list):
            sample = next((item for item in sample if item), None)
    if isinstance(sample, Mapping):
        name = _name(sample)
        if name:
            return name
    raise BadInput("unknown-format", f"neither {KNOWN}: found {_seen(sample)}")


def _seen(sample: Any) -> str:
    if isinstance(sample, Mapping):
        return f"an object with {', '.join(map(str, sample))[:80]}" if sample else "an empty object"
    return "an empty list" if sample is None or sample == [] else f"a list of {type(sample).__name__}"


def _name(sample: Mapping[str, Any]) -> str:
    keys = set(sample)
    if any(keys.intersection(names) for names in OTLP_TOPICS.values()):
        return "otlp-json"
    first = _first(sample, "data")
    if (
        (keys >= {"traceID", "spans"})
        or (keys >= {"traceID", "spanID"})
        or (first and first.keys() >= {"traceID", "spans"})
    ):
        return "jaeger"
    if "observations" in keys or keys >= {"traceId", "startTime", "type"}:
        return "langfuse"
    if keys >= {"traceId", "id"}:
        return "zipkin"
    inner = _first(sample, "spans")
    if inner and _printed(inner):
        return "spans"
    return "spans" if _printed(sample) else ""


def _printed(span: Mapping[str, Any]) -> bool:
    context = span.get("context")
    ids = context if isinstance(context, Mapping) else span
    return ids.keys() >= {"trace_id", "span_id"}


def _first(sample: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = sample.get(name)
    first = found[0] if isinstance(found, list) and found else None
    return first if isinstance(first, Mapping) else None


def protobuf_topic(body: bytes) -> str:
    """Which of the three requests `body` is: field numbers coincide, so their contents decide. Raises BadInput(unknown-format)."""
    traces, metrics, logs = (
        _read(ExportTraceServiceRequest, body),
        _read(ExportMetricsServiceRequest, body),
        _read(ExportLogsServiceRequest, body),
    )
    for resource in traces.resource_spans if traces else ():
        if any(len(span.trace_id) == 16 for scope in resource.scope_spans for span in scope.spans):
            return log.TRACES
    for group in metrics.resource_metrics if metrics else ():
        if any(metric.name and metric.WhichOneof("data") for scope in group.scope_metrics for metric in scope.metrics):
            return log.METRICS
    for lines in logs.resource_logs if logs else ():
        if any(
            record.time_unix_nano or record.observed_time_unix_nano
            for scope in lines.scope_logs
            for record in scope.log_records
        ):
            return log.LOGS
    if any(resource.scope_spans for resource in (traces.resource_spans if traces else ())):
        return log.TRACES
    raise BadInput("unknown-format", f"neither {KNOWN}: found bytes that are no JSON and no OTLP request")


def _read(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError:
        return None
