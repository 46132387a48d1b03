"""A row of `failures` as an Elasticsearch document and back, in the names of the Elastic Common Schema where it has one.

Must stay true: `from_elastic(to_elastic(row))` is the row again, nanoseconds included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELDS: Mapping[str, str] = MappingProxyType(
    {
        "TraceId": "trace.id", "SpanId": "span.id", "ServiceName": "service.name", "Version": "service.version", "Host": "host.name",
        "UserId": "user.id", "UserTier": "user.tier", "SessionId": "session.id", "Region": "cloud.region", "Device": "device.type",
        "ErrorType": "error.type", "Message": "error.message", "Frames": "error.frames",
        "Stage": "stage", "Kind": "kind", "Tier": "tier", "Tool": "tool", "Model": "model",
        "ClusterId": "cluster_id", "Revision": "revision", "Context": "labels",
    }
)  # fmt: skip
TYPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "error.message": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 1024}}},
        "error.frames": {"type": "keyword", "ignore_above": 1024},
        "labels": {"type": "flattened", "ignore_above": 8191},
        "revision": {"type": "long"},
    }
)


@dataclass(frozen=True, slots=True)
class Put:
    """Documents now in the index, and those it will never take, by reason."""

    stored: int
    rejected: Mapping[str, int] = field(default_factory=dict)


def mappings() -> dict[str, Any]:
    """The properties of the index template; what is not named is kept, not indexed."""
    properties: dict[str, Any] = {"@timestamp": {"type": "date_nanos"}}
    for path in FIELDS.values():
        here = properties
        *parents, last = path.split(".")
        for parent in parents:
            here = here.setdefault(parent, {"properties": {}})["properties"]
        here[last] = dict(TYPES.get(path, {"type": "keyword", "ignore_above": 8191}))
    return {"dynamic": False, "properties": properties}


def name(trace_id: str, span_id: str) -> str:
    return f"{trace_id}-{span_id}"


def name_of(row: Mapping[str, Any]) -> str:
    return name(str(row["TraceId"]), str(row["SpanId"]))


def to_elastic(row: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"@timestamp": iso(int(row["Timestamp"]))}
    for column, path in FIELDS.items():
        value = row.get(column, "")
        if column == "Frames":
            value = [str(frame) for frame in value or ()]
        elif column == "Context":
            value = {str(key): str(text) for key, text in dict(value or {}).items()}
        elif column == "Revision":
            value = int(value or 1)
        here = out
        *parents, last = path.split(".")
        for parent in parents:
            here = here.setdefault(parent, {})
        here[last] = value
    return out


def from_elastic(document: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"Timestamp": nanoseconds(str(document["@timestamp"]))}
    for column, path in FIELDS.items():
        here: Any = document
        for part in path.split("."):
            here = here.get(part) if isinstance(here, Mapping) else None
        empty: Any = [] if column == "Frames" else {} if column == "Context" else 1 if column == "Revision" else ""
        row[column] = empty if here is None else here
    return row


def iso(time_ns: int) -> str:
    moment = EPOCH + timedelta(seconds=time_ns // 10**9)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 10**9:09d}Z"


def nanoseconds(text: str) -> int:
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z?", text)
    if found is None:
        raise ValueError(f"not a time of ours: {text!r}")
    past = datetime.fromisoformat(found[1]).replace(tzinfo=UTC) - EPOCH
    return (past.days * 86400 + past.seconds) * 10**9 + int((found[2] or "0").ljust(9, "0"))
