"""Jaeger JSON (query API, UI downloads, one span a line) as OTLP.

Must stay true: the first CHILD_OF of the same trace is the parent (else the first FOLLOWS_FROM); every other reference is a link.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.errors import BadInput
from ingest.formats import KINDS, Gathered, hex_id, items, put_all, set_status, set_times, table, text_of, whole_number


def to_request(documents: Sequence[Any]) -> Gathered:
    """Documents: an API answer ({data: […]}), a trace ({spans, processes}), or a span with its process inside."""
    gathered = Gathered()
    for trace in [inner for document in documents for inner in _traces(document)]:
        if "spans" in trace:
            processes = table(trace, "processes")
            gathered.each(items(trace, "spans"), lambda span, processes=processes: _convert(span, processes, gathered))  # type: ignore[misc]
        else:
            gathered.each([trace], lambda span: _convert(span, {}, gathered))
    return gathered


def _traces(document: Any) -> Sequence[Any]:
    found = document.get("data") if isinstance(document, Mapping) and "data" in document else document
    found = found if isinstance(found, list) else [found]
    if not all(isinstance(trace, Mapping) for trace in found):
        raise BadInput("bad-json", "a Jaeger trace must be an object")
    return found


def _convert(span: Mapping[str, Any], processes: Mapping[str, Any], gathered: Gathered) -> None:
    trace = hex_id(span.get("traceID"), 16, "trace_id")
    tags = _tags(span)
    process = table(span, "process") or table(processes, str(span.get("processID", "")))
    out = Span(trace_id=trace, span_id=hex_id(span.get("spanID"), 8, "span_id"))
    start_ns = whole_number(span.get("startTime"), "startTime", 1000)
    set_times(out, start_ns, start_ns + max(0, whole_number(span.get("duration", 0), "duration", 1000)))
    out.name = text_of(span.get("operationName"))
    out.kind = KINDS.get(str(tags.get("span.kind", "")).lower(), 0)  # type: ignore[assignment]
    out.trace_state = text_of(tags.get("w3c.tracestate"))
    _references(span, trace, out)
    _status(out, tags)
    put_all(out.attributes, tags)
    put_all(out.attributes, {"jaeger.warnings": span.get("warnings") or None})
    for log in items(span, "logs"):
        _event(log, out)
    scope = [
        text_of(tags.get(f"otel.scope.{part}") or tags.get(f"otel.library.{part}")) for part in ("name", "version")
    ]
    resource = {"service.name": process.get("serviceName") or None, **_tags(process)}
    gathered.span(resource, *scope).CopyFrom(out)


def _tags(holder: Mapping[str, Any], name: str = "tags") -> dict[str, Any]:
    """Tags by key, each in its type."""
    found: dict[str, Any] = {}
    for tag in items(holder, name):
        if not isinstance(tag, Mapping) or "key" not in tag:
            raise BadInput("bad-value", "a tag must be an object with a key")
        found[str(tag["key"])] = _typed(str(tag.get("type", "")).lower(), tag.get("value", tag.get("vStr")))
    return found


def _typed(kind: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        if kind == "int64":
            return int(value)
        if kind == "float64":
            return float(value)
        if kind == "binary":
            return base64.b64decode(value, validate=True).decode("utf-8", "replace")
    except (ValueError, binascii.Error):
        return value
    return value.lower() == "true" if kind == "bool" else value


def _references(span: Mapping[str, Any], trace: bytes, out: Span) -> None:
    found = []
    for item in items(span, "references"):
        if not isinstance(item, Mapping):
            raise BadInput("bad-value", "a reference must be an object")
        kind = str(item.get("refType", "CHILD_OF")).lower()
        found.append((kind, hex_id(item.get("traceID"), 16, "trace_id"), hex_id(item.get("spanID"), 8, "span_id")))
    same = [reference for reference in found if reference[1] == trace]
    parent = next((reference for reference in same if reference[0] == "child_of"), same[0] if same else None)
    old = span.get("parentSpanID")
    if parent is not None:
        out.parent_span_id = parent[2]
        found.remove(parent)
    elif old and str(old).strip("0"):
        out.parent_span_id = hex_id(old, 8, "parent_span_id")
    for kind, other_trace, other in found:
        link = out.links.add()
        link.trace_id, link.span_id = other_trace, other
        put_all(link.attributes, {"opentracing.ref_type": kind})


def _event(log: Any, out: Span) -> None:
    if not isinstance(log, Mapping):
        raise BadInput("bad-value", "a log must be an object")
    fields = _tags(log, "fields")
    event = out.events.add()
    event.time_unix_nano = whole_number(log.get("timestamp"), "log timestamp", 1000)
    name = text_of(fields.pop("event", None)) or text_of(fields.get("message")) or "log"
    kind = fields.get("error.kind") or fields.get("exception.type")
    if name == "error" and kind:  # OpenTracing's way to say what OpenTelemetry calls an exception
        name = "exception"
        fields.setdefault("exception.type", kind)
        fields.setdefault("exception.message", fields.get("message") or fields.get("error.object"))
        fields.setdefault("exception.stacktrace", fields.get("stack"))
    event.name = name
    put_all(event.attributes, fields)


def _status(out: Span, tags: Mapping[str, Any]) -> None:
    set_status(out, tags.get("otel.status_code", ""), tags.get("otel.status_description"))
    error = tags.get("error")
    if error is True or (isinstance(error, str) and error.lower() not in ("", "false")):
        set_status(out, "error", "" if error is True or error.lower() == "true" else error)
