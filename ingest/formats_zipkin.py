"""Zipkin v2 JSON spans as OTLP.

Must stay true: a span id that client and server share becomes two ids, the same two every time, the server under the client.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.errors import BadInput
from ingest.formats import KINDS, Gathered, hex_id, items, put_all, set_status, set_times, table, text_of, whole_number

SHARED_ID = "zipkin.shared_id"
CALLER, CALLEE = ("CLIENT", "PRODUCER"), ("SERVER", "CONSUMER")
STATUS_TAGS = (
    "otel.status_code",
    "otel.status_description",
    "otel.scope.name",
    "otel.scope.version",
    "otel.library.name",
    "otel.library.version",
)


def to_request(documents: Sequence[Any]) -> Gathered:
    """Zipkin spans of one batch. Halves of a shared span are only recognised within a batch."""
    gathered = Gathered()
    spans: list[dict[str, Any]] = []
    gathered.each(documents, lambda span: spans.append(_read(span)))
    merged = _merged(spans)
    _part(merged)
    gathered.each(merged, lambda span: _convert(span, gathered))
    return gathered


def service_of(span: Mapping[str, Any]) -> str:
    return text_of(table(span, "localEndpoint").get("serviceName"))


def _read(span: Mapping[str, Any]) -> dict[str, Any]:
    """The span with its ids as bytes under `_trace`, `_id`, `_parent`."""
    parent = span.get("parentId")
    return {
        **span,
        "_trace": hex_id(span.get("traceId"), 16, "trace_id"),
        "_id": hex_id(span.get("id"), 8, "span_id"),
        "_parent": hex_id(parent, 8, "parent_span_id") if parent else b"",
        "tags": dict(table(span, "tags")),
        "annotations": list(items(span, "annotations")),
        "kind": text_of(span.get("kind")).upper(),
        "_service": service_of(span),
    }


def _merged(spans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One half reported in several pieces is one span: tags and annotations joined, the longest duration, the first start.

    Pieces with different timestamps are no pieces but repetitions under one id; all but the first get ids of their own.
    """
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for span in spans:
        known = found[span["_trace"], span["_id"], span["kind"], span["_service"], bool(span.get("shared"))]
        start = span.get("timestamp")
        kept = next((one for one in known if not start or one.get("timestamp") in (start, None, 0)), None)
        if kept is None:
            known.append({**span, "_again": bool(known)})
            continue
        for name in ("timestamp", "name", "duration", "localEndpoint", "remoteEndpoint"):
            kept[name] = kept.get(name) or span.get(name)
        kept["_parent"] = kept["_parent"] or span["_parent"]
        kept["tags"] = {**span["tags"], **kept["tags"]}
        kept["annotations"] += [note for note in span["annotations"] if note not in kept["annotations"]]
    return [span for known in found.values() for span in known]


@dataclass(slots=True)
class _Shared:
    """The server half that children of a shared id belong to, and the services on either side."""

    server: bytes
    served: set[str]
    called: set[str]


def _part(spans: Sequence[dict[str, Any]]) -> None:
    """Give the server half of a shared id (and every repetition) an id of its own, and the server's children to it."""
    groups: dict[tuple[bytes, bytes], list[dict[str, Any]]] = defaultdict(list)
    for span in spans:
        groups[span["_trace"], span["_id"]].append(span)
    shared: dict[tuple[bytes, bytes], _Shared] = {}
    for key, group in groups.items():
        callers = [span for span in group if span["kind"] in CALLER]
        for span in group:
            server = (
                bool(callers) and span["kind"] not in CALLER and (span["kind"] in CALLEE or bool(span.get("shared")))
            )
            if server or span["_again"]:
                _own_id(span, key)
            if server:
                span["_parent"] = key[1]
                span["timestamp"] = span.get("timestamp") or callers[0].get("timestamp")
                known = shared.setdefault(key, _Shared(span["_id"], set(), {caller["_service"] for caller in callers}))
                known.served.add(span["_service"])
    for span in spans:
        found = shared.get((span["_trace"], span["_parent"]))
        if found is None or span["tags"].get(SHARED_ID) == span["_parent"].hex():
            continue
        if span["_service"] in found.served or span["_service"] not in found.called:
            span["_parent"] = found.server


def _own_id(span: dict[str, Any], key: tuple[bytes, bytes]) -> None:
    start = str(span.get("timestamp")) if span["_again"] else ""
    source = b"zipkin" + key[0] + key[1] + f"{span['_service']}\x1f{start}".encode("utf-8", "replace")
    span["_id"] = hashlib.sha256(source).digest()[:8]
    span["tags"].setdefault(SHARED_ID, key[1].hex())


def _convert(span: Mapping[str, Any], gathered: Gathered) -> None:
    start_ns, end_ns = _times(span)
    tags = span["tags"]
    scope = [
        text_of(tags.get(f"otel.scope.{part}") or tags.get(f"otel.library.{part}")) for part in ("name", "version")
    ]
    out = Span(trace_id=span["_trace"], span_id=span["_id"], parent_span_id=span["_parent"])
    set_times(out, start_ns, end_ns)
    out.kind = KINDS.get(span["kind"].lower(), 0)  # type: ignore[assignment]
    put_all(out.attributes, {key: value for key, value in tags.items() if key not in STATUS_TAGS})
    put_all(
        out.attributes,
        {**_endpoint(span, "localEndpoint", "net.host"), **_endpoint(span, "remoteEndpoint", "net.peer")},
    )
    _status(out, tags)
    for note in span["annotations"]:
        event = out.events.add()
        event.time_unix_nano = whole_number(note.get("timestamp"), "annotation", 1000)
        event.name = text_of(note.get("value"))
    target = gathered.span({"service.name": span["_service"] or None}, *scope)
    target.CopyFrom(out)
    target.name = text_of(span.get("name"))


def _times(span: Mapping[str, Any]) -> tuple[int, int]:
    """Nanoseconds. Without a timestamp the first annotation counts; without a duration the last one; 0 = unknown."""
    notes = []
    for note in span["annotations"]:
        if not isinstance(note, Mapping):
            raise BadInput("bad-value", "an annotation must be an object")
        notes.append(whole_number(note.get("timestamp"), "annotation", 1000))
    start_ns = whole_number(span.get("timestamp") or 0, "timestamp", 1000) or min(notes, default=0)
    if span.get("duration") is not None:
        return start_ns, max(0, start_ns + whole_number(span["duration"], "duration", 1000))
    return start_ns, max([note for note in notes if note > start_ns], default=0)


def _endpoint(span: Mapping[str, Any], name: str, prefix: str) -> dict[str, Any]:
    found = table(span, name)
    service = found.get("serviceName") if name == "remoteEndpoint" else None
    return {
        f"{prefix}.ip": found.get("ipv4") or found.get("ipv6"),
        f"{prefix}.port": found.get("port"),
        "peer.service": service or None,
    }


def _status(span: Span, tags: Mapping[str, Any]) -> None:
    error = text_of(tags.get("error"))
    set_status(span, tags.get("otel.status_code", ""), tags.get("otel.status_description"))
    if "error" in tags and error.lower() != "false":
        set_status(span, "error", "" if error.lower() == "true" else error)
