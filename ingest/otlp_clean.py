"""What makes a span, log record or metric point storable: bad ones are taken out with a reason, odd ones are mended and marked.

Must stay true: after `clean`, a request stores without error, has no nested values, and cleaning it again changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.limits import LAST_NS, Limits
from ingest.otlp_text import NESTED, nested_text

Request = ExportTraceServiceRequest | ExportLogsServiceRequest | ExportMetricsServiceRequest
MARKS = "stagescope.marks"
NO_TRACE, NO_SPAN = bytes(16), bytes(8)
METRIC_KINDS = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
Mask = Callable[[KeyValue], bool]


@dataclass(frozen=True, slots=True)
class Reject:
    """`count` elements that were not stored, and why; `detail` describes the first of them."""

    reason: str
    detail: str
    count: int = 1


@dataclass(slots=True)
class Tally:
    """What cleaning found so far. `changed` says that the request no longer equals the bytes it was read from."""

    limits: Limits
    mask: Mask | None = None
    accepted: int = 0
    changed: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    details: dict[str, str] = field(default_factory=dict)

    def reject(self, reason: str, detail: str) -> None:
        self.changed = True
        self.counts[reason] += 1
        self.details.setdefault(reason, detail[:200])

    def rejects(self) -> list[Reject]:
        return [Reject(reason, self.details[reason], count) for reason, count in self.counts.items()]


def clean(request: Request, tally: Tally) -> None:
    """Mend `request` in place."""
    if isinstance(request, ExportTraceServiceRequest):
        for resource in request.resource_spans:
            clean_attributes(resource.resource.attributes, tally)
            for scope in resource.scope_spans:
                clean_attributes(scope.scope.attributes, tally)
                _keep(scope.spans, _span, tally)
    elif isinstance(request, ExportLogsServiceRequest):
        for logs in request.resource_logs:
            clean_attributes(logs.resource.attributes, tally)
            for lines in logs.scope_logs:
                clean_attributes(lines.scope.attributes, tally)
                _keep(lines.log_records, _log_record, tally)
    else:
        for metrics in request.resource_metrics:
            clean_attributes(metrics.resource.attributes, tally)
            for group in metrics.scope_metrics:
                clean_attributes(group.scope.attributes, tally)
                for metric in group.metrics:
                    _metric(metric, tally)


def clean_span(span: Span, tally: Tally) -> bool:
    """Mend one span in place; False when it cannot be stored."""
    return not _rejected(_span(span, tally), tally)


def _keep(items: Any, check: Callable[[Any, Tally], tuple[str, str] | None], tally: Tally) -> None:
    bad = [index for index, item in enumerate(items) if _rejected(check(item, tally), tally)]
    for index in reversed(bad):
        del items[index]
    tally.accepted += len(items)


def _rejected(verdict: tuple[str, str] | None, tally: Tally) -> bool:
    if verdict is not None:
        tally.reject(*verdict)
    return verdict is not None


def _span(span: Any, tally: Tally) -> tuple[str, str] | None:
    if len(span.trace_id) != 16 or span.trace_id == NO_TRACE:
        return (
            "bad-trace-id",
            f"trace id {span.trace_id.hex()[:64]!r} of span {span.name[:80]!r}: 16 bytes, not all zero",
        )
    if len(span.span_id) != 8 or span.span_id == NO_SPAN:
        return "bad-span-id", f"span id {span.span_id.hex()[:64]!r} of span {span.name[:80]!r}: 8 bytes, not all zero"
    start, end = span.start_time_unix_nano, span.end_time_unix_nano
    if start == end == 0:
        return "no-time", f"span {span.name[:80]!r} has neither start nor end"
    if start > LAST_NS or end > LAST_NS:
        return "time-out-of-range", f"span {span.name[:80]!r} is after the year 2099"
    if start == 0:
        span.start_time_unix_nano = end
        _mark(span.attributes, "no-start", tally)
    elif end < start:
        span.end_time_unix_nano = start
        _mark(span.attributes, "negative-duration" if end else "no-end", tally)
    if span.parent_span_id and (len(span.parent_span_id) != 8 or span.parent_span_id == NO_SPAN):
        if span.parent_span_id != NO_SPAN:
            _mark(span.attributes, "bad-parent", tally)
        span.parent_span_id = b""
        tally.changed = True
    if not span.name:
        _mark(span.attributes, "no-name", tally)
    for event in span.events:
        if event.time_unix_nano > LAST_NS:
            event.time_unix_nano = span.start_time_unix_nano
            _mark(span.attributes, "bad-event-time", tally)
    _span_insides(span, tally)
    return None


def _span_insides(span: Any, tally: Tally) -> None:
    limits = tally.limits
    big = span.ByteSize() > limits.careless_bytes
    cut = clean_attributes(span.attributes, tally, big)
    for event in span.events:
        cut |= clean_attributes(event.attributes, tally, big)
    for link in span.links:
        cut |= clean_attributes(link.attributes, tally, big)
    if big:
        cut |= _shorten(span, "name", limits.name_bytes)
        cut |= _shorten(span, "trace_state", limits.name_bytes)
        cut |= _shorten(span.status, "message", limits.attribute_bytes) if span.HasField("status") else False
        cut |= _cut(span.events, limits.events) | _cut(span.links, limits.links)
        cut |= _shorten_all(span.events, "name", limits.name_bytes)
        cut |= _shorten_all(span.links, "trace_state", limits.name_bytes)
    if cut:
        _mark(span.attributes, "truncated", tally)


def _log_record(record: Any, tally: Tally) -> tuple[str, str] | None:
    if max(record.time_unix_nano, record.observed_time_unix_nano) > LAST_NS:
        return "time-out-of-range", "log record is after the year 2099"
    if len(record.trace_id) not in (0, 16) or len(record.span_id) not in (0, 8):
        record.trace_id = record.span_id = b""
        _mark(record.attributes, "bad-trace-id", tally)
    if record.body.WhichOneof("value") in NESTED:
        record.body.string_value = nested_text(record.body)
        tally.changed = True
    cut = _shorten(record.body, "string_value", tally.limits.attribute_bytes) if record.body.string_value else False
    cut |= clean_attributes(record.attributes, tally)
    cut |= _shorten(record, "severity_text", tally.limits.name_bytes)
    cut |= _shorten(record, "event_name", tally.limits.name_bytes)
    if cut:
        _mark(record.attributes, "truncated", tally)
    return None


def _metric(metric: Any, tally: Tally) -> None:
    kind = metric.WhichOneof("data")
    if kind not in METRIC_KINDS:
        tally.reject("no-data", f"metric {metric.name[:80]!r} has no points")
        return
    points = getattr(metric, kind).data_points
    if not metric.name:
        if len(points):
            tally.reject("no-name", "metric without a name")
            tally.counts["no-name"] += len(points) - 1
        del points[:]
        return
    tally.changed |= _shorten(metric, "name", tally.limits.name_bytes)
    _keep(points, _point, tally)


def _point(point: Any, tally: Tally) -> tuple[str, str] | None:
    if max(point.time_unix_nano, point.start_time_unix_nano) > LAST_NS:
        return "time-out-of-range", "metric point is after the year 2099"
    if not point.time_unix_nano:
        return "no-time", "metric point without a time"
    tally.changed |= clean_attributes(point.attributes, tally)
    for exemplar in getattr(point, "exemplars", ()):
        tally.changed |= clean_attributes(exemplar.filtered_attributes, tally)
        if len(exemplar.trace_id) not in (0, 16) or len(exemplar.span_id) not in (0, 8):
            exemplar.trace_id = exemplar.span_id = b""
            tally.changed = True
        if exemplar.time_unix_nano > LAST_NS:
            exemplar.time_unix_nano = point.time_unix_nano
            tally.changed = True
    return None


def clean_attributes(items: Any, tally: Tally, big: bool = True) -> bool:
    """Nested values become JSON text, masked ones are masked, and (where something is `big`) long ones are cut; True then."""
    limits = tally.limits
    cut = _cut(items, limits.attributes)
    for item in items:
        if tally.mask is not None:
            tally.changed |= tally.mask(item)
        value = item.value
        if value.WhichOneof("value") in NESTED:
            value.string_value = nested_text(value)
            tally.changed = True
        if big:
            cut |= _shorten_item(item, limits)
    tally.changed |= cut
    return cut


def _shorten_item(item: KeyValue, limits: Limits) -> bool:
    value, cut = item.value, _shorten(item, "key", limits.key_bytes)
    if value.WhichOneof("value") == "string_value":
        return cut | _shorten(value, "string_value", limits.attribute_bytes)
    if len(value.bytes_value) > limits.attribute_bytes:
        value.bytes_value = value.bytes_value[: limits.attribute_bytes]
        return True
    return cut


def _shorten(message: Any, name: str, most_bytes: int) -> bool:
    text = getattr(message, name)
    if len(text) * 4 <= most_bytes:
        return False
    raw = text.encode()
    if len(raw) <= most_bytes:
        return False
    setattr(message, name, raw[:most_bytes].decode(errors="ignore"))
    return True


def _shorten_all(items: Any, name: str, most_bytes: int) -> bool:
    return sum(_shorten(item, name, most_bytes) for item in items) > 0


def _cut(items: Any, most: int) -> bool:
    if len(items) <= most:
        return False
    del items[most:]
    return True


def _mark(attributes: Any, mark: str, tally: Tally) -> None:
    """Note `mark` in the attribute that becomes the column Marks."""
    tally.changed = True
    for item in attributes:
        if item.key == MARKS:
            marks = [name for name in item.value.string_value.split(",") if name]
            item.value.string_value = ",".join(sorted({*marks, mark}))
            return
    del attributes[tally.limits.attributes - 1 :]
    attributes.add(key=MARKS).value.string_value = mark
