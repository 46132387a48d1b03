"""Langfuse exports as OTLP: the attributes an instrumentation sent stand in `metadata`; what Langfuse added keeps its own names.

Must stay true: an attribute that the instrumentation sent is stored under its own name with its own value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ingest.errors import BadInput
from ingest.formats import Gathered, any_id, iso_ns, items, put_all, set_status, set_times, table, text_of

NOT_SAID = ("DEFAULT", "DEBUG", "")
KNOWN = ("attributes", "resourceAttributes", "scope")


def to_request(documents: Sequence[Any]) -> Gathered:
    """Documents: {trace, observations}, a trace with observations inside, or single observations."""
    gathered = Gathered()
    for document in documents:
        if not isinstance(document, Mapping):
            raise BadInput("bad-json", "a Langfuse export must be an object")
        trace = table(document, "trace") or (document if "observations" in document else {})
        found = items(document, "observations") if "observations" in document else [document]
        gathered.each(found, lambda one, trace=trace: _convert(one, trace, gathered))  # type: ignore[misc]
    return gathered


def _convert(one: Mapping[str, Any], trace: Mapping[str, Any], gathered: Gathered) -> None:
    metadata = _object(one.get("metadata"))
    parent = one.get("parentObservationId")
    out = Span(
        trace_id=any_id(one.get("traceId") or trace.get("id"), 16, "trace_id"),
        span_id=any_id(one.get("id"), 8, "span_id"),
    )
    out.kind = Span.SPAN_KIND_INTERNAL
    out.parent_span_id = any_id(parent, 8, "parent_span_id") if parent else b""
    start_ns = iso_ns(one.get("startTime"), "startTime")
    end_ns = iso_ns(one["endTime"], "endTime") if one.get("endTime") else start_ns if one.get("type") == "EVENT" else 0
    set_times(out, start_ns, end_ns)
    out.name = text_of(one.get("name"))
    level = text_of(one.get("level"))
    if level == "ERROR":
        set_status(out, "error", one.get("statusMessage"))
    attributes = _object(metadata.get("attributes"))
    put_all(out.attributes, {**_told(one, trace, metadata, attributes), **attributes})
    scope = _object(metadata.get("scope"))
    resource = _object(metadata.get("resourceAttributes"))
    resource.setdefault("deployment.environment.name", one.get("environment"))
    gathered.span(resource, text_of(scope.get("name")), text_of(scope.get("version"))).CopyFrom(out)


def _told(
    one: Mapping[str, Any], trace: Mapping[str, Any], metadata: Mapping[str, Any], sent: Mapping[str, Any]
) -> dict[str, Any]:
    """What Langfuse says beside the original attributes; None is left out later."""
    usage, cost = _object(one.get("usageDetails")), _object(one.get("costDetails"))
    level = text_of(one.get("level"))
    told: dict[str, Any] = {
        "langfuse.observation.type": text_of(one.get("type")).lower() or None,
        "langfuse.observation.name": one.get("name"),
        "langfuse.observation.level": None if level in NOT_SAID else level,
        "langfuse.observation.status_message": one.get("statusMessage"),
        "langfuse.observation.model.name": one.get("model"),
        "langfuse.observation.input": _text(one.get("input")),
        "langfuse.observation.output": _text(one.get("output")),
        "langfuse.time_to_first_token": one.get("timeToFirstToken"),
        "langfuse.trace.name": trace.get("name"),
        "langfuse.trace.tags": trace.get("tags") or None,
        "langfuse.release": trace.get("release"),
        "langfuse.version": one.get("version"),
        **{f"langfuse.usage.{key}": value for key, value in usage.items()},
        **{f"langfuse.cost.{key}": value for key, value in cost.items()},
        **{f"langfuse.observation.metadata.{key}": value for key, value in metadata.items() if key not in KNOWN},
    }
    for key, value in (("user.id", trace.get("userId")), ("session.id", trace.get("sessionId"))):
        if not sent.get(key):
            told[key] = value
    for key in ("id", "traceId", "parentObservationId"):
        found = one.get(key)
        if isinstance(found, str) and "-" in found:  # not an OpenTelemetry id: kept to be found by
            told[f"langfuse.observation.{key}"] = found
    return told


def _object(value: Any) -> dict[str, Any]:
    """An object, or one written as JSON text; anything else is empty."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return None if value is None else text_of(value)
