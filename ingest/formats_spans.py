"""Spans as OpenTelemetry's own SDKs print them (console exporter, any-agent's decimal ids) and flat lists of spans, as OTLP.

Must stay true: an id given as a decimal integer of up to 128 bits becomes the very id it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.errors import BadInput
from ingest.formats import (
    KINDS,
    Gathered,
    hex_id,
    iso_ns,
    items,
    put_all,
    set_status,
    set_times,
    table,
    text_of,
    whole_number,
)


def to_request(documents: Sequence[Any]) -> Gathered:
    """Documents: {spans: […]}, or single spans with their ids in `context` or beside the name."""
    gathered = Gathered()
    for document in documents:
        found = items(document, "spans") if isinstance(document, Mapping) and "spans" in document else [document]
        gathered.each(found, lambda span: _convert(span, gathered))
    return gathered


def _convert(span: Mapping[str, Any], gathered: Gathered) -> None:
    ids = table(span, "context") or span
    out = Span(trace_id=_id(ids.get("trace_id"), 16, "trace_id"), span_id=_id(ids.get("span_id"), 8, "span_id"))
    parent = _parent(span)
    out.parent_span_id = _id(parent, 8, "parent_span_id") if parent else b""
    set_times(out, _time(span, "start_time", "start"), _time(span, "end_time", "end"))
    out.name = text_of(span.get("name"))
    out.kind = _kind(span.get("kind"))  # type: ignore[assignment]
    status = span.get("status")
    if isinstance(status, Mapping):
        set_status(
            out, status.get("status_code", status.get("code", "")), status.get("description", status.get("message"))
        )
    put_all(out.attributes, table(span, "attributes"))
    for item in items(span, "events"):
        if not isinstance(item, Mapping):
            raise BadInput("bad-value", "an event must be an object")
        event = out.events.add()
        event.name, event.time_unix_nano = text_of(item.get("name")), _time(item, "timestamp", "time")
        put_all(event.attributes, table(item, "attributes"))
    for item in items(span, "links"):
        where = table(item, "context") or item
        link = out.links.add()
        link.trace_id, link.span_id = (
            _id(where.get("trace_id"), 16, "trace_id"),
            _id(where.get("span_id"), 8, "span_id"),
        )
        put_all(link.attributes, table(item, "attributes"))
    resource = table(span, "resource")
    scope = span.get("instrumentation_scope") or span.get("scope") or {}
    name, version = (
        (scope, "") if isinstance(scope, str) else (text_of(scope.get("name")), text_of(scope.get("version")))
    )
    gathered.span(table(resource, "attributes") or resource, name, version).CopyFrom(out)


def _parent(span: Mapping[str, Any]) -> Any:
    parent = span.get("parent")
    return parent.get("span_id") if isinstance(parent, Mapping) else span.get("parent_id") or span.get("parent_span_id")


def _id(value: Any, size: int, name: str) -> bytes:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 < value < 2 ** (8 * size):
            raise BadInput(f"bad-{name.replace('_', '-')}", f"{name} {value} is not a number of {size} bytes")
        return value.to_bytes(size, "big")
    return hex_id(value, size, name)


def _kind(value: Any) -> int:
    if isinstance(value, int) and 0 <= value <= 5:
        return value
    return KINDS.get(str(value).rsplit(".", maxsplit=1)[-1].rsplit("_", maxsplit=1)[-1].lower(), 0)


def _time(holder: Mapping[str, Any], *names: str) -> int:
    """Nanoseconds as a number, or ISO 8601; 0 when nothing is said."""
    value = next((holder[name] for name in names if holder.get(name) is not None), 0)
    return (
        iso_ns(value, names[0]) if isinstance(value, str) and not value.isdecimal() else whole_number(value, names[0])
    )
