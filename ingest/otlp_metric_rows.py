"""Cleaned OTLP metrics as Arrow tables with the columns of the Collector's five metric tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingest.otlp_rows import MAP, TIME, first, pairs

TEXTS, DOUBLES, COUNTS = pa.list_(pa.string()), pa.list_(pa.float64()), pa.list_(pa.uint64())
HEAD = [
    ("ResourceAttributes", MAP),
    ("ResourceSchemaUrl", pa.string()),
    ("ScopeName", pa.string()),
    ("ScopeVersion", pa.string()),
    ("ScopeAttributes", MAP),
    ("ScopeDroppedAttrCount", pa.uint32()),
    ("ScopeSchemaUrl", pa.string()),
    ("ServiceName", pa.string()),
    ("MetricName", pa.string()),
    ("MetricDescription", pa.string()),
    ("MetricUnit", pa.string()),
    ("Attributes", MAP),
    ("StartTimeUnix", TIME),
    ("TimeUnix", TIME),
    ("Flags", pa.uint32()),
]
EXEMPLARS = [
    ("Exemplars.FilteredAttributes", pa.list_(MAP)),
    ("Exemplars.TimeUnix", pa.list_(TIME)),
    ("Exemplars.Value", DOUBLES),
    ("Exemplars.SpanId", TEXTS),
    ("Exemplars.TraceId", TEXTS),
]
TEMPORALITY = ("AggregationTemporality", pa.int32())
SPREAD = [("Count", pa.uint64()), ("Sum", pa.float64()), ("Min", pa.float64()), ("Max", pa.float64()), TEMPORALITY]
BUCKETS = [
    ("Scale", pa.int32()),
    ("ZeroCount", pa.uint64()),
    ("PositiveOffset", pa.int32()),
    ("PositiveBucketCounts", COUNTS),
    ("NegativeOffset", pa.int32()),
    ("NegativeBucketCounts", COUNTS),
]
METRICS = {
    "otel_metrics_gauge": pa.schema([*HEAD, *EXEMPLARS, ("Value", pa.float64())]),
    "otel_metrics_sum": pa.schema(
        [*HEAD, *EXEMPLARS, ("Value", pa.float64()), TEMPORALITY, ("IsMonotonic", pa.bool_())]
    ),
    "otel_metrics_histogram": pa.schema(
        [*HEAD, *EXEMPLARS, *SPREAD, ("BucketCounts", COUNTS), ("ExplicitBounds", DOUBLES)]
    ),
    "otel_metrics_exp_histogram": pa.schema([*HEAD, *EXEMPLARS, *SPREAD, *BUCKETS]),
    "otel_metrics_summary": pa.schema(
        [
            *HEAD,
            ("Count", pa.uint64()),
            ("Sum", pa.float64()),
            ("ValueAtQuantiles.Quantile", DOUBLES),
            ("ValueAtQuantiles.Value", DOUBLES),
        ]
    ),
}
TABLES = {
    "gauge": "otel_metrics_gauge",
    "sum": "otel_metrics_sum",
    "histogram": "otel_metrics_histogram",
    "exponential_histogram": "otel_metrics_exp_histogram",
    "summary": "otel_metrics_summary",
}
Row = tuple[Any, ...]


def metric_rows(request: ExportMetricsServiceRequest) -> dict[str, list[Row]]:
    """Rows by table name, each in the order of METRICS[table]."""
    found: dict[str, list[Row]] = {}
    for resource in request.resource_metrics:
        about = pairs(resource.resource.attributes)
        service = first(about, "service.name")
        for group in resource.scope_metrics:
            scope = group.scope
            place = (
                about,
                resource.schema_url,
                scope.name,
                scope.version,
                pairs(scope.attributes),
                scope.dropped_attributes_count,
                group.schema_url,
                service,
            )
            for metric in group.metrics:
                kind = metric.WhichOneof("data")
                if kind in TABLES:
                    found.setdefault(TABLES[kind], []).extend(_points(metric, kind, place))
    return found


def _points(metric: Any, kind: str, place: Row) -> list[Row]:
    data = getattr(metric, kind)
    head = (*place, metric.name, metric.description, metric.unit)
    rows = []
    for point in data.data_points:
        times = (pairs(point.attributes), point.start_time_unix_nano, point.time_unix_nano, point.flags)
        rows.append((*head, *times, *_values(data, point, kind)))
    return rows


def _values(data: Any, point: Any, kind: str) -> Row:
    if kind == "summary":
        values = point.quantile_values
        return point.count, point.sum, [item.quantile for item in values], [item.value for item in values]
    shown = _exemplars(point.exemplars)
    if kind == "gauge":
        return *shown, _number(point)
    if kind == "sum":
        return *shown, _number(point), data.aggregation_temporality, data.is_monotonic
    spread = (point.count, point.sum, point.min, point.max, data.aggregation_temporality)
    if kind == "histogram":
        return *shown, *spread, list(point.bucket_counts), list(point.explicit_bounds)
    positive, negative = point.positive, point.negative
    return (
        *shown,
        *spread,
        point.scale,
        point.zero_count,
        positive.offset,
        list(positive.bucket_counts),
        negative.offset,
        list(negative.bucket_counts),
    )


def _exemplars(items: Any) -> Row:
    return (
        [pairs(item.filtered_attributes) for item in items],
        [item.time_unix_nano for item in items],
        [_number(item) for item in items],
        [item.span_id.hex() for item in items],
        [item.trace_id.hex() for item in items],
    )


def _number(point: Any) -> float:
    """The value as a double, 0 when there is none, as the Collector stores it."""
    return float(point.as_int) if point.WhichOneof("value") == "as_int" else float(point.as_double)
